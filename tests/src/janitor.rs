//! What a test node brings into the world is written below its folder before it is made; this takes it away again.
//!
//! Nothing is ever found by its name: processes by number and start time or by the node's own cgroup, mounts by lying
//! below the node's folder, cgroups by the name in the node's ledger.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;

use crate::cgroup;
use crate::proc::{Process, mounts_below};
use crate::trouble::{Doing, Result, Trouble};

/// Names of cgroups that tests may make begin so.
pub const CGROUP_PREFIX: &str = "podkeep-test-";

/// The folder that holds the folders of all test nodes of this run.
#[must_use]
pub fn test_dir() -> PathBuf {
    std::env::var_os("PODKEEP_TEST_DIR")
        .map_or_else(|| std::env::temp_dir().join("podkeep-test.loose"), PathBuf::from)
}

/// Writes down who uses `root` and which cgroup goes with it.
///
/// # Errors
/// The folder cannot be written.
pub fn open_ledger(root: &Path, cgroup: &str) -> Result<()> {
    fs::create_dir_all(root).doing(root.display())?;
    let me = Process::of(std::process::id().cast_signed()).ok_or_else(|| Trouble::new("no /proc/self"))?;
    fs::write(root.join("owner"), format!("{} {}\n", me.pid, me.start)).doing("owner")?;
    fs::write(root.join("cgroup"), cgroup).doing("cgroup")
}

/// Adds a process that must not outlive the node.
///
/// # Errors
/// The ledger cannot be written.
pub fn note_process(root: &Path, process: Process) -> Result<()> {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(root.join("pids")).doing("pids")?;
    writeln!(file, "{} {}", process.pid, process.start).doing("pids")
}

fn processes(path: &Path) -> Vec<Process> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let read = |line: &str| {
        let (pid, start) = line.split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, start: start.trim().parse().ok()? })
    };
    text.lines().filter_map(read).collect()
}

/// Takes away one node: processes, cgroups, mounts, files, in this order.
///
/// # Errors
/// Something is left; says what. The files stay then, so that a later run can try again.
pub fn clear(root: &Path) -> Result<()> {
    if !root.join("owner").exists() {
        return Err(Trouble::new(format!("'{}' is no folder of a test node", root.display())));
    }
    for process in processes(&root.join("pids")) {
        process.signal(Signal::SIGKILL)?;
        process.wait_gone(Duration::from_secs(10))?;
    }
    let group = fs::read_to_string(root.join("cgroup")).unwrap_or_default();
    if group.trim().trim_start_matches('/').starts_with(CGROUP_PREFIX) {
        cgroup::remove(group.trim())?;
    }
    // innermost first; a mount can carry another one on the same point
    for _ in 0..64 {
        let mounts = mounts_below(root)?;
        if mounts.is_empty() {
            break;
        }
        for point in mounts.iter().rev() {
            _ = umount2(point.as_str(), MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        }
    }
    let left = mounts_below(root)?;
    if !left.is_empty() {
        return Err(Trouble::new(format!("still mounted: {left:?}")));
    }
    fs::remove_dir_all(root).doing(root.display())
}

/// Takes away every node below `dir` whose test program is gone (or every one, with `all`), then `dir` if it is empty.
/// Returns how many were cleared and what could not be.
#[must_use]
pub fn sweep(dir: &Path, all: bool) -> (usize, Vec<Trouble>) {
    let mut cleared = 0;
    let mut troubles = Vec::new();
    let entries =
        fs::read_dir(dir).map(|e| e.flatten().map(|e| e.path()).collect::<Vec<_>>()).unwrap_or_default();
    for root in entries.into_iter().filter(|root| root.join("owner").is_file()) {
        if !all && processes(&root.join("owner")).iter().any(|p| p.alive()) {
            continue;
        }
        match clear(&root) {
            Ok(()) => cleared += 1,
            Err(e) => troubles.push(Trouble::new(format!("{}: {e}", root.display()))),
        }
    }
    _ = fs::remove_dir(dir);
    (cleared, troubles)
}
