//! Small kernel files relative to an open folder: no path is walked twice, nothing is buffered.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{read, write};

/// Longest text read of one file. Lists of processes and statistics may be long; settings are not.
const MAX: usize = 1 << 20;

/// `a/b` + `c`; the empty path stands for the top.
pub(super) fn join(path: &str, file: &str) -> String {
    if path.is_empty() { file.to_owned() } else { format!("{path}/{file}") }
}

fn open_file(dir: &impl AsFd, file: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    openat(dir, file, flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY, Mode::empty())
}

fn read_rest(fd: &OwnedFd) -> Result<String, Errno> {
    let mut out = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let n = match read(fd, &mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(e),
        };
        out.extend_from_slice(buffer.get(..n).unwrap_or_default());
        if out.len() > MAX {
            return Err(Errno::EFBIG);
        }
    }
    Ok(String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

pub(super) fn read_text(dir: &impl AsFd, file: &str) -> Result<String, Errno> {
    read_rest(&open_file(dir, file, OFlag::O_RDONLY)?)
}

/// One write call: kernel files take a value whole or not at all.
fn write_once(fd: &OwnedFd, value: &str) -> Result<(), Errno> {
    loop {
        match write(fd, value.as_bytes()) {
            Ok(n) if n == value.len() => return Ok(()),
            Ok(_) => return Err(Errno::EIO),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

pub(super) fn write_text(dir: &impl AsFd, file: &str, value: &str) -> Result<(), Errno> {
    // O_TRUNC means nothing to kernel files and keeps plain files (tests) honest
    write_once(&open_file(dir, file, OFlag::O_WRONLY | OFlag::O_TRUNC)?, value)
}

/// Several writes through one descriptor, for files that take rules.
pub(super) fn write_each(
    dir: &impl AsFd,
    file: &str,
    values: impl Iterator<Item = String>,
) -> Result<(), (String, Errno)> {
    let fd = open_file(dir, file, OFlag::O_WRONLY).map_err(|e| (String::new(), e))?;
    for value in values {
        write_once(&fd, &value).map_err(|e| (value, e))?;
    }
    Ok(())
}

/// Writes and reads back through one descriptor. A file that cannot be read answers `None`.
pub(super) fn write_read(dir: &impl AsFd, file: &str, value: &str) -> Result<Option<String>, Errno> {
    let fd = match open_file(dir, file, OFlag::O_RDWR | OFlag::O_TRUNC) {
        Ok(fd) => fd,
        Err(Errno::EACCES) => {
            write_text(dir, file, value)?;
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    write_once(&fd, value)?;
    let mut buffer = [0_u8; 4096];
    match nix::sys::uio::pread(&fd, &mut buffer, 0) {
        Ok(n) => Ok(Some(String::from_utf8_lossy(buffer.get(..n).unwrap_or_default()).trim().to_owned())),
        Err(_) => Ok(None),
    }
}

/// Value of `key value` lines (`memory.events`, `cpu.stat`, ...).
pub(super) fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}
