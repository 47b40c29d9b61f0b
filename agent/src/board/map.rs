//! The machine as text: packages, nodes, caches, cores, and who owns which CPU.

use std::fmt::Write;

use podkeep_hal::{
    board::Board,
    cpu_set::{CpuId, CpuSet},
    topology::{FULL_CAPACITY, Topology},
};

use super::{Owners, parts, size};

/// Columns of a line.
const WIDTH: usize = 100;

/// Draws the machine. CPUs of one core stand together, joined by `+`; behind a CPU stands the sign of its owner, `R` if
/// it is kept for the system, `i` if the kernel's scheduler keeps away from it.
#[must_use]
pub fn map(topology: &Topology, board: &Board, owners: &Owners) -> String {
    let mut text = String::new();
    // writing to a String cannot fail
    let drawn = draw(&mut text, topology, board, owners);
    debug_assert!(drawn.is_ok());
    text
}

fn draw(text: &mut String, topology: &Topology, board: &Board, owners: &Owners) -> std::fmt::Result {
    head(text, topology, board)?;
    for package in parts(topology) {
        writeln!(text, "package {}", package.package)?;
        for part in package.nodes {
            node(text, topology, part.node)?;
            for cache in part.caches {
                let all = cache.cores.iter().fold(CpuSet::EMPTY, |all, core| all.union(core));
                let name = if cache.level > 0 { format!("L{}", cache.level) } else { "no cache told".into() };
                writeln!(text, "    {name} of {all}{}", capacity(topology, &all))?;
                let cores: Vec<String> =
                    cache.cores.iter().map(|core| draw_core(topology, owners, core)).collect();
                wrapped(text, &cores)?;
            }
        }
    }
    for node in topology.nodes.iter().filter(|node| node.cpus.is_empty()) {
        writeln!(text, "node {} has no CPUs: {}", node.id, size(node.memory_bytes))?;
    }
    legend(text, topology, owners)
}

fn head(text: &mut String, topology: &Topology, board: &Board) -> std::fmt::Result {
    let names: Vec<&str> = [&board.vendor, &board.model, &board.compatible]
        .into_iter()
        .map(|name| name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    let name = if names.is_empty() { "a machine without a name".to_owned() } else { names.join(", ") };
    writeln!(text, "{name}")?;
    writeln!(
        text,
        "{} CPUs online, {} cores, {} nodes, {} of memory, pages of {}, Linux {}",
        topology.cpus.len(),
        topology.groups(|cpu| cpu.core).count(),
        topology.nodes.len(),
        size(topology.memory_bytes()),
        size(board.page_bytes),
        board.kernel.release
    )?;
    if topology.nodes_overlap {
        writeln!(text, "the nodes are emulated and share all CPUs: for placement they count as one")?;
    }
    writeln!(text)
}

fn node(text: &mut String, topology: &Topology, id: u8) -> std::fmt::Result {
    let Some(node) = topology.node(id) else { return Ok(()) };
    write!(text, "  node {id}: {}", size(node.memory_bytes))?;
    for pool in node.huge.iter().filter(|pool| pool.pages > 0) {
        write!(text, ", {} huge pages of {} ({} free)", pool.pages, size(pool.page_bytes), pool.free)?;
    }
    if node.distances.len() > 1 {
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        write!(text, ", distances {}", distances.join(" "))?;
    }
    writeln!(text)
}

/// Named only where CPUs differ in power.
fn capacity(topology: &Topology, cpus: &CpuSet) -> String {
    let mut found: Vec<u16> = cpus.iter().filter_map(|id| topology.cpu(id)).map(|cpu| cpu.capacity).collect();
    found.sort_unstable();
    found.dedup();
    if found == [FULL_CAPACITY] {
        return String::new();
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    format!(", power {} of {FULL_CAPACITY}", found.join(" and "))
}

fn draw_core(topology: &Topology, owners: &Owners, core: &CpuSet) -> String {
    let cpus: Vec<String> = core.iter().map(|id| format!("{id}{}", mark(topology, owners, id))).collect();
    cpus.join("+")
}

fn mark(topology: &Topology, owners: &Owners, id: CpuId) -> String {
    if let Some(at) = owners.of(id) {
        return Owners::sign(at);
    }
    match (owners.reserved.contains(id), topology.isolated.contains(id)) {
        (true, _) => "R".into(),
        (false, true) => "i".into(),
        (false, false) => String::new(),
    }
}

fn wrapped(text: &mut String, words: &[String]) -> std::fmt::Result {
    let width = words.iter().map(String::len).max().unwrap_or(0).saturating_add(2);
    let per_line = (WIDTH.saturating_sub(6) / width.max(1)).max(1);
    for line in words.chunks(per_line) {
        let line: Vec<String> = line.iter().map(|word| format!("{word:<width$}")).collect();
        writeln!(text, "      {}", line.concat().trim_end())?;
    }
    Ok(())
}

fn legend(text: &mut String, topology: &Topology, owners: &Owners) -> std::fmt::Result {
    writeln!(text)?;
    if !topology.offline.is_empty() {
        writeln!(text, "switched off: {}", topology.offline)?;
    }
    if !topology.isolated.is_empty() {
        writeln!(text, "i  kept from the kernel's scheduler: {}", topology.isolated)?;
    }
    if !owners.reserved.is_empty() {
        writeln!(text, "R  kept for the system: {}", owners.reserved)?;
    }
    for (at, (name, cpus)) in owners.owned.iter().enumerate() {
        writeln!(text, "{}  {name}: {cpus}", Owners::sign(at))?;
    }
    Ok(())
}
