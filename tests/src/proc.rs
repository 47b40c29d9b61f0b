//! What `/proc` says of a process. A process is named by its number and its start time: numbers come back.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::trouble::{Doing, Result, Trouble};

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// field 22 of `/proc/PID/stat`, clock ticks since boot
    pub start: u64,
}

impl Process {
    /// The process that has this number now; `None` when there is none or it is a zombie.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // the name may hold blanks and brackets; what follows the last bracket does not
        let rest = stat.rsplit_once(')')?.1;
        let mut fields = rest.split_ascii_whitespace();
        if matches!(fields.next(), Some("Z" | "X")) {
            return None;
        }
        let start = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, start })
    }

    #[must_use]
    pub fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// # Errors
    /// The signal could not be sent to a process that is there.
    pub fn signal(self, signal: Signal) -> Result<()> {
        if !self.alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(e) => Err(Trouble::new(format!("{signal} to process {}: {e}", self.pid))),
        }
    }

    /// Waits until the process is gone (a zombie counts as gone).
    ///
    /// # Errors
    /// It is still there at the end of `limit`.
    pub fn wait_gone(self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while self.alive() {
            if Instant::now() > end {
                return Err(Trouble::new(format!("process {} is still there after {limit:?}", self.pid)));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// What a process costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// time on a CPU, all threads, nanoseconds
    pub cpu_ns: u64,
    /// times it went to sleep by itself: each is a wake-up
    pub voluntary: u64,
    pub involuntary: u64,
}

/// # Errors
/// The process is gone.
pub fn cost(pid: i32) -> Result<Cost> {
    let mut sum = Cost::default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).doing(format_args!("threads of {pid}"))?;
    for task in tasks.flatten() {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        sum.voluntary += status_number(&status, "voluntary_ctxt_switches:");
        sum.involuntary += status_number(&status, "nonvoluntary_ctxt_switches:");
        let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        sum.cpu_ns += schedstat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    }
    Ok(sum)
}

fn status_number(status: &str, key: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.trim().split(' ').next())
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// Proportional share of memory in KiB.
///
/// # Errors
/// The process is gone or the kernel has no `smaps_rollup`.
pub fn pss_kib(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).doing(&path)?;
    Ok(status_number(&text, "Pss:"))
}

/// Mount points at or below `root`, the innermost last.
///
/// # Errors
/// The mount table cannot be read.
pub fn mounts_below(root: &Path) -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo").doing("mount table")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    Ok(points.filter(|point| Path::new(point).starts_with(root)).collect())
}

/// `\040` and its like, as the kernel writes blanks, tabs, line ends and backslashes in its tables.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        if let (b'\\', Some(code)) = (byte, octal) {
            out.push(code);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_alive_and_has_a_cost() {
        let me = Process::of(std::process::id().cast_signed()).unwrap();
        assert!(me.alive());
        assert!(!Process { start: me.start + 1, ..me }.alive());
        assert!(cost(me.pid).unwrap().cpu_ns > 0);
    }

    #[test]
    fn mount_table_escapes_are_undone() {
        assert_eq!(unescape(r"/a\040b\134c\9"), r"/a b\c\9");
    }
}
