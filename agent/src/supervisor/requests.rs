//! Connections and what is asked on them.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{SockFlag, accept4, getsockopt};
use nix::unistd::geteuid;
use podkeep_hal::linux::sys::pidfd;
use serde::Deserialize;

use super::best_effort;
use super::failpoint;
use super::peer::Peer;
use super::proto::{Failure, FailureKind, Reply, ReplyBody, Request, RequestBody, VERSION};
use super::record::{self, RECORD};
use super::runtime::Runtime;
use super::server::{Container, ExecPhase, Phase, Server, Token, Waiting};
use super::spawn::SOCKET;
use super::streams;
use super::wire;

/// Connections at the most; the agent needs one.
const MAX_PEERS: usize = 16;

/// What can be read of a request that is not understood.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    seq: u64,
    fds: u8,
}

pub(super) fn missing(step: &str, id: &str) -> Failure {
    Failure::new(FailureKind::Missing, step, id, 0)
}

pub(super) fn conflict(step: &str, id: &str) -> Failure {
    Failure::new(FailureKind::Conflict, step, id, 0)
}

/// `Done`, or why not.
fn done(result: Result<(), Failure>) -> ReplyBody {
    result.map_or_else(|failure| ReplyBody::Failed { failure }, |()| ReplyBody::Done)
}

impl<R: Runtime> Server<R> {
    pub(super) fn container_folder(&self, id: &str) -> PathBuf {
        self.run_dir.join("c").join(id)
    }

    pub(super) fn sandbox_folder(&self, id: &str) -> PathBuf {
        self.run_dir.join("s").join(id)
    }

    pub(super) fn accept(&mut self) {
        loop {
            let socket = match accept4(&self.listener, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::ECONNABORTED | Errno::EINTR) => continue,
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
                    // the event comes again; a connection less makes room
                    let oldest = self.peers.keys().next().copied();
                    if let Some(oldest) = oldest {
                        self.close_peer(oldest);
                    }
                    return;
                }
                Err(_) => return,
            };
            // the socket's mode keeps others out already; this holds even if someone changes the mode
            match getsockopt(&socket, PeerCredentials) {
                Ok(who) if who.uid() == geteuid().as_raw() => {}
                _ => continue,
            }
            if self.peers.len() >= MAX_PEERS
                && let Some(oldest) = self.peers.keys().next().copied()
            {
                self.close_peer(oldest);
            }
            self.add_peer(socket);
        }
    }

    pub(super) fn add_peer(&mut self, socket: OwnedFd) -> u32 {
        let key = self.new_key();
        if Self::watch(&self.epoll, &socket, Token::Peer(key)).is_ok() {
            self.peers.insert(key, Peer::new(socket));
        }
        key
    }

    pub(super) fn peer_event(&mut self, key: u32, flags: EpollFlags) {
        let Some(peer) = self.peers.get_mut(&key) else {
            return;
        };
        let mut alive = Ok(true);
        if flags.contains(EpollFlags::EPOLLOUT) {
            alive = peer.flush().map(|()| true);
        }
        if alive.is_ok()
            && flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
        {
            alive = peer.receive();
        }
        self.settle(
            key,
            alive.and_then(|open| if open { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }),
        );
        self.serve(key);
    }

    /// Carries out what has arrived whole.
    pub(super) fn serve(&mut self, key: u32) {
        while let Some(peer) = self.peers.get_mut(&key) {
            match peer.inbox.next_frame() {
                Ok(Some(frame)) => self.request(key, &frame),
                Ok(None) => return,
                Err(_) => self.close_peer(key),
            }
        }
    }

    fn request(&mut self, key: u32, frame: &[u8]) {
        let request = serde_json::from_slice::<Request>(frame);
        let (seq, claimed) = match &request {
            Ok(request) => (request.seq, request.fds),
            Err(_) => {
                let envelope = serde_json::from_slice::<Envelope>(frame).unwrap_or_default();
                (envelope.seq, envelope.fds)
            }
        };
        let fds = match self.peers.get_mut(&key) {
            Some(peer) if peer.fds.len() >= usize::from(claimed) => {
                peer.fds.drain(..usize::from(claimed)).collect()
            }
            _ => return self.close_peer(key),
        };
        let waiting = Waiting { peer: key, seq };
        match request {
            Ok(request) => self.carry_out(waiting, request.body, fds),
            Err(error) => {
                let text = error.to_string();
                let kind = match text.starts_with("unknown variant") {
                    true => FailureKind::Unsupported,
                    false => FailureKind::Invalid,
                };
                self.refuse(waiting, Failure::new(kind, "request", &text, 0));
            }
        }
    }

    fn carry_out(&mut self, waiting: Waiting, body: RequestBody, fds: Vec<OwnedFd>) {
        let answer = match body {
            RequestBody::Hello { .. } => {
                self.subscriber = Some(waiting.peer);
                self.hello()
            }
            RequestBody::List => self.list(),
            RequestBody::CreateSandbox { spec } => match self.create_sandbox(&spec) {
                Ok(state) => ReplyBody::Sandbox { state },
                Err(failure) => ReplyBody::Failed { failure },
            },
            RequestBody::RemoveSandbox { id } => done(self.remove_sandbox(&id)),
            RequestBody::Start { mut spec } => return self.start(waiting, &mut spec),
            RequestBody::Signal { id, signal } => done(self.signal(&id, signal)),
            RequestBody::Remove { id } => done(self.remove(&id)),
            RequestBody::Exec { id, exec_id, mut process } => {
                return self.exec(waiting, &id, exec_id, &mut process, fds);
            }
            RequestBody::SignalExec { exec_id, signal } => done(self.signal_exec(&exec_id, signal)),
            RequestBody::Attach { id } => match self.attach(&id) {
                Ok(fd) => return self.answer(waiting, ReplyBody::Done, vec![fd]),
                Err(failure) => ReplyBody::Failed { failure },
            },
            RequestBody::Handover { exe } => return self.handover(waiting, Path::new(&exe)),
            RequestBody::Quit => done(self.quit()),
        };
        self.answer(waiting, answer, Vec::new());
    }

    pub(super) fn hello(&self) -> ReplyBody {
        ReplyBody::Hello {
            version: VERSION,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            build: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn list(&self) -> ReplyBody {
        let containers = self.containers.values().filter_map(Self::state);
        let sandboxes = self.sandboxes.values().map(|sandbox| sandbox.record.state.clone());
        ReplyBody::Listed { sandboxes: sandboxes.collect(), containers: containers.collect() }
    }

    /// `None` while it is being started: it is not there yet, unless the agent that ordered it left after its program was
    /// let go.
    pub(super) fn state(container: &Container<R::Launch>) -> Option<super::proto::ContainerState> {
        let exit = match &container.phase {
            Phase::Starting { waiting, .. } if waiting.is_empty() && container.record.is_released() => None,
            Phase::Starting { .. } => return None,
            Phase::Running { .. } => None,
            Phase::Exited(exit) => Some(exit.clone()),
        };
        Some(super::proto::ContainerState { exit, ..container.record.state.clone() })
    }

    /// Sends an answer; a peer that cannot take it is gone.
    pub(super) fn answer(&mut self, waiting: Waiting, body: ReplyBody, fds: Vec<OwnedFd>) {
        if let Some(peer) = self.peers.get_mut(&waiting.peer) {
            let count = u8::try_from(fds.len()).unwrap_or(u8::MAX);
            let frame = wire::encode(&Reply { seq: waiting.seq, fds: count, body });
            let sent = frame.and_then(|bytes| peer.send(bytes, fds));
            self.settle(waiting.peer, sent);
        }
    }

    pub(super) fn refuse(&mut self, waiting: Waiting, failure: Failure) {
        self.answer(waiting, ReplyBody::Failed { failure }, Vec::new());
    }

    /// After reading or writing: closes a broken connection, waits for room where something is queued.
    fn settle(&mut self, key: u32, result: io::Result<()>) {
        if result.is_err() {
            return self.close_peer(key);
        }
        if let Some(peer) = self.peers.get_mut(&key)
            && peer.waits_for_room == peer.is_flushed()
        {
            peer.waits_for_room = !peer.is_flushed();
            let room = if peer.waits_for_room { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            let mut event = EpollEvent::new(EpollFlags::EPOLLIN | room, Token::Peer(key).word());
            if self.epoll.modify(peer.socket(), &mut event).is_err() {
                self.close_peer(key);
            }
        }
    }

    pub(super) fn close_peer(&mut self, key: u32) {
        if let Some(peer) = self.peers.remove(&key) {
            Self::unwatch(&self.epoll, peer.socket());
        }
        if self.subscriber == Some(key) {
            self.subscriber = None;
        }
        self.end_execs_of(key);
        self.leave_starts_of(key);
    }

    fn signal(&mut self, id: &str, signal: i32) -> Result<(), Failure> {
        let key = self.container_keys.get(id).copied();
        let Some((key, container)) = key.and_then(|key| Some((key, self.containers.get_mut(&key)?))) else {
            return Err(missing("signal", id));
        };
        match &mut container.phase {
            Phase::Running { pidfd, .. } => match pidfd::send_signal(std::os::fd::AsFd::as_fd(pidfd), signal)
            {
                // it ended a moment ago: its exit is on the way
                Ok(()) | Err(Errno::ESRCH) => Ok(()),
                Err(errno) => Err(Failure::new(FailureKind::System, "signal", id, errno as i32)),
            },
            Phase::Exited(_) => Ok(()),
            // only a kill can mean a start: it is called off
            Phase::Starting { .. } if signal == libc::SIGKILL => {
                self.start_failed(key, &conflict("start called off", id));
                Ok(())
            }
            Phase::Starting { .. } => Err(conflict("signal while starting", id)),
        }
    }

    fn remove(&mut self, id: &str) -> Result<(), Failure> {
        let Some(&key) = self.container_keys.get(id) else {
            return Ok(());
        };
        match self.containers.get(&key).map(|container| &container.phase) {
            Some(Phase::Exited(_)) | None => {}
            Some(Phase::Starting { .. } | Phase::Running { .. }) => {
                return Err(conflict("remove while running", id));
            }
        }
        self.close_outputs(key);
        failpoint::hit("remove:begin");
        let folder = self.container_folder(id);
        best_effort(fs::remove_file(folder.join(RECORD)));
        failpoint::hit("remove:half");
        forget_folder(&folder)
            .map_err(|error| Failure::system("remove", &folder.to_string_lossy(), &error))?;
        self.containers.remove(&key);
        self.container_keys.remove(id);
        Ok(())
    }

    fn attach(&mut self, id: &str) -> Result<OwnedFd, Failure> {
        let folder = self.container_folder(id);
        let key = self.container_keys.get(id).copied();
        let Some(container) = key.and_then(|key| self.containers.get_mut(&key)) else {
            return Err(missing("attach", id));
        };
        if !matches!(container.phase, Phase::Running { .. }) {
            return Err(conflict("attach while not running", id));
        }
        let system = |error: io::Error| Failure::system("attach", id, &error);
        if container.record.tty {
            return match &container.out[0] {
                Some(pty) => pty.try_clone().map_err(system),
                None => Err(conflict("attach to a closed terminal", id)),
            };
        }
        if !container.record.stdin || container.record.stdin_used {
            return Err(conflict("attach to a closed stdin", id));
        }
        let writer = streams::stdin_writer(&folder).map_err(system)?;
        if container.record.stdin_once {
            container.record.stdin_used = true;
            record::write(&folder, RECORD, &container.record).map_err(system)?;
            container.stdin_keeper = None;
        }
        Ok(writer)
    }

    fn quit(&mut self) -> Result<(), Failure> {
        let busy = self.containers.values().find(|container| !matches!(container.phase, Phase::Exited(_)));
        if let Some(container) = busy {
            return Err(conflict("quit while a container runs", &container.record.state.id));
        }
        if let Some(exec) = self.execs.values().find(|exec| matches!(exec.phase, ExecPhase::Running { .. })) {
            return Err(conflict("quit while a process runs", &exec.id));
        }
        if let Some(sandbox) = self.sandboxes.values().find(|sandbox| sandbox.pidfd.is_some()) {
            return Err(conflict("quit while a sandbox runs", &sandbox.record.state.id));
        }
        self.quit = true;
        Ok(())
    }

    /// Last steps after `Quit`: its answer is sent, the socket is taken away. The run folder stays a mount as long as a
    /// sandbox is pinned in it.
    pub(super) fn leave(&mut self) {
        best_effort(fs::remove_file(self.run_dir.join(SOCKET)));
        if self.sandboxes.is_empty()
            && let Err(failure) = self.runtime.release(&self.run_dir)
        {
            log::warn!("{failure}");
        }
    }
}

/// Deletes a container's folder, the record first: without it the rest is rubbish that the next supervisor clears
/// away, while a record without its exit would be a different exit.
pub(super) fn forget_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(RECORD)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
