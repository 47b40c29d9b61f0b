//! From a pod of the API to what the managers are asked for.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use super::request::{Amount, ContainerRequest, PodRequest, Role};
use crate::{
    qos::{self, QosClass},
    resources::is_sidecar,
    types::{Container, Pod, Quantity, ResourceList, ResourceRequirements, value},
};

impl From<&Pod> for PodRequest {
    /// Wants a pod with its defaults filled in.
    fn from(pod: &Pod) -> Self {
        let inits = pod.spec.init_containers.iter().map(|init| {
            let role = if is_sidecar(init) { Role::Sidecar } else { Role::Init };
            container(init, role)
        });
        let containers: Vec<ContainerRequest> =
            inits.chain(pod.spec.containers.iter().map(|app| container(app, Role::App))).collect();
        let level = pod.spec.resources.as_deref();
        let stated = |of: &&ResourceRequirements, name: &str| {
            of.requests.contains_key(name) || of.limits.contains_key(name)
        };
        Self {
            uid: pod.metadata.uid.clone(),
            guaranteed: qos::class(pod) == QosClass::Guaranteed,
            containers,
            pod_cpu: level.filter(|of| stated(of, value::CPU)).map(|of| amount(of, value::CPU, milli)),
            pod_memory: level
                .filter(|of| stated(of, value::MEMORY))
                .map(|of| amount(of, value::MEMORY, bytes)),
        }
    }
}

fn milli(quantity: &Quantity) -> u64 {
    u64::try_from(quantity.milli()).unwrap_or(0)
}

fn bytes(quantity: &Quantity) -> u64 {
    quantity.bytes()
}

fn amount(of: &ResourceRequirements, name: &str, unit: fn(&Quantity) -> u64) -> Amount {
    let get = |list: &ResourceList| list.get(name).map_or(0, unit);
    Amount { request: get(&of.requests), limit: get(&of.limits) }
}

fn container(container: &Container, role: Role) -> ContainerRequest {
    let of = &container.resources;
    let huge = of.requests.iter().filter(|(name, _)| name.starts_with(value::HUGEPAGES_PREFIX));
    let devices = of.limits.iter().filter(|(name, _)| is_device(name));
    ContainerRequest {
        name: container.name.clone(),
        role,
        cpu: amount(of, value::CPU, milli),
        memory: amount(of, value::MEMORY, bytes),
        huge: huge.map(|(name, quantity)| (name.clone(), bytes(quantity))).collect(),
        devices: devices
            .map(|(name, quantity)| (name.clone(), bytes(quantity)))
            .collect::<BTreeMap<String, u64>>(),
    }
}

/// Resources of device plugins have a domain of their own.
fn is_device(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| {
        !domain.starts_with("requests.") && domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io")
    })
}
