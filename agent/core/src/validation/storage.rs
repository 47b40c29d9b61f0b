//! Validation of volumes of storage systems: known and judged, though most are not mounted here.
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN};
use super::volumes::descending;
use super::{Path, Report};
use crate::types::{StringMap, Volume};
use alloc::format;

/// What must be there, and the few rules they have. `at` is the path of the source, `path` that of the volume.
pub(super) fn source(report: &mut Report, volume: &Volume, path: &Path<'_>, at: &Path<'_>) {
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

/// Names of iSCSI ends: `iqn.yyyy-mm.domain:text`, `eui.` and 16, `naa.` and 32 letters or digits.
fn is_initiator(name: &str) -> bool {
    let alnum =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if let Some(rest) = name.strip_prefix("eui.") {
        return alnum(rest, 16);
    }
    if let Some(rest) = name.strip_prefix("naa.") {
        return alnum(rest, 32);
    }
    let parts = name.strip_prefix("iqn.").and_then(|rest| rest.split_once('.'));
    let Some((date, (domain, text))) = parts.and_then(|(date, rest)| Some((date, rest.split_once(':')?)))
    else {
        return false;
    };
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
        && !domain.is_empty()
        && domain.bytes().all(letter)
        && !text.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || ",;*&$|".contains(c))
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
