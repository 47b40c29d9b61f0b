//! Cases CPU, MEM and TOP: reports about comparable programs as inputs, with the right behaviour, as far as they can be
//! decided without running containers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed check of a test ends it"
)]

use std::{collections::BTreeMap, fs, path::PathBuf};

use podkeep::{config, source::decode::decode_file};
use podkeep_core::{
    desired::Object,
    resource::{
        device::{Device, nodes_of},
        grant::ContainerGrant,
        ledger::NodeResources,
        request::PodRequest,
        restore::{Running, Saved},
        settings::{CpuSettings, Settings},
    },
    topology::policy::Policy,
};
use podkeep_hal::{
    board::Inventory, cpu_set::CpuSet, linux::inventory::Machine, numa_mask::NumaMask, snapshot::Snapshot,
    topology::Topology,
};

fn case(path: &str) -> PathBuf {
    let folder = std::env::var_os("PODKEEP_CASES")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data/cases")), PathBuf::from);
    folder.join(path)
}

fn machine(path: &str) -> Topology {
    let text = fs::read_to_string(case(path)).unwrap();
    Machine::new(Snapshot::from_lines(&text)).topology().unwrap()
}

fn pod(path: &str) -> PodRequest {
    let decoded = decode_file(&fs::read(case(path)).unwrap(), path);
    assert_eq!(decoded.errors, [], "{path}");
    let Some(Object::Pod(pod)) = decoded.objects.into_iter().next().map(|placed| placed.object) else {
        panic!("{path} holds no pod");
    };
    let mut pod = *pod;
    podkeep_core::defaults::pod(&mut pod);
    let mut request = PodRequest::from(&pod);
    request.uid = path.rsplit('/').next().unwrap().to_owned();
    request
}

fn cpus(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

fn static_cpu(reserved: &str) -> Settings {
    let listed = cpus(reserved);
    let cpu = CpuSettings { reserved: listed.len(), listed: Some(listed), ..CpuSettings::default() };
    Settings { cpu: Some(cpu), ..Settings::default() }
}

fn book(topology: &Topology, settings: Settings) -> NodeResources {
    NodeResources::new(topology, settings).unwrap()
}

fn admit(book: &mut NodeResources, pod: &PodRequest) -> Vec<ContainerGrant> {
    let grants = book.admit(pod).unwrap_or_else(|rejection| panic!("{}: {rejection}", pod.uid));
    book.check().unwrap();
    grants
}

fn only(book: &mut NodeResources, pod: &PodRequest) -> ContainerGrant {
    admit(book, pod).pop().unwrap()
}

#[test]
fn c_cpu_01_more_cpus_than_last_time() {
    let pinned = pod("cpu/C-CPU-01/pinned.yaml");
    let one = machine("cpu/C-CPU-01/one.sysfs");
    let state = fs::read_to_string(case("cpu/C-CPU-01/state.json")).unwrap();
    let mut small = book(&one, static_cpu("0"));
    assert_eq!(small.import(Saved { cpu: state.trim(), memory: "" }, &[]), Vec::<String>::new());
    assert!(small.admit(&pinned).is_err(), "two CPUs do not fit on one");
    let mut large = book(&machine("cpu/C-CPU-01/four.sysfs"), static_cpu("0"));
    let notes = large.import(Saved { cpu: &small.export_cpu(), memory: "" }, &[]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(large.shared_pool(), cpus("0-3"));
    let grant = only(&mut large, &pinned);
    assert!(grant.exclusive && grant.cpuset.len() == 2 && !grant.cpuset.contains(0));
}

#[test]
fn c_cpu_02_policy_switched_and_back() {
    let topology = machine("cpu/C-CPU-01/four.sysfs");
    let settings = |file: &str| {
        let text = fs::read(case(&format!("cpu/C-CPU-02/{file}"))).unwrap();
        let text =
            [b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", &text[..]].concat();
        Settings::new(&config::from_texts(&[(file, &text)]).unwrap().kubelet).unwrap()
    };
    let mut none = book(&topology, settings("none.yaml"));
    let grant = only(&mut none, &pod("cpu/C-CPU-02/pinned.yaml"));
    assert!(!grant.exclusive && grant.cpuset == cpus("0-3"));
    let mut fixed = book(&topology, settings("static.yaml"));
    let notes = fixed.import(Saved { cpu: &none.export_cpu(), memory: "" }, &[]);
    assert!(notes[0].contains("differs from state checkpoint policy"), "{notes:?}");
    assert_eq!(only(&mut fixed, &pod("cpu/C-CPU-02/pinned.yaml")).cpuset, cpus("1"));
    let mut back = book(&topology, settings("none.yaml"));
    assert_eq!(back.import(Saved { cpu: &fixed.export_cpu(), memory: "" }, &[]).len(), 1);
    assert_eq!(back.shared_pool(), cpus("0-3"));
}

#[test]
fn c_cpu_03_board_without_node_folder() {
    let topology = machine("cpu/C-CPU-03/rpi4.sysfs");
    assert_eq!((topology.cpus.len(), topology.groups(|cpu| cpu.core).count()), (4, 4));
    assert_eq!((topology.groups(|cpu| cpu.package).count(), topology.nodes.len()), (1, 1));
    assert_eq!(topology.memory_bytes(), 3_884_280 * 1024);
    let settings = Settings { policy: Policy::SingleNumaNode, ..static_cpu("0") };
    let grant = only(&mut book(&topology, settings), &pod("cpu/C-CPU-03/pinned.yaml"));
    assert_eq!(grant.cpuset, cpus("1-2"));
}

#[test]
fn c_cpu_04_odd_cpus_switched_off() {
    let topology = machine("cpu/C-CPU-04/offline.sysfs");
    assert_eq!(topology.online(), cpus("0,2,4,6"));
    assert_eq!(topology.offline, cpus("1,3,5,7"));
    let mut book = book(&topology, static_cpu("0"));
    assert_eq!(only(&mut book, &pod("cpu/C-CPU-04/be.yaml")).cpuset, cpus("0,2,4,6"));
    assert_eq!(only(&mut book, &pod("cpu/C-CPU-04/pinned.yaml")).cpuset, cpus("2,4"));
    assert_eq!(book.shared_pool(), cpus("0,6"));
}

#[test]
fn c_cpu_05_core_numbers_repeat_on_each_socket() {
    let topology = machine("cpu/C-CPU-05/twosock.sysfs");
    let mut settings = static_cpu("0,8");
    settings.cpu.as_mut().unwrap().options.full_pcpus_only = true;
    let mut book = book(&topology, settings);
    let two = only(&mut book, &pod("cpu/C-CPU-05/two.yaml")).cpuset;
    assert_eq!(two, cpus("1,9"));
    let four = only(&mut book, &pod("cpu/C-CPU-05/four.yaml")).cpuset;
    let whole: Vec<CpuSet> = topology.groups(|cpu| cpu.core).filter(|core| core.is_subset(&four)).collect();
    assert_eq!(whole.len(), 2);
    let packages: Vec<u16> = four.iter().map(|id| topology.cpu(id).unwrap().package).collect();
    assert!(packages.iter().all(|package| *package == packages[0]));
}

#[test]
fn c_cpu_06_cpus_of_finished_init_containers_come_back() {
    let topology = machine("cpu/C-CPU-01/four.sysfs");
    let (big, second) = (pod("cpu/C-CPU-06/init-big.yaml"), pod("cpu/C-CPU-06/second.yaml"));
    let mut book = book(&topology, static_cpu("0"));
    let start = book.shared_pool();
    for _ in 0..50 {
        let grants = admit(&mut book, &big);
        assert_eq!(grants[0].cpuset, cpus("1-3"));
        assert_eq!(grants[1].cpuset.len(), 1);
        assert!(book.admit(&second).is_err(), "the init container has them all");
        book.release(&big.uid, "warm");
        book.check().unwrap();
        assert_eq!(only(&mut book, &second).cpuset, cpus("2-3"));
        assert!(book.readmit(&big, "warm").is_err(), "its CPUs are the second pod's now");
        book.release_pod(&second.uid);
        let again = book.readmit(&big, "warm").unwrap();
        assert_eq!(again.cpuset, cpus("1-3"), "an init container that restarts gets its own CPUs");
        book.release(&big.uid, "warm");
        assert_eq!(only(&mut book, &second).cpuset, cpus("2-3"));
        book.release_pod(&second.uid);
        book.release_pod(&big.uid);
        book.check().unwrap();
        assert_eq!(book.shared_pool(), start);
    }
}

#[test]
fn c_cpu_07_sidecar_keeps_its_own_cpus() {
    let topology = machine("cpu/C-CPU-01/four.sysfs");
    let mut book = book(&topology, static_cpu("0"));
    let side = pod("cpu/C-CPU-07/side.yaml");
    let grants = admit(&mut book, &side);
    let of: BTreeMap<&str, CpuSet> =
        grants.iter().map(|grant| (grant.container.as_str(), grant.cpuset)).collect();
    assert_eq!((of["side"].len(), of["main"].len()), (1, 2));
    assert!(of["side"].is_disjoint(&of["main"]));
    assert!(!of["once"].is_disjoint(&of["side"].union(&of["main"])), "the one-shot init container shares");
    // the sidecar restarts
    let again = book.readmit(&side, "side").unwrap();
    assert_eq!(again.cpuset, of["side"]);
}

fn static_memory(file: &str) -> Settings {
    let text = fs::read(case(file)).unwrap();
    let text =
        [b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", &text[..]].concat();
    Settings::new(&config::from_texts(&[("config.yaml", &text)]).unwrap().kubelet).unwrap()
}

#[test]
fn c_mem_01_node_memory_differs_after_each_boot() {
    let pinned = pod("mem/C-MEM-01/pinned.yaml");
    let settings = static_memory("mem/C-MEM-01/config.yaml");
    let mut first = book(&machine("mem/C-MEM-01/boot1.sysfs"), settings.clone());
    let grant = only(&mut first, &pinned);
    assert!(grant.mems.is_some());
    let state = first.export_memory().unwrap();
    let mut second = book(&machine("mem/C-MEM-01/boot2.sysfs"), settings.clone());
    let notes = second.import(Saved { cpu: "", memory: &state }, &[]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    second.check().unwrap();
    assert_eq!(second.holders_of(&pinned.uid), ["main"], "the grant is kept");
    assert_eq!(only(&mut second, &pinned).mems, grant.mems, "admission again changes nothing");
    // the grant is on node 0, which boot 3 leaves whole; moved to node 1, which is halved, it does not fit
    let moved = state.replace("\"numaAffinity\":[0]", "\"numaAffinity\":[1]");
    let moved = moved.replace(&moved[moved.find("\"checksum\":").unwrap()..], "\"checksum\":0}");
    let mut third = book(&machine("mem/C-MEM-01/boot3.sysfs"), settings);
    let notes = third.import(Saved { cpu: "", memory: &moved }, &[]);
    assert!(notes.iter().any(|note| note.contains("mem") && note.contains("main")), "{notes:?}");
    assert_eq!(third.holders_of(&pinned.uid), [""; 0]);
    third.check().unwrap();
}

#[test]
fn c_mem_02_hugepages_set_aside_later() {
    let mut settings = static_memory("mem/C-MEM-01/config.yaml");
    settings.cpu = None;
    let huge = pod("mem/C-MEM-02/huge.yaml");
    let mut topology = machine("mem/C-MEM-03/nodes.sysfs");
    let pool = |pages| podkeep_hal::topology::HugePool { page_bytes: 2 << 20, pages, free: pages };
    topology.nodes[0].huge.push(pool(0)).unwrap();
    let mut book = book(&topology, settings);
    let refused = book.admit(&huge).unwrap_err();
    assert!(refused.message.contains("no NUMA nodes with enough memory"), "{refused}");
    topology.nodes[0].huge[0] = pool(32);
    let (changes, notes) = book.follow(&topology).unwrap();
    assert_eq!((changes.len(), notes.len()), (0, 0));
    assert_eq!(only(&mut book, &huge).mems, Some(NumaMask::only(0)));
}

#[test]
fn c_mem_03_grant_over_two_nodes_then_remove_and_add() {
    let topology = machine("mem/C-MEM-03/nodes.sysfs");
    let settings = static_memory("mem/C-MEM-01/config.yaml");
    let file = |name: &str| pod(&format!("mem/C-MEM-03/{name}.yaml"));
    let (big, small, small2) = (file("big"), file("small"), file("small2"));
    let mut first = book(&topology, settings.clone());
    assert_eq!(only(&mut first, &big).mems, Some(NumaMask(0b11)));
    admit(&mut first, &small);
    first.release_pod(&small.uid);
    admit(&mut first, &small2);
    let mut again = book(&topology, settings);
    assert_eq!(
        again.import(Saved { cpu: "", memory: &first.export_memory().unwrap() }, &[]),
        Vec::<String>::new()
    );
    again.check().unwrap();
    assert_eq!(again.holders_of(&big.uid), ["main"]);
    assert_eq!(again.holders_of(&small2.uid), ["main"]);
}

fn device(nodes: &[i64], all: NumaMask) -> (Device, bool) {
    let (nodes, unknown) = nodes_of(nodes, all);
    (Device { healthy: true, nodes }, unknown)
}

#[test]
fn c_top_01_plugin_sends_an_empty_topology() {
    let topology = machine("top/C-TOP-02/n.sysfs");
    let settings = Settings { policy: Policy::SingleNumaNode, ..static_cpu("0") };
    let mut book = book(&topology, settings);
    let (device, unknown) = device(&[], topology.node_mask());
    assert!(!unknown);
    book.devices_mut()
        .list("example.test/enclave", [("e0".to_owned(), device.clone()), ("e1".to_owned(), device)]);
    let grant = only(&mut book, &pod("top/C-TOP-01/pod.yaml"));
    assert_eq!(grant.devices["example.test/enclave"].len(), 1);
    let nodes: Vec<u8> = grant.cpuset.iter().map(|id| topology.cpu(id).unwrap().node).collect();
    assert!(nodes.iter().all(|node| *node == nodes[0]), "{:?}", grant.cpuset);
}

#[test]
fn c_top_02_init_container_does_not_decide_for_the_app() {
    let topology = machine("top/C-TOP-02/n.sysfs");
    let settings = Settings { policy: Policy::SingleNumaNode, ..static_cpu("0") };
    let mut book = book(&topology, settings);
    let first = only(&mut book, &pod("top/C-TOP-02/first.yaml")).cpuset;
    let home = topology.cpu(first.first().unwrap()).unwrap().node;
    let grants = admit(&mut book, &pod("top/C-TOP-02/second.yaml"));
    let nodes: Vec<u8> = grants[1].cpuset.iter().map(|id| topology.cpu(id).unwrap().node).collect();
    assert_eq!(nodes.len(), 6);
    assert!(nodes.iter().all(|node| *node != home), "{:?}", grants[1].cpuset);
}

#[test]
fn c_top_03_device_on_no_node() {
    let topology = machine("top/C-TOP-02/n.sysfs");
    for policy in [Policy::SingleNumaNode, Policy::Restricted] {
        let mut book = book(&topology, Settings { policy, ..static_cpu("0") });
        let all = topology.node_mask();
        let devices = [("1", &[-1i64][..]), ("2", &[7]), ("3", &[i64::MAX])]
            .map(|(id, nodes)| (id, device(nodes, all)));
        let unknown: Vec<&str> =
            devices.iter().filter(|(_, (_, unknown))| *unknown).map(|(id, _)| *id).collect();
        assert_eq!(unknown, ["2", "3"], "a node that does not exist is told, minus one is not");
        book.devices_mut().list("example.test/vf", devices.map(|(id, (device, _))| (id.to_owned(), device)));
        let grant = only(&mut book, &pod("top/C-TOP-03/pod.yaml"));
        assert_eq!(grant.devices["example.test/vf"].len(), 3);
    }
}

#[test]
fn running_containers_keep_what_they_hold() {
    let topology = machine("cpu/C-CPU-01/four.sysfs");
    let pinned = pod("cpu/C-CPU-02/pinned.yaml");
    let running = [Running { pod: pinned.uid.clone(), container: "main".into(), cpus: Some(cpus("2")) }];
    for state in ["", "{", r#"{"policyName":"static","defaultCpuSet":"0-3","checksum":1}"#] {
        let mut book = book(&topology, static_cpu("0"));
        let notes = book.import(Saved { cpu: state, memory: "" }, &running);
        assert!(!notes.is_empty());
        book.check().unwrap();
        assert_eq!(only(&mut book, &pinned).cpuset, cpus("2"), "{notes:?}");
        book.retain(|_, _| false);
        assert_eq!(book.shared_pool(), cpus("0-3"));
    }
}
