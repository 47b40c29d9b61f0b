//! Joining cgroups that the agent made and limited beforehand.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};

use super::report::At;
use crate::supervisor::proto::Failure;

/// Moves this process into each folder's cgroup.
pub(super) fn join(folders: &[PathBuf]) -> Result<(), Failure> {
    for folder in folders {
        // 0 is the writer itself, whatever its pid namespace
        std::fs::write(folder.join("cgroup.procs"), "0").at("cgroup", folder)?;
    }
    Ok(())
}

/// The one v2 folder to be born in, and the rest, which are to be joined. Being born in a group costs less than a move.
pub(super) fn split(folders: &[PathBuf]) -> (Option<OwnedFd>, Vec<PathBuf>) {
    let mut birth = None;
    let mut rest = Vec::new();
    for folder in folders {
        match File::open(folder) {
            Ok(file)
                if birth.is_none()
                    && fstatfs(&file).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC) =>
            {
                birth = Some(OwnedFd::from(file));
            }
            _ => rest.push(folder.clone()),
        }
    }
    (birth, rest)
}
