//! One look at a file that may be anything: pipes, devices and folders are never opened for reading, large files are
//! not read, an unchanged file is not read again.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

use super::decode::MAX_FILE;

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    /// nanoseconds since 1970, of content and of inode
    pub modified: i128,
    pub changed: i128,
}

impl Stamp {
    pub fn of(metadata: &Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[derive(Debug)]
pub enum Look {
    /// nothing has this name
    Absent,
    /// same file as before, not written since
    Same,
    Text {
        bytes: Vec<u8>,
        stamp: Stamp,
    },
    /// a regular file larger than is read
    TooLarge {
        stamp: Stamp,
    },
    /// no file to read: why
    Other(&'static str),
    /// a link to nothing
    Dangling,
    Unreadable(io::Error),
}

/// Looks at a path, following links. `known`: the state last read.
pub fn look(path: &Path, known: Option<&Stamp>) -> Look {
    match try_look(path, known) {
        Ok(look) => look,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => Look::Dangling,
            // gone meanwhile, or here again: the next event tells
            Ok(_) | Err(_) => Look::Absent,
        },
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Look::Other("a link that leads to itself"),
        Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => Look::Dangling,
        Err(error) => Look::Unreadable(error),
    }
}

fn try_look(path: &Path, known: Option<&Stamp>) -> io::Result<Look> {
    // an O_PATH descriptor touches neither pipe nor device
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let metadata = place.metadata()?;
    if let Some(other) = other_kind(&metadata) {
        return Ok(Look::Other(other));
    }
    let stamp = Stamp::of(&metadata);
    if known == Some(&stamp) {
        return Ok(Look::Same);
    }
    if stamp.size > MAX_FILE {
        return Ok(Look::TooLarge { stamp });
    }
    // the same file, whatever the path leads to by now
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0).saturating_add(1));
    file.take(MAX_FILE.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Ok(Look::TooLarge { stamp });
    }
    Ok(Look::Text { bytes, stamp })
}

fn other_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::testing::Scratch;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = Scratch::new("look");
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(at("dir")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("sock")).unwrap();
        for (link, target) in [("zero", "/dev/zero"), ("loop", "loop"), ("none", "nothing"), ("ok", "file")] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        fs::write(at("file"), "text").unwrap();
        for (name, expected) in [
            ("pipe", "a pipe"),
            ("dir", "a folder"),
            ("sock", "a socket"),
            ("zero", "a device"),
            ("loop", "a link that leads to itself"),
        ] {
            let found = look(&at(name), None);
            assert!(matches!(found, Look::Other(kind) if kind == expected), "{name}: {found:?}");
        }
        assert!(matches!(look(&at("none"), None), Look::Dangling));
        assert!(matches!(look(&at("missing"), None), Look::Absent));
        assert!(matches!(look(&at("file/below"), None), Look::Dangling));
        let Look::Text { bytes, stamp } = look(&at("ok"), None) else { panic!() };
        assert_eq!(bytes, b"text");
        assert!(matches!(look(&at("file"), Some(&stamp)), Look::Same));
        fs::write(at("file"), "other").unwrap();
        assert!(matches!(look(&at("file"), Some(&stamp)), Look::Text { .. }));
    }

    #[test]
    fn large_file_is_not_read() {
        let dir = Scratch::new("look-large");
        let path = dir.path().join("huge");
        File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(matches!(look(&path, None), Look::TooLarge { .. }));
    }
}
