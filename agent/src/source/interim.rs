//! Interim until its owner lands the real one: replace this file wholly, and adapt the callers in agent/src/node (grep) where the signature differs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use podkeep_core::desired::Object;
use podkeep_core::types::Pod;
use smol::channel::Sender;

use crate::api::SourceStatus;
use crate::node::pods::{Wanted, full_name, reconcile};
use crate::node::{Node, Turn};

#[derive(Debug)]
pub struct SourceUpdate;

#[derive(Debug)]
pub struct Running {
    dir: Option<PathBuf>,
    last: BTreeMap<String, Wanted>,
    first: bool,
}

fn fnv(text: &str) -> u128 {
    let mut hash: u128 = 0x6c62272e07bb014262b821756295c58d;
    for byte in text.bytes() {
        hash ^= u128::from(byte);
        hash = hash.wrapping_mul(0x0000000001000000000000000000013b);
    }
    hash
}

fn identify(node: &Node, mut pod: Pod, path: &str) -> Pod {
    podkeep_core::defaults::pod(&mut pod);
    if pod.metadata.uid.is_empty() {
        let text = serde_json::to_string(&pod).unwrap_or_default();
        pod.metadata.uid = format!("{:032x}", fnv(&format!("{text}{path}{}", node.settings.node_name)));
    }
    pod.metadata.name = format!("{}-{}", pod.metadata.name, node.settings.node_name);
    if pod.metadata.namespace.is_empty() {
        pod.metadata.namespace = "default".into();
    }
    pod.spec.node_name = node.settings.node_name.clone();
    pod
}

impl Running {
    pub fn take(&mut self, node: &Rc<Node>, _update: SourceUpdate) {
        let Some(dir) = &self.dir else { return };
        let mut wanted = BTreeMap::new();
        let mut statuses = Vec::new();
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(dir).map(|list| list.flatten().map(|e| e.path()).collect()).unwrap_or_default();
        files.sort();
        for file in
            files.iter().filter(|f| f.extension().is_some_and(|e| e == "yaml" || e == "json" || e == "yml"))
        {
            let shown = file.display().to_string();
            let Ok(text) = std::fs::read(file) else { continue };
            let decoded = super::decode::decode_file(&text, &shown);
            let mut status = SourceStatus { path: shown.clone(), ..SourceStatus::default() };
            status.errors = decoded.errors.iter().map(ToString::to_string).collect();
            status.warnings = decoded.warnings.iter().map(ToString::to_string).collect();
            if !decoded.errors.is_empty() {
                for (name, want) in self.last.iter().filter(|(_, want)| *want.source == *shown) {
                    wanted.insert(name.clone(), want.clone());
                }
            }
            for placed in decoded.objects {
                if let Object::Pod(pod) = placed.object {
                    let pod = identify(node, *pod, &shown);
                    status.pods.push(full_name(&pod));
                    wanted
                        .insert(full_name(&pod), Wanted { pod: Rc::new(pod), source: shown.as_str().into() });
                }
            }
            statuses.push(status);
        }
        node.sources.replace(statuses);
        self.last = wanted.clone();
        if self.first {
            self.first = false;
            crate::node::pods::thaw(node);
        }
        reconcile(node, &wanted, &|_| true);
    }

    pub fn rescan(&mut self) {}
}

pub fn start(node: &Rc<Node>, turns: &Sender<Turn>) -> Result<Running, String> {
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    let dir = node.settings.manifests.clone();
    if let Some(dir) = dir.clone() {
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(|e| e.to_string())?;
        let flags = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVE | AddWatchFlags::IN_DELETE;
        inotify.add_watch(&dir, flags).map_err(|e| e.to_string())?;
        let turns = turns.clone();
        node.executor
            .spawn(async move {
                turns.send(Turn::Source(SourceUpdate)).await.ok();
                let Ok(watch) = async_io::Async::new_nonblocking(inotify) else { return };
                loop {
                    let read = watch.read_with(|i| i.read_events().map_err(Into::into)).await;
                    if read.is_err() || turns.send(Turn::Source(SourceUpdate)).await.is_err() {
                        return;
                    }
                }
            })
            .detach();
    }
    Ok(Running { dir, last: BTreeMap::new(), first: true })
}

pub mod hold {
    pub fn recheck(_node: &std::rc::Rc<crate::node::Node>) {}
}
