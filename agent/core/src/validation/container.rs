//! Validation of containers: names, ports, environment, policies.
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN, QUALIFIED};
use super::{Path, Report, handlers, mounts, resources, security, volumes};
use crate::expand::downward::split_subscript;
use crate::expand::env::is_variable_name;
use crate::types::{
    Container, EnvFromSource, EnvVar, KeySelector, ObjectFieldSelector, PodSpec, ResourceFieldSelector,
    Volume, value,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};

/// The most rules a container may have for its exit codes.
const RULES_MAX: usize = 20;
/// The most exit codes a rule may name.
const EXIT_CODES_MAX: usize = 255;

/// What all containers of a pod are judged by.
pub(super) struct Around<'a> {
    pub(super) spec: &'a PodSpec,
    /// Volumes without a fault.
    pub(super) volumes: &'a [&'a Volume],
}

/// Regular and init containers.
pub(super) fn all(report: &mut Report, around: &Around<'_>, path: &Path<'_>) {
    let spec = around.spec;
    let (regular, init) = (path.child("containers"), path.child("initContainers"));
    if spec.containers.is_empty() {
        report.required(&regular, "");
    }
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut ports = HostPorts::default();
    for (index, c) in spec.containers.iter().enumerate() {
        let at = regular.index(index);
        common(report, c, around, &at);
        if !taken.insert(&c.name) {
            report.duplicate(&at.child("name"), &c.name, "");
        }
        handlers::all(report, c, spec, &at);
        restart(report, c, &["Always", "OnFailure", "Never"], &at);
        ports.take(report, c, &at);
    }
    for (index, c) in spec.init_containers.iter().enumerate() {
        let at = init.index(index);
        common(report, c, around, &at);
        if !c.name.is_empty() && !taken.insert(&c.name) {
            report.duplicate(&at.child("name"), &c.name, "");
        }
        restart(report, c, &["Always", "OnFailure", "Never"], &at);
        if crate::resources::is_sidecar(c) {
            handlers::all(report, c, spec, &at);
            ports.take(report, c, &at);
        } else {
            handlers::none(report, c, &at);
            // init containers run one by one, so each is looked at alone
            HostPorts::default().take(report, c, &at);
        }
    }
}

fn common(report: &mut Report, c: &Container, around: &Around<'_>, path: &Path<'_>) {
    match c.name.as_str() {
        "" => report.required(&path.child("name"), ""),
        name => report.grammar(&path.child("name"), name, names::is_dns_label, DNS_LABEL),
    }
    if c.image.is_empty() {
        report.required(&path.child("image"), "");
    } else if c.image.trim() != c.image {
        report.invalid(&path.child("image"), &c.image, "must not have leading or trailing whitespace");
    }
    let policy = path.child("terminationMessagePolicy");
    report.need_one_of(&policy, &c.termination_message_policy, &["FallbackToLogsOnError", "File"]);
    ports(report, c, &path.child("ports"));
    let list = path.child("env");
    for (index, variable) in c.env.iter().enumerate() {
        env(report, variable, around, &list.index(index));
    }
    env_from(report, &c.env_from, &path.child("envFrom"));
    mounts::all(report, c, around.volumes, &path.child("volumeMounts"));
    mounts::devices(report, c, around.volumes, &path.child("volumeDevices"));
    pull_policy(report, &c.image_pull_policy, &path.child("imagePullPolicy"));
    let claims: Vec<&str> = around.spec.resource_claims.iter().map(|c| c.name.as_str()).collect();
    resources::container(report, &c.resources, &claims, &path.child("resources"));
    resize(report, c, around.spec, &path.child("resizePolicy"));
    let host_users = around.spec.host_users != Some(false);
    security::container(report, c, host_users, &path.child("securityContext"));
}

pub(super) fn pull_policy(report: &mut Report, policy: &str, path: &Path<'_>) {
    report.need_one_of(path, policy, &[value::ALWAYS, value::IF_NOT_PRESENT, value::NEVER]);
}

fn restart(report: &mut Report, c: &Container, known: &[&str], path: &Path<'_>) {
    if let Some(policy) = &c.restart_policy {
        report.one_of(&path.child("restartPolicy"), policy, known);
    }
    let rules = path.child("restartPolicyRules");
    if c.restart_policy_rules.is_empty() {
        return;
    }
    if c.restart_policy.is_none() {
        report
            .required(&path.child("restartPolicy"), "must specify restartPolicy when restart rules are used");
    }
    if c.restart_policy_rules.len() > RULES_MAX {
        report.too_many(&rules, c.restart_policy_rules.len(), RULES_MAX);
    }
    for (index, rule) in c.restart_policy_rules.iter().enumerate() {
        let at = rules.index(index);
        let codes = at.child("exitCodes");
        report.one_of(&at.child("action"), &rule.action, &["Restart"]);
        match &rule.exit_codes {
            None => report.required(&codes, "must be specified"),
            Some(wanted) => {
                report.one_of(&codes.child("operator"), &wanted.operator, &["In", "NotIn"]);
                if wanted.values.len() > EXIT_CODES_MAX {
                    report.too_many(&codes.child("values"), wanted.values.len(), EXIT_CODES_MAX);
                }
            }
        }
    }
}

fn resize(report: &mut Report, c: &Container, spec: &PodSpec, path: &Path<'_>) {
    let mut taken = BTreeSet::new();
    for (index, policy) in c.resize_policy.iter().enumerate() {
        if !taken.insert(policy.resource_name.as_str()) {
            report.duplicate(&path.index(index), &policy.resource_name, "");
        }
        report.need_one_of(path, &policy.resource_name, &[value::CPU, value::MEMORY]);
        report.need_one_of(path, &policy.restart_policy, &["NotRequired", "RestartContainer"]);
        if spec.restart_policy == value::NEVER && policy.restart_policy != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            report.invalid(path, &policy.restart_policy, detail);
        }
    }
}

fn ports(report: &mut Report, c: &Container, path: &Path<'_>) {
    let mut taken = BTreeSet::new();
    for (index, port) in c.ports.iter().enumerate() {
        let at = path.index(index);
        if !port.name.is_empty() {
            if !names::is_port_name(&port.name) {
                report.invalid(&at.child("name"), &port.name, names::PORT_NAME);
            } else if !taken.insert(port.name.as_str()) {
                report.duplicate(&at.child("name"), &port.name, "");
            }
        }
        match i64::from(port.container_port) {
            0 => report.required(&at.child("containerPort"), ""),
            number => port_number(report, number, &at.child("containerPort")),
        }
        if port.host_port != 0 {
            port_number(report, port.host_port.into(), &at.child("hostPort"));
        }
        report.need_one_of(&at.child("protocol"), &port.protocol, &[value::SCTP, value::TCP, value::UDP]);
    }
}

pub(super) fn port_number(report: &mut Report, number: i64, path: &Path<'_>) {
    if !names::is_port_number(number) {
        report.invalid_number(path, number, names::PORT_NUMBER);
    }
}

/// Ports of the node that containers of the pod take, with the name of who took them first.
#[derive(Default)]
struct HostPorts<'a> {
    taken: BTreeMap<String, &'a str>,
}

impl<'a> HostPorts<'a> {
    fn take(&mut self, report: &mut Report, c: &'a Container, path: &Path<'_>) {
        let list = path.child("ports");
        for (index, port) in c.ports.iter().enumerate().filter(|(_, p)| p.host_port != 0) {
            let key = format!("{}/{}/{}", port.protocol, port.host_ip, port.host_port);
            if let Some(other) = self.taken.get(&key) {
                let detail = format!("containers '{other}' and '{}' ask for the same host port", c.name);
                let at = list.index(index);
                report.duplicate(&at.child("hostPort"), &key, &detail);
            } else {
                self.taken.insert(key, &c.name);
            }
        }
    }
}

/// Fields of a pod that can be the value of a variable.
pub(super) const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that can be a file.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// All fields the API converts; any other is not a field at all.
const KNOWN_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: &[&str] =
    &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

fn env(report: &mut Report, variable: &EnvVar, around: &Around<'_>, path: &Path<'_>) {
    match variable.name.as_str() {
        "" => report.required(&path.child("name"), ""),
        name => report.grammar(&path.child("name"), name, is_variable_name, names::VARIABLE),
    }
    let Some(source) = &variable.value_from else { return };
    let at = path.child("valueFrom");
    let mut count = 0u32;
    if let Some(field) = &source.field_ref {
        count += 1;
        field_selector(report, field, ENV_FIELDS, &at.child("fieldRef"));
    }
    if let Some(resource) = &source.resource_field_ref {
        count += 1;
        resource_selector(report, resource, false, &at.child("resourceFieldRef"));
    }
    if let Some(key) = &source.config_map_key_ref {
        count += 1;
        key_selector(report, key, &at.child("configMapKeyRef"));
    }
    if let Some(key) = &source.secret_key_ref {
        count += 1;
        key_selector(report, key, &at.child("secretKeyRef"));
    }
    if let Some(file) = &source.file_key_ref {
        count += 1;
        let file_path = at.child("fileKeyRef");
        match file.volume_name.as_str() {
            "" => report.required(&file_path.child("volumeName"), ""),
            name if !around.volumes.iter().any(|v| v.name == name) => {
                report.not_found(&file_path.child("volumeName"), name);
            }
            name if !around.volumes.iter().any(|v| v.name == name && v.empty_dir.is_some()) => {
                report.invalid(&file_path.child("volumeName"), name, "must be an emptyDir volume");
            }
            _ => {}
        }
        match file.path.as_str() {
            "" => report.required(&file_path.child("path"), ""),
            text => volumes::descending(report, text, &file_path.child("path")),
        }
        match file.key.as_str() {
            "" => report.required(&file_path.child("key"), ""),
            key => report.grammar(&file_path.child("key"), key, is_variable_name, names::VARIABLE),
        }
    }
    if count == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        report.invalid_whole(&at, detail);
    } else if !variable.value.is_empty() {
        report.invalid_whole(&at, "may not be specified when `value` is not empty");
    } else if count > 1 {
        report.invalid_whole(&at, "may not have more than one field specified at a time");
    }
}

pub(super) fn field_selector(
    report: &mut Report,
    selector: &ObjectFieldSelector,
    known: &[&str],
    path: &Path<'_>,
) {
    if selector.api_version.is_empty() {
        report.required(&path.child("apiVersion"), "");
        return;
    }
    let text = selector.field_path.as_str();
    let at = path.child("fieldPath");
    if text.is_empty() {
        report.required(&at, "");
        return;
    }
    if selector.api_version != "v1" {
        report.invalid(&at, text, "error converting fieldPath: the version of pods is v1");
        return;
    }
    if let Some((field, key)) = split_subscript(text) {
        match field {
            "metadata.annotations" => {
                report.grammar(path, &key.to_ascii_lowercase(), names::is_qualified, QUALIFIED);
            }
            "metadata.labels" => report.grammar(path, key, names::is_qualified, QUALIFIED),
            "metadata.name" | "metadata.namespace" | "metadata.uid" => {
                report.invalid(path, field, "does not support subscript");
            }
            _ => report.invalid(&at, text, "error converting fieldPath: field label not supported"),
        }
    } else if !known.contains(&text) {
        if ENV_FIELDS.contains(&text) || KNOWN_FIELDS.contains(&text) {
            report.not_supported(&at, text, known);
        } else {
            report.invalid(&at, text, "error converting fieldPath: field label not supported");
        }
    }
}

pub(super) fn resource_selector(
    report: &mut Report,
    selector: &ResourceFieldSelector,
    volume: bool,
    path: &Path<'_>,
) {
    let name = selector.resource.as_str();
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if volume && selector.container_name.is_empty() {
        report.required(&path.child("containerName"), "");
    } else if name.is_empty() {
        report.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&name) && !huge {
        report.not_supported(&path.child("resource"), name, RESOURCES);
    }
    let Some(divisor) = selector.divisor.filter(|d| !d.is_zero()) else { return };
    let divisor = divisor.to_string();
    let allowed = match name {
        "limits.cpu" | "requests.cpu" => &["1m", "1"],
        _ if huge || RESOURCES.contains(&name) => BYTE_DIVISORS,
        _ => return,
    };
    if !allowed.contains(&divisor.as_str()) {
        let detail = format!("only divisor's values {} are supported with this resource", allowed.join(", "));
        report.invalid(&path.child("divisor"), name, &detail);
    }
}

fn key_selector(report: &mut Report, selector: &KeySelector, path: &Path<'_>) {
    report.grammar(&path.child("name"), &selector.name, names::is_dns_subdomain, DNS_SUBDOMAIN);
    match selector.key.as_str() {
        "" => report.required(&path.child("key"), ""),
        key => report.grammar(&path.child("key"), key, names::is_config_key, names::CONFIG_KEY),
    }
}

fn env_from(report: &mut Report, list: &[EnvFromSource], path: &Path<'_>) {
    for (index, source) in list.iter().enumerate() {
        let at = path.index(index);
        if !source.prefix.is_empty() {
            report.grammar(&at.child("prefix"), &source.prefix, is_variable_name, names::VARIABLE);
        }
        let both = [("configMapRef", &source.config_map_ref), ("secretRef", &source.secret_ref)];
        for (name, reference) in both {
            let Some(reference) = reference else { continue };
            let reference_path = at.child(name);
            let name_path = reference_path.child("name");
            match reference.name.as_str() {
                "" => report.required(&name_path, ""),
                // the API server takes it for a prefix here
                name => report.grammar(&name_path, name, names::is_dns_prefix, DNS_SUBDOMAIN),
            }
        }
        match both.iter().filter(|(_, reference)| reference.is_some()).count() {
            0 => report.invalid_whole(path, "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => report.invalid_whole(path, "may not have more than one field specified at a time"),
        }
    }
}
