//! The JSON of images: OCI index, manifest and config, Docker's forms of the same, read leniently.
//! Sources: OCI image specification 1.1, Docker image manifest v2 schema 2, docker-save `manifest.json`.

use std::collections::BTreeMap;

use podkeep_core::image::Platform;
use serde::{Deserialize, Deserializer, Serialize};

use super::digest::Digest;
use super::error::ImageError;

/// Indexes and manifests larger than this are refused, as registries do.
pub const MANIFEST_LIMIT: u64 = 4 * 1024 * 1024;
/// Configs: history and labels can be long.
pub const CONFIG_LIMIT: u64 = 8 * 1024 * 1024;

pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Annotation with the tag or name of a manifest of a layout.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The full name, written by containerd and docker.
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// `null` reads as the default: Go writes it for empty lists and maps.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A pointer to content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Descriptor {
    #[serde(deserialize_with = "nullable")]
    pub media_type: String,
    #[serde(deserialize_with = "nullable")]
    pub digest: String,
    #[serde(deserialize_with = "nullable")]
    pub size: u64,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<DescriptorPlatform>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DescriptorPlatform {
    #[serde(deserialize_with = "nullable")]
    pub architecture: String,
    #[serde(deserialize_with = "nullable")]
    pub os: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl DescriptorPlatform {
    #[must_use]
    pub fn to_platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }
}

impl Descriptor {
    pub fn digest(&self) -> Result<Digest, ImageError> {
        Digest::parse(&self.digest)
    }

    #[must_use]
    pub fn is_index(&self) -> bool {
        matches!(self.media_type.as_str(), OCI_INDEX | DOCKER_LIST)
    }

    /// Whether it may be an image: attestations and signatures stand in the same lists.
    #[must_use]
    pub fn is_image(&self) -> bool {
        matches!(self.media_type.as_str(), "" | OCI_MANIFEST | DOCKER_MANIFEST)
            && self
                .annotations
                .get("vnd.docker.reference.type")
                .is_none_or(|kind| kind != "attestation-manifest")
    }
}

/// An index and a manifest in one: which of the two is told by what is filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Manifest {
    #[serde(deserialize_with = "nullable")]
    pub schema_version: u32,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Descriptor>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Descriptor>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Descriptor>,
}

/// The value of a set written as a map: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// What runs, of the image config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// paths, as keys
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, Empty>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The whole config, whose digest is the image's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub architecture: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub variant: String,
    #[serde(deserialize_with = "nullable")]
    pub os: String,
    #[serde(deserialize_with = "nullable")]
    pub config: ImageConfig,
    #[serde(deserialize_with = "nullable")]
    pub rootfs: RootFs,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RootFs {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub diff_ids: Vec<String>,
}

impl ConfigFile {
    pub fn diff_ids(&self) -> Result<Vec<Digest>, ImageError> {
        self.rootfs.diff_ids.iter().map(|text| Digest::parse(text)).collect()
    }

    #[must_use]
    pub fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }
}

/// One image of a docker-save archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DockerImage {
    #[serde(deserialize_with = "nullable")]
    pub config: String,
    #[serde(deserialize_with = "nullable")]
    pub repo_tags: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub layers: Vec<String>,
}

/// Reads JSON of a foreign hand; `what` names it in errors.
pub fn parse<'a, T: Deserialize<'a>>(what: &str, text: &'a [u8]) -> Result<T, ImageError> {
    serde_json::from_slice(text).map_err(|e| ImageError::json(what, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_unknown_keys_of_go_programs_are_read() {
        let text = br#"{"created":null,"architecture":"amd64","os":"linux","history":[{"x":1}],
            "config":{"Env":null,"Cmd":["sh"],"Entrypoint":null,"Volumes":{"/data":{}},"OnBuild":null,"Labels":null},
            "rootfs":{"type":"layers","diff_ids":null}}"#;
        let config: ConfigFile = parse("config", text).unwrap();
        assert_eq!(config.config.cmd, ["sh"]);
        assert!(config.config.volumes.contains_key("/data"));
        assert!(config.diff_ids().unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_place() {
        let error = parse::<Manifest>("index.json", b"{\n \"layers\": 7}").unwrap_err();
        assert!(matches!(&error, ImageError::Json { line: 2, .. }), "{error}");
        assert!(error.to_string().starts_with("index.json: line 2, column "), "{error}");
    }
}
