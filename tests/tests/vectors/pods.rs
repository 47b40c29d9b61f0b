//! Pods as the manager vectors write them.

use podkeep_core::resource::request::{Amount, ContainerRequest, PodRequest, Role};
use serde_json::Value;

/// Amount of cpu in thousandths: `2`, `"2"`, `"2000m"`, `"1000Mi"`; absent is zero.
pub(crate) fn milli(value: &Value) -> u64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let scaled = |digits: &str, factor: u64| digits.parse::<u64>().unwrap_or(0) * factor;
    if let Some(digits) = text.strip_suffix("Mi") {
        return scaled(digits, 1000 * 1024 * 1024);
    }
    match text.strip_suffix('m') {
        Some(digits) => scaled(digits, 1),
        None => scaled(&text, 1000),
    }
}

pub(crate) fn pod(value: &Value) -> PodRequest {
    let listed = |key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut containers: Vec<ContainerRequest> = Vec::new();
    for init in listed("init_containers") {
        let role = if init["restart_policy"] == "Always" { Role::Sidecar } else { Role::Init };
        containers.push(container(&init, role));
    }
    containers.extend(listed("containers").iter().map(|app| container(app, Role::App)));
    let pod_level = &value["pod_level_cpu"];
    let pod_cpu = (!pod_level.is_null())
        .then(|| Amount { request: milli(&pod_level["request"]), limit: milli(&pod_level["limit"]) });
    PodRequest {
        uid: value["uid"].as_str().unwrap_or_default().into(),
        guaranteed: value["qos"] == "Guaranteed",
        containers,
        pod_cpu,
        pod_memory: None,
    }
}

fn container(value: &Value, role: Role) -> ContainerRequest {
    let mut container = ContainerRequest {
        name: value["name"].as_str().unwrap_or_default().into(),
        role,
        ..Default::default()
    };
    if value["requests"].is_object() {
        container.cpu =
            Amount { request: milli(&value["requests"]["cpu"]), limit: milli(&value["limits"]["cpu"]) };
        let bytes = |of: &str| value[of]["memory"].as_u64().unwrap_or(0);
        container.memory = Amount { request: bytes("requests"), limit: bytes("limits") };
        let named = value["requests"].as_object().into_iter().flatten();
        container.huge = named
            .filter(|(name, _)| name.starts_with("hugepages-"))
            .filter_map(|(name, bytes)| Some((name.clone(), bytes.as_u64()?)))
            .collect();
    } else {
        container.cpu = Amount { request: milli(&value["cpu_request"]), limit: milli(&value["cpu_limit"]) };
        // the vectors give every container equal memory request and limit
        container.memory = Amount { request: 100 << 20, limit: 100 << 20 };
    }
    let devices = value["device_limits"].as_object().into_iter().flatten();
    container.devices = devices.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect();
    container
}
