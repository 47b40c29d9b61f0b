//! emptyDir: a folder that lives as long as the pod, on disk, in memory or in huge pages.
//!
//! Everybody may write (0777). With `fsGroup` the folder has that group and hands it down (setgid), which needs no walk:
//! it is empty. `fsGroupChangePolicy` is for volumes that bring content along; none of our kinds does.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::Gid;
use podkeep_core::resources;
use podkeep_core::types::{EmptyDirVolumeSource, Quantity, value};

use super::error::{VolumeError, errno};
use super::{Context, kind};

/// Mode of the folder; `fsGroup` adds setgid.
const MODE: u32 = 0o777;
const SETGID: u32 = 0o2000;

/// The group gets what everybody has, and new entries get the group.
const fn with_group(mode: u32) -> u32 {
    mode | SETGID | (mode & 0o7) << 3
}

pub(super) fn prepare(
    ctx: &Context<'_>,
    volume: &str,
    source: &EmptyDirVolumeSource,
) -> Result<PathBuf, VolumeError> {
    let dir = ctx.dir(kind::EMPTY_DIR, volume);
    match source.medium.as_str() {
        "" => on_disk(ctx, volume, &dir, MODE)?,
        "Memory" => in_memory(ctx, volume, &dir, memory_size(ctx, source.size_limit.as_ref()), MODE)?,
        medium => {
            let size = page_size(ctx, volume, medium)?;
            in_huge_pages(ctx, volume, &dir, size)?;
        }
    }
    Ok(dir)
}

/// The smallest of the volume's own limit, the pod's memory limit (as its cgroup has it) and what the node can give.
pub(super) fn memory_size(ctx: &Context<'_>, limit: Option<&Quantity>) -> u64 {
    // the period does not matter for memory
    let pod = resources::pod_cgroup(ctx.pod(), 100_000, false).memory_max;
    let own = limit.map(Quantity::bytes);
    [pod, own].into_iter().flatten().filter(|bytes| *bytes > 0).fold(ctx.allocatable_memory, u64::min)
}

/// Bytes of a page: from the medium, or from the one size that the containers ask for.
fn page_size(ctx: &Context<'_>, volume: &str, medium: &str) -> Result<u64, VolumeError> {
    let bad = || VolumeError::Value {
        volume: volume.to_owned(),
        field: "emptyDir medium",
        found: medium.to_owned(),
        allowed: "'', Memory, HugePages and HugePages-SIZE",
    };
    let parse = |size: &str| size.parse::<Quantity>().ok().map(|q| q.bytes()).filter(|b| *b > 0);
    if let Some(size) = medium.strip_prefix("HugePages-") {
        return parse(size).ok_or_else(bad);
    }
    if medium != "HugePages" {
        return Err(bad());
    }
    let spec = &ctx.pod().spec;
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let names = containers.flat_map(|c| c.resources.limits.keys().chain(c.resources.requests.keys()));
    let mut sizes: Vec<u64> =
        names.filter_map(|n| n.strip_prefix(value::HUGEPAGES_PREFIX)).filter_map(parse).collect();
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.as_slice() {
        [size] => Ok(*size),
        _ => Err(VolumeError::HugePageSize { volume: volume.to_owned() }),
    }
}

/// Made under another name and renamed when it is complete: a folder that is there is ready, whatever its users have
/// done to it since.
pub(super) fn on_disk(ctx: &Context<'_>, volume: &str, dir: &Path, mode: u32) -> Result<(), VolumeError> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = make_parent(volume, dir)?;
    let new = parent.join(format!(".new-{volume}"));
    let step = |step| move |e: std::io::Error| VolumeError::system(volume, step, dir)(errno(&e));
    match DirBuilder::new().mode(0o700).create(&new) {
        // left by a crash; nobody has seen it
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.map_err(step("make folder"))?,
    }
    let mode = match ctx.fs_group() {
        Some(group) => {
            let owned = nix::unistd::chown(&new, None, Some(Gid::from_raw(group)));
            owned.map_err(VolumeError::system(volume, "set the group of", dir))?;
            with_group(mode)
        }
        None => mode,
    };
    fs::set_permissions(&new, Permissions::from_mode(mode)).map_err(step("set the mode of"))?;
    fs::rename(&new, dir).map_err(step("make folder"))
}

/// A tmpfs of at most `size` bytes, without swap where the kernel can (6.3).
pub(super) fn in_memory(
    ctx: &Context<'_>,
    volume: &str,
    dir: &Path,
    size: u64,
    mode: u32,
) -> Result<(), VolumeError> {
    let options = format!("size={size},{}", ownership(ctx, mode));
    mount_on(volume, dir, "tmpfs", &[format!("{options},noswap"), options])
}

fn in_huge_pages(ctx: &Context<'_>, volume: &str, dir: &Path, page: u64) -> Result<(), VolumeError> {
    mount_on(volume, dir, "hugetlbfs", &[format!("pagesize={page},{}", ownership(ctx, MODE))])
}

fn ownership(ctx: &Context<'_>, mode: u32) -> String {
    match ctx.fs_group() {
        Some(group) => format!("mode={:o},gid={group}", with_group(mode)),
        None => format!("mode={mode:o}"),
    }
}

/// Mounts with the first options the kernel takes; what is mounted already stays.
fn mount_on(volume: &str, dir: &Path, kind: &str, options: &[String]) -> Result<(), VolumeError> {
    let parent = make_parent(volume, dir)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let device = |path: &Path| fs::metadata(path).map(|m| m.dev());
            if let (Ok(own), Ok(above)) = (device(dir), device(&parent))
                && own != above
            {
                return Ok(());
            }
        }
        made => made.map_err(|e| VolumeError::system(volume, "make folder", dir)(errno(&e)))?,
    }
    let mut done = Err(Errno::EINVAL);
    for data in options {
        done = mount(Some(kind), dir, Some(kind), MsFlags::empty(), Some(data.as_str()));
        if done != Err(Errno::EINVAL) {
            break;
        }
    }
    done.map_err(VolumeError::system(volume, "mount", dir))
}

fn make_parent(volume: &str, dir: &Path) -> Result<PathBuf, VolumeError> {
    let parent = dir.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o750).create(parent);
    made.map_err(|e| VolumeError::system(volume, "make folder", parent)(errno(&e)))?;
    Ok(parent.to_owned())
}
