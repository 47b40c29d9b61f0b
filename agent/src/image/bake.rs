//! Makes a folder of unpacked images for a read-only partition of a firmware (squashfs, erofs, plain folder), to
//! be used in place, and the digest that proves an unpacked layer.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use podkeep_core::image::Platform;

use super::digest::{Digest, Hashing};
use super::error::ImageError;
use super::load::load_from;
use super::progress::Progress;
use super::store::{Origin, Store};

/// Unpacks `sources` (layout folder or archive, and a name where it states none) into `out`, which is new or
/// empty. Gives the names. The same sources give the same tree.
pub fn bake(
    out: &Path,
    sources: &[(PathBuf, Option<String>)],
    platform: Platform,
    progress: &Progress,
) -> Result<Vec<String>, ImageError> {
    let is_empty = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(ImageError::io("read the folder", out, &error)),
    };
    if !is_empty {
        let why = "it holds something already; name a new folder".to_owned();
        return Err(ImageError::Corrupt { path: out.to_owned(), why });
    }
    let store = Store::at(out.to_owned(), platform)?;
    let mut names = Vec::new();
    for (path, name) in sources {
        names.extend(load_from(&store, path, name.as_deref(), Origin::Baked, progress)?);
    }
    store.seal()?;
    Ok(names)
}

/// Digest of a tree: names, kinds, modes, owners, targets, devices, opaque marks and content, in order. Times
/// are left out: not every file system of a firmware keeps them.
pub(super) fn tree_digest(root: &Path) -> Result<Digest, ImageError> {
    let mut hash = Hashing::new(io::sink());
    add(root, b"", &mut hash)?;
    Ok(hash.digest())
}

fn add(path: &Path, name: &[u8], hash: &mut Hashing<io::Sink>) -> Result<(), ImageError> {
    let failed = |e: io::Error| ImageError::io("read", path, &e);
    let meta = fs::symlink_metadata(path).map_err(failed)?;
    let size = if meta.is_file() { meta.len() } else { 0 };
    let line = format!("\0{:o} {} {} {size} {:x}\0", meta.mode(), meta.uid(), meta.gid(), meta.rdev());
    hash.write_all(name).and_then(|()| hash.write_all(line.as_bytes())).map_err(failed)?;
    if meta.is_symlink() {
        let target = fs::read_link(path).map_err(failed)?;
        return hash.write_all(target.as_os_str().as_bytes()).map_err(failed);
    }
    if meta.is_file() {
        let mut file = fs::File::open(path).map_err(failed)?.take(size);
        return io::copy(&mut file, hash).map(drop).map_err(failed);
    }
    if !meta.is_dir() {
        return Ok(());
    }
    let folder = fs::File::open(path).map_err(failed)?;
    if super::unpack::is_opaque(std::os::fd::AsFd::as_fd(&folder)) {
        hash.write_all(b"opaque").map_err(failed)?;
    }
    drop(folder);
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name());
    }
    names.sort();
    for name in names {
        add(&path.join(&name), name.as_bytes(), hash)?;
    }
    // the end of a folder, so that "a/b" and "a", "b" differ
    hash.write_all(b"\0\0").map_err(failed)
}
