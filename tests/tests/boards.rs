//! Boards as recorded machines: each loads, and gives what its `expect.json` says. The same checks run on the files in
//! memory, on the files unpacked into a folder, on the simulated machine, and (those that need no expectation) on the
//! machine the test runs on. `PODKEEP_BOARDS` names another folder of boards.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use podkeep_core::resource::layout::CpuLayout;
use podkeep_hal::{
    board::Inventory,
    cpu_set::CpuSet,
    linux::inventory::Machine,
    sim::machine::SimMachine,
    snapshot::{Entry, Snapshot},
    topology::Topology,
};
use serde_json::Value;

fn folder() -> PathBuf {
    std::env::var_os("PODKEEP_BOARDS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data/boards")), PathBuf::from)
}

fn boards() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().flatten();
    let mut boards: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    boards.sort();
    assert!(!boards.is_empty());
    boards
}

fn snapshot(board: &Path) -> Snapshot {
    let text = fs::read_to_string(board.join("tree.json")).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", board.display()))
}

fn set(value: &Value) -> CpuSet {
    CpuSet::parse(value.as_str().unwrap()).unwrap()
}

/// What every machine has to keep, whatever it is.
fn keeps_the_contract(machine: &impl Inventory) -> Topology {
    let topology = machine.topology().unwrap();
    topology.check().unwrap();
    assert_eq!(machine.topology().as_ref(), Ok(&topology), "asking changes nothing");
    let placement = topology.for_placement();
    placement.check().unwrap();
    assert_eq!(placement.memory_bytes(), topology.memory_bytes());
    assert_eq!(placement.online(), topology.online());
    for cpu in &topology.cpus {
        assert!(
            cpu.core <= cpu.id && cpu.last_cache <= cpu.id && cpu.l2 <= cpu.id,
            "groups are named after the lowest"
        );
        assert!((1..=1024).contains(&cpu.capacity));
        let core = topology.cpu(cpu.core).unwrap();
        assert_eq!(
            (core.core, core.package, core.node),
            (cpu.core, cpu.package, cpu.node),
            "a core is of one piece"
        );
    }
    let board = machine.board();
    assert!(board.page_bytes.is_power_of_two());
    assert!(!board.kernel.release.is_empty());
    topology
}

fn gives_what_is_expected(machine: &impl Inventory, expect: &Value) {
    let topology = keeps_the_contract(machine);
    let board = machine.board();
    assert_eq!(topology.online(), set(&expect["online"]), "online");
    assert_eq!(topology.online().union(&topology.offline), set(&expect["present"]), "present");
    let cores: Vec<CpuSet> = topology.groups(|cpu| cpu.core).collect();
    let expected: Vec<CpuSet> = expect["cores"].as_array().unwrap().iter().map(set).collect();
    assert_eq!(cores, expected, "cores");
    let threads = cores.iter().map(CpuSet::len).max().unwrap();
    assert_eq!(threads as u64, expect["threads_per_core"].as_u64().unwrap(), "threads per core");
    let packages: BTreeMap<String, CpuSet> = topology
        .groups(|cpu| cpu.package)
        .map(|cpus| (topology.cpu(cpus.first().unwrap()).unwrap().package.to_string(), cpus))
        .collect();
    let expected = expect["packages"].as_object().unwrap();
    assert_eq!(packages, expected.iter().map(|(id, cpus)| (id.clone(), set(cpus))).collect(), "packages");
    last_level_caches(&topology, expect);
    numa(machine, &topology, expect);
    let huge: Vec<u64> = board.huge_sizes.iter().map(|bytes| bytes / 1024).collect();
    let expected: Vec<u64> =
        expect["hugepage_kib"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!(huge, expected, "huge page sizes");
    assert_eq!(board.page_bytes, expect["page_size"].as_u64().unwrap(), "page size");
    let capacity =
        |id: u16| expect["capacity"].as_object().map_or(1024, |of| of[&id.to_string()].as_u64().unwrap());
    for cpu in &topology.cpus {
        assert_eq!(u64::from(cpu.capacity), capacity(cpu.id), "capacity of {}", cpu.id);
    }
}

fn last_level_caches(topology: &Topology, expect: &Value) {
    let mut found: Vec<(u64, CpuSet)> = topology
        .groups(|cpu| cpu.last_cache)
        .map(|cpus| (u64::from(topology.cpu(cpus.first().unwrap()).unwrap().last_level), cpus))
        .filter(|(level, _)| *level > 0)
        .collect();
    found.sort_by_key(|(_, cpus)| cpus.first());
    let expected = expect["last_level_cache"].as_array().unwrap();
    let mut expected: Vec<(u64, CpuSet)> =
        expected.iter().map(|cache| (cache["level"].as_u64().unwrap(), set(&cache["cpus"]))).collect();
    expected.sort_by_key(|(_, cpus)| cpus.first());
    assert_eq!(found, expected, "last level caches");
}

fn numa(machine: &impl Inventory, topology: &Topology, expect: &Value) {
    let Some(nodes) = expect["numa"].as_array() else {
        assert!(!machine.board().kernel.numa);
        assert_eq!(topology.nodes.len(), 1, "a machine without node folders is one node");
        assert_eq!(topology.nodes[0].cpus, topology.online());
        assert_eq!(topology.memory_bytes(), machine.board().memory_bytes);
        return;
    };
    assert!(machine.board().kernel.numa);
    assert_eq!(topology.nodes.len(), nodes.len());
    for (node, expected) in topology.nodes.iter().zip(nodes) {
        assert_eq!(u64::from(node.id), expected["id"].as_u64().unwrap());
        assert_eq!(node.cpus, set(&expected["cpus"]), "CPUs of node {}", node.id);
        assert_eq!(
            node.memory_bytes,
            expected["mem_kib"].as_u64().unwrap() * 1024,
            "memory of node {}",
            node.id
        );
        let distances: Vec<u64> = node.distances.iter().map(|distance| u64::from(*distance)).collect();
        let expected: Vec<u64> =
            expected["distance"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert_eq!(distances, expected, "distances of node {}", node.id);
    }
}

/// Larger boards are checked in memory only: making tens of thousands of files takes minutes on a busy machine.
const UNPACKED_FILES: usize = 400;

/// Files of a snapshot below a folder; gone when dropped.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new(name: &str, snapshot: &Snapshot) -> Self {
        let folder = std::env::temp_dir().join(format!("podkeep-board-{name}-{}", std::process::id()));
        let unpacked = Self(folder);
        snapshot.walk(&mut |path, entry| {
            let path = unpacked.0.join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match entry {
                Entry::File(bytes) => fs::write(path, bytes).unwrap(),
                Entry::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                Entry::Folder(_) => {}
            }
        });
        unpacked
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn every_board_gives_what_it_expects() {
    for board in boards() {
        let name = board.file_name().unwrap().to_str().unwrap();
        let expect: Value =
            serde_json::from_str(&fs::read_to_string(board.join("expect.json")).unwrap()).unwrap();
        let snapshot = snapshot(&board);
        gives_what_is_expected(&Machine::new(snapshot.clone()), &expect);
        let mut files = 0;
        snapshot.walk(&mut |_, _| files += 1);
        if files <= UNPACKED_FILES {
            let unpacked = Unpacked::new(name, &snapshot);
            gives_what_is_expected(&Machine::at(&unpacked.0), &expect);
        }
        gives_what_is_expected(&SimMachine::new(snapshot), &expect);
        println!("{name}: {files} files");
    }
}

#[test]
fn this_machine_keeps_the_contract() {
    let topology = keeps_the_contract(&Machine::at("/"));
    println!("{} CPUs, {} nodes", topology.cpus.len(), topology.nodes.len());
}

#[test]
fn events_are_seen_and_undone() {
    for board in boards() {
        let mut machine = SimMachine::new(snapshot(&board));
        let before = keeps_the_contract(&machine);
        let node = before.nodes[0].id;
        if machine.board().kernel.numa {
            machine.set_memory(node, 5 << 30);
            assert_eq!(machine.topology().unwrap().nodes[0].memory_bytes, 5 << 30);
            machine.set_memory(node, before.nodes[0].memory_bytes);
            if let Some(pool) = before.nodes[0].huge.first() {
                machine.set_huge_pages(node, pool.page_bytes, 7);
                assert_eq!(machine.topology().unwrap().nodes[0].huge[0].pages, 7);
                machine.set_huge_pages(node, pool.page_bytes, pool.pages);
            }
        }
        let Some(last) = before.online().last().filter(|last| *last > 0) else { continue };
        machine.take_offline(last);
        let without = keeps_the_contract(&machine);
        assert!(!without.online().contains(last));
        assert!(without.offline.contains(last));
        assert_eq!(CpuLayout::new(&without).all.len(), before.online().len() - 1);
        machine.bring_online(last);
        assert_eq!(machine.topology().unwrap(), before);
    }
}

#[test]
fn emulated_nodes_count_as_one_for_placement() {
    let board = folder().join("rpi5-fakenuma");
    if !board.exists() {
        println!("skipped: no board rpi5-fakenuma in {}", folder().display());
        return;
    }
    let topology = Machine::new(snapshot(&board)).topology().unwrap();
    assert!(topology.nodes_overlap);
    let placement = topology.for_placement();
    assert_eq!(placement.nodes.len(), 1);
    assert_eq!(placement.memory_bytes(), 8 * 1_032_000 * 1024);
}

/// Every board is drawn, every CPU once, and the picture is well-formed as far as its tags go.
#[test]
fn boards_are_drawn() {
    use podkeep::board::{Owners, map::map, svg::svg};
    for board in boards() {
        let machine = Machine::new(snapshot(&board));
        let topology = machine.topology().unwrap();
        let last = topology.online().last().unwrap();
        let owners = Owners {
            reserved: CpuSet::only(0).difference(&CpuSet::only(last)),
            owned: vec![("pod <a> & b/main".into(), CpuSet::only(last))],
        };
        let text = map(&topology, &machine.board(), &owners);
        let drawn: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("      "))
            .flat_map(|line| line.split([' ', '+']))
            .filter(|word| !word.is_empty())
            .collect();
        assert_eq!(drawn.len(), topology.cpus.len(), "{text}");
        assert!(drawn.contains(&format!("{last}a").as_str()), "{text}");
        assert!(text.lines().all(|line| line.len() <= 200), "{text}");
        let picture = svg(&topology, &machine.board(), &owners);
        assert_eq!(picture.matches("<title>").count(), topology.cpus.len());
        assert_eq!(picture.matches("<g>").count(), picture.matches("</g>").count());
        assert!(picture.contains("pod &lt;a&gt; &amp; b/main") && !picture.contains("pod <a>"));
        if board.ends_with("xeon-4214x2-ht") {
            println!("{text}");
        }
    }
}
