//! `cpu_policy_static.json`: the static CPU policy from start to removal.

use podkeep_core::resource::{
    cpu::StaticCpu,
    cpu_pod::validate_bubble,
    cpu_state::{CpuAssignments, CpuError, CpuState},
    options::{CpuOptionGates, CpuOptions},
};
use podkeep_hal::cpu_set::CpuSet;
use serde_json::Value;

use super::{
    machine::{count, cpus, layout, mask, same, text},
    pods::pod,
    topology_merge::string_map,
};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    match text(row, "op")? {
        "start" => start(row),
        "allocate" => allocate(row),
        "allocate_sequence" => allocate_sequence(row),
        "remove" => {
            let mut policy = running(row)?;
            policy.remove(text(row, "pod_uid")?, text(row, "container")?);
            assignments_after(row, &policy)?;
            default_after(row, &policy)
        }
        "allocate_cpus" => {
            let mut policy = running(row)?;
            let taken = policy
                .take_near(count(row, "num_cpus")?, mask(&row["numa_affinity"]), &CpuSet::EMPTY)
                .map_err(|error| error.to_string())?;
            same("cpus", &taken, &cpus(row, "expected_cpus")?)?;
            default_after(row, &policy)
        }
        "allocate_pod" => allocate_pod(row),
        "validate_pod_scope" => validate(row),
        "options" => options(row),
        "smt_error_text" => {
            let error = &row["error"];
            let caused = error["caused_by_physical_cpus"] == true;
            let found = CpuError::SmtAlignment {
                requested: count(error, "requested")?,
                cpus_per_core: count(error, "cpus_per_core")?,
                available: caused.then(|| count(error, "available_physical_cpus")).transpose()?,
            };
            same("text", &found.to_string().as_str(), &text(row, "expected_text")?)
        }
        "pod_guaranteed_cpus" => {
            same("cpus", &pod(&row["pod"]).exclusive_cpus_of_pod(), &count(row, "expected_cpus_requested")?)
        }
        op => Err(format!("unknown op {op}")),
    }
}

/// The policy as configured, nothing owned.
pub(crate) fn fresh(row: &Value, reserved: usize) -> Result<StaticCpu, String> {
    let gates = CpuOptionGates { alpha: true, beta: true };
    let options =
        CpuOptions::parse(&string_map(&row["options"]), gates).map_err(|error| error.to_string())?;
    let listed = row["reserved_cpus"].as_str().map(|text| CpuSet::parse(text).unwrap());
    StaticCpu::new(layout(row)?, reserved, listed, options).map_err(|error| error.to_string())
}

pub(crate) fn state_before(row: &Value) -> Result<CpuState, String> {
    let state = &row["state_before"];
    Ok(CpuState {
        default: cpus(state, "default_cpuset")?,
        assignments: assignments(&state["assignments"]),
        ..CpuState::default()
    })
}

fn running(row: &Value) -> Result<StaticCpu, String> {
    let mut policy = fresh(row, count(row, "num_reserved_cpus")?)?;
    // the unit tests hand the policy a state it has not judged
    policy.set_state(state_before(row)?);
    Ok(policy)
}

pub(crate) fn assignments(value: &Value) -> CpuAssignments {
    let containers = |value: &Value| {
        let list = value.as_object().into_iter().flatten();
        list.map(|(name, cpus)| (name.clone(), CpuSet::parse(cpus.as_str().unwrap()).unwrap())).collect()
    };
    let pods = value.as_object().into_iter().flatten();
    pods.map(|(pod, value)| (pod.clone(), containers(value))).collect()
}

fn default_after(row: &Value, policy: &StaticCpu) -> Result<(), String> {
    same("default", &policy.state().default, &cpus(row, "expected_default_after")?)
}

fn assignments_after(row: &Value, policy: &StaticCpu) -> Result<(), String> {
    let mut found = policy.state().assignments.clone();
    // state that was there before is not repeated in the expectation
    let wanted = assignments(&row["expected_assignments_after"]);
    found.retain(|pod, _| wanted.contains_key(pod) || row["state_before"]["assignments"][pod].is_null());
    same("assignments", &found, &wanted)
}

fn failed(row: &Value, error: &CpuError) -> Result<(), String> {
    let wanted = &row["expected_error"];
    same("code", &error.code(), &text(wanted, "code")?)?;
    if let Some(message) = wanted["message"].as_str() {
        same("message", &error.to_string().as_str(), &message)?;
    }
    if let CpuError::SmtAlignment { requested, cpus_per_core, available } = error {
        same("requested", requested, &count(wanted, "requested")?)?;
        same("cpus per core", cpus_per_core, &count(wanted, "cpus_per_core")?)?;
        let caused = wanted["caused_by_physical_cpus"] == true;
        same("available", available, &caused.then(|| count(wanted, "available_physical_cpus")).transpose()?)?;
    }
    Ok(())
}

fn outcome<T>(row: &Value, result: Result<T, CpuError>) -> Result<Option<T>, String> {
    match (result, row["expected_error"].is_null()) {
        (Ok(value), true) => Ok(Some(value)),
        (Err(error), false) => failed(row, &error).map(|()| None),
        (Ok(_), false) => Err(format!("no error, expected {}", row["expected_error"])),
        (Err(error), true) => Err(error.to_string()),
    }
}

fn start(row: &Value) -> Result<(), String> {
    let mut policy = fresh(row, count(row, "num_reserved_cpus")?)?;
    let started = policy.start(state_before(row)?);
    match outcome(row, started)? {
        Some(()) => default_after(row, &policy),
        None => Ok(()),
    }
}

fn allocate(row: &Value) -> Result<(), String> {
    let mut policy = running(row)?;
    let hint = mask(&row["topology_hint"]["numa"]);
    let result = policy.allocate(&pod(&row["pod"]), text(row, "container")?, hint);
    if let Some(found) = outcome(row, result)? {
        let wanted = row["expected_cpus"].as_str().map(|text| CpuSet::parse(text).unwrap());
        same("cpus", &found, &wanted)?;
    }
    default_after(row, &policy)
}

fn allocate_sequence(row: &Value) -> Result<(), String> {
    let mut policy = running(row)?;
    let pod = pod(&row["pod"]);
    for name in row["order"].as_array().into_iter().flatten() {
        policy.allocate(&pod, name.as_str().unwrap(), None).map_err(|error| error.to_string())?;
    }
    assignments_after(row, &policy)?;
    if let Some(ids) = row["expected_uncore_ids"].as_array() {
        let owned = policy.state().assignments.get(&pod.uid).into_iter().flatten();
        let owned = owned.fold(CpuSet::EMPTY, |all, (_, cpus)| all.union(cpus));
        let touched = policy.layout().uncores.iter().filter(|uncore| !uncore.cpus.is_disjoint(&owned));
        let found: Vec<u64> = touched.map(|uncore| u64::from(uncore.id)).collect();
        same("uncore", &found, &ids.iter().filter_map(Value::as_u64).collect())?;
    }
    default_after(row, &policy)
}

fn allocate_pod(row: &Value) -> Result<(), String> {
    let mut policy = running(row)?;
    let pod = pod(&row["pod"]);
    let result = policy.allocate_pod(&pod, mask(&row["topology_hint"]["numa"]));
    if outcome(row, result)?.is_some() {
        assignments_after(row, &policy)?;
        same("pod", &policy.state().pods.get(&pod.uid).copied(), &Some(cpus(row, "expected_pod_cpuset")?))?;
        return default_after(row, &policy);
    }
    same("state", policy.state(), &state_before(row)?)
}

fn validate(row: &Value) -> Result<(), String> {
    let pod = pod(&row["pod"]);
    let budget = pod.bubble_cpus().ok_or("no whole pod cpus")?;
    match (validate_bubble(&pod, budget), row["rejection_message"].as_str()) {
        (Err(error), Some(message)) => same("message", &error.to_string().as_str(), &message),
        (result, _) => same("rejected", &result.is_err(), &(row["expected_rejected"] == true)),
    }
}

fn options(row: &Value) -> Result<(), String> {
    let gate = |name: &str| row["feature_gates"][name] == true;
    let gates = CpuOptionGates {
        alpha: gate("CPUManagerPolicyAlphaOptions"),
        beta: gate("CPUManagerPolicyBetaOptions"),
    };
    match CpuOptions::parse(&string_map(&row["options"]), gates) {
        Err(error) if row["expected_error"].is_null() => Err(error.to_string()),
        Err(_) => Ok(()),
        Ok(_) if !row["expected_error"].is_null() => Err("parsed, expected an error".into()),
        Ok(found) => {
            let wanted = |name: &str| row["expected_flags"][name] == true;
            let wanted = CpuOptions {
                full_pcpus_only: wanted("full-pcpus-only"),
                distribute_across_numa: wanted("distribute-cpus-across-numa"),
                align_by_socket: wanted("align-by-socket"),
                distribute_across_cores: wanted("distribute-cpus-across-cores"),
                strict_reservation: wanted("strict-cpu-reservation"),
                align_by_uncore: wanted("prefer-align-cpus-by-uncorecache"),
            };
            same("options", &found, &wanted)
        }
    }
}
