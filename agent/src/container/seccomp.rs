//! System call filters: RuntimeDefault and Localhost profiles as classic BPF programs in `<run-dir>/seccomp`.
//!
//! A program depends on the profile's text, the calling convention and the capabilities a container may have, so its
//! name is a hash of these: it is made once and then found by one look at the folder.

use core::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use podkeep_hal::linux::store::{Store, StoreError};

mod default;
mod profile;
mod program;
mod table;
#[cfg(test)]
mod tests;

use table::Arch;

/// Longest profile that is read. Those that ship with engines have 20 KiB.
const PROFILE_MAX: u64 = 1 << 20;
/// Raised when the same profile compiles to another program than before.
const FORMAT: u32 = 1;

/// Which filter a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    Unconfined,
    RuntimeDefault,
    /// path of a profile, relative to the folder of profiles
    Localhost(String),
}

/// What went wrong, with the field of the profile where there is one.
#[derive(Debug)]
pub enum SeccompError {
    /// the profile's path is absolute, empty, climbs or leads out by a link
    Path {
        path: String,
    },
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    TooLarge {
        path: PathBuf,
    },
    Syntax {
        line: usize,
        column: usize,
        message: String,
    },
    Value {
        field: String,
        found: String,
        allowed: &'static str,
    },
    /// the kernel takes 4096 instructions
    TooLong {
        instructions: usize,
    },
    Save(StoreError),
}

impl fmt::Display for SeccompError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { path } => {
                write!(f, "seccomp profile '{path}' is no relative path below the folder of profiles")
            }
            Self::Read { path, source } => {
                write!(f, "cannot read seccomp profile '{}': {source}", path.display())
            }
            Self::TooLarge { path } => {
                write!(f, "seccomp profile '{}' has more than {PROFILE_MAX} bytes", path.display())
            }
            Self::Syntax { line, column, message } => {
                write!(f, "seccomp profile, line {line}, column {column}: {message}")
            }
            Self::Value { field, found, allowed } => {
                write!(f, "seccomp profile, {field}: found '{found}', allowed is {allowed}")
            }
            Self::TooLong { instructions } => write!(
                f,
                "seccomp profile needs {instructions} instructions, the kernel takes {}",
                program::MAX_INSTRUCTIONS
            ),
            Self::Save(e) => write!(f, "seccomp program: {e}"),
        }
    }
}

impl core::error::Error for SeccompError {}

/// The folder of compiled programs and the folder of profiles.
#[derive(Debug)]
pub struct Filters {
    programs: Store,
    profiles: PathBuf,
    kernel: (u32, u32),
}

impl Filters {
    /// `programs`: `<run-dir>/seccomp`. `profiles`: where Localhost profiles lie. `kernel`: its version.
    ///
    /// # Errors
    /// When the folder of programs cannot be made.
    pub fn open(programs: &Path, profiles: &Path, kernel: (u32, u32)) -> Result<Self, StoreError> {
        Ok(Self { programs: Store::open(programs, false)?, profiles: profiles.to_owned(), kernel })
    }

    /// File with the program for a container whose capabilities are at the most `bounding` (bit mask); `None` when it is
    /// not confined.
    ///
    /// # Errors
    /// A bad profile, or the program cannot be saved.
    pub fn program(&self, filter: &Filter, bounding: u64) -> Result<Option<PathBuf>, SeccompError> {
        match filter {
            Filter::Unconfined => Ok(None),
            Filter::RuntimeDefault => {
                let relevant = default::relevant(bounding);
                self.cached(b"", relevant, || Ok(default_program(Arch::native(), relevant))).map(Some)
            }
            Filter::Localhost(path) => {
                let text = self.read(path)?;
                self.cached(&text, bounding, || profile_program(&text, Arch::native(), bounding, self.kernel))
                    .map(Some)
            }
        }
    }

    fn cached(
        &self,
        text: &[u8],
        caps: u64,
        make: impl FnOnce() -> Result<Vec<u8>, SeccompError>,
    ) -> Result<PathBuf, SeccompError> {
        let (major, minor) = self.kernel;
        let inputs =
            format!("{FORMAT} {} {caps:x} {major}.{minor} {}\n", env!("CARGO_PKG_VERSION"), text.len());
        let name = format!("{:032x}.bpf", hash(&[inputs.as_bytes(), text]));
        let path = self.programs.path().join(&name);
        // written whole or not at all, so being there and having instructions is enough
        let whole = std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() > 0 && m.len() % 8 == 0);
        if !whole {
            self.programs.put(&name, &make()?).map_err(SeccompError::Save)?;
        }
        Ok(path)
    }

    /// The profile's text. Links inside the folder are followed, out of it they are refused.
    fn read(&self, path: &str) -> Result<Vec<u8>, SeccompError> {
        let bad = || SeccompError::Path { path: path.to_owned() };
        let relative = Path::new(path);
        let plain = relative.components().all(|c| matches!(c, Component::Normal(_)));
        if path.is_empty() || !plain {
            return Err(bad());
        }
        let full = self.profiles.join(relative);
        let failed = |source| SeccompError::Read { path: full.clone(), source };
        let real = full.canonicalize().map_err(failed)?;
        if !real.starts_with(self.profiles.canonicalize().map_err(failed)?) {
            return Err(bad());
        }
        let mut text = Vec::new();
        let file = std::fs::File::open(&real).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        }
        file.take(PROFILE_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > PROFILE_MAX {
            return Err(SeccompError::TooLarge { path: full });
        }
        Ok(text)
    }
}

fn default_program(native: Arch, bounding: u64) -> Vec<u8> {
    let arches = [Some(native), native.compatible()];
    let sections: Vec<_> =
        arches.into_iter().flatten().map(|arch| default::section(arch, bounding)).collect();
    program::bytes(&program::assemble(&sections))
}

fn profile_program(
    text: &[u8],
    native: Arch,
    bounding: u64,
    kernel: (u32, u32),
) -> Result<Vec<u8>, SeccompError> {
    let sections = profile::parse(text)?.sections(native, &profile::Facts { bounding, kernel })?;
    let code = program::assemble(&sections);
    if code.len() > program::MAX_INSTRUCTIONS {
        return Err(SeccompError::TooLong { instructions: code.len() });
    }
    Ok(program::bytes(&code))
}

/// FNV-1a with 128 bits: names files, resists accidents only. The folder belongs to the agent.
fn hash(parts: &[&[u8]]) -> u128 {
    let start: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let prime: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    parts.iter().flat_map(|p| p.iter()).fold(start, |h, b| (h ^ u128::from(*b)).wrapping_mul(prime))
}
