//! What can go wrong with images, and the word the kubelet has for it.

use std::fmt;
use std::path::{Path, PathBuf};

use podkeep_core::image::PullReason;

/// Why an image could not be loaded, found, unpacked or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// a system call failed; `errno` as of errno(3), 0: none given
    Io {
        op: &'static str,
        path: PathBuf,
        errno: i32,
    },
    /// bytes missing on the file system of `path`
    NoSpace {
        path: PathBuf,
        needed: u64,
        free: u64,
    },
    /// content is not what its digest promises
    DigestMismatch {
        what: &'static str,
        expected: String,
        found: String,
    },
    /// `path` holds no image, or a damaged one
    NotAnImage {
        path: PathBuf,
        why: String,
    },
    /// JSON that cannot be read; line and column count from 1
    Json {
        what: String,
        line: usize,
        column: usize,
        why: String,
    },
    /// a layer entry that would reach outside, or cannot be carried out
    BadEntry {
        entry: String,
        why: &'static str,
    },
    /// damaged tar or compressed stream
    BadStream {
        what: &'static str,
        why: String,
    },
    /// nothing for this CPU
    Platform {
        wanted: String,
        offered: Vec<String>,
    },
    /// several images where one was expected
    Ambiguous {
        path: PathBuf,
        names: Vec<String>,
    },
    /// not in the store
    NotFound {
        name: String,
    },
    /// in use by containers
    InUse {
        name: String,
    },
    /// part of the firmware
    Baked {
        name: String,
    },
    InvalidName {
        name: String,
        why: String,
    },
    /// larger than this program reads into memory
    TooLarge {
        what: String,
        bytes: u64,
        limit: u64,
    },
    Unsupported {
        what: String,
    },
    /// the image's `/etc/passwd` does not know this name
    NoUser {
        user: String,
    },
    /// no connection, or a server that fails; another attempt may do
    Unreachable {
        host: String,
        why: String,
    },
    /// the encrypted connection could not be set up
    Tls {
        host: String,
        why: String,
    },
    /// the registry refuses us; `status` 401 or 403
    Denied {
        name: String,
        status: u16,
        why: String,
    },
    /// the registry does not have it
    NotInRegistry {
        name: String,
    },
    /// too many requests; seconds to wait, where the registry says
    RateLimited {
        host: String,
        retry_after: Option<u64>,
    },
    /// an answer that is not one of a registry
    Protocol {
        host: String,
        why: String,
    },
    /// nobody wants it any more
    Cancelled,
    /// an entry of the store cannot be trusted; `path` was set aside or must be
    Corrupt {
        path: PathBuf,
        why: String,
    },
}

impl ImageError {
    /// From a failed call of nix.
    pub(crate) fn errno(op: &'static str, path: impl Into<PathBuf>, errno: nix::errno::Errno) -> Self {
        let path = path.into();
        match errno {
            nix::errno::Errno::ENOSPC | nix::errno::Errno::EDQUOT => no_space(&path, 0),
            other => Self::Io { op, path, errno: other as i32 },
        }
    }

    /// From a failed call of the standard library.
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::errno(op, path, nix::errno::Errno::from_raw(code)),
            None => Self::BadStream { what: op, why: error.to_string() },
        }
    }

    pub(crate) fn json(what: impl Into<String>, error: &serde_json::Error) -> Self {
        let why = error.to_string();
        // serde_json appends the place, which has its own fields here
        let why = why.split(" at line ").next().unwrap_or_default().to_owned();
        Self::Json { what: what.into(), line: error.line(), column: error.column(), why }
    }

    /// The waiting reason of a container that needs this image.
    #[must_use]
    pub const fn reason(&self) -> PullReason {
        match self {
            Self::InvalidName { .. } => PullReason::InvalidImageName,
            Self::Corrupt { .. } => PullReason::ImageInspectError,
            Self::Unreachable { .. } => PullReason::RegistryUnavailable,
            _ => PullReason::ErrImagePull,
        }
    }

    /// Whether the same attempt may succeed later without anybody changing anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Io { .. } | Self::NoSpace { .. } | Self::Unreachable { .. } | Self::RateLimited { .. }
        )
    }
}

/// The typed answer to a full disk.
pub(crate) fn no_space(path: &Path, needed: u64) -> ImageError {
    ImageError::NoSpace { path: path.to_owned(), needed, free: free_bytes(path).unwrap_or(0) }
}

/// Bytes that this process may still write below `path`.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    #[allow(clippy::useless_conversion, reason = "these types are 32 bits wide on 32-bit targets")]
    let bytes = u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size()));
    Some(bytes)
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, path, errno } => {
                write!(
                    f,
                    "cannot {op} \"{}\": {}",
                    path.display(),
                    nix::errno::Errno::from_raw(*errno).desc()
                )
            }
            Self::NoSpace { path, needed, free } => write!(
                f,
                "not enough space below \"{}\": {needed} bytes needed, {free} free; remove images with 'podkeep image rm'",
                path.display()
            ),
            Self::DigestMismatch { what, expected, found } => {
                write!(f, "{what} is damaged: expected {expected}, found {found}; fetch or build it again")
            }
            Self::NotAnImage { path, why } => write!(
                f,
                "\"{}\" is not an image: {why}; an OCI layout folder, an OCI archive or a docker-save archive is needed",
                path.display()
            ),
            Self::Json { what, line, column, why } => {
                write!(f, "{what}: line {line}, column {column}: {why}")
            }
            Self::BadEntry { entry, why } => write!(f, "layer entry \"{entry}\" refused: {why}"),
            Self::BadStream { what, why } => write!(f, "damaged {what}: {why}"),
            Self::Platform { wanted, offered } => {
                write!(f, "no image for {wanted}; offered are {}", offered.join(", "))
            }
            Self::Ambiguous { path, names } => write!(
                f,
                "\"{}\" holds several images, name one of them: {}",
                path.display(),
                names.join(", ")
            ),
            Self::NotFound { name } => {
                write!(f, "image \"{name}\" is not in the store; see 'podkeep image ls'")
            }
            Self::InUse { name } => {
                write!(f, "image \"{name}\" is in use by a container; remove the pod first")
            }
            Self::Baked { name } => {
                write!(f, "image \"{name}\" is on a read-only partition and cannot be removed")
            }
            Self::InvalidName { why, .. } => f.write_str(why),
            Self::TooLarge { what, bytes, limit } => {
                write!(f, "{what} has {bytes} bytes, at most {limit} are read")
            }
            Self::Unsupported { what } => write!(f, "{what} is not supported"),
            Self::NoUser { user } => write!(
                f,
                "user \"{user}\" is not in /etc/passwd of the image; set securityContext.runAsUser to a number"
            ),
            Self::Unreachable { host, why } => write!(f, "registry \"{host}\" cannot be reached: {why}"),
            Self::Tls { host, why } => write!(f, "no encrypted connection to registry \"{host}\": {why}"),
            Self::Denied { name, status, why } => write!(
                f,
                "registry refuses access to \"{name}\" (status {status}): {why}; check the name and the credentials"
            ),
            Self::NotInRegistry { name } => write!(f, "registry has no image \"{name}\""),
            Self::RateLimited { host, retry_after: Some(seconds) } => {
                write!(f, "registry \"{host}\" allows no more requests for {seconds} seconds")
            }
            Self::RateLimited { host, retry_after: None } => {
                write!(f, "registry \"{host}\" allows no more requests for now")
            }
            Self::Protocol { host, why } => write!(f, "registry \"{host}\" answers wrongly: {why}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Corrupt { path, why } => write!(f, "\"{}\" cannot be trusted: {why}", path.display()),
        }
    }
}

impl std::error::Error for ImageError {}
