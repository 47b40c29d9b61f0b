//! Carries out what a plan asks for: each action is a task that ends in an event. Nothing is decided here.

use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use podkeep_core::lifecycle::from_pod::container_of;
use podkeep_core::lifecycle::pod::{Action, Event, RETRY, Step, StopCause, Terminated};
use podkeep_core::qos::QosClass;
use podkeep_core::types::{Container, Pod};
use podkeep_core::{oom, qos, resources};
use podkeep_hal::linux::cgroups::{Controllers, Group, Limits, WeightRule};
use smol::future::FutureExt;

use super::pods::{Uid, by_urgency, pod_dir, turn};
use super::{Node, files, image, rights};
use crate::clock;
use crate::container::build::{self, ImageDefaults, Parts};
use crate::container::rlimits;
use crate::container::spec::{LogSpec, Namespace, SandboxSpec};
use crate::supervisor::link::LinkError;
use crate::supervisor::proto::{Exit, Failure, FailureKind, ReplyBody, RequestBody};

/// Leftover processes of a group get this long to vanish after their kill.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a container could not be started; `reason` is the kubelet's word.
#[derive(Debug)]
pub struct Blocked {
    pub reason: &'static str,
    pub message: String,
    /// when to try again, boot nanoseconds; `None`: the usual pause
    pub retry_at: Option<u64>,
    /// it counts as a run that ended (the program does not exist): back-off applies
    pub ended: bool,
}

impl Blocked {
    /// Something of the manifest cannot be made true here.
    pub fn config(message: impl Display) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: message.to_string(),
            retry_at: None,
            ended: false,
        }
    }

    /// The container could not be made.
    pub fn create(message: impl Display) -> Self {
        Self { reason: "CreateContainerError", message: message.to_string(), retry_at: None, ended: false }
    }
}

/// Starts a task for each action.
pub fn start(node: &Rc<Node>, uid: &Uid, actions: Vec<Action>) {
    for action in by_urgency(actions) {
        let (node, uid) = (node.clone(), uid.clone());
        let executor = node.executor.clone();
        executor.spawn(async move { perform(&node, &uid, action).await }).detach();
    }
}

async fn perform(node: &Rc<Node>, uid: &Uid, action: Action) {
    let event = match action {
        Action::PrepareVolumes => Some(prepare_volumes(node, uid).await),
        Action::CreateSandbox { attempt } => Some(create_sandbox(node, uid, attempt).await),
        Action::StartContainer { name, attempt } => Some(start_container(node, uid, name, attempt).await),
        Action::Signal { name, id, cause } => {
            signal(node, uid, &name, &id, cause).await;
            None
        }
        Action::Kill { name, id } => {
            kill(node, uid, &name, &id).await;
            None
        }
        Action::RemoveContainer { name, id } => {
            forget_container(node, uid, &name, &id).await;
            None
        }
        Action::RemoveSandbox => {
            remove_sandbox(node, uid).await;
            Some(Event::SandboxGone)
        }
        Action::CleanUp => {
            clean_up(node, uid).await;
            Some(Event::CleanedUp)
        }
    };
    if event.is_some() {
        turn(node, uid, event);
    }
}

/// `kubepods[/burstable|/besteffort]/pod<uid>` below the configured root, as the kubelet names it.
#[must_use]
pub fn pod_cgroup(node: &Node, pod: &Pod) -> String {
    let class = match qos::class(pod) {
        QosClass::Guaranteed => "",
        QosClass::Burstable => "burstable/",
        QosClass::BestEffort => "besteffort/",
    };
    format!("{}kubepods/{class}{}", node.settings.cgroup_root, resources::pod_cgroup_part(&pod.metadata.uid))
}

fn pod_of(node: &Node, uid: &Uid) -> Option<Rc<Pod>> {
    node.pods.borrow().entries.get(uid).map(|entry| entry.pod.clone())
}

/// Ends with the pause after which the volumes are tried again anyway.
async fn try_again_when_it_appears(node: Rc<Node>, uid: Uid, path: PathBuf, wrong: bool) {
    let pause = async {
        async_io::Timer::after(Duration::from_nanos(RETRY)).await;
        Err(nix::errno::Errno::ETIMEDOUT)
    };
    if super::awaited::appears(&path, wrong).or(pause).await.is_err() {
        return;
    }
    if let Some(entry) = node.pods.borrow_mut().entries.get_mut(&uid)
        && matches!(entry.runtime.volumes, Step::Waiting { .. })
    {
        entry.runtime.volumes = Step::Todo;
    }
    turn(&node, &uid, None);
}

async fn prepare_volumes(node: &Rc<Node>, uid: &Uid) -> Event {
    let Some(pod) = pod_of(node, uid) else { return Event::VolumesReady };
    match files::prepare(node, &pod).await {
        Ok(volumes) => {
            if let Some(entry) = node.pods.borrow_mut().entries.get_mut(uid) {
                entry.volumes = volumes;
            }
            Event::VolumesReady
        }
        Err(wait) => {
            if let Some((path, wrong)) = wait.watch {
                node.executor
                    .spawn(try_again_when_it_appears(node.clone(), uid.clone(), path, wrong))
                    .detach();
            }
            Event::VolumesWaiting { reason: wait.reason, message: wait.message }
        }
    }
}

/// What the supervisor gives back in `List`, so that a new agent knows whose a thing is.
#[must_use]
pub fn labels(pod: &Pod, container: &str, attempt: u32) -> String {
    serde_json::json!({
        "uid": pod.metadata.uid,
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "container": container,
        "attempt": attempt,
        "grace": pod.spec.termination_grace_period_seconds,
    })
    .to_string()
}

async fn create_sandbox(node: &Rc<Node>, uid: &Uid, attempt: u32) -> Event {
    let Some(pod) = pod_of(node, uid) else { return Event::SandboxFailed { message: "pod is gone".into() } };
    match make_sandbox(node, uid, &pod, attempt).await {
        Ok((id, degraded)) => {
            let mut borrowed = node.pods.borrow_mut();
            if let Some(entry) = borrowed.entries.get_mut(uid) {
                entry.degraded = degraded;
            }
            Event::SandboxReady { id }
        }
        Err(message) => Event::SandboxFailed { message },
    }
}

async fn make_sandbox(
    node: &Rc<Node>,
    uid: &Uid,
    pod: &Rc<Pod>,
    attempt: u32,
) -> Result<(String, Vec<String>), String> {
    let dir = pod_dir(node, uid);
    let mut degraded = Vec::new();
    let cgroups = match &node.cgroups {
        Some(all) => {
            let path = pod_cgroup(node, pod);
            let (group, notes) =
                all.create(&path, Controllers::usual()).map_err(|error| error.to_string())?;
            degraded.extend(notes.iter().map(ToString::to_string));
            degraded.extend(limit(&group, &pod_limits(node, pod)));
            // the reaper of a shared pid namespace: a v2 group that hands controllers down has no processes of its own
            if build::pid_namespace(pod) == Namespace::Sandbox {
                let home = format!("{path}/{uid}-{attempt}");
                let (group, notes) =
                    all.create(&home, Controllers::usual()).map_err(|error| error.to_string())?;
                degraded.extend(notes.iter().map(ToString::to_string));
                group.join_dirs()
            } else {
                Vec::new()
            }
        }
        None => Vec::new(),
    };
    files::write_pod_files(node, pod, &dir).map_err(|error| error.to_string())?;
    if !pod.spec.host_ipc {
        files::mount_shm(&shm_dir(node, uid)).map_err(|error| error.to_string())?;
    }
    let user_map = node.user_map(uid, pod);
    let own = |host: bool| if host { Namespace::Host } else { Namespace::Sandbox };
    let spec = SandboxSpec {
        id: format!("{uid}-{attempt}"),
        labels: labels(pod, "", attempt),
        hostname: (!pod.spec.host_network).then(|| files::hostname(node, pod)),
        net: own(pod.spec.host_network),
        ipc: own(pod.spec.host_ipc),
        pid: build::pid_namespace(pod),
        user: user_map,
        sysctls: pod
            .spec
            .security_context
            .iter()
            .flat_map(|security| &security.sysctls)
            .map(|sysctl| (sysctl.name.clone(), sysctl.value.clone()))
            .collect(),
        cgroups,
    };
    let id = spec.id.clone();
    let answer = node.ask(RequestBody::CreateSandbox { spec: Box::new(spec) }).await;
    match answer.map_err(|error| error.to_string())? {
        ReplyBody::Sandbox { state } => {
            degraded.extend(state.degraded);
            Ok((id, degraded))
        }
        other => Err(format!("unexpected answer of the supervisor: {other:?}")),
    }
}

fn limit(group: &Group, limits: &Limits) -> Vec<String> {
    match group.limits(limits) {
        Ok(degraded) => degraded.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn pod_limits(node: &Node, pod: &Pod) -> Limits {
    let wanted = resources::pod_cgroup(pod, node.settings.cfs_period_us, node.settings.cfs_quota);
    Limits {
        cpu_shares: Some(wanted.shares),
        cpu_quota_us: wanted
            .quota
            .and_then(|(quota, _)| u64::try_from(quota).ok())
            .filter(|quota| *quota > 0),
        cpu_period_us: wanted.quota.filter(|(quota, _)| *quota > 0).map(|(_, period)| period),
        memory_max: wanted.memory_max,
        pids_max: node.settings.pod_pids_limit,
        ..Limits::default()
    }
}

fn container_limits(node: &Node, pod: &Pod, container: &Container) -> Limits {
    let limit = |name: &str| container.resources.limits.get(name);
    let of_pod = |name: &str| pod.spec.resources.as_ref().and_then(|amounts| amounts.limits.get(name));
    let period = node.settings.cfs_period_us;
    let quota = limit("cpu").map_or(0, |amount| resources::quota(amount.milli(), period));
    let quota = u64::try_from(quota).ok().filter(|quota| *quota > 0 && node.settings.cfs_quota);
    let hugetlb = container
        .resources
        .limits
        .iter()
        .filter_map(|(name, amount)| {
            let size = name.strip_prefix("hugepages-")?.parse::<podkeep_core::quantity::Quantity>().ok()?;
            Some((size.bytes(), amount.bytes()))
        })
        .collect();
    Limits {
        cpu_shares: Some(resources::container_shares(container)),
        weight_rule: WeightRule::Curve,
        cpu_quota_us: quota,
        cpu_period_us: quota.map(|_| period),
        memory_max: limit("memory").or_else(|| of_pod("memory")).map(|amount| amount.bytes()),
        // one process more than its limit ends the container, not a random child (the kubelet's default on v2)
        memory_oom_group: node.unified_memory().then_some(!node.settings.single_process_oom_kill),
        hugetlb,
        ..Limits::default()
    }
}

fn has_limits(container: &Container) -> bool {
    container.resources.limits.values().any(|amount| !amount.is_zero())
}

/// Path of a container's group.
fn container_cgroup(pod_group: &str, id: &str) -> String {
    format!("{pod_group}/{id}")
}

/// The pod's /dev/shm on the host.
#[must_use]
pub fn shm_dir(node: &Node, uid: &str) -> PathBuf {
    node.settings.run_dir.join("shm").join(uid)
}

/// Where the attempts of a container write.
#[must_use]
pub fn log_dir(node: &Node, pod: &Pod, container: &str) -> PathBuf {
    pod_log_dir(node, pod).join(container)
}

fn pod_log_dir(node: &Node, pod: &Pod) -> PathBuf {
    let meta = &pod.metadata;
    node.settings.pod_logs_dir.join(format!("{}_{}_{}", meta.namespace, meta.name, meta.uid))
}

async fn start_container(node: &Rc<Node>, uid: &Uid, name: String, attempt: u32) -> Event {
    let id = files::new_id();
    node.pods.borrow_mut().containers.insert(id.clone(), (uid.clone(), name.clone(), attempt));
    match try_start(node, uid, &name, attempt, &id).await {
        Ok((state, image_id, mut degraded)) => {
            watch_memory(node, uid, &name, &state.id);
            degraded.extend(state.degraded);
            let at = podkeep_core::lifecycle::Now { boot: state.started_boot_ns, wall: state.started_at_ns };
            let started = Event::Started {
                name: name.clone(),
                id: state.id,
                pid: state.pid,
                attempt,
                image_id,
                degraded,
                at,
            };
            // asked again after the supervisor was replaced: it may have ended unseen, so that no event will say so
            let Some(exit) = state.exit else { return started };
            turn(node, uid, Some(started));
            let exit = terminated(node, uid, &name, &id, attempt, &exit).await;
            Event::Exited { name, exit }
        }
        Err(blocked) => {
            node.pods.borrow_mut().containers.remove(&id);
            sweep(node, uid, &name, attempt, &id).await;
            let now = clock::now();
            if blocked.ended {
                let exit = Terminated {
                    container_id: id,
                    exit_code: 128,
                    reason: "StartError".into(),
                    message: blocked.message,
                    started_wall: now.wall,
                    finished_wall: now.wall,
                    finished_boot: now.boot,
                    signal: 0,
                };
                return Event::Exited { name, exit };
            }
            let retry_at = blocked.retry_at.unwrap_or_else(|| now.boot.saturating_add(RETRY));
            Event::StartBlocked { name, reason: blocked.reason.into(), message: blocked.message, retry_at }
        }
    }
}

/// Containers with a memory limit are watched for kills that they survive.
pub fn watch_memory(node: &Node, uid: &Uid, name: &str, id: &str) {
    let group = {
        let pods = node.pods.borrow();
        let Some(entry) = pods.entries.get(uid) else { return };
        let limited =
            container_of(&entry.pod, name).is_some_and(|one| one.resources.limits.contains_key("memory"));
        limited.then(|| container_cgroup(&entry.cgroup, id))
    };
    if let Some(group) = group {
        super::oom::watch(node, uid, name, id, &group);
    }
}

type StartedState = (crate::supervisor::proto::ContainerState, String, Vec<String>);

async fn try_start(
    node: &Rc<Node>,
    uid: &Uid,
    name: &str,
    attempt: u32,
    id: &str,
) -> Result<StartedState, Blocked> {
    let (pod, sandbox_id, volumes, group_path, user_map) = {
        let pods = node.pods.borrow();
        let entry = pods.entries.get(uid).ok_or_else(|| Blocked::create("pod is gone"))?;
        let sandbox = entry.sandbox_id().ok_or_else(|| Blocked::create("sandbox is gone"))?.to_owned();
        (entry.pod.clone(), sandbox, entry.volumes.clone(), entry.cgroup.clone(), entry.user_map)
    };
    let container =
        container_of(&pod, name).ok_or_else(|| Blocked::create("container is gone from the manifest"))?;
    let image = files::ensure_image(node, &pod, container).await?;
    let user = image::user(&pod, container, &image)?;
    let env = files::environment(node, &pod, container).map_err(Blocked::config)?;
    let dir = pod_dir(node, uid).join("containers").join(name).join(attempt.to_string());
    let message = files::make_container_dir(&dir, &user, !container.termination_message_path.is_empty())
        .map_err(Blocked::create)?;
    let logs = log_dir(node, &pod, name);
    std::fs::create_dir_all(&logs)
        .map_err(|error| Blocked::create(format!("log folder '{}': {error}", logs.display())))?;
    let mut degraded = message;
    let mut cgroups = Vec::new();
    if let Some(all) = &node.cgroups {
        let path = container_cgroup(&group_path, id);
        let (group, notes) = all.create(&path, Controllers::usual()).map_err(Blocked::create)?;
        degraded.extend(notes.iter().map(ToString::to_string));
        let unenforced = limit(&group, &container_limits(node, &pod, container));
        if !unenforced.is_empty()
            && node.settings.node.unenforceable_limits == "refuse"
            && has_limits(container)
        {
            let why = unenforced.join("; ");
            return Err(Blocked::config(format!(
                "limit cannot be enforced here (unenforceableLimits: refuse): {why}"
            )));
        }
        degraded.extend(unenforced);
        degraded.extend(files::device_rules(&group, container, &volumes));
        cgroups = group.join_dirs();
    }
    let rlimits = rlimits::of(&pod, name).map_err(Blocked::config)?;
    let rights = rights::of(node, &pod, container)?;
    degraded.extend(rights.lost.iter().cloned());
    let hostname =
        if pod.spec.host_network { node.settings.hostname.clone() } else { files::hostname(node, &pod) };
    let shm = (!pod.spec.host_ipc).then(|| shm_dir(node, uid));
    let own_dir = pod_dir(node, uid);
    let parts = Parts {
        pod: &pod,
        container,
        id,
        sandbox_id: &sandbox_id,
        labels: labels(&pod, name, attempt),
        image: &image.defaults,
        layers: &image.layers,
        user: &user,
        env: &env.variables,
        volumes: &volumes,
        pod_dir: &own_dir,
        container_dir: &dir,
        shm: shm.as_deref(),
        hostname: &hostname,
        cgroups,
        log: LogSpec {
            path: logs.join(format!("{attempt}.log")),
            max_size: node.settings.log_max_size,
            max_files: node.settings.log_max_files,
        },
        rights,
        oom_score_adj: oom::score_adj(&pod, name, node.settings.memory_capacity),
        user_map,
        copy_root: node.settings.copy_root,
        sub_paths: &env.sub_paths,
        rlimits,
    };
    let args = build::arguments(container, &image.defaults, |text| env.expand(text));
    if args.is_empty() {
        return Err(Blocked::create("no command: neither the manifest nor the image names a program"));
    }
    let spec = build::container_spec(parts, args);
    match node.ask(RequestBody::Start { spec: Box::new(spec) }).await {
        Ok(ReplyBody::Container { state }) => Ok((*state, image.id, degraded)),
        Err(LinkError::Refused(failure)) => Err(refused(&failure)),
        Err(error) => Err(Blocked::create(error)),
        Ok(other) => Err(Blocked::create(format!("unexpected answer of the supervisor: {other:?}"))),
    }
}

fn refused(failure: &Failure) -> Blocked {
    let ended = failure.kind == FailureKind::Exec;
    Blocked {
        reason: if ended { "RunContainerError" } else { "CreateContainerError" },
        message: failure.to_string(),
        retry_at: None,
        ended,
    }
}

/// Takes away what a failed start has made.
async fn sweep(node: &Rc<Node>, uid: &Uid, name: &str, attempt: u32, id: &str) {
    let path = node.pods.borrow().entries.get(uid).map(|entry| container_cgroup(&entry.cgroup, id));
    remove_group(node, path).await;
    let dir = pod_dir(node, uid).join("containers").join(name).join(attempt.to_string());
    remove_tree(dir).await;
}

async fn remove_group(node: &Rc<Node>, path: Option<String>) {
    let (Some(all), Some(path)) = (node.cgroups.clone(), path) else { return };
    let done = crate::offload::run(move || {
        let group = all.group(&path)?;
        if group.exists() {
            group.kill(PATIENCE)?;
            group.remove(PATIENCE)?;
        }
        Ok::<(), podkeep_hal::linux::cgroups::Error>(())
    })
    .await;
    if let Err(error) = done {
        log::warn!("cgroup not removed: {error}");
    }
}

async fn remove_tree(dir: PathBuf) {
    crate::offload::run(move || crate::volume::remove_tree(&dir)).await;
}

async fn signal(node: &Rc<Node>, uid: &Uid, name: &str, id: &str, cause: StopCause) {
    let signal = node.stop_signal(uid, name);
    node.note(
        uid,
        Some(name),
        "Killing",
        match cause {
            StopCause::Pod => "Stopping container",
            StopCause::Changed => "Container definition changed, will be restarted",
            StopCause::Probe => "Container failed its probe, will be restarted",
            StopCause::Dropped => "Container is no longer in the manifest",
        },
    );
    if let Err(error) = node.ask(RequestBody::Signal { id: id.to_owned(), signal }).await {
        log::warn!(container = name; "stop signal not sent: {error}");
    }
}

async fn kill(node: &Rc<Node>, uid: &Uid, name: &str, id: &str) {
    // the first process by its descriptor, then all that share its group
    let answer = node.ask(RequestBody::Signal { id: id.to_owned(), signal: nix::libc::SIGKILL }).await;
    if let Err(message) = answer {
        log::warn!(container = name; "kill not sent: {message}");
    }
    let path = node.pods.borrow().entries.get(uid).map(|entry| container_cgroup(&entry.cgroup, id));
    if let (Some(all), Some(path)) = (node.cgroups.clone(), path) {
        let done = crate::offload::run(move || all.group(&path).and_then(|group| group.kill(PATIENCE))).await;
        if let Err(error) = done {
            log::warn!(container = name; "kill of the group: {error}");
        }
    }
}

/// Takes away an ended container: record, cgroup, writable layer, the logs of the runs before it.
pub async fn forget_container(node: &Rc<Node>, uid: &Uid, name: &str, id: &str) {
    let path = node.pods.borrow().entries.get(uid).map(|entry| container_cgroup(&entry.cgroup, id));
    // none for a program that could not be executed: its traces are gone already
    let attempt = node.pods.borrow_mut().containers.remove(id).map(|(_, _, attempt)| attempt);
    if let Err(message) = node.ask(RequestBody::Remove { id: id.to_owned() }).await {
        log::warn!(container = name; "record not removed: {message}");
    }
    remove_group(node, path).await;
    if let Some(attempt) = attempt {
        let dir = pod_dir(node, uid).join("containers").join(name).join(attempt.to_string());
        remove_tree(dir).await;
        if let Some(pod) = pod_of(node, uid) {
            let logs = log_dir(node, &pod, name);
            crate::offload::run(move || files::drop_old_logs(&logs, attempt)).await;
        }
    }
}

async fn remove_sandbox(node: &Rc<Node>, uid: &Uid) {
    let (ids, group) = {
        let pods = node.pods.borrow();
        let Some(entry) = pods.entries.get(uid) else { return };
        (entry.runtime.sandbox_attempts, entry.cgroup.clone())
    };
    for attempt in ids.saturating_sub(2)..ids {
        let id = format!("{uid}-{attempt}");
        if let Err(message) = node.ask(RequestBody::RemoveSandbox { id }).await {
            log::warn!("sandbox not removed: {message}");
        }
    }
    let shm = shm_dir(node, uid);
    crate::offload::run(move || files::unmount_shm(&shm)).await;
    remove_group(node, Some(group)).await;
}

async fn clean_up(node: &Rc<Node>, uid: &Uid) {
    let Some(pod) = pod_of(node, uid) else { return };
    let dir = pod_dir(node, uid);
    let logs = pod_log_dir(node, &pod);
    crate::offload::run(move || crate::volume::teardown(&dir))
        .await
        .unwrap_or_else(|error| log::warn!("pod folder not removed: {error}"));
    remove_tree(logs).await;
}

/// From the supervisor's exit to what is remembered: reason, message, out-of-memory.
pub async fn terminated(
    node: &Rc<Node>,
    uid: &Uid,
    name: &str,
    id: &str,
    attempt: u32,
    exit: &Exit,
) -> Terminated {
    let (group, started, killed, container) = {
        let pods = node.pods.borrow();
        let entry = pods.entries.get(uid);
        let running = entry.and_then(|entry| entry.runtime.container(name)).and_then(|found| found.running());
        (
            entry.map(|entry| container_cgroup(&entry.cgroup, id)),
            running.map_or(exit.finished_at_ns, |running| running.started_wall),
            running.is_some_and(|running| running.stop.is_some()),
            entry.and_then(|entry| container_of(&entry.pod, name).cloned()),
        )
    };
    let oom = !killed && exit.signal == nix::libc::SIGKILL && node.oom_killed(group.as_deref());
    let reason = match (exit.unknown, oom, exit.code) {
        (true, ..) => "ContainerStatusUnknown",
        (_, true, _) => "OOMKilled",
        (_, _, 0) => "Completed",
        _ => "Error",
    };
    let message = match container {
        Some(container) => {
            let dir = pod_dir(node, uid).join("containers").join(name).join(attempt.to_string());
            let log = pod_of(node, uid).map(|pod| log_dir(node, &pod, name).join(format!("{attempt}.log")));
            files::termination_message(&container, &dir, log, exit.code)
        }
        None => String::new(),
    };
    Terminated {
        container_id: id.to_owned(),
        exit_code: exit.code,
        signal: exit.signal,
        reason: reason.to_owned(),
        message,
        started_wall: started,
        finished_wall: exit.finished_at_ns,
        finished_boot: exit.finished_boot_ns,
    }
}

/// What is needed of an image to start a container.
#[derive(Clone, Debug)]
pub struct Image {
    pub id: String,
    pub layers: Vec<PathBuf>,
    pub defaults: ImageDefaults,
    /// `User` of the image
    pub user: String,
    pub stop_signal: Option<String>,
}
