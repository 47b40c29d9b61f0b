//! `memory_policy_static.json`: the static memory policy from start to removal.

use std::collections::BTreeMap;

use podkeep_core::{
    resource::{
        memory::{StaticMemory, validate_reserved},
        memory_state::{
            Block, MachineMemory, MemoryAssignments, MemoryError, MemoryState, MemoryTable, NodeMemory,
            ReservedMemory, machine_memory,
        },
        request::ContainerRequest,
    },
    topology::{distance::Distances, hint::Offers, masks::MaskFamily},
};
use podkeep_hal::{
    numa_mask::{NodeId, NumaMask},
    topology::{Builder, Cpu, HugePool},
};
use serde_json::Value;

use super::{
    machine::{same, text},
    pods::pod,
    topology_merge::{hint, hints},
};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    match text(row, "op")? {
        "new" => outcome(row, validate_reserved(&reserved(row))).map(|_| ()),
        "start" => start(row),
        "allocate" => {
            let container = text(row, "container")?;
            allocate(row, &[container])
        }
        "allocate_sequence" => {
            let order: Vec<&str> =
                row["order"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            allocate(row, &order)
        }
        "remove" => {
            let mut policy = running(row);
            policy.remove(text(row, "pod_uid")?, text(row, "container")?);
            after(row, &policy)
        }
        "topology_hints" => {
            let policy = running(row);
            let pod = pod(&row["pod"]);
            let found = policy.hints(&pod, text(row, "container")?, &family(&policy));
            same("hints", &found, &offers(&row["expected_hints"]))
        }
        "pod_requested_resources" => {
            let found = pod(&row["pod"]).widest_by_name(ContainerRequest::memory_types);
            same("amounts", &found, &amounts(&row["expected"]))
        }
        op => Err(format!("unknown op {op}")),
    }
}

fn amounts(value: &Value) -> BTreeMap<String, u64> {
    let list = value.as_object().into_iter().flatten();
    list.map(|(name, bytes)| (name.clone(), bytes.as_u64().unwrap())).collect()
}

pub(crate) fn offers(value: &Value) -> Offers {
    let list = value.as_object().into_iter().flatten();
    list.map(|(name, list)| (name.clone(), hints(list))).collect()
}

fn reserved(row: &Value) -> ReservedMemory {
    let list = row["system_reserved"].as_object().into_iter().flatten();
    list.map(|(node, kinds)| (node.parse().unwrap(), amounts(kinds))).collect()
}

fn nodes(value: &Value) -> Vec<NodeId> {
    value.as_array().into_iter().flatten().map(|id| u8::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

pub(crate) fn machine(value: &Value) -> MachineMemory {
    let table = |value: &Value| {
        let bytes = |key: &str| value[key].as_u64().unwrap();
        MemoryTable {
            total: bytes("total"),
            system_reserved: bytes("system_reserved"),
            allocatable: bytes("allocatable"),
            reserved: bytes("reserved"),
            free: bytes("free"),
        }
    };
    let node = |value: &Value| NodeMemory {
        assignments: value["number_of_assignments"].as_u64().unwrap(),
        tables: value["memory_map"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(kind, value)| (kind.clone(), table(value)))
            .collect(),
        cells: nodes(&value["cells"]),
    };
    let list = value.as_object().into_iter().flatten();
    list.map(|(id, value)| (id.parse().unwrap(), node(value))).collect()
}

pub(crate) fn assignments(value: &Value) -> MemoryAssignments {
    let block = |value: &Value| Block {
        affinity: nodes(&value["numa_affinity"]),
        kind: value["type"].as_str().unwrap().into(),
        size: value["size"].as_u64().unwrap(),
    };
    let blocks = |value: &Value| {
        let mut blocks: Vec<Block> = value.as_array().unwrap().iter().map(block).collect();
        // the order of blocks has no meaning; ours is by type
        blocks.sort_by(|a, b| a.kind.cmp(&b.kind));
        blocks
    };
    let containers = |value: &Value| {
        value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), blocks(value))).collect()
    };
    let list = value.as_object().into_iter().flatten();
    list.map(|(pod, value)| (pod.clone(), containers(value))).collect()
}

fn state_before(row: &Value) -> MemoryState {
    MemoryState {
        machine: machine(&row["machine_state_before"]),
        assignments: assignments(&row["assignments_before"]),
    }
}

/// The unit tests hand the policy a state it has not judged.
fn running(row: &Value) -> StaticMemory {
    let state = state_before(row);
    let mut policy = StaticMemory::new(state.machine.clone());
    policy.set_state(state);
    policy
}

fn family(policy: &StaticMemory) -> MaskFamily {
    let all: NumaMask = policy.state().machine.keys().copied().collect();
    MaskFamily::new(all, &Distances::default())
}

fn outcome(row: &Value, result: Result<(), MemoryError>) -> Result<bool, String> {
    let wanted = &row["expected_error"];
    match result {
        Ok(()) if wanted.is_null() => Ok(true),
        Ok(()) => Err(format!("no error, expected {wanted}")),
        Err(error) if wanted.is_null() => Err(error.to_string()),
        Err(error) => {
            same("code", &error.code(), &text(wanted, "code")?)?;
            same("message", &error.to_string().as_str(), &text(wanted, "message")?)?;
            Ok(false)
        }
    }
}

fn after(row: &Value, policy: &StaticMemory) -> Result<(), String> {
    same("assignments", &policy.state().assignments, &assignments(&row["expected_assignments"]))?;
    same("machine", &policy.state().machine, &machine(&row["expected_machine_state"]))
}

fn start(row: &Value) -> Result<(), String> {
    let mut builder = Builder::new();
    let cpu = Cpu::alone(0);
    for node in row["machine"].as_array().into_iter().flatten() {
        let id = u8::try_from(node["id"].as_u64().unwrap()).unwrap();
        let made = builder.node(id, node["memory"].as_u64().unwrap()).unwrap();
        for pool in node["hugepages"].as_array().into_iter().flatten() {
            let pages = pool["pages"].as_u64().unwrap();
            let page_bytes = pool["page_size"].as_u64().unwrap();
            made.huge.push(HugePool { page_bytes, pages, free: pages }).unwrap();
        }
    }
    builder.cpu(cpu).unwrap();
    let topology = builder.finish().unwrap();
    let mut policy = StaticMemory::new(machine_memory(&topology, &reserved(row)));
    let started = policy.start(state_before(row));
    if outcome(row, started)? { after(row, &policy) } else { Ok(()) }
}

fn allocate(row: &Value, order: &[&str]) -> Result<(), String> {
    let mut policy = running(row);
    let family = family(&policy);
    let pod = pod(&row["pod"]);
    let hint = hint(&row["topology_hint"]);
    let result = order.iter().try_for_each(|container| policy.allocate(&pod, container, hint, &family));
    if outcome(row, result)? { after(row, &policy) } else { Ok(()) }
}
