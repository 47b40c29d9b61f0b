//! Memory and huge pages of each NUMA node: what there is, what is kept for the system, what containers hold.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::fmt;

use podkeep_hal::{
    numa_mask::{NodeId, NumaMask},
    topology::Topology,
};

/// Name of ordinary memory among the types.
pub const MEMORY: &str = "memory";

/// Name of huge pages of a size: `hugepages-2Mi`.
#[must_use]
pub fn huge_name(page_bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut amount, mut unit) = (page_bytes, 0usize);
    while amount >= 1024 && amount.is_multiple_of(1024) && unit < 6 {
        amount /= 1024;
        unit = unit.saturating_add(1);
    }
    format!("hugepages-{amount}{}", UNITS.get(unit).copied().unwrap_or_default())
}

/// Bytes of one type on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    /// All there is.
    pub total: u64,
    /// Kept for the system.
    pub system_reserved: u64,
    /// What containers may hold.
    pub allocatable: u64,
    /// What containers hold.
    pub reserved: u64,
    /// What is left of the allocatable.
    pub free: u64,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Blocks that use this node: one for each type of each container.
    pub assignments: u64,
    /// By type: `memory` and each huge page size.
    pub tables: BTreeMap<String, MemoryTable>,
    /// The group of nodes this one is used with; itself alone if it is used alone or not at all.
    pub cells: Vec<NodeId>,
}

impl NodeMemory {
    pub(super) fn take(&mut self, kind: &str, wanted: u64) -> u64 {
        let Some(table) = self.tables.get_mut(kind) else { return 0 };
        let taken = table.free.min(wanted);
        table.free = table.free.saturating_sub(taken);
        table.reserved = table.reserved.saturating_add(taken);
        taken
    }

    pub(super) fn give_back(&mut self, kind: &str, wanted: u64) -> u64 {
        let Some(table) = self.tables.get_mut(kind) else { return 0 };
        let given = table.reserved.min(wanted);
        table.reserved = table.reserved.saturating_sub(given);
        table.free = table.free.saturating_add(given);
        given
    }
}

/// All nodes.
pub type MachineMemory = BTreeMap<NodeId, NodeMemory>;

/// What one container holds of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Nodes it is spread over.
    pub affinity: Vec<NodeId>,
    /// Type.
    pub kind: String,
    /// Bytes.
    pub size: u64,
}

impl Block {
    /// The nodes as a mask.
    #[must_use]
    pub fn mask(&self) -> NumaMask {
        self.affinity.iter().copied().collect()
    }
}

/// Blocks by pod and container.
pub type MemoryAssignments = BTreeMap<String, BTreeMap<String, Vec<Block>>>;

/// Memory kept for the system, by node and type.
pub type ReservedMemory = BTreeMap<NodeId, BTreeMap<String, u64>>;

/// The book of the static policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// What there is and what is left.
    pub machine: MachineMemory,
    /// Who holds what.
    pub assignments: MemoryAssignments,
}

impl MemoryState {
    /// Blocks of a container.
    #[must_use]
    pub fn blocks(&self, pod: &str, container: &str) -> Option<&Vec<Block>> {
        self.assignments.get(pod)?.get(container)
    }
}

/// The machine with nothing held.
#[must_use]
pub fn machine_memory(topology: &Topology, reserved: &ReservedMemory) -> MachineMemory {
    topology
        .nodes
        .iter()
        .map(|node| {
            let kept =
                |kind: &str| reserved.get(&node.id).and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0);
            let huge_bytes = node.huge.iter().fold(0u64, |sum, pool| sum.saturating_add(pool.bytes()));
            let mut tables = BTreeMap::new();
            tables.insert(MEMORY.to_string(), table(node.memory_bytes, kept(MEMORY), huge_bytes));
            for pool in &node.huge {
                let name = huge_name(pool.page_bytes);
                let fresh = table(pool.bytes(), kept(&name), 0);
                tables.insert(name, fresh);
            }
            (node.id, NodeMemory { assignments: 0, tables, cells: vec![node.id] })
        })
        .collect()
}

fn table(total: u64, system_reserved: u64, used_otherwise: u64) -> MemoryTable {
    let allocatable = total.saturating_sub(system_reserved).saturating_sub(used_otherwise);
    MemoryTable { total, system_reserved, allocatable, reserved: 0, free: allocatable }
}

/// Books all assignments on a machine with nothing held; blocks of single nodes first, so that groups of nodes take what
/// these leave.
///
/// # Errors
/// An assignment names a node or a type the machine does not have.
pub fn rebook(fresh: &MachineMemory, assignments: &MemoryAssignments) -> Result<MachineMemory, MemoryError> {
    let mut machine = fresh.clone();
    let mut all: Vec<(&String, &String, &Block)> = Vec::new();
    for (pod, containers) in assignments {
        for (container, blocks) in containers {
            all.extend(blocks.iter().map(|block| (pod, container, block)));
        }
    }
    all.sort_by_key(|(_, _, block)| block.affinity.len());
    for (pod, container, block) in all {
        book(&mut machine, block, block.size).map_err(|what| MemoryError::UnknownIn {
            pod: pod.clone(),
            container: container.clone(),
            what,
        })?;
    }
    Ok(machine)
}

/// Books `charged` bytes of a block, node by node; each node counts the block even if nothing is charged there.
pub(super) fn book(machine: &mut MachineMemory, block: &Block, charged: u64) -> Result<(), Unknown> {
    let mut left = charged;
    for id in &block.affinity {
        let node = machine.get_mut(id).ok_or(Unknown::Node)?;
        if !node.tables.contains_key(&block.kind) {
            return Err(Unknown::Type);
        }
        node.assignments = node.assignments.saturating_add(1);
        node.cells.clone_from(&block.affinity);
        left = left.saturating_sub(node.take(&block.kind, left));
    }
    Ok(())
}

/// Do a saved and a recomputed picture agree? What is free and reserved is compared as a sum over each group of nodes:
/// how a block is spread inside its group depends on the order of past additions and removals.
#[must_use]
pub fn agree(saved: &MachineMemory, real: &MachineMemory) -> bool {
    saved.len() == real.len()
        && saved
            .iter()
            .all(|(id, node)| real.get(id).is_some_and(|other| nodes_agree(saved, node, real, other)))
}

fn nodes_agree(saved: &MachineMemory, node: &NodeMemory, real: &MachineMemory, other: &NodeMemory) -> bool {
    let mask = |cells: &[NodeId]| -> NumaMask { cells.iter().copied().collect() };
    node.assignments == other.assignments
        && node.cells.len() == other.cells.len()
        && mask(&node.cells) == mask(&other.cells)
        && node.tables.len() == other.tables.len()
        && node.tables.iter().all(|(kind, ours)| {
            other.tables.get(kind).is_some_and(|theirs| {
                let ours_sum = group_sums(saved, &node.cells, kind);
                (ours.total, ours.system_reserved, ours.allocatable)
                    == (theirs.total, theirs.system_reserved, theirs.allocatable)
                    && ours_sum == group_sums(real, &other.cells, kind)
            })
        })
}

fn group_sums(machine: &MachineMemory, cells: &[NodeId], kind: &str) -> (u64, u64) {
    let tables = cells.iter().filter_map(|id| machine.get(id)?.tables.get(kind));
    tables.fold((0, 0), |(free, reserved), table| {
        (table.free.saturating_add(free), table.reserved.saturating_add(reserved))
    })
}

/// What an assignment names that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A NUMA node.
    Node,
    /// A memory type.
    Type,
}

/// Why memory was not given, or a saved state not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// No node keeps memory for the system.
    NothingReserved,
    /// Containers hold memory, but the saved machine has no nodes.
    MachineEmpty,
    /// A saved assignment does not fit the machine at all.
    UnknownIn {
        /// Its pod.
        pod: String,
        /// Its container.
        container: String,
        /// What is missing.
        what: Unknown,
    },
    /// Saved and real memory differ.
    MachineChanged,
    /// Nowhere is enough free.
    NoDefaultHint,
    /// Enough is free only on more nodes than necessary, and that is not allowed.
    DefaultHintNotPreferred,
    /// The given nodes are too small, and no larger set holds them.
    CannotExtendHint,
    /// A larger set was found, but it is wider than necessary, and that is not allowed.
    ExtendedHintNotPreferred,
    /// The nodes are used by other groups of nodes.
    HintViolatesAllocation,
}

impl MemoryError {
    /// Stable code of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NothingReserved => "no_system_reserved",
            Self::MachineEmpty => "machine_state_empty",
            Self::UnknownIn { what: Unknown::Node, .. } => "unknown_node",
            Self::UnknownIn { what: Unknown::Type, .. } => "unknown_resource",
            Self::MachineChanged => "machine_state_mismatch",
            Self::NoDefaultHint => "no_default_hint",
            Self::DefaultHintNotPreferred => "default_hint_not_preferred",
            Self::CannotExtendHint => "cannot_extend_hint",
            Self::ExtendedHintNotPreferred => "extended_hint_not_preferred",
            Self::HintViolatesAllocation => "hint_violates_allocation",
        }
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[memorymanager] ")?;
        match self {
            Self::NothingReserved => f.write_str("you should specify the system reserved memory"),
            Self::MachineEmpty => {
                f.write_str("machine state can not be empty when it has memory assignments")
            }
            Self::UnknownIn { pod, container, what } => {
                let what = match what {
                    Unknown::Node => "the NUMA that does not exist",
                    Unknown::Type => "memory resource that does not exist",
                };
                write!(f, "(pod: {pod}, container: {container}) the memory assignment uses {what}")
            }
            Self::MachineChanged => f.write_str("the expected machine state is different from the real one"),
            Self::NoDefaultHint => f.write_str(
                "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            ),
            Self::DefaultHintNotPreferred => f.write_str("failed to find the default preferred hint"),
            Self::CannotExtendHint => {
                f.write_str("failed to find NUMA nodes to extend the current topology hint")
            }
            Self::ExtendedHintNotPreferred => f.write_str("failed to find the extended preferred hint"),
            Self::HintViolatesAllocation => f.write_str("preferred hint violates NUMA node allocation"),
        }
    }
}

impl core::error::Error for MemoryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_name_is_canonical() {
        assert_eq!(huge_name(2 << 20), "hugepages-2Mi");
        assert_eq!(huge_name(1 << 30), "hugepages-1Gi");
        assert_eq!(huge_name(64 << 10), "hugepages-64Ki");
        assert_eq!(huge_name(16 << 30), "hugepages-16Gi");
    }
}
