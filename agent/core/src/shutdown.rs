//! Shutdown of the node: groups of pods by priority, lowest first, each with its own time.
use alloc::{vec, vec::Vec};

/// The priority from which on a pod is critical.
pub const CRITICAL: i32 = 2_000_000_000;

/// One group: pods from this priority on, and the time they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The lowest priority of the group.
    pub priority: i32,
    /// Whole seconds.
    pub seconds: i64,
}

const NANOS: i64 = 1_000_000_000;

/// The groups of the settings, lowest first; none if shutdown is not handled. `total` and `critical` are
/// `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods` in nanoseconds; `by_priority` replaces both if it is
/// not empty.
pub fn groups(total: i64, critical: i64, by_priority: &[Group]) -> Vec<Group> {
    if !by_priority.is_empty() {
        let mut groups = by_priority.to_vec();
        groups.sort_by_key(|g| g.priority);
        return groups;
    }
    if total <= 0 || critical < 0 || critical > total {
        return Vec::new();
    }
    vec![
        Group { priority: 0, seconds: total.saturating_sub(critical) / NANOS },
        Group { priority: CRITICAL, seconds: critical / NANOS },
    ]
}

/// How long the node must wait for us, in seconds.
pub fn inhibit_seconds(groups: &[Group]) -> i64 {
    groups.iter().map(|g| g.seconds).fold(0, i64::saturating_add)
}

/// Which group a pod belongs to: the highest one that begins at or below its priority, else the lowest. A pod without
/// a number has priority 0.
pub fn group_of(groups: &[Group], priority: Option<i32>) -> usize {
    let priority = priority.unwrap_or(0);
    let first_at_or_above = groups.partition_point(|g| g.priority < priority);
    match groups.get(first_at_or_above) {
        Some(g) if g.priority == priority => first_at_or_above,
        _ => first_at_or_above.saturating_sub(1),
    }
}

/// The grace a pod gets, in seconds: its own, but not more than its group has.
pub fn grace_seconds(own: Option<i64>, group: Group) -> i64 {
    own.map_or(group.seconds, |own| own.min(group.seconds)).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pod_never_gets_more_than_its_group() {
        let group = Group { priority: 0, seconds: 10 };
        assert_eq!(grace_seconds(Some(30), group), 10);
        assert_eq!(grace_seconds(Some(3), group), 3);
        assert_eq!(grace_seconds(None, group), 10);
    }

    proptest! {
        #[test]
        fn the_group_is_the_highest_at_or_below(mut list in prop::collection::btree_set(-50i32..50, 1..6), p in -60i32..60) {
            let groups: Vec<Group> = core::mem::take(&mut list).into_iter().map(|priority| Group { priority, seconds: 1 }).collect();
            let at = group_of(&groups, Some(p));
            let below: Vec<usize> = (0..groups.len()).filter(|i| groups[*i].priority <= p).collect();
            prop_assert_eq!(at, below.last().copied().unwrap_or(0));
        }
    }
}
