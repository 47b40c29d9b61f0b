//! A container's standard streams. Output runs through named pipes that the container holds open for reading, too: when
//! the supervisor dies, writing just blocks (no `EPIPE`, no `SIGPIPE`) until the next one opens the pipes by path.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::container::spec::ContainerSpec;

/// Names of the pipes below a container's folder.
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
pub(super) const STDIN: &str = "stdin";

/// Both sides of a new container's streams.
#[derive(Debug)]
pub(super) struct Pipes {
    /// for the container
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// for the supervisor: reading ends of stdout and stderr, non-blocking
    pub out: [OwnedFd; 2],
    /// keeps stdin open while nobody is attached
    pub stdin_keeper: Option<OwnedFd>,
}

/// Makes the pipes of a container in its folder and opens both sides. (The start gives them to the user its program runs
/// as, so that it may open `/dev/stdout` again.)
///
/// # Errors
/// what the file system says
pub(super) fn create(folder: &Path, spec: &ContainerSpec) -> io::Result<Pipes> {
    let make =
        |name: &str| mkfifo(&folder.join(name), Mode::S_IRUSR | Mode::S_IWUSR).map_err(io::Error::from);
    make(STDOUT)?;
    make(STDERR)?;
    // the reading ends come first: from then on nothing that is written can be lost
    let out = [reader(folder, STDOUT)?, reader(folder, STDERR)?];
    let (mut stdin, mut stdin_keeper) = (None, None);
    if spec.stdin {
        make(STDIN)?;
        stdin_keeper = Some(open(folder, STDIN, true, true, true)?);
        // with `stdinOnce` the program must see the end of input, so it may not hold the writing end itself
        stdin = Some(open(folder, STDIN, true, !spec.stdin_once, false)?);
    }
    Ok(Pipes {
        stdin,
        stdout: open(folder, STDOUT, true, true, false)?,
        stderr: open(folder, STDERR, true, true, false)?,
        out,
        stdin_keeper,
    })
}

/// The reading end of an output pipe.
///
/// # Errors
/// `NotFound` when there is no such pipe
pub(super) fn reader(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    open(folder, name, true, false, true)
}

/// What keeps stdin open while nobody is attached.
///
/// # Errors
/// `NotFound` when there is no such pipe
pub(super) fn stdin_keeper(folder: &Path) -> io::Result<OwnedFd> {
    open(folder, STDIN, true, true, true)
}

/// A writing end for a client; blocking, as programs expect.
///
/// # Errors
/// `ENXIO` when the program has closed its stdin
pub(super) fn stdin_writer(folder: &Path) -> io::Result<OwnedFd> {
    let writer = open(folder, STDIN, false, true, true)?;
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(writer)
}

fn open(folder: &Path, name: &str, read: bool, write: bool, nonblocking: bool) -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW | if nonblocking { libc::O_NONBLOCK } else { 0 };
    let file: File =
        OpenOptions::new().read(read).write(write).custom_flags(flags).open(folder.join(name))?;
    Ok(file.into())
}

/// Makes reading from `fd` non-blocking.
///
/// # Errors
/// `EBADF` only
pub(super) fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(fd.as_fd(), FcntlArg::F_GETFL)?);
    fcntl(fd.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
