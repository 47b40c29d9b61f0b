//! One kind of system call a file; each unsafe block says why it is sound.
#![allow(clippy::module_inception, reason = "the file list is the map of danger")]

pub mod bpf;
pub mod caps;
pub mod clone;
pub mod fds;
pub mod fxattr;
pub mod mount;
pub mod net;
pub mod pidfd;
pub mod reaper;
pub mod rlimit;
pub mod scm;
pub mod seccomp;
pub mod signals;
pub mod tty;
pub mod wait;
pub mod xattr;

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// Effective user id of this process.
#[must_use]
pub fn euid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// The owner of a descriptor a system call just returned.
fn owned(fd: libc::c_long) -> nix::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the callers of this private function pass what a successful call returned: new, and known to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
