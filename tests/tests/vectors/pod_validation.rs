//! `pod_validation.json`: the set of (field, kind) of all faults of a pod on create.

use std::collections::BTreeSet;

use podkeep_core::validation;
use serde_json::Value;

use super::verdict::{Verdict, equal, raw_pod, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    let Some(valid) = expected["valid"].as_bool() else { return unknown(expected) };
    let stage = expected["stage"].as_str();
    let decoded = raw_pod(&input["pod"]);
    match (decoded, valid, stage) {
        (Err(_), false, Some("decode")) => Verdict::Pass,
        (Ok(_), false, Some("decode")) => Verdict::Fail("decoded".into()),
        (Err(error), ..) => Verdict::Fail(error),
        (Ok(pod), valid, Some("validate") | None) => faults(pod, valid, expected).into(),
        _ => unknown(&expected["stage"]),
    }
}

fn faults(mut pod: podkeep_core::types::Pod, valid: bool, expected: &Value) -> Result<(), String> {
    if pod.metadata.namespace.is_empty() {
        pod.metadata.namespace = "default".into();
    }
    podkeep_core::defaults::pod(&mut pod);
    let errors = validation::pod(&pod);
    let found: BTreeSet<(String, String)> =
        errors.iter().map(|e| (e.field.clone(), e.kind.name().to_owned())).collect();
    let wanted: BTreeSet<(String, String)> = expected["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| (text(e, "field").to_owned(), text(e, "kind").to_owned()))
        .collect();
    if !valid && wanted.is_empty() {
        return if found.is_empty() { Err("found no fault".into()) } else { Ok(()) };
    }
    equal("faults", found, wanted)
}
