//! Boards for people: a recording of a machine without personal data, and the machine drawn as text or as a picture.

pub mod capture;
pub mod map;
pub mod svg;

use podkeep_core::resource::ledger::NodeResources;
use podkeep_hal::{
    cpu_set::{CpuId, CpuSet},
    snapshot::Snapshot,
    topology::Topology,
};

/// Who owns which CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Kept for the system.
    pub reserved: CpuSet,
    /// Name and CPUs of each owner.
    pub owned: Vec<(String, CpuSet)>,
}

impl From<&NodeResources> for Owners {
    fn from(book: &NodeResources) -> Self {
        let pods = book.cpu_state().into_iter().flat_map(|state| &state.assignments);
        let owned = pods.flat_map(|(pod, containers)| {
            containers.iter().map(move |(container, cpus)| (format!("{pod}/{container}"), *cpus))
        });
        Self { reserved: book.reserved(), owned: owned.collect() }
    }
}

impl Owners {
    /// Position in `owned` of the owner of a CPU.
    #[must_use]
    pub fn of(&self, cpu: CpuId) -> Option<usize> {
        self.owned.iter().position(|(_, cpus)| cpus.contains(cpu))
    }

    /// The sign of an owner: a letter, then a letter and a number.
    #[must_use]
    pub fn sign(at: usize) -> String {
        let letter = u8::try_from(at % 26).ok().and_then(|letter| b'a'.checked_add(letter)).unwrap_or(b'?');
        match at / 26 {
            0 => char::from(letter).to_string(),
            round => format!("{}{round}", char::from(letter)),
        }
    }
}

/// Reads a recorded machine.
///
/// # Errors
/// The text is no JSON, or no tree of files: what, and where.
pub fn parse(text: &str) -> Result<Snapshot, String> {
    serde_json::from_str(text).map_err(|error| format!("this is no recorded machine: {error}"))
}

/// CPUs of one last-level cache on one node of one package, in cores.
#[derive(Clone, Debug)]
struct CacheGroup {
    level: u8,
    cores: Vec<CpuSet>,
}

/// Part of a node inside a package.
#[derive(Clone, Debug)]
struct NodePart {
    node: u8,
    caches: Vec<CacheGroup>,
}

/// A package with what is inside it.
#[derive(Clone, Debug)]
struct PackagePart {
    package: u16,
    nodes: Vec<NodePart>,
}

/// The machine as boxes inside boxes.
fn parts(topology: &Topology) -> Vec<PackagePart> {
    let number = |cpus: &CpuSet| cpus.first().and_then(|id| topology.cpu(id));
    let inside = |outer: &CpuSet, groups: Vec<CpuSet>| -> Vec<CpuSet> {
        groups.iter().map(|group| group.intersection(outer)).filter(|group| !group.is_empty()).collect()
    };
    let nodes: Vec<CpuSet> = topology.groups(|cpu| u16::from(cpu.node)).collect();
    let caches: Vec<CpuSet> = topology.groups(|cpu| cpu.last_cache).collect();
    let cores: Vec<CpuSet> = topology.groups(|cpu| cpu.core).collect();
    topology
        .groups(|cpu| cpu.package)
        .map(|package| PackagePart {
            package: number(&package).map_or(0, |cpu| cpu.package),
            nodes: inside(&package, nodes.clone())
                .into_iter()
                .map(|node| NodePart {
                    node: number(&node).map_or(0, |cpu| cpu.node),
                    caches: inside(&node, caches.clone())
                        .into_iter()
                        .map(|cache| CacheGroup {
                            level: number(&cache).map_or(0, |cpu| cpu.last_level),
                            cores: inside(&cache, cores.clone()),
                        })
                        .collect(),
                })
                .collect(),
        })
        .collect()
}

/// Bytes for people: the largest unit that leaves at least one, with one digit after the point where it says something.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scale = 1u64;
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale = scale.saturating_mul(1024);
        unit += 1;
    }
    let tenths = bytes.saturating_mul(10) / scale;
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if tenths.is_multiple_of(10) || tenths >= 1000 {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536 << 20), "1.5 GiB");
        assert_eq!(size(3_884_360 * 1024), "3.7 GiB");
        assert_eq!(size(252 << 30), "252 GiB");
    }

    #[test]
    fn signs_of_owners_differ() {
        assert_eq!(Owners::sign(0), "a");
        assert_eq!(Owners::sign(25), "z");
        assert_eq!(Owners::sign(26), "a1");
    }
}
