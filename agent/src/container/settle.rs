//! Waiting for children, letting them go on, ending them.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use podkeep_hal::linux::sys::pidfd;

use super::report::At;
use crate::supervisor::proto::Failure;

/// Collects an ended child, or waits for its end.
pub(super) fn reap(child: BorrowedFd<'_>) {
    while waitid(Id::PIDFd(child), WaitPidFlag::WEXITED) == Err(Errno::EINTR) {}
}

/// Ends a child whatever it does, and collects it.
pub(super) fn kill(child: BorrowedFd<'_>) {
    // it may have ended by itself: then there is only the collecting
    let _sent = pidfd::send_signal(child, nix::libc::SIGKILL);
    reap(child);
}

/// Parent to child: go on.
pub(super) fn say_go(channel: BorrowedFd<'_>) -> Result<(), Failure> {
    let sent = nix::unistd::write(channel, b"g");
    // the child is gone: its report, still in the channel, says why
    if sent == Err(Errno::EPIPE) || sent == Err(Errno::ECONNRESET) {
        return Ok(());
    }
    sent.map(drop).at("child", "go")
}

/// Child: waits for the parent's word. An error when the parent is gone.
pub(super) fn await_go(channel: BorrowedFd<'_>) -> nix::Result<()> {
    let mut byte = [0_u8; 1];
    loop {
        match nix::unistd::read(channel, &mut byte) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(Errno::EPIPE),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits until the child said something or is gone.
pub(super) fn wait_readable(channel: BorrowedFd<'_>) -> Result<(), Failure> {
    loop {
        let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop).at("child", "wait"),
        }
    }
}
