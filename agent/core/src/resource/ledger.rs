//! The book of the node: who holds which CPUs, memory and devices. Admission changes all of it or nothing.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use podkeep_hal::{cpu_set::CpuSet, numa_mask::NumaMask, topology::Topology};

use super::{
    cpu::StaticCpu,
    cpu_state::CpuError,
    device::{Devices, Ids},
    device_select::Question,
    grant::{ContainerGrant, Rejection},
    layout::CpuLayout,
    memory::{StaticMemory, validate_reserved},
    memory_state::{MEMORY, MemoryError, machine_memory},
    options::OptionError,
    request::{ContainerRequest, PodRequest, Role},
    settings::Settings,
};
use crate::topology::{
    distance::Distances,
    hint::{Hint, Offers, lists},
    masks::MaskFamily,
    policy::{Policy, PolicyError, Scope},
};

/// Asks a plugin which devices it wishes to give, for a resource; an empty answer leaves the choice to us.
pub type Wishes<'a> = &'a mut dyn FnMut(&str, &Question) -> Ids;

/// All managers of a node.
#[derive(Clone, Debug)]
pub struct NodeResources {
    pub(super) settings: Settings,
    /// The machine, emulated nodes folded into one.
    pub(super) topology: Topology,
    /// Emulated nodes were folded: node numbers of the book are not those of the kernel.
    folded: bool,
    nodes: NumaMask,
    distances: Distances,
    family: MaskFamily,
    pub(super) cpu: Option<StaticCpu>,
    pub(super) memory: Option<StaticMemory>,
    pub(super) devices: Devices,
}

/// Settings that do not fit the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// CPU policy.
    Cpu(CpuError),
    /// CPU policy options.
    Option(OptionError),
    /// Memory policy.
    Memory(MemoryError),
    /// Topology policy.
    Policy(PolicyError),
}

impl core::fmt::Display for SetupError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cpu(error) => error.fmt(f),
            Self::Option(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SetupError {}

impl NodeResources {
    /// The book of a machine on which nothing runs.
    ///
    /// # Errors
    /// The settings do not fit the machine.
    pub fn new(topology: &Topology, settings: Settings) -> Result<Self, SetupError> {
        let folded = topology.nodes_overlap;
        let topology = topology.for_placement();
        let layout = CpuLayout::new(&topology);
        let nodes = topology.node_mask();
        settings
            .policy
            .allows_nodes(nodes.count() as usize, settings.policy_options.most_nodes)
            .map_err(SetupError::Policy)?;
        let cpu = match &settings.cpu {
            None => None,
            Some(cpu) => {
                // reserved CPUs that are switched off are not missed
                let listed = cpu.listed.map(|cpus| cpus.intersection(&layout.all));
                let reserved = listed.map_or(cpu.reserved, |cpus| cpus.len());
                if reserved == 0 {
                    return Err(SetupError::Cpu(CpuError::NothingReserved));
                }
                let fits = cpu.options.fits(settings.policy, layout.sockets.len(), layout.nodes.len());
                fits.map_err(SetupError::Option)?;
                Some(StaticCpu::new(layout, reserved, listed, cpu.options).map_err(SetupError::Cpu)?)
            }
        };
        let memory = match &settings.memory {
            None => None,
            Some(reserved) => {
                validate_reserved(reserved).map_err(SetupError::Memory)?;
                Some(StaticMemory::new(machine_memory(&topology, reserved)))
            }
        };
        let distances = Distances::of(&topology);
        let family = MaskFamily::new(nodes, &distances);
        Ok(Self {
            settings,
            topology,
            folded,
            nodes,
            distances,
            family,
            cpu,
            memory,
            devices: Devices::default(),
        })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The machine as work is placed on it.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Devices: plugins list theirs here.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Devices: plugins list theirs here.
    pub fn devices_mut(&mut self) -> &mut Devices {
        &mut self.devices
    }

    /// CPUs of everyone who owns none. Under strict reservation all others may be owned: then the reserved ones, because
    /// a container has to run somewhere, and never on what another one owns.
    #[must_use]
    pub fn shared_pool(&self) -> CpuSet {
        let Some(cpu) = &self.cpu else { return self.topology.online() };
        let pool = cpu.state().default;
        if pool.is_empty() { cpu.reserved() } else { pool }
    }

    /// Who owns which CPUs; none under policy `none`.
    #[must_use]
    pub fn cpu_state(&self) -> Option<&super::cpu_state::CpuState> {
        self.cpu.as_ref().map(StaticCpu::state)
    }

    /// CPUs kept for the system.
    #[must_use]
    pub fn reserved(&self) -> CpuSet {
        self.cpu.as_ref().map(StaticCpu::reserved).unwrap_or_default()
    }

    /// CPUs a container owns.
    #[must_use]
    pub fn owned(&self, pod: &str, container: &str) -> Option<CpuSet> {
        self.cpu.as_ref()?.state().assigned(pod, container)
    }

    /// Admits a pod: all containers get what they need, or nothing changes.
    ///
    /// # Errors
    /// Why the pod cannot run here now.
    pub fn admit(&mut self, pod: &PodRequest) -> Result<Vec<ContainerGrant>, Rejection> {
        self.admit_with(pod, &mut |_, _| Ids::new())
    }

    /// Like [`Self::admit`], asking plugins for the devices they wish to give.
    ///
    /// # Errors
    /// Why the pod cannot run here now.
    pub fn admit_with(
        &mut self,
        pod: &PodRequest,
        wishes: Wishes<'_>,
    ) -> Result<Vec<ContainerGrant>, Rejection> {
        let stated = pod.pod_cpu.is_some() || pod.pod_memory.is_some();
        let mut pod = pod.clone();
        // the kubelet's managers leave such pods alone while they cannot give CPUs to a pod as a whole
        pod.guaranteed &= self.settings.pod_level || !stated;
        let refused = match self.try_admit(&pod, None, wishes) {
            Ok(grants) => return Ok(grants),
            Err(refused) => refused,
        };
        // an init container may have taken room on a node where a later one does not fit: let it go where that one fits
        let Some(steer) = self.where_it_fits(&pod, &refused) else { return Err(refused.rejection) };
        self.try_admit(&pod, Some(steer), wishes).map_err(|_| refused.rejection)
    }

    fn try_admit(
        &mut self,
        pod: &PodRequest,
        steer: Option<NumaMask>,
        wishes: Wishes<'_>,
    ) -> Result<Vec<ContainerGrant>, Refused> {
        let before = self.clone();
        let admitted = self.admit_all(pod, steer, wishes);
        if admitted.is_err() {
            *self = before;
        }
        admitted
    }

    fn admit_all(
        &mut self,
        pod: &PodRequest,
        steer: Option<NumaMask>,
        wishes: Wishes<'_>,
    ) -> Result<Vec<ContainerGrant>, Refused> {
        self.prepare_family();
        let together = self.settings.scope == Scope::Pod && self.settings.policy != Policy::None;
        let hint_of_pod = if together { Some(self.decide_for_pod(pod)?) } else { None };
        let free = self.free_by_node();
        if let (Some(hint), true, Some(cpu)) = (hint_of_pod, self.settings.pod_level, self.cpu.as_mut()) {
            cpu.allocate_pod(pod, hint.mask)
                .map_err(|error| Refused::of(Rejection::cpu("all of the pod", &error, &free)))?;
        }
        let mut grants = Vec::with_capacity(pod.containers.len());
        for container in &pod.containers {
            let hint = match hint_of_pod {
                Some(hint) => hint,
                None => self.decide(pod, container, steer)?,
            };
            self.allocate(pod, container, hint, &mut *wishes)?;
            grants.push(self.grant(pod, container, hint));
        }
        // the shared pool is what is left after the last container
        for grant in &mut grants {
            if !grant.exclusive {
                grant.cpuset = self.shared_pool();
            }
        }
        Ok(grants)
    }

    /// On machines where not every node set can be asked about: adds those that are roomiest now.
    fn prepare_family(&mut self) {
        if self.family.is_complete() {
            return;
        }
        self.family = MaskFamily::new(self.nodes, &self.distances);
        let cpu = self.cpu.iter().flat_map(StaticCpu::roomiest);
        let memory = self.memory.iter().flat_map(StaticMemory::roomiest);
        let masks: Vec<NumaMask> = cpu.chain(memory).chain(self.devices.roomiest(self.nodes)).collect();
        self.family.extend(masks);
    }

    fn offers(&self, pod: &PodRequest, container: &ContainerRequest) -> Vec<Offers> {
        let cpu = self.cpu.as_ref().and_then(|cpu| cpu.hints(pod, container, &self.family));
        let cpu = cpu.map(|hints| (String::from("cpu"), Some(hints))).into_iter().collect();
        let memory = self.memory.as_ref().map(|memory| memory.hints(pod, &container.name, &self.family));
        let devices = self.devices.hints(pod, container, &self.family, self.nodes);
        alloc::vec![cpu, memory.unwrap_or_default(), devices]
    }

    fn pod_offers(&self, pod: &PodRequest) -> Vec<Offers> {
        let bubble = pod.bubble_cpus().filter(|_| self.settings.pod_level);
        let cpu = self.cpu.as_ref().and_then(|cpu| match bubble {
            Some(cpus) => Some(cpu.bubble_hints(pod, cpus, &self.family)),
            None => cpu.pod_hints(pod, &self.family),
        });
        let cpu = cpu.map(|hints| (String::from("cpu"), Some(hints))).into_iter().collect();
        let memory = self.memory.as_ref().map(|memory| memory.pod_hints(pod, &self.family));
        let devices = self.devices.pod_hints(pod, &self.family, self.nodes);
        alloc::vec![cpu, memory.unwrap_or_default(), devices]
    }

    fn merge(&self, offers: &[Offers]) -> Hint {
        let closest = self.settings.policy_options.prefer_closest.then_some(&self.distances);
        self.settings.policy.merge(self.nodes, &lists(offers.iter().map(Some)), closest)
    }

    fn decide_for_pod(&self, pod: &PodRequest) -> Result<Hint, Refused> {
        let offers = self.pod_offers(pod);
        let hint = self.merge(&offers);
        if self.settings.policy.admits(&hint) {
            return Ok(hint);
        }
        let free = self.free_by_node();
        Err(Refused::of(Rejection::topology("the pod", self.settings.policy.name(), &hint, &offers, &free)))
    }

    fn decide(
        &self,
        pod: &PodRequest,
        container: &ContainerRequest,
        steer: Option<NumaMask>,
    ) -> Result<Hint, Refused> {
        if self.settings.policy == Policy::None {
            return Ok(Hint::UNMET);
        }
        let mut offers = self.offers(pod, container);
        if let Some(steer) = steer.filter(|_| container.role == Role::Init) {
            for hints in offers.iter_mut().flat_map(|offers| offers.values_mut()).flatten() {
                hints.retain(|hint| hint.mask.is_none_or(|mask| mask.is_subset(steer)));
            }
        }
        let hint = self.merge(&offers);
        if self.settings.policy.admits(&hint) {
            return Ok(hint);
        }
        let whom = format!("container \"{}\"", container.name);
        let free = self.free_by_node();
        let rejection = Rejection::topology(&whom, self.settings.policy.name(), &hint, &offers, &free);
        Err(Refused { rejection, container: Some(container.name.clone()) })
    }

    /// Nodes on which the container that was refused fits while its pod holds nothing; none if init containers are
    /// not to blame.
    fn where_it_fits(&self, pod: &PodRequest, refused: &Refused) -> Option<NumaMask> {
        let name = refused.container.as_deref()?;
        let mut earlier = pod.containers.iter().take_while(|container| container.name != name);
        if !earlier.any(|container| container.role == Role::Init) {
            return None;
        }
        let hint = self.merge(&self.offers(pod, pod.container(name)?));
        hint.mask.filter(|_| self.settings.policy.admits(&hint))
    }

    fn allocate(
        &mut self,
        pod: &PodRequest,
        container: &ContainerRequest,
        hint: Hint,
        wishes: Wishes<'_>,
    ) -> Result<(), Refused> {
        let in_bubble = self.cpu.as_ref().is_some_and(|cpu| cpu.state().pods.contains_key(&pod.uid));
        let free = self.free_by_node();
        if let Some(cpu) = self.cpu.as_mut().filter(|_| !in_bubble) {
            let given = cpu.allocate(pod, &container.name, hint.mask);
            given.map_err(|error| Refused::of(Rejection::cpu(&container.name, &error, &free)))?;
        }
        if let Some(memory) = self.memory.as_mut() {
            let given = memory.allocate(pod, &container.name, hint, &self.family);
            given.map_err(|error| Refused::of(Rejection::memory(&container.name, &error, &free)))?;
            memory.settle();
        }
        for (resource, count) in container.devices.iter().filter(|(_, count)| **count > 0) {
            if !self.devices.is_registered(resource) {
                return Err(Refused::of(Rejection::unknown_resource(&container.name, resource, *count)));
            }
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            let selection = self.devices.select(pod, &container.name, resource, count, hint.mask);
            let selection =
                selection.map_err(|error| Refused::of(Rejection::device(&container.name, &error)))?;
            if let Some(selection) = selection {
                let wished =
                    selection.question().map(|question| wishes(resource, &question)).unwrap_or_default();
                let chosen = selection.finish(&wished);
                self.devices.assign(pod, container, resource, chosen);
            }
        }
        Ok(())
    }

    fn grant(&self, pod: &PodRequest, container: &ContainerRequest, hint: Hint) -> ContainerGrant {
        let owned = self.owned(&pod.uid, &container.name);
        let blocks = self.memory.as_ref().and_then(|memory| memory.state().blocks(&pod.uid, &container.name));
        let mems =
            blocks.map(|blocks| blocks.iter().fold(NumaMask::EMPTY, |mask, block| mask.union(block.mask())));
        let held = self.devices.assignments().get(&pod.uid).and_then(|held| held.get(&container.name));
        ContainerGrant {
            container: container.name.clone(),
            cpuset: owned.unwrap_or_else(|| self.shared_pool()),
            exclusive: owned.is_some(),
            mems: mems.filter(|mask| !mask.is_empty() && !self.folded),
            hint,
            devices: held.cloned().unwrap_or_default(),
        }
    }

    /// What is free on each node, for explanations.
    fn free_by_node(&self) -> String {
        let mut parts = Vec::new();
        for node in &self.topology.nodes {
            let mut part = format!("node {}:", node.id);
            if let Some(cpu) = &self.cpu {
                part += &format!(" {} CPUs free", node.cpus.count_common(&cpu.available()));
            }
            if let Some(free) = self
                .memory
                .as_ref()
                .and_then(|memory| memory.state().machine.get(&node.id)?.tables.get(MEMORY))
            {
                part += &format!(" {} MiB free", free.free >> 20);
            }
            parts.push(part);
            if parts.len() == 8 && self.topology.nodes.len() > 8 {
                parts.push(format!("and {} nodes more", self.topology.nodes.len().saturating_sub(8)));
                break;
            }
        }
        parts.join(", ")
    }

    /// Takes back what one container holds.
    pub fn release(&mut self, pod: &str, container: &str) {
        if let Some(cpu) = self.cpu.as_mut() {
            cpu.remove(pod, container);
        }
        if let Some(memory) = self.memory.as_mut() {
            memory.remove_and_settle(pod, container);
        }
        self.devices.remove(pod, container);
    }

    /// Takes back what a pod holds.
    pub fn release_pod(&mut self, pod: &str) {
        for container in self.holders_of(pod) {
            self.release(pod, &container);
        }
    }

    /// Containers of a pod that hold anything.
    #[must_use]
    pub fn holders_of(&self, pod: &str) -> Vec<String> {
        let cpu = self.cpu.as_ref().and_then(|cpu| cpu.state().assignments.get(pod));
        let memory = self.memory.as_ref().and_then(|memory| memory.state().assignments.get(pod));
        let devices = self.devices.assignments().get(pod);
        let mut names: Vec<String> = Vec::new();
        names.extend(cpu.into_iter().flat_map(|held| held.keys().cloned()));
        names.extend(memory.into_iter().flat_map(|held| held.keys().cloned()));
        names.extend(devices.into_iter().flat_map(|held| held.keys().cloned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Gives a container that was released what it had at admission, or as good: an init container that runs again.
    ///
    /// # Errors
    /// Others took it meanwhile, and there is not enough else.
    pub fn readmit(&mut self, pod: &PodRequest, container: &str) -> Result<ContainerGrant, Rejection> {
        let Some(container) = pod.container(container) else {
            return Err(Rejection::unknown_resource(container, "container", 1));
        };
        let before = self.clone();
        self.prepare_family();
        if let Some(cpu) = self.cpu.as_mut() {
            cpu.share_again(pod, container);
        }
        let again = self.decide(pod, container, None).and_then(|hint| {
            self.allocate(pod, container, hint, &mut |_, _| Ids::new())?;
            Ok(self.grant(pod, container, hint))
        });
        again.map_err(|refused| {
            *self = before;
            refused.rejection
        })
    }

    /// Proves the book: what is owned is disjoint between pods and from the shared pool, together it is the machine,
    /// and memory and devices add up.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        if let Some(cpu) = &self.cpu {
            let state = cpu.state();
            let mut owned = CpuSet::EMPTY;
            for (pod, containers) in &state.assignments {
                let held = containers.values().fold(CpuSet::EMPTY, |all, cpus| all.union(cpus));
                let held = state.pods.get(pod).map_or(held, |bubble| bubble.union(&held));
                if !held.is_disjoint(&owned) {
                    return Err(format!(
                        "pod \"{pod}\" owns CPUs of another pod: {}",
                        held.intersection(&owned)
                    ));
                }
                owned = owned.union(&held);
            }
            let strict = cpu.options().strict_reservation;
            state.validate(&cpu.layout().all, &cpu.reserved(), strict).map_err(|error| error.to_string())?;
        }
        if let Some(memory) = &self.memory {
            let real = super::memory_state::rebook(memory.fresh(), &memory.state().assignments);
            let real = real.map_err(|error| error.to_string())?;
            if !super::memory_state::agree(&memory.state().machine, &real) {
                return Err("the memory held does not add up to the memory booked".to_string());
            }
        }
        for resource in self.devices.resources() {
            let mut seen = Ids::new();
            for (pod, containers) in self.devices.assignments() {
                let held: Ids =
                    containers.values().filter_map(|held| held.get(resource)).flatten().cloned().collect();
                if let Some(twice) = held.iter().find(|id| seen.contains(*id)) {
                    return Err(format!(
                        "device \"{twice}\" of \"{resource}\" is held by pod \"{pod}\" and another"
                    ));
                }
                seen.extend(held);
            }
        }
        Ok(())
    }
}

/// A refusal on its way out, and the container whose node set was not good enough.
struct Refused {
    rejection: Rejection,
    container: Option<String>,
}

impl Refused {
    fn of(rejection: Rejection) -> Self {
        Self { rejection, container: None }
    }
}
