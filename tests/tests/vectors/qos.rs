//! `qos.json`: the class of a pod.

use serde_json::Value;

use super::verdict::{Verdict, equal, pod, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let Some(wanted) = case["expected"]["qosClass"].as_str() else { return unknown(&case["expected"]) };
    pod(&case["input"]["pod"])
        .and_then(|pod| equal("qosClass", podkeep_core::qos::class(&pod).name(), wanted))
        .into()
}
