//! The machine from /sys and /proc below a root: CPUs, cores, caches, NUMA nodes, memory and huge pages.
//!
//! Kernel differences met on real boards: no node folder at all; no topology folder of an offline CPU; core numbers
//! that repeat in each cluster or package; packages of −1; clusters shown as packages; emulated nodes that all list
//! every CPU; caches without ids. So groups are taken from the sibling lists, never from the numbers.

use std::{format, string::String, vec::Vec};

use super::facts;
use crate::{
    board::{Board, Inventory},
    cpu_set::{CpuId, CpuSet},
    error::HalError,
    files::{Files, Root},
    numa_mask::{MAX_NODES, NodeId},
    topology::{Builder, Cpu, FULL_CAPACITY, HugePool, Topology, parse_distances},
};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// Caches looked at of one CPU; machines have up to five.
const CACHES: usize = 10;

/// Reads a machine below a root.
#[derive(Clone, Debug)]
pub struct Machine<F = Root> {
    files: F,
}

impl Machine<Root> {
    /// The machine whose files are below `folder`; `/` is the running one.
    pub fn at(folder: impl Into<std::path::PathBuf>) -> Self {
        Self { files: Root::new(folder) }
    }
}

impl<F: Files> Machine<F> {
    /// The machine these files describe.
    pub fn new(files: F) -> Self {
        Self { files }
    }

    /// Its files.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// Changes its files: how a simulated machine has its events.
    pub fn files_mut(&mut self) -> &mut F {
        &mut self.files
    }
}

impl<F: Files> Inventory for Machine<F> {
    fn topology(&self) -> Result<Topology, HalError> {
        let online = self.files.required_cpus(&format!("{CPU}/online"))?;
        let present = self.files.cpus(&format!("{CPU}/present")).unwrap_or(online);
        let isolated = self.files.cpus(&format!("{CPU}/isolated")).unwrap_or_default();
        let mut builder = Builder::new();
        let node_of = self.nodes(&mut builder, &online)?;
        let groups = CpuGroups::read(&self.files, &online);
        for id in &online {
            let node = node_of.iter().find(|(_, cpus)| cpus.contains(id)).map_or(0, |(node, _)| *node);
            builder.cpu(groups.cpu(&self.files, id, node))?;
        }
        builder.states(present.difference(&online), isolated);
        builder.finish()
    }

    fn board(&self) -> Board {
        facts::board(&self.files)
    }
}

impl<F: Files> Machine<F> {
    /// Adds the nodes to `builder` and says which CPUs each has.
    fn nodes(&self, builder: &mut Builder, online: &CpuSet) -> Result<Vec<(NodeId, CpuSet)>, HalError> {
        let files = &self.files;
        let Some(listed) = files.text(&format!("{NODE}/online")) else {
            let node = builder.node(0, meminfo(files, "/proc/meminfo"))?;
            hugepages(files, "/sys/kernel/mm/hugepages", node);
            node.cpus = *online;
            return Ok(std::vec![(0, *online)]);
        };
        let ids = CpuSet::parse(&listed).unwrap_or_default();
        let mut nodes = Vec::new();
        let mut seen = CpuSet::EMPTY;
        for id in &ids {
            let id =
                NodeId::try_from(id).map_err(|_| HalError::Limit { what: "NUMA nodes", limit: MAX_NODES })?;
            let folder = format!("{NODE}/node{id}");
            let cpus = files.cpus(&format!("{folder}/cpulist")).unwrap_or_default().intersection(online);
            let node = builder.node(id, meminfo(files, &format!("{folder}/meminfo")))?;
            hugepages(files, &format!("{folder}/hugepages"), node);
            node.cpus = cpus;
            if let Some(distances) =
                files.text(&format!("{folder}/distance")).and_then(|line| parse_distances(&line))
                && distances.len() == ids.len()
            {
                node.distances = distances;
            }
            if !seen.is_disjoint(&cpus) {
                builder.nodes_overlap();
            }
            seen = seen.union(&cpus);
            nodes.push((id, cpus));
        }
        self.place_unlisted(builder, &mut nodes, &online.difference(&seen))?;
        Ok(nodes)
    }

    /// CPUs no node lists belong to the first node, so that none is lost.
    fn place_unlisted(
        &self,
        builder: &mut Builder,
        nodes: &mut Vec<(NodeId, CpuSet)>,
        unlisted: &CpuSet,
    ) -> Result<(), HalError> {
        if nodes.is_empty() {
            nodes.push((0, CpuSet::EMPTY));
        }
        let Some((first, cpus)) = nodes.first_mut() else { return Ok(()) };
        *cpus = cpus.union(unlisted);
        builder.node(*first, 0)?.cpus = *cpus;
        Ok(())
    }
}

/// MemTotal in bytes; lines of a node start with "Node N".
fn meminfo(files: &impl Files, path: &str) -> u64 {
    let text = files.text(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.split_once("MemTotal:"));
    let kib = line.and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Sizes and numbers of huge pages in a folder of `hugepages-<size>kB`, smallest first.
fn hugepages(files: &impl Files, folder: &str, node: &mut crate::topology::Node) {
    let mut pools: Vec<HugePool> = files
        .names(folder)
        .iter()
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some(HugePool {
                page_bytes: kib.checked_mul(1024)?,
                pages: files.number(&format!("{folder}/{name}/nr_hugepages")).unwrap_or(0),
                free: files.number(&format!("{folder}/{name}/free_hugepages")).unwrap_or(0),
            })
        })
        .collect();
    pools.sort_unstable_by_key(|pool| pool.page_bytes);
    // sizes beyond the bound do not exist on any machine
    node.huge = pools.into_iter().take(crate::topology::MAX_HUGE_SIZES).collect();
}

/// One cache as a CPU tells it.
#[derive(Clone, Copy)]
struct Cache {
    level: u8,
    id: Option<u16>,
    cpus: CpuSet,
}

/// Which CPUs form a core, a cluster, share a cache: each group is read once, from its first CPU.
struct CpuGroups {
    cores: Vec<CpuSet>,
    clusters: Vec<CpuSet>,
    packages: Vec<(CpuSet, u16)>,
    caches: Vec<Cache>,
    third_level_by_id: bool,
}

impl CpuGroups {
    fn read(files: &impl Files, online: &CpuSet) -> Self {
        let mut groups = Self {
            cores: Vec::new(),
            clusters: Vec::new(),
            packages: Vec::new(),
            caches: Vec::new(),
            third_level_by_id: true,
        };
        for id in online {
            let folder = format!("{CPU}/cpu{id}");
            let list = |names: &[&str]| siblings(files, &folder, names, id, online);
            if !groups.cores.iter().any(|core| core.contains(id)) {
                groups.cores.push(list(&["core_cpus_list", "thread_siblings_list"]));
            }
            if !groups.clusters.iter().any(|cluster| cluster.contains(id)) {
                groups.clusters.push(list(&["cluster_cpus_list", "core_cpus_list", "thread_siblings_list"]));
            }
            if !groups.packages.iter().any(|(package, _)| package.contains(id)) {
                let members = list(&["package_cpus_list", "core_siblings_list"]);
                let number: Option<i64> = files.number(&format!("{folder}/topology/physical_package_id"));
                groups.packages.push((members, number.and_then(|id| u16::try_from(id).ok()).unwrap_or(0)));
            }
            groups.read_caches(files, &folder, id, online);
        }
        groups.third_level_by_id = groups.ids_are_unique();
        groups
    }

    /// Caches of a CPU, unless it shares its outermost one with a CPU that was read already.
    fn read_caches(&mut self, files: &impl Files, folder: &str, id: CpuId, online: &CpuSet) {
        let known = |level: u8, caches: &[Cache]| {
            caches.iter().any(|cache| cache.level == level && cache.cpus.contains(id))
        };
        for index in 0..CACHES {
            let folder = format!("{folder}/cache/index{index}");
            let Some(level) = files.number::<u8>(&format!("{folder}/level")) else { break };
            if known(level, &self.caches) {
                continue;
            }
            if files.text(&format!("{folder}/type")).as_deref() == Some("Instruction") {
                continue;
            }
            let shared =
                files.cpus(&format!("{folder}/shared_cpu_list")).unwrap_or_default().intersection(online);
            let cpus = if shared.contains(id) { shared } else { CpuSet::only(id) };
            self.caches.push(Cache { level, id: files.number(&format!("{folder}/id")), cpus });
        }
    }

    /// Do ids of third-level caches name one group each?
    fn ids_are_unique(&self) -> bool {
        let third: Vec<&Cache> = self.caches.iter().filter(|cache| cache.level == 3).collect();
        let mut ids: Vec<u16> = third.iter().filter_map(|cache| cache.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len() == third.len()
    }

    fn cpu(&self, files: &impl Files, id: CpuId, node: NodeId) -> Cpu {
        let first = |groups: &[CpuSet]| {
            groups.iter().find(|group| group.contains(id)).and_then(CpuSet::first).unwrap_or(id)
        };
        let cache =
            |level: u8| self.caches.iter().find(|cache| cache.level == level && cache.cpus.contains(id));
        let lowest = |cache: &Cache| cache.cpus.first().unwrap_or(id);
        let core = first(&self.cores);
        let package =
            self.packages.iter().find(|(cpus, _)| cpus.contains(id)).map_or(0, |(_, number)| *number);
        let last = self.caches.iter().filter(|cache| cache.cpus.contains(id)).max_by_key(|cache| cache.level);
        let uncore = cache(3).map_or(package, |cache| match cache.id {
            Some(id) if self.third_level_by_id => id,
            _ => lowest(cache),
        });
        let capacity = files.number::<u16>(&format!("{CPU}/cpu{id}/cpu_capacity"));
        Cpu {
            id,
            core,
            cluster: first(&self.clusters),
            package,
            node,
            l2: cache(2).map_or(core, lowest),
            uncore,
            last_cache: last.map_or(core, lowest),
            last_level: last.map_or(0, |cache| cache.level),
            capacity: capacity.unwrap_or(FULL_CAPACITY).clamp(1, FULL_CAPACITY),
        }
    }
}

/// The first of these sibling lists that exists, as far as it is online; the CPU alone if none does.
fn siblings(files: &impl Files, folder: &str, names: &[&str], id: CpuId, online: &CpuSet) -> CpuSet {
    let read = |name: &&str| files.cpus(&format!("{folder}/topology/{name}"));
    let list = names.iter().find_map(read).unwrap_or_default().intersection(online);
    if list.contains(id) { list } else { CpuSet::only(id) }
}

/// Names `prefixN` in a folder, by number.
pub(super) fn numbered(files: &impl Files, folder: &str, prefix: &str) -> Vec<String> {
    let mut found: Vec<(u32, String)> = files
        .names(folder)
        .into_iter()
        .filter_map(|name| Some((name.strip_prefix(prefix)?.parse().ok()?, name)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name).collect()
}
