//! `env_expansion.json`: references to variables, the environment, the downward API, the hosts file, host names.

use std::collections::BTreeMap;

use podkeep_core::expand::downward::{self, Facts};
use podkeep_core::expand::env::{self, Environment, NoObjects};
use podkeep_core::expand::{self, host};
use podkeep_core::types::{Container, EnvVar, Pod, Quantity, ResourceList};
use serde_json::Value;

use super::verdict::{Verdict, equal, read, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    match text(input, "op") {
        "expand" => outcome(expand_text(input), expected).into(),
        "commandArgs" => command_args(input, expected).into(),
        "execProbeCommand" => probe_command(input, expected).into(),
        "subPathExpr" => outcome(sub_path(input), expected).into(),
        "containerEnv" => container_env(input, expected).into(),
        "fieldRef" => outcome(field(input), expected).into(),
        "resourceFieldRef" => outcome(resource(input), expected).into(),
        "hostsFile" => hosts_file(input, expected).into(),
        "hostnameTruncate" => {
            equal("hostname", host::truncated(text(input, "hostname")).as_str(), text(expected, "hostname"))
                .into()
        }
        _ => unknown(&input["op"]),
    }
}

fn outcome(found: Result<String, String>, expected: &Value) -> Result<(), String> {
    match (found, expected["error"] == true) {
        (Ok(found), true) => Err(format!("accepted as {found:?}")),
        (Err(_), true) => Ok(()),
        (found, false) => equal("output", found?.as_str(), text(expected, "output")),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn expand_text(input: &Value) -> Result<String, String> {
    let vars: BTreeMap<String, String> = read(&input["vars"])?;
    Ok(expand::expand(text(input, "input"), &mut |name| vars.get(name).cloned()))
}

fn env_list(value: &Value) -> Result<Vec<EnvVar>, String> {
    let container: Container = read(&serde_json::json!({"env": value}))?;
    Ok(container.env)
}

fn environment(input: &Value) -> Result<Environment, String> {
    let pod: Pod = if input["pod"].is_null() { Pod::default() } else { read(&input["pod"])? };
    let container = Container { env: env_list(&input["env"])?, ..Default::default() };
    let facts = Facts { pod: &pod, host_ips: &[], pod_ips: &[], allocatable: &ResourceList::new() };
    env::environment(&container, &facts, &NoObjects).map_err(|error| error.to_string())
}

fn command_args(input: &Value, expected: &Value) -> Result<(), String> {
    let env = environment(input)?;
    let all = |key: &str| strings(&input[key]).iter().map(|part| env.expand(part)).collect::<Vec<_>>();
    equal("command", all("command"), strings(&expected["command"]))?;
    equal("args", all("args"), strings(&expected["args"]))
}

fn probe_command(input: &Value, expected: &Value) -> Result<(), String> {
    let env = env_list(&input["env"])?;
    let found = env::probe_command(&strings(&input["command"]), &env);
    equal("command", found, strings(&expected["command"]))
}

fn sub_path(input: &Value) -> Result<String, String> {
    environment(input)?.sub_path(text(input, "subPathExpr")).map_err(|error| error.to_string())
}

fn container_env(input: &Value, expected: &Value) -> Result<(), String> {
    let wanted = &expected["env"];
    match (environment(input), expected["error"] == true) {
        (Ok(found), true) => Err(format!("accepted as {found:?}")),
        (Err(_), true) => Ok(()),
        (found, false) => {
            let found: BTreeMap<String, String> = found?.variables.into_iter().collect();
            equal("env", found, read(wanted)?)
        }
    }
}

fn field(input: &Value) -> Result<String, String> {
    let pod: Pod = read(&input["pod"])?;
    let (host_ips, pod_ips) = (strings(&input["hostIPs"]), strings(&input["podIPs"]));
    let facts =
        Facts { pod: &pod, host_ips: &host_ips, pod_ips: &pod_ips, allocatable: &ResourceList::new() };
    downward::field(&facts, text(input, "fieldPath")).map_err(|error| error.to_string())
}

fn resource(input: &Value) -> Result<String, String> {
    let divisor = match &input["divisor"] {
        Value::Null => Quantity::ZERO,
        value => value
            .as_str()
            .unwrap_or_default()
            .parse()
            .map_err(|e: podkeep_core::quantity::QuantityError| e.to_string())?,
    };
    let allocatable: ResourceList =
        if input["allocatable"].is_null() { ResourceList::new() } else { amounts(&input["allocatable"])? };
    let container: Container = read(&serde_json::json!({"resources": input["resources"]}))?;
    downward::resource(&container.resources, text(input, "resource"), divisor, &allocatable)
        .map_err(|error| error.to_string())
}

fn amounts(value: &Value) -> Result<ResourceList, String> {
    let container: Container = read(&serde_json::json!({"resources": {"limits": value}}))?;
    Ok(container.resources.limits)
}

fn hosts_file(input: &Value, expected: &Value) -> Result<(), String> {
    let aliases: Pod = read(&serde_json::json!({"spec": {"hostAliases": input["hostAliases"]}}))?;
    let found = match input["nodeHostsFile"].as_str() {
        Some(node) if input["hostNetwork"] == true => {
            host::host_network_hosts_file(node, &aliases.spec.host_aliases)
        }
        _ => host::hosts_file(
            &strings(&input["podIPs"]),
            text(input, "hostname"),
            text(input, "hostDomain"),
            &aliases.spec.host_aliases,
        ),
    };
    equal("content", found.as_str(), text(expected, "content"))
}
