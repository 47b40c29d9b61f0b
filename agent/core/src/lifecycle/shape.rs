//! What the lifecycle needs to know of a pod: its containers in order and their restart rules.

use alloc::string::String;
use alloc::vec::Vec;

/// `restartPolicy` of a pod or a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// The API's word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// What a matching rule asks for (KEP-5307).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    Restart,
    RestartAllContainers,
}

/// One of `restartPolicyRules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    pub action: RuleAction,
    /// `NotIn` instead of `In`
    pub negated: bool,
    pub exit_codes: Vec<i32>,
}

impl RestartRule {
    fn matches(&self, exit_code: i32) -> bool {
        self.exit_codes.contains(&exit_code) != self.negated
    }
}

/// Which list a container stands in, and how it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    /// runs to completion before the next one starts
    Init,
    /// init container with `restartPolicy: Always`: started in order, then lives beside the others
    Sidecar,
    Main,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerShape {
    pub name: String,
    pub image: String,
    pub kind: ContainerKind,
    pub restart_policy: Option<RestartPolicy>,
    pub rules: Vec<RestartRule>,
}

/// What happens after an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExit {
    Stay,
    Restart,
    RestartAllContainers,
}

impl ContainerShape {
    /// The decision after an exit, rules first, then the container's policy, then the pod's.
    #[must_use]
    pub fn after_exit(&self, pod: RestartPolicy, exit_code: i32) -> AfterExit {
        if self.kind == ContainerKind::Sidecar {
            return AfterExit::Restart;
        }
        if self.restart_policy.is_some()
            && let Some(rule) = self.rules.iter().find(|rule| rule.matches(exit_code))
        {
            return match rule.action {
                RuleAction::Restart => AfterExit::Restart,
                RuleAction::RestartAllContainers => AfterExit::RestartAllContainers,
            };
        }
        let policy = match (self.restart_policy, self.kind) {
            (Some(own), _) => own,
            // "Always" of the pod means for an init container: again until it succeeds
            (None, ContainerKind::Init) if pod == RestartPolicy::Always => RestartPolicy::OnFailure,
            (None, _) => pod,
        };
        if policy.restarts(exit_code) { AfterExit::Restart } else { AfterExit::Stay }
    }
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodShape {
    pub restart_policy: RestartPolicy,
    /// init containers and sidecars first, in their order, then the main containers
    pub containers: Vec<ContainerShape>,
    /// `terminationGracePeriodSeconds`
    pub grace_seconds: u64,
    /// `activeDeadlineSeconds`
    pub active_deadline_seconds: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn container(
        kind: ContainerKind,
        policy: Option<RestartPolicy>,
        rules: Vec<RestartRule>,
    ) -> ContainerShape {
        ContainerShape { name: "c".into(), image: "i".into(), kind, restart_policy: policy, rules }
    }

    #[test]
    fn policies_decide_by_exit_code() {
        let main = container(ContainerKind::Main, None, vec![]);
        assert_eq!(main.after_exit(RestartPolicy::Always, 0), AfterExit::Restart);
        assert_eq!(main.after_exit(RestartPolicy::OnFailure, 0), AfterExit::Stay);
        assert_eq!(main.after_exit(RestartPolicy::OnFailure, 3), AfterExit::Restart);
        assert_eq!(main.after_exit(RestartPolicy::Never, 3), AfterExit::Stay);
    }

    #[test]
    fn an_init_container_under_always_runs_until_it_succeeds() {
        let init = container(ContainerKind::Init, None, vec![]);
        assert_eq!(init.after_exit(RestartPolicy::Always, 0), AfterExit::Stay);
        assert_eq!(init.after_exit(RestartPolicy::Always, 1), AfterExit::Restart);
        assert_eq!(init.after_exit(RestartPolicy::Never, 1), AfterExit::Stay);
    }

    #[test]
    fn the_first_matching_rule_wins_over_the_policy() {
        let rules = vec![
            RestartRule { action: RuleAction::RestartAllContainers, negated: false, exit_codes: vec![42] },
            RestartRule { action: RuleAction::Restart, negated: true, exit_codes: vec![0, 42] },
        ];
        let main = container(ContainerKind::Main, Some(RestartPolicy::Never), rules);
        assert_eq!(main.after_exit(RestartPolicy::Always, 42), AfterExit::RestartAllContainers);
        assert_eq!(main.after_exit(RestartPolicy::Always, 7), AfterExit::Restart);
        assert_eq!(main.after_exit(RestartPolicy::Always, 0), AfterExit::Stay);
    }
}
