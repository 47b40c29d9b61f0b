//! The part of a `v1.Pod` that the lifecycle acts on.

use alloc::vec::Vec;

use super::shape::{ContainerKind, ContainerShape, PodShape, RestartPolicy, RestartRule, RuleAction};
use crate::types::{Container, Pod};

/// `terminationGracePeriodSeconds` where the manifest says nothing (API default).
const DEFAULT_GRACE: u64 = 30;

fn rules(container: &Container) -> Vec<RestartRule> {
    container
        .restart_policy_rules
        .iter()
        .map(|rule| RestartRule {
            action: if rule.action == "RestartAllContainers" {
                RuleAction::RestartAllContainers
            } else {
                RuleAction::Restart
            },
            negated: rule.exit_codes.as_ref().is_some_and(|codes| codes.operator == "NotIn"),
            exit_codes: rule.exit_codes.as_ref().map(|codes| codes.values.clone()).unwrap_or_default(),
        })
        .collect()
}

fn shape(container: &Container, init: bool) -> ContainerShape {
    let policy = container.restart_policy.as_deref().and_then(RestartPolicy::parse);
    let kind = match (init, policy) {
        (true, Some(RestartPolicy::Always)) => ContainerKind::Sidecar,
        (true, _) => ContainerKind::Init,
        (false, _) => ContainerKind::Main,
    };
    ContainerShape {
        name: container.name.clone(),
        image: container.image.clone(),
        kind,
        restart_policy: policy,
        rules: rules(container),
    }
}

/// The container or init container of that name.
#[must_use]
pub fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers).find(|container| container.name == name)
}

/// Containers in the order of their start, and what decides over them.
#[must_use]
pub fn pod_shape(pod: &Pod) -> PodShape {
    let spec = &pod.spec;
    let inits = spec.init_containers.iter().map(|container| shape(container, true));
    let mains = spec.containers.iter().map(|container| shape(container, false));
    PodShape {
        restart_policy: RestartPolicy::parse(&spec.restart_policy).unwrap_or_default(),
        containers: inits.chain(mains).collect(),
        grace_seconds: spec
            .termination_grace_period_seconds
            .map_or(DEFAULT_GRACE, |grace| u64::try_from(grace).unwrap_or_default()),
        active_deadline_seconds: spec
            .active_deadline_seconds
            .map(|seconds| u64::try_from(seconds).unwrap_or_default()),
    }
}
