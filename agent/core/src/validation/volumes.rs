//! Validation of volumes, mounts and block devices.
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN};
use super::{Path, Report, container, metadata, security};
use crate::types::{
    Container, DownwardAPIVolumeFile, KeyToPath, Object, ObjectMeta, PersistentVolumeClaimTemplate,
    ProjectedVolumeSource, Quantity, StringMap, Volume, VolumeMount, VolumeProjection, object::Field,
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
        _ => storage(report, volume, path, &at),
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
    let requests = amounts.child("requests");
    match template.spec.resources.requests.get("storage") {
        None => report.required(&amounts.key("storage"), ""),
        Some(amount) if *amount <= Quantity::ZERO => {
            report.invalid(&requests.key("storage"), &format!("{amount}"), "must be greater than zero");
        }
        Some(_) => {}
    }
    if let Some(mode) = &template.spec.volume_mode {
        report.one_of(&spec.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    metadata::selector(report, template.spec.selector.as_deref(), &spec.child("selector"));
}

/// Sources of storage systems: what must be there, and their few rules.
fn storage(report: &mut Report, volume: &Volume, path: &Path<'_>, at: &Path<'_>) {
    if let Some(v) = &volume.git_repo {
        report.need(at, "repository", &v.repository);
        descending(report, &v.directory, &at.child("directory"));
    } else if let Some(v) = &volume.gce_persistent_disk {
        report.need(at, "pdName", &v.pd_name);
        byte(report, v.partition, "partition", at);
    } else if let Some(v) = &volume.aws_elastic_block_store {
        report.need(at, "volumeID", &v.volume_id);
        byte(report, v.partition, "partition", at);
    } else if let Some(v) = &volume.nfs {
        report.need(at, "server", &v.server);
        report.need(at, "path", &v.path);
        if !v.path.starts_with('/') {
            report.invalid(&at.child("path"), &v.path, "must be an absolute path");
        }
    } else if volume.iscsi.is_some() {
        iscsi(report, volume, path, at);
    } else if let Some(v) = &volume.glusterfs {
        report.need(at, "endpoints", &v.endpoints);
        report.need(at, "path", &v.path);
    } else if let Some(v) = &volume.flocker {
        if v.dataset_name.is_empty() && v.dataset_uuid.is_empty() {
            report.required(at, "one of datasetName and datasetUUID is required");
        } else if !v.dataset_name.is_empty() && !v.dataset_uuid.is_empty() {
            report.invalid_whole(at, "datasetName and datasetUUID can not be specified simultaneously");
        }
        if v.dataset_name.contains('/') {
            report.invalid(&at.child("datasetName"), &v.dataset_name, "must not contain '/'");
        }
    } else if let Some(v) = &volume.persistent_volume_claim {
        report.need(at, "claimName", &v.claim_name);
    } else if let Some(v) = &volume.rbd {
        if v.monitors.is_empty() {
            report.required(&at.child("monitors"), "");
        }
        report.need(at, "image", &v.image);
    } else if let Some(v) = &volume.cephfs {
        if v.monitors.is_empty() {
            report.required(&at.child("monitors"), "");
        }
    } else if volume.fc.is_some() {
        fibre_channel(report, volume, at);
    } else if let Some(v) = &volume.flex_volume {
        report.need(at, "driver", &v.driver);
        flex_options(report, &v.options, &at.child("options"));
    } else {
        more_storage(report, volume, at);
    }
}

fn more_storage(report: &mut Report, volume: &Volume, at: &Path<'_>) {
    if let Some(v) = &volume.cinder {
        report.need(at, "volumeID", &v.volume_id);
        secret_name(report, v.secret_ref.as_ref().map(|r| r.name.as_str()), at);
    } else if let Some(v) = &volume.quobyte {
        let detail = "must be a host:port pair or multiple pairs separated by commas";
        if v.registry.is_empty() {
            report.required(&at.child("registry"), detail);
        } else if v.tenant.len() >= 65 {
            report
                .required(&at.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
        } else if v.registry.split(',').any(|pair| pair.rsplit_once(':').is_none()) {
            report.invalid(&at.child("registry"), &v.registry, detail);
        }
        report.need(at, "volume", &v.volume);
    } else if let Some(v) = &volume.azure_file {
        report.need(at, "secretName", &v.secret_name);
        report.need(at, "shareName", &v.share_name);
    } else if let Some(v) = &volume.vsphere_volume {
        report.need(at, "volumePath", &v.volume_path);
    } else if let Some(v) = &volume.photon_persistent_disk {
        report.need(at, "pdID", &v.pd_id);
    } else if let Some(v) = &volume.portworx_volume {
        report.need(at, "volumeID", &v.volume_id);
    } else if let Some(v) = &volume.azure_disk {
        report.need(at, "diskName", &v.disk_name);
        report.need(at, "diskURI", &v.disk_uri);
        if let Some(mode) = &v.caching_mode {
            report.one_of(&at.child("cachingMode"), mode, &["None", "ReadOnly", "ReadWrite"]);
        }
        let Some(kind) = &v.kind else { return };
        report.one_of(&at.child("kind"), kind, &["Dedicated", "Managed", "Shared"]);
        let start = if kind == "Managed" { "/subscriptions/" } else { "https://" };
        if !v.disk_uri.starts_with(start) {
            report.not_supported(&at.child("diskURI"), &v.disk_uri, &[start]);
        }
    } else if let Some(v) = &volume.storageos {
        match v.volume_name.as_str() {
            "" => report.required(&at.child("volumeName"), ""),
            name => report.grammar(&at.child("volumeName"), name, names::is_dns_label, DNS_LABEL),
        }
        if !v.volume_namespace.is_empty() {
            let namespace = at.child("volumeNamespace");
            report.grammar(&namespace, &v.volume_namespace, names::is_dns_label, DNS_LABEL);
        }
        secret_name(report, v.secret_ref.as_ref().map(|r| r.name.as_str()), at);
    } else if let Some(v) = &volume.scale_io {
        report.need(at, "gateway", &v.gateway);
        report.need(at, "system", &v.system);
        report.need(at, "volumeName", &v.volume_name);
    } else if let Some(v) = &volume.csi {
        let driver = at.child("driver");
        report.need(at, "driver", &v.driver);
        if v.driver.len() > 63 {
            report.too_long(&driver, 63);
        }
        if !names::is_dns_subdomain(&v.driver.to_ascii_lowercase()) {
            report.invalid(&driver, &v.driver, DNS_SUBDOMAIN);
        }
        if let Some(reference) = &v.node_publish_secret_ref {
            let secret = at.child("nodePublishSecretRef");
            match reference.name.as_str() {
                "" => report.required(&secret.child("name"), ""),
                name => report.grammar(&at.child("name"), name, names::is_dns_subdomain, DNS_SUBDOMAIN),
            }
        }
    }
}

fn secret_name(report: &mut Report, name: Option<&str>, path: &Path<'_>) {
    if name == Some("") {
        let secret = path.child("secretRef");
        report.required(&secret.child("name"), "");
    }
}

fn byte(report: &mut Report, value: i32, name: &str, path: &Path<'_>) {
    if !(0..=255).contains(&value) {
        report.invalid_number(&path.child(name), value.into(), "must be between 0 and 255, inclusive");
    }
}

/// Names of iSCSI ends: `iqn.yyyy-mm.domain[:text]`, `eui.` and 16, `naa.` and 32 hex digits.
fn is_initiator(name: &str) -> bool {
    let hex = |digits: &str, lengths: &[usize]| {
        lengths.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    if let Some(digits) = name.strip_prefix("eui.") {
        return hex(digits, &[16]);
    }
    if let Some(digits) = name.strip_prefix("naa.") {
        return hex(digits, &[32]);
    }
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let Some((date, domain)) = rest.split_once('.') else { return false };
    let date_is_right = match date.split_once('-') {
        Some((year, month)) => {
            year.len() == 4 && month.len() == 2 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        }
        None => false,
    };
    let domain = domain.split_once(':').map_or(domain, |(domain, _)| domain);
    date_is_right && domain.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
}

fn iscsi(report: &mut Report, volume: &Volume, path: &Path<'_>, at: &Path<'_>) {
    let Some(v) = &volume.iscsi else { return };
    report.need(at, "targetPortal", &v.target_portal);
    match v.iqn.as_str() {
        "" => report.required(&at.child("iqn"), ""),
        name => report.grammar(
            &at.child("iqn"),
            name,
            is_initiator,
            "must be valid format starting with iqn, eui, or naa",
        ),
    }
    byte(report, v.lun, "lun", at);
    if (v.chap_auth_discovery || v.chap_auth_session) && v.secret_ref.is_none() {
        report.required(&at.child("secretRef"), "");
    }
    if let Some(name) = &v.initiator_name {
        let detail = "must be valid format starting with iqn, eui, or naa";
        report.grammar(&at.child("initiatorname"), name, is_initiator, detail);
        if volume.name.len().saturating_add(v.target_portal.len()) >= 64 {
            let detail =
                "volume name and targetPortal together must be under 64 characters with an initiatorName";
            report.invalid(&path.child("name"), &volume.name, detail);
        }
    }
}

fn fibre_channel(report: &mut Report, volume: &Volume, at: &Path<'_>) {
    let Some(v) = &volume.fc else { return };
    let names = at.child("targetWWNs");
    match (v.target_wwns.is_empty(), v.wwids.is_empty()) {
        (true, true) => report.required(&names, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => {
            report.invalid_whole(&names, "targetWWNs and wwids can not be specified simultaneously")
        }
        _ => {}
    }
    match v.lun {
        None if !v.target_wwns.is_empty() => {
            report.required(&at.child("lun"), "lun is required if targetWWNs is specified");
        }
        Some(lun) if !v.target_wwns.is_empty() => byte(report, lun, "lun", at),
        _ => {}
    }
}

fn flex_options(report: &mut Report, options: &StringMap, path: &Path<'_>) {
    for key in options.keys() {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
        let dotted = format!(".{}", namespace.to_ascii_lowercase());
        if dotted.ends_with(".kubernetes.io") || dotted.ends_with(".k8s.io") {
            report.invalid(&path.key(key), key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
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

/// Mounts of a container, faults of their paths told as the API server does.
pub(super) fn mounts(report: &mut Report, c: &Container, volumes: &[&Volume], path: &Path<'_>) {
    let mut taken = BTreeSet::new();
    for (index, mount) in c.volume_mounts.iter().enumerate() {
        let at = path.index(index);
        report.need(&at, "name", &mount.name);
        if !volumes.iter().any(|v| v.name == mount.name) {
            report.not_found(&at.child("name"), &mount.name);
        }
        report.need(&at, "mountPath", &mount.mount_path);
        if !taken.insert(mount.mount_path.as_str()) {
            report.invalid(&at.child("mountPath"), &mount.mount_path, "must be unique");
        }
        if c.volume_devices.iter().any(|d| d.name == mount.name) {
            report.invalid(&at.child("name"), &mount.name, "must not already exist in volumeDevices");
        }
        if c.volume_devices.iter().any(|d| d.device_path == mount.mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            report.invalid(&at.child("mountPath"), &mount.mount_path, detail);
        }
        if !mount.sub_path.is_empty() {
            descending(report, &mount.sub_path, &path.child("subPath"));
        }
        if !mount.sub_path_expr.is_empty() {
            if !mount.sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                report.invalid(&at.child("subPathExpr"), &mount.sub_path_expr, detail);
            }
            descending(report, &mount.sub_path_expr, &path.child("subPathExpr"));
        }
        propagation(report, mount, security::is_privileged(c), path);
    }
}

fn propagation(report: &mut Report, mount: &VolumeMount, privileged: bool, path: &Path<'_>) {
    if let Some(mode) = &mount.mount_propagation {
        let at = path.child("mountPropagation");
        report.one_of(&at, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && !privileged {
            report
                .forbidden(&at, "Bidirectional mount propagation is available only to privileged containers");
        }
    }
    let at = path.child("recursiveReadOnly");
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.read_only {
                report.forbidden(&at, "may only be specified when readOnly is true");
            }
            if mount.mount_propagation.as_deref().is_some_and(|mode| mode != "None") {
                report.forbidden(&at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => report.not_supported(&at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Block devices of a container.
pub(super) fn devices(report: &mut Report, c: &Container, volumes: &[&Volume], path: &Path<'_>) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in c.volume_devices.iter().enumerate() {
        let at = path.index(index);
        let (name, file) = (at.child("name"), at.child("devicePath"));
        report.need(&at, "name", &device.name);
        if !device.name.is_empty() && !names.insert(device.name.as_str()) {
            report.invalid(&name, &device.name, "must be unique");
        }
        match volumes.iter().find(|v| v.name == device.name) {
            None => report.not_found(&name, &device.name),
            Some(v) if v.persistent_volume_claim.is_none() && v.ephemeral.is_none() => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                report.invalid(&name, &device.name, detail);
            }
            Some(_) => {}
        }
        report.need(&at, "devicePath", &device.device_path);
        if device.device_path.split('/').any(|part| part == "..") {
            report.invalid(&file, &device.device_path, "can not contain backsteps ('..')");
        } else if !paths.insert(device.device_path.as_str()) {
            report.invalid(&file, &device.device_path, "must be unique");
        }
        if c.volume_mounts.iter().any(|m| m.name == device.name) {
            report.invalid(&name, &device.name, "must not already exist in volumeMounts");
        }
        if c.volume_mounts.iter().any(|m| m.mount_path == device.device_path) {
            report.invalid(&file, &device.device_path, "must not already exist as a path in volumeMounts");
        }
    }
}
