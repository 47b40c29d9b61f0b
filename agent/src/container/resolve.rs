//! Paths of a container, resolved on the outside without ever leaving its root.
//!
//! The kernel does it where it can (openat2, 5.6). Our own walk is for older kernels and for making what is missing:
//! it opens one component at a time without following links, reads links itself and keeps every folder it came
//! through open, so that `..` is a step back in that list and never the kernel's `..`. Renames made meanwhile by
//! others cannot lead it out.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

/// As many links as the kernel follows.
const MAX_LINKS: u32 = 40;

/// What is made where a path ends in nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Refuse,
    Folder,
    File,
}

/// What `..` and absolute links mean at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// as in a chroot: the top is the root
    Root,
    /// leaving is an error (`EXDEV`)
    Beneath,
}

/// Opens (`O_PATH`) what `path` names below `top`.
pub(super) fn resolve(top: BorrowedFd<'_>, path: &str, scope: Scope, missing: Missing) -> Result<OwnedFd> {
    let flags = match scope {
        Scope::Root => ResolveFlag::RESOLVE_IN_ROOT,
        Scope::Beneath => ResolveFlag::RESOLVE_BENEATH,
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(flags | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let wanted = if path.is_empty() { "." } else { path };
    match openat2(top, wanted, how) {
        Ok(fd) => Ok(fd),
        // EAGAIN: something was renamed meanwhile, and the kernel would not say whether we left
        Err(Errno::ENOSYS | Errno::EAGAIN | Errno::EPERM) => walk(top, path, scope, missing),
        Err(Errno::ENOENT) if missing != Missing::Refuse => walk(top, path, scope, missing),
        Err(errno) => Err(errno),
    }
}

/// The walk described above.
pub(super) fn walk(top: BorrowedFd<'_>, path: &str, scope: Scope, missing: Missing) -> Result<OwnedFd> {
    let mut way = vec![top.try_clone_to_owned().map_err(|_| Errno::EMFILE)?];
    let mut rest = VecDeque::new();
    let mut links = 0;
    push_components(&mut rest, &mut way, Path::new(path), scope)?;
    while let Some(name) = rest.pop_front() {
        let here = way.last().ok_or(Errno::EINVAL)?;
        if name == ".." {
            if way.len() > 1 {
                way.pop();
            } else if scope == Scope::Beneath {
                return Err(Errno::EXDEV);
            }
            continue;
        }
        let next = open_component(here.as_fd(), &name, rest.is_empty(), missing)?;
        if is_link(next.as_fd())? {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP);
            }
            let target = readlinkat(&next, "")?;
            push_components(&mut rest, &mut way, Path::new(&target), scope)?;
        } else {
            way.push(next);
        }
    }
    way.pop().ok_or(Errno::EINVAL)
}

/// Puts the components of `path` before the rest. An absolute path starts at the top again.
fn push_components(
    rest: &mut VecDeque<OsString>,
    way: &mut Vec<OwnedFd>,
    path: &Path,
    scope: Scope,
) -> Result<()> {
    if path.is_absolute() {
        if scope == Scope::Beneath {
            return Err(Errno::EXDEV);
        }
        way.truncate(1);
    }
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(())
}

/// Opens one component, makes it when it is missing and wanted.
fn open_component(folder: BorrowedFd<'_>, name: &OsStr, last: bool, missing: Missing) -> Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = openat(folder, name, flags, Mode::empty());
    if !matches!(opened, Err(Errno::ENOENT)) || missing == Missing::Refuse {
        return opened;
    }
    let made = if last && missing == Missing::File {
        let create = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        openat(folder, name, create, Mode::from_bits_truncate(0o644)).map(drop)
    } else {
        mkdirat(folder, name, Mode::from_bits_truncate(0o755))
    };
    match made {
        // somebody else was faster
        Ok(()) | Err(Errno::EEXIST) => openat(folder, name, flags, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

pub(super) fn is_folder(fd: BorrowedFd<'_>) -> Result<bool> {
    Ok(kind(fd)? == SFlag::S_IFDIR)
}

fn is_link(fd: BorrowedFd<'_>) -> Result<bool> {
    Ok(kind(fd)? == SFlag::S_IFLNK)
}

/// Type bits of what a descriptor names.
pub(super) fn kind(fd: BorrowedFd<'_>) -> Result<SFlag> {
    Ok(SFlag::from_bits_truncate(fstat(fd)?.st_mode & SFlag::S_IFMT.bits()))
}

/// Opens a path of the host (`O_PATH`, links followed).
pub(super) fn open_host(path: &Path) -> Result<OwnedFd> {
    openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
}

/// Last component of `path` and what comes before it; `None` when it does not end in a name.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let plain = !name.is_empty() && name != "." && name != ".." && !OsStr::new(name).as_bytes().contains(&0);
    plain.then_some((folder, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn inside(fd: &OwnedFd) -> std::path::PathBuf {
        use std::os::fd::AsRawFd;
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
    }

    struct Tree(std::path::PathBuf);
    impl Drop for Tree {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn tree(name: &str) -> (Tree, OwnedFd) {
        let top = std::env::temp_dir().join(format!("podkeep-resolve-{}-{name}", std::process::id()));
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("a/file"), "x").unwrap();
        symlink("/a/b", top.join("absolute")).unwrap();
        symlink("../../../../../../etc", top.join("out")).unwrap();
        symlink("/etc/hostname", top.join("host")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        symlink("a/../a/b/..", top.join("winding")).unwrap();
        let fd = open_host(&top).unwrap();
        (Tree(std::fs::canonicalize(&top).unwrap()), fd)
    }

    /// Both ways, the kernel's and ours, on every case: they must agree.
    fn both(top: &OwnedFd, path: &str, scope: Scope) -> Result<std::path::PathBuf> {
        let ours = walk(top.as_fd(), path, scope, Missing::Refuse);
        let kernels = resolve(top.as_fd(), path, scope, Missing::Refuse);
        let (ours, kernels) = (ours.map(|fd| inside(&fd)), kernels.map(|fd| inside(&fd)));
        assert_eq!(ours, kernels, "{path}");
        ours
    }

    #[test]
    fn walk_agrees_with_the_kernel() {
        let (root, top) = tree("agree");
        assert_eq!(both(&top, "a/b", Scope::Root).unwrap(), root.0.join("a/b"));
        assert_eq!(both(&top, "/a/../../..", Scope::Root).unwrap(), root.0);
        assert_eq!(both(&top, "absolute", Scope::Root).unwrap(), root.0.join("a/b"));
        assert_eq!(both(&top, "winding", Scope::Root).unwrap(), root.0.join("a"));
        assert_eq!(both(&top, "winding/b", Scope::Beneath).unwrap(), root.0.join("a/b"));
        assert_eq!(both(&top, "out", Scope::Root), Err(Errno::ENOENT));
        assert_eq!(both(&top, "host", Scope::Root), Err(Errno::ENOENT));
        assert_eq!(both(&top, "loop", Scope::Root), Err(Errno::ELOOP));
        assert_eq!(both(&top, "a/file/x", Scope::Root), Err(Errno::ENOTDIR));
        for path in ["out", "absolute", "host", "a/../../x", ".."] {
            assert_eq!(both(&top, path, Scope::Beneath), Err(Errno::EXDEV), "{path}");
        }
    }

    #[test]
    fn missing_targets_are_made_inside() {
        let (root, top) = tree("make");
        // through a link that points out of the tree: made inside
        let made = resolve(top.as_fd(), "/out/deep/file", Scope::Root, Missing::File).unwrap();
        assert_eq!(inside(&made), root.0.join("etc/deep/file"));
        assert!(root.0.join("etc/deep/file").is_file());
        let made = resolve(top.as_fd(), "/host", Scope::Root, Missing::Folder).unwrap();
        assert_eq!(inside(&made), root.0.join("etc/hostname"));
        assert!(resolve(top.as_fd(), "out/y", Scope::Beneath, Missing::Folder).is_err());
    }
}
