//! What can go wrong with a control group, and what could not be done but need not stop the caller.

use core::fmt;

use nix::errno::Errno;

/// Everything here names the group or file and the kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// no hierarchy is mounted below the root folder
    NoHierarchy,
    /// a path that is absolute, empty or climbs
    Path { path: String },
    /// a folder could not be made in any hierarchy
    Create { path: String, errno: Errno },
    /// processes sit in a group that has to hand controllers down (v2: "no internal processes")
    Occupied { path: String, processes: usize },
    /// v2: the group is threaded, so it cannot hold processes of its own kind
    Threaded { path: String, kind: String },
    /// the kernel refused a value
    Refused { path: String, file: String, value: String, errno: Errno },
    /// reading failed
    Read { path: String, file: String, errno: Errno },
    /// the group could not be removed: something still lives in it
    Busy { path: String, errno: Errno },
    /// processes were still there when the time was over
    StillAlive { path: String, processes: usize },
    /// watching failed
    Watch { path: String, errno: Errno },
    /// no such group
    Missing { path: String },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHierarchy => {
                write!(
                    f,
                    "no control group hierarchy is mounted: mount one with 'mount -t cgroup2 none /sys/fs/cgroup'"
                )
            }
            Self::Path { path } => write!(f, "'{path}' is no relative path of a control group"),
            Self::Create { path, errno } => write!(f, "cannot make control group '{path}': {}", errno.desc()),
            Self::Occupied { path, processes } => write!(
                f,
                "control group '{path}' holds {processes} processes of its own, so it cannot hand controllers down: \
                 move them to a group below it"
            ),
            Self::Threaded { path, kind } => {
                write!(
                    f,
                    "control group '{path}' is of type '{kind}' and cannot hold processes: choose another root group"
                )
            }
            Self::Refused { path, file, value, errno } => {
                write!(f, "the kernel refused '{value}' for '{path}/{file}': {}", errno.desc())
            }
            Self::Read { path, file, errno } => write!(f, "cannot read '{path}/{file}': {}", errno.desc()),
            Self::Busy { path, errno } => write!(f, "cannot remove control group '{path}': {}", errno.desc()),
            Self::StillAlive { path, processes } => {
                write!(f, "{processes} processes in control group '{path}' are still alive")
            }
            Self::Watch { path, errno } => write!(f, "cannot watch control group '{path}': {}", errno.desc()),
            Self::Missing { path } => write!(f, "there is no control group '{path}'"),
        }
    }
}

impl core::error::Error for Error {}

/// A setting that was asked for and is not in force. The caller decides if it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// name of the setting (`memory limit`, `cpu limit`, ...)
    pub setting: String,
    /// why, in words
    pub reason: String,
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} not in force: {}", self.setting, self.reason)
    }
}
