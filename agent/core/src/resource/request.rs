//! What a pod asks of the managers: plain amounts by container, in start order.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

/// When a container runs, as far as sharing between containers of a pod goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one starts; what it held may be used again by later containers.
    Init,
    /// Init container that stays (`restartPolicy: Always`).
    Sidecar,
    /// Ordinary container.
    #[default]
    App,
}

/// Requested and largest amount of one resource; zero if not stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// What is asked for.
    pub request: u64,
    /// What is allowed.
    pub limit: u64,
}

impl Amount {
    /// Asked for and allowed are the same and not nothing.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.request > 0 && self.request == self.limit
    }
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequest {
    /// Name, unique in the pod.
    pub name: String,
    /// When it runs.
    pub role: Role,
    /// CPU in thousandths.
    pub cpu: Amount,
    /// Memory in bytes.
    pub memory: Amount,
    /// Huge pages in bytes, by resource name (`hugepages-2Mi`).
    pub huge: BTreeMap<String, u64>,
    /// Devices by resource name, from the limits.
    pub devices: BTreeMap<String, u64>,
}

impl ContainerRequest {
    /// Memory and huge pages asked for, by resource name; nothing that is zero.
    #[must_use]
    pub fn memory_types(&self) -> BTreeMap<String, u64> {
        let mut types = self.huge.clone();
        types.insert("memory".into(), self.memory.request);
        types.retain(|_, bytes| *bytes > 0);
        types
    }
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest {
    /// Unique id.
    pub uid: String,
    /// QoS class Guaranteed: only such pods get CPUs or memory of their own.
    pub guaranteed: bool,
    /// Init containers and sidecars as declared, then ordinary containers.
    pub containers: Vec<ContainerRequest>,
    /// CPU of the pod as a whole, in thousandths, if it states one.
    pub pod_cpu: Option<Amount>,
    /// Memory of the pod as a whole, in bytes, if it states one.
    pub pod_memory: Option<Amount>,
}

impl PodRequest {
    /// The container of this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerRequest> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Whole CPUs the container is to have for itself; zero if it shares.
    #[must_use]
    pub fn exclusive_cpus(&self, container: &ContainerRequest) -> usize {
        if self.guaranteed { whole_cpus(container.cpu.request) } else { 0 }
    }

    /// Whole CPUs the pod is to have for itself at its widest moment.
    #[must_use]
    pub fn exclusive_cpus_of_pod(&self) -> usize {
        let cpus = self.widest(|container| self.exclusive_cpus(container) as u64);
        usize::try_from(cpus).unwrap_or(usize::MAX)
    }

    /// The most of something the pod needs at one time: sidecars and ordinary containers together, or an init
    /// container beside the sidecars declared before it.
    pub fn widest(&self, amount: impl Fn(&ContainerRequest) -> u64) -> u64 {
        let (mut sidecars, mut apps, mut inits) = (0u64, 0u64, 0u64);
        for container in &self.containers {
            let own = amount(container);
            match container.role {
                Role::Init => inits = inits.max(own.saturating_add(sidecars)),
                Role::Sidecar => sidecars = sidecars.saturating_add(own),
                Role::App => apps = apps.saturating_add(own),
            }
        }
        inits.max(sidecars.saturating_add(apps))
    }

    /// Like [`Self::widest`], for each name `amounts` gives.
    pub fn widest_by_name(
        &self,
        amounts: impl Fn(&ContainerRequest) -> BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        let mut names: BTreeMap<String, u64> = self.containers.iter().flat_map(&amounts).collect();
        for (name, widest) in &mut names {
            *widest = self.widest(|container| amounts(container).get(name).copied().unwrap_or(0));
        }
        names.retain(|_, widest| *widest > 0);
        names
    }
}

/// Whole CPUs of an amount in thousandths; zero if it is not whole.
#[must_use]
pub fn whole_cpus(milli: u64) -> usize {
    if milli.is_multiple_of(1000) { usize::try_from(milli / 1000).unwrap_or(usize::MAX) } else { 0 }
}
