//! image: the layers of an image as a read-only folder from which nothing can be executed.

use std::fs::{self, DirBuilder};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use super::error::{VolumeError, errno};
use super::kind;

/// Mounts the layers (the lowest first) and answers the folder; what is mounted already stays.
///
/// # Errors
/// What the kernel says; `ENODEV` without overlayfs.
pub fn mount_image(pod_dir: &Path, volume: &str, layers: &[PathBuf]) -> Result<PathBuf, VolumeError> {
    let parent = pod_dir.join("volumes").join(kind::IMAGE);
    let dir = parent.join(volume);
    // overlayfs wants two folders where nothing is written
    let empty = parent.join(".empty");
    for folder in [&dir, &empty] {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(|e| VolumeError::system(volume, "make folder", folder)(errno(&e)))?;
    }
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev());
    if let (Ok(own), Ok(above)) = (device(&dir), device(&parent))
        && own != above
    {
        return Ok(dir);
    }
    // by descriptor: paths of many layers do not fit the page that options may take
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let open_layer = |layer: &PathBuf| {
        open(layer, flags, Mode::empty()).map_err(VolumeError::system(volume, "open", layer))
    };
    let held = layers.iter().rev().chain([&empty]).map(open_layer).collect::<Result<Vec<OwnedFd>, _>>()?;
    let names: Vec<String> = held.iter().map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd())).collect();
    let options = format!("lowerdir={}", names.join(":"));
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("overlay"), &dir, Some("overlay"), flags, Some(options.as_str()))
        .map_err(VolumeError::system(volume, "mount", &dir))?;
    Ok(dir)
}
