//! From what is remembered of a pod to the `v1.PodStatus` that people see.
//!
//! The rules are those of the kubelet's `status/generate.go` and `kubelet_pods.go`: a container whose restart is
//! pending shows `waiting` and keeps its exit in `lastState`; a pod is Running while one main container runs or will
//! run again; a static pod with policy Always never becomes Succeeded or Failed by being stopped.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::lifecycle::pod::{
    ContainerRuntime, ContainerState as State, PodRuntime, Sandbox, Stage, Step, Terminated,
};
use crate::lifecycle::{ContainerKind, Now, SECOND};
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

/// Pending, Running, Succeeded, Failed.
#[must_use]
pub fn phase(pod: &PodRuntime) -> &'static str {
    if let Stage::Done { failed, .. } = &pod.stage {
        return if *failed { value::FAILED } else { value::SUCCEEDED };
    }
    let mains = || pod.containers.iter().filter(|container| container.shape.kind == ContainerKind::Main);
    let ran = |container: &ContainerRuntime| container.starts > 0;
    if mains().all(ran) && !pod.containers.is_empty() { value::RUNNING } else { value::PENDING }
}

struct Readiness {
    initialized: bool,
    unready: Vec<String>,
    incomplete: Vec<String>,
}

fn readiness(pod: &PodRuntime, statuses: &[ContainerStatus]) -> Readiness {
    let mut found = Readiness { initialized: true, unready: Vec::new(), incomplete: Vec::new() };
    for (container, status) in pod.containers.iter().zip(statuses) {
        match container.shape.kind {
            ContainerKind::Main if !status.ready => found.unready.push(status.name.clone()),
            ContainerKind::Sidecar if !status.ready => {
                found.unready.push(status.name.clone());
                found.incomplete.push(status.name.clone());
            }
            ContainerKind::Init if !status.ready => found.incomplete.push(status.name.clone()),
            _ => {}
        }
    }
    found.initialized = pod.initialized || found.incomplete.is_empty();
    found
}

fn named(prefix: &str, names: &[String]) -> String {
    format!("{prefix}: [{}]", names.join(" "))
}

fn conditions(pod: &PodRuntime, statuses: &[ContainerStatus], facts: &StatusFacts<'_>) -> Vec<PodCondition> {
    let found = readiness(pod, statuses);
    let over = match &pod.stage {
        Stage::Done { failed: true, .. } => Some("PodFailed"),
        Stage::Done { failed: false, .. } => Some("PodCompleted"),
        _ => None,
    };
    let ready = found.unready.is_empty() && over.is_none() && found.initialized && facts.held.is_none();
    let not_ready = || named("containers with unready status", &found.unready);
    let sandbox = matches!(pod.sandbox, Sandbox::Ready { .. });
    let incomplete = named("containers with incomplete status", &found.incomplete);
    let rows: [(&str, bool, &str, String); 5] = [
        ("PodReadyToStartContainers", sandbox, "", String::new()),
        (
            "Initialized",
            found.initialized,
            if over == Some("PodCompleted") {
                "PodCompleted"
            } else if found.initialized {
                ""
            } else {
                "ContainersNotInitialized"
            },
            if found.initialized { String::new() } else { incomplete },
        ),
        (
            "Ready",
            ready,
            if ready { "" } else { over.unwrap_or("ContainersNotReady") },
            if ready || over.is_some() { String::new() } else { not_ready() },
        ),
        (
            "ContainersReady",
            ready,
            if ready { "" } else { over.unwrap_or("ContainersNotReady") },
            if ready || over.is_some() { String::new() } else { not_ready() },
        ),
        ("PodScheduled", true, "", String::new()),
    ];
    rows.into_iter()
        .map(|(name, holds, reason, message)| {
            let status = if holds { value::TRUE } else { value::FALSE };
            let known = facts.before.conditions.iter().find(|condition| condition.condition_type == name);
            let since = known
                .filter(|condition| condition.status == status)
                .and_then(|condition| condition.last_transition_time)
                .unwrap_or_else(|| time(facts.now.wall));
            PodCondition {
                condition_type: name.to_string(),
                status: status.to_string(),
                reason: reason.to_string(),
                message,
                last_transition_time: Some(since),
                ..PodCondition::default()
            }
        })
        .collect()
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
    let conditions = conditions(runtime, &statuses, facts);
    let (mains, inits): (Vec<_>, Vec<_>) = runtime
        .containers
        .iter()
        .zip(statuses)
        .partition(|(container, _)| container.shape.kind == ContainerKind::Main);
    let strip = |pairs: Vec<(&ContainerRuntime, ContainerStatus)>| {
        pairs.into_iter().map(|(_, status)| status).collect()
    };
    PodStatus {
        phase: phase(runtime).into(),
        reason,
        message,
        conditions,
        host_ip: facts.host_ip.into(),
        pod_ip: if pod.spec.host_network { facts.host_ip.into() } else { String::new() },
        start_time: Some(time(runtime.start_wall)),
        container_statuses: strip(mains),
        init_container_statuses: strip(inits),
        qos_class: facts.before.qos_class.clone(),
        ..PodStatus::default()
    }
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
