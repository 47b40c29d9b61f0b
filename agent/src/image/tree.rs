//! Walks and makes folders below one root, and never leaves it.
//!
//! The kernel is only ever asked for one component at a time, with `O_NOFOLLOW`. A symlink on the way is
//! read and resolved here, inside the root: `..` stops at the root, an absolute target begins at it. The
//! folders of the last path stay open, so that a layer with a million files opens few of them twice.
//! Making an entry changes the times of its folder; they are put back when the folder is left, which needs
//! no list of all folders.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::error::ImageError;

/// Folders inside one another; each costs an open descriptor.
const DEPTH_LIMIT: usize = 256;
/// Symlinks resolved for one path, as in the kernel.
const LINK_LIMIT: u32 = 40;

struct Folder {
    name: Vec<u8>,
    fd: OwnedFd,
    accessed: TimeSpec,
    modified: TimeSpec,
}

/// The root and the folders below it that are open.
pub(super) struct Tree {
    root: Folder,
    open: Vec<Folder>,
}

/// Refusal of `entry`.
pub(super) fn refused(entry: &[u8], why: &'static str) -> ImageError {
    ImageError::BadEntry { entry: String::from_utf8_lossy(entry).into_owned(), why }
}

/// A failed call on `path` below the root.
pub(super) fn failed(op: &'static str, path: &[u8], errno: Errno) -> ImageError {
    match errno {
        Errno::ENAMETOOLONG => refused(path, "the name is too long for this file system"),
        // names that a file system does not take, such as bad UTF-8 on a case-folding one
        Errno::EINVAL | Errno::EILSEQ => refused(path, "this file system does not take it"),
        other => ImageError::errno(op, PathBuf::from(OsStr::from_bytes(path)), other),
    }
}

/// What stands at `name`, not following a symlink.
pub(super) fn look(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileStat>, Errno> {
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(super) fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// An overlay whiteout: character device 0/0.
pub(super) fn is_whiteout(stat: &FileStat) -> bool {
    file_type(stat) == SFlag::S_IFCHR && stat.st_rdev == 0
}

pub(super) const FOLDER_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Cuts a path of an archive into components: `.` and empty ones drop out, `..` stops at the root.
pub(super) fn components(path: &[u8]) -> Result<Vec<&[u8]>, ImageError> {
    if path.contains(&0) {
        return Err(refused(path, "a name holds a NUL byte"));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    Ok(parts)
}

impl Tree {
    pub(super) fn new(root: OwnedFd) -> Result<Self, ImageError> {
        let root = Folder::new(Vec::new(), root).map_err(|e| failed("read the folder", b"/", e))?;
        Ok(Self { root, open: Vec::new() })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.fd.as_fd()
    }

    /// The times the root gets back in the end.
    pub(super) fn set_root_times(&mut self, accessed: TimeSpec, modified: TimeSpec) {
        (self.root.accessed, self.root.modified) = (accessed, modified);
    }

    /// Opens the folder `path`, making what is missing (0755, root, time 0).
    pub(super) fn enter(&mut self, path: &[&[u8]]) -> Result<BorrowedFd<'_>, ImageError> {
        let same = self.open.iter().zip(path).take_while(|(folder, part)| folder.name == **part).count();
        self.leave_to(same)?;
        let mut todo: Vec<Vec<u8>> = path.iter().skip(same).rev().map(|part| part.to_vec()).collect();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part == b".." {
                let up = self.open.len().saturating_sub(1);
                self.leave_to(up)?;
                continue;
            }
            let Some(target) = self.step(&part)? else { continue };
            links += 1;
            if links > LINK_LIMIT {
                return Err(refused(&path.join(&b'/'), "too many symlinks"));
            }
            if target.first() == Some(&b'/') {
                self.leave_to(0)?;
            }
            let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
            todo.extend(parts.rev().map(<[u8]>::to_vec));
            if todo.len() > DEPTH_LIMIT {
                return Err(refused(&path.join(&b'/'), "too many folders inside one another"));
            }
        }
        Ok(self.open.last().map_or_else(|| self.root.fd.as_fd(), |folder| folder.fd.as_fd()))
    }

    /// Goes into `name`, or gives the target of a symlink that stands there.
    fn step(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, ImageError> {
        if self.open.len() >= DEPTH_LIMIT {
            return Err(refused(name, "too many folders inside one another"));
        }
        let parent = self.open.last().map_or_else(|| self.root.fd.as_fd(), |folder| folder.fd.as_fd());
        match openat(parent, name, FOLDER_FLAGS, Mode::empty()) {
            Ok(fd) => {
                let folder =
                    Folder::new(name.to_vec(), fd).map_err(|e| failed("read the folder", name, e))?;
                self.open.push(folder);
                return Ok(None);
            }
            Err(Errno::ENOENT) => {}
            // ELOOP or ENOTDIR for a symlink, by kernel version
            Err(Errno::ELOOP | Errno::ENOTDIR) => {
                let stat = look(parent, name).map_err(|e| failed("look at", name, e))?;
                match stat {
                    Some(stat) if file_type(&stat) == SFlag::S_IFLNK => {
                        let target =
                            readlinkat(parent, name).map_err(|e| failed("read the link", name, e))?;
                        return Ok(Some(target.as_bytes().to_vec()));
                    }
                    // hidden in the layers below, made anew here
                    Some(stat) if is_whiteout(&stat) => {
                        self.make(name, true)?;
                        return Ok(None);
                    }
                    _ => return Err(refused(name, "a file stands where its folder should be")),
                }
            }
            Err(errno) => return Err(failed("open the folder", name, errno)),
        }
        self.make(name, false)?;
        Ok(None)
    }

    fn make(&mut self, name: &[u8], replace_whiteout: bool) -> Result<(), ImageError> {
        let parent = self.open.last().map_or_else(|| self.root.fd.as_fd(), |folder| folder.fd.as_fd());
        if replace_whiteout {
            unlinkat(parent, name, UnlinkatFlags::NoRemoveDir).map_err(|e| failed("remove", name, e))?;
        }
        let mut folder = make_folder(parent, name)?;
        if replace_whiteout {
            super::unpack::mark_opaque(folder.fd.as_fd(), name)?;
        }
        // the archive says nothing about this folder: the same tree each time it is unpacked
        folder.accessed = TimeSpec::new(0, 0);
        folder.modified = TimeSpec::new(0, 0);
        self.open.push(folder);
        Ok(())
    }

    /// Forgets open folders at and below the first `keep` ones, with their times put back.
    fn leave_to(&mut self, keep: usize) -> Result<(), ImageError> {
        while self.open.len() > keep {
            if let Some(folder) = self.open.pop() {
                folder.restore_times()?;
            }
        }
        Ok(())
    }

    /// Closes all folders; times are as the archive said.
    pub(super) fn leave(&mut self) -> Result<(), ImageError> {
        self.leave_to(0)?;
        self.root.restore_times()
    }
}

impl Folder {
    fn new(name: Vec<u8>, fd: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self {
            name,
            fd,
            accessed: TimeSpec::new(stat.st_atime, stat.st_atime_nsec),
            modified: TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec),
        })
    }

    fn restore_times(&self) -> Result<(), ImageError> {
        futimens(&self.fd, &self.accessed, &self.modified)
            .map_err(|e| failed("set the times of", &self.name, e))
    }
}

/// Makes a folder that does not exist and opens it, mode 0755 whatever the umask.
fn make_folder(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Folder, ImageError> {
    mkdirat(parent, name, Mode::from_bits_truncate(0o755)).map_err(|e| failed("make the folder", name, e))?;
    let fd =
        openat(parent, name, FOLDER_FLAGS, Mode::empty()).map_err(|e| failed("open the folder", name, e))?;
    fchmod(&fd, Mode::from_bits_truncate(0o755)).map_err(|e| failed("set the mode of", name, e))?;
    Folder::new(name.to_vec(), fd).map_err(|e| failed("read the folder", name, e))
}

/// Opens the folder `name`, made when missing; tells whether it was made.
pub(super) fn open_or_make(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(OwnedFd, bool), ImageError> {
    match openat(parent, name, FOLDER_FLAGS, Mode::empty()) {
        Ok(fd) => Ok((fd, false)),
        Err(Errno::ENOENT) => make_folder(parent, name).map(|folder| (folder.fd, true)),
        Err(errno) => Err(failed("open the folder", name, errno)),
    }
}

/// Removes whatever stands at `name`, folders with all they hold. Symlinks are removed, never followed.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), ImageError> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(errno) => return Err(failed("remove", name, errno)),
    }
    // one descriptor a level, as deep as `enter` makes folders
    let mut stack = vec![name.to_vec()];
    let mut open: Vec<OwnedFd> = Vec::new();
    while let Some(current) = stack.last().cloned() {
        let above = open.last().map_or(parent, AsFd::as_fd);
        let fd = openat(above, current.as_slice(), FOLDER_FLAGS, Mode::empty())
            .map_err(|e| failed("open the folder", &current, e))?;
        let below = empty_folder(&fd).map_err(|e| failed("empty the folder", &current, e))?;
        if let Some(child) = below {
            open.push(fd);
            stack.push(child);
            continue;
        }
        drop(fd);
        unlinkat(above, current.as_slice(), UnlinkatFlags::RemoveDir)
            .map_err(|e| failed("remove the folder", &current, e))?;
        stack.pop();
        open.pop();
    }
    Ok(())
}

/// Unlinks all but folders; gives one folder that is left.
fn empty_folder(fd: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut dir = nix::dir::Dir::openat(fd, ".", FOLDER_FLAGS, Mode::empty())?;
    let mut folder = None;
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if entry.file_type() == Some(nix::dir::Type::Directory) {
            if unlinkat(fd, name, UnlinkatFlags::RemoveDir).is_err() {
                folder = Some(name.to_vec());
            }
            continue;
        }
        match unlinkat(fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR | Errno::EPERM) if entry.file_type().is_none() => folder = Some(name.to_vec()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_and_stay_inside() {
        let parts = |text: &str| {
            components(text.as_bytes())
                .unwrap()
                .iter()
                .map(|p| String::from_utf8_lossy(p).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(parts("./a//b/"), ["a", "b"]);
        assert_eq!(parts("/a/../../../etc/passwd"), ["etc", "passwd"]);
        assert_eq!(parts("../.."), Vec::<String>::new());
        assert!(components(b"a\0b").is_err());
    }
}
