//! Small files below a root: the real one, a folder that stands for it, or a snapshot in memory.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::PathBuf,
    string::{String, ToString},
    vec::Vec,
};

use crate::{
    cpu_set::CpuSet,
    error::{ErrorPath, HalError},
};

/// Most bytes read of one file; kernel files of this kind are far smaller.
pub const READ_LIMIT: u64 = 1 << 20;

/// Reads files by their absolute path below the root. Never writes.
pub trait Files {
    /// The content of a file, at most [`READ_LIMIT`] bytes.
    ///
    /// # Errors
    /// The file does not exist or cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, HalError>;

    /// Names in a folder, sorted; empty if there is no such folder.
    fn names(&self, folder: &str) -> Vec<String>;

    /// Bytes of a memory page, if these are the files of the running machine.
    fn page_bytes(&self) -> Option<u64> {
        None
    }

    /// The content as text without blanks and zero bytes at its end; none if it cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        let bytes = self.read(path).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim_end_matches(['\0', '\n', ' ', '\t']).trim_start().to_string())
    }

    /// A whole number; none if there is no such file or it holds something else.
    fn number<T: core::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// A CPU list; none if there is no such file or it holds something else.
    fn cpus(&self, path: &str) -> Option<CpuSet> {
        CpuSet::parse(&self.text(path)?).ok()
    }

    /// A CPU list that has to be there.
    ///
    /// # Errors
    /// There is no such file, or it is no CPU list this program has room for.
    fn required_cpus(&self, path: &str) -> Result<CpuSet, HalError> {
        let bytes = self.read(path)?;
        let text = String::from_utf8_lossy(&bytes);
        let content =
            HalError::Content { path: ErrorPath::new(path), expected: "a list of CPUs from 0 to 1023" };
        CpuSet::parse(text.trim()).map_err(|_| content)
    }
}

/// Files of the running machine, or of a folder laid out like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    folder: PathBuf,
}

impl Root {
    /// Files below `folder`; `/` is the running machine.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Is this the running machine?
    #[must_use]
    pub fn is_running_machine(&self) -> bool {
        self.folder.as_os_str() == "/"
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }
}

impl Files for Root {
    fn read(&self, path: &str) -> Result<Vec<u8>, HalError> {
        let failed = |error: std::io::Error| HalError::Read {
            path: ErrorPath::new(path),
            errno: error.raw_os_error().unwrap_or(if error.kind() == ErrorKind::NotFound { 2 } else { 0 }),
        };
        let mut bytes = Vec::new();
        File::open(self.path(path))
            .map_err(failed)?
            .take(READ_LIMIT)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        Ok(bytes)
    }

    #[cfg(feature = "linux")]
    fn page_bytes(&self) -> Option<u64> {
        let answer = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten()?;
        self.is_running_machine().then(|| u64::try_from(answer).ok()).flatten()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }
}
