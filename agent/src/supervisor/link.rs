//! The agent's end: requests with answers, events as they come, and a supervisor that is always there: when it is gone
//! a new one is started, which adopts what runs, and [`LinkEvent::Up`] tells all of it anew.
//!
//! ```text
//! connect ──(nobody there)──► spawn ──ready──► connect ──► Hello, List ──► Up ──► answers and events
//!    ▲                                                                              │ end of connection
//!    └──────────────── pause (0, then 50 ms doubling to 5 s) ◄── Down ◄─────────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Child;
use std::time::Duration;

use async_io::{Async, Timer};
use smol::channel::{Receiver, Sender, bounded, unbounded};
use smol::future::{or, pending};

use super::peer::Peer;
use super::proto::{ContainerState, Failure, Reply, ReplyBody, Request, RequestBody, SandboxState, VERSION};
use super::{SOCKET, Spawned, spawn, wire};

/// A supervisor that adopts a full node is ready well within this.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Frames taken from the socket before anything else is looked at.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Where and how.
#[derive(Clone, Debug)]
pub struct Options {
    pub run_dir: PathBuf,
    /// program of a supervisor that has to be started: `exe supervisor --run-dir ...`
    pub exe: PathBuf,
    /// cgroup folders it is moved into: one a hierarchy, none: it stays where the agent is
    pub cgroups: Vec<PathBuf>,
    /// for one request from asking to answer, waiting for a new supervisor included
    pub timeout: Duration,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// the supervisor said no
    Refused(Failure),
    /// the connection ended before the answer; whether it was done shows in the next [`LinkEvent::Up`]
    Disconnected,
    /// no answer in time; as above
    Timeout,
    /// this link has ended: `Quit` was answered, or its driver was dropped
    Closed,
    /// the request is too long to send
    TooLong,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(failure) => failure.fmt(f),
            Self::Disconnected => f.write_str("the supervisor ended before it answered"),
            Self::Timeout => f.write_str("the supervisor did not answer in time"),
            Self::Closed => f.write_str("the supervisor was told to quit"),
            Self::TooLong => f.write_str("the request is longer than a frame may be"),
        }
    }
}

impl core::error::Error for LinkError {}

/// What the supervisor tells unasked.
#[derive(Clone, Debug)]
pub enum LinkEvent {
    /// Connected, for the first time or again. What is not listed here does not exist; events that come later build on it.
    Up { pid: i32, build: String, sandboxes: Vec<SandboxState>, containers: Vec<ContainerState> },
    /// the connection is gone, in words why; another `Up` follows
    Down { why: String },
    /// one of the events of [`ReplyBody`]
    Event(ReplyBody),
}

type Answer = Result<(ReplyBody, Vec<OwnedFd>), LinkError>;

struct Question {
    body: RequestBody,
    fds: Vec<OwnedFd>,
    answer: Sender<Answer>,
}

/// Asks the supervisor. Clones ask the same one; when the last is dropped the link ends (the supervisor does not).
#[derive(Clone, Debug)]
pub struct Link {
    questions: Sender<Question>,
    timeout: Duration,
}

/// Runs the link; to be spawned on an executor.
pub type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Link {
    /// Makes a link; its driver is handed to `spawn`. The first event is `Up`, or `Down` when even that is impossible.
    pub fn open(options: Options, spawn: impl FnOnce(Driver)) -> (Self, Receiver<LinkEvent>) {
        let (questions, asked) = unbounded();
        let (events, receiver) = unbounded();
        let timeout = options.timeout;
        let state = State { options, asked, events, child: None, next_seq: 0, finished: false };
        spawn(Box::pin(state.drive()));
        (Self { questions, timeout }, receiver)
    }

    /// Asks and waits for the answer and the descriptors that came with it. A refusal is an error.
    ///
    /// # Errors
    /// see [`LinkError`]; after all but `Refused` and `TooLong` it is open whether the request was carried out
    pub async fn request(&self, body: RequestBody, fds: Vec<OwnedFd>) -> Answer {
        let (answer, answered) = bounded(1);
        self.questions.send(Question { body, fds, answer }).await.map_err(|_| LinkError::Closed)?;
        let answer = async { answered.recv().await.unwrap_or(Err(LinkError::Disconnected)) };
        let late = async {
            Timer::after(self.timeout).await;
            Err(LinkError::Timeout)
        };
        or(answer, late).await
    }
}

/// Whom an answer is for.
enum Waiting {
    Hello,
    List,
    Question { answer: Sender<Answer>, is_quit: bool },
}

struct State {
    options: Options,
    asked: Receiver<Question>,
    events: Sender<LinkEvent>,
    /// the supervisor we have started, as long as it is our child
    child: Option<Child>,
    next_seq: u64,
    /// `Quit` was answered
    finished: bool,
}

/// One connection.
struct Connection {
    peer: Peer,
    /// tells when the socket of `peer` is ready
    watch: Async<OwnedFd>,
    waiting: BTreeMap<u64, Waiting>,
    /// pid and build, until the list is there, too
    hello: Option<(i32, String)>,
    up: bool,
}

enum Wake {
    Readable(io::Result<()>),
    Writable(io::Result<()>),
    Asked(Option<Question>),
}

impl State {
    async fn drive(mut self) {
        let mut pause = Duration::ZERO;
        while !self.asked.is_closed() && !self.finished {
            let result = match self.connect().await {
                Ok(mut connection) => {
                    let result = self.serve(&mut connection).await;
                    if connection.up {
                        pause = Duration::ZERO;
                    }
                    result
                }
                Err(error) => Err(error),
            };
            if let Some(child) = &mut self.child
                && !matches!(child.try_wait(), Ok(None))
            {
                self.child = None;
            }
            let Err(error) = result else {
                return;
            };
            self.tell(LinkEvent::Down { why: error.to_string() });
            if !pause.is_zero() {
                Timer::after(pause).await;
            }
            pause = pause.saturating_mul(2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        }
    }

    fn tell(&self, event: LinkEvent) {
        // nobody listens any more: the same as nobody asks any more, which ends the link
        super::best_effort(self.events.try_send(event));
    }

    async fn connect(&mut self) -> io::Result<Connection> {
        let path = self.options.run_dir.join(SOCKET);
        let socket = match Async::<UnixStream>::connect(&path).await {
            Ok(socket) => socket,
            Err(_) => {
                self.spawn().await?;
                Async::<UnixStream>::connect(&path).await?
            }
        };
        let socket: OwnedFd = socket.into_inner()?.into();
        let watch = Async::new(socket.try_clone()?)?;
        let mut connection =
            Connection { peer: Peer::new(socket), watch, waiting: BTreeMap::new(), hello: None, up: false };
        self.send(&mut connection, RequestBody::Hello { version: VERSION }, Vec::new(), Waiting::Hello)?;
        self.send(&mut connection, RequestBody::List, Vec::new(), Waiting::List)?;
        Ok(connection)
    }

    async fn spawn(&mut self) -> io::Result<()> {
        // one that ended must be reaped before its place in `self.child` is taken
        if let Some(mut child) = self.child.take() {
            super::best_effort(child.try_wait());
        }
        let Spawned { child, ready } =
            spawn(&self.options.run_dir, &self.options.exe, &self.options.cgroups)?;
        self.child = Some(child);
        let ready = Async::new(ready)?;
        let wait = async {
            let mut bytes = [0; 16];
            // safe to share: reading needs no exclusive access to a pipe
            ready.read_with(|mut pipe: &std::io::PipeReader| pipe.read(&mut bytes)).await.map(drop)
        };
        let late = async {
            Timer::after(READY_WITHIN).await;
            Err(io::Error::from(io::ErrorKind::TimedOut))
        };
        or(wait, late).await
    }

    fn send(
        &mut self,
        connection: &mut Connection,
        body: RequestBody,
        fds: Vec<OwnedFd>,
        waiting: Waiting,
    ) -> io::Result<()> {
        self.next_seq = self.next_seq.saturating_add(1);
        let count = u8::try_from(fds.len()).unwrap_or(u8::MAX);
        match wire::encode(&Request { seq: self.next_seq, fds: count, body }) {
            Ok(bytes) => {
                connection.waiting.insert(self.next_seq, waiting);
                connection.peer.send(bytes, fds)
            }
            Err(_) => {
                if let Waiting::Question { answer, .. } = waiting {
                    super::best_effort(answer.try_send(Err(LinkError::TooLong)));
                }
                Ok(())
            }
        }
    }

    /// Until the connection ends (an error), or the link does (`Ok`).
    async fn serve(&mut self, connection: &mut Connection) -> io::Result<()> {
        loop {
            let wake = {
                let readable = async { Wake::Readable(connection.watch.readable().await) };
                let flushed = connection.peer.is_flushed();
                let writable = async {
                    if flushed {
                        pending::<()>().await;
                    }
                    Wake::Writable(connection.watch.writable().await)
                };
                let asked = async { Wake::Asked(self.asked.recv().await.ok()) };
                or(readable, or(asked, writable)).await
            };
            match wake {
                Wake::Readable(ready) => {
                    ready?;
                    let open = connection.peer.receive()?;
                    self.take_frames(connection)?;
                    if self.finished {
                        return Ok(());
                    }
                    if !open {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Wake::Writable(ready) => {
                    ready?;
                    connection.peer.flush()?;
                }
                Wake::Asked(None) => return Ok(()),
                // whoever asked has given up meanwhile: carrying it out now would surprise everyone
                Wake::Asked(Some(question)) if question.answer.is_closed() => {}
                Wake::Asked(Some(Question { body, fds, answer })) => {
                    let is_quit = matches!(body, RequestBody::Quit);
                    self.send(connection, body, fds, Waiting::Question { answer, is_quit })?;
                }
            }
        }
    }

    fn take_frames(&mut self, connection: &mut Connection) -> io::Result<()> {
        while let Some(frame) = connection.peer.inbox.next_frame()? {
            let Ok(reply) = serde_json::from_slice::<Reply>(&frame) else {
                // an event of a later version
                continue;
            };
            let count = usize::from(reply.fds);
            if connection.peer.fds.len() < count {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let fds: VecDeque<OwnedFd> = connection.peer.fds.drain(..count).collect();
            match connection.waiting.remove(&reply.seq) {
                Some(waiting) => self.answered(connection, waiting, reply.body, fds.into())?,
                // what happens before the list is in the list
                None if connection.up => self.tell(LinkEvent::Event(reply.body)),
                None => {}
            }
        }
        Ok(())
    }

    fn answered(
        &mut self,
        connection: &mut Connection,
        waiting: Waiting,
        body: ReplyBody,
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        match (waiting, body) {
            (Waiting::Hello, ReplyBody::Hello { version: VERSION, pid, build }) => {
                connection.hello = Some((pid, build));
            }
            (Waiting::Hello, ReplyBody::Hello { version, .. }) => {
                let why = format!("the supervisor speaks version {version}, this agent {VERSION}");
                return Err(io::Error::other(why));
            }
            (Waiting::List, ReplyBody::Listed { sandboxes, containers }) => {
                if let Some((pid, build)) = connection.hello.take() {
                    connection.up = true;
                    self.tell(LinkEvent::Up { pid, build, sandboxes, containers });
                }
            }
            (Waiting::Hello | Waiting::List, other) => {
                return Err(io::Error::other(format!("unexpected answer {other:?}")));
            }
            (Waiting::Question { answer, .. }, ReplyBody::Failed { failure }) => {
                super::best_effort(answer.try_send(Err(LinkError::Refused(failure))));
            }
            (Waiting::Question { answer, is_quit }, body) => {
                self.finished |= is_quit;
                // descriptors nobody takes are closed with the message
                super::best_effort(answer.try_send(Ok((body, fds))));
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.peer.socket()
    }
}
