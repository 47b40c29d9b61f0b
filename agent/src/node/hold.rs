//! Pods that may not run yet because another pod has a port of the host they ask for. The one that was there first
//! keeps it; the other waits, says for whom, and starts when that one is gone.

use std::rc::Rc;

use podkeep_core::host_ports::{HostPort, conflict, host_ports};
use podkeep_core::lifecycle::pod::Stage;

use super::Node;
use super::pods::{Entry, Pods, Uid, full_name, turn};

/// Reason word of a pod that waits.
pub const REASON: &str = "HostPortConflict";

/// Holds a new pod back if it must wait. While the pods of the last run are taken in nobody is held: [`sort`] follows.
pub fn check_new(node: &Rc<Node>, entry: &mut Entry) {
    let pods = node.pods.borrow();
    if !pods.frozen {
        entry.held = reason(&pods, entry);
    }
}

/// Decides among all pods at once who waits: first those that have something running, then by name.
pub fn sort(node: &Rc<Node>) {
    let order = {
        let mut pods = node.pods.borrow_mut();
        let mut order: Vec<(bool, String, Uid)> = Vec::new();
        for entry in pods.entries.values_mut().filter(|entry| !host_ports(&entry.pod).is_empty()) {
            let runs = entry.runtime.containers.iter().any(|container| container.running().is_some());
            order.push((!runs, full_name(&entry.pod), entry.uid.clone()));
            // held until its turn in the order comes
            entry.held = Some((REASON.to_owned(), String::new()));
        }
        order.sort();
        order
    };
    for (.., uid) in order {
        decide(node, &uid);
    }
}

/// A pod is gone or another one now: those that wait look again.
pub fn recheck(node: &Rc<Node>) {
    let waiting: Vec<Uid> = {
        let pods = node.pods.borrow();
        let mut waiting: Vec<(String, Uid)> = pods
            .entries
            .values()
            .filter(|entry| is_waiting(entry))
            .map(|entry| (full_name(&entry.pod), entry.uid.clone()))
            .collect();
        waiting.sort();
        waiting.into_iter().map(|(_, uid)| uid).collect()
    };
    for uid in waiting {
        if decide(node, &uid) {
            turn(node, &uid, None);
        }
    }
}

fn is_waiting(entry: &Entry) -> bool {
    entry.held.as_ref().is_some_and(|(reason, _)| reason == REASON)
}

/// True when the pod need not wait any more.
fn decide(node: &Rc<Node>, uid: &Uid) -> bool {
    let mut pods = node.pods.borrow_mut();
    let reason = pods.entries.get(uid).and_then(|entry| reason(&pods, entry));
    let Some(entry) = pods.entries.get_mut(uid) else { return false };
    entry.held = reason;
    entry.held.is_none()
}

/// Who has a port this pod asks for.
fn reason(pods: &Pods, entry: &Entry) -> Option<(String, String)> {
    let wanted = host_ports(&entry.pod);
    if wanted.is_empty() {
        return None;
    }
    let others = pods.entries.values().filter(|other| other.uid != entry.uid && has_its_ports(other));
    let (port, other): (HostPort, String) = others
        .filter_map(|other| {
            let port = conflict(&wanted, &host_ports(&other.pod))?;
            Some((port.clone(), full_name(&other.pod)))
        })
        .min_by(|a, b| a.1.cmp(&b.1))?;
    let message = format!("host port {port} belongs to pod {other}; this pod starts when that one is gone");
    Some((REASON.to_owned(), message))
}

/// Not those that wait themselves, nor those that have ended for good.
fn has_its_ports(entry: &Entry) -> bool {
    !is_waiting(entry) && !matches!(entry.runtime.stage, Stage::Done { .. } | Stage::Gone)
}
