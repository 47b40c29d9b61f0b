//! Devices of plugins: which exist, which are healthy, who holds which. Names are sorted, so the choice is repeatable.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use podkeep_hal::numa_mask::{NodeId, NumaMask};

use super::{
    device_select::Selection,
    request::{ContainerRequest, PodRequest, Role},
};
use crate::topology::{
    hint::{Hint, Offer, Offers},
    masks::{MaskFamily, prefixes},
};

/// Device ids.
pub type Ids = BTreeSet<String>;

/// One device of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// May be handed out.
    pub healthy: bool,
    /// Nodes it is near to; none if it has no preference.
    pub nodes: Option<NumaMask>,
}

/// Nodes a plugin names, as far as they exist. No node, −1 or only unknown ones mean no preference; the second value
/// says whether a node was named that does not exist.
#[must_use]
pub fn nodes_of(named: &[i64], all: NumaMask) -> (Option<NumaMask>, bool) {
    let mut mask = NumaMask::EMPTY;
    let mut unknown = false;
    for name in named.iter().filter(|name| **name != -1) {
        match NodeId::try_from(*name).ok().filter(|id| all.contains(*id)) {
            Some(id) => mask.insert(id),
            None => unknown = true,
        }
    }
    ((!mask.is_empty()).then_some(mask), unknown)
}

/// Devices held, by pod, container and resource.
pub type DeviceAssignments = BTreeMap<String, BTreeMap<String, BTreeMap<String, Ids>>>;

/// All devices of the node, and who holds which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// By resource, then by id.
    resources: BTreeMap<String, BTreeMap<String, Device>>,
    assignments: DeviceAssignments,
    /// Devices init containers of the pod under admission held.
    reusable: BTreeMap<String, BTreeMap<String, Ids>>,
}

/// Why devices were not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The container holds another number already.
    ChangedRequest {
        /// Its pod.
        pod: String,
        /// Its name.
        container: String,
        /// The resource.
        resource: String,
        /// Devices held.
        held: usize,
        /// Devices asked for.
        requested: usize,
    },
    /// No plugin has registered the resource (yet).
    Unregistered {
        /// The resource.
        resource: String,
    },
    /// All devices are unhealthy.
    NoneHealthy {
        /// The resource.
        resource: String,
    },
    /// A device the container holds is unhealthy.
    HeldUnhealthy {
        /// The resource.
        resource: String,
    },
    /// Too few are free.
    Unavailable {
        /// The resource.
        resource: String,
        /// Devices asked for that are still missing.
        requested: usize,
        /// Devices free.
        available: usize,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChangedRequest { pod, container, resource, held, requested } => write!(
                f,
                "pod \"{pod}\" container \"{container}\" changed request for resource \"{resource}\" from {held} to {requested}"
            ),
            Self::Unregistered { resource } => write!(f, "cannot allocate unregistered device {resource}"),
            Self::NoneHealthy { resource } => {
                write!(f, "no healthy devices present; cannot allocate unhealthy devices {resource}")
            }
            Self::HeldUnhealthy { resource } => write!(
                f,
                "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            ),
            Self::Unavailable { resource, requested, available } => write!(
                f,
                "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
            ),
        }
    }
}

impl core::error::Error for DeviceError {}

impl Devices {
    /// Replaces the devices of a resource: what its plugin listed last.
    pub fn list(&mut self, resource: &str, devices: impl IntoIterator<Item = (String, Device)>) {
        self.resources.insert(resource.to_string(), devices.into_iter().collect());
    }

    /// Forgets a resource whose plugin is gone for good. Assignments stay.
    pub fn forget(&mut self, resource: &str) {
        self.resources.remove(resource);
    }

    /// Is there a plugin for it?
    #[must_use]
    pub fn is_registered(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// The devices of a resource.
    #[must_use]
    pub fn of(&self, resource: &str) -> Option<&BTreeMap<String, Device>> {
        self.resources.get(resource)
    }

    /// Names of all resources.
    pub fn resources(&self) -> impl Iterator<Item = &String> {
        self.resources.keys()
    }

    /// Who holds what.
    #[must_use]
    pub fn assignments(&self) -> &DeviceAssignments {
        &self.assignments
    }

    /// Takes over saved assignments.
    pub fn set_assignments(&mut self, assignments: DeviceAssignments) {
        self.assignments = assignments;
    }

    /// Sets what the pod may use again.
    pub fn set_reusable(&mut self, pod: &str, resource: &str, ids: Ids) {
        self.reusable.entry(pod.to_string()).or_default().insert(resource.to_string(), ids);
    }

    /// Devices of a resource that someone holds.
    #[must_use]
    pub fn in_use(&self, resource: &str) -> Ids {
        let containers = self.assignments.values().flat_map(BTreeMap::values);
        containers.filter_map(|held| held.get(resource)).flatten().cloned().collect()
    }

    /// Devices a container holds.
    #[must_use]
    pub fn held(&self, pod: &str, container: &str, resource: &str) -> Option<&Ids> {
        self.assignments.get(pod)?.get(container)?.get(resource)
    }

    fn reusable(&self, pod: &str, resource: &str) -> Ids {
        self.reusable.get(pod).and_then(|held| held.get(resource)).cloned().unwrap_or_default()
    }

    fn healthy(&self, resource: &str) -> Ids {
        let devices = self.resources.get(resource).into_iter().flatten();
        devices.filter(|(_, device)| device.healthy).map(|(id, _)| id.clone()).collect()
    }

    /// Healthy devices nobody holds.
    #[must_use]
    pub fn available(&self, resource: &str) -> Ids {
        let mut ids = self.healthy(resource);
        let in_use = self.in_use(resource);
        ids.retain(|id| !in_use.contains(id));
        ids
    }

    /// What a container asks of registered resources.
    #[must_use]
    pub fn requests(&self, container: &ContainerRequest) -> BTreeMap<String, u64> {
        let mut requests = container.devices.clone();
        requests.retain(|resource, count| *count > 0 && self.is_registered(resource));
        requests
    }

    /// What a pod asks of registered resources at its widest moment.
    #[must_use]
    pub fn pod_requests(&self, pod: &PodRequest) -> BTreeMap<String, u64> {
        pod.widest_by_name(|container| self.requests(container))
    }

    /// Offers for one container, by resource.
    #[must_use]
    pub fn hints(
        &self,
        pod: &PodRequest,
        container: &ContainerRequest,
        family: &MaskFamily,
        all: NumaMask,
    ) -> Offers {
        let offer = |(resource, count): (String, u64)| {
            let held = self.held(&pod.uid, &container.name, &resource).cloned().unwrap_or_default();
            let reusable = self.reusable(&pod.uid, &resource);
            let offer = self.offer(
                &resource,
                usize::try_from(count).unwrap_or(usize::MAX),
                &held,
                &reusable,
                family,
                all,
            );
            (resource, offer)
        };
        self.requests(container).into_iter().map(offer).collect()
    }

    /// Offers for a whole pod, by resource.
    #[must_use]
    pub fn pod_hints(&self, pod: &PodRequest, family: &MaskFamily, all: NumaMask) -> Offers {
        let offer = |(resource, count): (String, u64)| {
            let containers = self.assignments.get(&pod.uid).into_iter().flat_map(BTreeMap::values);
            let held: Ids = containers.filter_map(|held| held.get(&resource)).flatten().cloned().collect();
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let offer = self.offer(&resource, count, &held, &Ids::new(), family, all);
            (resource, offer)
        };
        self.pod_requests(pod).into_iter().map(offer).collect()
    }

    fn offer(
        &self,
        resource: &str,
        requested: usize,
        held: &Ids,
        reusable: &Ids,
        family: &MaskFamily,
        all: NumaMask,
    ) -> Offer {
        let devices = self.resources.get(resource)?;
        if devices.values().all(|device| device.nodes.is_none()) {
            return None;
        }
        if !held.is_empty() {
            let same = held.len() == requested;
            return Some(if same {
                generate(devices, held, &Ids::new(), requested, family, all)
            } else {
                Vec::new()
            });
        }
        let mut available = self.available(resource);
        available.retain(|id| !reusable.contains(id));
        if available.len().saturating_add(reusable.len()) < requested {
            return Some(Vec::new());
        }
        Some(generate(devices, &available, reusable, requested, family, all))
    }

    /// Node sets worth asking about on machines where not all can be: the nodes with most devices free, in every number.
    #[must_use]
    pub fn roomiest(&self, all: NumaMask) -> Vec<NumaMask> {
        let most_free = |resource: &String| {
            let free = self.available(resource);
            let devices = self.resources.get(resource).into_iter().flatten();
            let masks: Vec<NumaMask> =
                devices.filter(|(id, _)| free.contains(*id)).filter_map(|(_, device)| device.nodes).collect();
            let near = |node: NodeId| masks.iter().filter(|mask| mask.contains(node)).count();
            let mut nodes: Vec<(usize, NodeId)> = all.iter().map(|node| (near(node), node)).collect();
            nodes.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            prefixes(nodes.into_iter().map(|(_, node)| node)).collect::<Vec<_>>()
        };
        self.resources.keys().flat_map(most_free).collect()
    }

    /// Starts choosing devices for a container; none if it holds them already.
    ///
    /// # Errors
    /// Devices are missing, unhealthy, or held in another number.
    pub fn select(
        &self,
        pod: &PodRequest,
        container: &str,
        resource: &str,
        requested: usize,
        affinity: Option<NumaMask>,
    ) -> Result<Option<Selection>, DeviceError> {
        let held = self.held(&pod.uid, container, resource);
        if let Some(held) = held.filter(|held| held.len() != requested) {
            return Err(DeviceError::ChangedRequest {
                pod: pod.uid.clone(),
                container: container.to_string(),
                resource: resource.to_string(),
                held: held.len(),
                requested,
            });
        }
        let resource = || resource.to_string();
        let Some(devices) = self.resources.get(&resource()) else {
            return Err(DeviceError::Unregistered { resource: resource() });
        };
        let healthy = self.healthy(&resource());
        if healthy.is_empty() {
            return Err(DeviceError::NoneHealthy { resource: resource() });
        }
        if let Some(held) = held {
            let sick = !held.is_subset(&healthy);
            return if sick { Err(DeviceError::HeldUnhealthy { resource: resource() }) } else { Ok(None) };
        }
        let reusable = self.reusable(&pod.uid, &resource());
        let selection = Selection::new(devices, self.available(&resource()), &reusable, requested, affinity);
        selection.map(Some).map_err(|(requested, available)| DeviceError::Unavailable {
            resource: resource(),
            requested,
            available,
        })
    }

    /// Books chosen devices.
    pub fn assign(&mut self, pod: &PodRequest, container: &ContainerRequest, resource: &str, ids: Ids) {
        self.pass_on(&pod.uid, container.role, resource, &ids);
        let containers = self.assignments.entry(pod.uid.clone()).or_default();
        containers.entry(container.name.clone()).or_default().insert(resource.to_string(), ids);
    }

    /// Init containers leave their devices to later ones, all others take theirs out of what may be used again.
    pub fn pass_on(&mut self, pod: &str, role: Role, resource: &str, ids: &Ids) {
        self.reusable.retain(|known, _| known == pod);
        let reusable =
            self.reusable.entry(pod.to_string()).or_default().entry(resource.to_string()).or_default();
        match role {
            Role::Init => reusable.extend(ids.iter().cloned()),
            Role::Sidecar | Role::App => reusable.retain(|id| !ids.contains(id)),
        }
    }

    /// Takes a container's devices back, except those another container of its pod holds.
    pub fn remove(&mut self, pod: &str, container: &str) {
        let Some(containers) = self.assignments.get_mut(pod) else { return };
        containers.remove(container);
        if containers.is_empty() {
            self.assignments.remove(pod);
        }
        // what is given back may become someone else's
        self.reusable.remove(pod);
    }
}

fn generate(
    devices: &BTreeMap<String, Device>,
    available: &Ids,
    reusable: &Ids,
    requested: usize,
    family: &MaskFamily,
    all: NumaMask,
) -> Vec<Hint> {
    let near = |ids: &Ids| -> Vec<NumaMask> { ids.iter().filter_map(|id| devices.get(id)?.nodes).collect() };
    let touching = |masks: &[NumaMask], mask: NumaMask| {
        masks.iter().filter(|nodes| !nodes.intersection(mask).is_empty()).count()
    };
    let every: Vec<NumaMask> = devices.values().filter_map(|device| device.nodes).collect();
    let (available, reusable) = (near(available), near(reusable));
    let mut narrowest = all.count();
    let mut masks = Vec::new();
    for mask in family.inside(all) {
        if mask.count() < narrowest && touching(&every, mask) >= requested {
            narrowest = mask.count();
        }
        let reused = touching(&reusable, mask);
        if reused == reusable.len() && reused.saturating_add(touching(&available, mask)) >= requested {
            masks.push(mask);
        }
    }
    masks.into_iter().map(|mask| Hint::new(mask, mask.count() == narrowest)).collect()
}

/// What a node can offer of each resource, raised to what is in use: devices that vanished while held still count.
pub fn raise_to_use(allocatable: &mut BTreeMap<String, u64>, in_use: &BTreeMap<String, Ids>) {
    for (resource, ids) in in_use {
        let count = ids.len() as u64;
        let slot = allocatable.entry(resource.clone()).or_default();
        *slot = (*slot).max(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_wrong_names_are_no_preference() {
        let all = NumaMask(0b11);
        assert_eq!(nodes_of(&[], all), (None, false));
        assert_eq!(nodes_of(&[-1], all), (None, false));
        assert_eq!(nodes_of(&[7], all), (None, true));
        assert_eq!(nodes_of(&[i64::MAX, 1], all), (Some(NumaMask(0b10)), true));
    }
}
