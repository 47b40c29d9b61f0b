//! Validation of amounts: names, signs, limits over requests, huge pages, pod-level amounts.
use super::names::{self, QUALIFIED};
use super::{Path, Report};
use crate::quantity::Quantity;
use crate::resources::{container_requests, is_pod_level};
use crate::types::{Pod, ResourceList, ResourceRequirements, value};
use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
};

fn is_huge(name: &str) -> bool {
    name.starts_with(value::HUGEPAGES_PREFIX)
}

fn is_standard(name: &str) -> bool {
    name == value::CPU || name == value::MEMORY || name == value::EPHEMERAL_STORAGE || is_huge(name)
}

/// A resource of Kubernetes itself: without a prefix, or with its own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// A resource of somebody else, such as a device: whole numbers, request equal to limit.
fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::is_qualified(&format!("requests.{name}"))
}

fn container_name(report: &mut Report, name: &str, path: &Path<'_>) {
    if !names::is_qualified(name) {
        report.invalid(path, name, QUALIFIED);
    } else if !name.contains('/') {
        if !is_standard(name) {
            report.invalid(path, name, "must be a standard resource type or fully qualified");
        }
    } else if !is_native(name) && !is_extended(name) {
        report.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_name(report: &mut Report, name: &str, path: &Path<'_>) {
    if !is_pod_level(name) {
        report.not_supported(path, name, &[value::CPU, value::HUGEPAGES_PREFIX, value::MEMORY]);
    }
}

fn amount(report: &mut Report, name: &str, amount: &Quantity, path: &Path<'_>) {
    let text = amount.to_string();
    if amount.sign() < 0 {
        report.invalid(path, &text, "must be greater than or equal to 0");
    }
    if is_extended(name) && !amount.is_whole() {
        report.invalid(path, &text, "must be an integer");
    }
    if is_huge(name) {
        let size = name.strip_prefix(value::HUGEPAGES_PREFIX).and_then(|size| size.parse::<Quantity>().ok());
        let size = size.filter(|size| size.sign() > 0);
        match size {
            None => report.invalid(
                path,
                &text,
                "the size in the name of the huge page resource is not a quantity",
            ),
            Some(size) if amount.nanos().checked_rem(size.nanos()) != Some(0) => {
                report.invalid(path, &text, &format!("must be a multiple of the page size {size}"));
            }
            Some(_) => {}
        }
    }
}

/// `m` behind an amount of memory is a thousandth of a byte; nobody means that.
fn under_one_byte(report: &mut Report, name: &str, amount: &Quantity, path: &Path<'_>) {
    let bytes = name == value::MEMORY || name == value::EPHEMERAL_STORAGE;
    if bytes && amount.sign() > 0 && *amount < Quantity::from_bytes(1) {
        let number = amount.milli();
        let detail =
            format!("is less than one byte, as m means thousandths; did you mean {number}M or {number}Mi?");
        report.invalid(path, &amount.to_string(), &detail);
    }
}

type NameRule = fn(&mut Report, &str, &Path<'_>);

fn requirements(report: &mut Report, r: &ResourceRequirements, name_rule: NameRule, path: &Path<'_>) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    for (name, limit) in &r.limits {
        let at = limits.key(name);
        name_rule(report, name, &at);
        amount(report, name, limit, &at);
        under_one_byte(report, name, limit, &at);
    }
    for (name, request) in &r.requests {
        let at = requests.key(name);
        name_rule(report, name, &at);
        amount(report, name, request, &at);
        let overcommit = is_native(name) && !is_huge(name);
        match r.limits.get(name) {
            Some(limit) if request != limit && !overcommit => {
                let detail = format!("must be equal to {name} limit of {limit}");
                report.invalid(&requests, &request.to_string(), &detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                report.invalid(&requests, &request.to_string(), &detail);
            }
            Some(_) => {}
            None if !overcommit => {
                report.required(&limits, "Limit must be set for non overcommitable resources");
            }
            None => {}
        }
        // a request that was filled in from the limit has been told about there
        if r.limits.get(name) != Some(request) {
            under_one_byte(report, name, request, &at);
        }
    }
    let names = || r.limits.keys().chain(r.requests.keys());
    if names().any(|n| is_huge(n)) && !names().any(|n| n == value::CPU || n == value::MEMORY) {
        report.forbidden(path, "HugePages require cpu or memory");
    }
}

/// Amounts of a container. `pod_claims` are the names of the claims of its pod.
pub(super) fn container(report: &mut Report, r: &ResourceRequirements, pod_claims: &[&str], path: &Path<'_>) {
    requirements(report, r, container_name, path);
    let claims = path.child("claims");
    let mut taken: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (index, claim) in r.claims.iter().enumerate() {
        let at = claims.index(index);
        if claim.name.is_empty() {
            report.required(&at, "");
            continue;
        }
        if !pod_claims.contains(&claim.name.as_str()) {
            report.not_found(&at, &claim.name);
        }
        if !claim.request.is_empty() {
            report.grammar(&at.child("request"), &claim.request, names::is_dns_label, names::DNS_LABEL);
        }
        let key = (claim.name.as_str(), claim.request.as_str());
        let whole = taken.contains(&(key.0, "")) || (key.1.is_empty() && taken.iter().any(|t| t.0 == key.0));
        if whole || !taken.insert(key) {
            report.duplicate(&at, &claim.name, "");
        }
    }
}

/// Overhead of the runtime.
pub(super) fn overhead(report: &mut Report, list: &ResourceList, path: &Path<'_>) {
    let limits = ResourceRequirements { limits: list.clone(), ..Default::default() };
    requirements(report, &limits, container_name, path);
}

/// Pod-level amounts, also against those of the containers.
pub(super) fn pod(report: &mut Report, pod: &Pod, path: &Path<'_>) {
    let Some(own) = pod.spec.resources.as_deref() else { return };
    if !own.claims.is_empty() {
        report.forbidden(&path.child("claims"), "claims cannot be set for Resources at pod-level");
    }
    requirements(report, own, pod_name, path);
    let requests = path.child("requests");
    for (name, sum) in container_requests(pod) {
        let of_pod = own.requests.get(&name).copied().unwrap_or_default();
        if sum > of_pod && is_pod_level(&name) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            report.invalid(&requests.key(&name), &of_pod.to_string(), &detail);
        }
    }
    let containers = path.child("containers");
    for (index, c) in pod.spec.containers.iter().enumerate() {
        let at = containers.index(index);
        for (name, limit) in &c.resources.limits {
            let Some(of_pod) = own.limits.get(name).filter(|of_pod| limit > *of_pod) else { continue };
            let detail: String = format!("must be less than or equal to pod limits of {of_pod}");
            let resource = at.key(name);
            report.invalid(&resource.child("limits"), &limit.to_string(), &detail);
        }
    }
}
