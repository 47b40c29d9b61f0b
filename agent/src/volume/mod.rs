//! Volumes of a pod as folders and files of the host: one file a kind.
//!
//! [`prepare`] is idempotent: it makes what is missing, leaves what is there, and brings the files of projected
//! kinds up to date, so it also runs at every look at a pod. [`teardown`] takes the pod's whole folder away.
//!
//! Kinds: `hostPath`, `emptyDir` (disk, memory, huge pages), `configMap`, `secret`, `downwardAPI`, `projected`, and `image`,
//! which [`prepare`] only names: [`mount_image`] makes it when its layers are there. The rest is refused by validation before a pod comes here.

mod atomic;
mod empty_dir;
mod error;
mod host_path;
mod image;
mod payload;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use podkeep_core::expand::downward::Facts;
use podkeep_core::expand::env::Objects;
use podkeep_core::types::{Pod, Volume};
use podkeep_hal::linux::tree::{self, TreeError};

pub use error::VolumeError;
pub use image::mount_image;

/// Folder of a kind below `<pod folder>/volumes`, the names the kubelet uses.
pub(crate) mod kind {
    pub(crate) const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
    pub(crate) const CONFIG_MAP: &str = "kubernetes.io~configmap";
    pub(crate) const SECRET: &str = "kubernetes.io~secret";
    pub(crate) const DOWNWARD_API: &str = "kubernetes.io~downward-api";
    pub(crate) const PROJECTED: &str = "kubernetes.io~projected";
    pub(crate) const IMAGE: &str = "kubernetes.io~image";
}

/// What is known where volumes are made.
pub struct Context<'a> {
    /// the pod with its final name and uid, and what the downward API tells
    pub facts: &'a Facts<'a>,
    /// ConfigMaps and Secrets the node serves
    pub objects: &'a dyn Objects,
    /// `<state-dir>/pods/<uid>`
    pub pod_dir: &'a Path,
    /// bytes; the most a volume in memory may take
    pub allocatable_memory: u64,
}

impl Context<'_> {
    fn pod(&self) -> &Pod {
        self.facts.pod
    }

    /// `fsGroup` of the pod, as a group id of the host.
    fn fs_group(&self) -> Option<u32> {
        let context = self.pod().spec.security_context.as_ref()?;
        u32::try_from(context.fs_group?).ok()
    }

    fn dir(&self, kind: &str, volume: &str) -> PathBuf {
        self.pod_dir.join("volumes").join(kind).join(volume)
    }
}

/// A volume that can be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedVolume {
    pub name: String,
    pub source: VolumeSource,
    /// the content is the agent's: mounts are read-only whatever they ask for
    pub read_only: bool,
}

/// Where the content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// a folder, file, socket or device of the host
    Path(PathBuf),
    /// an image, for [`mount_image`]
    Image { reference: String, pull_policy: String },
}

/// Makes all volumes of the pod.
///
/// # Errors
/// The first that is not ready, with the reason for waiting and, where its appearance can be watched, the path to watch.
pub fn prepare(ctx: &Context<'_>) -> Result<Vec<PreparedVolume>, VolumeError> {
    ctx.pod().spec.volumes.iter().map(|volume| prepare_one(ctx, volume)).collect()
}

fn prepare_one(ctx: &Context<'_>, volume: &Volume) -> Result<PreparedVolume, VolumeError> {
    let name = volume.name.as_str();
    // names of volumes become names of folders
    if !podkeep_core::validation::names::is_dns_label(name) {
        return Err(VolumeError::Name { volume: name.to_owned() });
    }
    let path = |path| Ok((VolumeSource::Path(path), false));
    let content = |path| Ok((VolumeSource::Path(path), true));
    let (source, read_only) = if let Some(host) = &volume.host_path {
        path(host_path::prepare(name, host)?)
    } else if let Some(empty) = &volume.empty_dir {
        path(empty_dir::prepare(ctx, name, empty)?)
    } else if let Some(map) = &volume.config_map {
        let payload = payload::config_map(ctx, name, map)?;
        content(atomic::volume(ctx, kind::CONFIG_MAP, name, &payload)?)
    } else if let Some(secret) = &volume.secret {
        let payload = payload::secret(ctx, name, secret)?;
        content(atomic::volume_in_memory(ctx, kind::SECRET, name, &payload)?)
    } else if let Some(api) = &volume.downward_api {
        let payload = payload::downward_api(ctx, name, api)?;
        content(atomic::volume_in_memory(ctx, kind::DOWNWARD_API, name, &payload)?)
    } else if let Some(projected) = &volume.projected {
        let payload = payload::projected(ctx, name, projected)?;
        content(atomic::volume_in_memory(ctx, kind::PROJECTED, name, &payload)?)
    } else if let Some(image) = &volume.image {
        let image = VolumeSource::Image {
            reference: image.reference.clone(),
            pull_policy: image.pull_policy.clone(),
        };
        Ok((image, true))
    } else {
        Err(VolumeError::Unsupported { volume: name.to_owned() })
    }?;
    Ok(PreparedVolume { name: name.to_owned(), source, read_only })
}

/// Takes the pod's folder (`<state-dir>/pods/<uid>`) away: mounts first, a busy one is detached; nothing behind a mount
/// is ever removed. A missing folder is success.
///
/// # Errors
/// What is in the way: to be told once and tried again with growing pauses.
pub fn teardown(pod_dir: &Path) -> Result<(), TreeError> {
    tree::take_down(pod_dir)
}

/// Removes a folder of the agent's that has no mounts of pods in it (logs, demo); a failure is logged.
pub fn remove_tree(dir: &Path) {
    if let Err(error) = tree::remove(dir) {
        log::warn!("{error}");
    }
}
