//! Validation of volumes.
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN};
use super::{Path, Report, container, metadata, storage};
use crate::types::{
    DownwardAPIVolumeFile, KeyToPath, Object, ObjectMeta, PersistentVolumeClaimTemplate,
    ProjectedVolumeSource, Quantity, Volume, VolumeProjection, object::Field,
};
use alloc::{collections::BTreeSet, format, string::String, vec::Vec};

/// Whether a volume names where its content comes from.
pub fn has_source(volume: &Volume) -> bool {
    sources(volume).next().is_some()
}

/// Names of the sources a volume has, in the order of the API.
fn sources(volume: &Volume) -> impl Iterator<Item = &'static str> {
    let shape = volume.shape();
    let named = shape.fields.iter().enumerate().skip(1);
    named
        .filter(|(index, _)| volume.at(*index).is_some_and(|field: &dyn Field| !field.view().is_empty()))
        .map(|(_, name)| *name)
}

/// The order in which the API looks at sources: the first one counts, any other is one too many.
const ORDER: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// All volumes of a pod. Answers the ones without a fault, which containers may mount.
pub(super) fn all<'p>(
    report: &mut Report,
    volumes: &'p [Volume],
    meta: &ObjectMeta,
    path: &Path<'_>,
) -> Vec<&'p Volume> {
    let mut good: Vec<&Volume> = Vec::new();
    let created: BTreeSet<String> = volumes
        .iter()
        .filter(|v| v.ephemeral.is_some() && !meta.name.is_empty())
        .map(|v| format!("{}-{}", meta.name, v.name))
        .collect();
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        let before = report.errors.len();
        source(report, volume, meta, &at);
        match volume.name.as_str() {
            "" => report.required(&at.child("name"), ""),
            name => report.grammar(&at.child("name"), name, names::is_dns_label, DNS_LABEL),
        }
        if good.iter().any(|v| v.name == volume.name) {
            report.duplicate(&at.child("name"), &volume.name, "");
        }
        if report.errors.len() == before {
            good.push(volume);
        }
        if let Some(claim) =
            volume.persistent_volume_claim.as_ref().filter(|c| created.contains(&c.claim_name))
        {
            let claim_path = at.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            report.invalid(&claim_path.child("claimName"), &claim.claim_name, detail);
        }
    }
    good
}

fn source(report: &mut Report, volume: &Volume, meta: &ObjectMeta, path: &Path<'_>) {
    let mut present: Vec<&'static str> = sources(volume).collect();
    present.sort_by_key(|name| ORDER.iter().position(|o| o == name));
    let Some((first, others)) = present.split_first() else {
        report.required(path, "must specify a volume type");
        return;
    };
    for other in others {
        report.forbidden(&path.child(other), "may not specify more than 1 volume type");
    }
    let at = path.child(first);
    match *first {
        "emptyDir" => empty_dir(report, volume, &at),
        "hostPath" => host_path(report, volume, &at),
        "secret" | "configMap" => stored_object(report, volume, &at),
        "downwardAPI" => {
            if let Some(v) = &volume.downward_api {
                mode(report, v.default_mode, "defaultMode", &at);
                // faults of a file are told at the volume, as the API server does
                v.items.iter().for_each(|file| downward_file(report, file, &at));
            }
        }
        "projected" => {
            if let Some(v) = &volume.projected {
                mode(report, v.default_mode, "defaultMode", &at);
                projected(report, v, &at);
            }
        }
        "ephemeral" => ephemeral(report, volume, meta, path, &at),
        "image" => {
            if let Some(v) = &volume.image {
                container::pull_policy(report, &v.pull_policy, &at.child("pullPolicy"));
            }
        }
        _ => storage::source(report, volume, path, &at),
    }
}

fn empty_dir(report: &mut Report, volume: &Volume, path: &Path<'_>) {
    let limit = volume.empty_dir.as_ref().and_then(|v| v.size_limit);
    if limit.is_some_and(|limit| limit < Quantity::ZERO) {
        report.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

fn host_path(report: &mut Report, volume: &Volume, path: &Path<'_>) {
    let Some(v) = &volume.host_path else { return };
    if v.path.is_empty() {
        report.required(&path.child("path"), "");
        return;
    }
    no_backsteps(report, &v.path, &path.child("path"));
    if let Some(kind) = &v.path_type {
        report.one_of(&path.child("type"), kind, &HOST_PATH_TYPES);
    }
}

fn stored_object(report: &mut Report, volume: &Volume, path: &Path<'_>) {
    let items = path.child("items");
    let (list, default_mode) = match (&volume.secret, &volume.config_map) {
        (Some(v), _) => {
            report.need(path, "secretName", &v.secret_name);
            (&v.items, v.default_mode)
        }
        (_, Some(v)) => {
            report.need(path, "name", &v.name);
            (&v.items, v.default_mode)
        }
        _ => return,
    };
    mode(report, default_mode, "defaultMode", path);
    for (index, item) in list.iter().enumerate() {
        key_to_path(report, item, &items.index(index));
    }
}

fn mode(report: &mut Report, mode: Option<i32>, name: &str, path: &Path<'_>) {
    if let Some(mode) = mode.filter(|m| !(0..=0o777).contains(m)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        report.invalid_number(&path.child(name), mode.into(), detail);
    }
}

fn key_to_path(report: &mut Report, item: &KeyToPath, path: &Path<'_>) {
    report.need(path, "key", &item.key);
    report.need(path, "path", &item.path);
    not_reserved(report, &item.path, &path.child("path"));
    mode(report, item.mode, "mode", path);
}

fn downward_file(report: &mut Report, file: &DownwardAPIVolumeFile, path: &Path<'_>) {
    report.need(path, "path", &file.path);
    not_reserved(report, &file.path, &path.child("path"));
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), other) => {
            container::field_selector(report, field, container::VOLUME_FIELDS, &path.child("fieldRef"));
            if other.is_some() {
                report.invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (None, Some(resource)) => {
            container::resource_selector(report, resource, true, &path.child("resourceFieldRef"));
        }
        (None, None) => report.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(report, file.mode, "mode", path);
}

fn projected(report: &mut Report, volume: &ProjectedVolumeSource, path: &Path<'_>) {
    let list = path.child("sources");
    let mut taken = BTreeSet::new();
    for (index, source) in volume.sources.iter().enumerate() {
        let at = list.index(index);
        let count = source
            .shape()
            .fields
            .iter()
            .enumerate()
            .filter(|(i, _)| source.at(*i).is_some_and(|f| !f.view().is_empty()))
            .count();
        if count > 1 {
            report.forbidden(&at, "may not specify more than 1 volume type per source");
        }
        for (name, object) in [("secret", &source.secret), ("configMap", &source.config_map)] {
            let Some(object) = object else { continue };
            let object_path = at.child(name);
            report.need(&object_path, "name", &object.name);
            let items = object_path.child("items");
            for (place, item) in object.items.iter().enumerate() {
                key_to_path(report, item, &items.index(place));
                take(report, &mut taken, &item.path, path);
            }
        }
        if let Some(api) = &source.downward_api {
            let api_path = at.child("downwardAPI");
            for file in &api.items {
                downward_file(report, file, &api_path);
                take(report, &mut taken, &file.path, path);
            }
        }
        credentials(report, source, &mut taken, path, &at);
    }
}

fn take<'p>(report: &mut Report, taken: &mut BTreeSet<&'p str>, file: &'p str, path: &Path<'_>) {
    if !file.is_empty() && !taken.insert(file) {
        report.invalid(path, file, "conflicting duplicate paths");
    }
}

fn credentials<'p>(
    report: &mut Report,
    source: &'p VolumeProjection,
    taken: &mut BTreeSet<&'p str>,
    volume: &Path<'_>,
    path: &Path<'_>,
) {
    if let Some(token) = &source.service_account_token {
        let at = path.child("serviceAccountToken");
        let seconds = token.expiration_seconds.unwrap_or(3600);
        if seconds < 600 {
            let detail = "may not specify a duration less than 10 minutes";
            report.invalid_number(&at.child("expirationSeconds"), seconds, detail);
        } else if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            report.invalid_number(&at.child("expirationSeconds"), seconds, detail);
        }
        match token.path.as_str() {
            "" => report.required(&volume.child("path"), ""),
            file => not_reserved(report, file, &volume.child("path")),
        }
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        let at = path.child("clusterTrustBundle");
        match (&bundle.name, &bundle.signer_name) {
            (Some(_), Some(_)) => report.invalid_whole(&at, "only one of name and signerName may be used"),
            (Some(name), None) => {
                if name.is_empty() {
                    report.required(&at.child("name"), "must be a valid object name");
                }
                if bundle.label_selector.is_some() {
                    let detail = "labelSelector must be unset if name is specified";
                    report.invalid_whole(&at.child("labelSelector"), detail);
                }
            }
            (None, Some(signer)) => {
                if signer.is_empty() {
                    report.required(&at.child("signerName"), "must be a valid signer name");
                }
                metadata::selector(report, bundle.label_selector.as_deref(), &at.child("labelSelector"));
            }
            (None, None) => report.required(&at, "either name or signerName must be specified"),
        }
        report.need(&at, "path", &bundle.path);
        not_reserved(report, &bundle.path, &at.child("path"));
        take(report, taken, &bundle.path, volume);
    }
    if let Some(certificate) = &source.pod_certificate {
        let at = path.child("podCertificate");
        report.need(&at, "signerName", &certificate.signer_name);
        let kinds = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
        report.one_of(&at.child("keyType"), &certificate.key_type, &kinds);
        let files = [
            ("credentialBundlePath", &certificate.credential_bundle_path),
            ("keyPath", &certificate.key_path),
            ("certificateChainPath", &certificate.certificate_chain_path),
        ];
        if files.iter().all(|(_, file)| file.is_empty()) {
            let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
            report.required(&at, detail);
        }
        for (name, file) in files {
            not_reserved(report, file, &at.child(name));
            take(report, taken, file, volume);
        }
    }
}

fn ephemeral(report: &mut Report, volume: &Volume, meta: &ObjectMeta, path: &Path<'_>, at: &Path<'_>) {
    let Some(template) = volume.ephemeral.as_ref().and_then(|e| e.volume_claim_template.as_deref()) else {
        report.required(&at.child("volumeClaimTemplate"), "");
        return;
    };
    claim(report, template, &at.child("volumeClaimTemplate"));
    let name = format!("{}-{}", meta.name, volume.name);
    if !meta.name.is_empty() && !volume.name.is_empty() && !names::is_dns_subdomain(&name) {
        report.invalid(&path.child("name"), &volume.name, &format!("PVC name \"{name}\": {DNS_SUBDOMAIN}"));
    }
}

fn claim(report: &mut Report, template: &PersistentVolumeClaimTemplate, path: &Path<'_>) {
    let (meta, spec) = (path.child("metadata"), path.child("spec"));
    metadata::annotations(report, &template.metadata.annotations, &meta.child("annotations"));
    metadata::labels(report, &template.metadata.labels, &meta.child("labels"));
    let shape = template.metadata.shape();
    for (index, name) in shape.fields.iter().enumerate() {
        let set = template.metadata.at(index).is_some_and(|f| !f.view().is_empty());
        if set && !matches!(*name, "labels" | "annotations") {
            report.forbidden(&meta.child(name), "cannot be set");
        }
    }
    let modes = spec.child("accessModes");
    if template.spec.access_modes.is_empty() {
        report.required(&modes, "at least 1 access mode is required");
    }
    for mode in &template.spec.access_modes {
        report.one_of(&modes, mode, &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]);
    }
    let amounts = spec.child("resources");
    match template.spec.resources.requests.get("storage") {
        None => report.required(&amounts.key("storage"), ""),
        Some(amount) if *amount <= Quantity::ZERO => {
            report.invalid(&amounts.key("storage"), &format!("{amount}"), "must be greater than zero");
        }
        Some(_) => {}
    }
    if let Some(mode) = &template.spec.volume_mode {
        report.one_of(&spec.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    metadata::selector(report, template.spec.selector.as_deref(), &spec.child("selector"));
}

/// A relative path without `..`.
pub(super) fn descending(report: &mut Report, text: &str, path: &Path<'_>) {
    if text.starts_with('/') {
        report.invalid(path, text, "must be a relative path");
    }
    no_backsteps(report, text, path);
}

fn no_backsteps(report: &mut Report, text: &str, path: &Path<'_>) {
    if text.split('/').any(|part| part == "..") {
        report.invalid(path, text, "must not contain '..'");
    }
}

/// A relative path whose first part does not begin with `..`, where the agent keeps its own links.
fn not_reserved(report: &mut Report, text: &str, path: &Path<'_>) {
    descending(report, text, path);
    if text.starts_with("..") && !text.starts_with("../") && text != ".." {
        report.invalid(path, text, "must not start with '..'");
    }
}
