//! Descriptors that travel over a unix socket (`SCM_RIGHTS`), and those a program finds open when it starts.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// Descriptors taken with one receive at the most.
pub const MAX_FDS: usize = 16;
/// What the kernel lets through at once (`SCM_MAX_FD`): with room for all of them none is ever left without an owner.
const KERNEL_MAX_FDS: usize = 253;

/// Reads bytes and the descriptors that came with them; 0 bytes is the end. New descriptors are close-on-exec.
///
/// # Errors
/// what `recvmsg(2)` says; `EMSGSIZE` when more than [`MAX_FDS`] came (all are closed)
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut parts = [IoSliceMut::new(bytes)];
    let mut space = nix::cmsg_space!([i32; KERNEL_MAX_FDS]);
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel has just made this descriptor for this message; nobody else knows it.
                fds.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
    if fds.len() > MAX_FDS {
        return Err(Errno::EMSGSIZE);
    }
    Ok((message.bytes, fds))
}

/// Makes the open descriptors `numbers`, left by the program that executed this one, our own and close-on-exec.
/// Works once in the life of a process, so that no descriptor can ever get a second owner.
///
/// # Errors
/// `EALREADY` on a second call, `EBADF` when one is not open or below 3, `EEXIST` when one is named twice
pub fn take_inherited(numbers: &[i32]) -> Result<Vec<OwnedFd>, Errno> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(Errno::EALREADY);
    }
    let mut fds: Vec<OwnedFd> = Vec::with_capacity(numbers.len());
    for &number in numbers {
        if number < 3 {
            return Err(Errno::EBADF);
        }
        if fds.iter().any(|fd| fd.as_raw_fd() == number) {
            return Err(Errno::EEXIST);
        }
        // SAFETY: only looked at for the next call, which fails if it is not open.
        let seen = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl(seen, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        // SAFETY: it is open, it came with the process image, and this function runs once and refuses repeats:
        // no other owner exists (callers call it before they open anything).
        fds.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    Ok(fds)
}
