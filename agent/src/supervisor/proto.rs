//! What agent and supervisor say to each other over `<run-dir>/supervisor.sock` (0600, `SOCK_STREAM`).
//!
//! A frame is a little-endian u32 length and that many bytes of JSON; file descriptors ride on the first byte of the
//! frame (`SCM_RIGHTS`). Requests carry a number that the answer repeats; events carry 0. The supervisor outlives agent
//! upgrades: unknown fields are ignored, an unknown request is answered with [`Failure`] of kind `Unsupported`.

use serde::{Deserialize, Serialize};

use crate::container::spec::{ContainerSpec, ProcessSpec, SandboxSpec};

/// Raised when an old peer could misread a frame.
pub const VERSION: u32 = 1;
/// A longer frame is refused and the connection dropped.
pub const MAX_FRAME: usize = 4 << 20;

/// Agent to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub seq: u64,
    /// descriptors that came with this frame
    #[serde(default)]
    pub fds: u8,
    pub body: RequestBody,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RequestBody {
    /// first frame of a connection; answered with `Hello`. The newest connection gets the events.
    Hello {
        version: u32,
    },
    /// everything the supervisor holds
    List,
    CreateSandbox {
        spec: Box<SandboxSpec>,
    },
    /// unpins the namespaces and ends the reaper; unknown id is success
    RemoveSandbox {
        id: String,
    },
    /// makes and starts the container, answers when its program was executed or with the step that failed.
    /// Starting an id that exists already answers with what it is (idempotent).
    Start {
        spec: Box<ContainerSpec>,
    },
    /// one signal to the container's first process (by pidfd)
    Signal {
        id: String,
        signal: i32,
    },
    /// forgets an exited container (its log file stays); an unknown id is success, a running one is refused
    Remove {
        id: String,
    },
    /// Runs a process in a running container; it is killed when the connection it was asked for on ends. Fds: stdin, stdout, stderr; with `process.tty` none are sent and the
    /// answer carries the pty's controlling end.
    Exec {
        id: String,
        exec_id: String,
        process: Box<ProcessSpec>,
    },
    /// one signal to the process by pidfd; SIGKILL goes to all that it started, too, as far as they can be found
    SignalExec {
        exec_id: String,
        signal: i32,
    },
    /// The write end of an open stdin (`stdin: true`), or the pty's controlling end, rides on the answer. With
    /// `stdinOnce` the program reads the end of its input when the first one given out is closed.
    Attach {
        id: String,
    },
    /// Replace this supervisor by the program at this path, keeping all descriptors. The new program answers on the
    /// same connection; other connections are closed. Refused while something is being started.
    Handover {
        exe: String,
    },
    /// ends only when nothing runs
    Quit,
}

/// Supervisor to agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// 0 for events
    pub seq: u64,
    /// descriptors that came with this frame
    #[serde(default)]
    pub fds: u8,
    pub body: ReplyBody,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ReplyBody {
    /// `build`: version of the supervisor's program
    Hello {
        version: u32,
        pid: i32,
        build: String,
    },
    Done,
    Listed {
        sandboxes: Vec<SandboxState>,
        containers: Vec<ContainerState>,
    },
    Sandbox {
        state: SandboxState,
    },
    Container {
        state: Box<ContainerState>,
    },
    ExecStarted {
        pid: i32,
    },
    Failed {
        failure: Failure,
    },
    /// event: a container's first process ended (also sent for those that ended while nobody was connected: see `List`)
    Exited {
        id: String,
        exit: Exit,
    },
    /// event
    ExecExited {
        exec_id: String,
        exit: Exit,
    },
    /// event: the reaper of a shared pid namespace ended, and with it all its containers; a new sandbox is needed
    SandboxEnded {
        id: String,
    },
    /// event: writing a log failed or works again (`errno` 0); the output is kept flowing and dropped meanwhile
    LogTrouble {
        id: String,
        errno: i32,
        dropped_bytes: u64,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxState {
    pub id: String,
    pub labels: String,
    /// the reaper of a shared pid namespace, 0 where there is none
    pub pid: i32,
    /// false when a pinned namespace or the reaper is gone: a new sandbox is needed
    pub ready: bool,
    pub created_at_ns: i64,
    /// settings that could not be made and were left out, in words
    pub degraded: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerState {
    pub id: String,
    pub sandbox_id: String,
    pub labels: String,
    /// of the container's first process, in the host's numbers
    pub pid: i32,
    /// Unix time, for display only
    pub started_at_ns: i64,
    /// CLOCK_BOOTTIME, for arithmetic
    pub started_boot_ns: u64,
    /// `None` while it runs
    pub exit: Option<Exit>,
    /// settings that could not be made and were left out, in words
    pub degraded: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exit {
    /// 0-255; 128 + signal when a signal ended it
    pub code: i32,
    /// 0 when it ended by itself
    pub signal: i32,
    /// the true status could not be learned (supervisor was killed and the kernel is older than 6.15): code is 137
    pub unknown: bool,
    pub finished_at_ns: i64,
    pub finished_boot_ns: u64,
}

/// Why something failed: at which step, on what, with which errno.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    pub kind: FailureKind,
    /// `mount`, `exec`, `pivot_root`, `cgroup`, ...
    pub step: String,
    /// path, id or value
    pub what: String,
    pub errno: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// the kernel said no
    #[default]
    System,
    /// no such id
    Missing,
    /// not in this state
    Conflict,
    /// the program to execute does not exist or cannot be executed
    Exec,
    /// this supervisor does not know the request
    Unsupported,
    /// the request cannot be read
    Invalid,
}

impl Failure {
    /// All four parts; `errno` 0: no system call is to blame.
    #[must_use]
    pub fn new(kind: FailureKind, step: &str, what: &str, errno: i32) -> Self {
        Self { kind, step: step.to_owned(), what: what.to_owned(), errno }
    }

    /// From an error of the standard library.
    #[must_use]
    pub fn system(step: &str, what: &str, error: &std::io::Error) -> Self {
        Self::new(FailureKind::System, step, what, error.raw_os_error().unwrap_or(nix::libc::EIO))
    }
}

impl core::error::Error for Failure {}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.step)?;
        if !self.what.is_empty() {
            write!(f, " '{}'", self.what)?;
        }
        if self.errno != 0 {
            write!(f, ": {}", nix::errno::Errno::from_raw(self.errno).desc())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_comes_back_as_it_was_sent() {
        let id = || "a".to_owned();
        let bodies = [
            RequestBody::Hello { version: 1 },
            RequestBody::List,
            RequestBody::CreateSandbox { spec: Box::default() },
            RequestBody::RemoveSandbox { id: id() },
            RequestBody::Start { spec: Box::default() },
            RequestBody::Signal { id: id(), signal: 9 },
            RequestBody::Remove { id: id() },
            RequestBody::Exec { id: id(), exec_id: id(), process: Box::default() },
            RequestBody::SignalExec { exec_id: id(), signal: 15 },
            RequestBody::Attach { id: id() },
            RequestBody::Handover { exe: id() },
            RequestBody::Quit,
        ];
        for body in bodies {
            let text = serde_json::to_string(&Request { seq: 7, fds: 3, body }).unwrap();
            let back: Request = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&back).unwrap(), text);
        }
    }

    #[test]
    fn peers_of_other_versions_are_understood() {
        // an older one knows no `fds`, a newer one says more than we know
        let text = r#"{"seq":1,"body":{"start":{"spec":{"id":"a","later":{"x":[1]},"process":{"args":["b"],"new":1}}}}}"#;
        let request: Request = serde_json::from_str(text).unwrap();
        let RequestBody::Start { spec } = request.body else { panic!("{text}") };
        assert_eq!((request.fds, spec.id.as_str(), spec.process.args.len()), (0, "a", 1));
        let text = r#"{"seq":0,"body":{"exited":{"id":"a","exit":{"code":3,"later":true}}}}"#;
        let reply: Reply = serde_json::from_str(text).unwrap();
        assert!(matches!(reply.body, ReplyBody::Exited { exit, .. } if exit.code == 3 && !exit.unknown));
    }

    #[test]
    fn failures_say_step_subject_and_reason() {
        let failure = Failure::new(FailureKind::System, "mount", "/x", nix::libc::ENOENT);
        assert_eq!(failure.to_string(), "mount '/x': No such file or directory");
        assert_eq!(
            Failure::new(FailureKind::Conflict, "remove while running", "", 0).to_string(),
            "remove while running"
        );
    }
}
