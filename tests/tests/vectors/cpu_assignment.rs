//! `cpu_assignment.json`: which CPUs the allocator takes. Where the peer has a defect, the plain rule is expected.

use podkeep_core::resource::{
    cpu_spread::take_distributed,
    cpu_take::{Sorting, TakeError, TakeOptions, Taking, take_packed},
};
use podkeep_hal::cpu_set::CpuSet;
use serde_json::Value;

use super::machine::{count, cpus, layout, same, text};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    let layout = layout(row)?;
    let available = cpus(row, "available")?;
    let taking = |need| Taking::new(&layout, &available, need, Sorting::Packed);
    match text(row, "op")? {
        "free_sockets" => ids(row, taking(0).free_sockets().iter().map(|group| group.id).collect()),
        "free_numa_nodes" => ids(row, taking(0).free_nodes().iter().map(|group| group.id).collect()),
        "free_cores" => ids(row, taking(0).free_cores().iter().map(|group| group.id).collect()),
        "free_cpus" => ids(row, taking(0).free_cpus()),
        "accumulator_take" => {
            let mut taking = taking(count(row, "num_cpus")?);
            for turn in row["take_in_turn"].as_array().into_iter().flatten() {
                taking.take(&CpuSet::parse(turn.as_str().unwrap()).unwrap());
            }
            same("satisfied", &taking.is_satisfied(), &row["expected_satisfied"].as_bool().unwrap())?;
            same("failed", &taking.is_failed(), &row["expected_failed"].as_bool().unwrap())?;
            same("still needed", &taking.still_needed(), &count(row, "expected_still_needed")?)
        }
        "take" => take(row, &layout, &available),
        op => Err(format!("unknown op {op}")),
    }
}

fn ids(row: &Value, mut found: Vec<u16>) -> Result<(), String> {
    let mut wanted: Vec<u16> = row["expected_ids"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .map(|id| u16::try_from(id).unwrap())
        .collect();
    if row["compare"] == "set" {
        found.sort_unstable();
        wanted.sort_unstable();
    }
    same("ids", &found, &wanted)
}

fn take(
    row: &Value,
    layout: &podkeep_core::resource::layout::CpuLayout,
    available: &CpuSet,
) -> Result<(), String> {
    let need = count(row, "num_cpus")?;
    let options = &row["options"];
    let sorting =
        if options["distribute_cpus_across_cores"] == true { Sorting::Spread } else { Sorting::Packed };
    let found = match text(row, "algorithm")? {
        "packed" => {
            let align_by_uncore = options["prefer_align_cpus_by_uncorecache"] == true;
            take_packed(layout, available, need, TakeOptions { sorting, align_by_uncore })
        }
        _ => {
            let group =
                options["cpu_group_size"].as_u64().and_then(|group| usize::try_from(group).ok()).unwrap_or(1);
            take_distributed(layout, available, need, group, sorting)
        }
    };
    let error = &row["expected_error"];
    match found {
        Err(TakeError::NotEnough { requested, available }) if !error.is_null() => {
            same("requested", &requested, &count(error, "requested")?)?;
            same("available", &available, &count(error, "available")?)?;
            same("message", &found.unwrap_err().to_string().as_str(), &text(error, "message")?)
        }
        Err(error) => Err(error.to_string()),
        Ok(cpus) if !error.is_null() => Err(format!("took {cpus}, expected {error}")),
        Ok(found) => {
            let key = if row["result_without_quirk"].is_string() {
                "result_without_quirk"
            } else {
                "expected_cpus"
            };
            same("cpus", &found, &cpus(row, key)?)
        }
    }
}
