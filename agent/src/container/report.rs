//! What the child says to its parent before its exec, and the one byte it waits for.
//!
//! Both ends of a `SOCK_SEQPACKET` pair, closed by the exec: a message is one JSON document, the end of the stream after
//! `Ready` means that the program was executed.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use podkeep_hal::linux::sys::scm;
use serde::{Deserialize, Serialize};

use crate::supervisor::proto::{Failure, FailureKind};

/// Longer reports are cut by the kernel and then unreadable, so notes are kept short.
const MAX_REPORT: usize = 16 * 1024;

/// Child to parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// all is set up; the pty's controlling end rides on it
    Ready {
        degraded: Vec<String>,
    },
    Failed(Failure),
}

/// A failed step.
pub(super) fn failed(step: &str, what: impl AsRef<std::ffi::OsStr>, errno: Errno) -> Failure {
    let what = what.as_ref().to_string_lossy().into_owned();
    Failure { kind: FailureKind::System, step: step.to_owned(), what, errno: errno as i32 }
}

/// Adds the step and its object to the kernel's answer.
pub(super) trait At<T> {
    fn at(self, step: &str, what: impl AsRef<std::ffi::OsStr>) -> Result<T, Failure>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, step: &str, what: impl AsRef<std::ffi::OsStr>) -> Result<T, Failure> {
        self.map_err(|errno| failed(step, what, errno))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: &str, what: impl AsRef<std::ffi::OsStr>) -> Result<T, Failure> {
        self.map_err(|error| failed(step, what, error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))
    }
}

/// The parent's end (does not block) and the child's (blocks).
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Failure> {
    let (parent, child) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .at("socketpair", "")?;
    nix::fcntl::fcntl(&parent, nix::fcntl::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).at("socketpair", "")?;
    Ok((parent, child))
}

pub(super) fn send(channel: BorrowedFd<'_>, report: &Report, fd: Option<RawFd>) -> nix::Result<()> {
    let text = serde_json::to_vec(report).map_err(|_| Errno::EINVAL)?;
    let fds: Vec<RawFd> = fd.into_iter().collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights[..] };
    sendmsg::<()>(channel.as_raw_fd(), &[IoSlice::new(&text)], control, MsgFlags::MSG_NOSIGNAL, None)
        .map(drop)
}

/// `None` at the end of the stream; `EAGAIN` when there is nothing yet.
pub(super) fn receive(channel: BorrowedFd<'_>) -> nix::Result<Option<(Report, Option<OwnedFd>)>> {
    let mut buffer = vec![0_u8; MAX_REPORT];
    let (length, fds) = scm::receive(channel, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let text = buffer.get(..length).ok_or(Errno::EBADMSG)?;
    let fd = fds.into_iter().next();
    serde_json::from_slice(text).map(|report| Some((report, fd))).map_err(|_| Errno::EBADMSG)
}
