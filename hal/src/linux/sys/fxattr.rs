//! Extended attributes of open files: set, get, list.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

/// Sets `name` to `value`, made or replaced. See setxattr(2).
pub fn set(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: `fd` is open for the call, `name` ends with NUL, `value` is readable for its length.
    let done =
        unsafe { libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(done).map(drop)
}

/// Reads `name` into `buffer`; gives the length of the value. `ENODATA`: no such attribute.
pub fn get(fd: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `fd` is open for the call, `name` ends with NUL, `buffer` is writable for its length.
    let length =
        unsafe { libc::fgetxattr(fd.as_raw_fd(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    Errno::result(length).map(isize::unsigned_abs)
}

/// Writes the names, each ended by NUL, into `buffer`; gives the length used.
pub fn list(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `fd` is open for the call, `buffer` is writable for its length.
    let length = unsafe { libc::flistxattr(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    Errno::result(length).map(isize::unsigned_abs)
}
