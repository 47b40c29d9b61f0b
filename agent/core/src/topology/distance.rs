//! Distances between NUMA nodes, and the order of masks that decides between equal offers.

use alloc::{vec, vec::Vec};
use core::cmp::Ordering;

use podkeep_hal::{
    numa_mask::{NodeId, NumaMask},
    topology::Topology,
};

const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// Distances by node number; they may differ by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    rows: Vec<Vec<u32>>,
}

impl Distances {
    /// From rows indexed by node number.
    #[must_use]
    pub fn new(rows: Vec<Vec<u32>>) -> Self {
        Self { rows }
    }

    /// As the kernel tells them; 10 to itself and 20 to others where it tells none.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let size = topology.nodes.last().map_or(0, |node| usize::from(node.id).saturating_add(1));
        let mut rows = vec![Vec::new(); size];
        for from in &topology.nodes {
            let mut row = vec![REMOTE; size];
            for (at, to) in topology.nodes.iter().enumerate() {
                let assumed = if from.id == to.id { LOCAL } else { REMOTE };
                if let Some(slot) = row.get_mut(usize::from(to.id)) {
                    *slot = from.distances.get(at).copied().unwrap_or(assumed);
                }
            }
            if let Some(slot) = rows.get_mut(usize::from(from.id)) {
                *slot = row;
            }
        }
        Self { rows }
    }

    /// Distance from one node to another.
    #[must_use]
    pub fn between(&self, from: NodeId, to: NodeId) -> u32 {
        let told = self.rows.get(usize::from(from)).and_then(|row| row.get(usize::from(to))).copied();
        told.unwrap_or(if from == to { LOCAL } else { REMOTE })
    }

    /// Sum over all ordered pairs in the mask, each node with itself included; stops counting above `enough`.
    fn sum(&self, mask: NumaMask, enough: u64) -> u64 {
        let mut sum = 0u64;
        for from in mask.iter() {
            for to in mask.iter() {
                sum = sum.saturating_add(u64::from(self.between(from, to)));
            }
            if sum > enough {
                break;
            }
        }
        sum
    }

    /// Sum of distances of all ordered pairs, and the number of pairs: their quotient is the average distance.
    #[must_use]
    pub fn average(&self, mask: NumaMask) -> (u64, u64) {
        let nodes = u64::from(mask.count());
        (self.sum(mask, u64::MAX), nodes.saturating_mul(nodes))
    }

    /// Nodes by distance from `from`, nearest first, then by number.
    #[must_use]
    pub fn nearest(&self, from: NodeId, all: NumaMask) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = all.iter().collect();
        nodes.sort_by_key(|to| (*to != from, self.between(from, *to), *to));
        nodes
    }
}

/// Which of two masks is better: fewer nodes, then (if asked for) closer nodes, then the lower number.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaskRule<'a> {
    /// Compare distances (`prefer-closest-numa-nodes`).
    pub closest: Option<&'a Distances>,
}

impl MaskRule<'_> {
    /// Does `candidate` beat `current`?
    #[must_use]
    pub fn wins(&self, candidate: NumaMask, current: NumaMask) -> bool {
        match candidate.count().cmp(&current.count()) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.wins_same_size(candidate, current),
        }
    }

    fn wins_same_size(&self, candidate: NumaMask, current: NumaMask) -> bool {
        if candidate == current {
            return false;
        }
        let Some(distances) = self.closest else { return candidate < current };
        let reference = distances.sum(current, u64::MAX);
        match distances.sum(candidate, reference).cmp(&reference) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => candidate < current,
        }
    }
}
