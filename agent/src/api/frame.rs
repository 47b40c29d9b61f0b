//! Frames with descriptors, for the blocking command line and for the agent's reactor.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use async_io::Async;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use podkeep_hal::linux::sys::scm;
use serde::{Serialize, de::DeserializeOwned};

/// A longer frame is refused.
pub const MAX_FRAME: usize = 64 << 20;

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

/// Length and JSON text.
pub fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, value)?;
    let length = u32::try_from(bytes.len() - 4).map_err(|_| bad("frame too long"))?;
    if let Some(head) = bytes.first_chunk_mut::<4>() {
        *head = length.to_le_bytes();
    }
    Ok(bytes)
}

fn body_length(head: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
    if length > MAX_FRAME { Err(bad("frame too long")) } else { Ok(length) }
}

/// One `sendmsg` with the descriptors on it; returns how much of `bytes` went out.
pub fn send_with_fds(fd: RawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<usize> {
    let iov = [IoSlice::new(bytes)];
    let rights = [ControlMessage::ScmRights(fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    Ok(sendmsg::<()>(fd, &iov, control, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// One `recvmsg`; descriptors are close-on-exec from the start.
pub fn receive_with_fds(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let (count, received) = scm::receive(socket, buffer)?;
    fds.extend(received);
    Ok(count)
}

/// Sends one frame and waits until it is out.
pub fn send<T: Serialize>(stream: &mut UnixStream, value: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = encode(value)?;
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let sent = send_with_fds(stream.as_raw_fd(), &bytes, &raw)?;
    stream.write_all(bytes.get(sent..).unwrap_or_default())
}

/// Waits for one frame; `None` at the end of the connection.
pub fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut fds = Vec::new();
    let mut head = [0; 4];
    let first = receive_with_fds(stream.as_fd(), &mut head, &mut fds)?;
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(head.get_mut(first..).unwrap_or_default())?;
    let mut body = vec![0; body_length(head)?];
    stream.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, fds)))
}

/// [`send`] on the reactor.
pub async fn send_async<T: Serialize>(
    stream: &Async<UnixStream>,
    value: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = encode(value)?;
    let mut raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = bytes.get(sent..).unwrap_or_default();
        sent += stream.write_with(|inner| send_with_fds(inner.as_raw_fd(), rest, &raw)).await?;
        raw.clear();
    }
    Ok(())
}

/// [`receive`] on the reactor.
pub async fn receive_async<T: DeserializeOwned>(
    stream: &Async<UnixStream>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut fds = Vec::new();
    let mut head = [0; 4];
    if !fill(stream, &mut head, &mut fds).await? {
        return Ok(None);
    }
    let mut body = vec![0; body_length(head)?];
    if !fill(stream, &mut body, &mut fds).await? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((serde_json::from_slice(&body)?, fds)))
}

async fn fill(stream: &Async<UnixStream>, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let mut got = Vec::new();
        let count = stream
            .read_with(|inner| {
                let rest = buffer.get_mut(filled..).unwrap_or_default();
                receive_with_fds(inner.as_fd(), rest, &mut got)
            })
            .await?;
        fds.append(&mut got);
        if count == 0 {
            return if filled == 0 { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        filled += count;
    }
    Ok(true)
}
