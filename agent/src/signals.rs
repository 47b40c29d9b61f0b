//! Signals of the agent as events: TERM and INT leave, HUP looks at the manifests again. None of them stops a pod.

use std::io;

use async_io::Async;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use smol::channel::Sender;

use crate::node::Turn;

/// The descriptor that signals arrive on; they are blocked for every thread started later.
#[derive(Debug)]
pub struct Signals {
    fd: Async<SignalFd>,
}

impl Signals {
    /// To be made before the first thread.
    pub fn new() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd: Async::new_nonblocking(fd)? })
    }

    /// Hands signals on as turns of the loop.
    pub async fn run(self, turns: Sender<Turn>) {
        loop {
            let read = self
                .fd
                .read_with(|fd| fd.read_signal()?.ok_or_else(|| io::ErrorKind::WouldBlock.into()))
                .await;
            let Ok(info) = read else { return };
            let turn = match i32::try_from(info.ssi_signo).map(Signal::try_from) {
                Ok(Ok(Signal::SIGHUP)) => Turn::Rescan,
                Ok(Ok(Signal::SIGINT)) => Turn::Leave("interrupted"),
                _ => Turn::Leave("terminated"),
            };
            if turns.send(turn).await.is_err() {
                return;
            }
        }
    }
}
