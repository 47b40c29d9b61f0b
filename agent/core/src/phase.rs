//! Phase and conditions of a pod from the statuses of its containers. Rules: the kubelet's `getPhase` and its status
//! package; the pod has its defaults filled in.
use crate::identity;
use crate::lifecycle::RestartPolicy;
use crate::resources::is_sidecar;
use crate::types::{
    Container, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, Time, value,
};
use alloc::{format, string::String, vec::Vec};

/// `Initialized`.
pub const INITIALIZED: &str = "Initialized";
/// `Ready`.
pub const READY: &str = "Ready";
/// `ContainersReady`.
pub const CONTAINERS_READY: &str = "ContainersReady";
/// `PodScheduled`.
pub const POD_SCHEDULED: &str = "PodScheduled";
/// `PodReadyToStartContainers`.
pub const READY_TO_START: &str = "PodReadyToStartContainers";

const NOT_INITIALIZED: &str = "ContainersNotInitialized";
const NOT_READY: &str = "ContainersNotReady";
const GATES_NOT_READY: &str = "ReadinessGatesNotReady";
const COMPLETED: &str = "PodCompleted";
const FAILED: &str = "PodFailed";

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Something has not been started yet.
    Pending,
    /// Everything has been started, and something runs or will run again.
    Running,
    /// All regular containers ended well, and none runs again.
    Succeeded,
    /// All regular containers ended, one of them badly, and none runs again.
    Failed,
}

impl Phase {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Pending => value::PENDING,
            Phase::Running => value::RUNNING,
            Phase::Succeeded => value::SUCCEEDED,
            Phase::Failed => value::FAILED,
        }
    }

    /// Whether nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }

    /// This phase, unless the pod had a final one before under the same UID.
    #[must_use]
    pub fn after(self, before: Option<Phase>) -> Phase {
        before.filter(|phase| phase.is_final()).unwrap_or(self)
    }
}

fn status<'a>(list: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    list.iter().find(|s| s.name == name)
}

/// What a status says of its container.
enum Seen<'a> {
    /// No status, or an empty one.
    Unknown,
    /// Never started in this sandbox.
    Waiting,
    /// Waits for its next start.
    Stopped(&'a ContainerStateTerminated),
    Running,
    Terminated(&'a ContainerStateTerminated),
}

fn seen<'a>(list: &'a [ContainerStatus], name: &str) -> Seen<'a> {
    let Some(status) = status(list, name) else { return Seen::Unknown };
    let state = &status.state;
    match (&state.running, &state.terminated, &state.waiting, &status.last_state.terminated) {
        (Some(_), ..) => Seen::Running,
        (None, Some(end), ..) => Seen::Terminated(end),
        (None, None, Some(_), Some(last)) => Seen::Stopped(last),
        (None, None, Some(_), None) => Seen::Waiting,
        _ => Seen::Unknown,
    }
}

fn policy(c: &Container, spec: &PodSpec) -> RestartPolicy {
    let text = c.restart_policy.as_deref().unwrap_or(&spec.restart_policy);
    RestartPolicy::parse(text).unwrap_or_default()
}

/// Whether a container that ended with this code starts again: its rules, its policy, the policy of the pod.
pub fn restarts(c: &Container, spec: &PodSpec, exit_code: i32) -> bool {
    if c.restart_policy.is_some() {
        let matching = c.restart_policy_rules.iter().find(|rule| {
            rule.exit_codes.as_ref().is_some_and(|codes| match codes.operator.as_str() {
                "In" => codes.values.contains(&exit_code),
                "NotIn" => !codes.values.contains(&exit_code),
                _ => false,
            })
        });
        if matching.is_some_and(|rule| matches!(rule.action.as_str(), "Restart" | "RestartAllContainers")) {
            return true;
        }
    }
    match policy(c, spec) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

#[derive(Default)]
struct Count {
    /// init containers that are not done
    init_pending: u32,
    /// init containers that failed for good
    init_failed: u32,
    /// sidecars that are not started
    sidecars_pending: u32,
    unknown: u32,
    waiting: u32,
    running: u32,
    stopped: u32,
    succeeded: u32,
    restarting: u32,
}

fn count_init(count: &mut Count, c: &Container, spec: &PodSpec, list: &[ContainerStatus]) {
    let end = match seen(list, &c.name) {
        Seen::Terminated(end) | Seen::Stopped(end) => end,
        Seen::Unknown | Seen::Waiting | Seen::Running => {
            count.init_pending += 1;
            return;
        }
    };
    if end.exit_code != 0 {
        // one that is started again keeps the pod pending, as it is not done
        if restarts(c, spec, end.exit_code) {
            count.init_pending += 1;
        } else {
            count.init_failed += 1;
        }
    }
}

fn count_sidecar(count: &mut Count, c: &Container, list: &[ContainerStatus]) {
    match seen(list, &c.name) {
        Seen::Running => {
            let started = status(list, &c.name).is_some_and(|s| s.started == Some(true));
            count.sidecars_pending += u32::from(!started);
            count.running += 1;
        }
        Seen::Waiting => {
            count.sidecars_pending += 1;
            count.waiting += 1;
        }
        Seen::Unknown => {
            count.sidecars_pending += u32::from(status(list, &c.name).is_some());
            count.unknown += 1;
        }
        // an exited sidecar says nothing about the pod
        Seen::Terminated(_) | Seen::Stopped(_) => {}
    }
}

fn count_main(count: &mut Count, c: &Container, spec: &PodSpec, list: &[ContainerStatus]) {
    match seen(list, &c.name) {
        Seen::Unknown => count.unknown += 1,
        Seen::Waiting => count.waiting += 1,
        Seen::Running => count.running += 1,
        Seen::Terminated(end) => {
            count.stopped += 1;
            count.succeeded += u32::from(end.exit_code == 0);
            count.restarting += u32::from(restarts(c, spec, end.exit_code));
        }
        Seen::Stopped(end) => {
            count.stopped += 1;
            // it waits for a start, which only a policy that restarts brings
            let again = restarts(c, spec, end.exit_code) || policy(c, spec) != RestartPolicy::Never;
            count.restarting += u32::from(again);
        }
    }
}

/// The phase. `terminal` says that the pod has been stopped for good; `initialized` that a regular container has been
/// started in the present sandbox.
pub fn phase(pod: &Pod, statuses: &PodStatus, terminal: bool, initialized: bool) -> Phase {
    let spec = &pod.spec;
    let (init, main) = (&statuses.init_container_statuses, &statuses.container_statuses);
    let mut count = Count::default();
    for c in &spec.init_containers {
        if is_sidecar(c) {
            count_sidecar(&mut count, c, init);
        } else {
            count_init(&mut count, c, spec, init);
        }
    }
    spec.containers.iter().for_each(|c| count_main(&mut count, c, spec, main));

    if count.init_failed > 0 {
        return Phase::Failed;
    }
    let pending = count.init_pending > 0 || (count.sidecars_pending > 0 && !initialized);
    if pending || count.waiting > 0 || count.unknown > 0 {
        return Phase::Pending;
    }
    if count.running > 0 {
        return Phase::Running;
    }
    if count.stopped == 0 {
        return Phase::Pending;
    }
    // a static pod is not made final by being stopped: its manifest still wants it
    let ended = terminal && !identity::is_static(pod);
    if count.restarting > 0 && !ended {
        return Phase::Running;
    }
    if count.stopped == count.succeeded { Phase::Succeeded } else { Phase::Failed }
}

fn condition(kind: &str, status: &str, reason: &str, message: String) -> PodCondition {
    PodCondition {
        condition_type: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        ..Default::default()
    }
}

/// Names in the words of the kubelet: `containers with unready status: [a b]`.
fn message(lists: &[(&str, &[&str])]) -> String {
    let parts: Vec<String> = lists
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")))
        .collect();
    parts.join(", ")
}

/// `Initialized`, `Ready` and `ContainersReady` of a pod, without times.
pub fn conditions(pod: &Pod, statuses: &PodStatus, phase: Phase) -> [PodCondition; 3] {
    let containers = containers_ready(&pod.spec, statuses, phase);
    [initialized(&pod.spec, statuses, phase), ready(&pod.spec, statuses, &containers), containers]
}

fn initialized(spec: &PodSpec, statuses: &PodStatus, phase: Phase) -> PodCondition {
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for c in &spec.init_containers {
        match status(&statuses.init_container_statuses, &c.name) {
            None => unknown.push(c.name.as_str()),
            Some(s) => {
                let done = if is_sidecar(c) { s.started == Some(true) } else { s.ready };
                if !done {
                    incomplete.push(c.name.as_str());
                }
            }
        }
    }
    if phase == Phase::Succeeded && unknown.is_empty() {
        return condition(INITIALIZED, value::TRUE, COMPLETED, String::new());
    }
    let started = |c: &Container| {
        matches!(seen(&statuses.container_statuses, &c.name), Seen::Running | Seen::Terminated(_))
    };
    if spec.containers.iter().any(started) || (unknown.is_empty() && incomplete.is_empty()) {
        return condition(INITIALIZED, value::TRUE, "", String::new());
    }
    let text = message(&[("unknown", &unknown), ("incomplete", &incomplete)]);
    condition(INITIALIZED, value::FALSE, NOT_INITIALIZED, text)
}

fn containers_ready(spec: &PodSpec, statuses: &PodStatus, phase: Phase) -> PodCondition {
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    let sidecars = spec.init_containers.iter().filter(|c| is_sidecar(c));
    let sidecars = sidecars.map(|c| (c, status(&statuses.init_container_statuses, &c.name)));
    let mains = spec.containers.iter().map(|c| (c, status(&statuses.container_statuses, &c.name)));
    for (c, s) in sidecars.chain(mains) {
        match s {
            None => unknown.push(c.name.as_str()),
            Some(s) if !s.ready => unready.push(c.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == Phase::Succeeded && unknown.is_empty() {
        return condition(CONTAINERS_READY, value::FALSE, COMPLETED, String::new());
    }
    if phase == Phase::Failed {
        return condition(CONTAINERS_READY, value::FALSE, FAILED, String::new());
    }
    if unknown.is_empty() && unready.is_empty() {
        return condition(CONTAINERS_READY, value::TRUE, "", String::new());
    }
    let text = message(&[("unknown", &unknown), ("unready", &unready)]);
    condition(CONTAINERS_READY, value::FALSE, NOT_READY, text)
}

fn ready(spec: &PodSpec, statuses: &PodStatus, containers: &PodCondition) -> PodCondition {
    if containers.status != value::TRUE {
        return PodCondition { condition_type: READY.into(), ..containers.clone() };
    }
    let mut missing: Vec<String> = Vec::new();
    for gate in &spec.readiness_gates {
        let name = &gate.condition_type;
        match statuses.conditions.iter().find(|c| c.condition_type == *name) {
            None => missing
                .push(format!("corresponding condition of pod readiness gate \"{name}\" does not exist.")),
            Some(c) if c.status != value::TRUE => {
                missing.push(format!(
                    "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                    c.status
                ));
            }
            Some(_) => {}
        }
    }
    match missing.is_empty() {
        true => condition(READY, value::TRUE, "", String::new()),
        false => condition(READY, value::FALSE, GATES_NOT_READY, missing.join(", ")),
    }
}

/// Gives every condition its time: that of the same condition before if its status is the same, else `now`.
pub fn date(conditions: &mut [PodCondition], before: &[PodCondition], now: Time) {
    for new in conditions {
        let old = before.iter().find(|c| c.condition_type == new.condition_type && c.status == new.status);
        new.last_transition_time = old.and_then(|c| c.last_transition_time).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_phase_stays() {
        assert_eq!(Phase::Running.after(Some(Phase::Failed)), Phase::Failed);
        assert_eq!(Phase::Running.after(Some(Phase::Pending)), Phase::Running);
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let (early, late) = (Time { seconds: 1 }, Time { seconds: 2 });
        let mut old = [condition(READY, value::TRUE, "", String::new())];
        date(&mut old, &[], early);
        let mut same = [condition(READY, value::TRUE, "x", String::new())];
        date(&mut same, &old, late);
        assert_eq!(same[0].last_transition_time, Some(early));
        let mut changed = [condition(READY, value::FALSE, "", String::new())];
        date(&mut changed, &old, late);
        assert_eq!(changed[0].last_transition_time, Some(late));
    }

    #[test]
    fn the_message_names_the_containers() {
        let pod: Pod = serde_json::from_str(
            r#"{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]},
                "status":{"containerStatuses":[{"name":"a"},{"name":"c"}]}}"#,
        )
        .unwrap();
        let [_, ready, _] = conditions(&pod, &pod.status, Phase::Pending);
        assert_eq!(
            ready.message,
            "containers with unknown status: [b], containers with unready status: [a c]"
        );
    }
}
