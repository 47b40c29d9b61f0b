//! From an order ([`spec`](super::spec)) to namespaces and running processes: what the supervisor calls.
//!
//! A start is one clone: the child sets everything up without another exec and reports over a close-on-exec
//! socket. The caller may drive it without blocking:
//!
//! ```text
//! begin() ──► Starting ──advance()──► Ready ──(write the durable record)── go() ──advance()──► Executed(Started)
//!                 └─ child reports a failed step, or dies ─► Err(Failure); the child is reaped by then
//! ```
//!
//! or call [`start`]/[`exec`], which do the same and wait. Until `go` the child dies with its parent, so a program never
//! runs that no record knows of. Callers must not reap with `waitpid(-1)`: children belong to their pidfd.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::spec::{ContainerSpec, ProcessSpec, SandboxSpec};
use crate::supervisor::proto::Failure;

/// The three standard streams of a process.
#[derive(Debug)]
pub enum Stdio {
    /// given descriptors; without `stdin` the process reads /dev/null
    Fds { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    /// a fresh pty of the container's own devpts; its controlling end comes back in [`Started::pty_master`]
    Tty,
}

/// What [`create_sandbox`] made.
#[derive(Debug, Default)]
pub struct SandboxMade {
    /// first process of the shared pid namespace, 0 where there is none; a child of the caller, to be reaped
    pub reaper_pid: i32,
    /// for the reaper's end; `None` exactly when `reaper_pid` is 0
    pub reaper_pidfd: Option<OwnedFd>,
    /// settings that could not be made and were left out, in words
    pub degraded: Vec<String>,
}

/// A process whose program was executed.
#[derive(Debug)]
pub struct Started {
    /// in the caller's pid namespace
    pub pid: i32,
    pub pidfd: OwnedFd,
    /// settings that could not be made and were left out, in words
    pub degraded: Vec<String>,
    /// controlling end of the pty, when one was asked for
    pub pty_master: Option<OwnedFd>,
}

/// How far a [`Starting`] process is.
#[derive(Debug)]
pub enum Progress {
    /// nothing new: wait until [`Starting::channel`] is readable
    Pending,
    /// all is set up; the program runs after [`Starting::go`]
    Ready,
    /// the program was executed
    Executed(Started),
}

/// A cloned child on its way to its program. Dropping it kills and reaps the child.
#[derive(Debug)]
pub struct Starting {
    pid: i32,
    pidfd: Option<OwnedFd>,
    channel: OwnedFd,
    degraded: Vec<String>,
    pty_master: Option<OwnedFd>,
}

impl Starting {
    /// In the caller's pid namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when [`advance`](Self::advance) has something to do. Non-blocking.
    #[must_use]
    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Takes the child's news without blocking. After an error the child is gone and reaped.
    pub fn advance(&mut self) -> Result<Progress, Failure> {
        Err(unsupported("advance"))
    }

    /// Lets the child execute its program. Call it once, after `Ready`.
    pub fn go(&mut self) -> Result<(), Failure> {
        Err(unsupported("go"))
    }
}

/// Makes `run_dir` and turns it into a private bind mount of itself, so that pinned namespaces never travel to other
/// mount namespaces. Does nothing when that was done before. Undone by [`release_run_dir`].
pub fn prepare_run_dir(run_dir: &Path) -> Result<(), Failure> {
    let _ = run_dir;
    Err(unsupported("prepare_run_dir"))
}

/// Takes the mount of [`prepare_run_dir`] away again (and all pinned namespaces below it). The folder stays.
pub fn release_run_dir(run_dir: &Path) -> Result<(), Failure> {
    let _ = run_dir;
    Err(unsupported("release_run_dir"))
}

/// Makes the namespaces `spec` asks for and pins each as a file in `dir` (`net`, `ipc`, `uts`, `user`, `pid`), which is
/// made when missing and must lie below a prepared run folder. On failure nothing is left behind but `dir`.
pub fn create_sandbox(spec: &SandboxSpec, dir: &Path) -> Result<SandboxMade, Failure> {
    let _ = (spec, dir);
    Err(unsupported("create_sandbox"))
}

/// Unpins the namespaces in `dir`. Missing ones are fine. The reaper is the caller's to kill (SIGKILL); other files in
/// `dir`, and `dir` itself, are left to the caller.
pub fn remove_sandbox(dir: &Path) -> Result<(), Failure> {
    let _ = dir;
    Err(unsupported("remove_sandbox"))
}

/// Clones the child of a container and returns at once.
pub fn begin(spec: &ContainerSpec, sandbox_dir: &Path, stdio: Stdio) -> Result<Starting, Failure> {
    let _ = (spec, sandbox_dir, stdio);
    Err(unsupported("start"))
}

/// [`begin`], and waits until the program was executed. `record` is called with the pid before it is.
pub fn start(
    spec: &ContainerSpec,
    sandbox_dir: &Path,
    stdio: Stdio,
    record: impl FnOnce(&Starting) -> Result<(), Failure>,
) -> Result<Started, Failure> {
    run(begin(spec, sandbox_dir, stdio)?, record)
}

/// Clones the child of an exec session in the container whose first process is `target` and returns at once.
///
/// `cgroups` are the folders of the container. The caller holds a pidfd of `target`, so that the pid cannot be reused.
pub fn begin_exec(
    process: &ProcessSpec,
    target: i32,
    target_pidfd: BorrowedFd<'_>,
    cgroups: &[PathBuf],
    stdio: Stdio,
) -> Result<Starting, Failure> {
    let _ = (process, target, target_pidfd, cgroups, stdio);
    Err(unsupported("exec"))
}

/// [`begin_exec`], and waits until the program was executed.
pub fn exec(
    process: &ProcessSpec,
    target: i32,
    target_pidfd: BorrowedFd<'_>,
    cgroups: &[PathBuf],
    stdio: Stdio,
) -> Result<Started, Failure> {
    run(begin_exec(process, target, target_pidfd, cgroups, stdio)?, |_| Ok(()))
}

/// First thing in a supervisor's `main`: runs its own program again from a read-only copy of it, so that no container
/// can overwrite it through /proc. Returns in the second run (or, degraded, in the first) with what is to be noted.
#[must_use]
pub fn reexec_readonly() -> Option<String> {
    None
}

fn run(
    starting: Starting,
    record: impl FnOnce(&Starting) -> Result<(), Failure>,
) -> Result<Started, Failure> {
    let _ = (starting, record);
    Err(unsupported("start"))
}

fn unsupported(step: &str) -> Failure {
    Failure { step: step.into(), errno: nix::libc::ENOSYS, ..Failure::default() }
}
