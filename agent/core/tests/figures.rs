//! Times of the decisions that grow with the machine. Not a test of right or wrong: run by hand with an optimised build,
//!
//!     cargo test -p podkeep-core --test figures --release -- --ignored --nocapture
//!
//! and read the table. Each figure is the best of several runs.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use podkeep_core::{
    resource::{
        cpu_spread::take_distributed,
        cpu_take::{Sorting, TakeOptions, take_packed},
        layout::CpuLayout,
        ledger::NodeResources,
        request::{Amount, ContainerRequest, PodRequest},
        settings::{CpuSettings, Settings},
    },
    topology::{
        distance::{Distances, MaskRule},
        hint::Hint,
        masks::MaskFamily,
        merge::merge,
        policy::{Policy, PolicyOptions},
    },
};
use podkeep_hal::{
    cpu_set::CpuSet,
    numa_mask::NumaMask,
    topology::{Builder, Cpu, Topology},
};

/// Best of `runs`.
fn best<T>(runs: u32, mut work: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let started = Instant::now();
        black_box(work());
        started.elapsed()
    };
    (0..runs).map(time).min().unwrap()
}

/// A small generator, so that the figures of two runs are of the same input.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn machine(nodes: u16, cpus: u16) -> Topology {
    let mut builder = Builder::new();
    for id in 0..cpus {
        let core = id % (cpus / 2).max(1);
        let node = core * nodes / (cpus / 2).max(1);
        let package = node / 4;
        let cpu =
            Cpu { core, package, node: u8::try_from(node).unwrap(), uncore: core / 8, ..Cpu::alone(id) };
        builder.cpu(cpu).unwrap();
    }
    for node in 0..u8::try_from(nodes).unwrap() {
        builder.node(node, 0).unwrap().memory_bytes = 64 << 30;
    }
    builder.finish().unwrap()
}

fn all(nodes: u32) -> NumaMask {
    NumaMask(u64::MAX >> (64 - nodes))
}

#[test]
#[ignore = "prints figures"]
fn merging_hints() {
    println!("nodes  providers  hints each  kind            time");
    for nodes in [1u32, 2, 4, 8, 12, 16, 24, 32, 48, 64] {
        let family = MaskFamily::new(all(nodes), &Distances::default());
        let masks: Vec<NumaMask> = family.inside(all(nodes)).collect();
        // everything fits everywhere: the shortest way
        let easy: Vec<Vec<Hint>> =
            (0..6).map(|_| masks.iter().map(|mask| Hint::new(*mask, mask.count() == 1)).collect()).collect();
        // nothing is preferred, and every provider offers other sets: the longest way
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let hostile: Vec<Vec<Hint>> = (0..6)
            .map(|_| {
                let count = masks.len().min(4000);
                (0..count).map(|_| Hint::new(NumaMask(random.next() & all(nodes).0 | 1), false)).collect()
            })
            .collect();
        for (kind, lists) in [("all fit", &easy), ("hostile", &hostile)] {
            let time = best(9, || merge(all(nodes), lists, MaskRule::default()));
            println!("{nodes:>5}  {:>9}  {:>10}  {kind:<8}  {time:>10.1?}", lists.len(), lists[0].len());
        }
        let distances = Distances::default();
        let rule = MaskRule { closest: Some(&distances) };
        let time = best(5, || merge(all(nodes), &hostile, rule));
        println!(
            "{nodes:>5}  {:>9}  {:>10}  hostile, closest  {time:>10.1?}",
            hostile.len(),
            hostile[0].len()
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn admitting_pods() {
    println!("nodes   CPUs  layout      packed      over nodes  admission   refusal");
    for (nodes, cpus) in [(1u16, 8u16), (2, 48), (4, 64), (8, 256), (16, 512), (32, 1024), (64, 1024)] {
        let topology = machine(nodes, cpus);
        let layout = CpuLayout::new(&topology);
        let available: CpuSet = layout.all.iter().filter(|id| id % 7 != 3).collect();
        let need = available.len() / 2;
        let grouping = best(5, || CpuLayout::new(&topology));
        let packed = best(5, || take_packed(&layout, &available, need, TakeOptions::default()));
        let spread = best(3, || take_distributed(&layout, &available, need / 2 * 2, 1, Sorting::Packed));
        let settings = Settings {
            cpu: Some(CpuSettings { reserved: 2, ..CpuSettings::default() }),
            memory: Some([(0, [("memory".to_owned(), 1u64 << 30)].into())].into()),
            policy: Policy::Restricted,
            policy_options: PolicyOptions { most_nodes: 64, prefer_closest: true },
            ..Settings::default()
        };
        let book = NodeResources::new(&topology, settings).unwrap();
        let pod = |cpus: u64, memory: u64| PodRequest {
            uid: "pod".into(),
            guaranteed: true,
            containers: vec![ContainerRequest {
                name: "main".into(),
                cpu: Amount { request: cpus * 1000, limit: cpus * 1000 },
                memory: Amount { request: memory, limit: memory },
                ..ContainerRequest::default()
            }],
            ..PodRequest::default()
        };
        let admission = best(5, || book.clone().admit(&pod(4, 8 << 30)).unwrap());
        let refusal = best(5, || book.clone().admit(&pod(u64::from(cpus) - 2, 1 << 50)).unwrap_err());
        println!(
            "{nodes:>5}  {cpus:>5}  {grouping:>9.1?}  {packed:>10.1?}  {spread:>10.1?}  {admission:>9.1?}  {refusal:>9.1?}"
        );
    }
}
