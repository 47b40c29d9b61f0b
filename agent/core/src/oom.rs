//! oom_score_adj of a container: whom the kernel stops first when memory runs out.
use crate::qos::{self, QosClass};
use crate::resources::is_sidecar;
use crate::types::{Pod, ResourceList, value};

/// Score of a Guaranteed or node-critical container.
pub const GUARANTEED: i32 = -997;
/// Score of a BestEffort container.
pub const BEST_EFFORT: i32 = 1000;
/// Score of the agent itself.
pub const AGENT: i32 = -999;
/// Name of the priority class that is worth as much as a guarantee.
pub const NODE_CRITICAL: &str = "system-node-critical";

fn memory(list: &ResourceList) -> i128 {
    list.get(value::MEMORY).map_or(0, |q| i128::from(q.bytes()))
}

/// The score of a container of a pod with its defaults filled in. `container` may be a regular or an init container;
/// `capacity` is the memory of the machine in bytes, not what is allocatable.
pub fn score_adj(pod: &Pod, container: &str, capacity: u64) -> i32 {
    if pod.spec.priority_class_name == NODE_CRITICAL {
        return GUARANTEED;
    }
    match qos::class(pod) {
        QosClass::Guaranteed => return GUARANTEED,
        QosClass::BestEffort => return BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let spec = &pod.spec;
    let rest = unclaimed(pod);
    let score = |request: i128| {
        let permille =
            request.saturating_add(rest).saturating_mul(1000).checked_div(i128::from(capacity)).unwrap_or(0);
        1000i128.saturating_sub(permille)
    };
    let all = || spec.init_containers.iter().chain(&spec.containers);
    let own = all().find(|c| c.name == container).map_or(0, |c| memory(&c.resources.requests));
    let mut result = score(own);
    // a sidecar must not be stopped before the container it serves
    if spec.init_containers.iter().any(|c| c.name == container && is_sidecar(c)) {
        let smallest = spec.containers.iter().map(|c| memory(&c.resources.requests)).min().unwrap_or(0);
        result = result.min(score(smallest));
    }
    // behind every Guaranteed container, before every BestEffort one
    i32::try_from(result.clamp(3, 999)).unwrap_or(999)
}

/// The part of the pod-level memory request no container claims, split evenly, in bytes.
fn unclaimed(pod: &Pod) -> i128 {
    let Some(own) = &pod.spec.resources else { return 0 };
    let wanted = memory(&own.requests);
    if wanted == 0 {
        return 0;
    }
    let long_lived = || {
        let sidecars = pod.spec.init_containers.iter().filter(|c| is_sidecar(c));
        sidecars.chain(&pod.spec.containers)
    };
    let claimed: i128 = long_lived().map(|c| memory(&c.resources.requests)).fold(0, i128::saturating_add);
    let count = i128::try_from(long_lived().count()).unwrap_or(1).max(1);
    wanted.saturating_sub(claimed).max(0).checked_div(count).unwrap_or(0)
}
