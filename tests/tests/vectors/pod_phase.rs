//! `pod_phase.json`: phase and conditions from the statuses of the containers.

use podkeep_core::phase::{self, Phase};
use podkeep_core::types::PodCondition;
use serde_json::Value;

use super::verdict::{Verdict, equal, pod, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    if !input["pod"].is_object() || !expected["phase"].is_string() {
        return unknown(expected);
    }
    judge(input, expected).into()
}

fn before(phase: &str) -> Option<Phase> {
    [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed].into_iter().find(|p| p.name() == phase)
}

fn judge(input: &Value, expected: &Value) -> Result<(), String> {
    let pod = pod(&input["pod"])?;
    let flag = |key: &str| input[key].as_bool().unwrap_or(false);
    let (terminal, initialized) = (flag("podIsTerminal"), flag("anyRegularContainerStartedInThisSandbox"));
    let phase = phase::phase(&pod, &pod.status, terminal, initialized).after(before(&pod.status.phase));
    equal("phase", phase.name(), text(expected, "phase"))?;
    let found = phase::conditions(&pod, &pod.status, phase);
    for (kind, wanted) in expected["conditions"].as_object().into_iter().flatten() {
        let condition: &PodCondition =
            found.iter().find(|c| c.condition_type == *kind).ok_or_else(|| format!("no condition {kind}"))?;
        equal(kind, condition.status.as_str(), text(wanted, "status"))?;
        equal(kind, condition.reason.as_str(), text(wanted, "reason"))?;
    }
    Ok(())
}
