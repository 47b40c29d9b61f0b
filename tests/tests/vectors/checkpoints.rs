//! `checkpoints.json`: the kubelet's state files, read and written.

use podkeep_core::{
    checkpoint::{
        Format,
        cpu::{self, ContainerIds},
        device::{self, DeviceState, Entry},
        memory,
    },
    resource::{cpu_state::CpuState, memory_state::MemoryState},
};
use podkeep_hal::cpu_set::CpuSet;
use serde_json::Value;

use super::{
    cpu_policy_static, machine,
    machine::{same, text},
    memory_policy_static,
};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    match (text(row, "op")?, text(row, "file")?) {
        ("restore", "cpu_manager_state") => {
            let restored = cpu::restore(text(row, "content")?, text(row, "configured_policy")?, &ids(row));
            match outcome(row, restored.map_err(|error| error.to_string()))? {
                Some(state) => same("state", &without_pods(row, state), &cpu_state(&row["expected_state"])?),
                None => Ok(()),
            }
        }
        ("restore", "memory_manager_state") => {
            let restored = memory::restore(text(row, "content")?, text(row, "configured_policy")?);
            match outcome(row, restored.map_err(|error| error.to_string()))? {
                Some(mut state) => {
                    let blocks = state.assignments.values_mut().flat_map(|held| held.values_mut());
                    blocks.for_each(|blocks| blocks.sort_by(|a, b| a.kind.cmp(&b.kind)));
                    same("state", &state, &memory_state(&row["expected_state"]))
                }
                None => Ok(()),
            }
        }
        ("write", "cpu_manager_state") => {
            let format = format(row, 4);
            let state = cpu_state(&row["state"])?;
            let written = cpu::encode(&state, text(&row["state"], "policy")?, format);
            same("bytes", &written.as_str(), &text(row, "expected_bytes")?)?;
            let policy = text(&row["state"], "policy")?;
            same("read back", &cpu::restore(&written, policy, &ContainerIds::new()), &Ok(state))
        }
        ("write", "memory_manager_state") => {
            let state = memory_state(&row["state"]);
            let policy = text(&row["state"], "policy")?;
            let written = memory::encode(&state, policy, format(row, 3));
            same("bytes", &written.as_str(), &text(row, "expected_bytes")?)?;
            same("read back", &memory::restore(&written, policy), &Ok(state))
        }
        ("round_trip", "kubelet_internal_checkpoint") => {
            let state = device_state(row);
            let written = device::encode(&state);
            same("bytes", &written.as_str(), &text(row, "expected_bytes")?)?;
            same("read back", &device::restore(&written), &Ok(state))
        }
        (op, file) => Err(format!("unknown op {op} of {file}")),
    }
}

fn format(row: &Value, envelope: u64) -> Format {
    if row["format_version"].as_u64() == Some(envelope) { Format::Envelope } else { Format::Plain }
}

fn outcome<T>(row: &Value, result: Result<T, String>) -> Result<Option<T>, String> {
    let parts = row["expected_error_contains"].as_array();
    match (result, parts) {
        (Ok(state), None) => Ok(Some(state)),
        (Ok(_), Some(parts)) => Err(format!("no error, expected {parts:?}")),
        (Err(error), None) => Err(error),
        (Err(error), Some(parts)) => {
            let missing = parts.iter().filter_map(Value::as_str).find(|part| !error.contains(part));
            missing.map_or(Ok(None), |part| Err(format!("\"{error}\" does not contain \"{part}\"")))
        }
    }
}

fn ids(row: &Value) -> ContainerIds {
    let field = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let list = row["container_map"].as_array().into_iter().flatten();
    list.map(|entry| (field(entry, "container_id"), (field(entry, "pod"), field(entry, "container"))))
        .collect()
}

/// With the gate for pods as a whole off the kubelet leaves their entries in the file and out of its state.
fn without_pods(row: &Value, mut state: CpuState) -> CpuState {
    if row["expected_state"]["pod_assignments"].is_null() {
        state.pods.clear();
    }
    state
}

fn cpu_state(value: &Value) -> Result<CpuState, String> {
    let pods = value["pod_assignments"].as_object().into_iter().flatten();
    Ok(CpuState {
        default: machine::cpus(value, "default_cpuset")?,
        assignments: cpu_policy_static::assignments(&value["assignments"]),
        pods: pods
            .map(|(pod, cpus)| (pod.clone(), CpuSet::parse(cpus.as_str().unwrap_or_default()).unwrap()))
            .collect(),
    })
}

fn memory_state(value: &Value) -> MemoryState {
    MemoryState {
        machine: memory_policy_static::machine(&value["machine_state"]),
        assignments: memory_policy_static::assignments(&value["assignments"]),
    }
}

fn device_state(row: &Value) -> DeviceState {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let entry = |value: &Value| Entry {
        pod: value["pod_uid"].as_str().unwrap().into(),
        container: value["container"].as_str().unwrap().into(),
        resource: value["resource"].as_str().unwrap().into(),
        devices: value["devices_per_numa"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(node, ids)| (node.parse().unwrap(), texts(ids)))
            .collect(),
        answer: bytes(value["alloc_response_protobuf_hex"].as_str().unwrap()),
    };
    DeviceState {
        entries: row["pod_devices"].as_array().into_iter().flatten().map(entry).collect(),
        registered: row["registered_devices"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(resource, ids)| (resource.clone(), texts(ids)))
            .collect(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
