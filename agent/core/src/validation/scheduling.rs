//! Validation of what a scheduler would use: affinity, spreading, tolerations, gates, claims.
use super::metadata::selector;
use super::names::{self, DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE, QUALIFIED};
use super::{Path, Report};
use crate::types::affinity::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    TopologySpreadConstraint,
};
use crate::types::{LabelSelector, PodSpec, Toleration};
use alloc::collections::BTreeSet;

const SELECTOR_OPERATOR: &str = "not a valid selector operator";

/// Affinity of a pod.
pub(super) fn affinity(report: &mut Report, affinity: Option<&Affinity>, path: &Path<'_>) {
    let Some(affinity) = affinity else { return };
    if let Some(node) = &affinity.node_affinity {
        let at = path.child("nodeAffinity");
        if let Some(required) = &node.required {
            let required_path = at.child("requiredDuringSchedulingIgnoredDuringExecution");
            let terms = required_path.child("nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                report.required(&terms, "must have at least one node selector term");
            }
            for (index, term) in required.node_selector_terms.iter().enumerate() {
                node_term(report, term, true, &terms.index(index));
            }
        }
        let preferred = at.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in node.preferred.iter().enumerate() {
            let term_path = preferred.index(index);
            weight(report, term.weight, &term_path);
            node_term(report, &term.preference, false, &term_path.child("preference"));
        }
    }
    pod_affinity(report, affinity.pod_affinity.as_deref(), &path.child("podAffinity"));
    pod_affinity(report, affinity.pod_anti_affinity.as_deref(), &path.child("podAntiAffinity"));
}

fn weight(report: &mut Report, weight: i32, path: &Path<'_>) {
    if !(1..=100).contains(&weight) {
        report.invalid_number(&path.child("weight"), weight.into(), "must be in the range 1-100");
    }
}

fn node_term(report: &mut Report, term: &NodeSelectorTerm, strict: bool, path: &Path<'_>) {
    let (labels, fields) = (path.child("matchExpressions"), path.child("matchFields"));
    for (index, wanted) in term.match_expressions.iter().enumerate() {
        node_label(report, wanted, strict, &labels.index(index));
    }
    for (index, wanted) in term.match_fields.iter().enumerate() {
        let at = fields.index(index);
        let values = at.child("values");
        match wanted.operator.as_str() {
            "In" | "NotIn" if wanted.values.len() != 1 => {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                report.required(&values, detail);
            }
            "In" | "NotIn" => {}
            other => report.invalid(&at.child("operator"), other, SELECTOR_OPERATOR),
        }
        if wanted.key != "metadata.name" {
            report.invalid(&at.child("key"), &wanted.key, "not a valid field selector key");
            continue;
        }
        for (place, name) in wanted.values.iter().enumerate() {
            report.grammar(&values.index(place), name, names::is_dns_subdomain, DNS_SUBDOMAIN);
        }
    }
}

fn node_label(report: &mut Report, wanted: &NodeSelectorRequirement, strict: bool, path: &Path<'_>) {
    let values = path.child("values");
    match (wanted.operator.as_str(), wanted.values.len()) {
        ("In" | "NotIn", 0) => {
            report.required(&values, "must be specified when `operator` is 'In' or 'NotIn'")
        }
        ("In" | "NotIn", _) | ("Exists" | "DoesNotExist", 0) | ("Gt" | "Lt", 1) => {}
        ("Exists" | "DoesNotExist", _) => {
            report.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        ("Gt" | "Lt", _) => {
            report.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        (other, _) => report.invalid(&path.child("operator"), other, SELECTOR_OPERATOR),
    }
    report.grammar(&path.child("key"), &wanted.key, names::is_qualified, QUALIFIED);
    if strict {
        for (index, text) in wanted.values.iter().enumerate() {
            report.grammar(&values.index(index), text, names::is_label_value, LABEL_VALUE);
        }
    }
}

fn pod_affinity(report: &mut Report, affinity: Option<&PodAffinity>, path: &Path<'_>) {
    let Some(affinity) = affinity else { return };
    let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.required.iter().enumerate() {
        pod_term(report, term, &required.index(index));
    }
    let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.preferred.iter().enumerate() {
        let at = preferred.index(index);
        weight(report, term.weight, &at);
        pod_term(report, &term.pod_affinity_term, &at.child("podAffinityTerm"));
    }
}

fn pod_term(report: &mut Report, term: &PodAffinityTerm, path: &Path<'_>) {
    selector(report, term.label_selector.as_deref(), &path.child("labelSelector"));
    selector(report, term.namespace_selector.as_deref(), &path.child("namespaceSelector"));
    for name in &term.namespaces {
        report.grammar(&path.child("namespace"), name, names::is_dns_label, DNS_LABEL);
    }
    for (name, keys) in
        [("matchLabelKeys", &term.match_label_keys), ("mismatchLabelKeys", &term.mismatch_label_keys)]
    {
        let at = path.child(name);
        if !keys.is_empty() && term.label_selector.is_none() {
            report.forbidden(&at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            report.grammar(&at.index(index), key, names::is_qualified, QUALIFIED);
        }
    }
    let keys = path.child("matchLabelKeys");
    for (index, key) in term.match_label_keys.iter().enumerate() {
        if term.mismatch_label_keys.contains(key) {
            report.invalid(&keys.index(index), key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    if term.topology_key.is_empty() {
        report.required(&path.child("topologyKey"), "can not be empty");
    }
    report.grammar(&path.child("topologyKey"), &term.topology_key, names::is_qualified, QUALIFIED);
}

/// How pods spread over places.
pub(super) fn spreading(report: &mut Report, list: &[TopologySpreadConstraint], path: &Path<'_>) {
    for (index, constraint) in list.iter().enumerate() {
        let at = path.index(index);
        if constraint.max_skew <= 0 {
            report.invalid_number(
                &at.child("maxSkew"),
                constraint.max_skew.into(),
                "must be greater than zero",
            );
        }
        if constraint.topology_key.is_empty() {
            report.required(&at.child("topologyKey"), "can not be empty");
        }
        let action = constraint.when_unsatisfiable.as_str();
        report.one_of(&at.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        let same = |other: &TopologySpreadConstraint| {
            other.topology_key == constraint.topology_key && other.when_unsatisfiable == action
        };
        if list.iter().skip(index).skip(1).any(same) {
            report.duplicate(&at.child("{topologyKey, whenUnsatisfiable}"), &constraint.topology_key, action);
        }
        if let Some(domains) = constraint.min_domains {
            let domains_path = at.child("minDomains");
            if domains <= 0 {
                report.invalid_number(&domains_path, domains.into(), "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = "can only use minDomains if whenUnsatisfiable=DoNotSchedule";
                report.invalid_number(&domains_path, domains.into(), detail);
            }
        }
        for (name, policy) in [
            ("nodeAffinityPolicy", &constraint.node_affinity_policy),
            ("nodeTaintsPolicy", &constraint.node_taints_policy),
        ] {
            if let Some(policy) = policy {
                report.one_of(&at.child(name), policy, &["Honor", "Ignore"]);
            }
        }
        spreading_keys(report, constraint, &at.child("matchLabelKeys"));
        selector(report, constraint.label_selector.as_deref(), &at.child("labelSelector"));
    }
}

fn spreading_keys(report: &mut Report, constraint: &TopologySpreadConstraint, path: &Path<'_>) {
    if constraint.match_label_keys.is_empty() {
        return;
    }
    let chosen = constraint.label_selector.as_deref();
    if chosen.is_none() {
        report.forbidden(path, "must not be specified when labelSelector is not set");
    }
    let names_key = |s: &LabelSelector, key: &str| {
        s.match_labels.contains_key(key) || s.match_expressions.iter().any(|e| e.key == key)
    };
    for (index, key) in constraint.match_label_keys.iter().enumerate() {
        report.grammar(&path.index(index), key, names::is_qualified, QUALIFIED);
        if chosen.is_some_and(|s| names_key(s, key)) {
            report.invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// Tolerations of a pod.
pub(super) fn tolerations(report: &mut Report, list: &[Toleration], path: &Path<'_>) {
    for (index, toleration) in list.iter().enumerate() {
        let at = path.index(index);
        let operator = at.child("operator");
        if !toleration.key.is_empty() {
            report.grammar(&at.child("key"), &toleration.key, names::is_qualified, QUALIFIED);
        } else if toleration.operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            report.invalid(&operator, &toleration.operator, detail);
        }
        if toleration.toleration_seconds.is_some() && toleration.effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            report.invalid(&at.child("effect"), &toleration.effect, detail);
        }
        match toleration.operator.as_str() {
            "Equal" | "" => report.grammar(&operator, &toleration.value, names::is_label_value, LABEL_VALUE),
            "Exists" if !toleration.value.is_empty() => {
                report.invalid(
                    &operator,
                    &toleration.value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            other => report.not_supported(&operator, other, &["Equal", "Exists"]),
        }
        if !toleration.effect.is_empty() {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            report.one_of(&at.child("effect"), &toleration.effect, &known);
        }
    }
}

/// Gates, readiness gates, claims.
pub(super) fn gates(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    let readiness = path.child("readinessGates");
    for (index, gate) in spec.readiness_gates.iter().enumerate() {
        let at = readiness.index(index);
        report.grammar(&at.child("conditionType"), &gate.condition_type, names::is_qualified, QUALIFIED);
    }
    let gates = path.child("schedulingGates");
    let mut taken = BTreeSet::new();
    for (index, gate) in spec.scheduling_gates.iter().enumerate() {
        report.grammar(&gates.index(index), &gate.name, names::is_qualified, QUALIFIED);
        if !taken.insert(gate.name.as_str()) {
            report.duplicate(&gates.index(index), &gate.name, "");
        }
    }
    if !spec.scheduling_gates.is_empty() && !spec.node_name.is_empty() {
        report
            .forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    claims(report, spec, &path.child("resourceClaims"));
}

fn claims(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    let mut taken = BTreeSet::new();
    for (index, claim) in spec.resource_claims.iter().enumerate() {
        let at = path.index(index);
        if claim.name.is_empty() {
            report.required(&at.child("name"), "");
        } else if !taken.insert(claim.name.as_str()) {
            report.duplicate(&at.child("name"), &claim.name, "");
        } else {
            report.grammar(&at.child("name"), &claim.name, names::is_dns_label, DNS_LABEL);
        }
        let both = [
            ("resourceClaimName", &claim.resource_claim_name),
            ("resourceClaimTemplateName", &claim.resource_claim_template_name),
        ];
        match both.iter().filter(|(_, name)| name.is_some()).count() {
            0 => report
                .invalid_whole(&at, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => {}
            _ => {
                let detail =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                report.invalid_whole(&at, detail);
            }
        }
        for (field, name) in both {
            if let Some(name) = name {
                report.grammar(&at.child(field), name, names::is_dns_subdomain, DNS_SUBDOMAIN);
            }
        }
    }
}
