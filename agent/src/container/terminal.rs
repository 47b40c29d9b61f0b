//! A pty of the container's own devpts.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::{Gid, Uid, fchown};
use podkeep_hal::linux::sys::{mount as tree, tty};
use rustix::termios::{Winsize, tcsetwinsize};

use super::report::{At, failed};
use super::resolve::{Missing, Scope, open_host, resolve};
use super::spec::{IdMap, ProcessSpec};
use crate::supervisor::proto::Failure;

const DEVPTS: i64 = 0x1cd1;

pub(super) struct Pty {
    /// the controlling end
    pub(super) master: OwnedFd,
    /// the process's end
    pub(super) peer: OwnedFd,
}

/// Opens a new pty. To be called inside the container's root, with the host's ids.
pub(super) fn open_pty(process: &ProcessSpec, map: Option<IdMap>) -> Result<Pty, Failure> {
    let path = "/dev/pts/ptmx";
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let master = open(path, flags, Mode::empty()).at("tty", path)?;
    // an image or a volume may have put anything there
    if fstatfs(&master).at("tty", path)?.filesystem_type() != FsType(DEVPTS as _) {
        return Err(failed("tty", path, Errno::ENODEV));
    }
    let peer = tty::open_peer(master.as_fd()).at("tty", path)?;
    let base = map.map_or(0, |map| map.host_base);
    let (uid, gid) = (process.uid.saturating_add(base), base.saturating_add(5));
    fchown(&peer, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).at("tty", path)?;
    if let Some((rows, columns)) = process.tty_size {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size)
            .map_err(|error| failed("tty size", path, Errno::from_raw(error.raw_os_error())))?;
    }
    Ok(Pty { master, peer })
}

/// Shows the pty as /dev/console.
pub(super) fn bind_console(pty: &Pty) -> Result<(), Failure> {
    let path = "/dev/console";
    let root = open_host(std::path::Path::new("/")).at("tty", path)?;
    let place = resolve(root.as_fd(), path, Scope::Root, Missing::File).at("tty", path)?;
    let copy = tree::clone_tree(pty.peer.as_fd(), false).at("tty", path)?;
    tree::attach(copy.as_fd(), place.as_fd()).at("tty", path)
}
