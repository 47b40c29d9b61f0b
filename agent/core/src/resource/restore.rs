//! State over restarts and changes of the machine. Saved state is advice: whatever is wrong with it, the node starts,
//! running containers keep what they hold, and it is said once what differed.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use podkeep_hal::{cpu_set::CpuSet, topology::Topology};

use super::{
    cpu_state::{CpuAssignments, CpuState},
    ledger::{NodeResources, SetupError},
    memory_state::{Block, MachineMemory, MemoryAssignments, MemoryState, book, rebook},
};
use crate::checkpoint::{self, Format, cpu::ContainerIds};

/// State files as they were found; empty if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved<'a> {
    /// `cpu_manager_state`.
    pub cpu: &'a str,
    /// `memory_manager_state`.
    pub memory: &'a str,
}

/// A running container and the CPUs its control group shows, if these are not the shared pool's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
    /// CPUs it runs on and owns.
    pub cpus: Option<CpuSet>,
}

/// A container whose CPUs changed with the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuChange {
    /// Its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
    /// What it owned.
    pub before: CpuSet,
    /// What it owns now; none if nothing is left and it shares.
    pub after: Option<CpuSet>,
}

impl NodeResources {
    /// The CPU state file.
    #[must_use]
    pub fn export_cpu(&self) -> String {
        let policy = self.settings.cpu_policy();
        let Some(cpu) = &self.cpu else {
            return checkpoint::cpu::encode(&CpuState::default(), policy, Format::Plain);
        };
        // only the newest form holds what pods own as a whole
        let format = if cpu.state().pods.is_empty() { Format::Plain } else { Format::Envelope };
        checkpoint::cpu::encode(cpu.state(), policy, format)
    }

    /// The memory state file; none under policy `None`, which keeps no state.
    #[must_use]
    pub fn export_memory(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        Some(checkpoint::memory::encode(memory.state(), self.settings.memory_policy(), Format::Plain))
    }

    /// Takes over saved state as far as it fits; `running` containers keep what they hold. Returns what differed, a line
    /// each; empty if all fitted. [`Self::retain`] forgets containers that are gone.
    pub fn import(&mut self, saved: Saved<'_>, running: &[Running]) -> Vec<String> {
        let mut notes = Vec::new();
        self.import_cpu(saved.cpu, running, &mut notes);
        self.import_memory(saved.memory, &mut notes);
        notes
    }

    fn import_cpu(&mut self, text: &str, running: &[Running], notes: &mut Vec<String>) {
        let policy = self.settings.cpu_policy();
        let read = checkpoint::cpu::restore(text, policy, &ContainerIds::new());
        let state = read.unwrap_or_else(|error| {
            notes.push(format!("cpu state is set aside: {error}"));
            CpuState::default()
        });
        let Some(cpu) = self.cpu.as_mut() else { return };
        let held = held_by_running(running);
        let agrees = held.iter().all(|(pod, containers)| {
            containers.iter().all(|(name, cpus)| state.assigned(pod, name) == Some(*cpus))
        });
        // the kubelet refuses its own state when strict reservation left nothing to share; that state is sound
        let strict = cpu.options().strict_reservation;
        let all_owned = strict && state.default.is_empty() && !state.assignments.is_empty();
        let started = if all_owned && state.validate(&cpu.layout().all, &cpu.reserved(), strict).is_ok() {
            cpu.set_state(state.clone());
            Ok(())
        } else {
            cpu.start(state.clone())
        };
        match started {
            Ok(()) if agrees => return,
            Ok(()) => notes
                .push("cpu state differs from what running containers hold: it is rebuilt from them".into()),
            Err(error) => notes.push(format!("cpu state does not fit this machine and is rebuilt: {error}")),
        }
        let mut wanted = state;
        for (pod, containers) in held {
            wanted.assignments.entry(pod).or_default().extend(containers);
        }
        let rebuilt = self.rebuild_cpu(&wanted, notes);
        if let Some(cpu) = self.cpu.as_mut() {
            cpu.set_state(rebuilt);
        }
    }

    /// Keeps every assignment as far as its CPUs exist, are not reserved and belong to no other pod.
    fn rebuild_cpu(&self, wanted: &CpuState, notes: &mut Vec<String>) -> CpuState {
        let Some(cpu) = &self.cpu else { return CpuState::default() };
        let all = cpu.layout().all;
        let mut taken = cpu.reserved();
        let mut assignments = CpuAssignments::new();
        let mut pods = BTreeMap::new();
        for (pod, containers) in &wanted.assignments {
            let mut of_pod = CpuSet::EMPTY;
            for (container, cpus) in containers {
                let kept = cpus.intersection(&all).difference(&taken);
                if kept != *cpus {
                    notes.push(format!(
                        "container \"{container}\" of pod \"{pod}\" held CPUs {cpus}, of which {} can be kept",
                        if kept.is_empty() { "none".to_string() } else { kept.to_string() }
                    ));
                }
                if !kept.is_empty() {
                    of_pod = of_pod.union(&kept);
                    assignments.entry(pod.clone()).or_default().insert(container.clone(), kept);
                }
            }
            // CPUs of a pod as a whole go back with its last container: without one they are nobody's
            if let Some(bubble) = wanted.pods.get(pod).filter(|_| assignments.contains_key(pod)) {
                let kept = bubble.intersection(&all).difference(&taken).union(&of_pod);
                of_pod = kept;
                pods.insert(pod.clone(), kept);
            }
            taken = taken.union(&of_pod);
        }
        let mut state = CpuState { default: CpuSet::EMPTY, assignments, pods };
        let strict = cpu.options().strict_reservation;
        let left = all.difference(&state.owned());
        state.default = if strict { left.difference(&cpu.reserved()) } else { left };
        state
    }

    fn import_memory(&mut self, text: &str, notes: &mut Vec<String>) {
        let policy = self.settings.memory_policy();
        let Some(memory) = self.memory.as_mut() else { return };
        let state = match checkpoint::memory::restore(text, policy) {
            Ok(state) => state,
            Err(error) => {
                notes.push(format!("memory state is set aside: {error}"));
                return;
            }
        };
        if let Err(error) = memory.start(state.clone()) {
            notes.push(format!("memory state does not fit this machine and is rebuilt: {error}"));
            let rebuilt = refit(memory.fresh(), &state.assignments, notes);
            memory.set_state(rebuilt);
        }
    }

    /// Forgets containers `keep` does not know: their pods are gone.
    pub fn retain(&mut self, keep: impl Fn(&str, &str) -> bool) {
        let mut pods: Vec<String> =
            self.cpu.iter().flat_map(|cpu| cpu.state().assignments.keys().cloned()).collect();
        pods.extend(self.memory.iter().flat_map(|memory| memory.state().assignments.keys().cloned()));
        pods.extend(self.devices.assignments().keys().cloned());
        pods.sort_unstable();
        pods.dedup();
        for pod in pods {
            for container in self.holders_of(&pod) {
                if !keep(&pod, &container) {
                    self.release(&pod, &container);
                }
            }
        }
    }

    /// The machine changed: CPUs went or came, memory or huge pages changed. Holders keep what still exists; a container
    /// that lost CPUs gets others for them from the shared pool if there are any. Returns whose CPUs changed, and what
    /// else is to be said.
    ///
    /// # Errors
    /// The settings do not fit the machine any more; nothing changes then.
    pub fn follow(&mut self, topology: &Topology) -> Result<(Vec<CpuChange>, Vec<String>), SetupError> {
        let mut next = Self::new(topology, self.settings.clone())?;
        next.devices = self.devices.clone();
        let mut notes = Vec::new();
        let mut changes = Vec::new();
        if let Some(before) = &self.cpu {
            let rebuilt = next.rebuild_cpu(before.state(), &mut notes);
            if let Some(cpu) = next.cpu.as_mut() {
                cpu.set_state(rebuilt);
                cpu.replace_lost(before.state(), &mut changes);
            }
        }
        if let (Some(before), Some(memory)) = (&self.memory, next.memory.as_mut()) {
            let rebuilt = refit(memory.fresh(), &before.state().assignments, &mut notes);
            memory.set_state(rebuilt);
        }
        *self = next;
        Ok((changes, notes))
    }
}

impl super::cpu::StaticCpu {
    /// Gives containers that lost CPUs as many others from the shared pool as there are.
    fn replace_lost(&mut self, before: &CpuState, changes: &mut Vec<CpuChange>) {
        for (pod, containers) in &before.assignments {
            if before.pods.contains_key(pod) {
                continue;
            }
            for (container, owned) in containers {
                let kept = self.state().assigned(pod, container).unwrap_or_default();
                let missing = owned.len().saturating_sub(kept.len()).min(self.available().len());
                let near = self.layout().nodes_of(&kept);
                let more = self
                    .take_near(missing, (!near.is_empty()).then_some(near), &CpuSet::EMPTY)
                    .unwrap_or_default();
                let after = kept.union(&more);
                if !after.is_empty() {
                    self.state_mut().assign(pod, container, after);
                }
                if after != *owned {
                    let after = (!after.is_empty()).then_some(after);
                    changes.push(CpuChange {
                        pod: pod.clone(),
                        container: container.clone(),
                        before: *owned,
                        after,
                    });
                }
            }
        }
    }
}

fn held_by_running(running: &[Running]) -> CpuAssignments {
    let mut held = CpuAssignments::new();
    for container in running {
        if let Some(cpus) = container.cpus.filter(|cpus| !cpus.is_empty()) {
            held.entry(container.pod.clone()).or_default().insert(container.container.clone(), cpus);
        }
    }
    held
}

/// Keeps every block that still fits on its nodes.
fn refit(fresh: &MachineMemory, assignments: &MemoryAssignments, notes: &mut Vec<String>) -> MemoryState {
    let mut state = MemoryState { machine: fresh.clone(), assignments: MemoryAssignments::new() };
    for (pod, containers) in assignments {
        for (container, blocks) in containers {
            let mut machine = state.machine.clone();
            let free = |machine: &MachineMemory, block: &Block| {
                let tables = block.affinity.iter().filter_map(|id| machine.get(id)?.tables.get(&block.kind));
                tables.fold(0u64, |sum, table| table.free.saturating_add(sum))
            };
            let fits = blocks.iter().all(|block| {
                let enough = free(&machine, block) >= block.size;
                enough && book(&mut machine, block, block.size).is_ok()
            });
            if fits {
                state.machine = machine;
                state.assignments.entry(pod.clone()).or_default().insert(container.clone(), blocks.clone());
            } else {
                notes.push(format!(
                    "container \"{container}\" of pod \"{pod}\" held memory that its nodes do not have any more"
                ));
            }
        }
    }
    // in the order a restart books, so that nodes held in different groups agree as well
    if let Ok(machine) = rebook(fresh, &state.assignments) {
        state.machine = machine;
    }
    state
}
