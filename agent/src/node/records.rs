//! Writes the records that are due, one after the other, off the loop. A full disk delays them and stops nothing.

use std::rc::Rc;
use std::time::Duration;

use podkeep_hal::linux::store::Envelope;

use super::pods::{self, Uid};
use super::record::PodRecord;
use super::{Node, Turn};

/// A failed write is tried again after this long; only while something is due.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// A pod is at most as long as its manifest, and that is 10 MiB.
const RECORD_LIMIT: u64 = 16 << 20;
const ENVELOPE: Envelope = Envelope { magic: "podkeep-pod", version: 1, oldest: 1 };

/// Name of a pod's record in the store.
pub(super) fn key(uid: &str) -> String {
    format!("pod-{uid}")
}

/// Starts writing what is due, unless a writer is at it.
pub(super) fn flush(node: &Rc<Node>) {
    if node.flushing.get() || !node.pods.borrow().has_dirty() {
        return;
    }
    node.flushing.set(true);
    let executor = node.executor.clone();
    let node = node.clone();
    executor
        .spawn(async move {
            let failed = write_all(&node).await;
            node.flushing.set(false);
            if failed {
                async_io::Timer::after(TRY_AGAIN).await;
                // the queue is only full when the loop is about to look anyway
                node.turns.try_send(Turn::Flush).ok();
            }
        })
        .detach();
}

async fn write_all(node: &Rc<Node>) -> bool {
    let mut failed = Vec::new();
    loop {
        let due: Vec<Uid> = node.pods.borrow_mut().take_dirty();
        if due.is_empty() {
            break;
        }
        for uid in due {
            let Some(bytes) = bytes(node, &uid) else { continue };
            let (store, name) = (node.store.clone(), key(&uid));
            let done = crate::offload::run(move || store.put(&name, &bytes)).await;
            // it may have ended meanwhile
            if !node.pods.borrow().entries.contains_key(&uid) {
                node.forget_record(&uid);
            }
            if let Err(error) = done {
                log::warn!("cannot save the state of a pod: {error}");
                failed.push(uid);
            }
        }
    }
    let mut pods = node.pods.borrow_mut();
    for uid in &failed {
        pods.mark_dirty(uid);
    }
    !failed.is_empty()
}

fn bytes(node: &Rc<Node>, uid: &Uid) -> Option<Vec<u8>> {
    let content = serde_json::to_vec(&pods::record(node, uid)?).ok()?;
    Some(ENVELOPE.seal(&content))
}

/// A record of an earlier run; what is wrong with it in words.
pub(super) fn read(node: &Node, name: &str) -> Result<PodRecord, String> {
    let bytes = node.store.get(name, RECORD_LIMIT).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or("it is gone")?;
    let (_, content) = ENVELOPE.open(&bytes).map_err(|damage| damage.to_string())?;
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

/// The same at the end of the agent, on the spot.
pub(super) fn flush_now(node: &Rc<Node>) {
    let due = node.pods.borrow_mut().take_dirty();
    for uid in due {
        if let Some(bytes) = bytes(node, &uid)
            && let Err(error) = node.store.put(&key(&uid), &bytes)
        {
            log::warn!("cannot save the state of a pod: {error}");
        }
    }
}

impl Node {
    /// The pod is gone, and so is its record.
    pub fn forget_record(&self, uid: &Uid) {
        if let Err(error) = self.store.delete(&key(uid)) {
            log::warn!("record of a pod not removed: {error}");
        }
        self.stop_signals.borrow_mut().retain(|(owner, _), _| owner != uid);
    }
}
