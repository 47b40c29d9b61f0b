//! Which CPUs: whole nodes, sockets, cache groups and cores first, then single threads.
//!
//! Every list is ordered by "fewest available CPUs first, then lowest number", so full groups fill up and empty ones
//! stay whole. The results equal the kubelet's allocator but for its three defects (see `docs/decisions`).

use alloc::vec::Vec;
use core::fmt;

use podkeep_hal::cpu_set::CpuSet;

use super::layout::{CpuLayout, Group};

/// How single threads are picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sorting {
    /// Core by core: a core is filled before the next one is opened.
    #[default]
    Packed,
    /// Over all cores of a socket (`distribute-cpus-across-cores`).
    Spread,
}

/// What the policy options say about the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeOptions {
    /// Order of single threads.
    pub sorting: Sorting,
    /// Keep to as few last-level caches as possible (`prefer-align-cpus-by-uncorecache`).
    pub align_by_uncore: bool,
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeError {
    /// More asked for than there is.
    NotEnough {
        /// CPUs asked for.
        requested: usize,
        /// CPUs to choose from.
        available: usize,
    },
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEnough { requested, available } => write!(
                f,
                "not enough cpus available to satisfy request: requested={requested}, available={available}"
            ),
        }
    }
}

impl core::error::Error for TakeError {}

/// A choice under way.
#[derive(Clone, Debug)]
pub struct Taking<'a> {
    layout: &'a CpuLayout,
    sorting: Sorting,
    available: CpuSet,
    result: CpuSet,
    need: usize,
}

impl<'a> Taking<'a> {
    /// Starts choosing `need` CPUs out of `available`.
    #[must_use]
    pub fn new(layout: &'a CpuLayout, available: &CpuSet, need: usize, sorting: Sorting) -> Self {
        let available = available.intersection(&layout.all);
        Self { layout, sorting, available, result: CpuSet::EMPTY, need }
    }

    /// CPUs still needed.
    #[must_use]
    pub fn still_needed(&self) -> usize {
        self.need
    }

    /// Is the need met?
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        self.need == 0
    }

    /// Is the need larger than what is left?
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.need > self.available.len()
    }

    /// Moves `cpus` from the available to the result.
    pub fn take(&mut self, cpus: &CpuSet) {
        self.result = self.result.union(cpus);
        self.available = self.available.difference(cpus);
        self.need = self.need.saturating_sub(cpus.len());
    }

    /// Nodes hold sockets on most machines; where a socket has several nodes, sockets are the outer level.
    fn nodes_outside(&self) -> bool {
        self.layout.sockets.len() >= self.layout.nodes.len()
    }

    fn left(&self, group: &Group) -> usize {
        group.cpus.count_common(&self.available)
    }

    /// Groups with available CPUs inside `within`, fewest available first, then lowest number.
    fn sorted(&self, groups: &'a [Group], within: &CpuSet) -> Vec<&'a Group> {
        let inside = self.available.intersection(within);
        let mut sorted: Vec<(usize, &Group)> = groups
            .iter()
            .filter(|group| !group.cpus.is_disjoint(&inside))
            .map(|group| (self.left(group), group))
            .collect();
        sorted.sort_by_key(|(left, group)| (*left, group.id));
        sorted.into_iter().map(|(_, group)| group).collect()
    }

    fn sorted_in_each(&self, outer: &[&Group], inner: &'a [Group]) -> Vec<&'a Group> {
        outer.iter().flat_map(|group| self.sorted(inner, &group.cpus)).collect()
    }

    /// Nodes with available CPUs, in order.
    #[must_use]
    pub fn nodes(&self) -> Vec<&'a Group> {
        if self.nodes_outside() {
            self.sorted(&self.layout.nodes, &self.layout.all)
        } else {
            self.sorted_in_each(&self.sorted(&self.layout.sockets, &self.layout.all), &self.layout.nodes)
        }
    }

    /// Sockets with available CPUs, in order.
    #[must_use]
    pub fn sockets(&self) -> Vec<&'a Group> {
        if self.nodes_outside() {
            self.sorted_in_each(&self.nodes(), &self.layout.sockets)
        } else {
            self.sorted(&self.layout.sockets, &self.layout.all)
        }
    }

    fn cores(&self) -> Vec<&'a Group> {
        let parents = if self.nodes_outside() { self.sockets() } else { self.nodes() };
        self.sorted_in_each(&parents, &self.layout.cores)
    }

    fn uncores(&self) -> Vec<&'a Group> {
        self.sorted_in_each(&self.nodes(), &self.layout.uncores)
    }

    /// No CPU of the group belongs to anyone yet.
    fn is_whole(&self, group: &Group) -> bool {
        group.cpus.is_subset(&self.available)
    }

    /// Nodes nobody has a CPU of, in order.
    #[must_use]
    pub fn free_nodes(&self) -> Vec<&'a Group> {
        self.nodes().into_iter().filter(|node| self.is_whole(node)).collect()
    }

    /// Sockets nobody has a CPU of, in order. A socket that is smaller or larger than the average never counts.
    #[must_use]
    pub fn free_sockets(&self) -> Vec<&'a Group> {
        let size = self.layout.cpus_per_socket();
        let free = |socket: &&Group| self.is_whole(socket) && socket.cpus.len() == size;
        self.sockets().into_iter().filter(free).collect()
    }

    /// Cores nobody has a thread of, in order.
    #[must_use]
    pub fn free_cores(&self) -> Vec<&'a Group> {
        self.cores().into_iter().filter(|core| self.is_whole(core)).collect()
    }

    /// Single CPUs, in order.
    #[must_use]
    pub fn free_cpus(&self) -> Vec<u16> {
        let groups = match self.sorting {
            Sorting::Packed => self.cores(),
            Sorting::Spread => self.sockets(),
        };
        groups.iter().flat_map(|group| group.cpus.intersection(&self.available).iter()).collect()
    }

    fn take_whole(&mut self, groups: &[&Group]) {
        for group in groups {
            if self.need >= group.cpus.len() && !self.is_satisfied() && self.is_whole(group) {
                self.take(&group.cpus);
            }
        }
    }

    fn take_nodes_and_sockets(&mut self) {
        if self.nodes_outside() {
            self.take_whole(&self.free_nodes());
            self.take_whole(&self.free_sockets());
        } else {
            self.take_whole(&self.free_sockets());
            self.take_whole(&self.free_nodes());
        }
    }

    fn take_uncores(&mut self) {
        for uncore in self.uncores() {
            if self.need >= self.layout.cpus_per_uncore() {
                let free: Vec<&Group> =
                    self.uncores().into_iter().filter(|group| self.is_whole(group)).collect();
                self.take_whole(&free);
                if self.is_satisfied() {
                    return;
                }
            }
            self.take_part_of_uncore(uncore);
            if self.is_satisfied() {
                return;
            }
        }
    }

    /// Takes cores of one cache group if they meet the need exactly, else nothing.
    fn take_part_of_uncore(&mut self, uncore: &Group) {
        let per_core = self.layout.cpus_per_core();
        let inside = uncore.cpus.intersection(&self.available);
        let cores = self.layout.cores.iter().filter(|core| !core.cpus.is_disjoint(&inside));
        let mut candidate = cores
            .take(self.need.div_ceil(per_core))
            .fold(CpuSet::EMPTY, |set, core| set.union(&core.cpus.intersection(&self.available)));
        if self.need % 2 == 1
            && per_core > 1
            && candidate.len() > self.need
            && let Some(last) = candidate.last()
        {
            candidate.remove(last);
        }
        if candidate.len() == self.need {
            self.take(&candidate);
        }
    }

    fn take_single_cpus(&mut self) {
        for cpu in self.free_cpus() {
            if self.is_satisfied() {
                return;
            }
            self.take(&CpuSet::only(cpu));
        }
    }
}

/// `need` CPUs of `available`, in as few and as full groups as possible.
///
/// # Errors
/// There are not that many.
pub fn take_packed(
    layout: &CpuLayout,
    available: &CpuSet,
    need: usize,
    options: TakeOptions,
) -> Result<CpuSet, TakeError> {
    let mut taking = Taking::new(layout, available, need, options.sorting);
    if taking.is_satisfied() {
        return Ok(CpuSet::EMPTY);
    }
    if taking.is_failed() {
        return Err(TakeError::NotEnough { requested: need, available: taking.available.len() });
    }
    taking.take_nodes_and_sockets();
    if options.align_by_uncore && !taking.is_satisfied() {
        taking.take_uncores();
    }
    if options.sorting == Sorting::Packed && !taking.is_satisfied() {
        taking.take_whole(&taking.free_cores());
    }
    taking.take_single_cpus();
    Ok(taking.result)
}
