//! Small durable files: each write whole or absent, each read doubted.
//!
//! [`Store`] is one folder. A value is written to a temporary file beside its place, synced, renamed over the old one,
//! and the folder is synced: after a power cut the name holds the old or the new value, never a mixture. On a tmpfs
//! nothing survives a power cut anyway, so there the syncs are left out. [`Envelope`] tells whole content from damaged.

use core::fmt;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, fsync, read, unlinkat, write};

mod envelope;
pub use envelope::{Damage, Envelope};

/// Longest name of a value.
const NAME_MAX: usize = 200;
/// Damaged files that are kept of one name.
const KEPT: usize = 2;

/// Makes temporary names unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// What went wrong, with the file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// a name that is empty, too long, hidden or not a plain file name
    Name { name: String },
    /// no space or quota left; works again by itself when there is
    Full { path: PathBuf, errno: Errno },
    /// the file system is read-only
    ReadOnly { path: PathBuf },
    /// more than the reader is willing to take
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    /// a folder, link or device stands where the file should be: set it aside
    NotAFile { path: PathBuf },
    /// anything else
    Io { op: &'static str, path: PathBuf, errno: Errno },
}

impl StoreError {
    fn from(op: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::ENOSPC | Errno::EDQUOT => Self::Full { path, errno },
            Errno::EROFS => Self::ReadOnly { path },
            Errno::EISDIR | Errno::ENOTDIR | Errno::ELOOP | Errno::ENXIO => Self::NotAFile { path },
            _ => Self::Io { op, path, errno },
        }
    }

    /// True when the same call can succeed later without anybody changing a file.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::ReadOnly { .. })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name } => write!(f, "'{name}' is no name for a state file"),
            Self::Full { path, errno: Errno::EDQUOT } => {
                write!(f, "cannot save state: quota reached for '{}'", path.display())
            }
            Self::Full { path, .. } => write!(f, "cannot save state: no space for '{}'", path.display()),
            Self::ReadOnly { path } => write!(f, "cannot save state: '{}' is read-only", path.display()),
            Self::TooLarge { path, bytes, limit } => {
                write!(f, "'{}' has {bytes} bytes, at most {limit} are read", path.display())
            }
            Self::NotAFile { path } => write!(f, "'{}' is not a plain file", path.display()),
            Self::Io { op, path, errno } => write!(f, "cannot {op} '{}': {}", path.display(), errno.desc()),
        }
    }
}

impl core::error::Error for StoreError {}

/// A folder of values by name. One writer at a time.
#[derive(Debug)]
pub struct Store {
    dir: OwnedFd,
    path: PathBuf,
    durable: bool,
}

impl Store {
    /// Makes the folder (0700) and removes what an interrupted write left. `durable`: sync everything; false for a tmpfs.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(path: &Path, durable: bool) -> Result<Self, StoreError> {
        let failed = |op| move |errno| StoreError::from(op, path.to_owned(), errno);
        if !path.is_dir() {
            use std::os::unix::fs::DirBuilderExt;
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| failed("make")(Errno::from_raw(e.raw_os_error().unwrap_or(0))))?;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = open(path, flags, Mode::empty()).map_err(failed("open"))?;
        let store = Self { dir, path: path.to_owned(), durable };
        for name in store.names()?.iter().filter(|n| n.starts_with('.') && n.ends_with(".tmp")) {
            // on a read-only folder it stays, which hurts nobody
            unlinkat(&store.dir, name.as_str(), UnlinkatFlags::NoRemoveDir).ok();
        }
        Ok(store)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, op: &'static str, name: &str) -> impl Fn(Errno) -> StoreError {
        let path = self.path.join(name);
        move |errno| StoreError::from(op, path.clone(), errno)
    }

    /// Writes the value whole or leaves the old one. What is no file under this name is set aside.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::ReadOnly`], ...; the old value is untouched then.
    pub fn put(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        check(name)?;
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{name}.{}.{unique}.tmp", std::process::id());
        let done = self.put_by(&temporary, name, value);
        if done.is_err() {
            unlinkat(&self.dir, temporary.as_str(), UnlinkatFlags::NoRemoveDir).ok();
        }
        done
    }

    fn put_by(&self, temporary: &str, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o600);
        let file = openat(&self.dir, temporary, flags, mode).map_err(self.error("make", name))?;
        write_all(&file, value).map_err(self.error("write", name))?;
        if self.durable {
            fsync(&file).map_err(self.error("sync", name))?;
        }
        drop(file);
        match renameat(&self.dir, temporary, &self.dir, name) {
            Err(Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {
                self.quarantine(name)?;
                renameat(&self.dir, temporary, &self.dir, name).map_err(self.error("rename", name))?;
            }
            done => done.map_err(self.error("rename", name))?,
        }
        self.sync_folder(name)
    }

    fn sync_folder(&self, name: &str) -> Result<(), StoreError> {
        if self.durable { fsync(&self.dir).map_err(self.error("sync the folder of", name)) } else { Ok(()) }
    }

    /// The value; `None` when there is none. Links are not followed, and nothing but a plain file is opened.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] above `limit` bytes, [`StoreError::NotAFile`], ...
    pub fn get(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, StoreError> {
        check(name)?;
        // O_NONBLOCK: a FIFO must not hold us
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(self.error("open", name)(errno)),
        };
        let stat = fstat(&file).map_err(self.error("look at", name))?;
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        if kind != SFlag::S_IFREG {
            return Err(StoreError::NotAFile { path: self.path.join(name) });
        }
        let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let too_large = |bytes| StoreError::TooLarge { path: self.path.join(name), bytes, limit };
        if bytes > limit {
            return Err(too_large(bytes));
        }
        let value = read_up_to(&file, limit).map_err(self.error("read", name))?;
        value.map(Some).ok_or_else(|| too_large(limit.saturating_add(1)))
    }

    /// Names of all values, sorted; not those set aside.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.names()?;
        names.retain(|n| check(n).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let failed = self.error("list", "");
        let mut dir = Dir::openat(&self.dir, ".", flags, Mode::empty()).map_err(&failed)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.map_err(&failed)?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }

    /// Removes a value; true when there was one.
    ///
    /// # Errors
    /// The file system's.
    pub fn delete(&self, name: &str) -> Result<bool, StoreError> {
        check(name)?;
        match unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => self.sync_folder(name).map(|()| true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self.error("remove", name)(errno)),
        }
    }

    /// Sets a damaged file (or whatever stands there: folder, dangling link, a file nobody may read) aside as
    /// `name.corrupt.<n>`, keeps the last two, and answers the new path. `None`: nothing was there.
    ///
    /// # Errors
    /// The file system's.
    pub fn quarantine(&self, name: &str) -> Result<Option<PathBuf>, StoreError> {
        check(name)?;
        let mut aside = self.set_aside(name)?;
        let next = aside.last().map_or(0, |(n, _)| n.saturating_add(1));
        let new = format!("{name}.corrupt.{next}");
        match renameat(&self.dir, name, &self.dir, new.as_str()) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(self.error("set aside", name)(errno)),
        }
        let surplus = (aside.len() + 1).saturating_sub(KEPT);
        for (_, old) in aside.drain(..surplus.min(aside.len())) {
            self.discard(&old);
        }
        self.sync_folder(name)?;
        Ok(Some(self.path.join(new)))
    }

    /// Numbers and names of what was set aside before, the oldest first.
    fn set_aside(&self, name: &str) -> Result<Vec<(u64, String)>, StoreError> {
        let number = |full: &str| full.strip_prefix(name)?.strip_prefix(".corrupt.")?.parse().ok();
        let mut found: Vec<(u64, String)> =
            self.names()?.into_iter().filter_map(|full| Some((number(&full)?, full))).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// A file, a link or an empty folder; a folder with content is left for a person to look at.
    fn discard(&self, name: &str) {
        if unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir).is_err() {
            unlinkat(&self.dir, name, UnlinkatFlags::RemoveDir).ok();
        }
    }

    /// Can a value be saved now? Writes, syncs and removes a page, so it tells a full or read-only folder.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn recheck(&self) -> Result<(), StoreError> {
        self.put("recheck", &[0x55; 4096])?;
        self.delete("recheck").map(drop)
    }
}

/// Plain, visible names that no temporary file and nothing set aside can have.
fn check(name: &str) -> Result<(), StoreError> {
    let bad = name.is_empty()
        || name.len() > NAME_MAX
        || name.starts_with('.')
        || name.contains(['/', '\0'])
        || name.contains(".corrupt.");
    if bad { Err(StoreError::Name { name: name.to_owned() }) } else { Ok(()) }
}

fn write_all(file: impl AsFd, mut rest: &[u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        match write(&file, rest) {
            Ok(0) => return Err(Errno::ENOSPC),
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// `None` when the file grew past the limit meanwhile.
fn read_up_to(file: &OwnedFd, limit: u64) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = Vec::new();
    let mut buffer = [0_u8; 8192];
    loop {
        match read(file, &mut buffer) {
            Ok(0) => return Ok(Some(value)),
            Ok(n) => value.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
        if value.len() as u64 > limit {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests;
