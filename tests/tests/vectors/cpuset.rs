//! `cpuset.json`: list text of CPU sets, and their algebra.

use podkeep_hal::cpu_set::{CpuListError, CpuSet, Ranges};
use serde_json::Value;

use super::machine::{same, text};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    let set = |value: &Value| -> CpuSet {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .map(|cpu| u16::try_from(cpu).unwrap())
            .collect()
    };
    let others = |join: fn(&CpuSet, &CpuSet) -> CpuSet| {
        row["others"].as_array().into_iter().flatten().fold(set(&row["a"]), |a, b| join(&a, &set(b)))
    };
    match text(row, "op")? {
        "parse" => parse(row),
        "format" => same("text", &set(&row["cpus"]).to_string().as_str(), &text(row, "expected")?),
        "union" => same("union", &others(CpuSet::union), &set(&row["expected_cpus"])),
        "intersection" => same("intersection", &others(CpuSet::intersection), &set(&row["expected_cpus"])),
        "difference" => same("difference", &others(CpuSet::difference), &set(&row["expected_cpus"])),
        "equals" => same("equal", &(set(&row["a"]) == set(&row["b"])), &row["expected"].as_bool().unwrap()),
        "is_subset" => {
            same("subset", &set(&row["a"]).is_subset(&set(&row["b"])), &row["expected"].as_bool().unwrap())
        }
        op => Err(format!("unknown op {op}")),
    }
}

fn parse(row: &Value) -> Result<(), String> {
    let input = text(row, "input")?;
    let parsed = CpuSet::parse(input);
    if row["expected_error"] == true {
        return parsed.err().map(|_| ()).ok_or_else(|| "parsed, expected an error".into());
    }
    let wanted: Vec<u64> =
        row["expected_cpus"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    match parsed {
        Ok(set) => {
            same("cpus", &set.iter().map(u64::from).collect(), &wanted)?;
            same("canonical", &set.to_string().as_str(), &text(row, "expected_canonical")?)
        }
        // the list is understood; only the bitmap has no room for such a number
        Err(CpuListError::TooLarge { .. }) => {
            let ranges: Result<Vec<(u64, u64)>, CpuListError> = Ranges::of(input).collect();
            let mut cpus: Vec<u64> = ranges
                .map_err(|error| error.to_string())?
                .into_iter()
                .flat_map(|(first, last)| first..=last)
                .collect();
            cpus.sort_unstable();
            cpus.dedup();
            same("cpus", &cpus, &wanted)
        }
        Err(error) => Err(error.to_string()),
    }
}
