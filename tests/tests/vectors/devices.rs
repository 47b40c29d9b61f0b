//! `device_hints.json` and `device_allocate.json`: node sets devices offer, and which devices are taken.

use std::collections::BTreeMap;

use podkeep_core::{
    resource::{
        device::{Device, DeviceError, Devices, Ids, raise_to_use},
        device_select::{Question, split},
        request::{ContainerRequest, PodRequest},
    },
    topology::{distance::Distances, hint::Offers, masks::MaskFamily},
};
use podkeep_hal::numa_mask::NumaMask;
use serde_json::{Value, json};

use super::{
    machine::{count, mask, same, text},
    memory_policy_static::offers,
    pods::pod,
};

pub(crate) fn check_hints(row: &Value) -> Result<(), String> {
    let pod = pod(&row["pod"]);
    let mut devices = Devices::default();
    let all = mask(&row["numa_nodes"]).unwrap_or(NumaMask(1));
    let family = MaskFamily::new(all, &Distances::default());
    list_all(&mut devices, &row["devices"]);
    devices.set_assignments(
        objects(&row["allocated"])
            .map(|(pod, held)| {
                let held = objects(held).map(|(container, held)| (container.clone(), by_resource(held)));
                (pod.clone(), held.collect())
            })
            .collect(),
    );
    for (resource, held) in by_resource(&row["reusable"]) {
        devices.set_reusable(&pod.uid, &resource, held);
    }
    let found = match text(row, "op")? {
        "container_hints" => {
            let container = pod.container(text(row, "container")?).ok_or("no such container")?;
            devices.hints(&pod, container, &family, all)
        }
        "pod_hints" => devices.pod_hints(&pod, &family, all),
        "pod_device_request" => {
            for resource in ids(&row["registered"]) {
                devices.list(&resource, []);
            }
            let wanted = objects(&row["expected"])
                .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
                .collect();
            return same("request", &devices.pod_requests(&pod), &wanted);
        }
        op => return Err(format!("unknown op {op}")),
    };
    let sorted = |mut offers: Offers| {
        if row["hint_order"] != "generation order" {
            offers
                .values_mut()
                .flatten()
                .for_each(|list| list.sort_by_key(|hint| (hint.mask, hint.preferred)));
        }
        offers
    };
    same("hints", &sorted(found), &sorted(offers(&row["expected_hints"])))
}

fn objects(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn ids(value: &Value) -> Ids {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn by_resource(value: &Value) -> BTreeMap<String, Ids> {
    objects(value).map(|(resource, held)| (resource.clone(), ids(held))).collect()
}

fn listed(value: &Value) -> BTreeMap<String, Device> {
    let devices = value.as_array().into_iter().flatten();
    devices
        .map(|device| {
            (
                device["id"].as_str().unwrap().to_owned(),
                Device { healthy: true, nodes: mask(&device["numa"]) },
            )
        })
        .collect()
}

fn list_all(devices: &mut Devices, value: &Value) {
    for (resource, list) in objects(value) {
        devices.list(resource, listed(list));
    }
}

fn user(uid: &str, container: &str) -> PodRequest {
    let container = ContainerRequest { name: container.into(), ..Default::default() };
    PodRequest { uid: uid.into(), containers: vec![container], ..Default::default() }
}

pub(crate) fn check_allocate(row: &Value) -> Result<(), String> {
    match text(row, "op")? {
        "allocate" => {
            let (question, found) = allocate(row)?;
            let _ = question;
            outcome(row, &found)
        }
        "preferred_allocation_request" => {
            let (question, _) = allocate(row)?;
            let question = question.ok_or("nothing is asked")?;
            same("available", &question.available, &ids(&row["expected_available"]))?;
            same("must include", &question.must_include, &ids(&row["expected_must_include"]))?;
            same("size", &question.size, &count(row, "expected_size")?)
        }
        "filter_by_affinity" => {
            let hint = mask(&row["topology_hint"]["numa"]);
            same_split(row, &listed(&row["devices"]), &ids(&row["available"]), hint)
        }
        "devices_to_allocate" => devices_to_allocate(row),
        "pod_sequence" => pod_sequence(row),
        "pod_init_sequence" => pod_init_sequence(row),
        "sanitize_node_allocatable" => {
            let amounts = |key: &str| -> BTreeMap<String, u64> {
                objects(&row[key]).map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
            };
            let mut allocatable = amounts("node_allocatable_before");
            raise_to_use(&mut allocatable, &by_resource(&row["in_use"]));
            same("allocatable", &allocatable, &amounts("expected_node_allocatable_after"))
        }
        op => Err(format!("unknown op {op}")),
    }
}

fn same_split(
    row: &Value,
    devices: &BTreeMap<String, Device>,
    available: &Ids,
    affinity: Option<NumaMask>,
) -> Result<(), String> {
    let found = split(devices, available, affinity);
    let wanted = &row["expected_split"];
    same("aligned", &found.aligned, &ids(&wanted["aligned"]))?;
    same("unaligned", &found.unaligned, &ids(&wanted["unaligned"]))?;
    same("no affinity", &found.no_affinity, &ids(&wanted["no_affinity"]))
}

fn allocate(row: &Value) -> Result<(Option<Question>, Ids), String> {
    let resource = text(row, "resource")?;
    let mut devices = Devices::default();
    devices.list(resource, listed(&row["devices"]));
    let held = BTreeMap::from([(resource.to_owned(), ids(&row["in_use"]))]);
    devices.set_assignments([("other".to_owned(), [("c".to_owned(), held)].into())].into());
    devices.set_reusable("pod", resource, ids(&row["reusable"]));
    let hint = mask(&row["topology_hint"]["numa"]);
    let selection = devices
        .select(&user("pod", "c"), "c", resource, count(row, "request")?, hint)
        .map_err(|error| error.to_string())?
        .ok_or("holds devices already")?;
    let question = selection.question();
    Ok((question, selection.finish(&ids(&row["plugin_preferred_allocation"]))))
}

fn outcome(row: &Value, found: &Ids) -> Result<(), String> {
    same("size", &found.len(), &count(row, "expected_size")?)?;
    let wanted = ids(&row["expected_contains"]);
    if !found.is_superset(&wanted) {
        return Err(format!("found {found:?}, expected all of {wanted:?}"));
    }
    let devices = listed(&row["devices"]);
    let mut by_node: BTreeMap<String, u64> = BTreeMap::new();
    for id in found {
        if let Some(node) = devices[id].nodes.and_then(NumaMask::first) {
            *by_node.entry(node.to_string()).or_default() += 1;
        }
    }
    let wanted = objects(&row["expected_per_numa"])
        .map(|(node, count)| (node.clone(), count.as_u64().unwrap()))
        .collect();
    same("per node", &by_node, &wanted)?;
    if row["in_use"] == json!([]) {
        let every = devices.keys().cloned().collect();
        same_split(row, &devices, &every, mask(&row["topology_hint"]["numa"]))?;
    }
    Ok(())
}

fn refused<T>(row: &Value, result: &Result<T, DeviceError>) -> Result<(), String> {
    match (result, row["expected_error"]["message"].as_str()) {
        (Err(error), Some(message)) => same("message", &error.to_string().as_str(), &message),
        (Err(error), None) => Err(error.to_string()),
        (Ok(_), Some(message)) => Err(format!("no error, expected {message}")),
        (Ok(_), None) => Ok(()),
    }
}

fn devices_to_allocate(row: &Value) -> Result<(), String> {
    let resource = text(row, "resource")?;
    let mut devices = Devices::default();
    if row["registered"] == true {
        let healthy = ids(&row["healthy"]).into_iter().map(|id| (id, Device { healthy: true, nodes: None }));
        devices.list(resource, healthy);
    }
    let held = BTreeMap::from([(resource.to_owned(), ids(&row["already_allocated_to_container"]))]);
    if row["already_allocated_to_container"].is_array() {
        devices.set_assignments([("pod".to_owned(), [("c".to_owned(), held)].into())].into());
    }
    devices.set_reusable("pod", resource, ids(&row["reusable"]));
    refused(row, &devices.select(&user("pod", "c"), "c", resource, count(row, "request")?, None))
}

fn take_all(
    devices: &mut Devices,
    pod: &PodRequest,
    name: &str,
    hint: Option<NumaMask>,
) -> Result<(), DeviceError> {
    let container = pod.container(name).unwrap();
    for (resource, count) in devices.requests(container) {
        if let Some(selection) =
            devices.select(pod, name, &resource, usize::try_from(count).unwrap(), hint)?
        {
            let chosen = selection.finish(&Ids::new());
            devices.assign(pod, container, &resource, chosen);
        }
    }
    Ok(())
}

fn pod_sequence(row: &Value) -> Result<(), String> {
    let mut devices = Devices::default();
    list_all(&mut devices, &row["devices"]);
    for step in row["steps"].as_array().into_iter().flatten() {
        let container = text(step, "container")?;
        let pod = pod(&json!({
            "uid": step["pod"],
            "containers": [{"name": container, "device_limits": step["device_limits"]}],
        }));
        let result = take_all(&mut devices, &pod, container, mask(&row["topology_hint"]["numa"]));
        refused(step, &result)?;
        for (resource, wanted) in objects(&step["expected_in_use"]) {
            same("in use", &(devices.in_use(resource).len() as u64), &wanted.as_u64().unwrap())?;
        }
        for (kind, wanted) in objects(&step["expected_counts"]) {
            let held = devices.assignments()[&pod.uid][container].iter();
            let answers = held.flat_map(|(resource, ids)| {
                let answers = &row["plugin_responses"][resource];
                ids.iter().map(move |id| &answers[id])
            });
            let found: u64 = answers.filter_map(|answer| answer[kind].as_u64()).sum();
            same(kind, &found, &wanted.as_u64().unwrap())?;
        }
    }
    Ok(())
}

fn pod_init_sequence(row: &Value) -> Result<(), String> {
    let mut devices = Devices::default();
    list_all(&mut devices, &row["devices"]);
    let pod = pod(
        &json!({"uid": "pod", "init_containers": row["init_containers"], "containers": row["containers"]}),
    );
    let result: Result<(), DeviceError> =
        pod.containers.iter().try_for_each(|container| take_all(&mut devices, &pod, &container.name, None));
    same("ok", &result.is_ok(), &(row["expected_ok"] == true))?;
    let held = |container: &Value, resource: &str| {
        devices.held("pod", container.as_str().unwrap(), resource).cloned().unwrap_or_default()
    };
    for (resource, sizes) in objects(&row["expected_sizes"]) {
        for (container, size) in objects(sizes) {
            same(container, &(held(&json!(container), resource).len() as u64), &size.as_u64().unwrap())?;
        }
    }
    for rule in row["expected_superset"].as_array().into_iter().flatten() {
        let outer = held(&rule["outer"], text(rule, "resource")?);
        for inner in rule["inner"].as_array().into_iter().flatten() {
            same("superset", &held(inner, text(rule, "resource")?).is_subset(&outer), &true)?;
        }
    }
    for rule in row["expected_disjoint"].as_array().into_iter().flatten() {
        let parts: Vec<Ids> = rule["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| held(c, rule["resource"].as_str().unwrap()))
            .collect();
        let union: Ids = parts.iter().flatten().cloned().collect();
        same("disjoint", &union.len(), &parts.iter().map(Ids::len).sum())?;
    }
    Ok(())
}
