//! Layers merged by copying, for kernels without overlayfs: what an overlay would show, as plain files.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, mknodat, utimensat};
use nix::sys::time::TimeSpec;
use podkeep_hal::linux::sys::xattr;

use super::report::{At, failed};
use super::spec::IdMap;
use crate::supervisor::proto::Failure;

/// Deeper trees are refused: no image has them, and our stack is finite.
const MAX_DEPTH: u32 = 512;

struct Copy {
    base: u32,
    /// first place of each file with several links, by device and inode of its layer
    links: HashMap<(u64, u64), PathBuf>,
}

/// Copies the layers, the lowest first, into the existing empty folder `to`.
pub(super) fn copy_layers(layers: &[PathBuf], to: &Path, map: Option<IdMap>) -> Result<(), Failure> {
    for layer in layers {
        let mut copy = Copy { base: map.map_or(0, |map| map.host_base), links: HashMap::new() };
        copy.folder(layer, to, 0)?;
        copy.finish(layer, to)?;
    }
    Ok(())
}

impl Copy {
    fn folder(&mut self, from: &Path, to: &Path, depth: u32) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Err(failed("copy", from, Errno::ELOOP));
        }
        for entry in fs::read_dir(from).at("copy", from)? {
            let entry = entry.at("copy", from)?;
            self.entry(&entry.path(), &to.join(entry.file_name()), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path, depth: u32) -> Result<(), Failure> {
        let meta = fs::symlink_metadata(from).at("copy", from)?;
        let kind = meta.file_type();
        if kind.is_char_device() && meta.rdev() == 0 {
            return clear(to);
        }
        if kind.is_dir() {
            let kept = fs::symlink_metadata(to).is_ok_and(|old| old.is_dir()) && !is_opaque(from);
            if !kept {
                clear(to)?;
                fs::create_dir(to).at("copy", to)?;
            }
            self.folder(from, to, depth.saturating_add(1))?;
            return self.finish(from, to);
        }
        clear(to)?;
        if meta.nlink() > 1 {
            if let Some(first) = self.links.get(&(meta.dev(), meta.ino())) {
                return fs::hard_link(first, to).at("copy", to);
            }
            self.links.insert((meta.dev(), meta.ino()), to.to_owned());
        }
        if kind.is_symlink() {
            let target = fs::read_link(from).at("copy", from)?;
            symlink(target, to).at("copy", to)?;
        } else if kind.is_file() {
            fs::copy(from, to).at("copy", from)?;
        } else {
            special(&meta, to)?;
        }
        self.finish(from, to)
    }

    /// Owner, mode, attributes and times, in the order in which none undoes another.
    fn finish(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        let meta = fs::symlink_metadata(from).at("copy", from)?;
        let owner = (meta.uid().saturating_add(self.base), meta.gid().saturating_add(self.base));
        if meta.is_symlink() {
            lchown(to, Some(owner.0), Some(owner.1)).at("chown", to)?;
        } else {
            chown(to, Some(owner.0), Some(owner.1)).at("chown", to)?;
            let mode = fs::Permissions::from_mode(meta.mode() & 0o7777);
            fs::set_permissions(to, mode).at("chmod", to)?;
        }
        copy_attributes(from, to)?;
        let times = (
            TimeSpec::new(meta.atime() as _, meta.atime_nsec() as _),
            TimeSpec::new(meta.mtime() as _, meta.mtime_nsec() as _),
        );
        utimensat(AT_FDCWD, to, &times.0, &times.1, UtimensatFlags::NoFollowSymlink).at("utimens", to)
    }
}

/// Devices, pipes and sockets.
fn special(meta: &fs::Metadata, to: &Path) -> Result<(), Failure> {
    let kind = SFlag::from_bits_truncate(meta.mode() & SFlag::S_IFMT.bits());
    let mode = Mode::from_bits_truncate(meta.mode() & 0o7777);
    mknodat(AT_FDCWD, to, kind, mode, meta.rdev() as _).at("copy", to)
}

/// Takes away what a lower layer left, if anything.
fn clear(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).at("copy", path),
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).at("copy", path),
        Ok(_) => fs::remove_file(path).at("copy", path),
    }
}

fn is_opaque(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    [c"trusted.overlay.opaque", c"user.overlay.opaque"]
        .iter()
        .any(|name| xattr::get(&path, name).is_ok_and(|value| value == b"y"))
}

/// All attributes but overlayfs's own. What the target file system does not know is left out.
fn copy_attributes(from: &Path, to: &Path) -> Result<(), Failure> {
    let as_c = |path: &Path| {
        CString::new(path.as_os_str().as_bytes()).map_err(|_| failed("copy", path, Errno::EINVAL))
    };
    let (source, target) = (as_c(from)?, as_c(to)?);
    let names = match xattr::list(&source) {
        Err(Errno::EOPNOTSUPP) => return Ok(()),
        names => names.at("xattr", from)?,
    };
    for name in names {
        let bytes = name.to_bytes();
        if bytes.starts_with(b"trusted.overlay.") || bytes.starts_with(b"user.overlay.") {
            continue;
        }
        let value = xattr::get(&source, &name).at("xattr", from)?;
        match xattr::set(&target, &name, &value) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EPERM) => {}
            Err(errno) => return Err(failed("xattr", to, errno)),
        }
    }
    Ok(())
}
