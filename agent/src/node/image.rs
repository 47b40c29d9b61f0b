//! The image of a container and the user it runs as: policy by the core, content by the store.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use podkeep_core::image::{PullAction, PullPolicy, PullReason, decide};
use podkeep_core::types::{Container, Pod};

use super::Node;
use super::act::{Blocked, Image};
use crate::clock;
use crate::container::build::{ImageDefaults, User};
use crate::image::auth::Keyring;
use crate::image::user::resolve_user;
use crate::image::{ImageError, ImageRecord, Progress};

/// With policy Never, or after a refusal, nothing changes by itself: a load wakes those that wait. This is the net below.
const LOOK_AGAIN: u64 = 300 * 1_000_000_000;

impl From<ImageRecord> for Image {
    fn from(record: ImageRecord) -> Self {
        let config = record.config;
        let digest = record.manifest.as_ref().map_or_else(
            || record.id.to_string(),
            |manifest| format!("{}@{manifest}", record.name.split(['@']).next().unwrap_or_default()),
        );
        Self {
            id: digest,
            layers: record.layers,
            defaults: ImageDefaults {
                entrypoint: config.entrypoint,
                cmd: config.cmd,
                env: config.env,
                working_dir: config.working_dir,
            },
            user: config.user,
            stop_signal: Some(config.stop_signal).filter(|signal| !signal.is_empty()),
        }
    }
}

fn blocked(reason: PullReason, message: String, retry_at: u64) -> Blocked {
    Blocked { reason: reason.as_str(), message, retry_at: Some(retry_at), ended: false }
}

fn reason(error: &ImageError) -> PullReason {
    match error {
        ImageError::InvalidName { .. } => PullReason::InvalidImageName,
        ImageError::NotFound { .. } => PullReason::ErrImagePull,
        _ => PullReason::ImageInspectError,
    }
}

/// The image, present and complete, or why the container waits.
pub async fn for_container(node: &Rc<Node>, pod: &Pod, container: &Container) -> Result<Image, Blocked> {
    by_name(node, pod, &container.image, &container.image_pull_policy).await
}

/// The same for any image of the pod, by its name and pull policy.
pub async fn by_name(node: &Rc<Node>, pod: &Pod, name: &str, policy: &str) -> Result<Image, Blocked> {
    let now = clock::now().boot;
    let found = node
        .images
        .find(name, &secrets(node, pod), &Arc::default())
        .await
        .map_err(|error| blocked(reason(&error), error.to_string(), now.saturating_add(LOOK_AGAIN)))?;
    let policy = PullPolicy::parse(policy).unwrap_or(PullPolicy::IfNotPresent);
    let uid = pod.metadata.uid.as_str();
    let until = node.pull_backoff.borrow().blocked_until(uid, name, Duration::from_nanos(now));
    match decide(name, policy, found.is_some(), until) {
        PullAction::Use => found.map(Image::from).ok_or_else(|| Blocked::create("image is gone")),
        PullAction::Wait { until, reason, message } => {
            Err(blocked(reason, message, u64::try_from(until.as_nanos()).unwrap_or(u64::MAX)))
        }
        PullAction::Refuse { reason, message } => {
            Err(blocked(reason, message, now.saturating_add(LOOK_AGAIN)))
        }
        PullAction::Pull => {
            match node.images.ensure(name, policy, &secrets(node, pod), Arc::new(Progress::default())).await {
                Ok(record) => Ok(record.into()),
                Err(error) => {
                    let now = Duration::from_nanos(clock::now().boot);
                    let until = node.pull_backoff.borrow_mut().failed(uid, name, now);
                    let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
                    let reason = if matches!(error, ImageError::InvalidName { .. }) {
                        PullReason::InvalidImageName
                    } else {
                        PullReason::ErrImagePull
                    };
                    Err(blocked(reason, error.to_string(), until))
                }
            }
        }
    }
}

/// `imagePullSecrets` of the pod, from the Secrets of this node. One that is missing or unreadable is left out, as the
/// kubelet does: the image may be public.
fn secrets(node: &Node, pod: &Pod) -> Keyring {
    let mut keyring = Keyring::default();
    let objects = node.objects.borrow();
    for reference in &pod.spec.image_pull_secrets {
        let name = format!("{}/{}", pod.metadata.namespace, reference.name);
        let Some(secret) = objects.secrets.get(&name) else {
            log::warn!("image pull secret '{name}' of pod '{}' is not here", pod.metadata.name);
            continue;
        };
        for key in [".dockerconfigjson", ".dockercfg"] {
            if let Some(bytes) = secret.data.get(key)
                && let Err(error) = keyring.add(&name, &bytes.0)
            {
                log::warn!("image pull secret '{name}': {error}");
            }
        }
    }
    keyring
}

/// Who the program runs as, and the refusal of root where the manifest wants another.
pub fn user(pod: &Pod, container: &Container, image: &Image) -> Result<User, Blocked> {
    let own = container.security_context.as_deref();
    let of_pod = pod.spec.security_context.as_deref();
    let number = |value: i64| u32::try_from(value).ok();
    let run_as_user = own.and_then(|c| c.run_as_user).or_else(|| of_pod.and_then(|p| p.run_as_user));
    let run_as_group = own.and_then(|c| c.run_as_group).or_else(|| of_pod.and_then(|p| p.run_as_group));
    let non_root = own.and_then(|c| c.run_as_non_root).or_else(|| of_pod.and_then(|p| p.run_as_non_root));
    let found =
        resolve_user(&image.layers, &image.user, run_as_user.and_then(number), run_as_group.and_then(number))
            .map_err(Blocked::config)?;
    if non_root == Some(true) {
        if found.by_name {
            return Err(Blocked::config(format!(
                "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root",
                image.user
            )));
        }
        if found.uid == 0 {
            return Err(Blocked::config(
                "container has runAsNonRoot and image will run as root (set runAsUser)",
            ));
        }
    }
    let mut groups: Vec<u32> = Vec::new();
    if of_pod.and_then(|p| p.supplemental_groups_policy.as_deref()) != Some("Strict") {
        groups.extend(&found.image_groups);
    }
    if let Some(security) = of_pod {
        groups.extend(
            security.supplemental_groups.iter().chain(&security.fs_group).filter_map(|gid| number(*gid)),
        );
    }
    groups.push(found.gid);
    groups.sort_unstable();
    groups.dedup();
    Ok(User { uid: found.uid, gid: found.gid, groups, home: found.home })
}
