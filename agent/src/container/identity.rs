//! As whom a program runs: ids, capabilities, limits, labels, filter. Split in what is done as host root, what with the
//! container's ids, and what comes last of all.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, fchown, setgroups, setresgid, setresuid};
use podkeep_hal::linux::sys::{caps, rlimit, seccomp};

use super::report::{At, failed};
use super::spec::{IdMap, ProcessSpec};
use crate::supervisor::proto::{Failure, FailureKind};

/// What is read while the host's files are still in sight.
pub(super) struct Prepared {
    /// compiled filter program
    filter: Option<Vec<u8>>,
}

/// As root of the host, in the host's mount namespace.
pub(super) fn prepare(process: &ProcessSpec, degraded: &mut Vec<String>) -> Result<Prepared, Failure> {
    let filter = match &process.seccomp {
        Some(path) => Some(fs::read(path).at("seccomp", path)?),
        None => None,
    };
    label(process, degraded)?;
    if let Some(score) = process.oom_score_adj
        && let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string())
    {
        degraded.push(format!("oom_score_adj {score} was refused: {error}"));
    }
    Ok(Prepared { filter })
}

/// Labels for the next exec; without the security module there is nothing that would enforce them.
fn label(process: &ProcessSpec, degraded: &mut Vec<String>) -> Result<(), Failure> {
    if let Some(profile) = &process.apparmor {
        if is_on("/sys/module/apparmor/parameters/enabled") {
            let own = "/proc/self/attr/apparmor/exec";
            let file = if Path::new(own).exists() { own } else { "/proc/self/attr/exec" };
            fs::write(file, format!("exec {profile}")).at("apparmor", profile)?;
        } else {
            degraded.push(format!("AppArmor profile '{profile}' is not applied: the kernel has no AppArmor"));
        }
    }
    if let Some(context) = &process.selinux {
        if Path::new("/sys/fs/selinux/enforce").exists() {
            fs::write("/proc/self/attr/exec", context).at("selinux", context)?;
        } else {
            degraded.push(format!("SELinux label '{context}' is not applied: SELinux is off"));
        }
    }
    Ok(())
}

fn is_on(file: &str) -> bool {
    fs::read(file).is_ok_and(|text| text.first() == Some(&b'Y'))
}

/// Limits; raising one needs CAP_SYS_RESOURCE, which a nested node may lack.
pub(super) fn limit(process: &ProcessSpec, degraded: &mut Vec<String>) -> Result<(), Failure> {
    for limit in &process.rlimits {
        match rlimit::set(limit.resource, limit.soft, limit.hard) {
            Err(Errno::EPERM) => degraded.push(format!("resource limit {} was refused", limit.resource)),
            other => other.at("rlimit", limit.resource.to_string())?,
        }
    }
    Ok(())
}

/// Gives the standard streams to the user, so that it can open /dev/stdout again.
pub(super) fn own_streams(
    process: &ProcessSpec,
    map: Option<IdMap>,
    streams: &[&OwnedFd],
) -> Result<(), Failure> {
    let base = map.map_or(0, |map| map.host_base);
    let uid = process.uid.saturating_add(base);
    if uid == 0 {
        return Ok(());
    }
    for stream in streams {
        match fchown(stream, Some(Uid::from_raw(uid)), None) {
            // a socket, a file of a read-only or foreign file system
            Ok(()) | Err(Errno::EINVAL | Errno::EPERM | Errno::EROFS) => {}
            Err(errno) => return Err(failed("chown", "standard streams", errno)),
        }
    }
    Ok(())
}

/// Takes the ids of the container. All capabilities that are kept stay permitted, and effective again.
pub(super) fn become_user(
    process: &ProcessSpec,
    user_ns: Option<&OwnedFd>,
    needs_filter_right: bool,
    degraded: &mut Vec<String>,
) -> Result<(), Failure> {
    if let Some(fd) = user_ns {
        setns(fd, CloneFlags::CLONE_NEWUSER).at("setns", "user")?;
    }
    let sets = &process.capabilities;
    let available = caps::permitted().at("capget", "")?;
    caps::limit_bounding(sets.bounding).at("capabilities", "bounding set")?;
    prctl::set_keepcaps(true).at("prctl", "keepcaps")?;
    let groups: Vec<Gid> = process.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).at("setgroups", "")?;
    let (uid, gid) = (Uid::from_raw(process.uid), Gid::from_raw(process.gid));
    setresgid(gid, gid, gid).at("setresgid", gid.to_string())?;
    setresuid(uid, uid, uid).at("setresuid", uid.to_string())?;
    // cleared by the change of ids
    prctl::set_pdeathsig(Signal::SIGKILL).at("prctl", "pdeathsig")?;
    let missing = sets.permitted & !available;
    if missing != 0 && missing & all_known() != 0 {
        degraded.push(format!("capabilities {:#x} are not to be had on this node", missing & all_known()));
    }
    let extra = if needs_filter_right { 1_u64 << caps::SYS_ADMIN } else { 0 };
    let keep = (sets.permitted | extra) & available;
    let effective = (sets.effective | extra) & keep;
    let inheritable = sets.inheritable & available;
    caps::set(effective, keep, inheritable).at("capset", format!("{keep:#x}"))?;
    caps::set_ambient(sets.ambient & keep & inheritable).at("capabilities", "ambient set")
}

/// Capabilities up to CAP_CHECKPOINT_RESTORE (40): higher bits mean nothing and are not missed.
fn all_known() -> u64 {
    (1 << 41) - 1
}

impl Prepared {
    /// Loading a filter takes CAP_SYS_ADMIN, unless the program can never gain privileges.
    pub(super) fn needs_right(&self, process: &ProcessSpec) -> bool {
        self.filter.is_some() && !process.no_new_privileges
    }

    /// The very last settings: after this only the exec is sure to be allowed.
    pub(super) fn seal(&self, process: &ProcessSpec) -> Result<(), Failure> {
        if process.no_new_privileges {
            prctl::set_no_new_privs().at("prctl", "no_new_privs")?;
        }
        let Some(filter) = &self.filter else { return Ok(()) };
        let sets = &process.capabilities;
        let available = caps::permitted().at("capget", "")?;
        seccomp::load(filter).map_err(|errno| Failure {
            kind: if errno == Errno::EINVAL { FailureKind::Invalid } else { FailureKind::System },
            ..failed("seccomp", process.seccomp.as_deref().unwrap_or(Path::new("")), errno)
        })?;
        if self.needs_right(process) {
            let keep = sets.permitted & available;
            caps::set(sets.effective & keep, keep, sets.inheritable & available)
                .at("capset", format!("{keep:#x}"))?;
        }
        Ok(())
    }
}
