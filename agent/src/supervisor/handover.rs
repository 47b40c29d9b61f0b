//! Replacing the supervisor's program without letting go of anything: the new program is executed in the same process, so it
//! stays the parent of all; descriptors stay open, and what is not on disk travels in a memory file.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use podkeep_hal::linux::sys::scm;
use serde::{Deserialize, Serialize};

use super::best_effort;
use super::logs::LogWriter;
use super::proto::{Exit, Failure, FailureKind, ReplyBody};
use super::record::{ContainerRecord, SandboxRecord};
use super::requests::conflict;
use super::runtime::Runtime;
use super::server::{Container, Exec, ExecPhase, Owner, Phase, Sandbox, Server, Token, Waiting};

/// Environment variable with the number of the memory file.
pub(super) const VARIABLE: &str = "PODKEEP_HANDOVER";

/// A descriptor as its number; `None`: there is none.
type Number = Option<i32>;

/// All that goes over. Fields have defaults: the programs are of different versions.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Baggage {
    lock: i32,
    listener: i32,
    /// who asked, with what has arrived behind the request
    peer: Number,
    seq: u64,
    pending: Vec<u8>,
    containers: Vec<CarriedContainer>,
    sandboxes: Vec<CarriedSandbox>,
    execs: Vec<CarriedExec>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CarriedContainer {
    record: ContainerRecord,
    exit: Option<Exit>,
    pidfd: Number,
    child: bool,
    out: [Number; 2],
    stdin_keeper: Number,
    unfinished: [Vec<u8>; 2],
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CarriedSandbox {
    record: SandboxRecord,
    pidfd: Number,
    child: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CarriedExec {
    id: String,
    pid: i32,
    pidfd: i32,
    /// asked for on the connection that goes over; the others end
    ours: bool,
}

fn number(fd: Option<&OwnedFd>) -> Number {
    fd.map(AsRawFd::as_raw_fd)
}

impl<R: Runtime> Server<R> {
    pub(super) fn handover(&mut self, waiting: Waiting, exe: &Path) {
        let failure = match self.try_handover(waiting, exe) {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        self.refuse(waiting, failure);
    }

    fn try_handover(&mut self, waiting: Waiting, exe: &Path) -> Result<core::convert::Infallible, Failure> {
        let launching = self.containers.values().any(|each| matches!(each.phase, Phase::Starting { .. }))
            || self.execs.values().any(|each| matches!(each.phase, ExecPhase::Starting { .. }));
        let flushed = self.peers.get(&waiting.peer).is_some_and(super::peer::Peer::is_flushed);
        if launching || !flushed {
            return Err(conflict("handover while something starts, try again", ""));
        }
        let system = |error: io::Error| Failure::system("handover to", &exe.to_string_lossy(), &error);
        let baggage = self.pack(waiting);
        let mut file =
            File::from(memfd_create("podkeep-handover", MFdFlags::empty()).map_err(|e| system(e.into()))?);
        serde_json::to_writer(&mut file, &baggage).map_err(|error| system(error.into()))?;
        file.rewind().map_err(system)?;
        for fd in self.kept(waiting.peer) {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| system(errno.into()))?;
        }
        let error = Command::new(exe)
            .arg0("podkeep")
            .args(["supervisor".as_ref(), "--run-dir".as_ref(), self.run_dir.as_os_str()])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env(VARIABLE, file.as_raw_fd().to_string())
            .exec();
        // still here: nothing has changed but the flags
        for fd in self.kept(waiting.peer) {
            best_effort(fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)));
        }
        Err(Failure { kind: FailureKind::Exec, ..system(error) })
    }

    fn pack(&self, waiting: Waiting) -> Baggage {
        let peer = self.peers.get(&waiting.peer);
        Baggage {
            lock: self.lock.as_raw_fd(),
            listener: self.listener.as_raw_fd(),
            peer: peer.map(|peer| peer.socket().as_raw_fd()),
            seq: waiting.seq,
            pending: peer.map(|peer| peer.inbox.pending().to_vec()).unwrap_or_default(),
            containers: self.containers.values().map(pack_container).collect(),
            sandboxes: self
                .sandboxes
                .values()
                .map(|sandbox| CarriedSandbox {
                    record: sandbox.record.clone(),
                    pidfd: number(sandbox.pidfd.as_ref()),
                    child: self.owners.contains_key(&sandbox.record.state.pid),
                })
                .collect(),
            execs: self
                .execs
                .values()
                .filter_map(|exec| match &exec.phase {
                    ExecPhase::Running { pidfd } => Some(CarriedExec {
                        id: exec.id.clone(),
                        pid: exec.pid,
                        pidfd: pidfd.as_raw_fd(),
                        ours: exec.peer == waiting.peer,
                    }),
                    ExecPhase::Starting { .. } => None,
                })
                .collect(),
        }
    }

    /// Every descriptor that [`pack`](Self::pack) names.
    fn kept(&self, peer: u32) -> Vec<std::os::fd::BorrowedFd<'_>> {
        let mut kept = vec![self.lock.as_fd(), self.listener.as_fd()];
        kept.extend(self.peers.get(&peer).map(super::peer::Peer::socket));
        for container in self.containers.values() {
            if let Phase::Running { pidfd, .. } = &container.phase {
                kept.push(pidfd.as_fd());
            }
            kept.extend(container.out.iter().flatten().map(AsFd::as_fd));
            kept.extend(container.stdin_keeper.as_ref().map(AsFd::as_fd));
        }
        kept.extend(self.sandboxes.values().filter_map(|sandbox| sandbox.pidfd.as_ref()).map(AsFd::as_fd));
        for exec in self.execs.values() {
            if let ExecPhase::Running { pidfd } = &exec.phase {
                kept.push(pidfd.as_fd());
            }
        }
        kept
    }
}

fn pack_container<L>(container: &Container<L>) -> CarriedContainer {
    let (exit, pidfd, child) = match &container.phase {
        Phase::Running { pidfd, child, .. } => (None, Some(pidfd), *child),
        Phase::Exited(exit) => (Some(exit.clone()), None, false),
        Phase::Starting { .. } => (None, None, false),
    };
    let unfinished =
        container.log.as_ref().map(|log| log.unfinished().map(<[u8]>::to_vec)).unwrap_or_default();
    CarriedContainer {
        record: container.record.clone(),
        exit,
        pidfd: number(pidfd),
        child,
        out: [number(container.out[0].as_ref()), number(container.out[1].as_ref())],
        stdin_keeper: number(container.stdin_keeper.as_ref()),
        unfinished,
    }
}

/// The descriptors that came over, by their numbers.
struct Inherited(Vec<OwnedFd>);

impl Inherited {
    fn take(&mut self, number: Number) -> Option<OwnedFd> {
        let number = number?;
        let at = self.0.iter().position(|fd| fd.as_raw_fd() == number)?;
        Some(self.0.swap_remove(at))
    }
}

/// What an earlier program of this process left for us; `None`: this is a fresh start.
///
/// # Errors
/// when it cannot be read: the caller then goes on like after a crash, which the records allow
pub(super) fn receive() -> io::Result<Option<Received>> {
    let Ok(variable) = std::env::var(VARIABLE) else {
        return Ok(None);
    };
    let number: i32 = variable.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // read through a second descriptor, because the first one is claimed together with all that it names
    let mut text = String::new();
    File::open(format!("/proc/self/fd/{number}"))?.read_to_string(&mut text)?;
    let baggage: Baggage = serde_json::from_str(&text)?;
    let mut numbers = vec![number, baggage.lock, baggage.listener];
    numbers.extend(baggage.peer);
    for container in &baggage.containers {
        numbers.extend(container.pidfd);
        numbers.extend(container.out.iter().flatten());
        numbers.extend(container.stdin_keeper);
    }
    numbers.extend(baggage.sandboxes.iter().filter_map(|sandbox| sandbox.pidfd));
    numbers.extend(baggage.execs.iter().map(|exec| exec.pidfd));
    let mut fds = Inherited(scm::take_inherited(&numbers)?);
    drop(fds.take(Some(number)));
    let lock = fds.take(Some(baggage.lock));
    let listener = fds.take(Some(baggage.listener));
    match (lock, listener) {
        (Some(lock), Some(listener)) => Ok(Some(Received { baggage, fds, lock, listener })),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// See [`receive`].
pub(super) struct Received {
    baggage: Baggage,
    fds: Inherited,
    lock: OwnedFd,
    listener: OwnedFd,
}

impl Received {
    /// Goes on where the earlier program ended, and answers the one who asked for the change.
    ///
    /// # Errors
    /// when the kernel lacks something basic
    pub(super) fn resume<R: Runtime>(self, run_dir: &Path, runtime: R) -> io::Result<Server<R>> {
        let Self { baggage, mut fds, lock, listener } = self;
        let mut server = Server::new(run_dir, runtime, lock, listener)?;
        for carried in baggage.sandboxes {
            server.resume_sandbox(carried, &mut fds);
        }
        for carried in baggage.containers {
            server.resume_container(carried, &mut fds);
        }
        let peer = fds.take(baggage.peer).map(|socket| server.add_peer(socket));
        for carried in baggage.execs {
            let Some(pidfd) = fds.take(Some(carried.pidfd)) else {
                continue;
            };
            let key = server.new_key();
            server.owners.insert(carried.pid, Owner::Exec(key));
            let owner = peer.filter(|_| carried.ours).unwrap_or(0);
            let phase = ExecPhase::Running { pidfd };
            server.execs.insert(key, Exec { id: carried.id, pid: carried.pid, peer: owner, phase });
        }
        // those of connections that did not come along
        server.end_execs_of(0);
        if let Some(key) = peer {
            server.subscriber = Some(key);
            server.answer(Waiting { peer: key, seq: baggage.seq }, ReplyBody::Done, Vec::new());
            if let Some(peer) = server.peers.get_mut(&key) {
                peer.inbox.push(&baggage.pending);
            }
            server.serve(key);
        }
        Ok(server)
    }
}

impl<R: Runtime> Server<R> {
    fn resume_sandbox(&mut self, carried: CarriedSandbox, fds: &mut Inherited) {
        let key = self.new_key();
        let pidfd = fds.take(carried.pidfd);
        if carried.child {
            self.owners.insert(carried.record.state.pid, Owner::Reaper(key));
        } else if let Some(pidfd) = &pidfd {
            best_effort(Self::watch(&self.epoll, pidfd, Token::AdoptedReaper(key)));
        }
        self.sandboxes.insert(key, Sandbox { record: carried.record, pidfd });
    }

    fn resume_container(&mut self, carried: CarriedContainer, fds: &mut Inherited) {
        let key = self.new_key();
        let phase = match (carried.exit, fds.take(carried.pidfd)) {
            (None, Some(pidfd)) => {
                if carried.child {
                    self.owners.insert(carried.record.state.pid, Owner::Container(key));
                } else {
                    best_effort(Self::watch(&self.epoll, &pidfd, Token::AdoptedContainer(key)));
                }
                Phase::Running { pidfd, child: carried.child, give_up_at_ns: None }
            }
            (exit, _) => Phase::Exited(exit.unwrap_or_else(super::exits::unknown_exit)),
        };
        let mut log = carried.record.log.clone().map(LogWriter::open);
        if let Some(log) = &mut log {
            log.resume(carried.unfinished);
        }
        let out = carried.out.map(|number| fds.take(number));
        let stdin_keeper = fds.take(carried.stdin_keeper);
        self.insert_container(key, Container { record: carried.record, phase, log, out, stdin_keeper });
    }
}
