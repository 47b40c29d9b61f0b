//! `topology_merge.json`: merging of hints, policies and their options.

use std::collections::BTreeMap;

use podkeep_core::topology::{
    distance::{Distances, MaskRule},
    hint::{Hint, Offers, lists},
    merge::{better, common_size},
    policy::{Policy, PolicyOptions, single_node},
};
use podkeep_hal::{numa_mask::NumaMask, topology::parse_distances};
use serde_json::Value;

use super::machine::{count, mask, same, text};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    match text(row, "op")? {
        "merge" => merge(row),
        "admit" => same("admit", &policy(row)?.admits(&hint(&row["hint"])), &flag(row, "expected_admit")),
        "single_numa_filter" => {
            let found: Vec<Vec<Hint>> =
                hint_lists(&row["resources"]).iter().map(|list| single_node(list)).collect();
            same("hints", &found, &hint_lists(&row["expected"]))
        }
        "max_of_min_affinity_counts" => {
            same("size", &(common_size(&hint_lists(&row["hints"])) as usize), &count(row, "expected")?)
        }
        "compare_hints" => compare(row),
        "closest" => {
            let distances = distances(row);
            let rule = MaskRule { closest: Some(&distances) };
            let wins = rule.wins(mask(&row["candidate"]).unwrap(), mask(&row["current"]).unwrap());
            same("best", &if wins { "candidate" } else { "current" }, &text(row, "expected")?)
        }
        "average_distance" => {
            let (sum, pairs) = distances(row).average(mask(&row["mask"]).unwrap());
            same("average", &(sum as f64 / pairs as f64), &row["expected"].as_f64().unwrap())
        }
        "parse_distance_line" => match parse_distances(text(row, "input")?) {
            Some(found) => same("distances", &found.to_vec(), &numbers(&row["expected"])),
            None => same("error", &true, &flag(row, "expected_error")),
        },
        "numa_info" => numa_info(row),
        "policy_options" => options(row),
        "new_manager" => new_manager(row),
        op => Err(format!("unknown op {op}")),
    }
}

fn flag(row: &Value, key: &str) -> bool {
    row[key] == true
}

fn numbers(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .map(|n| u32::try_from(n).unwrap())
        .collect()
}

pub(crate) fn hint(value: &Value) -> Hint {
    Hint { mask: mask(&value["numa"]), preferred: value["preferred"] == true }
}

pub(crate) fn hints(value: &Value) -> Option<Vec<Hint>> {
    value.as_array().map(|hints| hints.iter().map(hint).collect())
}

fn hint_lists(value: &Value) -> Vec<Vec<Hint>> {
    value.as_array().into_iter().flatten().filter_map(hints).collect()
}

fn distances(row: &Value) -> Distances {
    Distances::new(row["numa_distances"].as_array().into_iter().flatten().map(numbers).collect())
}

fn policy(row: &Value) -> Result<Policy, String> {
    Policy::parse(text(row, "policy")?).map_err(|error| error.to_string())
}

fn merge(row: &Value) -> Result<(), String> {
    let all: NumaMask = mask(&row["numa_nodes"]).unwrap();
    let providers: Vec<Option<Offers>> = row["provider_hints"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|offers| {
            offers
                .as_object()
                .map(|offers| offers.iter().map(|(name, list)| (name.clone(), hints(list))).collect())
        })
        .collect();
    let distances = distances(row);
    let closest = (row["policy_options"]["prefer-closest-numa-nodes"] == true).then_some(&distances);
    let policy = policy(row)?;
    let found = policy.merge(all, &lists(providers.iter().map(Option::as_ref)), closest);
    same("hint", &found, &hint(&row["expected"]))?;
    same("admit", &policy.admits(&found), &flag(&row["expected"], "admit"))
}

fn compare(row: &Value) -> Result<(), String> {
    // -1 stands for "no resource names a mask"
    let size = row["best_non_preferred_affinity_count"]
        .as_i64()
        .and_then(|size| u32::try_from(size).ok())
        .unwrap_or(0);
    let current = (!row["current"].is_null()).then(|| hint(&row["current"]));
    let wins = better(&hint(&row["candidate"]), current.as_ref(), size, MaskRule::default());
    same("best", &if wins { "candidate" } else { "current" }, &text(row, "expected")?)
}

fn numa_info(row: &Value) -> Result<(), String> {
    let nodes = numbers(&row["present_nodes"]);
    let read = |node: &u32| row["distance_files"][node.to_string()].as_str().and_then(parse_distances);
    let found: Option<Vec<Vec<u32>>> = nodes.iter().map(|node| read(node).map(|row| row.to_vec())).collect();
    match found {
        None => same("error", &true, &flag(row, "expected_error")),
        Some(rows) => {
            same("nodes", &nodes, &numbers(&row["expected_nodes"]))?;
            let wanted: Vec<Vec<u32>> =
                row["expected_distances"].as_array().into_iter().flatten().map(numbers).collect();
            same("distances", &rows, &wanted)
        }
    }
}

fn options(row: &Value) -> Result<(), String> {
    let given: BTreeMap<String, String> = string_map(&row["policy_options"]);
    match (PolicyOptions::parse(&given), row["expected_error"]["message_contains"].as_str()) {
        (Ok(found), None) => {
            same("closest", &found.prefer_closest, &flag(&row["expected"], "prefer_closest_numa"))?;
            same("most nodes", &found.most_nodes, &count(&row["expected"], "max_allowable_numa_nodes")?)
        }
        (Err(error), Some(part)) if error.to_string().contains(part) => Ok(()),
        (found, wanted) => Err(format!("found {found:?}, expected {wanted:?}")),
    }
}

pub(crate) fn string_map(value: &Value) -> BTreeMap<String, String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect()
}

fn new_manager(row: &Value) -> Result<(), String> {
    let nodes = row["numa_nodes"].as_array().map_or(0, Vec::len);
    let made = Policy::parse(text(row, "policy")?)
        .and_then(|policy| policy.allows_nodes(nodes, count(row, "max_allowable_numa_nodes").unwrap()));
    same("ok", &made.is_ok(), &flag(row, "expected_ok"))?;
    match made {
        Err(error) if !error.to_string().contains(text(&row["expected_error"], "message")?) => {
            Err(error.to_string())
        }
        _ => Ok(()),
    }
}
