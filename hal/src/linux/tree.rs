//! Taking folders down: mounts first, then what is left, and never anything behind a mount.

use core::fmt;
use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Folders open at a time. What lies deeper is moved up first, so that no tree is too deep.
const DEPTH: usize = 32;

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// something is mounted there and could not be taken off
    Mounted {
        path: PathBuf,
        errno: Errno,
    },
    /// a mount point was met; nothing behind it was touched
    MountPoint {
        path: PathBuf,
    },
    Io {
        op: &'static str,
        path: PathBuf,
        errno: Errno,
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { path, errno } => {
                write!(f, "cannot unmount '{}': {}", path.display(), errno.desc())
            }
            Self::MountPoint { path } => {
                write!(f, "something is mounted at '{}', so nothing is removed there", path.display())
            }
            Self::Io { op, path, errno } => write!(f, "cannot {op} '{}': {}", path.display(), errno.desc()),
        }
    }
}

impl core::error::Error for TreeError {}

/// Mount points at and below `path`, in the order they were mounted. `mountinfo` is the text of that file in /proc; `path`
/// has to be free of links, as the kernel's paths are.
#[must_use]
pub fn mounts_below(mountinfo: &[u8], path: &Path) -> Vec<PathBuf> {
    let point = |line: &[u8]| {
        let field = line.split(|b| *b == b' ').nth(4)?;
        let point = PathBuf::from(OsString::from_vec(unescape(field)));
        point.starts_with(path).then_some(point)
    };
    mountinfo.split(|b| *b == b'\n').filter_map(point).collect()
}

/// The kernel writes blank, tab, newline and backslash as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    out
}

fn real(path: &Path) -> Result<Option<PathBuf>, TreeError> {
    match path.canonicalize() {
        Ok(real) => Ok(Some(real)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io("look at", path, Errno::from_raw(e.raw_os_error().unwrap_or(0)))),
    }
}

fn io(op: &'static str, path: &Path, errno: Errno) -> TreeError {
    TreeError::Io { op, path: path.to_owned(), errno }
}

/// Takes off every mount at and below `path`, the latest first; busy ones are detached (they go when their last user
/// does). Answers how many there were. A missing path has none.
///
/// # Errors
/// The first that could not be taken off; the others are tried all the same.
pub fn unmount_below(path: &Path) -> Result<usize, TreeError> {
    let Some(path) = real(path)? else { return Ok(0) };
    let text = fs::read("/proc/self/mountinfo").map_err(|e| {
        io("read", Path::new("/proc/self/mountinfo"), Errno::from_raw(e.raw_os_error().unwrap_or(0)))
    })?;
    let points = mounts_below(&text, &path);
    let mut result = Ok(points.len());
    for point in points.iter().rev() {
        let done = match umount2(point, MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EBUSY) => umount2(point, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH),
            // not mounted any more: it went with another one
            Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
            done => done,
        };
        if let Err(errno) = done {
            result = result.and(Err(TreeError::Mounted { path: point.clone(), errno }));
        }
    }
    result
}

/// Unmounts, then removes the folder and all in it. A missing one is success.
///
/// # Errors
/// What is in the way; as much as possible is gone then, but nothing behind a mount.
pub fn take_down(path: &Path) -> Result<(), TreeError> {
    unmount_below(path)?;
    remove(path)
}

/// Removes the folder and all in it without following links or entering mounts. A missing one is success.
///
/// # Errors
/// As [`take_down`].
pub fn remove(path: &Path) -> Result<(), TreeError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io("remove", path, Errno::EINVAL));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent_fd = match open(parent, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(io("open", parent, errno)),
    };
    let name = CString::new(name.as_bytes()).map_err(|_| io("remove", path, Errno::EINVAL))?;
    let mut removal = Removal { top: None, moved: 0, first: None };
    removal.entry(&parent_fd, &name, path, 0);
    match removal.first {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// One removal: goes on after failures and keeps the first.
struct Removal {
    /// the folder to be removed, where deep folders are moved
    top: Option<OwnedFd>,
    moved: u64,
    first: Option<TreeError>,
}

impl Removal {
    fn fail(&mut self, error: TreeError) {
        self.first.get_or_insert(error);
    }

    /// Removes whatever `name` is.
    fn entry(&mut self, parent: &OwnedFd, name: &CStr, path: &Path, depth: usize) {
        match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return,
            // what a folder answers, by file system
            Err(Errno::EISDIR | Errno::EPERM) if is_folder(parent, name) => {}
            Err(errno) => return self.failed(path, errno),
        }
        if depth >= DEPTH && self.move_up(parent, name) {
            return;
        }
        let dir = match open_here(parent, name) {
            Ok(dir) => dir,
            Err(Errno::EXDEV) => return self.fail(TreeError::MountPoint { path: path.to_owned() }),
            Err(errno) => return self.failed(path, errno),
        };
        if depth == 0 {
            self.top = dir.try_clone().ok();
        }
        // folders moved up while this goes on appear in the top one: look again until nothing new is found
        loop {
            let before = self.moved;
            self.content(&dir, path, depth);
            if depth > 0 || self.moved == before || self.first.is_some() {
                break;
            }
        }
        drop(dir);
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            // the reason was told where it happened
            Err(Errno::ENOTEMPTY | Errno::EEXIST) if self.first.is_some() => {}
            Err(errno) => self.failed(path, errno),
        }
    }

    fn failed(&mut self, path: &Path, errno: Errno) {
        // the kernel says "busy" for a file or folder on which something is mounted
        let path = path.to_owned();
        self.fail(match errno {
            Errno::EBUSY => TreeError::MountPoint { path },
            errno => TreeError::Io { op: "remove", path, errno },
        });
    }

    fn content(&mut self, dir: &OwnedFd, path: &Path, depth: usize) {
        let names = match names(dir) {
            Ok(names) => names,
            Err(errno) => return self.fail(io("list", path, errno)),
        };
        for name in names {
            let below = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            self.entry(dir, &name, &below, depth.saturating_add(1));
        }
    }

    /// Into the top folder, under a name of ours; false where that is not possible.
    fn move_up(&mut self, parent: &OwnedFd, name: &CStr) -> bool {
        let Some(top) = &self.top else { return false };
        let new = format!(".moved-up-{}-{}", std::process::id(), self.moved);
        let moved = renameat(parent, name, top, new.as_str()).is_ok();
        self.moved = self.moved.saturating_add(u64::from(moved));
        moved
    }
}

fn is_folder(parent: &OwnedFd, name: &CStr) -> bool {
    fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|s| s.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits())
}

/// Opens a folder that is on the same mount as its parent; `EXDEV` when it is not.
fn open_here(parent: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how =
        OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(parent, name, how) {
        // before 5.6, or refused by a filter
        Err(Errno::ENOSYS | Errno::EPERM) => {}
        done => return done,
    }
    let dir = openat(parent, name, flags, Mode::empty())?;
    // the device number is no proof: a bind mount has the same
    if mount_id(parent)? == mount_id(&dir)? { Ok(dir) } else { Err(Errno::EXDEV) }
}

/// `mnt_id` of /proc/self/fdinfo (Linux 3.15).
fn mount_id(fd: &impl AsFd) -> Result<u64, Errno> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()))
        .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
    text.lines().find_map(|l| l.strip_prefix("mnt_id:")?.trim().parse().ok()).ok_or(Errno::ENOSYS)
}

/// All names first: removing while reading may skip some.
fn names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir = Dir::openat(dir, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == Some(Type::Directory) && (name == c"." || name == c"..") {
            continue;
        }
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MsFlags, mount};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};

    static NEXT: AtomicU32 = AtomicU32::new(0);

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("tree-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).unwrap();
            Self(dir.canonicalize().unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            unmount_below(&self.0).ok();
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn bind(from: &Path, to: &Path) -> bool {
        let none: Option<&str> = None;
        let done = mount(Some(from), to, none, MsFlags::MS_BIND, none).is_ok();
        if !done {
            println!("skipped: cannot mount");
        }
        done
    }

    #[test]
    fn mount_points_are_found_with_odd_names() {
        let text = b"30 1 0:26 / /a/b rw - tmpfs t rw\n31 1 0:27 / /a/bc rw - x y z\n\
            32 1 0:28 / /a/b/c\\040d\\134e rw shared:1 - x y z\n33 1 0:1 / /a rw - x y z\n";
        assert_eq!(mounts_below(text, Path::new("/a/b")), [Path::new("/a/b"), Path::new("/a/b/c d\\e")]);
        assert_eq!(unescape(b"\\04\\999x\\"), b"\\04\\999x\\");
    }

    /// C-STA-04: the data behind a mount in a left-over folder stays.
    #[test]
    fn data_behind_a_mount_stays() {
        let folder = Folder::new();
        let (pod, precious) = (folder.0.join("pod"), folder.0.join("precious"));
        let point = pod.join("volumes/host~data");
        fs::create_dir_all(&point).unwrap();
        fs::create_dir_all(&precious).unwrap();
        fs::write(precious.join("file"), "keep").unwrap();
        if !bind(&precious, &point) {
            return;
        }
        // without unmounting: told, and nothing behind it is touched, though the device is the same
        let error = remove(&pod).unwrap_err();
        assert_eq!(error, TreeError::MountPoint { path: point.clone() });
        assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "keep");
        // stacked twice, and once on a file
        fs::write(pod.join("f"), "").unwrap();
        assert!(bind(&precious, &point) && bind(&precious.join("file"), &pod.join("f")));
        take_down(&pod).unwrap();
        assert!(!pod.exists());
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "keep");
        take_down(&pod).unwrap();
    }

    #[test]
    fn a_busy_mount_is_detached() {
        let folder = Folder::new();
        let (pod, data) = (folder.0.join("pod"), folder.0.join("data"));
        fs::create_dir_all(pod.join("m")).unwrap();
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("file"), "keep").unwrap();
        if !bind(&data, &pod.join("m")) {
            return;
        }
        let busy = fs::File::open(pod.join("m/file")).unwrap();
        assert_eq!(unmount_below(&pod).unwrap(), 1);
        remove(&pod).unwrap();
        drop(busy);
        assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "keep");
    }

    #[test]
    fn links_are_removed_not_followed() {
        let folder = Folder::new();
        let (pod, other) = (folder.0.join("pod"), folder.0.join("other"));
        fs::create_dir_all(pod.join("a")).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("file"), "keep").unwrap();
        symlink(&other, pod.join("a/link")).unwrap();
        symlink("/does/not/exist", pod.join("dangling")).unwrap();
        nix::unistd::mkfifo(&pod.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
        fs::set_permissions(pod.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        remove(&pod).unwrap();
        assert!(!pod.exists() && other.join("file").exists());
        // the path itself may be a link
        symlink(&other, &pod).unwrap();
        remove(&pod).unwrap();
        assert!(pod.symlink_metadata().is_err() && other.join("file").exists());
    }

    #[test]
    fn no_tree_is_too_deep() {
        let folder = Folder::new();
        let pod = folder.0.join("pod");
        fs::create_dir(&pod).unwrap();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut dir = open(&pod, flags, Mode::empty()).unwrap();
        // longer than any path the kernel takes, and three times deeper than we open
        let deeper = "deeper".repeat(10);
        for _ in 0..100 {
            nix::sys::stat::mkdirat(&dir, deeper.as_str(), Mode::from_bits_truncate(0o755)).unwrap();
            nix::sys::stat::mkdirat(&dir, "beside", Mode::from_bits_truncate(0o755)).unwrap();
            dir = openat(&dir, deeper.as_str(), flags, Mode::empty()).unwrap();
        }
        drop(dir);
        remove(&pod).unwrap();
        assert!(!pod.exists());
    }
}
