//! What the CPU manager offers: node sets with enough CPUs for a container or a pod.
//!
//! "Preferred" is measured against what the machine has, not what is free: on a busy machine the only offer may be a wide
//! one and still not preferred, so that a strict policy waits for a better moment.

use alloc::vec::Vec;

use podkeep_hal::{
    cpu_set::CpuSet,
    numa_mask::{NodeId, NumaMask},
};

use super::{
    cpu::StaticCpu,
    layout::Group,
    request::{ContainerRequest, PodRequest},
};
use crate::topology::{
    hint::{Hint, Offer},
    masks::{MaskFamily, prefixes},
};

impl StaticCpu {
    /// Offer for one container; none if it shares.
    #[must_use]
    pub fn hints(&self, pod: &PodRequest, container: &ContainerRequest, family: &MaskFamily) -> Offer {
        let requested = pod.exclusive_cpus(container);
        if requested == 0 {
            return None;
        }
        Some(match self.state().assigned(&pod.uid, &container.name) {
            Some(known) if known.len() != requested => Vec::new(),
            Some(known) => self.generate(&known, &CpuSet::EMPTY, requested, family),
            None => self.generate(&self.available(), &self.reusable(&pod.uid), requested, family),
        })
    }

    /// Offer for a whole pod; none if it shares.
    #[must_use]
    pub fn pod_hints(&self, pod: &PodRequest, family: &MaskFamily) -> Offer {
        let requested = pod.exclusive_cpus_of_pod();
        if requested == 0 {
            return None;
        }
        let mut assigned = CpuSet::EMPTY;
        for container in &pod.containers {
            let own = pod.exclusive_cpus(container);
            if let Some(known) = self.state().assigned(&pod.uid, &container.name).filter(|_| own > 0) {
                if known.len() != own {
                    return Some(Vec::new());
                }
                assigned = assigned.union(&known);
            }
        }
        Some(if assigned.len() == requested {
            self.generate(&assigned, &CpuSet::EMPTY, requested, family)
        } else {
            let reusable = self.reusable(&pod.uid).union(&assigned);
            self.generate(&self.available(), &reusable, requested, family)
        })
    }

    /// Offer for the CPUs of a pod as a whole ([`StaticCpu::allocate_pod`]).
    #[must_use]
    pub fn bubble_hints(&self, pod: &PodRequest, requested: usize, family: &MaskFamily) -> Vec<Hint> {
        match self.state().pods.get(&pod.uid) {
            Some(known) if known.len() != requested => Vec::new(),
            Some(known) => self.generate(known, &CpuSet::EMPTY, requested, family),
            None => self.generate(&self.available(), &CpuSet::EMPTY, requested, family),
        }
    }

    /// Node sets worth asking about on machines where not all can be: the nodes with most CPUs available, in every number.
    #[must_use]
    pub fn roomiest(&self) -> Vec<NumaMask> {
        let available = self.available();
        let mut nodes: Vec<(usize, NodeId)> = self
            .layout()
            .nodes
            .iter()
            .filter_map(|node| Some((node.cpus.count_common(&available), NodeId::try_from(node.id).ok()?)))
            .collect();
        nodes.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        prefixes(nodes.into_iter().map(|(_, node)| node)).collect()
    }

    fn generate(
        &self,
        available: &CpuSet,
        reusable: &CpuSet,
        requested: usize,
        family: &MaskFamily,
    ) -> Vec<Hint> {
        let layout = self.layout();
        let usable = available.union(reusable);
        let total = NodeCounts::new(&layout.nodes, &layout.all);
        let usable = NodeCounts::new(&layout.nodes, &usable);
        let reused = NodeCounts::new(&layout.nodes, reusable);
        let all = layout.node_mask();
        let narrowest = total.narrowest(requested).unwrap_or(all.count());
        let sockets = self.preferred_sockets(narrowest);
        family
            .inside(all)
            .filter(|mask| reused.inside(*mask) == reused.inside(all) && usable.inside(*mask) >= requested)
            .map(|mask| {
                let narrow = mask.count() == narrowest;
                let aligned = || layout.sockets_touched(&layout.cpus_in_nodes(mask));
                Hint::new(mask, narrow || sockets.is_some_and(|sockets| aligned() == sockets))
            })
            .collect()
    }

    /// `align-by-socket`: sockets the narrowest node set fills, if a socket has whole nodes.
    fn preferred_sockets(&self, narrowest: u32) -> Option<usize> {
        let layout = self.layout();
        if !self.options().align_by_socket {
            return None;
        }
        let per_socket = layout.nodes.len().checked_div(layout.sockets.len()).filter(|nodes| *nodes > 0)?;
        Some((narrowest as usize).div_ceil(per_socket))
    }
}

/// CPUs of a set by node, so that a mask costs a sum and not a walk over CPUs.
struct NodeCounts {
    by_node: [u32; 64],
}

impl NodeCounts {
    fn new(nodes: &[Group], cpus: &CpuSet) -> Self {
        let mut by_node = [0u32; 64];
        for node in nodes {
            if let Some(slot) = by_node.get_mut(usize::from(node.id)) {
                *slot = u32::try_from(node.cpus.count_common(cpus)).unwrap_or(u32::MAX);
            }
        }
        Self { by_node }
    }

    fn inside(&self, mask: NumaMask) -> usize {
        mask.iter().map(|node| self.by_node.get(usize::from(node)).copied().unwrap_or(0) as usize).sum()
    }

    /// Fewest nodes that hold so many CPUs.
    fn narrowest(&self, requested: usize) -> Option<u32> {
        let mut counts = self.by_node;
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0usize;
        counts.iter().zip(1u32..).find_map(|(count, nodes)| {
            sum = sum.saturating_add(*count as usize);
            (sum >= requested && *count > 0).then_some(nodes)
        })
    }
}
