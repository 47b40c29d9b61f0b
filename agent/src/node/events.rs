//! Events in a bounded ring: what happened to whom, how often, and when last. Repeats are counted, not stored.

use std::collections::VecDeque;

use crate::api::{EventRecord, PodFilter};

/// Events kept at the most; the oldest go first.
const CAPACITY: usize = 512;

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// The ring.
#[derive(Debug, Default)]
pub struct EventRing {
    records: VecDeque<EventRecord>,
}

/// Whom an event is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub container: Option<&'a str>,
}

impl EventRing {
    /// Notes an event; the same one again raises its count and moves it to the end.
    pub fn note(&mut self, severity: Severity, subject: Subject<'_>, reason: &str, message: &str, wall: i64) {
        let kind = match severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let same = |record: &EventRecord| {
            record.reason == reason
                && record.message == message
                && record.pod == subject.pod
                && record.namespace == subject.namespace
                && record.container.as_deref() == subject.container
        };
        let mut record = match self.records.iter().position(same).and_then(|at| self.records.remove(at)) {
            Some(known) => known,
            None => EventRecord {
                kind: kind.to_owned(),
                reason: reason.to_owned(),
                message: message.to_owned(),
                namespace: subject.namespace.to_owned(),
                pod: subject.pod.to_owned(),
                container: subject.container.map(str::to_owned),
                count: 0,
                first: wall,
                last: wall,
            },
        };
        record.count = record.count.saturating_add(1);
        record.last = wall;
        self.records.push_back(record);
        if self.records.len() > CAPACITY {
            self.records.pop_front();
        }
    }

    /// Those of the pods that are meant, oldest first.
    #[must_use]
    pub fn list(&self, filter: &PodFilter, node: &str) -> Vec<EventRecord> {
        self.records
            .iter()
            .filter(|record| matches(filter, &record.namespace, &record.pod, node))
            .cloned()
            .collect()
    }
}

/// Whether a pod is meant; its name may be given without the node's name at the end.
#[must_use]
pub fn matches(filter: &PodFilter, namespace: &str, pod: &str, node: &str) -> bool {
    filter.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
        && filter.name.as_deref().is_none_or(|wanted| {
            wanted == pod || pod.strip_suffix(node).and_then(|name| name.strip_suffix('-')) == Some(wanted)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(pod: &str) -> Subject<'_> {
        Subject { namespace: "default", pod, container: None }
    }

    #[test]
    fn repeats_are_counted_and_the_ring_is_bounded() {
        let mut ring = EventRing::default();
        for turn in 0..3 {
            ring.note(Severity::Warning, subject("a"), "BackOff", "again", turn);
        }
        for turn in 0..600 {
            ring.note(Severity::Normal, subject("b"), "Started", &format!("{turn}"), turn);
        }
        let all = ring.list(&PodFilter::default(), "n");
        assert_eq!(all.len(), CAPACITY);
        ring.note(Severity::Warning, subject("a"), "BackOff", "again", 7);
        ring.note(Severity::Warning, subject("a"), "BackOff", "again", 9);
        let own = ring.list(&PodFilter { name: Some("a".into()), namespace: None }, "n");
        assert_eq!(own.iter().map(|event| (event.count, event.last)).collect::<Vec<_>>(), [(2, 9)]);
    }

    #[test]
    fn a_pod_may_be_named_without_its_node() {
        let filter = PodFilter { name: Some("web".into()), namespace: None };
        assert!(matches(&filter, "default", "web-board1", "board1"));
        assert!(matches(&filter, "default", "web", "board1"));
        assert!(!matches(&filter, "default", "web-2-board1", "board1"));
    }
}
