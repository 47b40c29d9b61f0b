//! Why a volume is not ready.

use core::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use podkeep_core::expand::downward::FieldError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// a name that cannot be a folder
    Name { volume: String },
    /// a kind of volume that needs an API server or a driver
    Unsupported { volume: String },
    /// hostPath: relative, or it climbs
    HostPath { volume: String, path: String },
    /// hostPath: nothing is there
    Absent { volume: String, path: PathBuf, wanted: String, watch: PathBuf },
    /// hostPath: something else is there
    WrongType { volume: String, path: PathBuf, wanted: String, found: &'static str },
    /// hostPath or emptyDir: a type or medium that does not exist
    Value { volume: String, field: &'static str, found: String, allowed: &'static str },
    /// an object that is not optional is not served here
    NoObject { volume: String, kind: &'static str, name: String },
    /// the object has no such key
    NoKey { volume: String, kind: &'static str, name: String, key: String },
    /// a file name that leaves the volume
    FileName { volume: String, path: String },
    /// the downward API has no such field
    Field { volume: String, error: FieldError },
    /// the container of a resource field does not exist
    NoContainer { volume: String, container: String },
    /// huge pages of no or of several sizes are asked for
    HugePageSize { volume: String },
    /// the kernel said no
    System { volume: String, step: &'static str, path: PathBuf, errno: Errno },
}

impl VolumeError {
    /// The waiting reason of the containers.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "VolumeNotSupported",
            _ => "FailedMount",
        }
    }

    /// A name whose folder is there: when something appears under it, trying again can help.
    #[must_use]
    pub fn retry_on(&self) -> Option<&PathBuf> {
        match self {
            Self::Absent { watch, .. } => Some(watch),
            Self::WrongType { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Something stands under the name of [`Self::retry_on`] already, and it is the wrong thing.
    #[must_use]
    pub fn is_wrong_type(&self) -> bool {
        matches!(self, Self::WrongType { .. })
    }

    pub(super) fn system(
        volume: &str,
        step: &'static str,
        path: &Path,
    ) -> impl FnOnce(Errno) -> Self + use<> {
        let (volume, path) = (volume.to_owned(), path.to_owned());
        move |errno| Self::System { volume, step, path, errno }
    }
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { volume } => write!(f, "'{volume}' is no name for a volume"),
            Self::Unsupported { volume } => {
                write!(f, "volume '{volume}' is of a kind that needs an API server or a storage driver")
            }
            Self::HostPath { volume, path } => {
                write!(f, "volume '{volume}': host path '{path}' must be absolute and must not contain '..'")
            }
            Self::Absent { volume, path, wanted, .. } => {
                write!(
                    f,
                    "volume '{volume}': waiting for {wanted} '{}', which does not exist",
                    path.display()
                )
            }
            Self::WrongType { volume, path, wanted, found } => {
                write!(f, "volume '{volume}': '{}' is {found}, wanted is {wanted}", path.display())
            }
            Self::Value { volume, field, found, allowed } => {
                write!(f, "volume '{volume}': {field} '{found}' is not one of {allowed}")
            }
            Self::NoObject { volume, kind, name } => {
                write!(f, "volume '{volume}': {kind} '{name}' is not known on this node")
            }
            Self::NoKey { volume, kind, name, key } => {
                write!(f, "volume '{volume}': {kind} '{name}' has no key '{key}'")
            }
            Self::FileName { volume, path } => {
                write!(f, "volume '{volume}': '{path}' is no file name inside the volume")
            }
            Self::Field { volume, error } => write!(f, "volume '{volume}': {error}"),
            Self::NoContainer { volume, container } => {
                write!(f, "volume '{volume}': there is no container '{container}'")
            }
            Self::HugePageSize { volume } => write!(
                f,
                "volume '{volume}': medium 'HugePages' needs containers that ask for huge pages of exactly one size; name \
                 the size as in 'HugePages-2Mi'"
            ),
            Self::System { volume, step, path, errno } => {
                write!(f, "volume '{volume}': cannot {step} '{}': {}", path.display(), errno.desc())
            }
        }
    }
}

impl core::error::Error for VolumeError {}

/// The error number inside an I/O error.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
