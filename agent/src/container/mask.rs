//! Paths a container shall not see, or not write.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use podkeep_hal::linux::sys::mount as tree;

use super::mounts::{Detached, Target, tmpfs};
use super::report::At;
use super::resolve::{Missing, Scope, kind, open_host, resolve};
use crate::supervisor::proto::Failure;

/// `None` when there is nothing at `path`: then there is nothing to hide.
fn existing(target: &Target<'_>, path: &str) -> Result<Option<OwnedFd>, Failure> {
    match resolve(target.root, path, Scope::Root, Missing::Refuse) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno).at("masked path", path),
    }
}

/// Files become the host's /dev/null, folders an empty read-only one. The container's own /dev/null is not trusted:
/// an image or volume could have put something else there.
pub(super) fn hide(target: &Target<'_>, paths: &[String]) -> Result<(), Failure> {
    let null = open_host(Path::new("/dev/null")).at("open", "/dev/null")?;
    // one empty file system for all: copies of the first, once that is attached
    let mut empty = None;
    for path in paths {
        let Some(place) = existing(target, path)? else { continue };
        let (cover, first) = if kind(place.as_fd()).at("masked path", path)? == SFlag::S_IFDIR {
            match &empty {
                Some(attached) => (clone_of(attached, path)?, false),
                None => (tmpfs(target, 4096, 0o555, tree::ATTR_RDONLY).at("masked path", path)?, true),
            }
        } else {
            (clone_of(&null, path)?, false)
        };
        let cover = Detached { fd: cover, attr: tree::ATTR_RDONLY, recursive_attr: false, propagation: 0 };
        cover.attach(place.as_fd()).at("masked path", path)?;
        if first {
            empty = Some(cover.fd);
        }
    }
    Ok(())
}

fn clone_of(fd: &OwnedFd, path: &str) -> Result<OwnedFd, Failure> {
    tree::clone_tree(fd.as_fd(), false).at("masked path", path)
}

/// Binds each path on itself, read-only with all below it.
pub(super) fn protect(target: &Target<'_>, paths: &[String]) -> Result<(), Failure> {
    for path in paths {
        let Some(place) = existing(target, path)? else { continue };
        let fd = tree::clone_tree(place.as_fd(), true).at("read-only path", path)?;
        let cover = Detached { fd, attr: tree::ATTR_RDONLY, recursive_attr: false, propagation: 0 };
        cover.attach(place.as_fd()).at("read-only path", path)?;
    }
    Ok(())
}

/// Opens the host's /dev/null for reading and writing.
pub(super) fn open_null() -> Result<OwnedFd, Failure> {
    nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).at("open", "/dev/null")
}
