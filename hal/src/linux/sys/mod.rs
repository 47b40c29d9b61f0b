//! One kind of system call a file; each unsafe block says why it is sound.
#![allow(clippy::module_inception, reason = "the file list is the map of danger")]

pub mod bpf;
pub mod pidfd;
pub mod scm;
pub mod wait;

use nix::libc;

/// Effective user id of this process.
#[must_use]
pub fn euid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}
