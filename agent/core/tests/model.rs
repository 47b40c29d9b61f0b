//! Long random sequences of admissions, removals, restarts and changes of the machine. After every step the books
//! balance; at the end, with everything released, they are as at the start.

use std::collections::{BTreeMap, BTreeSet};

use podkeep_core::{
    resource::{
        cpu_spread::take_distributed,
        cpu_take::{Sorting, TakeOptions, take_packed},
        device::Device,
        layout::CpuLayout,
        ledger::NodeResources,
        options::CpuOptions,
        request::{Amount, ContainerRequest, PodRequest, Role},
        restore::Saved,
        settings::{CpuSettings, Settings},
    },
    topology::policy::{Policy, PolicyOptions, Scope},
};
use podkeep_hal::{
    cpu_set::CpuSet,
    numa_mask::NumaMask,
    topology::{Builder, Cpu, HugePool, Topology},
};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// Packages × nodes of a package × cores of a node × threads of a core.
#[derive(Clone, Copy, Debug)]
struct Shape {
    packages: u16,
    nodes: u16,
    cores: u16,
    threads: u16,
}

fn shape() -> impl Strategy<Value = Shape> {
    (1u16..3, 1u16..3, 1u16..4, 1u16..3).prop_map(|(packages, nodes, cores, threads)| Shape {
        packages,
        nodes,
        cores,
        threads,
    })
}

fn machine(shape: Shape, offline: &CpuSet) -> Topology {
    let mut builder = Builder::new();
    let cores = shape.packages * shape.nodes * shape.cores;
    let mut off = CpuSet::EMPTY;
    for core in 0..cores {
        let node = core / shape.cores;
        let threads: Vec<u16> = (0..shape.threads).map(|thread| core + thread * cores).collect();
        let online: Vec<u16> = threads.iter().copied().filter(|id| !offline.contains(*id)).collect();
        threads.iter().filter(|id| offline.contains(**id)).for_each(|id| assert!(off.insert(*id)));
        for id in &online {
            let package = node / shape.nodes;
            let node = u8::try_from(node).unwrap();
            let cpu = Cpu { core: online[0], package, node, uncore: u16::from(node), ..Cpu::alone(*id) };
            builder.cpu(cpu).unwrap();
        }
    }
    for node in 0..u8::try_from(shape.packages * shape.nodes).unwrap() {
        let made = builder.node(node, 0).unwrap();
        made.memory_bytes = 8 * GIB;
        made.huge.push(HugePool { page_bytes: GIB, pages: 2, free: 2 }).unwrap();
    }
    builder.states(off, CpuSet::EMPTY);
    builder.finish().unwrap()
}

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![
        Just(Policy::None),
        Just(Policy::BestEffort),
        Just(Policy::Restricted),
        Just(Policy::SingleNumaNode)
    ];
    let options = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(full_pcpus_only, distribute_across_numa, strict_reservation, align_by_uncore)| CpuOptions {
            full_pcpus_only,
            distribute_across_numa,
            strict_reservation,
            align_by_uncore: align_by_uncore && !distribute_across_numa,
            ..CpuOptions::default()
        },
    );
    (policy, any::<bool>(), any::<bool>(), any::<bool>(), options).prop_map(
        |(policy, pod, closest, level, options)| {
            let memory = BTreeMap::from([(0u8, BTreeMap::from([("memory".to_owned(), GIB / 2)]))]);
            Settings {
                cpu: Some(CpuSettings { reserved: 1, listed: None, options }),
                memory: Some(memory),
                policy,
                scope: if pod { Scope::Pod } else { Scope::Container },
                policy_options: PolicyOptions { prefer_closest: closest, ..PolicyOptions::default() },
                pod_level: level,
            }
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Admit(PodRequest),
    /// Release the n-th of the admitted pods, all of it or its first container.
    Release(usize, bool),
    /// Give the n-th pod's first container what it had.
    Again(usize),
    /// Save, start anew, read back.
    Restart,
    /// Switch a CPU off or on.
    Switch(u16),
}

fn container() -> impl Strategy<Value = ContainerRequest> {
    let role = prop_oneof![Just(Role::Init), Just(Role::Sidecar), Just(Role::App), Just(Role::App)];
    (role, 0u64..4, 0u64..4, 0u64..2, 0u64..3).prop_map(|(role, cpus, memory, huge, devices)| {
        ContainerRequest {
            name: String::new(),
            role,
            cpu: Amount { request: cpus * 1000, limit: cpus * 1000 },
            memory: Amount { request: memory * GIB / 2, limit: memory * GIB / 2 },
            huge: BTreeMap::from([("hugepages-1Gi".to_owned(), huge * GIB)]),
            devices: BTreeMap::from([("test/device".to_owned(), devices)]),
        }
    })
}

fn pod() -> impl Strategy<Value = PodRequest> {
    (proptest::collection::vec(container(), 1..4), proptest::option::weighted(0.2, 1u64..4)).prop_map(
        |(mut containers, level)| {
            // init containers and sidecars come first
            containers.sort_by_key(|container| container.role == Role::App);
            containers.iter_mut().zip(0..).for_each(|(container, at)| container.name = format!("c{at}"));
            let level = level.map(|cpus| Amount { request: cpus * 1000, limit: cpus * 1000 });
            PodRequest { uid: String::new(), guaranteed: true, containers, pod_cpu: level, pod_memory: None }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => pod().prop_map(Step::Admit),
        3 => (0usize..8, any::<bool>()).prop_map(|(at, whole)| Step::Release(at, whole)),
        1 => (0usize..8).prop_map(Step::Again),
        1 => Just(Step::Restart),
        1 => (1u16..24).prop_map(Step::Switch),
    ]
}

struct World {
    shape: Shape,
    offline: CpuSet,
    book: NodeResources,
    pods: Vec<PodRequest>,
    made: usize,
}

impl World {
    fn new(shape: Shape, settings: Settings) -> Self {
        let topology = machine(shape, &CpuSet::EMPTY);
        let mut book = NodeResources::new(&topology, settings).unwrap();
        let all = topology.node_mask();
        let device = |at: u8| Device {
            healthy: true,
            nodes: (at % 3 > 0).then_some(NumaMask::only(at % 2)).filter(|mask| mask.is_subset(all)),
        };
        book.devices_mut().list("test/device", (0..5u8).map(|at| (format!("d{at}"), device(at))));
        Self { shape, offline: CpuSet::EMPTY, book, pods: Vec::new(), made: 0 }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Admit(mut pod) => {
                self.made += 1;
                pod.uid = format!("pod{}", self.made);
                let before = format!("{:?}", self.book);
                match self.book.admit(&pod) {
                    Ok(grants) => {
                        self.judge(&pod, &grants);
                        self.pods.push(pod);
                    }
                    Err(rejection) => {
                        assert!(!rejection.message.is_empty());
                        assert_eq!(format!("{:?}", self.book), before, "a refusal changes nothing");
                    }
                }
            }
            Step::Release(at, whole) if !self.pods.is_empty() => {
                let at = at % self.pods.len();
                if whole {
                    let pod = self.pods.remove(at);
                    self.book.release_pod(&pod.uid);
                } else {
                    let pod = &self.pods[at];
                    self.book.release(&pod.uid, &pod.containers[0].name);
                }
            }
            Step::Again(at) if !self.pods.is_empty() => {
                let pod = self.pods[at % self.pods.len()].clone();
                let _outcome = self.book.readmit(&pod, &pod.containers[0].name);
            }
            Step::Release(..) | Step::Again(_) => {}
            Step::Restart => self.restart(),
            Step::Switch(id) => {
                let total = self.shape.packages * self.shape.nodes * self.shape.cores * self.shape.threads;
                let mut offline = self.offline;
                if !offline.remove(id % total) {
                    offline.insert(id % total);
                }
                if offline.len() == usize::from(total) {
                    return;
                }
                let topology = machine(self.shape, &offline);
                if let Ok((changes, _)) = self.book.follow(&topology) {
                    self.offline = offline;
                    for change in changes {
                        assert!(change.after.is_none_or(|after| after.is_subset(&topology.online())));
                    }
                }
            }
        }
        self.book.check().unwrap();
    }

    fn restart(&mut self) {
        let topology = machine(self.shape, &self.offline);
        let mut next = NodeResources::new(&topology, self.book.settings().clone()).unwrap();
        *next.devices_mut() = self.book.devices().clone();
        let memory = self.book.export_memory().unwrap();
        let notes = next.import(Saved { cpu: &self.book.export_cpu(), memory: &memory }, &[]);
        assert_eq!(notes, Vec::<String>::new(), "what was saved fits the same machine");
        assert_eq!(next.export_cpu(), self.book.export_cpu());
        assert_eq!(next.export_memory(), self.book.export_memory());
        self.book = next;
    }

    fn judge(&self, pod: &PodRequest, grants: &[podkeep_core::resource::grant::ContainerGrant]) {
        let level = self.book.settings().pod_level;
        for (container, grant) in pod.containers.iter().zip(grants) {
            assert_eq!(container.name, grant.container);
            assert!(!grant.cpuset.is_empty());
            if pod.pod_cpu.is_none() {
                let wanted = pod.exclusive_cpus(container);
                assert_eq!(grant.exclusive, wanted > 0);
                assert!(wanted == 0 || grant.cpuset.len() == wanted);
            } else if !level {
                assert!(!grant.exclusive, "a pod with its own amounts shares while the gate is off");
            }
            let devices = container.devices["test/device"];
            assert_eq!(grant.devices.get("test/device").map_or(0, BTreeSet::len) as u64, devices);
            let policy = self.book.settings().policy;
            if policy == Policy::SingleNumaNode && grant.exclusive && pod.pod_cpu.is_none() {
                assert_eq!(CpuLayout::new(self.book.topology()).nodes_of(&grant.cpuset).count(), 1);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn books_balance_after_every_step(
        shape in shape(),
        settings in settings(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new(shape, settings);
        let start = world.book.export_cpu();
        let start_memory = world.book.export_memory();
        for step in steps {
            world.play(step);
        }
        if !world.offline.is_empty() {
            let all = machine(shape, &CpuSet::EMPTY);
            if world.book.follow(&all).is_err() {
                return Ok(());
            }
        }
        for pod in std::mem::take(&mut world.pods) {
            world.book.release_pod(&pod.uid);
        }
        world.book.check().unwrap();
        prop_assert_eq!(world.book.export_cpu(), start);
        prop_assert_eq!(world.book.export_memory(), start_memory);
    }

    #[test]
    fn taken_cpus_are_available_and_as_many_as_asked(
        shape in shape(),
        bits in any::<u64>(),
        need in 0usize..20,
        spread in any::<bool>(),
        align in any::<bool>(),
        group in 1usize..3,
    ) {
        let topology = machine(shape, &CpuSet::EMPTY);
        let layout = CpuLayout::new(&topology);
        let available: CpuSet = layout.all.iter().filter(|id| bits >> (id % 64) & 1 == 1).collect();
        let sorting = if spread { Sorting::Spread } else { Sorting::Packed };
        let options = TakeOptions { sorting, align_by_uncore: align };
        for taken in [
            take_packed(&layout, &available, need, options),
            take_distributed(&layout, &available, need, group, sorting),
        ] {
            match taken {
                Ok(cpus) => {
                    prop_assert_eq!(cpus.len(), need);
                    prop_assert!(cpus.is_subset(&available));
                }
                Err(_) => prop_assert!(need > available.len()),
            }
        }
    }

    /// A request that whole cores can serve takes no more cores than necessary.
    #[test]
    fn packed_opens_the_fewest_cores(shape in shape(), need in 1usize..12) {
        let topology = machine(shape, &CpuSet::EMPTY);
        let layout = CpuLayout::new(&topology);
        let need = need.min(layout.all.len());
        let cpus = take_packed(&layout, &layout.all, need, TakeOptions::default()).unwrap();
        let opened = layout.cores.iter().filter(|core| !core.cpus.is_disjoint(&cpus)).count();
        prop_assert_eq!(opened, need.div_ceil(usize::from(shape.threads)));
    }
}
