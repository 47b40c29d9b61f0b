//! The agent's end of the socket: one task a connection.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;

use async_io::Async;
use podkeep_core::types::Pod;
use smol::channel::Sender;
use smol::future::FutureExt;

use super::{ApiReply, ApiRequest, ImageStatus, PodFilter, frame};
use crate::container::spec::ProcessSpec;
use crate::image::auth::Keyring;
use crate::node::events::matches;
use crate::node::pods::{self, Entry, Uid};
use crate::node::{Node, act};
use crate::supervisor::link::LinkError;
use crate::supervisor::proto::{Exit, FailureKind, RequestBody};

thread_local! {
    /// Execs whose end somebody waits for. The loop has one thread.
    static EXECS: RefCell<HashMap<String, Sender<Exit>>> = RefCell::default();
}

/// Opens the socket, 0600, in place of one that a killed agent left.
pub fn listen(node: &Rc<Node>) -> Result<(), String> {
    let path = node.settings.socket.clone();
    let fail = |error: std::io::Error| format!("socket '{}': {error}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    // nobody may connect between bind and chmod
    let old = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(&path);
    nix::sys::stat::umask(old);
    let listener = Async::new(bound.map_err(fail)?).map_err(fail)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    let executor = node.executor.clone();
    let node = node.clone();
    executor
        .spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let executor = node.executor.clone();
                let node = node.clone();
                executor.spawn(async move { connection(&node, &stream).await }).detach();
            }
        })
        .detach();
    Ok(())
}

/// The supervisor says that an exec is over.
pub fn exec_ended(_node: &Node, exec_id: &str, exit: &Exit) {
    let waiter = EXECS.with_borrow_mut(|execs| execs.remove(exec_id));
    if let Some(waiter) = waiter {
        // the command may have gone away
        waiter.try_send(exit.clone()).ok();
    }
}

async fn connection(node: &Rc<Node>, stream: &Async<UnixStream>) {
    let (request, fds) = match frame::receive_async::<ApiRequest>(stream).await {
        Ok(Some(received)) => received,
        Ok(None) => return,
        Err(error) => {
            let message = format!("request cannot be read (is the command of another version?): {error}");
            frame::send_async(stream, &ApiReply::Failed { message }, &[]).await.ok();
            return;
        }
    };
    if let Err(message) = answer(node, stream, request, fds).await {
        // whoever asked may be gone
        frame::send_async(stream, &ApiReply::Failed { message }, &[]).await.ok();
    }
}

async fn reply(stream: &Async<UnixStream>, reply: &ApiReply) -> Result<(), String> {
    frame::send_async(stream, reply, &[]).await.map_err(|error| error.to_string())
}

async fn answer(
    node: &Rc<Node>,
    stream: &Async<UnixStream>,
    request: ApiRequest,
    fds: Vec<OwnedFd>,
) -> Result<(), String> {
    match request {
        ApiRequest::Version => {
            let supervisor = node.supervisor.borrow().clone();
            let node_name = node.settings.node_name.clone();
            let version = crate::cli::VERSION.to_owned();
            reply(stream, &ApiReply::Version { version, node: node_name, supervisor }).await
        }
        ApiRequest::Pods { filter, watch } => pods_request(node, stream, &filter, watch).await,
        ApiRequest::Events { filter } => {
            let events = node.events.borrow().list(&filter, &node.settings.node_name);
            reply(stream, &ApiReply::Events { events }).await
        }
        ApiRequest::Sources => {
            let sources = node.sources.borrow().clone();
            reply(stream, &ApiReply::Sources { sources }).await
        }
        ApiRequest::Log { namespace, pod, container, previous, follow } => {
            log_request(node, stream, &namespace, &pod, container.as_deref(), (previous, follow)).await
        }
        ApiRequest::Exec { namespace, pod, container, command, tty, size } => {
            let run = (command, tty, size);
            exec(node, stream, (&namespace, &pod, container.as_deref()), run, fds).await
        }
        ApiRequest::ImageLoad { path, name } => {
            let loaded = node.images.load(path.into(), Some(name), Arc::default()).await;
            let names = loaded.map_err(|error| error.to_string())?;
            crate::node::files::image_arrived(node);
            reply(stream, &ApiReply::Done { message: format!("loaded {}", names.join(", ")) }).await
        }
        ApiRequest::ImagePull { name } => {
            let policy = podkeep_core::image::PullPolicy::Always;
            node.images
                .ensure(&name, policy, &Keyring::default(), Arc::default())
                .await
                .map_err(|error| error.to_string())?;
            crate::node::files::image_arrived(node);
            reply(stream, &ApiReply::Done { message: format!("pulled {name}") }).await
        }
        ApiRequest::ImageList => {
            let images = images(node).await?;
            reply(stream, &ApiReply::Images { images }).await
        }
        ApiRequest::ImageRemove { name } => {
            let in_use = used_images(node);
            let names = node.images.remove(&name, in_use).await.map_err(|error| error.to_string())?;
            reply(stream, &ApiReply::Done { message: format!("removed {}", names.join(", ")) }).await
        }
    }
}

/// Ids of the images that pods name.
fn used_images(node: &Node) -> BTreeSet<String> {
    let pods = node.pods.borrow();
    let names: BTreeSet<&str> = pods
        .entries
        .values()
        .flat_map(|entry| {
            let volumes = entry.pod.spec.volumes.iter().filter_map(|v| v.image.as_ref());
            let volumes = volumes.map(|image| image.reference.as_str());
            entry.runtime.containers.iter().map(|container| container.shape.image.as_str()).chain(volumes)
        })
        .collect();
    names.into_iter().filter_map(|name| Some(node.images.get(name).ok()??.id.to_string())).collect()
}

async fn images(node: &Rc<Node>) -> Result<Vec<ImageStatus>, String> {
    let used = used_images(node);
    let mut lines = Vec::new();
    for image in node.images.list().await.map_err(|error| error.to_string())? {
        let in_use = used.contains(&image.id);
        lines.extend(image.names.iter().map(|name| ImageStatus {
            name: name.clone(),
            id: image.id.clone(),
            size: image.size,
            in_use,
            pinned: image.pinned,
            problem: image.problem.clone(),
        }));
    }
    Ok(lines)
}

fn json(pod: &Pod) -> serde_json::Value {
    let mut value = serde_json::to_value(pod).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("apiVersion".into(), "v1".into());
        object.insert("kind".into(), "Pod".into());
    }
    value
}

fn selected(node: &Rc<Node>, filter: &PodFilter) -> Vec<serde_json::Value> {
    let pods = node.pods.borrow();
    let mut entries: Vec<&Entry> = pods
        .entries
        .values()
        .filter(|entry| {
            let meta = &entry.pod.metadata;
            matches(filter, &meta.namespace, &meta.name, &node.settings.node_name)
        })
        .collect();
    entries.sort_by_key(|entry| pods::full_name(&entry.pod));
    entries.into_iter().map(|entry| json(&pods::shown(node, entry))).collect()
}

async fn pods_request(
    node: &Rc<Node>,
    stream: &Async<UnixStream>,
    filter: &PodFilter,
    watch: bool,
) -> Result<(), String> {
    let changes = watch.then(|| node.watch());
    reply(stream, &ApiReply::Pods { pods: selected(node, filter) }).await?;
    let Some(changes) = changes else { return Ok(()) };
    loop {
        let Some(uid) = until_closed(stream, changes.recv()).await else { return Ok(()) };
        let changed = {
            let pods = node.pods.borrow();
            pods.entries.get(&uid).map(|entry| {
                let meta = &entry.pod.metadata;
                let meant = matches(filter, &meta.namespace, &meta.name, &node.settings.node_name);
                meant.then(|| json(&pods::shown(node, entry)))
            })
        };
        if let Some(Some(pod)) = changed {
            reply(stream, &ApiReply::Pods { pods: vec![pod] }).await?;
        }
    }
}

/// The next item, or `None` when the other side hangs up or nothing more can come.
async fn until_closed<T>(
    stream: &Async<UnixStream>,
    next: impl Future<Output = Result<T, smol::channel::RecvError>>,
) -> Option<T> {
    let closed = async {
        // the command sends nothing more: readable means gone
        stream.readable().await.ok();
        None
    };
    async { next.await.ok() }.or(closed).await
}

/// The pod that is meant, by its name with or without the node's.
fn find(node: &Node, namespace: &str, pod: &str) -> Result<Uid, String> {
    let filter = PodFilter { namespace: Some(namespace.to_owned()), name: Some(pod.to_owned()) };
    let pods = node.pods.borrow();
    let mut found = pods.entries.values().filter(|entry| {
        let meta = &entry.pod.metadata;
        matches(&filter, &meta.namespace, &meta.name, &node.settings.node_name)
    });
    found
        .next()
        .map(|entry| entry.uid.clone())
        .ok_or_else(|| format!("pod '{pod}' not found in namespace '{namespace}'"))
}

async fn log_request(
    node: &Rc<Node>,
    stream: &Async<UnixStream>,
    namespace: &str,
    pod: &str,
    container: Option<&str>,
    (previous, follow): (bool, bool),
) -> Result<(), String> {
    let uid = find(node, namespace, pod)?;
    let changes = follow.then(|| node.watch());
    let (path, name, starts, running) = {
        let pods = node.pods.borrow();
        let entry = pods.entries.get(&uid).ok_or("pod is gone")?;
        let name = pods::pick_container(entry, container).ok_or_else(|| {
            format!("container '{}' not found in pod '{pod}'", container.unwrap_or_default())
        })?;
        let starts = entry.runtime.container(&name).map_or(0, |found| found.starts);
        let attempt = starts.checked_sub(if previous { 2 } else { 1 }).ok_or_else(|| {
            format!("container '{name}' has {} run", if previous { "no previous" } else { "not yet" })
        })?;
        let running = !previous && pods::running_id(entry, &name).is_some();
        let path = act::log_dir(node, &entry.pod, &name).join(format!("{attempt}.log"));
        (path, name, starts, running)
    };
    let shown = path.to_str().ok_or("the log's path is not UTF-8")?.to_owned();
    reply(stream, &ApiReply::Log { path: shown, running }).await?;
    let Some(changes) = changes.filter(|_| running) else { return Ok(()) };
    loop {
        let goes_on = {
            let pods = node.pods.borrow();
            pods.entries
                .get(&uid)
                .and_then(|entry| entry.runtime.container(&name))
                .is_some_and(|found| found.starts == starts && found.running().is_some())
        };
        if !goes_on {
            return reply(stream, &ApiReply::LogEnded).await;
        }
        if until_closed(stream, changes.recv()).await.is_none() {
            return Ok(());
        }
    }
}

async fn exec(
    node: &Rc<Node>,
    stream: &Async<UnixStream>,
    (namespace, pod, container): (&str, &str, Option<&str>),
    (command, tty, size): (Vec<String>, bool, Option<(u16, u16)>),
    fds: Vec<OwnedFd>,
) -> Result<(), String> {
    let uid = find(node, namespace, pod)?;
    let (id, name) = {
        let pods = node.pods.borrow();
        let entry = pods.entries.get(&uid).ok_or("pod is gone")?;
        let name = pods::pick_container(entry, container).ok_or_else(|| {
            format!("container '{}' not found in pod '{pod}'", container.unwrap_or_default())
        })?;
        let id = pods::running_id(entry, &name).ok_or_else(|| format!("container '{name}' does not run"))?;
        (id, name)
    };
    let mut process = crate::node::files::exec_process(node, &uid, &name)?;
    process.args = command;
    process.tty = tty;
    process.tty_size = size;
    let exec_id = crate::node::files::new_id();
    let (sender, ended) = smol::channel::bounded(1);
    EXECS.with_borrow_mut(|execs| execs.insert(exec_id.clone(), sender));
    let done = run_exec(node, stream, id, &exec_id, process, fds, &ended).await;
    EXECS.with_borrow_mut(|execs| execs.remove(&exec_id));
    done
}

async fn run_exec(
    node: &Rc<Node>,
    stream: &Async<UnixStream>,
    id: String,
    exec_id: &str,
    process: ProcessSpec,
    fds: Vec<OwnedFd>,
    ended: &smol::channel::Receiver<Exit>,
) -> Result<(), String> {
    let request = RequestBody::Exec { id, exec_id: exec_id.to_owned(), process: Box::new(process) };
    let received = match node.link.request(request, fds).await {
        Ok((_, received)) => received,
        Err(LinkError::Refused(failure)) if failure.kind == FailureKind::Exec => {
            let code = if failure.errno == nix::libc::ENOENT { 127 } else { 126 };
            return reply(stream, &ApiReply::ExecFailed { code, message: failure.to_string() }).await;
        }
        Err(error) => return Err(error.to_string()),
    };
    let borrowed: Vec<_> = received.iter().map(AsFd::as_fd).collect();
    frame::send_async(stream, &ApiReply::ExecStarted, &borrowed).await.map_err(|error| error.to_string())?;
    drop(received);
    match until_closed(stream, ended.recv()).await {
        Some(exit) => reply(stream, &ApiReply::ExecEnded { code: exit.code }).await,
        None => {
            // the operator went away: so does what was run for him, as kubectl's exec
            let signal = nix::libc::SIGHUP;
            node.ask(RequestBody::SignalExec { exec_id: exec_id.to_owned(), signal }).await.ok();
            Ok(())
        }
    }
}
