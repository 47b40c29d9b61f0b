//! What `/proc` tells of a process, and of this boot.

use std::fs;
use std::io;

/// The fields of `/proc/<pid>/stat` that are used here (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `Z`, ...
    pub state: u8,
    pub parent: i32,
    pub session: i32,
    /// clock ticks since boot; with the pid it names a process for one boot
    pub start_ticks: u64,
    /// in the form of `wait(2)`; true only for a zombie, and only for those who may look
    pub wait_status: i32,
}

impl Stat {
    /// From the text of the file. The name in parentheses may hold anything, even `) Z 1 (`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|&byte| byte == b')')?;
        let rest = core::str::from_utf8(text.get(end.checked_add(1)?..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        // fields 3, 4 and 6 are taken; the start time is field 22
        let start_ticks = fields.nth(15)?.parse().ok()?;
        // field 52, missing before Linux 3.5
        let wait_status = fields.nth(29).and_then(|text| text.parse().ok()).unwrap_or(0);
        Some(Self { state, parent, session, start_ticks, wait_status })
    }

    /// Of a living process or a zombie.
    ///
    /// # Errors
    /// `NotFound` when there is no such process, `InvalidData` when the file is not what it should be
    pub fn read(pid: i32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// All process ids of the machine (of this pid namespace) at this moment.
///
/// # Errors
/// when `/proc` cannot be listed
pub fn all() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// The random name of this boot of the machine.
///
/// # Errors
/// when `/proc` is not mounted
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_hostile_name_is_read_from_the_last_parenthesis() {
        let text =
            b"7 (a) Z 1 (b) S 1 7 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 9 1 18446744073709551615 \
            1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 256\n";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat, Stat { state: b'S', parent: 1, session: 6, start_ticks: 12345, wait_status: 256 });
    }

    #[test]
    fn cut_text_is_refused_at_every_length() {
        let text = b"7 (sh) S 1 7 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345";
        for length in 0..text.len() - 5 {
            assert_eq!(Stat::parse(&text[..length]), None, "{length}");
        }
    }

    #[test]
    fn this_process_is_in_the_list_with_its_parent() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let stat = Stat::read(pid).unwrap();
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
        assert!(stat.start_ticks > 0);
        assert!(all().unwrap().contains(&pid));
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
