//! Validation of metadata, labels, annotations, selectors.
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE, QUALIFIED};
use super::{Path, Report};
use crate::types::{LabelSelector, ObjectMeta, Pod, StringMap};
use alloc::string::ToString;

/// The largest sum of all annotations, keys and values, in bytes.
const ANNOTATIONS_MAX: usize = 256 << 10;

/// Metadata of an object with a namespace.
pub(super) fn object(report: &mut Report, meta: &ObjectMeta, name: fn(&str) -> bool, path: &Path<'_>) {
    if !meta.generate_name.is_empty() {
        report.grammar(&path.child("generateName"), &meta.generate_name, names::is_dns_prefix, DNS_SUBDOMAIN);
    }
    match meta.name.as_str() {
        "" => report.required(&path.child("name"), "name or generateName is required"),
        text => report.grammar(&path.child("name"), text, name, DNS_SUBDOMAIN),
    }
    match meta.namespace.as_str() {
        "" => report.required(&path.child("namespace"), ""),
        text => report.grammar(&path.child("namespace"), text, names::is_dns_label, DNS_LABEL),
    }
    report.not_negative(path, "generation", meta.generation);
    labels(report, &meta.labels, &path.child("labels"));
    annotations(report, &meta.annotations, &path.child("annotations"));
    owners(report, meta, &path.child("ownerReferences"));
    let finalizers = path.child("finalizers");
    for (index, finalizer) in meta.finalizers.iter().enumerate() {
        let at = finalizers.index(index);
        report.grammar(&at, finalizer, names::is_qualified, QUALIFIED);
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer.as_str());
        if !finalizer.contains('/') && !standard {
            report.invalid(
                &at,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

fn owners(report: &mut Report, meta: &ObjectMeta, path: &Path<'_>) {
    let mut controllers = 0u32;
    for (index, owner) in meta.owner_references.iter().enumerate() {
        let at = path.index(index);
        let fields = [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ];
        for (name, text) in fields {
            if text.is_empty() {
                report.invalid(&at.child(name), text, "must not be empty");
            }
        }
        controllers = controllers.saturating_add(u32::from(owner.controller == Some(true)));
    }
    if controllers > 1 {
        report.invalid_whole(path, "only one reference can have controller set to true");
    }
}

/// Labels, or a node selector. Faults are told at the map, as the API server does.
pub(super) fn labels(report: &mut Report, labels: &StringMap, path: &Path<'_>) {
    for (key, value) in labels {
        report.grammar(path, key, names::is_qualified, QUALIFIED);
        report.grammar(path, value, names::is_label_value, LABEL_VALUE);
    }
}

/// Annotations: any value, but not without limit.
pub(super) fn annotations(report: &mut Report, annotations: &StringMap, path: &Path<'_>) {
    let mut size = 0usize;
    for (key, value) in annotations {
        if !names::is_qualified(&key.to_ascii_lowercase()) {
            report.invalid(path, key, QUALIFIED);
        }
        size = size.saturating_add(key.len()).saturating_add(value.len());
    }
    if size > ANNOTATIONS_MAX {
        report.too_long(path, ANNOTATIONS_MAX);
    }
}

const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// A number of 32 bits without plus sign and leading zeros.
fn is_cost(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|number| number.to_string() == text || text == "-0")
}

/// Annotations with a meaning: the old spellings of profiles, and two of the control plane.
pub(super) fn pod_annotations(report: &mut Report, pod: &Pod, path: &Path<'_>) {
    let spec = &pod.spec;
    for (key, value) in &pod.metadata.annotations {
        if let Some(name) = key.strip_prefix(APPARMOR) {
            if !spec.containers.iter().chain(&spec.init_containers).any(|c| c.name == name) {
                report.invalid(&path.key(key), name, "container not found");
            }
            let known = matches!(value.as_str(), "" | "runtime/default" | "unconfined");
            if !known && !value.starts_with("localhost/") {
                report.invalid(&path.key(key), value, "invalid AppArmor profile name");
            }
        } else if key == MIRROR && spec.node_name.is_empty() {
            report.invalid(&path.key(key), value, "must set spec.nodeName if mirror pod annotation is set");
        } else if key == DELETION_COST && !is_cost(value) {
            report.invalid(&path.key(key), value, "must be a 32bit integer");
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let known = matches!(value.as_str(), "runtime/default" | "docker/default" | "unconfined");
            match value.strip_prefix("localhost/") {
                Some(file) => super::volumes::descending(report, file, &path.child(key)),
                None if known => {}
                None => report.invalid(&path.child(key), value, "must be a valid seccomp profile"),
            }
        }
    }
}

/// A selector of labels.
pub(super) fn selector(report: &mut Report, selector: Option<&LabelSelector>, path: &Path<'_>) {
    let Some(selector) = selector else { return };
    labels(report, &selector.match_labels, &path.child("matchLabels"));
    let list = path.child("matchExpressions");
    for (index, wanted) in selector.match_expressions.iter().enumerate() {
        let at = list.index(index);
        let values = at.child("values");
        match wanted.operator.as_str() {
            "In" | "NotIn" if wanted.values.is_empty() => {
                report.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !wanted.values.is_empty() => {
                report
                    .forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Exists" | "DoesNotExist" => {}
            other => report.invalid(&at.child("operator"), other, "not a valid selector operator"),
        }
        report.grammar(&at.child("key"), &wanted.key, names::is_qualified, QUALIFIED);
        for (place, value) in wanted.values.iter().enumerate() {
            report.grammar(&values.index(place), value, names::is_label_value, LABEL_VALUE);
        }
    }
}
