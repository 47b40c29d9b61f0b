//! Who may use an image that somebody else's credentials brought here (`imagePullCredentialsVerificationPolicy`).
//!
//! As in the kubelet: an image pulled with the secret of a pod is given to pods that present the same credentials,
//! or the same secret with new content; others have to pull, which proves their right. What was pulled without
//! credentials or with the node's own is free, and so is what this agent did not pull (by the default policy).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::auth::{Credential, Keyring};
use super::digest::Digest;
use super::error::ImageError;
use super::name::ImageName;
use super::store::Store;

/// The policy, under the kubelet's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerifyPolicy {
    NeverVerify,
    #[default]
    NeverVerifyPreloadedImages,
    /// images that are free though not pulled here: whole names without tag, or `PREFIX/*`
    NeverVerifyAllowlistedImages(Vec<String>),
    AlwaysVerify,
}

impl VerifyPolicy {
    /// The word of the configuration; an unknown one is the default, since it was refused before.
    #[must_use]
    pub fn parse(word: &str, allowlist: &[String]) -> Self {
        match word {
            "NeverVerify" => Self::NeverVerify,
            "NeverVerifyAllowlistedImages" => Self::NeverVerifyAllowlistedImages(allowlist.to_vec()),
            "AlwaysVerify" => Self::AlwaysVerify,
            _ => Self::NeverVerifyPreloadedImages,
        }
    }
}

/// How one image was pulled, by repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AccessFile {
    repositories: BTreeMap<String, Access>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Access {
    /// pulled without a pod's credentials
    free: bool,
    /// digests of credentials
    credentials: BTreeSet<String>,
    /// secrets they were of
    secrets: BTreeSet<String>,
}

fn repository(name: &ImageName) -> String {
    format!("{}/{}", name.registry, name.repository)
}

/// Not the credential, but enough to know it again.
fn fingerprint(credential: &Credential) -> String {
    let parts = match credential {
        Credential::Basic { username, password } => ["basic", username, password],
        Credential::Identity(token) => ["identity", token, ""],
        Credential::Bearer(token) => ["bearer", token, ""],
    };
    Digest::of(parts.join("\0").as_bytes()).to_string()
}

/// Whether a pod with these secrets may use the image without pulling it.
pub(super) fn may_use(
    store: &Store,
    policy: &VerifyPolicy,
    image: &Digest,
    name: &ImageName,
    secrets: &Keyring,
) -> Result<bool, ImageError> {
    if *policy == VerifyPolicy::NeverVerify {
        return Ok(true);
    }
    let repository = repository(name);
    let Some(file) = store.access(image)? else {
        return Ok(match policy {
            VerifyPolicy::NeverVerify | VerifyPolicy::NeverVerifyPreloadedImages => true,
            VerifyPolicy::NeverVerifyAllowlistedImages(list) => {
                list.iter().any(|free| is_listed(free, &repository))
            }
            VerifyPolicy::AlwaysVerify => false,
        });
    };
    // pulled under another name: nothing says that this pod could have
    let Some(access) = file.repositories.get(&repository) else { return Ok(false) };
    let known = |origin: &str, credential: &Credential| {
        access.secrets.contains(origin) || access.credentials.contains(&fingerprint(credential))
    };
    Ok(access.free || secrets.matching(name).any(|(origin, credential)| known(origin, credential)))
}

fn is_listed(pattern: &str, repository: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(prefix) => repository.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')),
        None => pattern == repository,
    }
}

/// Notes a pull; `used`: the credential of the pod that it took, and its secret.
pub(super) fn note_pull(
    store: &Store,
    image: &Digest,
    name: &ImageName,
    used: Option<(&str, &Credential)>,
) -> Result<(), ImageError> {
    let before = store.access(image)?.unwrap_or_default();
    let mut file = before.clone();
    let access = file.repositories.entry(repository(name)).or_default();
    match used {
        None => access.free = true,
        Some((origin, credential)) => {
            access.credentials.insert(fingerprint(credential));
            access.secrets.insert(origin.to_owned());
        }
    }
    if file == before { Ok(()) } else { store.write_access(image, &file) }
}
