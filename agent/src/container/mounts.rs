//! The mounts of a container: each is made detached, its target is found inside the root, then both are joined.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::SFlag;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use podkeep_hal::linux::sys::mount::{self as tree, FsContext};

use super::report::{At, failed};
use super::resolve::{Missing, Scope, is_folder, kind, open_host, resolve};
use super::spec::{IdMap, MountKind, MountSpec, Propagation};
use crate::supervisor::proto::Failure;

/// Shown through the pod's user namespace.
pub(super) struct UserNs<'a> {
    pub(super) map: IdMap,
    pub(super) fd: BorrowedFd<'a>,
}

/// Where mounts go: the new root, and what its ids mean.
pub(super) struct Target<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) user: Option<UserNs<'a>>,
}

impl Target<'_> {
    /// Host ids of the container's root user.
    pub(super) fn root_id(&self) -> u32 {
        self.user.as_ref().map_or(0, |user| user.map.host_base)
    }
}

/// A mount that has no place yet.
pub(super) struct Detached {
    pub(super) fd: OwnedFd,
    pub(super) attr: u64,
    pub(super) recursive_attr: bool,
    /// 0: as it is, which is private for everything but [`connected_sources`]
    pub(super) propagation: u64,
}

impl Detached {
    pub(super) fn plain(fd: OwnedFd) -> Self {
        Self { fd, attr: 0, recursive_attr: false, propagation: 0 }
    }

    /// Sets what is to be set and attaches. Before kernel 5.12 the settings follow the attaching.
    pub(super) fn attach(&self, target: BorrowedFd<'_>) -> nix::Result<()> {
        let tree = self.fd.as_fd();
        let late = match self.settings() {
            Err(Errno::ENOSYS) => true,
            other => other.map(|()| false)?,
        };
        tree::attach(tree, target)?;
        if late { self.settings_the_old_way() } else { Ok(()) }
    }

    fn settings(&self) -> nix::Result<()> {
        let tree = self.fd.as_fd();
        // propagation goes for the whole tree; one call where the attributes do, too
        if self.recursive_attr && (self.attr != 0 || self.propagation != 0) {
            return tree::set_attr(tree, true, self.attr, self.propagation);
        }
        if self.propagation != 0 {
            tree::set_attr(tree, true, 0, self.propagation)?;
        }
        if self.attr != 0 {
            tree::set_attr(tree, false, self.attr, 0)?;
        }
        Ok(())
    }

    fn settings_the_old_way(&self) -> nix::Result<()> {
        let none = None::<&str>;
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        if self.recursive_attr && self.attr != 0 {
            return Err(Errno::ENOSYS);
        }
        let propagation = match self.propagation {
            tree::PRIVATE => MsFlags::MS_PRIVATE,
            tree::SLAVE => MsFlags::MS_SLAVE,
            tree::SHARED => MsFlags::MS_SHARED,
            _ => MsFlags::empty(),
        };
        if !propagation.is_empty() {
            mount(none, path.as_str(), none, propagation | MsFlags::MS_REC, none)?;
        }
        if self.attr == 0 { Ok(()) } else { remount(self.fd.as_fd(), self.attr) }
    }
}

/// Adds attributes to one attached mount.
pub(super) fn restrict(fd: BorrowedFd<'_>, attr: u64) -> nix::Result<()> {
    match tree::set_attr(fd, false, attr, 0) {
        Err(Errno::ENOSYS) => remount(fd, attr),
        other => other,
    }
}

/// The same before kernel 5.12.
fn remount(fd: BorrowedFd<'_>, attr: u64) -> nix::Result<()> {
    let none = None::<&str>;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // a remount replaces all flags: those the mount has already (and that may be locked) are named again
    let flags = kept_flags(fstatvfs(fd)?.flags()) | ms_flags(attr);
    mount(none, path.as_str(), none, flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND, none)
}

fn ms_flags(attr: u64) -> MsFlags {
    let pairs = [
        (tree::ATTR_RDONLY, MsFlags::MS_RDONLY),
        (tree::ATTR_NOSUID, MsFlags::MS_NOSUID),
        (tree::ATTR_NODEV, MsFlags::MS_NODEV),
        (tree::ATTR_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    pairs.into_iter().filter(|(bit, _)| attr & bit != 0).fold(MsFlags::empty(), |all, (_, flag)| all | flag)
}

/// Those of access times are kept by the kernel when none of them is named.
fn kept_flags(flags: FsFlags) -> MsFlags {
    let pairs = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    pairs
        .into_iter()
        .filter(|(bit, _)| flags.contains(*bit))
        .fold(MsFlags::empty(), |all, (_, flag)| all | flag)
}

/// Copies of those bind sources that go on talking to the host. To be taken while our mounts are still peers of the
/// host's: a copy taken later would be cut off.
pub(super) fn connected_sources(
    mounts: &[MountSpec],
    degraded: &mut Vec<String>,
) -> Result<Vec<Option<OwnedFd>>, Failure> {
    let mut sources = Vec::with_capacity(mounts.len());
    for mount in mounts {
        sources.push(match &mount.kind {
            MountKind::Bind { source, propagation, .. } if *propagation != Propagation::Private => {
                check_connected(source, *propagation, degraded)?;
                bind_source(mount)?
            }
            _ => None,
        });
    }
    Ok(sources)
}

/// A source on a private mount of the host has nobody to talk to. What the container would make visible on the host
/// stays hidden then, which is an error; what it would see later it does not see, which is told.
fn check_connected(
    source: &Path,
    propagation: Propagation,
    degraded: &mut Vec<String>,
) -> Result<(), Failure> {
    let at = open_host(source).at("mount", source)?;
    let tags = propagation_tags(&at).at("mount", source)?;
    match propagation {
        Propagation::Shared if !tags.contains("shared:") => Err(failed(
            "mountPropagation: Bidirectional needs a shared mount (mount --make-rshared)",
            source,
            Errno::EINVAL,
        )),
        Propagation::Slave if tags.is_empty() => {
            degraded.push(format!(
                "mountPropagation: later mounts below '{}' are not seen: it lies on a private mount of the host",
                source.display()
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The optional fields of the mount a descriptor lies on (`shared:N master:N`), as in proc_pid_mountinfo(5).
fn propagation_tags(at: &OwnedFd) -> std::io::Result<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", at.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).unwrap_or_default().trim().to_owned();
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let line = table.lines().find(|line| line.split(' ').next() == Some(id.as_str())).unwrap_or_default();
    let tags: Vec<&str> = line.split(' ').skip(6).take_while(|word| *word != "-").collect();
    Ok(tags.join(" "))
}

/// A detached copy of what a bind mount shows; `None` for other kinds.
fn bind_source(mount: &MountSpec) -> Result<Option<OwnedFd>, Failure> {
    let MountKind::Bind { source, sub_path, create_sub_path, .. } = &mount.kind else {
        return Ok(None);
    };
    let mut at = open_host(source).at("mount", source)?;
    if let Some(path) = sub_path {
        let missing = if *create_sub_path { Missing::Folder } else { Missing::Refuse };
        at = resolve(at.as_fd(), path, Scope::Beneath, missing).at("subPath", path)?;
    }
    tree::clone_tree(at.as_fd(), true).at("mount", source).map(Some)
}

/// Makes one mount of the list. `connected`: see [`connected_sources`].
pub(super) fn place(
    target: &Target<'_>,
    mount: &MountSpec,
    connected: Option<OwnedFd>,
    own_cgroup_ns: bool,
    degraded: &mut Vec<String>,
) -> Result<(), Failure> {
    if mount.kind == MountKind::Cgroup && own_cgroup_ns {
        return super::cgroup_mounts::place(target, mount, degraded);
    }
    let Some(made) = detached(target, mount, connected)? else {
        degraded.push(format!("'{}' is not mounted: the kernel has no such file system", mount.target));
        return Ok(());
    };
    match attach_at(target, &made, &mount.target) {
        Err(failure) if mount.kind == MountKind::Cgroup && failure.errno == Errno::ENOSYS as i32 => {
            remount_hierarchies(target, &mount.target, attributes(mount))
        }
        other => other,
    }
}

/// The host's hierarchies below an attached copy of /sys/fs/cgroup, one by one (kernel < 5.12).
fn remount_hierarchies(target: &Target<'_>, top: &str, attr: u64) -> Result<(), Failure> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").at("mount", top)?;
    let below = table.lines().filter_map(|line| line.split(' ').nth(4)?.strip_prefix("/sys/fs/cgroup"));
    for path in below.filter(|path| path.is_empty() || path.starts_with('/')) {
        let path = format!("{top}{path}");
        let at = resolve(target.root, &path, Scope::Root, Missing::Refuse).at("mount", &path)?;
        remount(at.as_fd(), attr).at("mount", &path)?;
    }
    Ok(())
}

/// Attaches at a path of the container, which is made when it is missing: a file for a file, a folder for a folder.
pub(super) fn attach_at(target: &Target<'_>, made: &Detached, path: &str) -> Result<(), Failure> {
    let folder = is_folder(made.fd.as_fd()).at("mount", path)?;
    let missing = if folder { Missing::Folder } else { Missing::File };
    let place = resolve(target.root, path, Scope::Root, missing).at("mount target", path)?;
    // the kernel would only say "invalid argument"
    match (folder, is_folder(place.as_fd()).at("mount target", path)?) {
        (true, false) => Err(failed("mount", path, Errno::ENOTDIR)),
        (false, true) => Err(failed("mount", path, Errno::EISDIR)),
        _ => made.attach(place.as_fd()).at("mount", path),
    }
}

/// `ATTR_*` of a mount of the list.
pub(super) fn attributes(mount: &MountSpec) -> u64 {
    let pairs = [
        (mount.readonly, tree::ATTR_RDONLY),
        (mount.nosuid, tree::ATTR_NOSUID),
        (mount.nodev, tree::ATTR_NODEV),
        (mount.noexec, tree::ATTR_NOEXEC),
    ];
    pairs.into_iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, bit)| all | bit)
}

/// `None` where the kernel lacks a file system that programs rarely need.
fn detached(
    target: &Target<'_>,
    mount: &MountSpec,
    connected: Option<OwnedFd>,
) -> Result<Option<Detached>, Failure> {
    let attr = attributes(mount);
    let made = match &mount.kind {
        MountKind::Bind { propagation, recursive_readonly, source, .. } => {
            let source_tree = match connected {
                Some(fd) => Some(fd),
                None => bind_source(mount)?,
            };
            let fd = source_tree.ok_or_else(|| failed("mount", source, Errno::EINVAL))?;
            return bind(target, fd, attr, *propagation, *recursive_readonly, source).map(Some);
        }
        MountKind::Tmpfs { size, mode } => tmpfs(target, *size, *mode, attr),
        MountKind::Proc => FsContext::open(c"proc").and_then(|context| context.mount(attr)),
        MountKind::Sysfs => FsContext::open(c"sysfs").and_then(|context| context.mount(attr)),
        MountKind::Cgroup => {
            let host =
                open_host(Path::new("/sys/fs/cgroup")).and_then(|at| tree::clone_tree(at.as_fd(), true));
            return host.at("mount", &mount.target).map(|fd| {
                let mut made = Detached::plain(fd);
                (made.attr, made.recursive_attr) = (attr, true);
                Some(made)
            });
        }
        MountKind::Mqueue => match FsContext::open(c"mqueue") {
            Err(Errno::ENODEV) => return Ok(None),
            context => context.and_then(|context| context.mount(attr)),
        },
        MountKind::Devpts => devpts(target, attr),
    };
    made.at("mount", &mount.target).map(|fd| Some(Detached::plain(fd)))
}

fn bind(
    target: &Target<'_>,
    fd: OwnedFd,
    attr: u64,
    propagation: Propagation,
    recursive_readonly: bool,
    source: &Path,
) -> Result<Detached, Failure> {
    if let Some(user) = &target.user {
        // the file system must know how (kernel 5.12 and later, one by one)
        match tree::set_idmap(fd.as_fd(), user.fd) {
            // devices and sockets are used by their mode bits; their file systems hardly ever know how
            Err(Errno::EINVAL) if is_special(&fd).at("mount", source)? => {}
            other => other.at("idmapped mount (hostUsers: false needs it)", source)?,
        }
    }
    let propagation = match propagation {
        Propagation::Private => 0,
        Propagation::Slave => tree::SLAVE,
        Propagation::Shared => tree::SHARED,
    };
    Ok(Detached {
        fd,
        attr,
        recursive_attr: recursive_readonly && attr & tree::ATTR_RDONLY != 0,
        propagation,
    })
}

fn is_special(fd: &OwnedFd) -> nix::Result<bool> {
    Ok(!matches!(kind(fd.as_fd())?, SFlag::S_IFDIR | SFlag::S_IFREG))
}

/// An empty file system in memory, owned by the container's root.
pub(super) fn tmpfs(target: &Target<'_>, size: u64, mode: u32, attr: u64) -> nix::Result<OwnedFd> {
    let context = FsContext::open(c"tmpfs")?;
    context.set(c"mode", &text(&format!("{mode:o}"))?)?;
    if size > 0 {
        context.set(c"size", &text(&size.to_string())?)?;
    }
    own(&context, target)?;
    context.mount(attr)
}

/// A fresh devpts; group 5 is `tty` everywhere.
pub(super) fn devpts(target: &Target<'_>, attr: u64) -> nix::Result<OwnedFd> {
    let context = FsContext::open(c"devpts")?;
    context.flag(c"newinstance")?;
    context.set(c"ptmxmode", c"0666")?;
    context.set(c"mode", c"0620")?;
    context.set(c"gid", &text(&target.root_id().saturating_add(5).to_string())?)?;
    context.mount(attr)
}

fn own(context: &FsContext, target: &Target<'_>) -> nix::Result<()> {
    if target.user.is_some() {
        let id = text(&target.root_id().to_string())?;
        context.set(c"uid", &id)?;
        context.set(c"gid", &id)?;
    }
    Ok(())
}

pub(super) fn text(value: &str) -> nix::Result<CString> {
    CString::new(value).map_err(|_| Errno::EINVAL)
}
