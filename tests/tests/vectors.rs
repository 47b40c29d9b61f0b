//! All rule vectors in one program: `cargo test -p podkeep-tests --test vectors`.
//!
//! Reads every `*.json` of the folder in `PODKEEP_VECTORS` (else the one beside the tests) and prints one line a file,
//! each failure indented below it. A file or a kind of case nobody knows counts as skipped, never as passed. A case a
//! listed difference of this project applies to is checked against our right answer and named `differs`. The exit code
//! is not zero if a case fails.

#[path = "vectors/checkpoints.rs"]
mod checkpoints;
#[path = "vectors/cpu_assignment.rs"]
mod cpu_assignment;
#[path = "vectors/cpu_conversion.rs"]
mod cpu_conversion;
#[path = "vectors/cpu_hints.rs"]
mod cpu_hints;
#[path = "vectors/cpu_policy_static.rs"]
mod cpu_policy_static;
#[path = "vectors/cpuset.rs"]
mod cpuset;
#[path = "vectors/devices.rs"]
mod devices;
#[path = "vectors/env_expansion.rs"]
mod env_expansion;
#[path = "vectors/eviction_config.rs"]
mod eviction_config;
#[path = "vectors/kubelet_config_validation.rs"]
mod kubelet_config_validation;
#[path = "vectors/machine.rs"]
mod machine;
#[path = "vectors/memory_policy_static.rs"]
mod memory_policy_static;
#[path = "vectors/oom_score_adj.rs"]
mod oom_score_adj;
#[path = "vectors/pod_phase.rs"]
mod pod_phase;
#[path = "vectors/pod_validation.rs"]
mod pod_validation;
#[path = "vectors/pods.rs"]
mod pods;
#[path = "vectors/probe_results.rs"]
mod probe_results;
#[path = "vectors/qos.rs"]
mod qos;
#[path = "vectors/quantity.rs"]
mod quantity;
#[path = "vectors/resolv_conf.rs"]
mod resolv_conf;
#[path = "vectors/shutdown_priority.rs"]
mod shutdown_priority;
#[path = "vectors/static_pod_identity.rs"]
mod static_pod_identity;
#[path = "vectors/topology_merge.rs"]
mod topology_merge;
#[path = "vectors/verdict.rs"]
mod verdict;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use verdict::{Check, Verdict};

/// Who checks the cases of which file. A check that answers `Result` is wrapped with [`verdict::plain`].
const TABLE: &[(&str, Check)] = &[
    ("checkpoints.json", Check::Plain(checkpoints::check)),
    ("cpu_assignment.json", Check::Plain(cpu_assignment::check)),
    ("cpu_conversion.json", Check::Full(cpu_conversion::check)),
    ("cpu_hints.json", Check::Plain(cpu_hints::check)),
    ("cpu_policy_static.json", Check::Plain(cpu_policy_static::check)),
    ("cpuset.json", Check::Plain(cpuset::check)),
    ("device_allocate.json", Check::Plain(devices::check_allocate)),
    ("device_hints.json", Check::Plain(devices::check_hints)),
    ("env_expansion.json", Check::Full(env_expansion::check)),
    ("eviction_config.json", Check::Full(eviction_config::check)),
    ("kubelet_config_validation.json", Check::Plain(kubelet_config_validation::check)),
    ("memory_policy_static.json", Check::Plain(memory_policy_static::check)),
    ("oom_score_adj.json", Check::Full(oom_score_adj::check)),
    ("pod_phase.json", Check::Full(pod_phase::check)),
    ("pod_validation.json", Check::Full(pod_validation::check)),
    ("probe_results.json", Check::Full(probe_results::check)),
    ("qos.json", Check::Full(qos::check)),
    ("quantity.json", Check::Full(quantity::check)),
    ("resolv_conf.json", Check::Full(resolv_conf::check)),
    ("shutdown_priority.json", Check::Full(shutdown_priority::check)),
    ("static_pod_identity.json", Check::Full(static_pod_identity::check)),
    ("topology_merge.json", Check::Plain(topology_merge::check)),
];

/// Files that hold no cases of their own.
const DATA: &[&str] = &["fixtures.json"];

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
    differs: usize,
}

fn main() -> ExitCode {
    let folder = machine::folder();
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut names: Vec<String> = match std::fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect(),
        Err(error) => {
            println!("the vectors cannot be read: {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    names.retain(|name| name.ends_with(".json") && !DATA.contains(&name.as_str()));
    names.retain(|name| only.is_empty() || only.iter().any(|part| name.contains(part.as_str())));
    names.sort();
    // a check that panics is a failed case, told below its file and not in the middle
    std::panic::set_hook(Box::new(|_| {}));
    let mut total = Count::default();
    for name in names {
        let count = file(&folder, &name);
        total.passed += count.passed;
        total.failed += count.failed;
        total.skipped += count.skipped;
        total.differs += count.differs;
    }
    if total.differs > 0 {
        println!("{} of the passed cases answer by a listed difference", total.differs);
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if total.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one file and prints its lines.
fn file(folder: &Path, name: &str) -> Count {
    let cases = match cases(&folder.join(name)) {
        Ok(cases) => cases,
        Err(error) => {
            println!("vectors {name}: 0 passed, 1 failed, 0 skipped\n    {error}");
            return Count { failed: 1, ..Count::default() };
        }
    };
    let Some((_, check)) = TABLE.iter().find(|(known, _)| *known == name) else {
        println!(
            "vectors {name}: 0 passed, 0 failed, {} skipped\n    skipped: nobody checks this file",
            cases.len()
        );
        return Count { skipped: cases.len(), ..Count::default() };
    };
    let mut count = Count::default();
    let mut failures = Vec::new();
    let (mut skips, mut differences) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::new());
    for (index, case) in cases.iter().enumerate() {
        let id = case["id"].as_str().map_or_else(|| format!("case {index}"), str::to_owned);
        let verdict = catch_unwind(AssertUnwindSafe(|| check.run(case)))
            .unwrap_or_else(|cause| Verdict::Fail(format!("panicked: {}", message(cause.as_ref()))));
        match verdict {
            Verdict::Pass => count.passed += 1,
            Verdict::Fail(why) => {
                count.failed += 1;
                failures.push(format!("{id}: {why}"));
            }
            Verdict::Skip(why) => {
                count.skipped += 1;
                skips.entry(why).or_default().push(id);
            }
            Verdict::Differs(rule) => {
                count.passed += 1;
                count.differs += 1;
                differences.entry(rule).or_insert_with(Vec::new).push(id);
            }
        }
    }
    println!("vectors {name}: {} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    for failure in failures {
        println!("    {}", failure.replace('\n', "\n      "));
    }
    for (why, ids) in skips {
        println!("    skipped: {why}: {}", ids.join(" "));
    }
    for (rule, ids) in differences {
        println!("    differs: {} ({}; {} cases): {}", rule.name, rule.reason, ids.len(), ids.join(" "));
    }
    count
}

/// The cases of a file: a list, or the list below `cases`.
fn cases(path: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    match value {
        Value::Array(cases) => Ok(cases),
        Value::Object(mut object) => match object.remove("cases") {
            Some(Value::Array(cases)) => Ok(cases),
            _ => Err("the file has no list of cases".into()),
        },
        _ => Err("the file is neither a list nor a map".into()),
    }
}

fn message(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
