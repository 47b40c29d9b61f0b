//! `oom_score_adj.json`: whom the kernel stops first.

use serde_json::Value;

use super::verdict::{Verdict, equal, pod, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    let (Some(wanted), Some(capacity)) =
        (expected["oomScoreAdj"].as_i64(), input["nodeMemoryCapacityBytes"].as_u64())
    else {
        return unknown(expected);
    };
    pod(&input["pod"])
        .and_then(|pod| {
            let found = podkeep_core::oom::score_adj(&pod, text(input, "container"), capacity);
            equal("oomScoreAdj", i64::from(found), wanted)
        })
        .into()
}
