//! /dev: the nodes every program expects, and those the order names.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, makedev, mkdirat, mknodat};
use nix::unistd::{Gid, Uid, fchownat, symlinkat};
use podkeep_hal::linux::sys::mount as tree;

use super::mounts::{Detached, Target, attach_at, devpts, tmpfs};
use super::report::{At, failed};
use super::resolve::{Missing, Scope, open_host, resolve, split};
use super::spec::{ContainerSpec, DeviceSpec, MountKind};
use crate::supervisor::proto::Failure;

/// Name and numbers, as in the kernel's devices.txt. All are 0666.
const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// Whoever brings a whole /dev keeps it.
pub(super) fn is_foreign(spec: &ContainerSpec) -> bool {
    spec.mounts.iter().any(|mount| is_dev(&mount.target) && matches!(mount.kind, MountKind::Bind { .. }))
}

/// Is this target /dev itself?
pub(super) fn is_dev(target: &str) -> bool {
    target.trim_end_matches('/') == "/dev"
}

/// The usual /dev on a fresh tmpfs.
pub(super) fn place(target: &Target<'_>, spec: &ContainerSpec) -> Result<(), Failure> {
    let made = Detached::plain(tmpfs(target, 65536, 0o755, tree::ATTR_NOSUID).at("mount", "/dev")?);
    attach_at(target, &made, "/dev")?;
    let dev = made.fd.as_fd();
    for (name, major, minor) in NODES {
        let node = Node { kind: SFlag::S_IFCHR, major, minor, mode: 0o666, uid: 0, gid: 0 };
        node.make(target, dev, name, &Path::new("/dev").join(name)).at("device", name)?;
    }
    for (to, name) in LINKS {
        symlinkat(to, dev, name).at("device", name)?;
    }
    if !spec.mounts.iter().any(|mount| mount.kind == MountKind::Devpts) {
        mkdirat(dev, "pts", Mode::from_bits_truncate(0o755)).at("mkdir", "/dev/pts")?;
        let attr = tree::ATTR_NOSUID | tree::ATTR_NOEXEC;
        let made = Detached::plain(devpts(target, attr).at("mount", "/dev/pts")?);
        attach_at(target, &made, "/dev/pts")?;
    }
    Ok(())
}

struct Node {
    kind: SFlag,
    major: u32,
    minor: u32,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Node {
    /// Makes the node, or binds the host's where nodes cannot be made (no CAP_MKNOD).
    fn make(&self, target: &Target<'_>, folder: BorrowedFd<'_>, name: &str, host: &Path) -> nix::Result<()> {
        let mode = Mode::from_bits_truncate(self.mode & 0o7777);
        match mknodat(folder, name, self.kind, mode, makedev(self.major.into(), self.minor.into())) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(()),
            Err(Errno::EPERM) => return bind_node(folder, name, host),
            Err(errno) => return Err(errno),
        }
        let base = target.root_id();
        let (uid, gid) = (self.uid.saturating_add(base), self.gid.saturating_add(base));
        if uid != 0 || gid != 0 {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            fchownat(folder, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            // a change of owner clears set-id bits
            fchmodat(folder, name, mode, FchmodatFlags::FollowSymlink)?;
        }
        Ok(())
    }
}

fn bind_node(folder: BorrowedFd<'_>, name: &str, host: &Path) -> nix::Result<()> {
    let source = open_host(host)?;
    let create = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(folder, name, create, Mode::from_bits_truncate(0o644))?;
    let place = openat(folder, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    tree::attach(tree::clone_tree(source.as_fd(), false)?.as_fd(), place.as_fd())
}

/// The devices of the order.
pub(super) fn place_devices(target: &Target<'_>, devices: &[DeviceSpec]) -> Result<(), Failure> {
    for device in devices {
        let kind = match device.kind {
            'c' | 'u' => SFlag::S_IFCHR,
            'b' => SFlag::S_IFBLK,
            'p' => SFlag::S_IFIFO,
            _ => return Err(failed("device", &device.path, Errno::EINVAL)),
        };
        let node = Node {
            kind,
            major: device.major,
            minor: device.minor,
            mode: device.mode,
            uid: device.uid,
            gid: device.gid,
        };
        place_node(target, &device.path, &node)?;
    }
    Ok(())
}

fn place_node(target: &Target<'_>, path: &str, node: &Node) -> Result<(), Failure> {
    let (folder, name) = split(path).ok_or_else(|| failed("device", path, Errno::EINVAL))?;
    let folder = resolve(target.root, folder, Scope::Root, Missing::Folder).at("device", path)?;
    node.make(target, folder.as_fd(), name, Path::new(path)).at("device", path)
}

/// All devices of the host, except what a container has of its own.
pub(super) fn place_host_devices(target: &Target<'_>) -> Result<(), Failure> {
    place_folder(target, Path::new("/dev"), 0)
}

fn place_folder(target: &Target<'_>, folder: &Path, depth: u32) -> Result<(), Failure> {
    const OWN: [&str; 8] = ["pts", "shm", "fd", "mqueue", "console", "ptmx", "hugepages", "tty"];
    for entry in std::fs::read_dir(folder).at("device", folder)?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if depth == 0 && OWN.iter().any(|own| name == *own) {
            continue;
        }
        // hot-plugged devices come and go while we look
        let Ok(meta) = entry.metadata() else { continue };
        let kind = meta.file_type();
        if kind.is_dir() && depth < 4 {
            place_folder(target, &path, depth + 1)?;
        } else if kind.is_char_device() || kind.is_block_device() {
            let node = Node {
                kind: if kind.is_char_device() { SFlag::S_IFCHR } else { SFlag::S_IFBLK },
                major: u32::try_from(nix::sys::stat::major(meta.rdev())).unwrap_or(0),
                minor: u32::try_from(nix::sys::stat::minor(meta.rdev())).unwrap_or(0),
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
            };
            if let Some(path) = path.to_str() {
                place_node(target, path, &node)?;
            }
        }
    }
    Ok(())
}
