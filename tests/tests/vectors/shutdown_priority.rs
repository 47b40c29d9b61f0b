//! `shutdown_priority.json`: groups of pods at a shutdown.

use podkeep_core::config::Duration;
use podkeep_core::shutdown::{self, Group};
use serde_json::{Value, json};

use super::verdict::{Verdict, equal, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    if !case["expected"]["enabled"].is_boolean() {
        return unknown(&case["expected"]);
    }
    judge(&case["input"], &case["expected"]).into()
}

fn priority(value: &Value) -> Option<i32> {
    value["priority"].as_i64().and_then(|p| i32::try_from(p).ok())
}

fn judge(input: &Value, expected: &Value) -> Result<(), String> {
    let nanos = |key: &str| match text(input, key) {
        "" => Ok(0),
        text => Duration::parse(text).map(|d| d.nanos).ok_or_else(|| format!("no duration {text}")),
    };
    let listed = input["shutdownGracePeriodByPodPriority"].as_array();
    let listed: Vec<Group> = listed
        .into_iter()
        .flatten()
        .filter_map(|g| {
            Some(Group { priority: priority(g)?, seconds: g["shutdownGracePeriodSeconds"].as_i64()? })
        })
        .collect();
    let groups =
        shutdown::groups(nanos("shutdownGracePeriod")?, nanos("shutdownGracePeriodCriticalPods")?, &listed);
    equal("enabled", Some(!groups.is_empty()), expected["enabled"].as_bool())?;
    if groups.is_empty() {
        return Ok(());
    }
    equal("delay", Some(shutdown::inhibit_seconds(&groups)), expected["inhibitSeconds"].as_i64())?;
    let mut names: Vec<Vec<Value>> = vec![Vec::new(); groups.len()];
    for pod in input["pods"].as_array().into_iter().flatten() {
        names[shutdown::group_of(&groups, priority(pod))].push(pod["name"].clone());
    }
    let found: Vec<Value> = groups
        .iter()
        .zip(names)
        .map(|(g, pods)| json!({"priority": g.priority, "seconds": g.seconds, "pods": pods}))
        .collect();
    equal("groups", Value::Array(found), expected["groups"].clone())
}
