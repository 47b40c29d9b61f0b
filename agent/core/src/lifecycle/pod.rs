//! One pod from admission to its last trace, as a state that events change and a plan that is derived from it.
//!
//! ```text
//! Active ──────────────► Done{Succeeded|Failed}        all main containers finished, none restarts
//!   │  │ remove, deadline        │ remove
//!   │  └───────► Stopping ◄──────┘
//!   │             │ Remove → RemoveSandbox → CleanUp → Gone
//!   │             │ Finish → RemoveSandbox → Done
//!   └─ RestartAll ┘ RestartAll → Active (sandbox and volumes kept)
//! ```
//! A deadline may move earlier, never later; nothing leaves `Stopping` before every container has ended.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::backoff::{Backoff, BackoffSettings};
use super::shape::{AfterExit, ContainerKind, ContainerShape, PodShape, RestartPolicy};
use super::{Now, SECOND};

/// The runtime gives a container this long between the stop signal and the kill even when the grace is used up.
pub const MINIMUM_STOP: u64 = 2 * SECOND;
/// A killed container that is still there (uninterruptible sleep) is killed again after this long.
const KILL_AGAIN: u64 = 10 * SECOND;
/// A failed step (sandbox, volumes, configuration) is tried again after this long, as the kubelet's sync error.
pub const RETRY: u64 = 10 * SECOND;

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminated {
    pub container_id: String,
    pub exit_code: i32,
    /// 0: it ended by itself
    pub signal: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`…
    pub reason: String,
    pub message: String,
    pub started_wall: i64,
    pub finished_wall: i64,
    pub finished_boot: u64,
}

/// Why a running container is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// with its pod
    Pod,
    /// its image or definition changed under the same UID: it starts again whatever the policy says
    Changed,
    /// a probe gave up: restarted by policy alone
    Probe,
    /// no longer in the manifest
    Dropped,
}

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub cause: StopCause,
    /// the stop signal was sent
    pub signalled: bool,
    /// when the kill is due, boot nanoseconds
    pub kill_at: u64,
}

/// A running container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    pub id: String,
    pub pid: i32,
    pub attempt: u32,
    pub started_wall: i64,
    pub started_boot: u64,
    pub stop: Option<Stop>,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Not started yet, or a start that failed before anything ran. `until`: not before, boot nanoseconds.
    Waiting {
        reason: String,
        message: String,
        until: Option<u64>,
    },
    /// the agent is at it
    Starting,
    Running(Running),
    /// ended; whether it starts again is decided by the plan, so that a changed policy counts
    Exited(Terminated),
}

/// Everything remembered about one container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRuntime {
    pub shape: ContainerShape,
    pub state: ContainerState,
    /// attempts that reached the program or failed to find it; the next attempt has this number
    pub starts: u32,
    /// the exit before the present state
    pub last: Option<Terminated>,
    pub backoff: Backoff,
    /// image the running or last container was made of
    pub image_id: String,
    /// settings left out, in words
    pub degraded: Vec<String>,
    /// an exit that was reported before the start was
    early_exit: Option<Terminated>,
    /// start at once after the exit, whatever the policy
    restart_wanted: bool,
}

impl ContainerRuntime {
    fn new(shape: ContainerShape) -> Self {
        Self {
            shape,
            state: ContainerState::Waiting { reason: String::new(), message: String::new(), until: None },
            starts: 0,
            last: None,
            backoff: Backoff::default(),
            image_id: String::new(),
            degraded: Vec::new(),
            early_exit: None,
            restart_wanted: false,
        }
    }

    /// `restartCount`: starts after the first one.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.starts.saturating_sub(1)
    }

    /// The running container, if there is one.
    #[must_use]
    pub fn running(&self) -> Option<&Running> {
        if let ContainerState::Running(running) = &self.state { Some(running) } else { None }
    }

    /// The exit, if the container has ended and was not started again yet.
    #[must_use]
    pub fn exited(&self) -> Option<&Terminated> {
        if let ContainerState::Exited(exit) = &self.state { Some(exit) } else { None }
    }

    fn is_live(&self) -> bool {
        matches!(self.state, ContainerState::Running(_) | ContainerState::Starting)
    }
}

/// A step that is made once for the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Step {
    #[default]
    Todo,
    Doing,
    Ready,
    Waiting {
        reason: String,
        message: String,
        /// next try, boot nanoseconds
        until: u64,
    },
}

/// The pod's namespaces and pod cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    #[default]
    None,
    Creating,
    Ready {
        id: String,
    },
    Failed {
        message: String,
        /// next try, boot nanoseconds
        until: u64,
    },
    Removing,
}

/// What comes after a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// the pod is no longer wanted
    Remove,
    /// the pod is over; its record stays
    Finish { failed: bool, reason: String, message: String },
    /// a restart rule asked for it
    RestartAll,
}

/// Where the pod stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    Active,
    Stopping {
        kind: StopKind,
        /// end of the grace, boot nanoseconds
        deadline: u64,
    },
    Done {
        failed: bool,
        reason: String,
        message: String,
    },
    /// every trace is gone
    Gone,
}

/// What the agent shall do; each is answered with an [`Event`] unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    PrepareVolumes,
    CreateSandbox {
        attempt: u32,
    },
    StartContainer {
        name: String,
        attempt: u32,
    },
    /// the stop signal; the answer is the exit
    Signal {
        name: String,
        id: String,
        cause: StopCause,
    },
    /// SIGKILL to all of the container; the answer is the exit
    Kill {
        name: String,
        id: String,
    },
    /// forget an ended container: record, cgroup, writable layer; not answered
    RemoveContainer {
        name: String,
        id: String,
    },
    RemoveSandbox,
    /// volumes, cgroups and folders of the pod
    CleanUp,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    VolumesReady,
    VolumesWaiting {
        reason: String,
        message: String,
    },
    SandboxReady {
        id: String,
    },
    SandboxFailed {
        message: String,
    },
    SandboxGone,
    Started {
        name: String,
        id: String,
        pid: i32,
        attempt: u32,
        image_id: String,
        degraded: Vec<String>,
        at: Now,
    },
    /// nothing ran; tried again at `retry_at` (boot nanoseconds)
    StartBlocked {
        name: String,
        reason: String,
        message: String,
        retry_at: u64,
    },
    Exited {
        name: String,
        exit: Terminated,
    },
    CleanedUp,
}

/// What to do and when to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// boot nanoseconds; `None`: only an event can change anything
    pub wake_at: Option<u64>,
}

impl Plan {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn wake(&mut self, at: u64) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRuntime {
    pub shape: PodShape,
    pub stage: Stage,
    pub volumes: Step,
    pub sandbox: Sandbox,
    /// sandboxes made so far
    pub sandbox_attempts: u32,
    pub containers: Vec<ContainerRuntime>,
    /// a main container was started in this sandbox: the init containers are done for good
    pub initialized: bool,
    /// when the agent took the pod on, display
    pub start_wall: i64,
    /// the same on the clock of deadlines; 0 where unknown (an earlier boot)
    pub start_boot: u64,
    /// containers that left the manifest while running, by id
    dropped: BTreeMap<String, ContainerRuntime>,
    backoff: BackoffSettings,
}

impl PodRuntime {
    /// A pod that was just taken on.
    #[must_use]
    pub fn new(shape: PodShape, backoff: BackoffSettings, now: Now) -> Self {
        let containers = shape.containers.iter().cloned().map(ContainerRuntime::new).collect();
        Self {
            shape,
            stage: Stage::Active,
            volumes: Step::Todo,
            sandbox: Sandbox::None,
            sandbox_attempts: 0,
            containers,
            initialized: false,
            start_wall: now.wall,
            start_boot: now.boot,
            dropped: BTreeMap::new(),
            backoff,
        }
    }

    /// The container of that name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerRuntime> {
        self.containers.iter().find(|container| container.shape.name == name)
    }

    /// The same, to fill in what an earlier run of the agent left.
    pub fn container_mut(&mut self, name: &str) -> Option<&mut ContainerRuntime> {
        self.containers.iter_mut().find(|container| container.shape.name == name)
    }

    /// Takes over a container that an earlier run of the agent started.
    pub fn adopt_running(&mut self, name: &str, running: Running) {
        if let Some(container) = self.container_mut(name) {
            container.starts = container.starts.max(running.attempt.saturating_add(1));
            let main = container.shape.kind == ContainerKind::Main;
            container.state = ContainerState::Running(running);
            self.initialized |= main;
        } else {
            // its name is not in the manifest any more: it is stopped as if just dropped
            let shape = ContainerShape {
                name: name.into(),
                image: String::new(),
                kind: ContainerKind::Main,
                restart_policy: None,
                rules: Vec::new(),
            };
            let mut container = ContainerRuntime::new(shape);
            let id = running.id.clone();
            container.state = ContainerState::Running(running);
            self.dropped.insert(id, container);
        }
    }

    /// Takes over the last exit of a container. `in_sandbox`: it ended in the sandbox that is still there, so it counts
    /// for the order of init containers.
    pub fn adopt_exited(&mut self, name: &str, exit: Terminated, attempt: u32, in_sandbox: bool) {
        let policy = self.shape.restart_policy;
        if let Some(container) = self.container_mut(name) {
            container.starts = container.starts.max(attempt.saturating_add(1));
            let stays = container.shape.after_exit(policy, exit.exit_code) == AfterExit::Stay;
            if in_sandbox || (stays && container.shape.kind == ContainerKind::Main) {
                container.state = ContainerState::Exited(exit);
            } else {
                container.last = Some(exit);
            }
        }
    }

    /// The manifest changed under the same UID: changed images restart their container, everything else counts from
    /// the next start on.
    pub fn update(&mut self, shape: PodShape, now: Now) {
        let mut old = core::mem::take(&mut self.containers);
        for wanted in &shape.containers {
            let known = old.iter().position(|container| container.shape.name == wanted.name);
            let mut container = match known {
                Some(at) => old.swap_remove(at),
                None => ContainerRuntime::new(wanted.clone()),
            };
            let changed = container.shape.image != wanted.image;
            container.shape = wanted.clone();
            if changed {
                container.backoff = Backoff::default();
                stop_running(&mut container, StopCause::Changed, now, shape.grace_seconds);
                if let ContainerState::Waiting { until, .. } = &mut container.state {
                    *until = None;
                }
            }
            self.containers.push(container);
        }
        for mut container in old {
            if let Some(id) = container.running().map(|running| running.id.clone()) {
                stop_running(&mut container, StopCause::Dropped, now, shape.grace_seconds);
                self.dropped.insert(id, container);
            }
        }
        self.shape = shape;
    }

    /// The pod is no longer wanted. A second call can only shorten the grace.
    pub fn remove(&mut self, now: Now, grace_seconds: Option<u64>) {
        let grace = grace_seconds.unwrap_or(self.shape.grace_seconds).max(1);
        let mut deadline = now.boot.saturating_add(grace.saturating_mul(SECOND));
        if self.stage == Stage::Gone {
            return;
        }
        if let Stage::Stopping { deadline: known, .. } = self.stage {
            deadline = deadline.min(known);
        }
        self.stage = Stage::Stopping { kind: StopKind::Remove, deadline };
        self.shorten(deadline);
    }

    /// Ends the pod for good without removing its record (active deadline, eviction).
    pub fn fail(&mut self, now: Now, reason: &str, message: &str, grace_seconds: Option<u64>) {
        if self.stage != Stage::Active {
            return;
        }
        let grace = grace_seconds.unwrap_or(self.shape.grace_seconds);
        let deadline = now.boot.saturating_add(grace.saturating_mul(SECOND));
        let kind = StopKind::Finish { failed: true, reason: reason.into(), message: message.into() };
        self.stage = Stage::Stopping { kind, deadline };
    }

    fn shorten(&mut self, deadline: u64) {
        for container in &mut self.containers {
            if let ContainerState::Running(Running { stop: Some(stop), .. }) = &mut container.state {
                stop.kill_at = stop.kill_at.min(deadline.max(MINIMUM_STOP));
            }
        }
    }

    /// True when nothing of the pod runs.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.dropped.is_empty() && !self.containers.iter().any(ContainerRuntime::is_live)
    }

    /// Takes note of what happened. Events about what is no longer there are ignored: they come late.
    pub fn apply(&mut self, event: Event, now: Now) {
        match event {
            Event::VolumesReady => self.volumes = Step::Ready,
            Event::VolumesWaiting { reason, message } => {
                self.volumes = Step::Waiting { reason, message, until: now.boot.saturating_add(RETRY) };
            }
            Event::SandboxReady { id } => self.sandbox = Sandbox::Ready { id },
            Event::SandboxFailed { message } => {
                self.sandbox = Sandbox::Failed { message, until: now.boot.saturating_add(RETRY) };
            }
            Event::SandboxGone => self.sandbox_gone(),
            Event::Started { name, id, pid, attempt, image_id, degraded, at } => {
                let running =
                    Running { id, pid, attempt, started_wall: at.wall, started_boot: at.boot, stop: None };
                self.started(&name, running, image_id, degraded);
            }
            Event::StartBlocked { name, reason, message, retry_at } => {
                if let Some(container) = self.container_mut(&name)
                    && container.state == ContainerState::Starting
                {
                    container.state = ContainerState::Waiting { reason, message, until: Some(retry_at) };
                }
            }
            Event::Exited { name, exit } => self.exited(&name, exit),
            Event::CleanedUp => self.stage = Stage::Gone,
        }
    }

    fn started(&mut self, name: &str, running: Running, image_id: String, degraded: Vec<String>) {
        let Some(container) = self.container_mut(name) else { return };
        container.image_id = image_id;
        container.degraded = degraded;
        container.starts = running.attempt.saturating_add(1);
        let main = container.shape.kind == ContainerKind::Main;
        match container.early_exit.take() {
            Some(exit) if exit.container_id == running.id => {
                container.state =
                    ContainerState::Exited(Terminated { started_wall: running.started_wall, ..exit });
            }
            _ => container.state = ContainerState::Running(running),
        }
        self.initialized |= main;
    }

    fn exited(&mut self, name: &str, exit: Terminated) {
        if self.dropped.remove(&exit.container_id).is_some() {
            return;
        }
        let Some(container) = self.container_mut(name) else { return };
        match &container.state {
            ContainerState::Running(running) if running.id == exit.container_id => {
                container.restart_wanted = running.stop.is_some_and(|stop| stop.cause == StopCause::Changed);
                container.state = ContainerState::Exited(exit);
            }
            // a program that was never executed is an attempt that ended (reason StartError)
            ContainerState::Starting if exit.reason == "StartError" => {
                container.starts = container.starts.saturating_add(1);
                container.state = ContainerState::Exited(exit);
            }
            ContainerState::Starting => container.early_exit = Some(exit),
            _ => {}
        }
    }

    fn sandbox_gone(&mut self) {
        self.sandbox = Sandbox::None;
        self.initialized = false;
        let policy = self.shape.restart_policy;
        // a new sandbox runs the init containers again; what is over for good stays over
        for container in &mut self.containers {
            let Some(exit) = container.exited().cloned() else { continue };
            let over = container.shape.kind == ContainerKind::Main
                && container.shape.after_exit(policy, exit.exit_code) == AfterExit::Stay;
            if !over && self.stage == Stage::Active {
                container.last = Some(exit);
                container.state =
                    ContainerState::Waiting { reason: String::new(), message: String::new(), until: None };
            }
        }
    }

    /// What blocked the start of a container may be gone: those whose reason is meant are tried at once.
    pub fn retry_blocked(&mut self, meant: impl Fn(&str) -> bool) -> bool {
        let mut any = false;
        for container in &mut self.containers {
            if let ContainerState::Waiting { reason, until, .. } = &mut container.state
                && until.is_some()
                && meant(reason)
            {
                *until = None;
                any = true;
            }
        }
        any
    }

    /// The namespaces were lost while the pod should run (a pinned one is gone, the reaper was killed).
    pub fn sandbox_lost(&mut self) {
        if self.stage == Stage::Active && matches!(self.sandbox, Sandbox::Ready { .. }) {
            self.sandbox_gone();
        }
    }

    /// What to do now. Actions that were handed out are remembered as under way, so a second call repeats none.
    pub fn plan(&mut self, now: Now) -> Plan {
        let mut plan = Plan::default();
        self.plan_dropped(now, &mut plan);
        match self.stage.clone() {
            Stage::Active => self.plan_active(now, &mut plan),
            Stage::Stopping { kind, deadline } => self.plan_stop(kind, deadline, now, &mut plan),
            Stage::Done { .. } | Stage::Gone => {}
        }
        plan
    }

    fn plan_dropped(&mut self, now: Now, plan: &mut Plan) {
        for container in self.dropped.values_mut() {
            if !matches!(&container.state, ContainerState::Running(running) if running.stop.is_some()) {
                stop_running(container, StopCause::Dropped, now, self.shape.grace_seconds);
            }
            press(container, now, plan);
        }
    }

    fn plan_active(&mut self, now: Now, plan: &mut Plan) {
        if self.plan_deadline(now, plan) {
            return;
        }
        for container in &mut self.containers {
            press(container, now, plan);
        }
        if self.is_over() {
            let failed = self
                .containers
                .iter()
                .filter(|container| container.shape.kind != ContainerKind::Sidecar)
                .any(|container| container.exited().is_some_and(|exit| exit.exit_code != 0));
            let kind = StopKind::Finish { failed, reason: String::new(), message: String::new() };
            let deadline = now.boot.saturating_add(self.shape.grace_seconds.saturating_mul(SECOND));
            self.stage = Stage::Stopping { kind: kind.clone(), deadline };
            return self.plan_stop(kind, deadline, now, plan);
        }
        if !self.plan_ground(now, plan) {
            return;
        }
        if self.containers.iter().any(|container| self.asks_for_all(container)) {
            let deadline = now.boot.saturating_add(self.shape.grace_seconds.saturating_mul(SECOND));
            self.stage = Stage::Stopping { kind: StopKind::RestartAll, deadline };
            return self.plan_stop(StopKind::RestartAll, deadline, now, plan);
        }
        self.plan_containers(now, plan);
    }

    fn asks_for_all(&self, container: &ContainerRuntime) -> bool {
        container.exited().is_some_and(|exit| {
            container.shape.after_exit(self.shape.restart_policy, exit.exit_code)
                == AfterExit::RestartAllContainers
        })
    }

    fn plan_deadline(&mut self, now: Now, plan: &mut Plan) -> bool {
        let Some(seconds) = self.shape.active_deadline_seconds else { return false };
        let due = self.start_boot.saturating_add(seconds.saturating_mul(SECOND));
        if now.boot < due {
            plan.wake(due);
            return false;
        }
        self.fail(
            now,
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
            None,
        );
        if let Stage::Stopping { kind, deadline } = self.stage.clone() {
            self.plan_stop(kind, deadline, now, plan);
        }
        true
    }

    /// Volumes, then sandbox. True when both are there.
    fn plan_ground(&mut self, now: Now, plan: &mut Plan) -> bool {
        match &self.volumes {
            Step::Waiting { until, .. } if now.boot < *until => {
                plan.wake(*until);
                return false;
            }
            Step::Todo | Step::Waiting { .. } => {
                self.volumes = Step::Doing;
                plan.act(Action::PrepareVolumes);
                return false;
            }
            Step::Doing => return false,
            Step::Ready => {}
        }
        match &self.sandbox {
            Sandbox::Ready { .. } => true,
            Sandbox::Creating | Sandbox::Removing => false,
            Sandbox::Failed { until, .. } if now.boot < *until => {
                plan.wake(*until);
                false
            }
            Sandbox::None | Sandbox::Failed { .. } => {
                plan.act(Action::CreateSandbox { attempt: self.sandbox_attempts });
                self.sandbox = Sandbox::Creating;
                self.sandbox_attempts = self.sandbox_attempts.saturating_add(1);
                false
            }
        }
    }

    /// All main containers (or an init container that may not fail) are over for good.
    fn is_over(&self) -> bool {
        let stays = |container: &ContainerRuntime| {
            !container.restart_wanted
                && container.exited().is_some_and(|exit| {
                    container.shape.after_exit(self.shape.restart_policy, exit.exit_code) == AfterExit::Stay
                })
        };
        let failed_init = self.containers.iter().any(|container| {
            container.shape.kind == ContainerKind::Init
                && stays(container)
                && container.exited().is_some_and(|exit| exit.exit_code != 0)
        });
        let mut mains = self.containers.iter().filter(|c| c.shape.kind == ContainerKind::Main).peekable();
        failed_init || (mains.peek().is_some() && mains.all(stays))
    }

    fn plan_containers(&mut self, now: Now, plan: &mut Plan) {
        let Self { containers, initialized, shape, backoff, .. } = self;
        let policy = shape.restart_policy;
        if !*initialized {
            let inits = containers.iter_mut().filter(|container| container.shape.kind != ContainerKind::Main);
            for container in inits {
                let passed = match (&container.state, container.shape.kind) {
                    (ContainerState::Running(_), ContainerKind::Sidecar) => true,
                    (ContainerState::Exited(exit), ContainerKind::Init) => exit.exit_code == 0,
                    _ => false,
                };
                if !passed {
                    start_if_due(container, policy, backoff, now, plan);
                    // sidecars before this one go on being kept up
                    return;
                }
            }
        }
        for container in containers.iter_mut() {
            if container.shape.kind != ContainerKind::Init {
                start_if_due(container, policy, backoff, now, plan);
            }
        }
    }

    fn plan_stop(&mut self, kind: StopKind, deadline: u64, now: Now, plan: &mut Plan) {
        self.stop_in_order(deadline, now, plan);
        if !self.is_still() || self.volumes == Step::Doing || self.sandbox == Sandbox::Creating {
            return;
        }
        if kind == StopKind::RestartAll {
            self.reset_containers(plan);
            self.stage = Stage::Active;
            self.plan_active(now, plan);
            return;
        }
        match &self.sandbox {
            Sandbox::Ready { .. } | Sandbox::Failed { .. } => {
                for container in &self.containers {
                    if let Some(exit) = container.exited() {
                        plan.act(Action::RemoveContainer {
                            name: container.shape.name.clone(),
                            id: exit.container_id.clone(),
                        });
                    }
                }
                self.sandbox = Sandbox::Removing;
                plan.act(Action::RemoveSandbox);
            }
            Sandbox::Removing | Sandbox::Creating => {}
            Sandbox::None => match kind {
                StopKind::Remove => {
                    // handed out once: the step is under way until `CleanedUp`
                    if self.volumes != Step::Doing {
                        self.volumes = Step::Doing;
                        plan.act(Action::CleanUp);
                    }
                }
                StopKind::Finish { failed, reason, message } => {
                    self.stage = Stage::Done { failed, reason, message };
                }
                StopKind::RestartAll => {}
            },
        }
    }

    /// Main and init containers at once; a sidecar when all of them and every later sidecar have ended, or when the
    /// grace is used up.
    fn stop_in_order(&mut self, deadline: u64, now: Now, plan: &mut Plan) {
        let grace = deadline.saturating_sub(now.boot).div_ceil(SECOND);
        let mut later_live = false;
        for container in &mut self.containers {
            if container.shape.kind != ContainerKind::Sidecar {
                later_live |= container.is_live();
                stop_running(container, StopCause::Pod, now, grace);
                press(container, now, plan);
            }
        }
        for container in self.containers.iter_mut().rev() {
            if container.shape.kind == ContainerKind::Sidecar {
                if !later_live || now.boot >= deadline {
                    stop_running(container, StopCause::Pod, now, grace);
                }
                press(container, now, plan);
                later_live |= container.is_live();
            }
        }
        if later_live && now.boot < deadline {
            plan.wake(deadline);
        }
    }

    fn reset_containers(&mut self, plan: &mut Plan) {
        self.initialized = false;
        for container in &mut self.containers {
            if let ContainerState::Exited(exit) = &container.state {
                plan.act(Action::RemoveContainer {
                    name: container.shape.name.clone(),
                    id: exit.container_id.clone(),
                });
                container.last = Some(exit.clone());
                container.state = ContainerState::Waiting {
                    reason: "RestartingAllContainers".into(),
                    message: String::new(),
                    until: None,
                };
            }
        }
    }

    /// When an exited container starts again: `None`: never, else boot nanoseconds (0: at once).
    #[must_use]
    pub fn restart_due(&self, container: &ContainerRuntime) -> Option<u64> {
        let exit = container.exited()?;
        let stays = container.shape.after_exit(self.shape.restart_policy, exit.exit_code) == AfterExit::Stay;
        if self.stage != Stage::Active || (stays && !container.restart_wanted) {
            return None;
        }
        Some(container.backoff.not_before(exit.finished_boot, &self.backoff).unwrap_or(0))
    }
}

fn stop_running(container: &mut ContainerRuntime, cause: StopCause, now: Now, grace_seconds: u64) {
    if let ContainerState::Running(running) = &mut container.state {
        let grace = grace_seconds.saturating_mul(SECOND).max(MINIMUM_STOP);
        let kill_at = now.boot.saturating_add(grace);
        match &mut running.stop {
            // a stop with the pod outranks the others: nothing starts again
            Some(stop) if cause == StopCause::Pod => {
                stop.cause = cause;
                stop.kill_at = stop.kill_at.min(kill_at);
            }
            Some(_) => {}
            None => running.stop = Some(Stop { cause, signalled: false, kill_at }),
        }
    }
}

/// Sends the stop signal once and kills when the time has come.
fn press(container: &mut ContainerRuntime, now: Now, plan: &mut Plan) {
    let name = container.shape.name.clone();
    let ContainerState::Running(Running { id, stop: Some(stop), .. }) = &mut container.state else { return };
    if !stop.signalled {
        stop.signalled = true;
        plan.act(Action::Signal { name: name.clone(), id: id.clone(), cause: stop.cause });
    }
    if now.boot >= stop.kill_at {
        plan.act(Action::Kill { name, id: id.clone() });
        stop.kill_at = now.boot.saturating_add(KILL_AGAIN);
    }
    plan.wake(stop.kill_at);
}

fn start_if_due(
    container: &mut ContainerRuntime,
    policy: RestartPolicy,
    settings: &BackoffSettings,
    now: Now,
    plan: &mut Plan,
) {
    let name = container.shape.name.clone();
    match &container.state {
        ContainerState::Waiting { until: Some(until), .. } if now.boot < *until => {
            plan.wake(*until);
            return;
        }
        ContainerState::Waiting { .. } => {}
        ContainerState::Exited(exit) => {
            let again = container.restart_wanted
                || container.shape.after_exit(policy, exit.exit_code) == AfterExit::Restart;
            if !again {
                return;
            }
            let due = container.backoff.not_before(exit.finished_boot, settings).unwrap_or(0);
            if now.boot < due && !container.restart_wanted {
                plan.wake(due);
                return;
            }
            if !container.restart_wanted {
                container.backoff.step(exit.finished_boot, now.boot, settings);
            }
            if !exit.container_id.is_empty() {
                plan.act(Action::RemoveContainer { name: name.clone(), id: exit.container_id.clone() });
            }
            container.last = Some(exit.clone());
        }
        ContainerState::Starting | ContainerState::Running(_) => return,
    }
    container.restart_wanted = false;
    container.early_exit = None;
    container.state = ContainerState::Starting;
    plan.act(Action::StartContainer { name, attempt: container.starts });
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
