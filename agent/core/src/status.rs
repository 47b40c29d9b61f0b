//! From what is remembered of a pod to the `v1.PodStatus` that people see.
//!
//! The rules are those of the kubelet's `status/generate.go` and `kubelet_pods.go`: a container whose restart is
//! pending shows `waiting` and keeps its exit in `lastState`; a pod is Running while one main container runs or will
//! run again; a static pod with policy Always never becomes Succeeded or Failed by being stopped.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::lifecycle::pod::{
    ContainerRuntime, ContainerState as State, PodRuntime, Sandbox, Stage, Step, Terminated,
};
use crate::lifecycle::{ContainerKind, Now, SECOND};
use crate::phase::{self, Phase};
use crate::types::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodCondition, PodStatus, Time, value,
};

/// What the status needs besides the pod's own memory.
#[derive(Clone, Copy, Debug)]
pub struct StatusFacts<'a> {
    pub now: Now,
    /// the status shown before: transition times are kept while a condition does not change
    pub before: &'a PodStatus,
    /// why the pod is not run at all (host port taken, does not fit), with its reason word
    pub held: Option<(&'a str, &'a str)>,
    pub host_ip: &'a str,
}

fn time(wall: i64) -> Time {
    Time { seconds: wall.div_euclid(1_000_000_000) }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: reason.into(), message: message.into() };
    ContainerState { waiting: Some(Box::new(waiting)), ..ContainerState::default() }
}

fn terminated(exit: &Terminated) -> ContainerState {
    let ended = ContainerStateTerminated {
        exit_code: exit.exit_code,
        signal: exit.signal,
        reason: exit.reason.clone(),
        message: exit.message.clone(),
        started_at: Some(time(exit.started_wall)),
        finished_at: Some(time(exit.finished_wall)),
        container_id: container_id(&exit.container_id),
    };
    ContainerState { terminated: Some(Box::new(ended)), ..ContainerState::default() }
}

fn container_id(id: &str) -> String {
    if id.is_empty() { String::new() } else { format!("podkeep://{id}") }
}

/// Why a container that has not started waits: its own reason, else what the pod waits for.
fn waiting_reason(pod: &PodRuntime, own: (&str, &str), has_inits: bool) -> (String, String) {
    if !own.0.is_empty() {
        return (own.0.into(), own.1.into());
    }
    if let Step::Waiting { reason, message, .. } = &pod.volumes {
        return (reason.clone(), message.clone());
    }
    if let Sandbox::Failed { message, .. } = &pod.sandbox {
        return ("CreatePodSandboxError".into(), message.clone());
    }
    (if has_inits { "PodInitializing" } else { "ContainerCreating" }.into(), String::new())
}

fn container_status(
    pod: &PodRuntime,
    container: &ContainerRuntime,
    has_inits: bool,
    now: Now,
) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.shape.name.clone(),
        image: container.shape.image.clone(),
        image_id: container.image_id.clone(),
        restart_count: i32::try_from(container.restarts()).unwrap_or(i32::MAX),
        started: Some(false),
        ..ContainerStatus::default()
    };
    if let Some(last) = &container.last {
        status.last_state = terminated(last);
        status.container_id = container_id(&last.container_id);
    }
    match &container.state {
        State::Waiting { reason, message, .. } => {
            let (reason, message) = waiting_reason(pod, (reason, message), has_inits);
            status.state = waiting(&reason, &message);
        }
        State::Starting => {
            let (reason, message) = waiting_reason(pod, ("", ""), has_inits && !pod.initialized);
            status.state = waiting(&reason, &message);
        }
        State::Running(running) => {
            let started = ContainerStateRunning { started_at: Some(time(running.started_wall)) };
            status.state = ContainerState { running: Some(Box::new(started)), ..ContainerState::default() };
            status.container_id = container_id(&running.id);
            status.started = Some(true);
            status.ready = container.shape.kind != ContainerKind::Init && running.stop.is_none();
        }
        State::Exited(exit) => {
            status.container_id = container_id(&exit.container_id);
            match pod.restart_due(container) {
                Some(due) if due > now.boot => {
                    let message = back_off_message(container);
                    status.state = waiting("CrashLoopBackOff", &message);
                    status.last_state = terminated(exit);
                }
                _ => status.state = terminated(exit),
            }
            status.ready = container.shape.kind == ContainerKind::Init && exit.exit_code == 0;
        }
    }
    status
}

fn back_off_message(container: &ContainerRuntime) -> String {
    let seconds = container.backoff.delay / SECOND;
    let delay = match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    };
    let mut text = format!("back-off {delay} restarting failed container={}", container.shape.name);
    if let Some(message) = container.exited().map(|exit| &exit.message)
        && !message.is_empty()
    {
        text.push_str(": ");
        text.push_str(message);
    }
    text
}

/// The whole status.
#[must_use]
pub fn pod_status(pod: &Pod, runtime: &PodRuntime, facts: &StatusFacts<'_>) -> PodStatus {
    let has_inits = !pod.spec.init_containers.is_empty();
    let statuses: Vec<ContainerStatus> = runtime
        .containers
        .iter()
        .map(|container| container_status(runtime, container, has_inits, facts.now))
        .collect();
    let (reason, message) = match (&runtime.stage, facts.held) {
        (Stage::Done { reason, message, .. }, _) => (reason.clone(), message.clone()),
        (_, Some((reason, message))) => (reason.into(), message.into()),
        _ => (String::new(), String::new()),
    };
    let (mains, inits): (Vec<_>, Vec<_>) = runtime
        .containers
        .iter()
        .zip(statuses)
        .partition(|(container, _)| container.shape.kind == ContainerKind::Main);
    let strip = |pairs: Vec<(&ContainerRuntime, ContainerStatus)>| {
        pairs.into_iter().map(|(_, status)| status).collect()
    };
    let mut status = PodStatus {
        reason,
        message,
        host_ip: facts.host_ip.into(),
        pod_ip: if pod.spec.host_network { facts.host_ip.into() } else { String::new() },
        start_time: Some(time(runtime.start_wall)),
        container_statuses: strip(mains),
        init_container_statuses: strip(inits),
        qos_class: facts.before.qos_class.clone(),
        ..PodStatus::default()
    };
    let phase = match &runtime.stage {
        Stage::Done { failed: true, .. } => Phase::Failed,
        Stage::Done { failed: false, .. } => Phase::Succeeded,
        // a static pod never becomes Succeeded or Failed by being stopped, nor before its end was recorded
        _ => match phase::phase(pod, &status, false, runtime.initialized) {
            Phase::Succeeded | Phase::Failed => Phase::Running,
            other => other,
        },
    };
    status.phase = phase.name().into();
    status.conditions = conditions(pod, runtime, &status, phase, facts);
    status
}

fn plain(name: &str, holds: bool) -> PodCondition {
    let status = if holds { value::TRUE } else { value::FALSE };
    PodCondition { condition_type: name.into(), status: status.into(), ..PodCondition::default() }
}

fn conditions(
    pod: &Pod,
    runtime: &PodRuntime,
    status: &PodStatus,
    phase: Phase,
    facts: &StatusFacts<'_>,
) -> Vec<PodCondition> {
    let mut all =
        alloc::vec![plain("PodReadyToStartContainers", matches!(runtime.sandbox, Sandbox::Ready { .. }))];
    all.extend(phase::conditions(pod, status, phase));
    all.push(plain("PodScheduled", true));
    phase::date(&mut all, &facts.before.conditions, time(facts.now.wall));
    all
}

/// Adds a statement of our own where there is something to say, e.g. about settings that were left out.
pub fn add_note(
    status: &mut PodStatus,
    before: &PodStatus,
    now: Now,
    name: &str,
    reason: &str,
    message: &str,
) {
    if message.is_empty() {
        return;
    }
    let known = before.conditions.iter().find(|condition| condition.condition_type == name);
    status.conditions.push(PodCondition {
        condition_type: name.into(),
        status: value::TRUE.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: Some(
            known.and_then(|condition| condition.last_transition_time).unwrap_or_else(|| time(now.wall)),
        ),
        ..PodCondition::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::from_pod::pod_shape;
    use crate::lifecycle::pod::Running;
    use crate::lifecycle::{Backoff, BackoffSettings};
    use crate::types::Container;

    fn fixture() -> (Pod, PodRuntime) {
        let mut pod = Pod::default();
        pod.spec.restart_policy = "Always".into();
        pod.spec.containers.push(Container { name: "a".into(), ..Container::default() });
        let now = Now { boot: SECOND, wall: 0 };
        let runtime = PodRuntime::new(pod_shape(&pod), BackoffSettings::default(), now);
        (pod, runtime)
    }

    fn status(pod: &Pod, runtime: &PodRuntime, boot: u64) -> PodStatus {
        let before = PodStatus::default();
        let facts =
            StatusFacts { now: Now { boot, wall: 7_000_000_000 }, before: &before, held: None, host_ip: "" };
        pod_status(pod, runtime, &facts)
    }

    fn condition<'a>(status: &'a PodStatus, name: &str) -> &'a str {
        status.conditions.iter().find(|c| c.condition_type == name).map_or("", |c| c.status.as_str())
    }

    #[test]
    fn a_running_container_makes_the_pod_running_and_ready() {
        let (pod, mut runtime) = fixture();
        assert_eq!(status(&pod, &runtime, SECOND).phase, "Pending");
        runtime.adopt_running("a", Running { id: "x".into(), ..Running::default() });
        let seen = status(&pod, &runtime, SECOND);
        assert_eq!((seen.phase.as_str(), condition(&seen, "Ready")), ("Running", "True"));
        assert_eq!(seen.container_statuses[0].container_id, "podkeep://x");
    }

    #[test]
    fn a_pending_restart_shows_waiting_and_keeps_the_exit() {
        let (pod, mut runtime) = fixture();
        let exit = Terminated {
            exit_code: 3,
            finished_boot: SECOND,
            reason: "Error".into(),
            ..Terminated::default()
        };
        runtime.adopt_exited("a", exit, 1, true);
        let container = runtime.container_mut("a").expect("a");
        container.backoff = Backoff { delay: 10 * SECOND, stepped_at: 0 };
        let seen = status(&pod, &runtime, 2 * SECOND);
        let a = &seen.container_statuses[0];
        assert_eq!(a.state.waiting.as_ref().map(|w| w.reason.as_str()), Some("CrashLoopBackOff"));
        assert_eq!(a.last_state.terminated.as_ref().map(|t| t.exit_code), Some(3));
        assert_eq!(
            (seen.phase.as_str(), condition(&seen, "Ready"), a.restart_count),
            ("Running", "False", 1)
        );
    }

    #[test]
    fn what_the_pod_waits_for_is_the_containers_reason() {
        let (pod, mut runtime) = fixture();
        runtime.volumes = Step::Waiting { reason: "FailedMount".into(), message: "no '/x'".into(), until: 0 };
        let seen = status(&pod, &runtime, SECOND);
        let waiting = seen.container_statuses[0].state.waiting.as_ref().expect("waiting");
        assert_eq!((waiting.reason.as_str(), waiting.message.as_str()), ("FailedMount", "no '/x'"));
    }
}
