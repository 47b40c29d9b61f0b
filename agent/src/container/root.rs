//! The root file system: an overlay of the layers (or a plain copy), and the step into it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, fchdir, pivot_root};
use podkeep_hal::linux::sys::mount::{self as tree, FsContext};

use super::layer_copy;
use super::mounts::{Detached, UserNs, restrict, text};
use super::report::{At, failed};
use super::resolve::open_host;
use super::spec::RootSpec;
use crate::supervisor::proto::Failure;

/// Longest value one `fsconfig` takes.
const MAX_VALUE: usize = 255;
/// Option strings of the old mount call must fit a page with their end.
const MAX_OPTIONS: usize = 4095;

/// Makes the root and attaches it at `place`, a folder on a private mount of our own namespace.
pub(super) fn make(spec: &RootSpec, user: Option<&UserNs<'_>>, place: &Path) -> Result<OwnedFd, Failure> {
    if spec.layers.is_empty() {
        return Err(failed("root", "no layers", Errno::EINVAL));
    }
    let fresh = prepare_upper(spec, user)?;
    let root = if spec.copy {
        if fresh {
            layer_copy::copy_layers(&spec.layers, &spec.upper, user.map(|user| user.map))?;
        }
        open_host(&spec.upper).and_then(|at| tree::clone_tree(at.as_fd(), true)).at("root", &spec.upper)?
    } else {
        let layers = match user {
            Some(user) => mapped_layers(&spec.layers, user, place)?,
            None => spec.layers.clone(),
        };
        match overlay(spec, &layers) {
            Ok(root) => root,
            Err(Errno::EINVAL | Errno::ENOSYS) => return overlay_the_old_way(spec, &layers, place),
            Err(errno) => return Err(failed("overlay", &spec.upper, errno)),
        }
    };
    let root = Detached::plain(root);
    let target = open_host(place).at("open", place)?;
    root.attach(target.as_fd()).at("root", place)?;
    Ok(root.fd)
}

/// Makes `upper` (and `work`) when they are missing; the root folder looks like that of the topmost layer. Tells
/// whether `upper` is new.
fn prepare_upper(spec: &RootSpec, user: Option<&UserNs<'_>>) -> Result<bool, Failure> {
    if !spec.copy {
        make_folder(&spec.work)?;
    }
    if !make_folder(&spec.upper)? {
        return Ok(false);
    }
    if let Some(top) = spec.layers.last() {
        let meta = std::fs::metadata(top).at("layer", top)?;
        let base = user.map_or(0, |user| user.map.host_base);
        let (uid, gid) = (meta.uid().saturating_add(base), meta.gid().saturating_add(base));
        if uid != 0 || gid != 0 {
            chown(&spec.upper, Some(uid), Some(gid)).at("chown", &spec.upper)?;
        }
        let mode = std::fs::Permissions::from_mode(meta.mode() & 0o7777);
        std::fs::set_permissions(&spec.upper, mode).at("chmod", &spec.upper)?;
    }
    Ok(true)
}

fn make_folder(path: &Path) -> Result<bool, Failure> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        other => other.map(|()| true).at("mkdir", path),
    }
}

/// `lowerdir+` takes one layer a call (kernel 6.5); `EINVAL` before that.
fn overlay(spec: &RootSpec, layers: &[PathBuf]) -> nix::Result<OwnedFd> {
    let context = FsContext::open(c"overlay")?;
    context.set(c"source", c"overlay")?;
    let mut held = Vec::new();
    let mut value = |path: &Path| -> nix::Result<std::ffi::CString> {
        let name = path.to_str().ok_or(Errno::EINVAL)?;
        if name.len() <= MAX_VALUE {
            return text(name);
        }
        let fd = open_host(path)?;
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        held.push(fd);
        text(&name)
    };
    for layer in layers.iter().rev() {
        context.set(c"lowerdir+", &value(layer)?)?;
    }
    context.set(c"upperdir", &value(&spec.upper)?)?;
    context.set(c"workdir", &value(&spec.work)?)?;
    context.mount(0)
}

/// One option string for all, with short names where the long ones do not fit.
fn overlay_the_old_way(spec: &RootSpec, layers: &[PathBuf], place: &Path) -> Result<OwnedFd, Failure> {
    let plain = |path: &Path| path.to_string_lossy().into_owned();
    let mut options = overlay_options(
        layers.iter().rev().map(|layer| plain(layer)),
        &plain(&spec.upper),
        &plain(&spec.work),
    );
    let mut held = Vec::new();
    let awkward =
        layers.iter().chain([&spec.upper, &spec.work]).any(|path| plain(path).contains([':', ',', '\\']));
    if options.len() > MAX_OPTIONS || awkward {
        let mut short = |path: &Path| -> Result<String, Failure> {
            let fd = open_host(path).at("layer", path)?;
            let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
            held.push(fd);
            Ok(name)
        };
        let lower = layers.iter().rev().map(|layer| short(layer)).collect::<Result<Vec<_>, _>>()?;
        options = overlay_options(lower.into_iter(), &short(&spec.upper)?, &short(&spec.work)?);
    }
    if options.len() > MAX_OPTIONS {
        return Err(failed("overlay", format!("{} layers", layers.len()), Errno::E2BIG));
    }
    mount(Some("overlay"), place, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .at("overlay", &spec.upper)?;
    open_host(place).at("open", place)
}

fn overlay_options(lower: impl Iterator<Item = String>, upper: &str, work: &str) -> String {
    let lower: Vec<String> = lower.collect();
    format!("lowerdir={},upperdir={upper},workdir={work}", lower.join(":"))
}

/// Copies of the layers seen through the user namespace, attached below a small tmpfs at `place`.
fn mapped_layers(layers: &[PathBuf], user: &UserNs<'_>, place: &Path) -> Result<Vec<PathBuf>, Failure> {
    let context = FsContext::open(c"tmpfs").at("mount", "tmpfs")?;
    let scratch = context.mount(0).at("mount", "tmpfs")?;
    tree::attach(scratch.as_fd(), open_host(place).at("open", place)?.as_fd()).at("mount", place)?;
    let mut mapped = Vec::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        let folder = place.join(index.to_string());
        std::fs::create_dir(&folder).at("mkdir", &folder)?;
        let copy = open_host(layer).and_then(|at| tree::clone_tree(at.as_fd(), false)).at("layer", layer)?;
        tree::set_idmap(copy.as_fd(), user.fd).at("idmapped layer (hostUsers: false needs it)", layer)?;
        tree::attach(copy.as_fd(), open_host(&folder).at("open", &folder)?.as_fd()).at("layer", layer)?;
        mapped.push(folder);
    }
    Ok(mapped)
}

/// Makes the root ours and lets go of the old one.
pub(super) fn enter(root: &OwnedFd) -> Result<(), Failure> {
    fchdir(root).at("chdir", "new root")?;
    pivot_root(".", ".").at("pivot_root", "new root")?;
    // the old root lies on top of the new one now
    umount2(".", MntFlags::MNT_DETACH).at("umount", "old root")?;
    chdir("/").at("chdir", "/")
}

/// Only the root itself: mounts below it say for themselves.
pub(super) fn make_readonly(root: &OwnedFd) -> Result<(), Failure> {
    restrict(root.as_fd(), tree::ATTR_RDONLY).at("read-only root", "/")
}
