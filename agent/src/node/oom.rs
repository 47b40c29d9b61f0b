//! Out-of-memory kills inside containers that go on: noted as events when the kernel tells of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::rc::Rc;

use async_io::Async;
use podkeep_hal::linux::cgroups::Watcher;

use super::Node;
use super::events::Severity;
use super::pods::Uid;

struct Watched {
    uid: Uid,
    container: String,
    id: String,
    group: String,
    /// kills that were told of
    kills: u64,
}

/// Containers with a memory limit, each watched through one descriptor of the kernel.
#[derive(Default)]
pub struct OomWatch {
    watcher: RefCell<Option<Watcher>>,
    watched: RefCell<HashMap<u64, Watched>>,
    next: Cell<u64>,
}

impl OomWatch {
    /// Nothing is watched where the kernel gives no descriptor for it.
    #[must_use]
    pub fn new() -> Self {
        Self { watcher: RefCell::new(Watcher::new().ok()), ..Self::default() }
    }
}

/// Watches a container that was just started.
pub fn watch(node: &Node, uid: &Uid, container: &str, id: &str, group: &str) {
    let Some(all) = &node.cgroups else { return };
    let mut watcher = node.oom.watcher.borrow_mut();
    let (Some(watcher), Ok(handle)) = (watcher.as_mut(), all.group(group)) else { return };
    let token = node.oom.next.get();
    if let Err(error) = watcher.watch_oom(&handle, token) {
        log::debug!(container = container; "out-of-memory kills are not watched: {error}");
        return;
    }
    node.oom.next.set(token.wrapping_add(1));
    let kills = handle.oom_kills().ok().flatten().unwrap_or_default();
    let watched = Watched {
        uid: uid.clone(),
        container: container.to_owned(),
        id: id.to_owned(),
        group: group.to_owned(),
        kills,
    };
    node.oom.watched.borrow_mut().insert(token, watched);
}

/// The container has ended.
pub fn forget(node: &Node, id: &str) {
    let mut watched = node.oom.watched.borrow_mut();
    let tokens: Vec<u64> = watched.iter().filter(|(_, one)| one.id == id).map(|(token, _)| *token).collect();
    for token in tokens {
        watched.remove(&token);
        if let Some(watcher) = node.oom.watcher.borrow_mut().as_mut() {
            watcher.forget(token);
        }
    }
}

/// Waits for the kernel's word, for the life of the node.
pub async fn run(node: Rc<Node>) {
    let fd = {
        let watcher = node.oom.watcher.borrow();
        watcher.as_ref().and_then(|watcher| watcher.as_fd().try_clone_to_owned().ok())
    };
    let Some(fd) = fd.and_then(|fd| Async::new_nonblocking(fd).ok()) else { return };
    while fd.readable().await.is_ok() {
        let happened = node.oom.watcher.borrow_mut().as_mut().map(Watcher::drain).unwrap_or_default();
        for (token, _) in happened {
            look(&node, token);
        }
    }
}

fn look(node: &Node, token: u64) {
    let Some(all) = &node.cgroups else { return };
    let told = {
        let mut watched = node.oom.watched.borrow_mut();
        let Some(one) = watched.get_mut(&token) else { return };
        let kills =
            all.group(&one.group).and_then(|group| group.oom_kills()).ok().flatten().unwrap_or_default();
        if kills <= one.kills {
            return;
        }
        one.kills = kills;
        (one.uid.clone(), one.container.clone())
    };
    let message = "The kernel killed a process of the container that went over its memory limit";
    node.note_as(Severity::Warning, &told.0, Some(&told.1), "OOMKilling", message);
}
