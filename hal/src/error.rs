//! What can go wrong when reading the machine: the attempt, the file, and what was found there.

use core::fmt;

/// Longest path kept inside an error; longer ones lose their beginning.
pub const PATH_KEPT: usize = 120;

/// Text of a path inside an error, bounded so that errors need no heap.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorPath(heapless::String<PATH_KEPT>);

impl ErrorPath {
    /// Keeps the last [`PATH_KEPT`] bytes of `path`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let mut start = path.len().saturating_sub(PATH_KEPT);
        while !path.is_char_boundary(start) {
            start = start.saturating_add(1);
        }
        let kept = path.get(start..).unwrap_or_default();
        let mut text = heapless::String::new();
        // cannot fail: `kept` is at most PATH_KEPT bytes
        let pushed = text.push_str(kept);
        debug_assert!(pushed.is_ok());
        Self(text)
    }

    /// The kept text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ErrorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What a caller can branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file does not exist; the kernel or the board does not have the feature.
    Missing,
    /// No permission.
    Denied,
    /// The content is not what the kernel documents.
    Corrupt,
    /// A fixed capacity of this program is exceeded.
    Limit,
    /// Any other error number; trying again may help.
    Retry,
}

/// A failed reading of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HalError {
    /// A file could not be read.
    Read {
        /// File below the root folder.
        path: ErrorPath,
        /// Error number of the kernel, 0 if it gave none.
        errno: i32,
    },
    /// A file was read and says something that cannot be.
    Content {
        /// File below the root folder.
        path: ErrorPath,
        /// What was expected there.
        expected: &'static str,
    },
    /// More of something than this program holds.
    Limit {
        /// Of what.
        what: &'static str,
        /// How many fit.
        limit: usize,
    },
    /// The facts contradict each other.
    Inconsistent {
        /// Which rule does not hold.
        rule: &'static str,
        /// The CPU or node it was seen on.
        id: u32,
    },
}

impl HalError {
    /// The kind a caller acts on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { errno: 2 | 19 | 20, .. } => ErrorKind::Missing,
            Self::Read { errno: 1 | 13, .. } => ErrorKind::Denied,
            Self::Read { .. } => ErrorKind::Retry,
            Self::Content { .. } | Self::Inconsistent { .. } => ErrorKind::Corrupt,
            Self::Limit { .. } => ErrorKind::Limit,
        }
    }
}

impl fmt::Display for HalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, errno } => {
                write!(f, "cannot read \"{}\": error number {errno}", path.as_str())
            }
            Self::Content { path, expected } => {
                write!(f, "\"{}\" does not hold {expected}", path.as_str())
            }
            Self::Limit { what, limit } => write!(f, "more than {limit} {what}: this program holds no more"),
            Self::Inconsistent { rule, id } => write!(f, "the machine contradicts itself at {id}: {rule}"),
        }
    }
}

impl core::error::Error for HalError {}
