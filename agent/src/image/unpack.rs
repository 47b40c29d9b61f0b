//! Unpacks one layer's tar stream into a folder in the form overlayfs wants.
//!
//! - Whatever the archive says, nothing outside the folder is touched: see `tree`. Files are made new
//!   (`O_EXCL`), never written through a link, device or pipe that an earlier entry placed.
//! - `.wh.NAME` becomes a whiteout (character device 0/0), `.wh..wh..opq` the overlay mark of an opaque
//!   folder. Both speak of the layers below only: what this layer itself brings stays.
//! - A later entry of a name replaces an earlier one; a folder over a folder merges.
//! - Memory does not depend on the layer: one buffer, the open folders, one entry.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, futimens, makedev, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat, linkat, symlinkat};
use podkeep_hal::linux::sys::{euid, fxattr};

use super::error::ImageError;
use super::tar_stream::{Entry, Kind, Source, TarStream};
use super::tree::{self, Tree, components, failed, file_type, is_whiteout, look, refused};

/// Longest path, as the kernel's PATH_MAX.
const PATH_LIMIT: usize = 4096;
const BUFFER: usize = 64 * 1024;
/// How many bytes may be written before the free space is looked at again.
const SPACE_CHECK: u64 = 8 * 1024 * 1024;
/// Space left to the rest of the machine, bytes.
const SPACE_RESERVE: u64 = 8 * 1024 * 1024;

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// bytes of file content
    pub bytes: u64,
    pub entries: u64,
    /// device nodes left out: this process may not make them
    pub skipped_devices: u64,
}

/// Unpacks all of `source` below `root`, which is an empty folder. Reads to the end of the archive.
pub fn unpack<R: Source>(source: R, root: OwnedFd) -> Result<(Unpacked, R), ImageError> {
    let mut stream = TarStream::new(source);
    let mut unpacker = Unpacker::new(root)?;
    while let Some(entry) = stream.next_entry()? {
        unpacker.entry(&entry, &mut stream)?;
    }
    Ok((unpacker.finish()?, stream.into_inner()))
}

struct Unpacker {
    tree: Tree,
    /// ids are set and devices made as root only
    root_user: bool,
    done: Unpacked,
    buffer: Vec<u8>,
    since_check: u64,
    /// bytes of the whole file system: no file is larger
    capacity: u64,
}

impl Unpacker {
    fn new(root: OwnedFd) -> Result<Self, ImageError> {
        fchmod(&root, Mode::from_bits_truncate(0o755)).map_err(|e| failed("set the mode of", b"/", e))?;
        let capacity = space(root.as_fd())?.0;
        let mut tree = Tree::new(root)?;
        // until the archive says otherwise
        tree.set_root_times(TimeSpec::new(0, 0), TimeSpec::new(0, 0));
        Ok(Self {
            tree,
            root_user: euid() == 0,
            done: Unpacked::default(),
            buffer: vec![0; BUFFER],
            since_check: 0,
            capacity,
        })
    }

    fn finish(mut self) -> Result<Unpacked, ImageError> {
        self.tree.leave()?;
        Ok(self.done)
    }

    fn entry(&mut self, entry: &Entry, data: &mut dyn Read) -> Result<(), ImageError> {
        self.done.entries = self.done.entries.saturating_add(1);
        // an inode, a name: small files fill a disk, too
        self.count_space(1024)?;
        if entry.path.len() > PATH_LIMIT {
            return Err(refused(entry.path.get(..64).unwrap_or_default(), "the path is too long"));
        }
        let parts = components(&entry.path)?;
        let Some((name, parents)) = parts.split_last() else { return self.root_entry(entry) };
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            return self.whiteout(parents, hidden, entry);
        }
        match entry.kind {
            Kind::Folder => self.folder(parents, name, entry),
            Kind::File => self.file(parents, name, entry, data),
            Kind::HardLink => self.hard_link(parents, name, entry),
            Kind::Symlink => self.symlink(parents, name, entry),
            Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => self.node(parents, name, entry),
            Kind::Other(_) => Err(refused(&entry.path, "its type is unknown")),
        }
    }

    fn root_entry(&mut self, entry: &Entry) -> Result<(), ImageError> {
        if entry.kind != Kind::Folder {
            return Err(refused(&entry.path, "only a folder can be the root"));
        }
        self.own(self.tree.root(), entry)?;
        self.tree.set_root_times(time(entry), time(entry));
        Ok(())
    }

    fn whiteout(&mut self, parents: &[&[u8]], hidden: &[u8], entry: &Entry) -> Result<(), ImageError> {
        if hidden == b".wh..opq" {
            let folder = self.tree.enter(parents)?;
            return mark_opaque(folder, &entry.path);
        }
        // book-keeping of aufs, such as .wh..wh.plnk
        if hidden.starts_with(b".wh.") {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(refused(&entry.path, "a whiteout of nothing"));
        }
        let folder = self.tree.enter(parents)?;
        match look(folder, hidden).map_err(|e| failed("look at", hidden, e))? {
            None => make_whiteout(folder, hidden),
            Some(stat) if file_type(&stat) == SFlag::S_IFDIR => {
                let below = self.tree.enter(&[parents, &[hidden]].concat())?;
                mark_opaque(below, hidden)
            }
            Some(_) => Ok(()),
        }
    }

    fn folder(&mut self, parents: &[&[u8]], name: &[u8], entry: &Entry) -> Result<(), ImageError> {
        let parent = self.tree.enter(parents)?;
        let before = look(parent, name).map_err(|e| failed("look at", name, e))?;
        let replaced = before.filter(|stat| file_type(stat) != SFlag::S_IFDIR).is_some();
        if replaced {
            tree::remove(parent, name)?;
        }
        let (fd, _) = tree::open_or_make(parent, name)?;
        if replaced {
            // what stood here hid the layers below
            mark_opaque(fd.as_fd(), name)?;
        }
        self.own(fd.as_fd(), entry)?;
        futimens(&fd, &time(entry), &time(entry)).map_err(|e| failed("set the times of", name, e))
    }

    /// Clears the place for something that is no folder and gives the folder around it.
    fn clear(&mut self, parents: &[&[u8]], name: &[u8]) -> Result<BorrowedFd<'_>, ImageError> {
        // `enter` has left everything below `parents`, so no open folder is removed here
        let parent = self.tree.enter(parents)?;
        tree::remove(parent, name)?;
        Ok(parent)
    }

    fn file(
        &mut self,
        parents: &[&[u8]],
        name: &[u8],
        entry: &Entry,
        data: &mut dyn Read,
    ) -> Result<(), ImageError> {
        if entry.size > self.capacity {
            return Err(refused(&entry.path, "the file is larger than the file system"));
        }
        let parent = self.clear(parents, name)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(parent, name, flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| failed("make the file", &entry.path, e))?;
        let file = File::from(fd);
        match &entry.pieces {
            None => self.copy(&file, data, 0, entry.size, entry)?,
            Some(pieces) => {
                for (offset, length) in pieces {
                    self.copy(&file, data, *offset, *length, entry)?;
                }
            }
        }
        file.set_len(entry.size).map_err(|e| write_failed(entry, &e))?;
        self.own(file.as_fd(), entry)?;
        futimens(&file, &time(entry), &time(entry)).map_err(|e| failed("set the times of", &entry.path, e))
    }

    /// Copies `length` bytes to `offset`. Runs of zeros become holes: flash wears, and sparse files stay so.
    fn copy(
        &mut self,
        file: &File,
        data: &mut dyn Read,
        offset: u64,
        length: u64,
        entry: &Entry,
    ) -> Result<(), ImageError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut done = 0;
        while done < length {
            let want = usize::try_from(length - done).unwrap_or(BUFFER).min(BUFFER);
            let Some(part) = buffer.get_mut(..want) else { break };
            let count = read_full(data, part).map_err(|e| read_failed(&e))?;
            let part = part.get(..count).unwrap_or_default();
            if count < want {
                return Err(ImageError::BadStream { what: "layer", why: "it ends in a file".to_owned() });
            }
            if !is_zero(part) {
                let place = offset.saturating_add(done);
                file.write_all_at(part, place).map_err(|e| write_failed(entry, &e))?;
                self.count_space(count as u64)?;
            }
            done = done.saturating_add(count as u64);
        }
        self.buffer = buffer;
        self.done.bytes = self.done.bytes.saturating_add(length);
        Ok(())
    }

    fn hard_link(&mut self, parents: &[&[u8]], name: &[u8], entry: &Entry) -> Result<(), ImageError> {
        let target = components(&entry.link)?;
        let Some((target_name, target_parents)) = target.split_last() else {
            return Err(refused(&entry.path, "a hard link to the root"));
        };
        let source = self.tree.enter(target_parents)?;
        let stat = look(source, target_name).map_err(|e| failed("look at", target_name, e))?;
        let Some(stat) = stat else {
            return Err(refused(&entry.path, "a hard link to something this layer does not hold"));
        };
        if file_type(&stat) == SFlag::S_IFDIR {
            return Err(refused(&entry.path, "a hard link to a folder"));
        }
        let source = source.try_clone_to_owned().map_err(|e| ImageError::io("open", "", &e))?;
        let parent = self.tree.enter(parents)?;
        let before = look(parent, name).map_err(|e| failed("look at", name, e))?;
        // a link to itself, under this or another name
        if before.is_some_and(|old| (old.st_dev, old.st_ino) == (stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        let parent = self.clear(parents, name)?;
        // no AT_SYMLINK_FOLLOW: a link to a symlink is a second name of the symlink
        linkat(source.as_fd(), *target_name, parent, name, AtFlags::empty())
            .map_err(|e| failed("link", &entry.path, e))
    }

    fn symlink(&mut self, parents: &[&[u8]], name: &[u8], entry: &Entry) -> Result<(), ImageError> {
        if entry.link.is_empty() || entry.link.contains(&0) || entry.link.len() > PATH_LIMIT {
            return Err(refused(&entry.path, "a symlink without a proper target"));
        }
        let root_user = self.root_user;
        let parent = self.clear(parents, name)?;
        symlinkat(entry.link.as_slice(), parent, name)
            .map_err(|e| failed("make the link", &entry.path, e))?;
        own_name(parent, name, entry, root_user)
    }

    fn node(&mut self, parents: &[&[u8]], name: &[u8], entry: &Entry) -> Result<(), ImageError> {
        let (kind, device) = match entry.kind {
            Kind::Fifo => (SFlag::S_IFIFO, 0),
            Kind::CharDevice => (SFlag::S_IFCHR, makedev(entry.major, entry.minor)),
            _ => (SFlag::S_IFBLK, makedev(entry.major, entry.minor)),
        };
        if entry.major > 0xfff || entry.minor > 0xf_ffff {
            return Err(refused(&entry.path, "no such device number"));
        }
        let root_user = self.root_user;
        let parent = self.clear(parents, name)?;
        let mode = Mode::from_bits_truncate(entry.mode);
        match mknodat(parent, name, kind, mode, device) {
            Ok(()) => {}
            Err(Errno::EPERM) if entry.kind != Kind::Fifo => {
                self.done.skipped_devices = self.done.skipped_devices.saturating_add(1);
                return Ok(());
            }
            Err(errno) => return Err(failed("make the device", &entry.path, errno)),
        }
        own_name(parent, name, entry, root_user)?;
        // the name is no symlink: it was made two lines above, and nobody else works here
        fchmodat(parent, name, mode, FchmodatFlags::FollowSymlink)
            .map_err(|e| failed("set the mode of", &entry.path, e))?;
        set_times(parent, name, entry)
    }

    /// Owner, mode and attributes, in this order: a new owner takes setuid and capabilities away.
    fn own(&self, fd: BorrowedFd<'_>, entry: &Entry) -> Result<(), ImageError> {
        if self.root_user {
            let (uid, gid) = ids(entry)?;
            fchown(fd, Some(uid), Some(gid)).map_err(|e| failed("set the owner of", &entry.path, e))?;
        }
        fchmod(fd, Mode::from_bits_truncate(entry.mode))
            .map_err(|e| failed("set the mode of", &entry.path, e))?;
        for (name, value) in &entry.xattrs {
            if !is_wanted_xattr(name) {
                continue;
            }
            let Ok(c_name) = CString::new(name.as_slice()) else { continue };
            match fxattr::set(fd, &c_name, value) {
                // a file system without them, or a process that may not: the file is still of use
                Ok(()) | Err(Errno::ENOTSUP | Errno::EPERM) => {}
                Err(errno) => return Err(failed("set an attribute of", &entry.path, errno)),
            }
        }
        Ok(())
    }

    fn count_space(&mut self, bytes: u64) -> Result<(), ImageError> {
        self.since_check = self.since_check.saturating_add(bytes);
        if self.since_check < SPACE_CHECK {
            return Ok(());
        }
        self.since_check = 0;
        let (_, free) = space(self.tree.root())?;
        if free < SPACE_RESERVE {
            let path = std::path::PathBuf::from("images");
            return Err(ImageError::NoSpace { path, needed: SPACE_RESERVE, free });
        }
        Ok(())
    }
}

/// Size of the file system and its free bytes.
#[allow(clippy::useless_conversion, reason = "these types are 32 bits wide on 32-bit targets")]
fn space(fd: BorrowedFd<'_>) -> Result<(u64, u64), ImageError> {
    let stat = nix::sys::statvfs::fstatvfs(fd).map_err(|e| failed("look at the space of", b"/", e))?;
    let unit = u64::from(stat.fragment_size());
    Ok((
        u64::from(stat.blocks()).saturating_mul(unit),
        u64::from(stat.blocks_available()).saturating_mul(unit),
    ))
}

/// Attributes an image may bring. Those of overlayfs would let it point into other layers; those of
/// security modules belong to the host.
fn is_wanted_xattr(name: &[u8]) -> bool {
    name == b"security.capability"
        || name.starts_with(b"system.posix_acl_")
        || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// Marks a folder as hiding the same folder of the layers below.
///
/// `trusted.` needs CAP_SYS_ADMIN of the host; without it (`userxattr` mounts) the mark has the `user.` form.
pub(super) fn mark_opaque(folder: BorrowedFd<'_>, path: &[u8]) -> Result<(), ImageError> {
    let set = match fxattr::set(folder, c"trusted.overlay.opaque", b"y") {
        Err(Errno::EPERM) => fxattr::set(folder, c"user.overlay.opaque", b"y"),
        other => other,
    };
    set.map_err(|e| failed("mark as opaque", path, e))
}

/// Hides `name` of the layers below. Linux lets anybody make this device since 5.8.
fn make_whiteout(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), ImageError> {
    match mknodat(folder, name, SFlag::S_IFCHR, Mode::empty(), 0) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => make_whiteout_file(folder, name),
        Err(errno) => Err(failed("make the whiteout", name, errno)),
    }
}

/// The attribute form, Linux 6.7 and newer: an empty file with a mark in a folder with a mark.
fn make_whiteout_file(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), ImageError> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file =
        openat(folder, name, flags, Mode::empty()).map_err(|e| failed("make the whiteout", name, e))?;
    let marked = fxattr::set(file.as_fd(), c"user.overlay.whiteout", b"y")
        .and_then(|()| fxattr::set(folder, c"user.overlay.opaque", b"x"));
    marked.map_err(|e| failed("make the whiteout", name, e))
}

fn ids(entry: &Entry) -> Result<(Uid, Gid), ImageError> {
    let id = |value: u64| {
        // the last one means "leave it" to chown
        u32::try_from(value)
            .ok()
            .filter(|id| *id != u32::MAX)
            .ok_or_else(|| refused(&entry.path, "no such owner"))
    };
    Ok((Uid::from_raw(id(entry.uid)?), Gid::from_raw(id(entry.gid)?)))
}

/// Owner and times of what cannot be opened.
fn own_name(parent: BorrowedFd<'_>, name: &[u8], entry: &Entry, root_user: bool) -> Result<(), ImageError> {
    if root_user {
        let (uid, gid) = ids(entry)?;
        fchownat(parent, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|e| failed("set the owner of", &entry.path, e))?;
    }
    set_times(parent, name, entry)
}

fn set_times(parent: BorrowedFd<'_>, name: &[u8], entry: &Entry) -> Result<(), ImageError> {
    utimensat(parent, name, &time(entry), &time(entry), UtimensatFlags::NoFollowSymlink)
        .map_err(|e| failed("set the times of", &entry.path, e))
}

fn time(entry: &Entry) -> TimeSpec {
    let (seconds, nanos) = entry.mtime;
    // 32-bit time_t ends in 2038: the latest time there is better than a refused image
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "i32 on some targets"
    )]
    TimeSpec::new(
        nix::libc::time_t::try_from(seconds).unwrap_or(nix::libc::time_t::MAX),
        nix::libc::c_long::try_from(nanos).unwrap_or(0),
    )
}

fn is_zero(part: &[u8]) -> bool {
    // compared with itself one byte on: the C library's fast comparison, no array of zeros needed
    part.len() == BUFFER && part.first() == Some(&0) && part.get(1..) == part.get(..part.len() - 1)
}

fn read_full(data: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match data.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn read_failed(error: &io::Error) -> ImageError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            ImageError::BadStream { what: "layer", why: "it ends in a file".to_owned() }
        }
        _ => ImageError::BadStream { what: "layer", why: error.to_string() },
    }
}

fn write_failed(entry: &Entry, error: &io::Error) -> ImageError {
    let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    failed("write", &entry.path, errno)
}

/// Whether `stat` is a whiteout in either form.
pub(super) fn hides(fd: BorrowedFd<'_>, name: &[u8], stat: &nix::sys::stat::FileStat) -> bool {
    if is_whiteout(stat) {
        return true;
    }
    if file_type(stat) != SFlag::S_IFREG || stat.st_size != 0 {
        return false;
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    openat(fd, name, flags, Mode::empty())
        .is_ok_and(|file| fxattr::get(file.as_fd(), c"user.overlay.whiteout", &mut [0; 1]).is_ok())
}

/// Whether a folder hides the same folder of the layers below.
pub(super) fn is_opaque(folder: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    let marked = |name| fxattr::get(folder, name, &mut value).is_ok() && value == *b"y";
    [c"trusted.overlay.opaque", c"user.overlay.opaque"].into_iter().any(marked)
}
