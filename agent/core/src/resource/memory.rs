//! Memory manager, static policy: containers of Guaranteed pods get their memory on named NUMA nodes.
//!
//! Nodes are used alone or in groups; a node that is used alone is not used in a group at the same time, nor in two
//! different groups. What an init container held may be used again by later containers of its pod.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

use podkeep_hal::numa_mask::{NodeId, NumaMask};

use super::{
    memory_state::{
        Block, MEMORY, MachineMemory, MemoryError, MemoryState, ReservedMemory, agree, book, rebook,
    },
    request::{PodRequest, Role},
};
use crate::topology::{
    distance::MaskRule,
    hint::{Hint, Offers},
    masks::{MaskFamily, prefixes},
};

/// Bytes by type.
pub type Amounts = BTreeMap<String, u64>;

/// The static policy with its book.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticMemory {
    /// The machine with nothing held.
    fresh: MachineMemory,
    state: MemoryState,
    /// What init containers of the pod under admission held: by node set, then by type.
    reusable: BTreeMap<String, BTreeMap<NumaMask, Amounts>>,
}

/// At least one node has to keep memory for the system.
///
/// # Errors
/// None does.
pub fn validate_reserved(reserved: &ReservedMemory) -> Result<(), MemoryError> {
    let keeps = |kinds: &Amounts| kinds.get(MEMORY).is_some_and(|bytes| *bytes > 0);
    if reserved.values().any(keeps) { Ok(()) } else { Err(MemoryError::NothingReserved) }
}

impl StaticMemory {
    /// A machine nobody holds memory of.
    #[must_use]
    pub fn new(fresh: MachineMemory) -> Self {
        let state = MemoryState { machine: fresh.clone(), ..MemoryState::default() };
        Self { fresh, state, reusable: BTreeMap::new() }
    }

    /// Takes over a saved state.
    ///
    /// # Errors
    /// It does not fit the machine; the policy is unchanged.
    pub fn start(&mut self, saved: MemoryState) -> Result<(), MemoryError> {
        if saved.machine.is_empty() {
            return if saved.assignments.is_empty() { Ok(()) } else { Err(MemoryError::MachineEmpty) };
        }
        let real = rebook(&self.fresh, &saved.assignments)?;
        if !agree(&saved.machine, &real) {
            return Err(MemoryError::MachineChanged);
        }
        self.state = saved;
        Ok(())
    }

    /// Sets the state without judging it: for a state rebuilt from what runs.
    pub fn set_state(&mut self, state: MemoryState) {
        self.state = state;
    }

    /// The book.
    #[must_use]
    pub fn state(&self) -> &MemoryState {
        &self.state
    }

    /// The machine with nothing held.
    #[must_use]
    pub fn fresh(&self) -> &MachineMemory {
        &self.fresh
    }

    /// Offers for one container; empty if it has no preference.
    #[must_use]
    pub fn hints(&self, pod: &PodRequest, container: &str, family: &MaskFamily) -> Offers {
        let Some(container) = pod.container(container).filter(|_| pod.guaranteed) else {
            return Offers::new();
        };
        let requested = container.memory_types();
        match self.state.blocks(&pod.uid, &container.name) {
            Some(blocks) => regenerate(blocks, &requested),
            None => spread(&requested, &self.generate(&pod.uid, &requested, family)),
        }
    }

    /// Offers for a whole pod; empty if it has no preference.
    #[must_use]
    pub fn pod_hints(&self, pod: &PodRequest, family: &MaskFamily) -> Offers {
        if !pod.guaranteed {
            return Offers::new();
        }
        let requested = pod.widest_by_name(super::request::ContainerRequest::memory_types);
        let known = pod.containers.iter().find_map(|container| self.state.blocks(&pod.uid, &container.name));
        match known {
            Some(blocks) => regenerate(blocks, &requested),
            None => spread(&requested, &self.generate(&pod.uid, &requested, family)),
        }
    }

    /// Node sets worth asking about on machines where not all can be: the nodes with most memory free, in every number.
    #[must_use]
    pub fn roomiest(&self) -> Vec<NumaMask> {
        let free = |kind: &str| {
            let mut nodes: Vec<(u64, NodeId)> = self
                .state
                .machine
                .iter()
                .filter_map(|(id, node)| Some((node.tables.get(kind)?.free, *id)))
                .collect();
            nodes.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            prefixes(nodes.into_iter().map(|(_, id)| id)).collect::<Vec<_>>()
        };
        let mut kinds: Vec<&String> =
            self.state.machine.values().flat_map(|node| node.tables.keys()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().flat_map(|kind| free(kind)).collect()
    }

    /// Gives a container its memory.
    ///
    /// # Errors
    /// There is too little, or it would have to come from nodes that are used otherwise; nothing is taken then.
    pub fn allocate(
        &mut self,
        pod: &PodRequest,
        container: &str,
        hint: Hint,
        family: &MaskFamily,
    ) -> Result<(), MemoryError> {
        let Some(container) = pod.container(container).filter(|_| pod.guaranteed) else { return Ok(()) };
        if let Some(blocks) = self.state.blocks(&pod.uid, &container.name).cloned() {
            self.pass_on(&pod.uid, container.role, &blocks);
            return Ok(());
        }
        let requested = container.memory_types();
        if requested.is_empty() {
            return Ok(());
        }
        let mask = self.choose(&pod.uid, &requested, hint, family)?;
        let affinity: Vec<NodeId> = mask.iter().collect();
        let mut machine = self.state.machine.clone();
        let mut blocks = Vec::new();
        for (kind, bytes) in &requested {
            let block = Block { affinity: affinity.clone(), kind: kind.clone(), size: *bytes };
            let charged = bytes.saturating_sub(self.reusable(&pod.uid, mask, kind));
            book(&mut machine, &block, charged).map_err(|_| MemoryError::CannotExtendHint)?;
            blocks.push(block);
        }
        self.state.machine = machine;
        self.pass_on(&pod.uid, container.role, &blocks);
        let pod_blocks = self.state.assignments.entry(pod.uid.clone()).or_default();
        pod_blocks.insert(container.name.clone(), blocks.clone());
        self.shrink_inits(pod, &container.name, &blocks);
        Ok(())
    }

    /// The nodes to take from: the given ones, or the best of our own that hold them.
    fn choose(
        &self,
        pod: &str,
        requested: &Amounts,
        hint: Hint,
        family: &MaskFamily,
    ) -> Result<NumaMask, MemoryError> {
        let mut best = hint;
        if best.mask.is_none() {
            let own = self.best(pod, requested, NumaMask::EMPTY, family).ok_or(MemoryError::NoDefaultHint)?;
            if !own.preferred && hint.preferred {
                return Err(MemoryError::DefaultHintNotPreferred);
            }
            best = own;
        }
        let given = best.mask.unwrap_or_default();
        if !requested.iter().all(|(kind, bytes)| self.sum(given, kind, |table| table.free) >= *bytes) {
            let wider = self.best(pod, requested, given, family).ok_or(MemoryError::CannotExtendHint)?;
            if !wider.preferred && best.preferred {
                return Err(MemoryError::ExtendedHintNotPreferred);
            }
            best = wider;
        }
        let mask = best.mask.unwrap_or_default();
        if self.is_used_otherwise(mask) { Err(MemoryError::HintViolatesAllocation) } else { Ok(mask) }
    }

    fn best(&self, pod: &str, requested: &Amounts, holding: NumaMask, family: &MaskFamily) -> Option<Hint> {
        let rule = MaskRule::default();
        let hints = self.generate(pod, requested, family);
        let holds = |hint: &Hint| hint.mask.is_some_and(|mask| holding.is_subset(mask));
        hints.into_iter().filter(holds).reduce(|best, hint| {
            let narrower = rule.wins(hint.mask.unwrap_or_default(), best.mask.unwrap_or_default());
            let better = if hint.preferred == best.preferred { narrower } else { hint.preferred };
            if better { hint } else { best }
        })
    }

    fn generate(&self, pod: &str, requested: &Amounts, family: &MaskFamily) -> Vec<Hint> {
        if requested.is_empty() {
            return Vec::new();
        }
        let all: NumaMask = self.state.machine.keys().copied().collect();
        // each mask costs sums over arrays and not look-ups by name
        let kinds: Vec<(u64, [u64; 64], [u64; 64], &String)> = requested
            .iter()
            .map(|(kind, bytes)| {
                (
                    *bytes,
                    self.by_node(kind, |table| table.allocatable),
                    self.by_node(kind, |table| table.free),
                    kind,
                )
            })
            .collect();
        let mut narrowest = all.count();
        let mut masks = Vec::new();
        for mask in family.inside(all) {
            if !kinds.iter().all(|(bytes, allocatable, ..)| sum_of(allocatable, mask) >= *bytes) {
                continue;
            }
            narrowest = narrowest.min(mask.count());
            let fits = |(bytes, _, free, kind): &(u64, [u64; 64], [u64; 64], &String)| {
                sum_of(free, mask).saturating_add(self.reusable(pod, mask, kind)) >= *bytes
            };
            if kinds.iter().all(fits) && !self.is_grouped(mask) && !self.is_used_otherwise(mask) {
                masks.push(mask);
            }
        }
        masks.into_iter().map(|mask| Hint::new(mask, mask.count() == narrowest)).collect()
    }

    fn by_node(&self, kind: &str, part: impl Fn(&super::memory_state::MemoryTable) -> u64) -> [u64; 64] {
        let mut amounts = [0u64; 64];
        for (id, node) in &self.state.machine {
            if let (Some(slot), Some(table)) = (amounts.get_mut(usize::from(*id)), node.tables.get(kind)) {
                *slot = part(table);
            }
        }
        amounts
    }

    /// One node that is in use together with others.
    fn is_grouped(&self, mask: NumaMask) -> bool {
        let grouped = |id: NodeId| self.state.machine.get(&id).is_some_and(|node| node.cells.len() > 1);
        mask.count() == 1 && mask.iter().any(grouped)
    }

    /// Several nodes, one of which is in use alone or in another group.
    fn is_used_otherwise(&self, mask: NumaMask) -> bool {
        let used = |id: NodeId| {
            self.state.machine.get(&id).is_some_and(|node| {
                let group = || node.cells.iter().copied().collect::<NumaMask>();
                node.assignments > 0 && (node.cells.len() == 1 || group() != mask)
            })
        };
        mask.count() > 1 && mask.iter().any(used)
    }

    fn sum(
        &self,
        mask: NumaMask,
        kind: &str,
        part: impl Fn(&super::memory_state::MemoryTable) -> u64,
    ) -> u64 {
        let tables = mask.iter().filter_map(|id| self.state.machine.get(&id)?.tables.get(kind));
        tables.fold(0, |sum, table| part(table).saturating_add(sum))
    }

    fn reusable(&self, pod: &str, mask: NumaMask, kind: &str) -> u64 {
        let amounts = self.reusable.get(pod).and_then(|sets| sets.get(&mask));
        amounts.and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0)
    }

    /// Init containers leave their memory to later ones, all others use it up.
    fn pass_on(&mut self, pod: &str, role: Role, blocks: &[Block]) {
        self.reusable.retain(|known, _| known == pod);
        let sets = self.reusable.entry(pod.to_string()).or_default();
        for block in blocks {
            let slot = sets.entry(block.mask()).or_default().entry(block.kind.clone()).or_default();
            *slot = match role {
                Role::Init => (*slot).max(block.size),
                Role::Sidecar | Role::App => slot.saturating_sub(block.size),
            };
        }
    }

    /// Takes what the new container uses again out of the blocks of earlier init containers, so that the blocks of a
    /// pod sum up to what the pod holds.
    fn shrink_inits(&mut self, pod: &PodRequest, new: &str, blocks: &[Block]) {
        let Some(containers) = self.state.assignments.get_mut(&pod.uid) else { return };
        for block in blocks {
            let mut used = block.size;
            let earlier = pod.containers.iter().take_while(|container| container.name != new);
            for init in earlier.filter(|container| container.role == Role::Init) {
                let theirs = containers.get_mut(&init.name).into_iter().flatten();
                for other in theirs.filter(|other| other.kind == block.kind && other.mask() == block.mask()) {
                    let taken = other.size.min(used);
                    other.size = other.size.saturating_sub(taken);
                    used = used.saturating_sub(taken);
                }
            }
        }
    }

    /// Books everything anew if a node is held alone and in a group, or in two groups. The kubelet lets that happen when
    /// the topology manager insists on one node of a group, and its sums then drift with each release; booked anew they
    /// are those a restart computes.
    pub fn settle(&mut self) {
        if self.is_mixed()
            && let Ok(machine) = rebook(&self.fresh, &self.state.assignments)
        {
            self.state.machine = machine;
        }
    }

    /// [`Self::remove`], then books anew if nodes were or are held in different groups.
    pub fn remove_and_settle(&mut self, pod: &str, container: &str) {
        let mixed = self.is_mixed();
        self.remove(pod, container);
        if mixed && let Ok(machine) = rebook(&self.fresh, &self.state.assignments) {
            self.state.machine = machine;
        }
    }

    fn is_mixed(&self) -> bool {
        let blocks = || self.state.assignments.values().flat_map(BTreeMap::values).flatten();
        let mixed = |id: &NodeId| {
            let mut sets = blocks().filter(|block| block.affinity.contains(id)).map(Block::mask);
            sets.next().is_some_and(|first| sets.any(|other| other != first))
        };
        self.state.machine.keys().any(mixed)
    }

    /// Takes a container's memory back.
    pub fn remove(&mut self, pod: &str, container: &str) {
        let Some(containers) = self.state.assignments.get_mut(pod) else { return };
        let Some(blocks) = containers.remove(container) else { return };
        if containers.is_empty() {
            self.state.assignments.remove(pod);
        }
        // what is given back may become someone else's
        self.reusable.remove(pod);
        for block in &blocks {
            let mut left = block.size;
            for id in &block.affinity {
                let Some(node) = self.state.machine.get_mut(id) else { continue };
                node.assignments = node.assignments.saturating_sub(1);
                if node.assignments == 0 {
                    node.cells = alloc::vec![*id];
                }
                left = left.saturating_sub(node.give_back(&block.kind, left));
            }
        }
    }
}

fn sum_of(amounts: &[u64; 64], mask: NumaMask) -> u64 {
    mask.iter().fold(0, |sum, id| amounts.get(usize::from(id)).copied().unwrap_or(0).saturating_add(sum))
}

/// The same hints for every type; no types at all if there are none.
fn spread(requested: &Amounts, hints: &[Hint]) -> Offers {
    if hints.is_empty() {
        return Offers::new();
    }
    requested.keys().map(|kind| (kind.clone(), Some(hints.to_vec()))).collect()
}

/// What a container holds already, if that is what it asks for.
fn regenerate(blocks: &[Block], requested: &Amounts) -> Offers {
    let fits = |block: &Block| requested.get(&block.kind) == Some(&block.size);
    if blocks.len() != requested.len() || !blocks.iter().all(fits) {
        return Offers::new();
    }
    let offer = |block: &Block| (block.kind.clone(), Some(alloc::vec![Hint::new(block.mask(), true)]));
    blocks.iter().map(offer).collect()
}
