//! Validation of the specification of a pod: its own fields, and all parts in turn.
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN};
use super::{Path, Report, container, metadata, resources, scheduling, security, volumes};
use crate::types::{Pod, PodDNSConfig, PodSpec, value};
use alloc::{format, string::String};

/// The most name servers of a resolver.
const NAMESERVERS_MAX: usize = 3;
/// The most search domains of a resolver.
const SEARCHES_MAX: usize = 32;
/// The longest list of search domains with the spaces between them, in bytes.
const SEARCH_LIST_MAX: usize = 2048;
/// The longest host name of the kernel, in bytes.
const HOSTNAME_MAX: usize = 64;

/// Everything below `spec`.
pub(super) fn pod(report: &mut Report, pod: &Pod, path: &Path<'_>) {
    let spec = &pod.spec;
    if spec.termination_grace_period_seconds.is_none() {
        report.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let good = volumes::all(report, &spec.volumes, &pod.metadata, &path.child("volumes"));
    container::all(report, &container::Around { spec, volumes: &good }, path);
    if !spec.ephemeral_containers.is_empty() {
        report.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    resources::pod(report, pod, &path.child("resources"));
    host_network(report, spec, path);
    let policies = [value::ALWAYS, value::ON_FAILURE, value::NEVER];
    report.need_one_of(&path.child("restartPolicy"), &spec.restart_policy, &policies);
    dns(report, spec, path);
    metadata::labels(report, &spec.node_selector, &path.child("nodeSelector"));
    security::pod(report, pod, &path.child("securityContext"));
    scheduling::affinity(report, spec.affinity.as_deref(), &path.child("affinity"));
    scheduling::gates(report, spec, path);
    scheduling::spreading(
        report,
        &spec.topology_spread_constraints,
        &path.child("topologySpreadConstraints"),
    );
    scheduling::tolerations(report, &spec.tolerations, &path.child("tolerations"));
    host_users(report, spec, path);
    names_of(report, spec, path);
    token_without_account(report, spec, path);
    if !spec.overhead.is_empty() {
        resources::overhead(report, &spec.overhead, &path.child("overhead"));
    }
    system(report, spec, path);
}

fn host_network(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    if !spec.host_network {
        return;
    }
    let containers = path.child("containers");
    for (index, c) in spec.containers.iter().enumerate() {
        let at = containers.index(index);
        let ports = at.child("ports");
        for (place, port) in c.ports.iter().enumerate().filter(|(_, p)| p.host_port != p.container_port) {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            let port_path = ports.index(place);
            report.invalid_number(&port_path.child("hostPort"), port.host_port.into(), detail);
        }
    }
}

fn host_users(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    if spec.host_users != Some(false) {
        return;
    }
    // spelled as the API server spells them
    let shared = [("hostNetwork", spec.host_network), ("HostPID", spec.host_pid), ("HostIPC", spec.host_ipc)];
    for (name, _) in shared.iter().filter(|(_, set)| *set) {
        report.forbidden(&path.child(name), "when `pod.Spec.HostUsers` is false");
    }
}

fn dns(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    let known = [value::CLUSTER_FIRST_WITH_HOST_NET, value::CLUSTER_FIRST, value::DNS_DEFAULT, value::NONE];
    report.need_one_of(&path.child("dnsPolicy"), &spec.dns_policy, &known);
    let at = path.child("dnsConfig");
    let none = spec.dns_policy == value::NONE;
    match spec.dns_config.as_deref() {
        None if none => report.required(&at, "must provide `dnsConfig` when `dnsPolicy` is None"),
        None => {}
        Some(config) if none && config.nameservers.is_empty() => {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            report.required(&at.child("nameservers"), detail);
        }
        Some(config) => dns_config(report, config, &at),
    }
}

fn dns_config(report: &mut Report, config: &PodDNSConfig, path: &Path<'_>) {
    let (servers, searches, options) =
        (path.child("nameservers"), path.child("searches"), path.child("options"));
    if config.nameservers.len() > NAMESERVERS_MAX {
        report.invalid_whole(&servers, &format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    for (index, server) in config.nameservers.iter().enumerate() {
        report.grammar(&servers.index(index), server, names::is_ip, names::IP);
    }
    if config.searches.len() > SEARCHES_MAX {
        report.invalid_whole(&searches, &format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    let length = config.searches.iter().map(String::len).fold(0, usize::saturating_add);
    if length.saturating_add(config.searches.len().saturating_sub(1)) > SEARCH_LIST_MAX {
        let detail = format!(
            "must not have more than {SEARCH_LIST_MAX} characters (including spaces) in the search list"
        );
        report.invalid_whole(&searches, &detail);
    }
    for (index, search) in config.searches.iter().enumerate().filter(|(_, s)| *s != ".") {
        let bare = search.strip_suffix('.').unwrap_or(search);
        report.grammar(&searches.index(index), bare, names::is_search_domain, DNS_SUBDOMAIN);
    }
    for (index, option) in config.options.iter().enumerate() {
        if option.name.is_empty() {
            report.required(&options.index(index), "must not be empty");
        }
    }
}

/// Host names and names of other objects.
fn names_of(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    let runtime_class = spec.runtime_class_name.as_deref();
    if runtime_class == Some("") {
        report.invalid(&path.child("runtimeClassName"), "", DNS_SUBDOMAIN);
    }
    for (name, text) in [
        ("serviceAccountName", spec.service_account_name.as_str()),
        ("nodeName", &spec.node_name),
        ("priorityClassName", &spec.priority_class_name),
        ("runtimeClassName", runtime_class.unwrap_or_default()),
    ] {
        if !text.is_empty() {
            report.grammar(&path.child(name), text, names::is_dns_subdomain, DNS_SUBDOMAIN);
        }
    }
    for (name, text) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if !text.is_empty() {
            report.grammar(&path.child(name), text, names::is_dns_label, DNS_LABEL);
        }
    }
    if let Some(name) = &spec.hostname_override {
        let at = path.child("hostnameOverride");
        report.grammar(&at, name, names::is_dns_subdomain, DNS_SUBDOMAIN);
        if name.len() > HOSTNAME_MAX {
            report.too_long(&at, HOSTNAME_MAX);
        }
        if spec.host_network {
            report.forbidden(&path.child("hostNetwork"), "cannot be true when `hostnameOverride` is set");
        }
        if spec.set_hostname_as_fqdn == Some(true) {
            let detail = "cannot be true when `hostnameOverride` is set";
            report.forbidden(&path.child("setHostnameAsFQDN"), detail);
        }
    }
    let aliases = path.child("hostAliases");
    for (index, alias) in spec.host_aliases.iter().enumerate() {
        let at = aliases.index(index);
        report.grammar(&at.child("ip"), &alias.ip, names::is_ip, names::IP);
        let hostnames = at.child("hostnames");
        for (place, name) in alias.hostnames.iter().enumerate() {
            report.grammar(&hostnames.index(place), name, names::is_dns_subdomain, DNS_SUBDOMAIN);
        }
    }
}

fn token_without_account(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    if !spec.service_account_name.is_empty() {
        return;
    }
    let list = path.child("volumes");
    for (index, volume) in spec.volumes.iter().enumerate() {
        let at = list.index(index);
        let projected = at.child("projected");
        let sources = projected.child("sources");
        for (place, source) in volume.projected.iter().flat_map(|p| &p.sources).enumerate() {
            if source.service_account_token.is_some() {
                let source_path = sources.index(place);
                let detail = "must not be specified when serviceAccountName is not set";
                report.forbidden(&source_path.child("serviceAccountToken"), detail);
            }
        }
    }
}

fn system(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let detail = "must be between 1 and 2147483647, inclusive";
        report.invalid_number(&path.child("activeDeadlineSeconds"), seconds, detail);
    }
    if let Some(policy) = &spec.preemption_policy {
        report.need_one_of(&path.child("preemptionPolicy"), policy, &["PreemptLowerPriority", value::NEVER]);
    }
    let Some(os) = &spec.os else { return };
    let at = path.child("os");
    match os.name.as_str() {
        "" => report.required(&at.child("name"), "cannot be empty"),
        "linux" => no_windows_options(report, spec, path),
        "windows" => security::windows(report, spec, path),
        other => report.not_supported(&at, other, &["linux", "windows"]),
    }
}

fn no_windows_options(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    let detail = "windows options cannot be set for a linux pod";
    if spec.security_context.as_ref().is_some_and(|s| s.windows_options.is_some()) {
        let context = path.child("securityContext");
        report.forbidden(&context.child("windowsOptions"), detail);
    }
    for (name, list) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        let list_path = path.child(name);
        for (index, c) in list.iter().enumerate() {
            if c.security_context.as_ref().is_some_and(|s| s.windows_options.is_some()) {
                let container = list_path.index(index);
                let context = container.child("securityContext");
                report.forbidden(&context.child("windowsOptions"), detail);
            }
        }
    }
}
