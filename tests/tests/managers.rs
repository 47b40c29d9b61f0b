//! Vectors of the CPU, memory, device and topology managers.

#[path = "vectors/checkpoints.rs"]
mod checkpoints;
#[path = "vectors/cpu_assignment.rs"]
mod cpu_assignment;
#[path = "vectors/cpu_hints.rs"]
mod cpu_hints;
#[path = "vectors/cpu_policy_static.rs"]
mod cpu_policy_static;
#[path = "vectors/cpuset.rs"]
mod cpuset;
#[path = "vectors/devices.rs"]
mod devices;
#[path = "vectors/machine.rs"]
mod machine;
#[path = "vectors/memory_policy_static.rs"]
mod memory_policy_static;
#[path = "vectors/pods.rs"]
mod pods;
#[path = "vectors/topology_merge.rs"]
mod topology_merge;

use serde_json::Value;

fn run(file: &str, check: fn(&Value) -> Result<(), String>) {
    let text = std::fs::read_to_string(machine::folder().join(file)).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let failed: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            check(row).err().map(|error| format!("{}: {error}", row["id"].as_str().unwrap_or("?")))
        })
        .collect();
    println!("{file}: {} of {} pass", rows.len() - failed.len(), rows.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn cpuset_vectors() {
    run("cpuset.json", cpuset::check);
}

#[test]
fn cpu_assignment_vectors() {
    run("cpu_assignment.json", cpu_assignment::check);
}

#[test]
fn topology_merge_vectors() {
    run("topology_merge.json", topology_merge::check);
}

#[test]
fn cpu_policy_static_vectors() {
    run("cpu_policy_static.json", cpu_policy_static::check);
}

#[test]
fn cpu_hints_vectors() {
    run("cpu_hints.json", cpu_hints::check);
}

#[test]
fn memory_policy_static_vectors() {
    run("memory_policy_static.json", memory_policy_static::check);
}

#[test]
fn device_vectors() {
    run("device_hints.json", devices::check_hints);
    run("device_allocate.json", devices::check_allocate);
}

#[test]
fn checkpoints_vectors() {
    run("checkpoints.json", checkpoints::check);
}
