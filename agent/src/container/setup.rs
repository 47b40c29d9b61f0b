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
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;
use podkeep_hal::linux::sys::clone::clone_process;

use super::child::{self, Given};
use super::report::{At, Report, failed, pair, receive};
use super::spec::{ContainerSpec, IdMap, Namespace, ProcessSpec, SandboxSpec};
use super::{cgroup, own_program, sandbox, settle};
use crate::supervisor::proto::{Failure, FailureKind};

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
    /// `None` once it was handed on or the child was reaped
    pidfd: Option<OwnedFd>,
    channel: OwnedFd,
    degraded: Vec<String>,
    pty_master: Option<OwnedFd>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    SettingUp,
    Ready,
    Going,
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
        match receive(self.channel.as_fd()) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Progress::Pending),
            Err(errno) => Err(self.end(failed("child", "report", errno))),
            Ok(Some((Report::Failed(failure), _))) => Err(self.end(failure)),
            Ok(Some((Report::Ready { degraded }, pty_master))) => {
                self.degraded.extend(degraded);
                self.pty_master = pty_master;
                self.stage = Stage::Ready;
                Ok(Progress::Ready)
            }
            Ok(None) if self.stage == Stage::Going => self.executed(),
            Ok(None) => Err(self.end(failed("child", "ended during set-up (killed?)", Errno::UnknownErrno))),
        }
    }

    /// Lets the child execute its program. Call it once, after `Ready`.
    pub fn go(&mut self) -> Result<(), Failure> {
        if self.stage != Stage::Ready {
            return Err(failed("child", "not ready", Errno::EBUSY));
        }
        self.stage = Stage::Going;
        settle::say_go(self.channel.as_fd())
    }

    fn executed(&mut self) -> Result<Progress, Failure> {
        let pidfd = self.pidfd.take().ok_or_else(|| failed("child", "executed already", Errno::ESRCH))?;
        let degraded = std::mem::take(&mut self.degraded);
        Ok(Progress::Executed(Started { pid: self.pid, pidfd, degraded, pty_master: self.pty_master.take() }))
    }

    /// Kills and reaps the child, passes the reason on.
    fn end(&mut self, failure: Failure) -> Failure {
        if let Some(pidfd) = self.pidfd.take() {
            settle::kill(pidfd.as_fd());
        }
        failure
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            settle::kill(pidfd.as_fd());
        }
    }
}

/// Makes `run_dir` and turns it into a private bind mount of itself, so that pinned namespaces never travel to other
/// mount namespaces. Does nothing when that was done before. Undone by [`release_run_dir`].
pub fn prepare_run_dir(run_dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(run_dir).at("mkdir", run_dir)?;
    let none = None::<&str>;
    // fails exactly when it is no mount of its own yet
    if mount(none, run_dir, none, MsFlags::MS_PRIVATE, none).is_ok() {
        return Ok(());
    }
    mount(Some(run_dir), run_dir, none, MsFlags::MS_BIND, none).at("mount", run_dir)?;
    mount(none, run_dir, none, MsFlags::MS_PRIVATE, none).at("mount private", run_dir)
}

/// Takes the mount of [`prepare_run_dir`] away again (and all pinned namespaces below it). The folder stays.
pub fn release_run_dir(run_dir: &Path) -> Result<(), Failure> {
    match umount2(run_dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(errno) => Err(failed("umount", run_dir, errno)),
    }
}

/// Makes the namespaces `spec` asks for and pins each as a file in `dir` (`net`, `ipc`, `uts`, `user`, `pid`), which is
/// made when missing and must lie below a prepared run folder. On failure nothing is left behind but `dir`.
pub fn create_sandbox(spec: &SandboxSpec, dir: &Path) -> Result<SandboxMade, Failure> {
    sandbox::create(spec, dir)
}

/// Unpins the namespaces in `dir`. Missing ones are fine. The reaper is the caller's to kill (SIGKILL); other files in
/// `dir`, and `dir` itself, are left to the caller.
pub fn remove_sandbox(dir: &Path) -> Result<(), Failure> {
    sandbox::remove(dir)
}

/// Clones the child of a container and returns at once.
pub fn begin(spec: &ContainerSpec, sandbox_dir: &Path, stdio: Stdio) -> Result<Starting, Failure> {
    let pinned = |name: &str, flag: CloneFlags| -> Result<(OwnedFd, CloneFlags), Failure> {
        let file = sandbox_dir.join(name);
        Ok((open_namespace(&file)?, flag))
    };
    let mut namespaces = Vec::new();
    for (wanted, name, flag) in [
        (spec.net, "net", CloneFlags::CLONE_NEWNET),
        (spec.ipc, "ipc", CloneFlags::CLONE_NEWIPC),
        (spec.uts, "uts", CloneFlags::CLONE_NEWUTS),
    ] {
        if wanted != Namespace::Host {
            namespaces.push(pinned(name, flag)?);
        }
    }
    let user = if spec.user.is_some() { Some(open_namespace(&sandbox_dir.join("user"))?) } else { None };
    let mut flags = CloneFlags::CLONE_NEWNS;
    let pid_ns = match spec.pid {
        Namespace::Host => None,
        Namespace::Sandbox => Some(pinned("pid", CloneFlags::CLONE_NEWPID)?),
        Namespace::Container => {
            flags |= CloneFlags::CLONE_NEWPID;
            None
        }
    };
    let (channel, theirs) = pair()?;
    let (birth, cgroups) = cgroup::split(&spec.cgroups);
    let mut given = Given { channel: theirs, stdio, namespaces, user, cgroups };
    spawn(channel, flags, pid_ns, birth, &mut given, &spec.cgroups, |given| {
        child::container(spec, sandbox_dir, given)
    })
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
    let missing = |errno| Failure { kind: FailureKind::Missing, ..failed("exec", target.to_string(), errno) };
    let user_file = format!("/proc/{target}/ns/user");
    let id_of = |file: &str| std::fs::metadata(file).map(|meta| (meta.dev(), meta.ino()));
    let theirs = id_of(&user_file).map_err(|_| missing(Errno::ESRCH))?;
    let own = id_of("/proc/self/ns/user").at("open", "/proc/self/ns/user")?;
    // joining one's own user namespace is refused
    let user = if theirs == own { None } else { Some(open_namespace(Path::new(&user_file))?) };
    let map = if user.is_some() { Some(id_map_of(target)?) } else { None };
    let target_fd = target_pidfd.try_clone_to_owned().at("exec", "pidfd")?;
    let all = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    let (pid_ns, namespaces) = if by_pidfd(target_pidfd).map_err(missing)? {
        let pid_ns = target_pidfd.try_clone_to_owned().at("exec", "pidfd")?;
        ((pid_ns, CloneFlags::CLONE_NEWPID), vec![(target_fd, all)])
    } else {
        namespaces_of(target)?
    };
    let (channel, theirs) = pair()?;
    let (birth, rest) = cgroup::split(cgroups);
    let mut given = Given { channel: theirs, stdio, namespaces, user, cgroups: rest };
    let flags = CloneFlags::empty();
    spawn(channel, flags, Some(pid_ns), birth, &mut given, cgroups, |given| child::exec(process, map, given))
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
    own_program::reexec_readonly()
}

fn run(
    mut starting: Starting,
    record: impl FnOnce(&Starting) -> Result<(), Failure>,
) -> Result<Started, Failure> {
    let mut record = Some(record);
    loop {
        settle::wait_readable(starting.channel())?;
        match starting.advance()? {
            Progress::Pending => {}
            Progress::Ready => {
                if let Some(record) = record.take() {
                    record(&starting)?;
                }
                starting.go()?;
            }
            Progress::Executed(started) => return Ok(started),
        }
    }
}

/// Clones a child with what it was given. `birth`: v2 cgroup to be born in, else it joins `all_cgroups` itself.
fn spawn(
    channel: OwnedFd,
    flags: CloneFlags,
    pid_ns: Option<NamespaceFd>,
    birth: Option<OwnedFd>,
    given: &mut Given,
    all_cgroups: &[PathBuf],
    body: impl Fn(&Given) -> i32,
) -> Result<Starting, Failure> {
    let home = match &pid_ns {
        Some((fd, flag)) => Some(enter_pid_namespace(fd, *flag)?),
        None => None,
    };
    let mut cloned =
        clone_process(flags.bits(), birth.as_ref().map(AsFd::as_fd), &given.keep(), || body(given));
    if cloned.is_err() && birth.is_some() {
        // kernel < 5.7, or the folder refuses: joining gives the clearer answer
        given.cgroups = all_cgroups.to_vec();
        cloned = clone_process(flags.bits(), None, &given.keep(), || body(given));
    }
    let back = home.map_or(Ok(()), |home| setns(home, CloneFlags::CLONE_NEWPID));
    let child = cloned.at("clone", "")?;
    if let Err(errno) = back {
        settle::kill(child.pidfd.as_fd());
        return Err(failed("setns", "own pid namespace", errno));
    }
    Ok(Starting {
        pid: child.pid,
        pidfd: Some(child.pidfd),
        channel,
        degraded: Vec::new(),
        pty_master: None,
        stage: Stage::SettingUp,
    })
}

/// Children are born in `target` from now on; the answer leads back.
fn enter_pid_namespace(target: &OwnedFd, flag: CloneFlags) -> Result<OwnedFd, Failure> {
    let home = open_namespace(Path::new("/proc/self/ns/pid"))?;
    setns(target, flag).at("setns", "pid")?;
    Ok(home)
}

fn open_namespace(file: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    open(file, flags, Mode::empty()).at("namespace", file)
}

/// Can namespaces be joined by pidfd (kernel 5.8)? Asked with the one that changes nothing for ourselves.
fn by_pidfd(target: BorrowedFd<'_>) -> nix::Result<bool> {
    let home = open("/proc/self/ns/pid", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    match setns(target, CloneFlags::CLONE_NEWPID) {
        Ok(()) => setns(home, CloneFlags::CLONE_NEWPID).map(|()| true),
        Err(Errno::EINVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

type NamespaceFd = (OwnedFd, CloneFlags);

/// Before kernel 5.8: the files of the process, the pid namespace apart, the mounts last.
fn namespaces_of(target: i32) -> Result<(NamespaceFd, Vec<NamespaceFd>), Failure> {
    let file = |name: &str| open_namespace(Path::new(&format!("/proc/{target}/ns/{name}")));
    let pid_ns = (file("pid")?, CloneFlags::CLONE_NEWPID);
    let mut others = Vec::new();
    for (name, flag) in [
        ("net", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ] {
        others.push((file(name)?, flag));
    }
    Ok((pid_ns, others))
}

/// First line of the process's uid map, as seen from here.
fn id_map_of(target: i32) -> Result<IdMap, Failure> {
    let file = format!("/proc/{target}/uid_map");
    let text = std::fs::read_to_string(&file).at("open", &file)?;
    let mut numbers = text.split_ascii_whitespace().skip(1).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(host_base)), Some(Ok(size))) => Ok(IdMap { host_base, size }),
        _ => Err(failed("uid_map", file, Errno::EINVAL)),
    }
}
