//! Start of the agent: what the records say, corrected by what the supervisor really holds.

use std::collections::BTreeMap;
use std::rc::Rc;

use podkeep_core::lifecycle::pod::{Running, Sandbox};
use podkeep_core::types::{Container, Pod};
use serde::Deserialize;

use super::pods::{self, Entry, Uid, Wanted, full_name};
use super::{Node, act};
use crate::container::spec::IdMap;
use crate::supervisor::proto::{ContainerState, RequestBody, SandboxState};

/// What we wrote on a sandbox or container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    uid: String,
    namespace: String,
    pod: String,
    container: String,
    attempt: u32,
    grace: Option<i64>,
}

fn labels(text: &str) -> Labels {
    serde_json::from_str(text).unwrap_or_default()
}

/// Fills the node with the pods of the last run. Nothing is started or stopped here: the sources speak first.
pub(super) async fn adopt(node: &Rc<Node>, sandboxes: Vec<SandboxState>, containers: Vec<ContainerState>) {
    let mut entries = from_records(node);
    for container in &containers {
        let labels = labels(&container.labels);
        if !labels.uid.is_empty() && !entries.contains_key(&labels.uid) {
            log::warn!(pod = labels.pod.as_str(); "no record of a pod that has containers: it is rebuilt from them");
            entries.insert(labels.uid.clone(), from_labels(node, &labels));
        }
        if let Some(entry) = entries.get_mut(&labels.uid) {
            add_missing_container(entry, &labels);
        }
    }
    let mut orphans = Vec::new();
    for sandbox in sandboxes {
        let labels = labels(&sandbox.labels);
        match entries.get_mut(&labels.uid) {
            Some(entry) if sandbox.ready => adopt_sandbox(entry, &sandbox, labels.attempt, &mut orphans),
            _ => orphans.push(sandbox.id),
        }
    }
    for entry in entries.into_values() {
        pods::insert(node, entry);
    }
    let mut sorted = containers;
    sorted.sort_by_key(|container| labels(&container.labels).attempt);
    for container in &sorted {
        adopt_container(node, container).await;
    }
    for id in orphans {
        if let Err(error) = node.ask(RequestBody::RemoveSandbox { id }).await {
            log::warn!("sandbox that nobody wants is not removed: {error}");
        }
    }
}

fn from_records(node: &Rc<Node>) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    let names = node.store.list().unwrap_or_else(|error| {
        log::warn!("records cannot be listed, pods are rebuilt from what runs: {error}");
        Vec::new()
    });
    for name in names.iter().filter(|name| name.starts_with("pod-")) {
        match super::records::read(node, name) {
            Ok(record) if Some(record.pod.metadata.uid.as_str()) == name.strip_prefix("pod-") => {
                let wanted =
                    Wanted { pod: Rc::new(record.pod.clone()), source: record.source.as_str().into() };
                let mut entry = pods::new_entry(node, &wanted);
                record.restore(&mut entry.runtime, &node.boot_id);
                entry.initialized_in.clone_from(&record.initialized_in);
                if record.user_base > 0 {
                    entry.user_map =
                        Some(IdMap { host_base: record.user_base, size: node.settings.ids_per_pod });
                }
                entries.insert(record.pod.metadata.uid.clone(), entry);
            }
            Ok(_) => set_aside(node, name, "it speaks of another pod"),
            Err(error) => set_aside(node, name, &error),
        }
    }
    entries
}

fn set_aside(node: &Rc<Node>, name: &str, why: &str) {
    match node.store.quarantine(name) {
        Ok(_) => log::warn!("record '{name}' is damaged and set aside: {why}"),
        Err(error) => log::warn!("record '{name}' is damaged ({why}) and could not be set aside: {error}"),
    }
}

/// All that is left of a pod are its containers: enough to stop them in order, or to keep them if the manifest is there.
fn from_labels(node: &Rc<Node>, labels: &Labels) -> Entry {
    let mut pod = Pod::default();
    pod.metadata.uid.clone_from(&labels.uid);
    pod.metadata.name.clone_from(&labels.pod);
    pod.metadata.namespace.clone_from(&labels.namespace);
    pod.spec.termination_grace_period_seconds = labels.grace;
    let mut entry = pods::new_entry(node, &Wanted { pod: Rc::new(pod), source: "".into() });
    entry.rebuilt = true;
    entry
}

fn add_missing_container(entry: &mut Entry, labels: &Labels) {
    if entry.rebuilt && !labels.container.is_empty() && entry.runtime.container(&labels.container).is_none() {
        let mut pod = (*entry.pod).clone();
        pod.spec.containers.push(Container { name: labels.container.clone(), ..Container::default() });
        entry.pod = Rc::new(pod);
        let shape = podkeep_core::lifecycle::from_pod::pod_shape(&entry.pod);
        entry.runtime.update(shape, crate::clock::now());
    }
}

fn adopt_sandbox(entry: &mut Entry, sandbox: &SandboxState, attempt: u32, orphans: &mut Vec<String>) {
    if attempt < entry.runtime.sandbox_attempts.saturating_sub(1) {
        orphans.push(sandbox.id.clone());
        return;
    }
    if let Some(old) = entry.sandbox_id() {
        orphans.push(old.to_owned());
    }
    entry.runtime.sandbox = Sandbox::Ready { id: sandbox.id.clone() };
    entry.runtime.sandbox_attempts = attempt.saturating_add(1);
    entry.degraded.clone_from(&sandbox.degraded);
    entry.runtime.initialized = entry.initialized_in.as_deref() == Some(sandbox.id.as_str());
}

async fn adopt_container(node: &Rc<Node>, state: &ContainerState) {
    let labels = labels(&state.labels);
    let uid: Uid = labels.uid.as_str().into();
    node.pods
        .borrow_mut()
        .containers
        .insert(state.id.clone(), (uid.clone(), labels.container.clone(), labels.attempt));
    // an older attempt that a plan had no time to remove
    let older = {
        let pods = node.pods.borrow();
        let known = pods.entries.get(&uid).and_then(|entry| entry.runtime.container(&labels.container));
        known
            .and_then(|container| container.exited().map(|exit| exit.container_id.clone()))
            .filter(|id| *id != state.id)
    };
    let ended = match &state.exit {
        Some(exit) => {
            Some(act::terminated(node, &uid, &labels.container, &state.id, labels.attempt, exit).await)
        }
        None => None,
    };
    let mut pods = node.pods.borrow_mut();
    let Some(entry) = pods.entries.get_mut(&uid) else { return };
    let in_sandbox = entry.sandbox_id() == Some(state.sandbox_id.as_str());
    match ended {
        Some(mut exit) => {
            exit.started_wall = state.started_at_ns;
            entry.runtime.adopt_exited(&labels.container, exit, labels.attempt, in_sandbox);
        }
        None => {
            let running = Running {
                id: state.id.clone(),
                pid: state.pid,
                attempt: labels.attempt,
                started_wall: state.started_at_ns,
                started_boot: state.started_boot_ns,
                stop: None,
            };
            entry.runtime.adopt_running(&labels.container, running);
        }
    }
    if let Some(container) = entry.runtime.container_mut(&labels.container) {
        container.degraded.clone_from(&state.degraded);
    }
    drop(pods);
    if state.exit.is_none() {
        act::watch_memory(node, &uid, &labels.container, &state.id);
    }
    if let Some(id) = older {
        let node = node.clone();
        let executor = node.executor.clone();
        executor
            .spawn(async move { act::forget_container(&node, &uid, &labels.container, &id).await })
            .detach();
    }
}

/// The supervisor was replaced after a crash: exits that happened in between are taken from its list.
pub(super) async fn compare(node: &Rc<Node>, sandboxes: &[SandboxState], containers: &[ContainerState]) {
    log::warn!("the supervisor was replaced, {} containers taken over", containers.len());
    let held: BTreeMap<&str, &ContainerState> =
        containers.iter().map(|container| (container.id.as_str(), container)).collect();
    let running: Vec<(Uid, String, String)> = {
        let pods = node.pods.borrow();
        let of = |entry: &Entry| {
            let uid = entry.uid.clone();
            let live = entry.runtime.containers.iter().filter_map(|container| {
                container
                    .running()
                    .map(|running| (uid.clone(), container.shape.name.clone(), running.id.clone()))
            });
            live.collect::<Vec<_>>()
        };
        pods.entries.values().flat_map(of).collect()
    };
    for (uid, name, id) in running {
        let exit = match held.get(id.as_str()) {
            Some(ContainerState { exit: None, .. }) => continue,
            Some(ContainerState { exit: Some(exit), .. }) => exit.clone(),
            None => {
                let now = crate::clock::now();
                crate::supervisor::proto::Exit {
                    code: 137,
                    unknown: true,
                    finished_at_ns: now.wall,
                    finished_boot_ns: now.boot,
                    signal: 0,
                }
            }
        };
        log::debug!(pod = uid_name(node, &uid).as_str(), container = name.as_str(); "ended while there was no supervisor");
        super::container_exited(node, &id, &exit).await;
    }
    for container in containers {
        if !node.pods.borrow().containers.contains_key(&container.id) {
            end_stray(node, container.id.clone(), container.exit.is_none());
        }
    }
    lost_sandboxes(node, sandboxes);
}

/// A container that nobody here knows: its start was given up, or its removal was cut short, as the supervisor died.
/// A running one is removed when its exit is told.
pub(super) fn end_stray(node: &Rc<Node>, id: String, running: bool) {
    let ended = node.clone();
    let task = async move {
        let body = if running {
            RequestBody::Signal { id, signal: nix::libc::SIGKILL }
        } else {
            RequestBody::Remove { id }
        };
        if let Err(error) = ended.ask(body).await {
            log::warn!("a container that nobody knows is not removed: {error}");
        }
    };
    node.executor.clone().spawn(task).detach();
}

/// Pods whose namespaces are gone get new ones.
fn lost_sandboxes(node: &Rc<Node>, sandboxes: &[SandboxState]) {
    let ready: Vec<&str> =
        sandboxes.iter().filter(|sandbox| sandbox.ready).map(|sandbox| sandbox.id.as_str()).collect();
    let mut lost = Vec::new();
    for entry in node.pods.borrow_mut().entries.values_mut() {
        if entry.sandbox_id().is_some_and(|id| !ready.contains(&id)) && entry.runtime.is_still() {
            entry.runtime.sandbox_lost();
            lost.push(entry.uid.clone());
        }
    }
    for uid in lost {
        super::turn(node, &uid, None);
    }
}

fn uid_name(node: &Rc<Node>, uid: &Uid) -> String {
    node.pods.borrow().entries.get(uid).map(|entry| full_name(&entry.pod)).unwrap_or_default()
}
