//! The child of a start or an exec: every step from the clone to the program, in order.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use podkeep_hal::linux::sys::{fds, signals, tty};

use super::mounts::{Target, UserNs};
use super::report::{At, Report, send};
use super::resolve::{Missing, Scope, resolve};
use super::setup::Stdio;
use super::spec::{ContainerSpec, IdMap, Namespace, ProcessSpec};
use super::{cgroup, dev, identity, mask, mounts, program, root, settle, terminal};
use crate::supervisor::proto::Failure;

/// File mode mask of a program that names none.
const DEFAULT_UMASK: u32 = 0o022;

/// What a child was given by its parent.
pub(super) struct Given {
    pub(super) channel: OwnedFd,
    pub(super) stdio: Stdio,
    /// to join: net, ipc, uts (a start) or all of a process (an exec)
    pub(super) namespaces: Vec<(OwnedFd, CloneFlags)>,
    /// joined last, since it takes the rights over everything else
    pub(super) user: Option<OwnedFd>,
    /// to be moved into; the group it was born in is not among them
    pub(super) cgroups: Vec<PathBuf>,
}

impl Given {
    /// All descriptors the child keeps.
    pub(super) fn keep(&self) -> Vec<i32> {
        let mut keep = vec![self.channel.as_raw_fd()];
        keep.extend(self.namespaces.iter().map(|(fd, _)| fd.as_raw_fd()));
        keep.extend(self.user.iter().map(AsRawFd::as_raw_fd));
        if let Stdio::Fds { stdin, stdout, stderr } = &self.stdio {
            keep.extend(stdin.iter().chain([stdout, stderr]).map(AsRawFd::as_raw_fd));
        }
        keep
    }
}

/// Body of a container's child. Returns only on failure, with its exit code.
pub(super) fn container(spec: &ContainerSpec, place: &Path, given: &Given) -> i32 {
    finish(given.channel.as_fd(), container_steps(spec, place, given))
}

/// Body of an exec's child. Returns only on failure, with its exit code.
pub(super) fn exec(process: &ProcessSpec, map: Option<IdMap>, given: &Given) -> i32 {
    finish(given.channel.as_fd(), exec_steps(process, map, given))
}

fn finish(channel: BorrowedFd<'_>, failure: Failure) -> i32 {
    // the parent may be gone: then nobody wants to know
    let _told = send(channel, &Report::Failed(failure), None);
    1
}

fn first_steps(given: &Given) -> Result<(), Failure> {
    prctl::set_pdeathsig(Signal::SIGKILL).at("prctl", "pdeathsig")?;
    prctl::set_dumpable(false).at("prctl", "dumpable")?;
    umask(Mode::empty());
    setsid().at("setsid", "")?;
    cgroup::join(&given.cgroups)
}

fn container_steps(spec: &ContainerSpec, place: &Path, given: &Given) -> Failure {
    match build(spec, place, given) {
        Ok(built) => run(&spec.process, spec.user, given, built),
        Err(failure) => failure,
    }
}

/// What is passed from the building of the surroundings to the start of the program.
struct Built {
    prepared: identity::Prepared,
    streams: Streams,
    degraded: Vec<String>,
}

/// Standard streams, ready to be put in place.
enum Streams {
    Given { null: Option<OwnedFd> },
    Pty(terminal::Pty),
}

fn build(spec: &ContainerSpec, place: &Path, given: &Given) -> Result<Built, Failure> {
    let mut degraded = Vec::new();
    first_steps(given)?;
    join(given)?;
    if spec.cgroup_ns == Namespace::Container {
        // after joining: the group we are in now becomes its root
        unshare(CloneFlags::CLONE_NEWCGROUP).at("unshare", "cgroup")?;
    }
    let prepared = identity::prepare(&spec.process, &mut degraded)?;
    let null = if spec.process.tty { None } else { Some(mask::open_null()?) };
    let connected = mounts::connected_sources(&spec.mounts, &mut degraded)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).at("mount", "private /")?;

    let user = |map, fd| UserNs { map, fd };
    let user = spec.user.zip(given.user.as_ref()).map(|(map, fd)| user(map, fd.as_fd()));
    let new_root = root::make(&spec.root, user.as_ref(), place)?;
    let target = Target { root: new_root.as_fd(), user };
    fill(spec, &target, connected, &mut degraded)?;
    root::enter(&new_root)?;

    let streams = if matches!(given.stdio, Stdio::Tty) {
        let pty = terminal::open_pty(&spec.process, spec.user)?;
        terminal::bind_console(&pty)?;
        Streams::Pty(pty)
    } else {
        Streams::Given { null }
    };
    if spec.root.readonly {
        root::make_readonly(&new_root)?;
    }
    Ok(Built { prepared, streams, degraded })
}

/// All that lies in the root.
fn fill(
    spec: &ContainerSpec,
    target: &Target<'_>,
    connected: Vec<Option<OwnedFd>>,
    degraded: &mut Vec<String>,
) -> Result<(), Failure> {
    let own_cgroups = spec.cgroup_ns == Namespace::Container;
    let foreign_dev = dev::is_foreign(spec);
    if !foreign_dev {
        dev::place(target, spec)?;
    }
    for (mount, connected) in spec.mounts.iter().zip(connected) {
        // ours is there already
        if dev::is_dev(&mount.target) && !foreign_dev {
            continue;
        }
        mounts::place(target, mount, connected, own_cgroups, degraded)?;
    }
    if spec.host_devices && !foreign_dev {
        dev::place_host_devices(target)?;
    }
    dev::place_devices(target, &spec.devices)?;
    mask::protect(target, &spec.readonly_paths)?;
    mask::hide(target, &spec.masked_paths)?;
    let folder = spec.process.cwd.as_str();
    resolve(target.root, folder, Scope::Root, Missing::Folder).map(drop).at("cwd", folder)
}

fn join(given: &Given) -> Result<(), Failure> {
    for (fd, flags) in &given.namespaces {
        setns(fd, *flags).at("setns", format!("{flags:?}"))?;
    }
    Ok(())
}

fn exec_steps(process: &ProcessSpec, map: Option<IdMap>, given: &Given) -> Failure {
    let built = || -> Result<Built, Failure> {
        let mut degraded = Vec::new();
        first_steps(given)?;
        let prepared = identity::prepare(process, &mut degraded)?;
        let null = if process.tty { None } else { Some(mask::open_null()?) };
        join(given)?;
        let streams = if matches!(given.stdio, Stdio::Tty) {
            Streams::Pty(terminal::open_pty(process, map)?)
        } else {
            Streams::Given { null }
        };
        Ok(Built { prepared, streams, degraded })
    };
    match built() {
        Ok(built) => run(process, map, given, built),
        Err(failure) => failure,
    }
}

/// From the finished surroundings to the program. Returns only on failure.
fn run(process: &ProcessSpec, map: Option<IdMap>, given: &Given, built: Built) -> Failure {
    match last_steps(process, map, given, built) {
        Ok(program) => program.execute(),
        Err(failure) => failure,
    }
}

fn last_steps(
    process: &ProcessSpec,
    map: Option<IdMap>,
    given: &Given,
    built: Built,
) -> Result<program::Program, Failure> {
    let Built { prepared, streams, mut degraded } = built;
    place_streams(process, map, given, &streams)?;
    identity::limit(process, &mut degraded)?;
    program::enter_folder(process, false)?;
    identity::become_user(process, given.user.as_ref(), prepared.needs_right(process), &mut degraded)?;
    program::enter_folder(process, true)?;
    let program = program::find(process)?;
    umask(Mode::from_bits_truncate(process.umask.unwrap_or(DEFAULT_UMASK)));
    signals::reset().at("signals", "")?;

    let master = match &streams {
        Streams::Pty(pty) => Some(pty.master.as_raw_fd()),
        Streams::Given { .. } => None,
    };
    send(given.channel.as_fd(), &Report::Ready { degraded }, master).at("child", "report")?;
    settle::await_go(given.channel.as_fd()).at("child", "parent is gone")?;
    prctl::set_pdeathsig(None).at("prctl", "pdeathsig")?;
    fds::close_on_exec();
    prepared.seal(process)?;
    Ok(program)
}

fn place_streams(
    process: &ProcessSpec,
    map: Option<IdMap>,
    given: &Given,
    streams: &Streams,
) -> Result<(), Failure> {
    let (stdin, stdout, stderr) = match (streams, &given.stdio) {
        (Streams::Pty(pty), _) => {
            tty::take_control(pty.peer.as_fd()).at("tty", "controlling terminal")?;
            (Some(&pty.peer), &pty.peer, &pty.peer)
        }
        (Streams::Given { null }, Stdio::Fds { stdin, stdout, stderr }) => {
            let own: Vec<&OwnedFd> = stdin.iter().chain([stdout, stderr]).collect();
            identity::own_streams(process, map, &own)?;
            (stdin.as_ref().or(null.as_ref()), stdout, stderr)
        }
        (Streams::Given { .. }, Stdio::Tty) => return Ok(()),
    };
    if let Some(stdin) = stdin {
        dup2_stdin(stdin).at("dup", "stdin")?;
    }
    dup2_stdout(stdout).at("dup", "stdout")?;
    dup2_stderr(stderr).at("dup", "stderr")
}
