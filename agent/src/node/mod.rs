//! The node: one loop on one thread. Events come in, the pods they touch are planned anew, actions go out as tasks.
//!
//! ```text
//! manifests ─┐                        ┌─► supervisor (start, signal, …)
//! supervisor ┼─► Turn ─► plan (core) ─┼─► cgroups, volumes, images
//! timers ────┤                        └─► records on disk
//! socket ────┘
//! ```

pub mod act;
mod adopt;
mod awaited;
pub mod events;
pub mod files;
pub mod hold;
pub mod image;
mod leftovers;
pub mod oom;
pub mod pods;
pub mod record;
mod records;
pub mod rights;
pub mod settings;
pub mod sources;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use podkeep_core::desired::SourceUpdate;
use podkeep_core::image::PullBackoff;
use podkeep_core::lifecycle::pod::Event;
use podkeep_core::types::{ConfigMap, Pod, Secret};
use podkeep_hal::linux::cgroups::{Cgroups, Flavour};
use podkeep_hal::linux::store::Store;
use smol::LocalExecutor;
use smol::channel::{Receiver, Sender};
use smol::future::FutureExt;

use self::events::{EventRing, Severity, Subject};
use self::pods::{Pods, Uid, turn};
use self::settings::Settings;
use crate::api::SourceStatus;
use crate::clock;
use crate::container::seccomp::Filters;
use crate::container::spec::IdMap;
use crate::image::ImageStore;
use crate::supervisor::link::{Link, LinkError, LinkEvent, Options};
use crate::supervisor::proto::{Exit, ReplyBody, RequestBody};

/// Where the agent listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/podkeep/podkeep.sock";

/// Supervisors that may die over one request before it is given up.
const ASK_AGAIN: u32 = 3;
/// For one request of the supervisor; a start on a busy board with a slow card takes long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub config: Option<PathBuf>,
    pub config_dir: Option<PathBuf>,
    pub manifests: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
    pub run_dir: Option<PathBuf>,
    pub socket: Option<PathBuf>,
    pub node_name: Option<String>,
    pub root: Option<PathBuf>,
    pub log_format: Option<String>,
    pub verbosity: Option<u8>,
}

/// All that can wake the loop.
#[derive(Debug)]
pub enum Turn {
    Source(SourceUpdate),
    Link(LinkEvent),
    /// TERM or INT: the agent leaves, its containers live on
    Leave(&'static str),
    /// HUP: look at the manifests again
    Rescan,
    /// records could not be written a while ago
    Flush,
}

/// ConfigMaps and Secrets of this node, by `namespace/name`.
#[derive(Debug, Default)]
pub struct Objects {
    pub config_maps: BTreeMap<String, Rc<ConfigMap>>,
    pub secrets: BTreeMap<String, Rc<Secret>>,
}

/// What all tasks share. One thread: cells, no locks; no borrow is held over an await.
pub struct Node {
    pub settings: Settings,
    pub executor: Rc<LocalExecutor<'static>>,
    pub link: Link,
    pub images: ImageStore,
    pub filters: Filters,
    /// bit mask
    pub host_capabilities: u64,
    pub cgroups: Option<Cgroups>,
    pub store: Arc<Store>,
    pub boot_id: String,
    pub pods: RefCell<Pods>,
    pub objects: RefCell<Objects>,
    pub events: RefCell<EventRing>,
    pub sources: RefCell<Vec<SourceStatus>>,
    /// stop signals of the images in use, by pod and container
    stop_signals: RefCell<BTreeMap<(Uid, String), i32>>,
    watchers: RefCell<Vec<Sender<Uid>>>,
    /// version of the supervisor's program
    pub supervisor: RefCell<String>,
    pub pull_backoff: RefCell<PullBackoff>,
    pub oom: oom::OomWatch,
    turns: Sender<Turn>,
    flushing: Cell<bool>,
}

impl core::fmt::Debug for Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Node").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Node {
    /// Asks the supervisor. All that the agent asks can be asked twice: when a supervisor dies before its answer the
    /// next one is asked the same.
    pub async fn ask(&self, body: RequestBody) -> Result<ReplyBody, LinkError> {
        let mut tries = 0;
        loop {
            match self.link.request(body.clone(), Vec::new()).await {
                Ok((reply, _)) => return Ok(reply),
                Err(LinkError::Disconnected) if tries < ASK_AGAIN => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether memory is limited by control groups of version 2; version 1 knows no group kill.
    #[must_use]
    pub fn unified_memory(&self) -> bool {
        self.cgroups.as_ref().is_some_and(|all| all.flavour() == Flavour::V2)
    }

    /// Notes an event of a pod.
    pub fn note(&self, uid: &Uid, container: Option<&str>, reason: &str, message: &str) {
        self.note_as(Severity::Normal, uid, container, reason, message);
    }

    /// The same with a severity.
    pub fn note_as(
        &self,
        severity: Severity,
        uid: &Uid,
        container: Option<&str>,
        reason: &str,
        message: &str,
    ) {
        let pods = self.pods.borrow();
        let Some(entry) = pods.entries.get(uid) else { return };
        let meta = &entry.pod.metadata;
        let subject = Subject { namespace: &meta.namespace, pod: &meta.name, container };
        self.events.borrow_mut().note(severity, subject, reason, message, clock::now().wall);
    }

    /// What is wrong with a manifest, for the status of the pods that came from it.
    #[must_use]
    pub fn source_errors(&self, path: &str) -> String {
        let sources = self.sources.borrow();
        sources
            .iter()
            .find(|source| source.path == path)
            .map(|source| source.errors.join("; "))
            .unwrap_or_default()
    }

    /// Signal that stops a container: the manifest's, else the image's, else TERM.
    #[must_use]
    pub fn stop_signal(&self, uid: &Uid, container: &str) -> i32 {
        self.stop_signals
            .borrow()
            .get(&(uid.clone(), container.to_owned()))
            .copied()
            .unwrap_or(nix::libc::SIGTERM)
    }

    /// Remembers the stop signal of a container that is being started.
    pub fn set_stop_signal(&self, uid: &Uid, container: &str, signal: i32) {
        self.stop_signals.borrow_mut().insert((uid.clone(), container.to_owned()), signal);
    }

    /// Whether the kernel has ended a process of this group for want of memory.
    #[must_use]
    pub fn oom_killed(&self, group: Option<&str>) -> bool {
        let (Some(all), Some(path)) = (&self.cgroups, group) else { return false };
        all.group(path).and_then(|group| group.oom_kills()).ok().flatten().is_some_and(|count| count > 0)
    }

    /// The ids of a pod with `hostUsers: false`; a range stays with its pod.
    #[must_use]
    pub fn user_map(&self, uid: &Uid, pod: &Pod) -> Option<IdMap> {
        if pod.spec.host_users != Some(false) {
            return None;
        }
        let mut pods = self.pods.borrow_mut();
        if let Some(known) = pods.entries.get(uid).and_then(|entry| entry.user_map) {
            return Some(known);
        }
        let size = self.settings.ids_per_pod;
        let taken: Vec<u32> =
            pods.entries.values().filter_map(|entry| entry.user_map).map(|map| map.host_base).collect();
        let mut host_base = size;
        while taken.contains(&host_base) {
            host_base = host_base.checked_add(size)?;
        }
        let map = IdMap { host_base, size };
        if let Some(entry) = pods.entries.get_mut(uid) {
            entry.user_map = Some(map);
        }
        Some(map)
    }

    /// A pod's status may have changed: watchers are told, once for each difference.
    pub fn status_changed(self: &Rc<Self>, uid: &Uid) {
        if !pods::refresh_status(self, uid) {
            return;
        }
        self.watchers.borrow_mut().retain(|watcher| match watcher.try_send(uid.clone()) {
            Ok(()) => true,
            // a watcher that does not read is cut off; it can ask again
            Err(_) => false,
        });
    }

    /// A stream of pods that change.
    #[must_use]
    pub fn watch(&self) -> Receiver<Uid> {
        let (sender, receiver) = smol::channel::bounded(1024);
        self.watchers.borrow_mut().push(sender);
        receiver
    }

    /// A name is free again: pods that wait for what it held look again.
    pub fn name_freed(self: &Rc<Self>) {
        hold::recheck(self);
    }
}

/// `podkeep run`.
#[must_use]
pub fn main(options: &RunOptions) -> ExitCode {
    let loaded = match settings::load(options) {
        Ok(loaded) => loaded,
        Err(error) => {
            crate::cli::out::error(&format!("podkeep: {error}"));
            return ExitCode::FAILURE;
        }
    };
    crate::logging::init(loaded.settings.log_json, loaded.settings.verbosity);
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    let executor = Rc::new(LocalExecutor::new());
    match async_io::block_on(executor.run(serve(executor.clone(), loaded.settings))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(executor: Rc<LocalExecutor<'static>>, settings: Settings) -> Result<(), String> {
    // threads that are started later inherit the mask, so the signals come to the descriptor alone
    let signals = crate::signals::Signals::new().map_err(|error| format!("signals: {error}"))?;
    let _lock = files::lock(&settings.run_dir)?;
    let (sender, turns) = smol::channel::bounded(1024);
    let exe = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    let cgroups = open_cgroups(&settings);
    let options = Options {
        run_dir: settings.run_dir.clone(),
        exe,
        cgroups: files::supervisor_cgroup(cgroups.as_ref(), &settings),
        timeout: REQUEST_TIMEOUT,
    };
    let (link, link_events) = Link::open(options, |driver| executor.spawn(driver).detach());
    let first = first_up(&link_events).await?;
    let store = Store::open(&settings.state_dir.join("state"), true)
        .map(Arc::new)
        .map_err(|error| format!("state folder: {error}"))?;
    let images =
        ImageStore::open(&settings.state_dir).await.map_err(|error| format!("image store: {error}"))?;
    let parallel =
        settings.kubelet.max_parallel_image_pulls.and_then(|max| usize::try_from(max).ok()).unwrap_or(1);
    let preloads: Vec<_> = settings.node.image_dirs.iter().map(std::path::PathBuf::from).collect();
    let mut registries = crate::image::RegistrySettings::from(&settings.node);
    registries.verify = crate::image::access::VerifyPolicy::parse(
        &settings.kubelet.image_pull_credentials_verification_policy,
        &settings.kubelet.preloaded_images_verification_allowlist,
    );
    let images = images.with_registries(registries, parallel).with_preloads(&preloads);
    let profiles = settings.state_dir.join("seccomp");
    let filters = Filters::open(&settings.run_dir.join("seccomp"), &profiles, rights::kernel_version())
        .map_err(|error| format!("seccomp programs: {error}"))?;
    let node = Rc::new(Node {
        boot_id: files::boot_id(),
        settings,
        executor: executor.clone(),
        link,
        images,
        filters,
        host_capabilities: rights::host_capabilities(),
        cgroups,
        store,
        pods: RefCell::new(Pods::frozen()),
        objects: RefCell::default(),
        events: RefCell::default(),
        sources: RefCell::default(),
        stop_signals: RefCell::default(),
        watchers: RefCell::default(),
        supervisor: RefCell::default(),
        pull_backoff: RefCell::default(),
        oom: oom::OomWatch::new(),
        turns: sender.clone(),
        flushing: Cell::new(false),
    });
    node.supervisor.replace(first.build);
    adopt::adopt(&node, first.sandboxes, first.containers).await;
    executor.spawn(forward(link_events, sender.clone(), Turn::Link)).detach();
    executor.spawn(signals.run(sender.clone())).detach();
    executor.spawn(oom::run(node.clone())).detach();
    crate::api::server::listen(&node)?;
    let mut sources = sources::start(&node, &sender)?;
    log::info!(node = node.settings.node_name.as_str(); "podkeep {} is up", crate::cli::VERSION);
    run_loop(&node, &turns, &mut sources).await;
    records::flush_now(&node);
    Ok(())
}

fn open_cgroups(settings: &Settings) -> Option<Cgroups> {
    match Cgroups::open(&settings.root) {
        Ok(all) => {
            for missing in all.missing() {
                log::warn!("cgroup controller {} is missing: {}", missing.controller, missing.hint);
            }
            Some(all)
        }
        Err(error) => {
            log::warn!("no control groups, no limit is in force: {error}");
            None
        }
    }
}

async fn forward<T: 'static>(from: Receiver<T>, to: Sender<Turn>, wrap: fn(T) -> Turn) {
    while let Ok(item) = from.recv().await {
        if to.send(wrap(item)).await.is_err() {
            return;
        }
    }
}

async fn run_loop(node: &Rc<Node>, turns: &Receiver<Turn>, sources: &mut sources::Sources) {
    loop {
        let wake = node.pods.borrow().next_wake();
        let timer = async {
            match wake {
                Some(at) => {
                    let left = at.saturating_sub(clock::now().boot);
                    async_io::Timer::at(Instant::now() + Duration::from_nanos(left)).await;
                }
                None => smol::future::pending::<()>().await,
            }
            None
        };
        match async { turns.recv().await.ok() }.or(timer).await {
            Some(Turn::Leave(why)) => {
                log::info!("{why}: the agent leaves, its containers go on");
                return;
            }
            Some(Turn::Source(update)) => sources.take(node, update),
            Some(Turn::Link(event)) => link_event(node, event).await,
            Some(Turn::Rescan) => sources.rescan(),
            Some(Turn::Flush) | None => {}
        }
        let due = node.pods.borrow_mut().due(clock::now().boot);
        for uid in due {
            turn(node, &uid, None);
        }
        records::flush(node);
    }
}

/// What the supervisor held when it was asked first.
struct FirstUp {
    build: String,
    sandboxes: Vec<crate::supervisor::proto::SandboxState>,
    containers: Vec<crate::supervisor::proto::ContainerState>,
}

async fn first_up(events: &Receiver<LinkEvent>) -> Result<FirstUp, String> {
    let mut failures = 0;
    loop {
        match events.recv().await {
            Ok(LinkEvent::Up { build, sandboxes, containers, .. }) => {
                return Ok(FirstUp { build, sandboxes, containers });
            }
            Ok(LinkEvent::Down { why }) => {
                failures += 1;
                log::warn!("the supervisor does not come up: {why}");
                if failures > 3 {
                    return Err(format!(
                        "the supervisor does not come up: {why} (its words are in supervisor.log)"
                    ));
                }
            }
            Ok(LinkEvent::Event(_)) => {}
            Err(_) => return Err("the link to the supervisor has ended".to_owned()),
        }
    }
}

async fn link_event(node: &Rc<Node>, event: LinkEvent) {
    match event {
        LinkEvent::Up { build, sandboxes, containers, .. } => {
            node.supervisor.replace(build);
            adopt::compare(node, &sandboxes, &containers).await;
        }
        LinkEvent::Down { why } => log::warn!("the supervisor is gone, the next one is started: {why}"),
        LinkEvent::Event(ReplyBody::Exited { id, exit }) => container_exited(node, &id, &exit).await,
        LinkEvent::Event(ReplyBody::ExecExited { exec_id, exit }) => {
            crate::api::server::exec_ended(node, &exec_id, &exit);
        }
        LinkEvent::Event(ReplyBody::LogTrouble { id, errno, dropped_bytes }) => {
            let known = node.pods.borrow().containers.get(&id).cloned();
            if let Some((uid, name, _)) = known {
                let text = if errno == 0 {
                    format!("log is written again, {dropped_bytes} bytes were lost")
                } else {
                    let errno = nix::errno::Errno::from_raw(errno);
                    format!("log cannot be written, output is dropped: {}", errno.desc())
                };
                node.note_as(Severity::Warning, &uid, Some(&name), "LogTrouble", &text);
            }
        }
        LinkEvent::Event(other) => log::debug!("the supervisor says: {other:?}"),
    }
}

async fn container_exited(node: &Rc<Node>, id: &str, exit: &Exit) {
    let known = node.pods.borrow().containers.get(id).cloned();
    let Some((uid, name, attempt)) = known else { return adopt::end_stray(node, id.to_owned(), false) };
    oom::forget(node, id);
    let ended = act::terminated(node, &uid, &name, id, attempt, exit).await;
    turn(node, &uid, Some(Event::Exited { name, exit: ended }));
}
