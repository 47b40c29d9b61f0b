//! `cpu_conversion.json`: shares, quota, weight, cgroups of pods and their names, swap.

use podkeep_core::resources::{self, CgroupDriver};
use serde_json::{Value, json};

use super::verdict::{Verdict, equal, pod, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    match input["kind"].as_str() {
        None if input["milliCPU"].is_i64() => conversion(input, expected).into(),
        Some("podCgroup") => pod_cgroup(input, expected).into(),
        Some("cgroupName") => name(input, expected).into(),
        Some("limitedSwap") => swap(input, expected).into(),
        _ => unknown(&input["kind"]),
    }
}

/// Every key that is expected, and no other, has the value found.
fn same(found: Value, expected: &Value) -> Result<(), String> {
    equal("values", found.to_string(), expected.to_string())
}

fn number(value: &Value, key: &str) -> Result<u64, String> {
    value[key].as_u64().ok_or_else(|| format!("no number {key}"))
}

fn conversion(input: &Value, expected: &Value) -> Result<(), String> {
    let milli = input["milliCPU"].as_i64().unwrap_or(0);
    let shares = resources::shares(milli);
    same(
        json!({
            "cpuShares": shares,
            "cfsQuotaMicros": resources::quota(milli, number(input, "cfsPeriodMicros")?),
            "podCgroupCpuWeight": resources::weight(shares),
            "containerCpuWeightNewRunc": resources::container_weight(shares),
        }),
        expected,
    )
}

fn pod_cgroup(input: &Value, expected: &Value) -> Result<(), String> {
    let pod = pod(&input["pod"])?;
    let enforce = input["cpuCFSQuota"].as_bool().unwrap_or(true);
    let cgroup = resources::pod_cgroup(&pod, number(input, "cfsPeriodMicros")?, enforce);
    let mut found = json!({
        "qosClass": cgroup.qos.name(),
        "cpuShares": cgroup.shares,
        "cpuWeight": cgroup.weight,
    });
    if let Some((quota, period)) = cgroup.quota {
        found["cpuQuota"] = quota.into();
        found["cpuPeriod"] = period.into();
    }
    if let Some(bytes) = cgroup.memory_max {
        found["memoryMax"] = bytes.into();
    }
    same(found, expected)
}

fn name(input: &Value, expected: &Value) -> Result<(), String> {
    let parts: Vec<&str> =
        input["components"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let path = |driver| resources::cgroup_path(&parts, driver).map_err(|error| error.to_string());
    same(
        json!({"cgroupfs": path(CgroupDriver::Cgroupfs)?, "systemd": path(CgroupDriver::Systemd)?}),
        expected,
    )
}

fn swap(input: &Value, expected: &Value) -> Result<(), String> {
    let found = resources::limited_swap(
        number(input, "containerMemoryRequestBytes")?,
        number(input, "nodeMemoryBytes")?,
        number(input, "nodeSwapBytes")?,
    );
    same(json!({"memorySwapMaxBytes": found}), expected)
}
