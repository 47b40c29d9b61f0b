//! What the files of configMap, secret, downwardAPI and projected volumes hold.

use std::collections::BTreeMap;

use podkeep_core::defaults::DEFAULT_MODE;
use podkeep_core::expand::downward;
use podkeep_core::types::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath, ObjectProjection,
    ProjectedVolumeSource, SecretVolumeSource,
};

use super::Context;
use super::error::VolumeError;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) data: Vec<u8>,
    /// permission bits
    pub(super) mode: u32,
}

/// Files by path inside the volume.
pub(super) type Payload = BTreeMap<String, File>;

/// A bit pattern from the API; validation has limited it to 0777.
fn mode(own: Option<i32>, default: Option<i32>) -> u32 {
    u32::try_from(own.or(default).unwrap_or(DEFAULT_MODE)).unwrap_or(0) & 0o777
}

/// One ConfigMap or Secret, whole or by items.
struct Wanted<'a> {
    volume: &'a str,
    kind: &'static str,
    name: &'a str,
    items: &'a [KeyToPath],
    optional: bool,
    default_mode: Option<i32>,
}

impl Wanted<'_> {
    /// `data`: content by key; `None`: the object is not there.
    fn files(&self, data: Option<BTreeMap<&str, &[u8]>>) -> Result<Payload, VolumeError> {
        let volume = || self.volume.to_owned();
        let Some(data) = data else {
            if self.optional {
                return Ok(Payload::new());
            }
            return Err(VolumeError::NoObject {
                volume: volume(),
                kind: self.kind,
                name: self.name.to_owned(),
            });
        };
        let file = |data: &[u8], own| File { data: data.to_vec(), mode: mode(own, self.default_mode) };
        if self.items.is_empty() {
            return Ok(data.into_iter().map(|(key, data)| (key.to_owned(), file(data, None))).collect());
        }
        let mut files = Payload::new();
        for item in self.items {
            match data.get(item.key.as_str()) {
                Some(data) => {
                    files.insert(item.path.clone(), file(data, item.mode));
                }
                None if self.optional => {}
                None => {
                    let (name, key) = (self.name.to_owned(), item.key.clone());
                    return Err(VolumeError::NoKey { volume: volume(), kind: self.kind, name, key });
                }
            }
        }
        Ok(files)
    }

    fn config_map(&self, ctx: &Context<'_>) -> Result<Payload, VolumeError> {
        let map = ctx.objects.config_map(self.name);
        self.files(map.map(|map| {
            let text = map.data.iter().map(|(k, v)| (k.as_str(), v.as_bytes()));
            text.chain(map.binary_data.iter().map(|(k, v)| (k.as_str(), v.0.as_slice()))).collect()
        }))
    }

    fn secret(&self, ctx: &Context<'_>) -> Result<Payload, VolumeError> {
        let secret = ctx.objects.secret(self.name);
        self.files(secret.map(|secret| {
            let data = secret.data.iter().map(|(k, v)| (k.as_str(), v.0.as_slice()));
            // the API server folds stringData into data, and it wins
            data.chain(secret.string_data.iter().map(|(k, v)| (k.as_str(), v.as_bytes()))).collect()
        }))
    }
}

pub(super) fn config_map(
    ctx: &Context<'_>,
    volume: &str,
    source: &ConfigMapVolumeSource,
) -> Result<Payload, VolumeError> {
    let wanted = Wanted {
        volume,
        kind: "ConfigMap",
        name: &source.name,
        items: &source.items,
        optional: source.optional.unwrap_or(false),
        default_mode: source.default_mode,
    };
    wanted.config_map(ctx)
}

pub(super) fn secret(
    ctx: &Context<'_>,
    volume: &str,
    source: &SecretVolumeSource,
) -> Result<Payload, VolumeError> {
    let wanted = Wanted {
        volume,
        kind: "Secret",
        name: &source.secret_name,
        items: &source.items,
        optional: source.optional.unwrap_or(false),
        default_mode: source.default_mode,
    };
    wanted.secret(ctx)
}

pub(super) fn downward_api(
    ctx: &Context<'_>,
    volume: &str,
    source: &DownwardAPIVolumeSource,
) -> Result<Payload, VolumeError> {
    fields(ctx, volume, &source.items, source.default_mode)
}

fn fields(
    ctx: &Context<'_>,
    volume: &str,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, VolumeError> {
    let file = |item: &DownwardAPIVolumeFile| {
        let data = field(ctx, volume, item)?.into_bytes();
        Ok((item.path.clone(), File { data, mode: mode(item.mode, default_mode) }))
    };
    items.iter().map(file).collect()
}

fn field(ctx: &Context<'_>, volume: &str, item: &DownwardAPIVolumeFile) -> Result<String, VolumeError> {
    let failed = |error| VolumeError::Field { volume: volume.to_owned(), error };
    if let Some(field) = &item.field_ref {
        return downward::field(ctx.facts, &field.field_path).map_err(failed);
    }
    let Some(wanted) = &item.resource_field_ref else { return Ok(String::new()) };
    let container = ctx.facts.container(&wanted.container_name).ok_or_else(|| VolumeError::NoContainer {
        volume: volume.to_owned(),
        container: wanted.container_name.clone(),
    })?;
    let divisor = wanted.divisor.unwrap_or_default();
    downward::resource(&container.resources, &wanted.resource, divisor, ctx.facts.allocatable).map_err(failed)
}

/// Several sources in one folder; where two have the same file, the later one has it.
pub(super) fn projected(
    ctx: &Context<'_>,
    volume: &str,
    source: &ProjectedVolumeSource,
) -> Result<Payload, VolumeError> {
    let mut all = Payload::new();
    for part in &source.sources {
        let wanted = |kind, object: &'_ ObjectProjection| (kind, object.optional.unwrap_or(false));
        if let Some(object) = &part.config_map {
            let (kind, optional) = wanted("ConfigMap", object);
            let (name, items, default_mode) =
                (object.name.as_str(), object.items.as_slice(), source.default_mode);
            all.extend(Wanted { volume, kind, name, items, optional, default_mode }.config_map(ctx)?);
        }
        if let Some(object) = &part.secret {
            let (kind, optional) = wanted("Secret", object);
            let (name, items, default_mode) =
                (object.name.as_str(), object.items.as_slice(), source.default_mode);
            all.extend(Wanted { volume, kind, name, items, optional, default_mode }.secret(ctx)?);
        }
        if let Some(api) = &part.downward_api {
            all.extend(fields(ctx, volume, &api.items, source.default_mode)?);
        }
        let bundle = part.cluster_trust_bundle.as_ref().is_some_and(|b| b.optional != Some(true));
        if part.service_account_token.is_some() || part.pod_certificate.is_some() || bundle {
            return Err(VolumeError::Unsupported { volume: volume.to_owned() });
        }
    }
    Ok(all)
}
