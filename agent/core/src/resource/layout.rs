//! The CPUs of a machine as groups: cores, sockets, NUMA nodes and shared caches, ready for counting.

use alloc::vec::Vec;

use podkeep_hal::{
    cpu_set::{CpuId, CpuSet},
    numa_mask::{NodeId, NumaMask},
    topology::{Cpu, Topology},
};

/// One core, socket, node or cache group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number, unique among groups of its kind.
    pub id: u16,
    /// All its CPUs on this machine.
    pub cpus: CpuSet,
}

/// All online CPUs of a machine by group. Groups of each kind are in ascending order of their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuLayout {
    /// Every online CPU.
    pub all: CpuSet,
    /// Cores: CPUs that are threads of one core.
    pub cores: Vec<Group>,
    /// Packages.
    pub sockets: Vec<Group>,
    /// NUMA nodes that have CPUs.
    pub nodes: Vec<Group>,
    /// Groups that share a last-level cache.
    pub uncores: Vec<Group>,
}

impl CpuLayout {
    /// Groups the CPUs of `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self {
            all: topology.online(),
            cores: groups(topology, |cpu| cpu.core),
            sockets: groups(topology, |cpu| cpu.package),
            nodes: groups(topology, |cpu| u16::from(cpu.node)),
            uncores: groups(topology, |cpu| cpu.uncore),
        }
    }

    /// Threads a core has on average, rounded down: the kubelet's figure, also on machines with mixed cores. At least 1.
    #[must_use]
    pub fn cpus_per_core(&self) -> usize {
        average(self.all.len(), self.cores.len()).max(1)
    }

    /// CPUs a socket has on average, rounded down.
    #[must_use]
    pub fn cpus_per_socket(&self) -> usize {
        average(self.all.len(), self.sockets.len())
    }

    /// CPUs a cache group has on average, rounded down.
    #[must_use]
    pub fn cpus_per_uncore(&self) -> usize {
        average(self.all.len(), self.uncores.len())
    }

    /// Nodes that have CPUs.
    #[must_use]
    pub fn node_mask(&self) -> NumaMask {
        self.nodes.iter().filter_map(|node| NodeId::try_from(node.id).ok()).collect()
    }

    /// CPUs of the nodes in `mask`.
    #[must_use]
    pub fn cpus_in_nodes(&self, mask: NumaMask) -> CpuSet {
        self.nodes
            .iter()
            .filter(|node| NodeId::try_from(node.id).is_ok_and(|id| mask.contains(id)))
            .fold(CpuSet::EMPTY, |set, node| set.union(&node.cpus))
    }

    /// All CPUs of every socket that has a CPU in `cpus`.
    #[must_use]
    pub fn whole_sockets(&self, cpus: &CpuSet) -> CpuSet {
        whole(&self.sockets, cpus)
    }

    /// Number of sockets that have a CPU in `cpus`.
    #[must_use]
    pub fn sockets_touched(&self, cpus: &CpuSet) -> usize {
        self.sockets.iter().filter(|socket| !socket.cpus.is_disjoint(cpus)).count()
    }

    /// All CPUs of every core that has a CPU in `cpus`.
    #[must_use]
    pub fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        whole(&self.cores, cpus)
    }

    /// Nodes that have a CPU in `cpus`.
    #[must_use]
    pub fn nodes_of(&self, cpus: &CpuSet) -> NumaMask {
        self.nodes
            .iter()
            .filter(|node| !node.cpus.is_disjoint(cpus))
            .filter_map(|node| NodeId::try_from(node.id).ok())
            .collect()
    }
}

fn average(total: usize, groups: usize) -> usize {
    total.checked_div(groups).unwrap_or(0)
}

fn whole(groups: &[Group], cpus: &CpuSet) -> CpuSet {
    groups
        .iter()
        .filter(|group| !group.cpus.is_disjoint(cpus))
        .fold(CpuSet::EMPTY, |set, group| set.union(&group.cpus))
}

fn groups(topology: &Topology, key: impl Fn(&Cpu) -> CpuId) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for cpu in &topology.cpus {
        let id = key(cpu);
        match groups.binary_search_by_key(&id, |group| group.id) {
            Ok(at) => {
                if let Some(group) = groups.get_mut(at) {
                    group.cpus.insert(cpu.id);
                }
            }
            Err(at) => groups.insert(at, Group { id, cpus: CpuSet::only(cpu.id) }),
        }
    }
    groups
}
