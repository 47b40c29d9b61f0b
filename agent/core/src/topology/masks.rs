//! The node sets that resources are asked about.
//!
//! Up to [`super::merge::DENSE_NODES`] nodes: all of them, as the kubelet does. Above, where two to the nodes is too
//! many, a family of a few thousand: every single node and pair, the nearest neighbours of each node in every number,
//! every run of neighbouring numbers, all nodes, and whatever sets the resources name as their own narrowest.

use alloc::vec::Vec;
use core::cmp::Reverse;

use podkeep_hal::numa_mask::{NodeId, NumaMask};

use super::{distance::Distances, merge::DENSE_NODES};

/// Node sets by size, then in lexicographic order of their node lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskFamily {
    masks: Vec<NumaMask>,
    complete: bool,
}

impl MaskFamily {
    /// The family of a machine with the nodes `all`.
    #[must_use]
    pub fn new(all: NumaMask, distances: &Distances) -> Self {
        let nodes: Vec<NodeId> = all.iter().collect();
        let complete = nodes.len() <= DENSE_NODES;
        let masks = if complete { every(&nodes) } else { family(all, &nodes, distances) };
        let mut family = Self { masks, complete };
        family.order();
        family
    }

    /// Adds sets a resource names; all are known already on machines with few nodes.
    pub fn extend(&mut self, masks: impl IntoIterator<Item = NumaMask>) {
        if !self.complete {
            self.masks.extend(masks.into_iter().filter(|mask| !mask.is_empty()));
            self.order();
        }
    }

    /// The sets inside `nodes`, in order.
    pub fn inside(&self, nodes: NumaMask) -> impl Iterator<Item = NumaMask> + '_ {
        self.masks.iter().copied().filter(move |mask| mask.is_subset(nodes))
    }

    /// Are these all node sets there are?
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    fn order(&mut self) {
        // of two lists of equal length the lower one has the lowest node in which they differ
        self.masks.sort_unstable_by_key(|mask| (mask.count(), Reverse(mask.0.reverse_bits())));
        self.masks.dedup();
    }
}

fn every(nodes: &[NodeId]) -> Vec<NumaMask> {
    let chosen = |at: usize| {
        nodes.iter().enumerate().filter(move |(bit, _)| at >> bit & 1 == 1).map(|(_, node)| *node)
    };
    (1..1usize << nodes.len()).map(|at| chosen(at).collect()).collect()
}

fn family(all: NumaMask, nodes: &[NodeId], distances: &Distances) -> Vec<NumaMask> {
    let mut masks = alloc::vec![all];
    for (at, first) in nodes.iter().enumerate() {
        let rest = nodes.iter().skip(at);
        masks.extend(rest.clone().map(|second| NumaMask::only(*first).union(NumaMask::only(*second))));
        masks.extend(prefixes(rest.copied()));
        masks.extend(prefixes(distances.nearest(*first, all)));
    }
    masks
}

/// The first node, the first two, and so on.
pub fn prefixes(nodes: impl IntoIterator<Item = NodeId>) -> impl Iterator<Item = NumaMask> {
    nodes.into_iter().scan(NumaMask::EMPTY, |mask, node| {
        mask.insert(node);
        Some(*mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_of_few_nodes_is_complete_and_ordered() {
        let all: NumaMask = [0u8, 2, 5].into_iter().collect();
        let family = MaskFamily::new(all, &Distances::default());
        let lists: Vec<Vec<NodeId>> = family.inside(all).map(|mask| mask.iter().collect()).collect();
        assert_eq!(lists, [vec![0], vec![2], vec![5], vec![0, 2], vec![0, 5], vec![2, 5], vec![0, 2, 5]]);
        assert_eq!(family.inside(NumaMask(0b101)).count(), 3);
    }

    #[test]
    fn family_of_64_nodes_is_bounded() {
        let all = NumaMask(u64::MAX);
        let mut family = MaskFamily::new(all, &Distances::default());
        assert!(!family.is_complete());
        assert!(family.masks.len() < 9000, "{}", family.masks.len());
        assert!((0..64).all(|node| family.masks.contains(&NumaMask::only(node))));
        assert_eq!(family.masks.last(), Some(&all));
        let before = family.masks.len();
        family.extend([NumaMask(0b10101), NumaMask::EMPTY]);
        assert_eq!(family.masks.len(), before + 1);
    }

    use alloc::vec;
}
