//! The namespaces containers share: made by a child, pinned as files by its parent.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{
    Gid, Uid, chdir, fchdir, pivot_root, setgroups, sethostname, setresgid, setresuid, setsid,
};
use podkeep_hal::linux::sys::clone::{Child, clone_process};
use podkeep_hal::linux::sys::{mount as tree, net, reaper, signals};

use super::report::{At, Report, failed, pair, receive, send};
use super::setup::SandboxMade;
use super::spec::{IdMap, Namespace, SandboxSpec};
use super::{cgroup, settle};
use crate::supervisor::proto::Failure;

/// What the reaper runs as, like the usual pause container: nobody in particular.
const REAPER_ID: u32 = 65535;
/// The kernel may kill everything else first: without the reaper all containers of the pod die.
const REAPER_OOM_SCORE: &str = "-998";

/// A namespace kind: file name below /proc/PID/ns and in the sandbox folder, and clone flag.
type Kind = (&'static str, CloneFlags);

const NET: Kind = ("net", CloneFlags::CLONE_NEWNET);
const IPC: Kind = ("ipc", CloneFlags::CLONE_NEWIPC);
const UTS: Kind = ("uts", CloneFlags::CLONE_NEWUTS);
const USER: Kind = ("user", CloneFlags::CLONE_NEWUSER);
const PID: Kind = ("pid", CloneFlags::CLONE_NEWPID);

fn wanted(spec: &SandboxSpec) -> Vec<Kind> {
    let own = |namespace: Namespace| namespace != Namespace::Host;
    let kinds = [
        (own(spec.net), NET),
        (own(spec.ipc), IPC),
        (spec.hostname.is_some(), UTS),
        (spec.user.is_some(), USER),
        (spec.pid == Namespace::Sandbox, PID),
    ];
    kinds.into_iter().filter_map(|(wanted, kind)| wanted.then_some(kind)).collect()
}

pub(super) fn create(spec: &SandboxSpec, dir: &Path) -> Result<SandboxMade, Failure> {
    std::fs::create_dir_all(dir).at("mkdir", dir)?;
    let kinds = wanted(spec);
    if kinds.is_empty() {
        return Ok(SandboxMade::default());
    }
    let flags = kinds.iter().fold(CloneFlags::empty(), |flags, kind| flags | kind.1);
    let (ours, theirs) = pair()?;
    let child =
        clone_process(flags.bits(), None, &[theirs.as_raw_fd()], || first_steps(spec, dir, theirs.as_fd()))
            .at("clone", &spec.id)?;
    drop(theirs);
    let made = set_up(spec, dir, &kinds, &child, &ours);
    match made {
        Ok(degraded) if spec.pid == Namespace::Sandbox => {
            Ok(SandboxMade { reaper_pid: child.pid, reaper_pidfd: Some(child.pidfd), degraded })
        }
        Ok(degraded) => {
            settle::reap(child.pidfd.as_fd());
            Ok(SandboxMade { degraded, ..SandboxMade::default() })
        }
        Err(failure) => {
            settle::kill(child.pidfd.as_fd());
            // what is pinned already; the failure to report is the first one
            if let Err(second) = remove(dir) {
                log::warn!("sandbox '{}': cleaning up: {second}", spec.id);
            }
            Err(failure)
        }
    }
}

/// The parent's half: id map, pins, and the word that lets the child end or become the reaper.
fn set_up(
    spec: &SandboxSpec,
    dir: &Path,
    kinds: &[Kind],
    child: &Child,
    channel: &OwnedFd,
) -> Result<Vec<String>, Failure> {
    if let Some(map) = spec.user {
        write_id_map(child.pid, map)?;
        settle::say_go(channel.as_fd())?;
    }
    let degraded = expect_ready(channel.as_fd())?;
    for (name, _) in kinds {
        pin(child.pid, name, &dir.join(name))?;
    }
    settle::say_go(channel.as_fd())?;
    if spec.pid == Namespace::Sandbox {
        // the end of the stream: the reaper is in its place
        settle::wait_readable(channel.as_fd())?;
        match receive(channel.as_fd()).at("sandbox", &spec.id)? {
            Some((Report::Failed(failure), _)) => return Err(failure),
            Some((Report::Ready { .. }, _)) | None => {}
        }
    }
    Ok(degraded)
}

fn expect_ready(channel: BorrowedFd<'_>) -> Result<Vec<String>, Failure> {
    settle::wait_readable(channel)?;
    match receive(channel).at("sandbox", "child")? {
        Some((Report::Ready { degraded }, _)) => Ok(degraded),
        Some((Report::Failed(failure), _)) => Err(failure),
        None => Err(failed("sandbox", "child died during set-up", Errno::UnknownErrno)),
    }
}

fn write_id_map(pid: i32, map: IdMap) -> Result<(), Failure> {
    for name in ["uid_map", "gid_map"] {
        let file = format!("/proc/{pid}/{name}");
        std::fs::write(&file, format!("0 {} {}\n", map.host_base, map.size)).at(name, &file)?;
    }
    Ok(())
}

/// Binds a namespace of the child on a file, where it lives on without any process.
fn pin(pid: i32, name: &str, file: &Path) -> Result<(), Failure> {
    std::fs::File::create(file).at("create", file)?;
    let source = format!("/proc/{pid}/ns/{name}");
    mount(Some(source.as_str()), file, None::<&str>, MsFlags::MS_BIND, None::<&str>).at("pin namespace", file)
}

pub(super) fn remove(dir: &Path) -> Result<(), Failure> {
    for (name, _) in [NET, IPC, UTS, USER, PID] {
        let file = dir.join(name);
        match umount2(&file, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // not there, or a file without a mount
            Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => {}
            Err(errno) => return Err(failed("unpin namespace", &file, errno)),
        }
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).at("unlink", &file);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The child's half. Returns its exit code, or never when it becomes the reaper.
fn first_steps(spec: &SandboxSpec, dir: &Path, channel: BorrowedFd<'_>) -> i32 {
    let told = match inside(spec, channel) {
        Ok(degraded) => send(channel, &Report::Ready { degraded }, None),
        Err(failure) => return report_failure(channel, failure),
    };
    if told.is_err() || settle::await_go(channel).is_err() {
        return 1;
    }
    if spec.pid != Namespace::Sandbox {
        return 0;
    }
    match become_reaper(dir, channel) {
        Ok(never) => match never {},
        Err(failure) => report_failure(channel, failure),
    }
}

fn report_failure(channel: BorrowedFd<'_>, failure: Failure) -> i32 {
    // the parent may be gone: then nobody wants to know
    let _told = send(channel, &Report::Failed(failure), None);
    1
}

/// Settings of the new namespaces, made from within.
fn inside(spec: &SandboxSpec, channel: BorrowedFd<'_>) -> Result<Vec<String>, Failure> {
    prctl::set_pdeathsig(Signal::SIGKILL).at("prctl", "pdeathsig")?;
    cgroup::join(&spec.cgroups)?;
    if spec.user.is_some() {
        settle::await_go(channel).at("sandbox", "id map")?;
        setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0)).at("setresgid", "0")?;
        setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).at("setresuid", "0")?;
        // cleared by the change of ids
        prctl::set_pdeathsig(Signal::SIGKILL).at("prctl", "pdeathsig")?;
    }
    if let Some(name) = &spec.hostname {
        sethostname(name).at("sethostname", name)?;
    }
    let mut degraded = Vec::new();
    if spec.net != Namespace::Host
        && let Err(errno) = net::loopback_up()
    {
        degraded.push(format!("the loopback interface stays down: {}", errno.desc()));
    }
    for (key, value) in &spec.sysctls {
        let file = sysctl_file(key).ok_or_else(|| failed("sysctl", key, Errno::EINVAL))?;
        std::fs::write(&file, value).at("sysctl", key)?;
    }
    Ok(degraded)
}

/// `net.ipv4.ip_forward` and `net/ipv4/ip_forward` name the same file; with dots first, `/` stands for a dot in a name.
fn sysctl_file(key: &str) -> Option<String> {
    let path: String = match key.find(['.', '/']).and_then(|at| key.get(at..)) {
        Some(rest) if rest.starts_with('.') => key
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => key.to_owned(),
    };
    let plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    plain.then(|| format!("/proc/sys/{path}"))
}

/// First process of the shared pid namespace: in an empty root, as nobody, without descriptors or memory of ours.
fn become_reaper(dir: &Path, channel: BorrowedFd<'_>) -> Result<core::convert::Infallible, Failure> {
    // refused without CAP_SYS_RESOURCE: then it is as likely a victim as its parent
    let _adjusted = std::fs::write("/proc/self/oom_score_adj", REAPER_OOM_SCORE);
    let _named = prctl::set_name(c"podkeep-reaper");
    let smaps = std::fs::File::open("/proc/self/smaps").at("open", "/proc/self/smaps")?;
    let null = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .at("open", "/dev/null")?;
    nix::unistd::dup2_stdin(&null).at("dup", "stdin")?;
    nix::unistd::dup2_stdout(&null).at("dup", "stdout")?;
    nix::unistd::dup2_stderr(&null).at("dup", "stderr")?;
    setsid().at("setsid", "")?;
    empty_root(dir)?;
    setgroups(&[]).at("setgroups", "")?;
    let (uid, gid) = (Uid::from_raw(REAPER_ID), Gid::from_raw(REAPER_ID));
    setresgid(gid, gid, gid).at("setresgid", "reaper")?;
    setresuid(uid, uid, uid).at("setresuid", "reaper")?;
    prctl::set_no_new_privs().at("prctl", "no_new_privs")?;
    prctl::set_dumpable(false).at("prctl", "dumpable")?;
    prctl::set_pdeathsig(None).at("prctl", "pdeathsig")?;
    signals::reset().at("signals", "")?;
    let (smaps, channel) = (OwnedFd::from(smaps), channel.as_raw_fd());
    reaper::run(smaps, channel)
}

/// A pid namespace may be shared with containers that can trace: they must not find the host's files through the
/// reaper's root.
fn empty_root(dir: &Path) -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNS).at("unshare", "mnt")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .at("mount", "/")?;
    let context = tree::FsContext::open(c"tmpfs").at("mount", "tmpfs")?;
    context.set(c"mode", c"0555").at("mount", "tmpfs")?;
    context.set(c"size", c"4k").at("mount", "tmpfs")?;
    let attr = tree::ATTR_RDONLY | tree::ATTR_NOSUID | tree::ATTR_NODEV | tree::ATTR_NOEXEC;
    let root = context.mount(attr).at("mount", "tmpfs")?;
    tree::attach(root.as_fd(), super::resolve::open_host(dir).at("open", dir)?.as_fd()).at("mount", dir)?;
    fchdir(&root).at("chdir", "reaper root")?;
    pivot_root(".", ".").at("pivot_root", "reaper root")?;
    umount2(".", MntFlags::MNT_DETACH).at("umount", "old root")?;
    chdir("/").at("chdir", "/")
}

#[cfg(test)]
mod tests {
    use super::sysctl_file;

    #[test]
    fn sysctl_names_in_both_spellings() {
        assert_eq!(sysctl_file("net.ipv4.ip_forward").unwrap(), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(sysctl_file("net/ipv4/conf/eth0.1/mtu").unwrap(), "/proc/sys/net/ipv4/conf/eth0.1/mtu");
        assert_eq!(sysctl_file("net.ipv4.conf.eth0/1.mtu").unwrap(), "/proc/sys/net/ipv4/conf/eth0.1/mtu");
        assert_eq!(sysctl_file("kernel/../../etc/passwd"), None);
        assert_eq!(sysctl_file("kernel..x"), None);
        assert_eq!(sysctl_file(""), None);
    }
}
