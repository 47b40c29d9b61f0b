//! CPU manager, static policy: containers of Guaranteed pods that ask for whole CPUs get them for themselves.
//!
//! Pools: *reserved* (for the system), *shared* (the default set), *exclusive* (owned). What an init container held may
//! be used again by later containers of its pod.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
};

use podkeep_hal::{cpu_set::CpuSet, numa_mask::NumaMask};

use super::{
    cpu_spread::take_distributed,
    cpu_state::{CpuError, CpuState},
    cpu_take::{TakeError, TakeOptions, take_packed},
    layout::CpuLayout,
    options::CpuOptions,
    request::{ContainerRequest, PodRequest, Role},
};

/// The static policy with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticCpu {
    layout: CpuLayout,
    reserved: CpuSet,
    options: CpuOptions,
    state: CpuState,
    /// CPUs init containers of the pod under admission held, free for its later containers. Only that pod is kept.
    reusable: BTreeMap<String, CpuSet>,
}

impl StaticCpu {
    /// A machine nobody owns a CPU of. `reserved` CPUs are kept for the system: those of `listed`, or as many as the
    /// allocator picks.
    ///
    /// # Errors
    /// The list has another length, or the machine has fewer CPUs.
    pub fn new(
        layout: CpuLayout,
        reserved: usize,
        listed: Option<CpuSet>,
        options: CpuOptions,
    ) -> Result<Self, CpuError> {
        let reserved = match listed {
            Some(cpus) if cpus.len() == reserved => cpus,
            Some(cpus) => return Err(CpuError::ReservedCount { listed: cpus.len(), reserved }),
            None => take(&layout, &layout.all, reserved, options)?,
        };
        let shared = if options.strict_reservation { layout.all.difference(&reserved) } else { layout.all };
        let state = CpuState { default: shared, ..CpuState::default() };
        Ok(Self { layout, reserved, options, state, reusable: BTreeMap::new() })
    }

    /// Takes over a saved state.
    ///
    /// # Errors
    /// It does not fit the machine; the policy is unchanged.
    pub fn start(&mut self, saved: CpuState) -> Result<(), CpuError> {
        if saved.default.is_empty() {
            // the fresh pool of `new` stands
            return if saved.assignments.is_empty() { Ok(()) } else { Err(CpuError::DefaultEmpty) };
        }
        saved.validate(&self.layout.all, &self.reserved, self.options.strict_reservation)?;
        self.state = saved;
        Ok(())
    }

    /// Sets the state without judging it: for a state rebuilt from what runs.
    pub fn set_state(&mut self, state: CpuState) {
        self.state = state;
    }

    /// The pools.
    #[must_use]
    pub fn state(&self) -> &CpuState {
        &self.state
    }

    /// CPUs kept for the system.
    #[must_use]
    pub fn reserved(&self) -> CpuSet {
        self.reserved
    }

    /// The machine.
    #[must_use]
    pub fn layout(&self) -> &CpuLayout {
        &self.layout
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> CpuOptions {
        self.options
    }

    /// Shared CPUs that may become exclusive.
    #[must_use]
    pub fn available(&self) -> CpuSet {
        self.state.default.difference(&self.reserved)
    }

    /// CPUs the pod may use again.
    #[must_use]
    pub fn reusable(&self, pod: &str) -> CpuSet {
        self.reusable.get(pod).copied().unwrap_or_default()
    }

    /// Sets what the pod may use again.
    pub fn set_reusable(&mut self, pod: &str, cpus: CpuSet) {
        self.reusable.insert(pod.to_string(), cpus);
    }

    pub(super) fn take(&self, available: &CpuSet, need: usize) -> Result<CpuSet, TakeError> {
        take(&self.layout, available, need, self.options)
    }

    /// Can `full-pcpus-only` be kept for so many CPUs?
    pub(super) fn check_smt(&self, requested: usize) -> Result<(), CpuError> {
        if !self.options.full_pcpus_only {
            return Ok(());
        }
        let cpus_per_core = self.layout.cpus_per_core();
        if !requested.is_multiple_of(cpus_per_core) {
            return Err(CpuError::SmtAlignment { requested, cpus_per_core, available: None });
        }
        let available = self.state.default.difference(&self.layout.whole_cores(&self.reserved)).len();
        if requested > available {
            return Err(CpuError::SmtAlignment { requested, cpus_per_core, available: Some(available) });
        }
        Ok(())
    }

    /// Gives a container its CPUs; none if it shares.
    ///
    /// # Errors
    /// There are too few, or `full-pcpus-only` cannot be kept.
    pub fn allocate(
        &mut self,
        pod: &PodRequest,
        container: &str,
        affinity: Option<NumaMask>,
    ) -> Result<Option<CpuSet>, CpuError> {
        let Some(container) = pod.container(container) else { return Ok(None) };
        let requested = pod.exclusive_cpus(container);
        if requested == 0 {
            return Ok(None);
        }
        self.check_smt(requested)?;
        let cpus = match self.state.assigned(&pod.uid, &container.name) {
            Some(known) => known,
            None => {
                let cpus = self.take_near(requested, affinity, &self.reusable(&pod.uid))?;
                self.state.assign(&pod.uid, &container.name, cpus);
                cpus
            }
        };
        self.pass_on(&pod.uid, container.role, &cpus);
        Ok(Some(cpus))
    }

    /// Takes CPUs out of the shared pool and `reusable`, from the nodes in `affinity` first.
    ///
    /// # Errors
    /// There are too few.
    pub fn take_near(
        &mut self,
        need: usize,
        affinity: Option<NumaMask>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, TakeError> {
        let allocatable = self.available().union(reusable);
        let mut result = CpuSet::EMPTY;
        if let Some(affinity) = affinity {
            let aligned = self.aligned(affinity, &allocatable);
            result = self.take(&aligned, need.min(aligned.len()))?;
        }
        let rest = self.take(&allocatable.difference(&result), need.saturating_sub(result.len()))?;
        result = result.union(&rest);
        self.state.default = self.state.default.difference(&result);
        Ok(result)
    }

    /// CPUs in the nodes of `affinity`; with `align-by-socket` in all sockets these nodes touch.
    fn aligned(&self, affinity: NumaMask, allocatable: &CpuSet) -> CpuSet {
        let near = self.layout.cpus_in_nodes(affinity);
        let near = if self.options.align_by_socket { self.layout.whole_sockets(&near) } else { near };
        allocatable.intersection(&near)
    }

    /// Init containers leave their CPUs to later ones, all others take theirs out of what may be used again.
    fn pass_on(&mut self, pod: &str, role: Role, cpus: &CpuSet) {
        self.reusable.retain(|known, _| known == pod);
        let reusable = self.reusable.entry(pod.to_string()).or_default();
        *reusable = match role {
            Role::Init => reusable.union(cpus),
            Role::Sidecar | Role::App => reusable.difference(cpus),
        };
    }

    /// Before a container that was released gets CPUs again: an init container may use those of its pod's ordinary
    /// containers, which do not run at that time; of a pod that owns CPUs as a whole it gets its old part.
    pub(super) fn share_again(&mut self, pod: &PodRequest, container: &ContainerRequest) {
        if let Some(bubble) = self.state.pods.get(&pod.uid).copied() {
            let part = self.split(pod, bubble).ok().and_then(|parts| parts.get(&container.name).copied());
            if let Some(part) = part {
                self.state.assign(&pod.uid, &container.name, part);
            }
            return;
        }
        let apps =
            pod.containers.iter().filter(|other| other.role == Role::App && container.role == Role::Init);
        let shared = apps.filter_map(|app| self.state.assigned(&pod.uid, &app.name));
        let shared = shared.fold(CpuSet::EMPTY, |all, cpus| all.union(&cpus));
        self.reusable = BTreeMap::from([(pod.uid.clone(), shared)]);
    }

    /// Takes a container's CPUs back, except those another container of its pod holds.
    pub fn remove(&mut self, pod: &str, container: &str) {
        let Some(containers) = self.state.assignments.get_mut(pod) else { return };
        let Some(cpus) = containers.remove(container) else { return };
        let last = containers.is_empty();
        let held = containers.values().fold(CpuSet::EMPTY, |all, cpus| all.union(cpus));
        if last {
            self.state.assignments.remove(pod);
            self.reusable.remove(pod);
        }
        if let Some(reusable) = self.reusable.get_mut(pod) {
            // what goes back to the shared pool may become someone else's
            *reusable = reusable.intersection(&held);
        }
        let freed = match self.state.pods.get(pod).copied() {
            // a pod's own CPUs go back together
            Some(bubble) if last => {
                self.state.pods.remove(pod);
                bubble
            }
            Some(_) => CpuSet::EMPTY,
            None => cpus.difference(&held),
        };
        self.state.default = self.state.default.union(&freed.intersection(&self.layout.all));
    }

    pub(super) fn state_mut(&mut self) -> &mut CpuState {
        &mut self.state
    }
}

fn take(
    layout: &CpuLayout,
    available: &CpuSet,
    need: usize,
    options: CpuOptions,
) -> Result<CpuSet, TakeError> {
    let sorting = options.sorting();
    if options.distribute_across_numa {
        let group = if options.full_pcpus_only { layout.cpus_per_core() } else { 1 };
        return take_distributed(layout, available, need, group, sorting);
    }
    take_packed(layout, available, need, TakeOptions { sorting, align_by_uncore: options.align_by_uncore })
}
