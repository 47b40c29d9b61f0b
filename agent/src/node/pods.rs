//! The pods of the node: one entry each, the turn that plans and acts, and the bookkeeping around it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::rc::Rc;

use podkeep_core::lifecycle::from_pod::pod_shape;
use podkeep_core::lifecycle::pod::{Action, ContainerState, Event, PodRuntime, Stage, Terminated};
use podkeep_core::status::{StatusFacts, pod_status};
use podkeep_core::types::{Pod, PodStatus};

use super::events::{Severity, Subject};
use super::{Node, act, record::PodRecord};
use crate::clock;
use crate::container::build::HostVolume;
use crate::container::spec::IdMap;

/// UID of a pod.
pub type Uid = Rc<str>;

/// A pod that is wanted, and where it was written.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub pod: Rc<Pod>,
    pub source: Rc<str>,
}

/// One pod and what the node has made for it.
#[derive(Debug)]
pub struct Entry {
    pub uid: Uid,
    pub pod: Rc<Pod>,
    pub source: Rc<str>,
    pub runtime: PodRuntime,
    /// takes this one's place when it is gone
    pub next: Option<Wanted>,
    /// not to be run now, and why: reason word and message
    pub held: Option<(String, String)>,
    pub volumes: BTreeMap<String, HostVolume>,
    /// `kubepods/…/pod<uid>` below the cgroup root
    pub cgroup: String,
    pub user_map: Option<IdMap>,
    /// settings left out for the whole pod, in words
    pub degraded: Vec<String>,
    /// made of labels alone: the record was lost
    pub rebuilt: bool,
    /// sandbox in which the init containers are known to be done
    pub initialized_in: Option<String>,
    /// the status as last shown
    pub status: PodStatus,
    /// when the plan wants to be asked again
    wake: Option<u64>,
    /// the record on disk is older than what is known
    dirty: bool,
}

impl Entry {
    /// The supervisor's id of the pod's namespaces.
    #[must_use]
    pub fn sandbox_id(&self) -> Option<&str> {
        match &self.runtime.sandbox {
            podkeep_core::lifecycle::pod::Sandbox::Ready { id } => Some(id),
            _ => None,
        }
    }

    fn subject<'a>(&'a self, container: Option<&'a str>) -> Subject<'a> {
        Subject { namespace: &self.pod.metadata.namespace, pod: &self.pod.metadata.name, container }
    }
}

/// All pods, with the indexes the loop needs so that one event costs the same however many there are.
#[derive(Debug, Default)]
pub struct Pods {
    pub entries: HashMap<Uid, Entry>,
    /// `namespace/name` to the pod that holds the name now
    pub names: HashMap<String, Uid>,
    /// container id to its pod, name and attempt
    pub containers: HashMap<String, (Uid, String, u32)>,
    wakes: BTreeSet<(u64, Uid)>,
    dirty: BTreeSet<Uid>,
    /// until the sources have spoken nothing is planned
    pub frozen: bool,
}

/// `namespace/name`.
#[must_use]
pub fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace, pod.metadata.name)
}

impl Pods {
    /// No pod yet; nothing is planned before [`thaw`].
    #[must_use]
    pub fn frozen() -> Self {
        Self { frozen: true, ..Self::default() }
    }

    /// The nearest time at which a plan wants to be asked again, boot nanoseconds.
    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Pods whose time has come.
    pub fn due(&mut self, now: u64) -> Vec<Uid> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.wakes.first() {
            if *at > now {
                break;
            }
            if let Some((_, uid)) = self.wakes.pop_first() {
                if let Some(entry) = self.entries.get_mut(&uid) {
                    entry.wake = None;
                }
                due.push(uid);
            }
        }
        due
    }

    /// Pods whose records are to be written.
    pub fn take_dirty(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.dirty).into_iter().collect()
    }

    /// Whether a record is to be written.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A record could not be written: it stays due.
    pub fn mark_dirty(&mut self, uid: &Uid) {
        if self.entries.contains_key(uid) {
            self.dirty.insert(uid.clone());
        }
    }

    fn set_wake(&mut self, uid: &Uid, at: Option<u64>) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if entry.wake == at {
            return;
        }
        if let Some(old) = entry.wake.take() {
            self.wakes.remove(&(old, uid.clone()));
        }
        entry.wake = at;
        if let Some(at) = at {
            self.wakes.insert((at, uid.clone()));
        }
    }
}

/// A new entry for a pod that is taken on now.
#[must_use]
pub fn new_entry(node: &Node, wanted: &Wanted) -> Entry {
    let mut runtime = PodRuntime::new(pod_shape(&wanted.pod), node.settings.backoff, clock::now());
    if let Err(refused) =
        podkeep_core::admission::admit(&wanted.pod, &node.settings.kubelet.allowed_unsafe_sysctls)
    {
        log::warn!(pod = full_name(&wanted.pod).as_str(); "{}: {}", refused.reason, refused.message);
        runtime.stage =
            Stage::Done { failed: true, reason: refused.reason.to_owned(), message: refused.message };
    }
    let uid: Uid = wanted.pod.metadata.uid.as_str().into();
    Entry {
        cgroup: act::pod_cgroup(node, &wanted.pod),
        uid,
        pod: wanted.pod.clone(),
        source: wanted.source.clone(),
        runtime,
        next: None,
        held: None,
        volumes: BTreeMap::new(),
        user_map: None,
        degraded: Vec::new(),
        rebuilt: false,
        initialized_in: None,
        status: PodStatus {
            qos_class: podkeep_core::qos::class(&wanted.pod).name().to_owned(),
            ..PodStatus::default()
        },
        wake: None,
        dirty: true,
    }
}

/// Takes a pod on.
pub fn insert(node: &Rc<Node>, mut entry: Entry) {
    super::hold::check_new(node, &mut entry);
    let mut pods = node.pods.borrow_mut();
    let uid = entry.uid.clone();
    pods.names.insert(full_name(&entry.pod), uid.clone());
    if entry.dirty {
        pods.dirty.insert(uid.clone());
    }
    pods.entries.insert(uid, entry);
}

/// One pod's turn: an event is taken in, the plan asked, its actions started.
pub fn turn(node: &Rc<Node>, uid: &Uid, event: Option<Event>) {
    let now = clock::now();
    let actions = {
        let mut pods = node.pods.borrow_mut();
        let frozen = pods.frozen;
        let Some(entry) = pods.entries.get_mut(uid) else { return };
        let keep = event.as_ref().is_some_and(is_kept);
        if let Some(event) = event {
            note_event(node, entry, &event);
            entry.runtime.apply(event, now);
        }
        let plan = if frozen || (entry.held.is_some() && entry.runtime.stage == Stage::Active) {
            podkeep_core::lifecycle::Plan::default()
        } else {
            entry.runtime.plan(now)
        };
        let keep = keep || matches!(entry.runtime.stage, Stage::Done { .. });
        let before = pods.next_wake();
        pods.set_wake(uid, plan.wake_at);
        if keep {
            pods.dirty.insert(uid.clone());
        }
        // a task that ends takes a turn while the loop sleeps: it has to look at its alarm and its records again
        let sooner = pods.next_wake().is_some_and(|at| before.is_none_or(|before| at < before));
        if keep || sooner {
            // a full queue wakes it as well
            node.turns.try_send(super::Turn::Flush).ok();
        }
        plan.actions
    };
    let gone = node.pods.borrow().entries.get(uid).is_some_and(|entry| entry.runtime.stage == Stage::Gone);
    if gone {
        retire(node, uid);
    } else {
        act::start(node, uid, actions);
    }
    node.status_changed(uid);
}

/// Events that change what the record says.
fn is_kept(event: &Event) -> bool {
    matches!(event, Event::Exited { .. } | Event::SandboxReady { .. })
}

/// The last trace of a pod is gone: its name is free for the next one.
fn retire(node: &Rc<Node>, uid: &Uid) {
    let next = {
        let mut pods = node.pods.borrow_mut();
        pods.set_wake(uid, None);
        pods.dirty.remove(uid);
        let Some(entry) = pods.entries.remove(uid) else { return };
        let name = full_name(&entry.pod);
        if pods.names.get(&name) == Some(uid) {
            pods.names.remove(&name);
        }
        pods.containers.retain(|_, (owner, ..)| owner != uid);
        entry.next
    };
    node.forget_record(uid);
    if let Some(wanted) = next {
        let entry = new_entry(node, &wanted);
        let uid = entry.uid.clone();
        insert(node, entry);
        turn(node, &uid, None);
    }
    node.name_freed();
}

fn note_event(node: &Node, entry: &Entry, event: &Event) {
    let mut ring = node.events.borrow_mut();
    let wall = clock::now().wall;
    let mut note = |severity, container: Option<&str>, reason: &str, message: &str| {
        log::log!(
            if severity == Severity::Warning { log::Level::Warn } else { log::Level::Info },
            pod = full_name(&entry.pod).as_str(),
            container = container.unwrap_or_default();
            "{reason}: {message}"
        );
        ring.note(severity, entry.subject(container), reason, message, wall);
    };
    match event {
        Event::VolumesWaiting { reason, message } => note(Severity::Warning, None, reason, message),
        Event::SandboxFailed { message } => note(Severity::Warning, None, "FailedCreatePodSandBox", message),
        Event::Started { name, degraded, .. } => {
            note(Severity::Normal, Some(name), "Started", "Container started");
            for text in degraded {
                note(Severity::Warning, Some(name), "Degraded", text);
            }
        }
        Event::StartBlocked { name, reason, message, .. } => {
            note(Severity::Warning, Some(name), reason, message)
        }
        Event::Exited { name, exit } => note_exit(entry, name, exit, &mut note),
        Event::VolumesReady | Event::SandboxReady { .. } | Event::SandboxGone | Event::CleanedUp => {}
    }
}

fn note_exit(
    entry: &Entry,
    name: &str,
    exit: &Terminated,
    note: &mut dyn FnMut(Severity, Option<&str>, &str, &str),
) {
    let stopped = entry
        .runtime
        .container(name)
        .and_then(|container| container.running())
        .is_some_and(|running| running.stop.is_some());
    let mut message = format!("Container ended: exit code {}", exit.exit_code);
    if exit.signal != 0 {
        message.push_str(&format!(", signal {}", exit.signal));
    }
    if !exit.message.is_empty() {
        message.push_str(": ");
        message.push_str(&exit.message);
    }
    let severity = if exit.exit_code == 0 || stopped { Severity::Normal } else { Severity::Warning };
    note(severity, Some(name), &exit.reason, &message);
}

/// The pod with its status, as it is shown.
#[must_use]
pub fn shown(node: &Node, entry: &Entry) -> Pod {
    let mut pod = (*entry.pod).clone();
    let held = entry.held.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
    let facts =
        StatusFacts { now: clock::now(), before: &entry.status, held, host_ip: &node.settings.host_ip };
    pod.status = pod_status(&entry.pod, &entry.runtime, &facts);
    let mut notes = entry.degraded.clone();
    for container in &entry.runtime.containers {
        notes.extend(container.degraded.iter().map(|text| format!("{}: {text}", container.shape.name)));
    }
    let mut add = |name: &str, reason: &str, message: &str| {
        podkeep_core::status::add_note(&mut pod.status, &entry.status, facts.now, name, reason, message);
    };
    let ignored = podkeep_core::admission::not_acted_on(&entry.pod);
    add("podkeep.dev/NotActedOn", "NotBuiltYet", &ignored.join("; "));
    add("podkeep.dev/Degraded", "SettingsLeftOut", &notes.join("; "));
    let errors = node.source_errors(&entry.source);
    add("podkeep.dev/ManifestInvalid", "LastGoodKept", &errors);
    pod.metadata.annotations.insert("podkeep.dev/source".into(), entry.source.to_string());
    pod.metadata
        .annotations
        .insert(podkeep_core::identity::CONFIG_SEEN.into(), clock::rfc3339(entry.runtime.start_wall));
    if let Stage::Stopping { kind: podkeep_core::lifecycle::pod::StopKind::Remove, deadline } =
        &entry.runtime.stage
    {
        let left = i64::try_from(deadline.saturating_sub(facts.now.boot) / 1_000_000_000).unwrap_or_default();
        pod.metadata.deletion_timestamp = podkeep_core::types::Time::parse(&clock::rfc3339(facts.now.wall))
            .map(|now| podkeep_core::types::Time { seconds: now.seconds.saturating_add(left) });
        pod.metadata.deletion_grace_period_seconds = i64::try_from(entry.runtime.shape.grace_seconds).ok();
    }
    pod
}

/// Renders the status anew and keeps it, so that transition times last. True when it differs from the one before.
pub fn refresh_status(node: &Node, uid: &Uid) -> bool {
    let mut pods = node.pods.borrow_mut();
    let Some(entry) = pods.entries.get_mut(uid) else { return true };
    let pod = shown(node, entry);
    let changed = pod.status != entry.status;
    if changed {
        entry.status = pod.status;
    }
    changed
}

/// What is to be written of a pod now.
#[must_use]
pub fn record(node: &Node, uid: &Uid) -> Option<PodRecord> {
    let pods = node.pods.borrow();
    let entry = pods.entries.get(uid)?;
    let mut record = PodRecord::of(&entry.pod, &entry.runtime, &entry.source, &node.boot_id);
    record.initialized_in = entry.sandbox_id().filter(|_| entry.runtime.initialized).map(str::to_owned);
    record.user_base = entry.user_map.map_or(0, |map| map.host_base);
    Some(record)
}

/// Under these names (`namespace/name`) something else is wanted now, or nothing any more.
pub fn change(node: &Rc<Node>, changes: Vec<(String, Option<Wanted>)>) {
    let now = clock::now();
    let mut turns: Vec<Uid> = Vec::new();
    let mut fresh: Vec<Wanted> = Vec::new();
    {
        let mut guard = node.pods.borrow_mut();
        let pods = &mut *guard;
        for (name, wanted) in changes {
            let entry = pods.names.get(&name).and_then(|uid| pods.entries.get_mut(uid));
            let touched = match (entry, wanted) {
                (None, None) => None,
                (None, Some(wanted)) => {
                    fresh.push(wanted);
                    None
                }
                (Some(entry), Some(wanted)) => settle(entry, &wanted, now).then_some(entry),
                (Some(entry), None) => leave(entry, now).then_some(entry),
            };
            if let Some(entry) = touched {
                turns.push(entry.uid.clone());
                pods.dirty.insert(entry.uid.clone());
            }
        }
    }
    for want in fresh {
        let entry = new_entry(node, &want);
        turns.push(entry.uid.clone());
        insert(node, entry);
    }
    for uid in turns {
        turn(node, &uid, None);
    }
}

/// Ends an entry that nobody wants any more. True when it needs a turn.
fn leave(entry: &mut Entry, now: podkeep_core::lifecycle::Now) -> bool {
    entry.next = None;
    let leaving = matches!(
        &entry.runtime.stage,
        Stage::Stopping { kind: podkeep_core::lifecycle::pod::StopKind::Remove, .. }
    );
    if !leaving {
        entry.runtime.remove(now, None);
    }
    !leaving
}

/// Brings one entry in line with what is wanted under its name. True when it needs a turn.
fn settle(entry: &mut Entry, want: &Wanted, now: podkeep_core::lifecycle::Now) -> bool {
    let leaving = matches!(
        &entry.runtime.stage,
        Stage::Stopping { kind: podkeep_core::lifecycle::pod::StopKind::Remove, .. } | Stage::Gone
    );
    if leaving {
        // it ends first; only the newest text takes its place
        entry.next = Some(want.clone());
        return false;
    }
    if want.pod.metadata.uid == *entry.uid {
        entry.source = want.source.clone();
        if *want.pod == *entry.pod {
            return false;
        }
        entry.pod = want.pod.clone();
        entry.runtime.update(pod_shape(&want.pod), now);
        return true;
    }
    entry.next = Some(want.clone());
    entry.runtime.remove(now, None);
    true
}

/// The sources have spoken: pods of the last run take their turns.
pub fn thaw(node: &Rc<Node>) {
    let all: Vec<Uid> = {
        let mut pods = node.pods.borrow_mut();
        pods.frozen = false;
        pods.entries.keys().cloned().collect()
    };
    super::leftovers::start(node);
    for uid in all {
        turn(node, &uid, None);
    }
}

/// The container that is meant: by name, else the first main one.
#[must_use]
pub fn pick_container(entry: &Entry, name: Option<&str>) -> Option<String> {
    match name {
        Some(name) => entry.runtime.container(name).map(|container| container.shape.name.clone()),
        None => entry.pod.spec.containers.first().map(|container| container.name.clone()),
    }
}

/// Whether the container runs, and under which id.
#[must_use]
pub fn running_id(entry: &Entry, container: &str) -> Option<String> {
    match &entry.runtime.container(container)?.state {
        ContainerState::Running(running) => Some(running.id.clone()),
        _ => None,
    }
}

/// Folder of a pod's files.
#[must_use]
pub fn pod_dir(node: &Node, uid: &str) -> PathBuf {
    node.settings.state_dir.join("pods").join(uid)
}

/// Actions in the order in which they matter: what runs first, what is swept last.
#[must_use]
pub fn by_urgency(mut actions: Vec<Action>) -> Vec<Action> {
    actions.sort_by_key(|action| matches!(action, Action::RemoveContainer { .. }));
    actions
}
