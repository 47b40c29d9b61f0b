//! CPUs of a pod as a whole (pod-level resources, scope pod): one allocation, then split among its containers.

use alloc::{collections::BTreeMap, string::String};

use podkeep_hal::{cpu_set::CpuSet, numa_mask::NumaMask};

use super::{
    cpu::StaticCpu,
    cpu_state::CpuError,
    request::{ContainerRequest, PodRequest, Role, whole_cpus},
};

impl PodRequest {
    /// CPUs the pod as a whole is to have for itself; none if it states none, or not a whole number.
    #[must_use]
    pub fn bubble_cpus(&self) -> Option<usize> {
        let cpu = self.pod_cpu.filter(|cpu| cpu.is_exact() && self.guaranteed)?;
        Some(whole_cpus(cpu.request)).filter(|cpus| *cpus > 0)
    }
}

impl ContainerRequest {
    /// CPUs the container is to have for itself inside its pod's; zero if it shares the rest.
    #[must_use]
    pub fn cpus_in_bubble(&self) -> usize {
        if self.cpu.is_exact() && self.memory.is_exact() { whole_cpus(self.cpu.request) } else { 0 }
    }
}

/// Do the containers fit into the pod's own CPUs, with something left for those that share?
///
/// # Errors
/// What does not fit.
pub fn validate_bubble(pod: &PodRequest, budget: usize) -> Result<(), CpuError> {
    let (mut sidecars, mut apps, mut shared) = (0usize, 0usize, false);
    for container in &pod.containers {
        let own = container.cpus_in_bubble();
        match container.role {
            Role::Init => {
                let left = budget.saturating_sub(sidecars);
                if own > left {
                    return Err(CpuError::InitExceedsPod { requested: own, left });
                }
                if own == 0 && left == 0 {
                    return Err(CpuError::NoCpusForSharedInit);
                }
            }
            Role::Sidecar => sidecars = sidecars.saturating_add(own),
            Role::App => apps = apps.saturating_add(own),
        }
        shared |= own == 0 && container.role != Role::Init;
    }
    if shared && sidecars.saturating_add(apps) >= budget { Err(CpuError::EmptyPodSharedPool) } else { Ok(()) }
}

impl StaticCpu {
    /// Gives a pod its CPUs and splits them; none if the pod states no whole number.
    ///
    /// # Errors
    /// The containers do not fit, or there are too few CPUs; nothing is taken then.
    pub fn allocate_pod(
        &mut self,
        pod: &PodRequest,
        affinity: Option<NumaMask>,
    ) -> Result<Option<BTreeMap<String, CpuSet>>, CpuError> {
        let Some(budget) = pod.bubble_cpus() else { return Ok(None) };
        if self.state().pods.contains_key(&pod.uid) {
            return Ok(self.state().assignments.get(&pod.uid).cloned());
        }
        validate_bubble(pod, budget)?;
        self.check_smt(budget)?;
        let before = self.state().default;
        let bubble = self.take_near(budget, affinity, &CpuSet::EMPTY)?;
        match self.split(pod, bubble) {
            Ok(parts) => {
                let state = self.state_mut();
                state.pods.insert(pod.uid.clone(), bubble);
                state.assignments.insert(pod.uid.clone(), parts.clone());
                Ok(Some(parts))
            }
            Err(error) => {
                self.state_mut().default = before;
                Err(error)
            }
        }
    }

    pub(super) fn split(
        &self,
        pod: &PodRequest,
        bubble: CpuSet,
    ) -> Result<BTreeMap<String, CpuSet>, CpuError> {
        let mut parts = BTreeMap::new();
        let mut left = bubble;
        for container in &pod.containers {
            let own = container.cpus_in_bubble();
            let part = match (container.role, own) {
                (Role::Init, 0) => left,
                (Role::Sidecar | Role::App, 0) => continue,
                (_, own) => self.take(&left, own)?,
            };
            if container.role != Role::Init {
                left = left.difference(&part);
            }
            parts.insert(container.name.clone(), part);
        }
        for container in &pod.containers {
            parts.entry(container.name.clone()).or_insert(left);
        }
        Ok(parts)
    }
}
