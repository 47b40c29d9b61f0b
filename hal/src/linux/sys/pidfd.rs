//! `pidfd_open`, `pidfd_send_signal`, `PIDFD_GET_INFO`: a process named by a descriptor is never another one.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// `struct pidfd_info`, first version (64 bytes; include/uapi/linux/pidfd.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid, and eight user and group ids
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`: the exit status is wanted, or was given (kernel 6.15).
const INFO_EXIT: u64 = 1 << 3;

/// `_IOWR(0xFF, 11, struct pidfd_info)`; the C libraries disagree on the type of an ioctl number, hence the cast below.
const GET_INFO: u32 = (3 << 30) | ((size_of::<Info>() as u32) << 16) | (0xFF << 8) | 11;

/// A close-on-exec descriptor for the process `pid`; `ESRCH` when it is gone.
///
/// # Errors
/// what `pidfd_open(2)` says; `ENOSYS` before kernel 5.3
pub fn open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let raw = i32::try_from(Errno::result(raw)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Sends `signal` (0: only asks whether it could) to the process of `pidfd`; `ESRCH` once it was reaped.
///
/// # Errors
/// what `pidfd_send_signal(2)` says
pub fn send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open while borrowed; a null siginfo is what kill(2) would send.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) };
    Errno::result(done).map(drop)
}

/// The wait status of a process that was reaped by someone else; `None` while it is not reaped yet.
/// Works for children of others (kernel 6.15).
///
/// # Errors
/// `ENOTTY` or `EINVAL` on older kernels; `ESRCH` when the process ended before the descriptor could learn of it
pub fn wait_status(pidfd: BorrowedFd<'_>) -> Result<Option<i32>, Errno> {
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // SAFETY: the kernel writes at most the 64 bytes that the number names, all integers, into `info`.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) };
    Errno::result(done)?;
    Ok((info.mask & INFO_EXIT != 0).then_some(info.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn info_has_the_size_of_the_first_version() {
        assert_eq!(size_of::<Info>(), 64);
    }

    #[test]
    fn signal_zero_reaches_a_living_process_and_misses_a_reaped_one() {
        let Ok(mut child) = std::process::Command::new("sleep").arg("1000").spawn() else {
            println!("skipped: no sleep program");
            return;
        };
        let pidfd = open(i32::try_from(child.id()).unwrap()).unwrap();
        send_signal(pidfd.as_fd(), 0).unwrap();
        send_signal(pidfd.as_fd(), libc::SIGKILL).unwrap();
        child.wait().unwrap();
        assert_eq!(send_signal(pidfd.as_fd(), 0), Err(Errno::ESRCH));
        match wait_status(pidfd.as_fd()) {
            Ok(status) => assert_eq!(status, Some(libc::SIGKILL)),
            Err(errno) => println!("skipped: no exit status by pidfd here: {errno}"),
        }
    }
}
