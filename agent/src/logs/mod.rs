//! Container logs on disk: the form of a record, the files of a log, and reading them back.
//!
//! ```text
//! files ──► chain (all files in order, across rotations) ──► cursor (records, piece by piece) ──► reader (lines) ──► copy
//!                                     └──► tail (where the last N lines begin)
//! ```

mod chain;
mod copy;
mod cursor;
pub mod files;
mod reader;
pub mod record;
mod tail;
pub mod timestamp;

pub use copy::copy;
pub use reader::{Progress, Reader};

use std::fmt;
use std::path::PathBuf;

use nix::errno::Errno;

/// What is wanted of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// go on with what is written later, across rotations
    pub follow: bool,
    /// only the last so many lines; looks into rotated files
    pub tail: Option<u64>,
    /// only lines that begin at or after this Unix time in nanoseconds
    pub since_ns: Option<i64>,
    /// each line begins with its time and a blank
    pub timestamps: bool,
    /// not more than so many bytes
    pub limit_bytes: Option<u64>,
    /// only what was written there
    pub stream: Option<record::Stream>,
}

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogsError {
    /// nothing was logged yet, or it was removed
    Missing {
        path: PathBuf,
    },
    Read {
        path: PathBuf,
        errno: Errno,
    },
    /// whoever reads the output is gone
    Write {
        errno: Errno,
    },
}

impl fmt::Display for LogsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(f, "there is no log '{}'", path.display()),
            Self::Read { path, errno } => write!(f, "cannot read log '{}': {}", path.display(), errno.desc()),
            Self::Write { errno } => write!(f, "cannot write the log on: {}", errno.desc()),
        }
    }
}

impl core::error::Error for LogsError {}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
