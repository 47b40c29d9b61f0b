//! The files of one container's log: the live one, and rotated ones named `<live>.<YYYYMMDD-HHMMSS>[-n]` beside it.
//!
//! Names are the kubelet's; `-n` tells files of one second apart and keeps the order when the clock steps back: a new
//! name is always above all that are there.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::timestamp;

/// The part of a rotated file's name behind the live file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix {
    /// `20261130-221300`
    pub second: [u8; 15],
    /// 0: none
    pub number: u32,
    /// packed by another node agent; podkeep itself packs nothing
    pub packed: bool,
}

impl Ord for Suffix {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.second, self.number, self.packed).cmp(&(other.second, other.number, other.packed))
    }
}

impl PartialOrd for Suffix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Suffix {
    /// From the text behind the dot.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (text, packed) = match text.strip_suffix(b".gz") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let second: [u8; 15] = text.get(..15)?.try_into().ok()?;
        let shaped = second
            .iter()
            .enumerate()
            .all(|(at, byte)| if at == 8 { *byte == b'-' } else { byte.is_ascii_digit() });
        if !shaped {
            return None;
        }
        let number = match text.get(15..)? {
            [] => 0,
            [b'-', digits @ ..] => {
                core::str::from_utf8(digits).ok()?.parse().ok().filter(|&number| number > 0)?
            }
            _ => return None,
        };
        Some(Self { second, number, packed })
    }

    /// For a file rotated at `now_ns` when `newest` exists already.
    #[must_use]
    pub fn after(now_ns: i64, newest: Option<&Self>) -> Self {
        let second = timestamp::compact(now_ns);
        match newest {
            Some(newest) if newest.second >= second => {
                Self { second: newest.second, number: newest.number.saturating_add(1), packed: false }
            }
            _ => Self { second, number: 0, packed: false },
        }
    }

    /// Path of the rotated file.
    #[must_use]
    pub fn path(&self, live: &Path) -> PathBuf {
        let mut name = live.as_os_str().to_owned();
        name.push(".");
        name.push(String::from_utf8_lossy(&self.second).as_ref());
        if self.number > 0 {
            name.push(format!("-{}", self.number));
        }
        if self.packed {
            name.push(".gz");
        }
        PathBuf::from(name)
    }
}

/// The rotated files of `live`, the oldest first.
///
/// # Errors
/// when the folder cannot be listed
pub fn rotated(live: &Path) -> io::Result<Vec<Suffix>> {
    use std::os::unix::ffi::OsStrExt;
    let (Some(folder), Some(name)) = (live.parent(), live.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?.file_name();
        let suffix = entry.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
        if let Some(suffix) = suffix.and_then(Suffix::parse) {
            found.push(suffix);
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_796_076_780_000_000_000;

    #[test]
    fn names_grow_even_when_the_clock_steps_back() {
        let live = Path::new("/x/0.log");
        let first = Suffix::after(NOW, None);
        let second = Suffix::after(NOW, Some(&first));
        let third = Suffix::after(NOW - 5_000_000_000, Some(&second));
        let fourth = Suffix::after(NOW + 1_000_000_000, Some(&third));
        assert!(first < second && second < third && third < fourth);
        let paths: Vec<_> = [first, second, third, fourth].iter().map(|suffix| suffix.path(live)).collect();
        assert_eq!(
            paths,
            [
                "/x/0.log.20261130-221300",
                "/x/0.log.20261130-221300-1",
                "/x/0.log.20261130-221300-2",
                "/x/0.log.20261130-221301"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn only_names_of_rotated_files_are_taken() {
        for (text, good) in [
            ("20261130-221300", true),
            ("20261130-221300-1", true),
            ("20261130-221300-12", true),
            ("20261130-221300.gz", true),
            ("20261130-221300.tmp", false),
            ("20261130-221300-", false),
            ("20261130-221300-0", false),
            ("20261130-22130", false),
            ("20261130x221300", false),
            ("", false),
        ] {
            assert_eq!(Suffix::parse(text.as_bytes()).is_some(), good, "{text}");
        }
        assert!(Suffix::parse(b"20261130-221300-9") < Suffix::parse(b"20261130-221300-10"));
    }
}
