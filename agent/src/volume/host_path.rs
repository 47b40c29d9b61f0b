//! hostPath: a file or folder of the node, checked as the kubelet does.
//!
//! `Directory`, `File`, `Socket`, `CharDevice`, `BlockDevice`: must be there (links are followed) and of that type.
//! `DirectoryOrCreate`: made with 0755 where nothing is, parents too. `FileOrCreate`: an empty file with 0644; parents are
//! not made. No type: it must be there, whatever it is. (The kubelet does not look and leaves it to the runtime, which
//! makes a folder; here nothing is made on the host by guess.) What is absent is waited for.

use std::fs::{self, DirBuilder, FileType, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use podkeep_core::types::HostPathVolumeSource;

use super::error::{VolumeError, errno};

const ALLOWED: &str =
    "'', Directory, DirectoryOrCreate, File, FileOrCreate, Socket, CharDevice and BlockDevice";

pub(super) fn prepare(volume: &str, source: &HostPathVolumeSource) -> Result<PathBuf, VolumeError> {
    let path = Path::new(&source.path);
    let climbs = path.components().any(|c| c == Component::ParentDir);
    if !path.is_absolute() || climbs || source.path.contains('\0') {
        return Err(VolumeError::HostPath { volume: volume.to_owned(), path: source.path.clone() });
    }
    let wanted = source.path_type.as_deref().unwrap_or("");
    let Some(found) = look(volume, path)? else {
        return match wanted {
            "DirectoryOrCreate" => make_folder(volume, path),
            "FileOrCreate" => make_file(volume, path),
            "" | "Directory" | "File" | "Socket" | "CharDevice" | "BlockDevice" => {
                Err(absent(volume, path, wanted))
            }
            other => Err(bad_type(volume, other)),
        };
    };
    let fits = match wanted {
        "" => true,
        "Directory" | "DirectoryOrCreate" => found.is_dir(),
        "File" | "FileOrCreate" => found.is_file(),
        "Socket" => found.is_socket(),
        "CharDevice" => found.is_char_device(),
        "BlockDevice" => found.is_block_device(),
        other => return Err(bad_type(volume, other)),
    };
    if fits {
        return Ok(path.to_owned());
    }
    Err(VolumeError::WrongType {
        volume: volume.to_owned(),
        path: path.to_owned(),
        wanted: words(wanted).to_owned(),
        found: name(found),
    })
}

/// Type of what the path leads to; `None` where there is nothing (a dangling link counts as nothing).
fn look(volume: &str, path: &Path) -> Result<Option<FileType>, VolumeError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.file_type())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(VolumeError::system(volume, "look at", path)(errno(&e))),
    }
}

fn make_folder(volume: &str, path: &Path) -> Result<PathBuf, VolumeError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|e| VolumeError::system(volume, "make folder", path)(errno(&e)))?;
    // whatever the agent's umask is
    let set = fs::set_permissions(path, Permissions::from_mode(0o755));
    set.map_err(|e| VolumeError::system(volume, "set the mode of", path)(errno(&e)))?;
    Ok(path.to_owned())
}

fn make_file(volume: &str, path: &Path) -> Result<PathBuf, VolumeError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o644).open(path) {
        Ok(file) => file
            .set_permissions(Permissions::from_mode(0o644))
            .map_err(|e| VolumeError::system(volume, "set the mode of", path)(errno(&e)))?,
        // the parent is missing, and nobody asked us to make it
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(absent(volume, path, "FileOrCreate")),
        Err(e) => return Err(VolumeError::system(volume, "make file", path)(errno(&e))),
    }
    Ok(path.to_owned())
}

fn absent(volume: &str, path: &Path, wanted: &str) -> VolumeError {
    let wanted = words(wanted);
    // the first part of the path that is missing
    let watch = path.ancestors().take_while(|p| !p.is_dir()).last().unwrap_or(path);
    VolumeError::Absent {
        volume: volume.to_owned(),
        path: path.to_owned(),
        wanted: wanted.to_owned(),
        watch: watch.to_owned(),
    }
}

fn bad_type(volume: &str, found: &str) -> VolumeError {
    VolumeError::Value {
        volume: volume.to_owned(),
        field: "hostPath type",
        found: found.to_owned(),
        allowed: ALLOWED,
    }
}

fn words(wanted: &str) -> &'static str {
    match wanted {
        "Directory" | "DirectoryOrCreate" => "a folder",
        "File" => "a file",
        "FileOrCreate" => "the folder of the file",
        "Socket" => "a socket",
        "CharDevice" => "a character device",
        "BlockDevice" => "a block device",
        _ => "a file or folder",
    }
}

fn name(found: FileType) -> &'static str {
    match found {
        t if t.is_dir() => "a folder",
        t if t.is_file() => "a file",
        t if t.is_socket() => "a socket",
        t if t.is_char_device() => "a character device",
        t if t.is_block_device() => "a block device",
        t if t.is_fifo() => "a FIFO",
        _ => "something else",
    }
}
