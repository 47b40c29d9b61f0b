//! `cpu_hints.json`: node sets the CPU manager offers.

use podkeep_core::topology::{
    distance::Distances,
    hint::{Hint, Offer},
    masks::MaskFamily,
};
use podkeep_hal::cpu_set::CpuSet;
use serde_json::Value;

use super::{
    cpu_policy_static::{fresh, state_before},
    machine::{cpus, same, text},
    pods::pod,
    topology_merge::hints,
};

pub(crate) fn check(row: &Value) -> Result<(), String> {
    let reserved = cpus(row, "reserved_cpus")?;
    let mut policy = fresh(row, reserved.len())?;
    policy.set_state(state_before(row)?);
    let pod = pod(&row["pod"]);
    let reusable = cpus(row, "reusable_cpus")?;
    if reusable != CpuSet::EMPTY {
        policy.set_reusable(&pod.uid, reusable);
    }
    let family = MaskFamily::new(policy.layout().node_mask(), &Distances::default());
    let scope = text(row, "applies_to_scope")?;
    if scope != "pod" {
        let container = pod.container(text(row, "container")?).ok_or("no such container")?;
        compare(row, "container", policy.hints(&pod, container, &family))?;
    }
    if scope != "container" {
        compare(row, "pod", policy.pod_hints(&pod, &family))?;
    }
    Ok(())
}

/// Rows name the order in which hints are generated; where it is not asserted both sides are sorted.
pub(crate) fn compare(row: &Value, what: &str, found: Offer) -> Result<(), String> {
    let mut found = found;
    let mut wanted = hints(&row["expected_hints"]);
    if row["hint_order"] != "generation order" {
        let sort = |list: &mut Vec<Hint>| list.sort_by_key(|hint| (hint.mask, hint.preferred));
        found.iter_mut().for_each(sort);
        wanted.iter_mut().for_each(sort);
    }
    same(what, &found, &wanted)
}
