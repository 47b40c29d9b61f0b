//! One end of a connection, without waiting: what the other end does not take is queued up to a bound, beyond it the
//! connection is of no use any more. (The agent then connects again and asks for everything anew.)

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use podkeep_hal::linux::sys::scm;

use super::wire::FrameBuffer;

/// Bytes that may wait for one peer: two of the longest frames.
const MAX_QUEUED: usize = 8 << 20;
/// Bytes read at once.
const READ: usize = 16 * 1024;

struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// ride on the first byte
    fds: Vec<OwnedFd>,
}

/// One end of a connection.
pub(super) struct Peer {
    socket: OwnedFd,
    pub inbox: FrameBuffer,
    /// descriptors received and not yet claimed by a frame
    pub fds: VecDeque<OwnedFd>,
    out: VecDeque<Outgoing>,
    queued: usize,
    /// the event loop waits for room in the socket
    pub waits_for_room: bool,
}

impl Peer {
    /// Of a non-blocking socket.
    #[must_use]
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            inbox: FrameBuffer::default(),
            fds: VecDeque::new(),
            out: VecDeque::new(),
            queued: 0,
            waits_for_room: false,
        }
    }

    #[must_use]
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// All that was queued is with the kernel.
    #[must_use]
    pub(super) fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Reads once. `false`: the peer has closed.
    ///
    /// # Errors
    /// when the connection is broken
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ];
        match scm::receive(self.socket.as_fd(), &mut bytes) {
            Ok((0, _)) => Ok(false),
            Ok((length, fds)) => {
                self.fds.extend(fds);
                if self.fds.len() > scm::MAX_FDS {
                    // frames that claim none of theirs: a broken peer
                    return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
                }
                self.inbox.push(bytes.get(..length).unwrap_or_default());
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Queues an encoded frame and sends what fits.
    ///
    /// # Errors
    /// when the connection is broken or the queue is full
    pub(super) fn send(&mut self, bytes: Vec<u8>, fds: Vec<OwnedFd>) -> io::Result<()> {
        self.queued = self.queued.saturating_add(bytes.len());
        if self.queued > MAX_QUEUED {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        self.out.push_back(Outgoing { bytes, sent: 0, fds });
        self.flush()
    }

    /// Sends what fits into the socket.
    ///
    /// # Errors
    /// when the connection is broken
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(frame) = self.out.front_mut() {
            let rest = [IoSlice::new(frame.bytes.get(frame.sent..).unwrap_or_default())];
            let numbers: Vec<i32> = frame.fds.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&numbers)];
            let control = if numbers.is_empty() { &[][..] } else { &rights[..] };
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match sendmsg::<()>(self.socket.as_raw_fd(), &rest, control, flags, None) {
                Ok(length) => {
                    frame.fds.clear();
                    frame.sent = frame.sent.saturating_add(length);
                    self.queued = self.queued.saturating_sub(length);
                    if frame.sent >= frame.bytes.len() {
                        self.out.pop_front();
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.out.capacity() > 16 {
            self.out = VecDeque::new();
        }
        Ok(())
    }
}
