//! The shape of the machine: CPUs, cores, packages, caches, NUMA nodes and their memory, as plain bounded values.
//!
//! Ids are those of the kernel where the kernel's are unique machine-wide, else the lowest CPU number of the group:
//! core and cluster numbers of the kernel repeat in each package.

use heapless::Vec;

use crate::{
    cpu_set::{CpuId, CpuSet, MAX_CPUS},
    error::HalError,
    numa_mask::{MAX_NODES, NodeId, NumaMask},
};

/// Huge page sizes a node can have (x86 has two, arm64 with 4 KiB pages four).
pub const MAX_HUGE_SIZES: usize = 8;

/// Capacity of the strongest CPU, in the kernel's `cpu_capacity` unit.
pub const FULL_CAPACITY: u16 = 1024;

/// One online CPU and the groups it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Kernel number.
    pub id: CpuId,
    /// Lowest CPU number of its core.
    pub core: CpuId,
    /// Lowest CPU number of its cluster (CPUs that share what lies between core and package); the core if none is told.
    pub cluster: CpuId,
    /// Package (socket) number; 0 where the kernel tells none.
    pub package: u16,
    /// NUMA node; 0 where the kernel has no node folder.
    pub node: NodeId,
    /// Lowest CPU number of those that share its second-level cache; the core if none is told.
    pub l2: CpuId,
    /// Id of the last-level ("uncore") cache group: the cache's id where the kernel tells one, else the lowest CPU
    /// number that shares it; the package where there is no third level.
    pub uncore: u16,
    /// Lowest CPU number of those that share its outermost cache; the core if none is told.
    pub last_cache: CpuId,
    /// Level of that cache; 0 if none is told.
    pub last_level: u8,
    /// Computing power relative to the strongest CPU, 1 to [`FULL_CAPACITY`]; big.LITTLE boards differ.
    pub capacity: u16,
}

impl Cpu {
    /// A CPU that is a core, a cluster and a package of its own, without caches, on node 0.
    #[must_use]
    pub const fn alone(id: CpuId) -> Self {
        Self {
            id,
            core: id,
            cluster: id,
            package: 0,
            node: 0,
            l2: id,
            uncore: 0,
            last_cache: id,
            last_level: 0,
            capacity: FULL_CAPACITY,
        }
    }
}

/// Huge pages of one size on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages set aside.
    pub pages: u64,
    /// Pages not in use now.
    pub free: u64,
}

impl HugePool {
    /// Bytes of all its pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.pages)
    }
}

/// One NUMA node; a node may have no CPU, or no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Kernel number.
    pub id: NodeId,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// Memory in bytes, huge pages included.
    pub memory_bytes: u64,
    /// Huge pages by size, ascending.
    pub huge: Vec<HugePool, MAX_HUGE_SIZES>,
    /// Distance to each node, by position in [`Topology::nodes`]; 10 is the node itself. Empty if the kernel tells none.
    pub distances: Vec<u32, MAX_NODES>,
}

/// The machine as far as placement of work goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Online CPUs, ascending.
    pub cpus: Vec<Cpu, MAX_CPUS>,
    /// Nodes, ascending; at least one.
    pub nodes: Vec<Node, MAX_NODES>,
    /// CPUs that exist but are switched off.
    pub offline: CpuSet,
    /// CPUs the kernel keeps its scheduler away from (`isolcpus=`).
    pub isolated: CpuSet,
    /// Nodes list CPUs of each other: emulated nodes that say nothing about where memory is. See
    /// [`Topology::for_placement`].
    pub nodes_overlap: bool,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            cpus: Vec::new(),
            nodes: Vec::new(),
            offline: CpuSet::EMPTY,
            isolated: CpuSet::EMPTY,
            nodes_overlap: false,
        }
    }
}

impl Topology {
    /// Online CPUs.
    #[must_use]
    pub fn online(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// The CPU with this number, if online.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().and_then(|at| self.cpus.get(at))
    }

    /// The node with this number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// All nodes.
    #[must_use]
    pub fn node_mask(&self) -> NumaMask {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// CPUs of all nodes in `mask`.
    #[must_use]
    pub fn cpus_of(&self, mask: NumaMask) -> CpuSet {
        self.nodes
            .iter()
            .filter(|node| mask.contains(node.id))
            .fold(CpuSet::EMPTY, |set, node| set.union(&node.cpus))
    }

    /// Memory of all nodes, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, node| node.memory_bytes.saturating_add(sum))
    }

    /// The topology to place work by: emulated nodes that overlap count as one node with all their memory, because
    /// choosing among them means nothing.
    #[must_use]
    pub fn for_placement(&self) -> Self {
        let mut topology = self.clone();
        if !self.nodes_overlap {
            return topology;
        }
        let mut nodes = topology.nodes.iter();
        let Some(mut one) = nodes.next().cloned() else { return topology };
        for node in nodes {
            one.cpus = one.cpus.union(&node.cpus);
            one.memory_bytes = one.memory_bytes.saturating_add(node.memory_bytes);
            for pool in &node.huge {
                match one.huge.iter_mut().find(|known| known.page_bytes == pool.page_bytes) {
                    Some(known) => {
                        known.pages = known.pages.saturating_add(pool.pages);
                        known.free = known.free.saturating_add(pool.free);
                    }
                    // as many sizes as on any node: it fits
                    None => drop(one.huge.push(*pool)),
                }
            }
        }
        one.distances.clear();
        topology.cpus.iter_mut().for_each(|cpu| cpu.node = one.id);
        topology.nodes.clear();
        topology.nodes_overlap = false;
        drop(topology.nodes.push(one));
        topology
    }

    /// CPUs grouped by what `key` says, in the order of the lowest CPU.
    pub fn groups<'a>(&'a self, key: impl Fn(&Cpu) -> u16 + 'a) -> impl Iterator<Item = CpuSet> + 'a {
        let mut seen = CpuSet::EMPTY;
        self.cpus.iter().filter_map(move |first| {
            if seen.contains(first.id) {
                return None;
            }
            let group: CpuSet =
                self.cpus.iter().filter(|cpu| key(cpu) == key(first)).map(|cpu| cpu.id).collect();
            seen = seen.union(&group);
            Some(group)
        })
    }

    /// Proves what the rest of the program relies on.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), HalError> {
        let broken = |rule, id: u16| Err(HalError::Inconsistent { rule, id: u32::from(id) });
        if self.cpus.is_empty() {
            return broken("a machine has at least one online CPU", 0);
        }
        if self.nodes.is_empty() {
            return broken("a machine has at least one memory node", 0);
        }
        let mut above: Option<CpuId> = None;
        for cpu in &self.cpus {
            if above.is_some_and(|below| below >= cpu.id) {
                return broken("CPUs are in ascending order and occur once", cpu.id);
            }
            above = Some(cpu.id);
            if !self.node(cpu.node).is_some_and(|node| node.cpus.contains(cpu.id)) {
                return broken("a CPU belongs to the node that lists it", cpu.id);
            }
        }
        let online = self.online();
        if !online.is_disjoint(&self.offline) {
            return broken(
                "a CPU is online or offline, not both",
                online.intersection(&self.offline).first().unwrap_or(0),
            );
        }
        let mut listed = CpuSet::EMPTY;
        for node in &self.nodes {
            if !self.nodes_overlap && !node.cpus.is_disjoint(&listed) {
                return broken("a CPU belongs to one node", u16::from(node.id));
            }
            listed = listed.union(&node.cpus);
            if !node.distances.is_empty() && node.distances.len() != self.nodes.len() {
                return broken("a node tells the distance to every node or to none", u16::from(node.id));
            }
        }
        if listed == online { Ok(()) } else { broken("nodes list the online CPUs", 0) }
    }
}

/// Reads the `distance` line of a node: whole numbers, one for each node, in the order of the nodes.
#[must_use]
pub fn parse_distances(line: &str) -> Option<Vec<u32, MAX_NODES>> {
    let mut distances = Vec::new();
    for word in line.split_ascii_whitespace() {
        let distance = word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()?;
        distances.push(distance).ok()?;
    }
    Some(distances)
}

/// Builds a [`Topology`] from its parts: the simulated machine and tests start here.
#[derive(Debug, Default)]
pub struct Builder {
    topology: Topology,
}

impl Builder {
    /// A machine without CPUs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node without CPUs; known nodes stay as they are.
    ///
    /// # Errors
    /// Too many nodes.
    pub fn node(&mut self, id: NodeId, memory_bytes: u64) -> Result<&mut Node, HalError> {
        if usize::from(id) >= MAX_NODES {
            return Err(HalError::Limit { what: "NUMA nodes", limit: MAX_NODES });
        }
        let nodes = &mut self.topology.nodes;
        let at = match nodes.binary_search_by_key(&id, |node| node.id) {
            Ok(at) => at,
            Err(at) => {
                let node =
                    Node { id, cpus: CpuSet::EMPTY, memory_bytes, huge: Vec::new(), distances: Vec::new() };
                if nodes.insert(at, node).is_err() {
                    return Err(HalError::Limit { what: "NUMA nodes", limit: MAX_NODES });
                }
                at
            }
        };
        nodes.get_mut(at).ok_or(HalError::Limit { what: "NUMA nodes", limit: MAX_NODES })
    }

    /// Adds a CPU, and its node if that is new.
    ///
    /// # Errors
    /// Too many CPUs or nodes.
    pub fn cpu(&mut self, cpu: Cpu) -> Result<(), HalError> {
        const LIMIT: HalError = HalError::Limit { what: "CPUs", limit: MAX_CPUS };
        if usize::from(cpu.id) >= MAX_CPUS {
            return Err(LIMIT);
        }
        let at = match self.topology.cpus.binary_search_by_key(&cpu.id, |known| known.id) {
            Ok(_) => return Ok(()),
            Err(at) => at,
        };
        self.topology.cpus.insert(at, cpu).map_err(|_| LIMIT)?;
        self.node(cpu.node, 0)?.cpus.insert(cpu.id);
        Ok(())
    }

    /// Says that nodes list CPUs of each other.
    pub fn nodes_overlap(&mut self) {
        self.topology.nodes_overlap = true;
    }

    /// Sets the CPUs that are switched off and those kept from the scheduler.
    pub fn states(&mut self, offline: CpuSet, isolated: CpuSet) {
        self.topology.offline = offline;
        self.topology.isolated = isolated;
    }

    /// Proves the parts fit together.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn finish(self) -> Result<Topology, HalError> {
        self.topology.check()?;
        Ok(self.topology)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec as StdVec;

    use super::*;

    pub(crate) fn cpu(id: u16, core: u16, package: u16, node: u8) -> Cpu {
        Cpu { core, package, node, ..Cpu::alone(id) }
    }

    #[test]
    fn builder_makes_groups_and_nodes() {
        let mut builder = Builder::new();
        for id in 0..8u16 {
            builder.cpu(cpu(id, id % 4, (id % 4) / 2, u8::try_from((id % 4) / 2).unwrap())).unwrap();
        }
        builder.node(5, 1 << 30).unwrap();
        let topology = builder.finish().unwrap();
        assert_eq!(topology.online(), CpuSet::range(0, 7));
        assert_eq!(topology.node_mask().iter().collect::<StdVec<_>>(), [0, 1, 5]);
        assert_eq!(topology.cpus_of(NumaMask::only(1)), CpuSet::parse("2-3,6-7").unwrap());
        let cores: StdVec<CpuSet> = topology.groups(|cpu| cpu.core).collect();
        assert_eq!(cores.len(), 4);
        assert_eq!(cores[1], CpuSet::parse("1,5").unwrap());
    }

    #[test]
    fn check_finds_cpu_in_two_states() {
        let mut builder = Builder::new();
        builder.cpu(cpu(3, 3, 0, 0)).unwrap();
        builder.states(CpuSet::only(3), CpuSet::EMPTY);
        assert!(matches!(builder.finish(), Err(HalError::Inconsistent { id: 3, .. })));
        assert!(Builder::new().finish().is_err());
    }
}
