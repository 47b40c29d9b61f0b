//! Validation of the mounts and block devices of a container.
use super::volumes::descending;
use super::{Path, Report, security};
use crate::types::{Container, Volume, VolumeMount};
use alloc::collections::BTreeSet;

/// Mounts of a container, faults of their paths told as the API server does.
pub(super) fn all(report: &mut Report, c: &Container, volumes: &[&Volume], path: &Path<'_>) {
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
