//! The supervisor's own program, out of the reach of containers.
//!
//! A process that joins a container can be seen there through /proc/PID/exe; whoever opens that for writing once the
//! program is no longer busy would overwrite it on the host. So the supervisor runs from a read-only mount of its
//! program that is attached nowhere, or else from a sealed copy in memory.

use std::ffi::{CString, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::unistd::execveat;
use podkeep_hal::linux::sys::mount as tree;

use super::resolve::open_host;

/// Says that the second run is on. The value is our pid, which an exec keeps: a marker that was inherited from
/// someone else means nothing.
const MARKER: &str = "PODKEEP_READONLY_EXE";

const EXE: &str = "/proc/self/exe";

pub(super) fn reexec_readonly() -> Option<String> {
    let own = std::process::id().to_string();
    let marker = std::env::var(MARKER).ok();
    if marker.as_deref() == Some(own.as_str()) {
        // children start without the right to be traced by those who share ids with us
        let _set = prctl::set_dumpable(false);
        return None;
    }
    let first = match readonly_mount().and_then(|program| execute(&program, &own)) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    let second = match sealed_copy().and_then(|program| execute(&program, &own)) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    let _set = prctl::set_dumpable(false);
    Some(format!(
        "the supervisor's program stays writable for privileged containers: read-only mount: {}, sealed copy: {}",
        first.desc(),
        second.desc()
    ))
}

fn readonly_mount() -> nix::Result<OwnedFd> {
    let program = tree::clone_tree(open_host(Path::new(EXE))?.as_fd(), false)?;
    tree::set_attr(program.as_fd(), false, tree::ATTR_RDONLY, tree::PRIVATE)?;
    Ok(program)
}

fn sealed_copy() -> nix::Result<OwnedFd> {
    let io = |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    let fd = memfd_create(c"podkeep", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let mut copy = std::fs::File::from(fd);
    let mut own = std::fs::File::open(EXE).map_err(io)?;
    std::io::copy(&mut own, &mut copy).map_err(io)?;
    copy.flush().map_err(io)?;
    let seals =
        SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL;
    fcntl(&copy, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(copy.into())
}

fn execute(program: &OwnedFd, marker: &str) -> nix::Result<core::convert::Infallible> {
    let text = |text: OsString| CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL);
    let args = std::env::args_os().map(text).collect::<nix::Result<Vec<_>>>()?;
    let variables = std::env::vars_os().filter(|(name, _)| name != MARKER).map(|(name, value)| {
        let mut entry = name;
        entry.push("=");
        entry.push(value);
        entry
    });
    let env = variables
        .chain([OsString::from(format!("{MARKER}={marker}"))])
        .map(text)
        .collect::<nix::Result<Vec<_>>>()?;
    execveat(program, c"", &args, &env, AtFlags::AT_EMPTY_PATH)
}
