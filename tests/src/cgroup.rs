//! The cgroup folders of a test node, on whatever hierarchies this machine has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::proc::Process;
use crate::trouble::{Doing, Result, Trouble};

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount: PathBuf,
    pub v2: bool,
    /// v1 controllers (`memory`, `cpu`, `name=systemd`); empty on v2
    pub controllers: Vec<String>,
}

/// Every hierarchy that is mounted here, each once.
///
/// # Errors
/// The mount table cannot be read.
pub fn hierarchies() -> Result<Vec<Hierarchy>> {
    let table = fs::read_to_string("/proc/self/mountinfo").doing("mount table")?;
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in table.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut right = right.split(' ');
        let v2 = match right.next() {
            Some("cgroup") => false,
            Some("cgroup2") => true,
            _ => continue,
        };
        let Some(mount) = left.split(' ').nth(4) else { continue };
        let options = right.nth(1).unwrap_or_default();
        let controllers = if v2 {
            Vec::new()
        } else {
            options
                .split(',')
                .filter(|o| !matches!(*o, "rw" | "ro" | "xattr" | "clone_children"))
                .map(str::to_string)
                .collect()
        };
        if !found.iter().any(|h| h.v2 == v2 && h.controllers == controllers) {
            found.push(Hierarchy { mount: mount.into(), v2, controllers });
        }
    }
    Ok(found)
}

/// The folder below which `controller` (`memory`, `cpu`, `pids`, …) is set for the group `name`: the v1 hierarchy that
/// has it, else v2. `None` where the kernel does not offer the controller at all.
///
/// # Errors
/// The mount table cannot be read.
pub fn folder(controller: &str, name: &str) -> Result<Option<PathBuf>> {
    let name = name.trim_start_matches('/');
    for h in hierarchies()? {
        let offers = if h.v2 {
            let list = fs::read_to_string(h.mount.join("cgroup.controllers")).unwrap_or_default();
            list.split_whitespace().any(|c| c == controller)
        } else {
            h.controllers.iter().any(|c| c == controller)
        };
        if offers {
            return Ok(Some(h.mount.join(name)));
        }
    }
    Ok(None)
}

/// The folder that the node's own processes are put in, so that none of them can be lost: on v2 if it is mounted, else
/// on a hierarchy whose groups take processes without being set up first.
///
/// # Errors
/// This machine has no usable hierarchy, or the folder cannot be made.
pub fn make_home(name: &str) -> Result<PathBuf> {
    let all = hierarchies()?;
    let usable = |h: &&Hierarchy| {
        h.v2 || h.controllers.iter().any(|c| c.starts_with("name=") || c == "freezer" || c == "devices")
    };
    let home = all.iter().find(|h| h.v2).or_else(|| all.iter().find(usable));
    let home = home.ok_or_else(|| Trouble::new("no cgroup hierarchy is mounted"))?;
    let path = home.mount.join(name.trim_start_matches('/')).join("agent");
    fs::create_dir_all(&path).doing(path.display())?;
    Ok(path)
}

/// Kills everything in the group `name` on every hierarchy and removes its folders.
///
/// # Errors
/// Something would not end or would not go away within ten seconds; says what.
pub fn remove(name: &str) -> Result<()> {
    let name = name.trim_start_matches('/');
    if name.is_empty() || name.contains("..") {
        return Err(Trouble::new(format!("'{name}' is no group of a test")));
    }
    let tops: Vec<PathBuf> =
        hierarchies()?.into_iter().map(|h| h.mount.join(name)).filter(|top| top.is_dir()).collect();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let mut left = 0;
        for top in &tops {
            // one write for all of a v2 tree, also while it forks
            _ = fs::write(top.join("cgroup.kill"), "1");
            left += kill_below(top);
        }
        let gone = tops.iter().map(|top| remove_tree(top)).fold(true, |all, one| all & one);
        if left == 0 && gone {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Trouble::new(format!(
                "{left} processes of group '{name}' would not end, or its folders would not go"
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn folders_below(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_path_buf()];
    let mut next = 0;
    while let Some(dir) = found.get(next).cloned() {
        next += 1;
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        found.extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    found
}

/// How many processes were there; each was sent SIGKILL.
fn kill_below(top: &Path) -> usize {
    let mut seen = 0;
    for dir in folders_below(top) {
        // a frozen v1 group does not even die
        _ = fs::write(dir.join("freezer.state"), "THAWED");
        for pid in pids(&dir) {
            if let Some(process) = Process::of(pid) {
                seen += 1;
                _ = process.signal(Signal::SIGKILL);
            }
        }
    }
    seen
}

/// The processes in one group, without those of the groups below it.
#[must_use]
pub fn pids(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// True when nothing is left of the tree.
fn remove_tree(top: &Path) -> bool {
    let mut all = true;
    for dir in folders_below(top).iter().rev() {
        match fs::remove_dir(dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(_) => all = false,
        }
    }
    all
}
