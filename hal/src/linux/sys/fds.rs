//! Many descriptors at once.

use std::os::fd::RawFd;

use nix::Result;
use nix::errno::Errno;
use nix::libc;

const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// Closes everything from 3 on but `keep`. Only for a fresh child: owners of the closed ones are never run there.
pub(super) fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> =
        keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    let mut first = 3_u32;
    let mut refused = false;
    for fd in keep.iter().copied() {
        if fd > first {
            refused |= close_range(first, fd.saturating_sub(1), 0).is_err();
        }
        first = fd.saturating_add(1);
    }
    refused |= close_range(first, u32::MAX, 0).is_err();
    if refused {
        // kernel < 5.9
        for fd in open_fds() {
            if fd > 2 && !keep.contains(&fd.cast_unsigned()) {
                // SAFETY: closing a number is sound here: no owner of it runs in this process any more.
                let _closed = unsafe { libc::close(fd) };
            }
        }
    }
}

/// Marks everything from 3 on close-on-exec.
pub fn close_on_exec() {
    if close_range(3, u32::MAX, CLOSE_RANGE_CLOEXEC).is_ok() {
        return;
    }
    for fd in open_fds() {
        if fd > 2 {
            // SAFETY: F_SETFD takes an integer and touches no memory.
            let _set = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> Result<()> {
    // SAFETY: takes integers only. Callers see to it that no owner of a closed descriptor runs afterwards.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

fn open_fds() -> Vec<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
