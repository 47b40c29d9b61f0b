//! Validation on create, with field paths, as the API server's. The pod must have its defaults filled in.
//!
//! Two rules are ours: an amount of memory under one byte is refused, and a sidecar must not take the host port of
//! another container.
mod container;
mod handlers;
mod metadata;
mod mounts;
pub mod names;
pub mod report;
mod resources;
mod scheduling;
mod security;
mod spec;
mod storage;
pub mod volumes;

pub use report::{FieldError, Kind, Path, Report};

use crate::types::{ConfigMap, ObjectMeta, Pod, Secret, object::Map};
use alloc::vec::Vec;

/// The largest sum of the values of a ConfigMap or Secret, in bytes.
pub const OBJECT_MAX: usize = 1 << 20;

/// All faults of a pod whose defaults are filled in.
pub fn pod(pod: &Pod) -> Vec<FieldError> {
    let mut report = Report::default();
    let (meta, spec) = (Path::root("metadata"), Path::root("spec"));
    metadata::object(&mut report, &pod.metadata, names::is_dns_subdomain, &meta);
    metadata::pod_annotations(&mut report, pod, &meta.child("annotations"));
    spec::pod(&mut report, pod, &spec);
    report.errors
}

/// All faults of a ConfigMap.
pub fn config_map(map: &ConfigMap) -> Vec<FieldError> {
    let mut report = Report::default();
    let size = keys(&mut report, &map.data, &Path::root("data"));
    let binary = keys(&mut report, &map.binary_data, &Path::root("binaryData"));
    for key in map.binary_data.keys().filter(|k| map.data.contains_key(*k)) {
        let data = Path::root("data");
        report.invalid(&data.key(key), key, "duplicate of key present in binaryData");
    }
    stored(&mut report, &map.metadata, size.saturating_add(binary), "");
    report.errors
}

/// All faults of a Secret.
pub fn secret(secret: &Secret) -> Vec<FieldError> {
    let mut report = Report::default();
    let size = keys(&mut report, &secret.data, &Path::root("data"));
    let plain = keys(&mut report, &secret.string_data, &Path::root("stringData"));
    stored(&mut report, &secret.metadata, size.saturating_add(plain), "data");
    report.errors
}

fn stored(report: &mut Report, meta: &ObjectMeta, size: usize, field: &str) {
    metadata::object(report, meta, names::is_dns_subdomain, &Path::root("metadata"));
    if size > OBJECT_MAX {
        report.too_long(&Path::root(field), OBJECT_MAX);
    }
}

/// Checks the keys and answers the sum of the sizes of the values, as they are written.
fn keys(report: &mut Report, map: &dyn Map, path: &Path<'_>) -> usize {
    let mut size = 0usize;
    map.each(&mut |key, value| {
        report.grammar(&path.key(key), key, names::is_config_key, names::CONFIG_KEY);
        size = size.saturating_add(match value.view() {
            crate::types::object::View::Str(text) => text.len(),
            // base64 is four thirds of what it stands for
            crate::types::object::View::Text(text) => alloc::format!("{text}").len() / 4 * 3,
            _ => 0,
        });
        true
    });
    size
}

#[cfg(test)]
mod tests;
