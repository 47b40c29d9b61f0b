//! A recorded machine whose CPUs go offline and online, whose memory and huge pages change, as the kernel would show it.

use std::{format, string::ToString, vec::Vec};

use crate::{
    board::{Board, Inventory},
    cpu_set::{CpuId, CpuSet},
    error::HalError,
    files::Files,
    linux::inventory::Machine,
    numa_mask::NodeId,
    snapshot::{Entry, Snapshot},
    topology::Topology,
};

const CPU: &str = "/sys/devices/system/cpu";

/// A machine made of a snapshot. Read by the same code as a real one; only its files are in memory.
#[derive(Clone, Debug)]
pub struct SimMachine {
    machine: Machine<Snapshot>,
    /// Folders of CPUs that are offline, to be shown again when they come back.
    hidden: Vec<(CpuId, Entry)>,
}

impl SimMachine {
    /// The machine of a snapshot.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self { machine: Machine::new(snapshot), hidden: Vec::new() }
    }

    /// Its files as they are now.
    #[must_use]
    pub fn files(&self) -> &Snapshot {
        self.machine.files()
    }

    fn list(&self, name: &str) -> CpuSet {
        self.machine.files().cpus(&format!("{CPU}/{name}")).unwrap_or_default()
    }

    /// Switches a CPU off: it leaves all lists, and its topology folder goes away.
    pub fn take_offline(&mut self, cpu: CpuId) {
        let topology = format!("{CPU}/cpu{cpu}/topology");
        if let Some(folder) = self.machine.files().get(&topology).cloned() {
            self.hidden.push((cpu, folder));
        }
        self.machine.files_mut().remove(&topology);
        self.set_online(cpu, false);
    }

    /// Switches a CPU on again.
    pub fn bring_online(&mut self, cpu: CpuId) {
        if let Some(at) = self.hidden.iter().position(|(hidden, _)| *hidden == cpu) {
            let (_, folder) = self.hidden.swap_remove(at);
            self.machine.files_mut().put(&format!("{CPU}/cpu{cpu}/topology"), folder);
        }
        self.set_online(cpu, true);
    }

    fn set_online(&mut self, cpu: CpuId, on: bool) {
        let (mut online, mut offline) = (self.list("online"), self.list("offline"));
        if on {
            online.insert(cpu);
            offline.remove(cpu);
        } else {
            online.remove(cpu);
            offline.insert(cpu);
        }
        let files = self.machine.files_mut();
        files.put_text(&format!("{CPU}/online"), &format!("{online}\n"));
        files.put_text(&format!("{CPU}/offline"), &format!("{offline}\n"));
        files.put_text(&format!("{CPU}/cpu{cpu}/online"), if on { "1\n" } else { "0\n" });
    }

    /// Changes the memory of a node.
    pub fn set_memory(&mut self, node: NodeId, bytes: u64) {
        let kib = bytes / 1024;
        let path = format!("/sys/devices/system/node/node{node}/meminfo");
        self.machine.files_mut().put_text(&path, &format!("Node {node} MemTotal: {kib} kB\n"));
    }

    /// Changes the number of huge pages of a node.
    pub fn set_huge_pages(&mut self, node: NodeId, page_bytes: u64, pages: u64) {
        let kib = page_bytes / 1024;
        let folder = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB");
        for file in ["nr_hugepages", "free_hugepages"] {
            self.machine.files_mut().put_text(&format!("{folder}/{file}"), &pages.to_string());
        }
    }
}

impl Inventory for SimMachine {
    fn topology(&self) -> Result<Topology, HalError> {
        self.machine.topology()
    }

    fn board(&self) -> Board {
        self.machine.board()
    }
}
