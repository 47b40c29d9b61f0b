//! Looks at files of an image without mounting it: the layers as overlayfs would show them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag};

use super::error::ImageError;
use super::tree::{FOLDER_FLAGS, components, failed, file_type, look, refused};
use super::unpack::{hides, is_opaque};

/// Symlinks followed for one path, as in the kernel.
const LINK_LIMIT: u32 = 40;

/// One folder of the image: the folders of the layers that make it up, the top one first.
type Merged = Vec<OwnedFd>;

enum Found {
    Nothing,
    Folder(Merged),
    Link(Vec<u8>),
    /// a file of any other kind, in the folder with this number
    File(usize),
}

/// Reads a regular file; `layers` the lowest first. Symlinks are followed inside the image.
/// `Ok(None)`: there is none, or it is no regular file.
pub fn read_file(layers: &[PathBuf], path: &str, limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
    let mut root: Merged = Vec::new();
    for layer in layers.iter().rev() {
        let folder = File::open(layer).map_err(|e| ImageError::io("open", layer, &e))?;
        let opaque = is_opaque(folder.as_fd());
        root.push(folder.into());
        if opaque {
            break;
        }
    }
    let mut stack = vec![root];
    let mut todo: Vec<Vec<u8>> = components(path.as_bytes())?.into_iter().rev().map(<[u8]>::to_vec).collect();
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == b".." {
            if stack.len() > 1 {
                stack.pop();
            }
            continue;
        }
        let Some(folder) = stack.last() else { return Ok(None) };
        match find(folder, &name)? {
            Found::Nothing => return Ok(None),
            Found::Folder(below) => stack.push(below),
            Found::File(at) if todo.is_empty() => return read_regular(folder, at, &name, limit),
            Found::File(_) => return Ok(None),
            Found::Link(target) => {
                links += 1;
                if links > LINK_LIMIT {
                    return Err(refused(path.as_bytes(), "too many symlinks"));
                }
                if target.first() == Some(&b'/') {
                    stack.truncate(1);
                }
                let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
                todo.extend(parts.rev().map(<[u8]>::to_vec));
            }
        }
    }
    Ok(None)
}

fn find(folder: &Merged, name: &[u8]) -> Result<Found, ImageError> {
    let mut below = Merged::new();
    for (at, layer) in folder.iter().enumerate() {
        let stat = look(layer.as_fd(), name).map_err(|e| failed("look at", name, e))?;
        let Some(stat) = stat else { continue };
        if hides(layer.as_fd(), name, &stat) {
            break;
        }
        if file_type(&stat) != SFlag::S_IFDIR {
            // below a folder of a higher layer it is hidden
            if !below.is_empty() {
                break;
            }
            if file_type(&stat) != SFlag::S_IFLNK {
                return Ok(Found::File(at));
            }
            let target = readlinkat(layer, name).map_err(|e| failed("read the link", name, e))?;
            return Ok(Found::Link(target.as_bytes().to_vec()));
        }
        let next = openat(layer, name, FOLDER_FLAGS, Mode::empty()).map_err(|e| failed("open", name, e))?;
        let opaque = is_opaque(next.as_fd());
        below.push(next);
        if opaque {
            break;
        }
    }
    Ok(if below.is_empty() { Found::Nothing } else { Found::Folder(below) })
}

fn read_regular(folder: &Merged, at: usize, name: &[u8], limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
    let Some(layer) = folder.get(at) else { return Ok(None) };
    // a pipe must not block us, a device not be touched: looked at before it is opened, and the store
    // changes no layer in place
    match look(layer.as_fd(), name) {
        Ok(Some(stat)) if file_type(&stat) == SFlag::S_IFREG => {}
        Ok(_) | Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(failed("look at", name, errno)),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = openat(layer, name, flags, Mode::empty()).map_err(|e| failed("open", name, e))?;
    let mut content = Vec::new();
    File::from(file)
        .take(limit.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(|e| ImageError::io("read", String::from_utf8_lossy(name).into_owned(), &e))?;
    if content.len() as u64 > limit {
        let what = format!("\"{}\" of the image", String::from_utf8_lossy(name));
        return Err(ImageError::TooLarge { what, bytes: content.len() as u64, limit });
    }
    Ok(Some(content))
}
