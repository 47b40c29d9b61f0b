//! Pseudo terminals.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::libc;

/// `_IO('T', 0x41)`
const TIOCGPTPEER: libc::c_ulong = 0x5441;

/// Opens the process's end of the pty whose controlling end is `master`, not by path (kernel 4.13).
pub fn open_peer(master: BorrowedFd<'_>) -> Result<OwnedFd> {
    let unlock: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK as _, &raw const unlock) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes the open flags as an integer and returns a new descriptor.
    let fd = Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), TIOCGPTPEER as _, flags) })?;
    super::owned(fd.into())
}

/// Makes `tty` the controlling terminal of this session leader.
pub fn take_control(tty: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes an integer.
    Errno::result(unsafe { libc::ioctl(tty.as_raw_fd(), libc::TIOCSCTTY as _, 0) }).map(drop)
}
