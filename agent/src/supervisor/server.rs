//! The supervisor's one loop: everything is an event of one epoll, nothing is waited for anywhere else, and with nothing
//! to do it sleeps without end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::pipe2;

use super::best_effort;
use super::clock;
use super::logs::LogWriter;
use super::peer::Peer;
use super::proto::{Exit, ReplyBody};
use super::record::{ContainerRecord, SandboxRecord};
use super::runtime::Runtime;

/// Events taken at once.
const BATCH: usize = 32;
/// Bytes of output read at once; one buffer for all containers.
pub(super) const READ: usize = 32 * 1024;

/// What an event of the epoll is about; the low half of its 64-bit word is the key of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Listener,
    Signals,
    Peer(u32),
    /// output pipe 0 or 1 (0: the pty, if there is one)
    Output(u32, usize),
    /// a child that sets itself up
    ContainerLaunch(u32),
    ExecLaunch(u32),
    /// a process that is not our child ended
    AdoptedContainer(u32),
    AdoptedReaper(u32),
}

impl Token {
    pub(super) fn word(self) -> u64 {
        let (kind, key) = match self {
            Self::Listener => (0, 0),
            Self::Signals => (1, 0),
            Self::Peer(key) => (2, key),
            Self::Output(key, 0) => (3, key),
            Self::Output(key, _) => (4, key),
            Self::ContainerLaunch(key) => (5, key),
            Self::ExecLaunch(key) => (6, key),
            Self::AdoptedContainer(key) => (7, key),
            Self::AdoptedReaper(key) => (8, key),
        };
        (kind << 32) | u64::from(key)
    }

    fn from_word(word: u64) -> Option<Self> {
        let key = u32::try_from(word & 0xffff_ffff).ok()?;
        Some(match word >> 32 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Peer(key),
            3 => Self::Output(key, 0),
            4 => Self::Output(key, 1),
            5 => Self::ContainerLaunch(key),
            6 => Self::ExecLaunch(key),
            7 => Self::AdoptedContainer(key),
            8 => Self::AdoptedReaper(key),
            _ => return None,
        })
    }
}

/// Whose process a pid is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Container(u32),
    Exec(u32),
    Reaper(u32),
}

/// An answer that is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub peer: u32,
    pub seq: u64,
}

/// ```text
/// Starting ──executed──► Running ──ended──► Exited
///     └─failed─► (gone)
/// ```
pub(super) enum Phase<L> {
    Starting {
        launch: L,
        waiting: Vec<Waiting>,
    },
    Running {
        pidfd: OwnedFd,
        /// `false`: adopted, its end is learned by pidfd
        child: bool,
        /// `CLOCK_BOOTTIME` at which waiting for somebody else to reap it ends
        give_up_at_ns: Option<u64>,
    },
    Exited(Exit),
}

pub(super) struct Container<L> {
    pub record: ContainerRecord,
    pub phase: Phase<L>,
    /// `None`: output is read and dropped
    pub log: Option<LogWriter>,
    /// reading ends of stdout and stderr, or the pty in place 0
    pub out: [Option<OwnedFd>; 2],
    pub stdin_keeper: Option<OwnedFd>,
}

pub(super) enum ExecPhase<L> {
    Starting { launch: L, seq: u64 },
    Running { pidfd: OwnedFd },
}

pub(super) struct Exec<L> {
    pub id: String,
    pub pid: i32,
    /// it ends with this connection
    pub peer: u32,
    pub phase: ExecPhase<L>,
}

pub(super) struct Sandbox {
    pub record: SandboxRecord,
    /// of the reaper; `None`: there is none, or it ended
    pub pidfd: Option<OwnedFd>,
}

/// All that the supervisor knows. Keys are never used twice.
pub(super) struct Server<R: Runtime> {
    pub(super) run_dir: PathBuf,
    pub(super) runtime: R,
    pub(super) boot_id: String,
    pub(super) epoll: Epoll,
    pub(super) listener: OwnedFd,
    /// held for life: two supervisors never serve one run folder
    pub(super) lock: OwnedFd,
    pub(super) signals: SignalFd,
    pub(super) peers: BTreeMap<u32, Peer>,
    /// newest peer that said hello: gets the events
    pub(super) subscriber: Option<u32>,
    pub(super) containers: BTreeMap<u32, Container<R::Launch>>,
    pub(super) container_keys: BTreeMap<String, u32>,
    pub(super) sandboxes: BTreeMap<u32, Sandbox>,
    pub(super) execs: BTreeMap<u32, Exec<R::Launch>>,
    pub(super) owners: BTreeMap<i32, Owner>,
    pub(super) next_key: u32,
    /// a child may wait to be reaped although no signal will say so again
    pub(super) reap_again: bool,
    /// some adopted process is being waited for with a deadline
    pub(super) giving_up: bool,
    pub(super) quit: bool,
    /// outputs that had more than their turn
    pub(super) backlog: Vec<(u32, usize)>,
    /// pipe through which other pipes are looked into: reading end, writing end; empty between two looks
    pub(super) peek: (OwnedFd, OwnedFd),
    pub(super) read_buffer: Vec<u8>,
    pub(super) write_buffer: Vec<u8>,
}

/// Signals that are taken by the loop. All but SIGCHLD are ignored: the supervisor ends only when it is told `Quit`.
fn own_signals() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        set.add(signal);
    }
    set
}

impl<R: Runtime> Server<R> {
    /// With nothing adopted yet.
    ///
    /// # Errors
    /// when the kernel lacks something basic
    pub(super) fn new(run_dir: &Path, runtime: R, lock: OwnedFd, listener: OwnedFd) -> io::Result<Self> {
        let mask = own_signals();
        // blocked, not ignored: a blocked mask is undone in each child, a disposition would be inherited by programs
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, Token::Listener.word()))?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, Token::Signals.word()))?;
        Ok(Self {
            run_dir: run_dir.to_owned(),
            runtime,
            boot_id: podkeep_hal::linux::process::boot_id().unwrap_or_default(),
            epoll,
            listener,
            lock,
            signals,
            peers: BTreeMap::new(),
            subscriber: None,
            containers: BTreeMap::new(),
            container_keys: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            execs: BTreeMap::new(),
            owners: BTreeMap::new(),
            next_key: 1,
            // what ended before the signals were blocked
            reap_again: true,
            giving_up: false,
            quit: false,
            backlog: Vec::new(),
            peek: pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?,
            read_buffer: vec![0; READ],
            write_buffer: Vec::new(),
        })
    }

    /// Serves until `Quit`.
    ///
    /// # Errors
    /// only when the epoll itself fails
    pub(super) fn run(&mut self) -> io::Result<()> {
        while !self.quit {
            if core::mem::take(&mut self.reap_again) {
                self.reap();
            }
            let mut timeout = self.give_up();
            if !self.backlog.is_empty() {
                timeout = EpollTimeout::ZERO;
            }
            let mut events = [EpollEvent::empty(); BATCH];
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for event in events.iter().take(count) {
                if let Some(token) = Token::from_word(event.data()) {
                    self.dispatch(token, event.events());
                }
            }
            self.work_off();
        }
        Ok(())
    }

    fn dispatch(&mut self, token: Token, flags: EpollFlags) {
        match token {
            Token::Listener => self.accept(),
            Token::Signals => {
                while let Ok(Some(_)) = self.signals.read_signal() {}
                self.reap_again = true;
            }
            Token::Peer(key) => self.peer_event(key, flags),
            Token::Output(key, index) => self.output(key, index, flags),
            Token::ContainerLaunch(key) => self.advance_container(key),
            Token::ExecLaunch(key) => self.advance_exec(key),
            Token::AdoptedContainer(key) => self.adopted_container_ended(key, flags),
            Token::AdoptedReaper(key) => self.reaper_ended(key),
        }
    }

    pub(super) fn new_key(&mut self) -> u32 {
        let key = self.next_key;
        // four billion starts of one supervisor: skipping taken keys is not worth its code
        self.next_key = self.next_key.wrapping_add(1).max(1);
        key
    }

    /// Watches `fd` for input; outputs only for more of it than before.
    pub(super) fn watch(epoll: &Epoll, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        let edge = match token {
            Token::Output(..) => EpollFlags::EPOLLET,
            _ => EpollFlags::empty(),
        };
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN | edge, token.word()))
    }

    /// Stops watching; an `fd` that was not watched is fine.
    pub(super) fn unwatch(epoll: &Epoll, fd: BorrowedFd<'_>) {
        best_effort(epoll.delete(fd));
    }

    /// Sends an event to the newest agent, if there is one; it is in `List` in any case.
    pub(super) fn publish(&mut self, body: ReplyBody) {
        if let Some(key) = self.subscriber {
            self.answer(Waiting { peer: key, seq: 0 }, body, Vec::new());
        }
    }

    /// Time until the nearest deadline of an adopted process; past ones are acted on.
    fn give_up(&mut self) -> EpollTimeout {
        if !self.giving_up {
            return EpollTimeout::NONE;
        }
        let now = clock::boot_ns();
        let mut nearest: Option<u64> = None;
        let mut late = Vec::new();
        for (&key, container) in &self.containers {
            if let Phase::Running { give_up_at_ns: Some(at), .. } = container.phase {
                if at <= now {
                    late.push(key);
                } else {
                    nearest = Some(nearest.map_or(at, |other| other.min(at)));
                }
            }
        }
        for key in late {
            self.container_ended(key, None);
        }
        self.giving_up = nearest.is_some();
        match nearest {
            Some(at) => {
                let milliseconds = at.saturating_sub(now).div_ceil(1_000_000);
                EpollTimeout::from(u16::try_from(milliseconds).unwrap_or(u16::MAX))
            }
            None => EpollTimeout::NONE,
        }
    }
}
