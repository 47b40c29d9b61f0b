//! Sets of NUMA nodes in one 64-bit word.

use core::fmt;

/// NUMA nodes a mask can hold: numbers 0 to 63.
pub const MAX_NODES: usize = 64;

/// A NUMA node number, 0 to 63.
pub type NodeId = u8;

/// A set of NUMA nodes; bit *n* stands for node *n*. The order of masks is the order of these numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(pub u64);

impl NumaMask {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// The mask of one node; empty if the number is too large.
    #[must_use]
    pub fn only(node: NodeId) -> Self {
        Self(1u64.checked_shl(u32::from(node)).unwrap_or(0))
    }

    /// Adds a node; numbers from 64 on are ignored.
    pub fn insert(&mut self, node: NodeId) {
        self.0 |= Self::only(node).0;
    }

    /// Is this node in the mask?
    #[must_use]
    pub fn contains(self, node: NodeId) -> bool {
        self.0 & Self::only(node).0 != 0
    }

    /// Number of nodes.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// No nodes?
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Lowest node.
    #[must_use]
    pub fn first(self) -> Option<NodeId> {
        self.iter().next()
    }

    /// Are all nodes of this mask in `other`?
    #[must_use]
    pub fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Nodes of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Nodes of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Nodes, ascending.
    #[must_use]
    pub fn iter(self) -> NodeIter {
        NodeIter(self.0)
    }
}

/// Nodes of a [`NumaMask`], ascending.
#[derive(Clone, Debug)]
pub struct NodeIter(u64);

impl Iterator for NodeIter {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        if self.0 == 0 {
            return None;
        }
        let node = NodeId::try_from(self.0.trailing_zeros()).ok();
        self.0 &= self.0.wrapping_sub(1);
        node
    }
}

impl FromIterator<NodeId> for NumaMask {
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        let mut mask = Self::EMPTY;
        for node in nodes {
            mask.insert(node);
        }
        mask
    }
}

/// Same list text as CPU sets: `0-1,3`, as `cpuset.mems` takes it.
impl fmt::Display for NumaMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: crate::cpu_set::CpuSet = self.iter().map(u16::from).collect();
        fmt::Display::fmt(&set, f)
    }
}

impl fmt::Debug for NumaMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use std::{string::ToString, vec::Vec};

    use super::*;

    #[test]
    fn mask_holds_node_63_and_ignores_64() {
        let mask: NumaMask = [0u8, 63, 64, 255].into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 63]);
        assert_eq!(mask.to_string(), "0,63");
        assert_eq!(mask.count(), 2);
        assert!(!mask.contains(64));
    }
}
