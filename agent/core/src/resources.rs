//! Effective amounts of a pod; CPU shares, quota, weight; cgroup names; swap.
//!
//! All functions want a pod with its defaults filled in. Rules: the kubelet's resource helpers and `cm` package.
use crate::qos::{self, QosClass};
use crate::types::{Container, Pod, Quantity, ResourceList, value};
use alloc::{format, string::String, vec::Vec};
use core::fmt;

/// The least CPU shares a cgroup gets.
pub const MIN_SHARES: u64 = 2;
/// The most CPU shares a cgroup gets.
pub const MAX_SHARES: u64 = 262_144;
/// The least quota the kernel takes, in microseconds.
pub const MIN_QUOTA_MICROS: i64 = 1000;
/// The period of the quota when the configuration says nothing, in microseconds.
pub const DEFAULT_PERIOD_MICROS: u64 = 100_000;

/// Whether an init container keeps running beside the regular ones.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some(value::ALWAYS)
}

/// Whether `spec.resources` may speak of this resource.
pub fn is_pod_level(name: &str) -> bool {
    name == value::CPU || name == value::MEMORY || name.starts_with(value::HUGEPAGES_PREFIX)
}

fn add(sum: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let slot = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = slot.plus(*amount);
    }
}

fn raise(most: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let slot = most.entry(name.clone()).or_insert(*amount);
        *slot = (*slot).max(*amount);
    }
}

/// max(regular + sidecars, each init container + the sidecars before it).
fn over_containers(pod: &Pod, pick: fn(&Container) -> &ResourceList) -> ResourceList {
    let mut running = ResourceList::new();
    pod.spec.containers.iter().for_each(|c| add(&mut running, pick(c)));
    let (mut sidecars, mut starting) = (ResourceList::new(), ResourceList::new());
    for c in &pod.spec.init_containers {
        if is_sidecar(c) {
            add(&mut running, pick(c));
            add(&mut sidecars, pick(c));
            raise(&mut starting, &sidecars);
        } else {
            let mut with_sidecars = sidecars.clone();
            add(&mut with_sidecars, pick(c));
            raise(&mut starting, &with_sidecars);
        }
    }
    raise(&mut running, &starting);
    running
}

/// What the containers of a pod request together, without pod-level amounts and overhead.
pub fn container_requests(pod: &Pod) -> ResourceList {
    over_containers(pod, |c| &c.resources.requests)
}

/// What the containers of a pod are limited to together; a container without a limit counts nothing.
pub fn container_limits(pod: &Pod) -> ResourceList {
    over_containers(pod, |c| &c.resources.limits)
}

fn replace_pod_level(list: &mut ResourceList, own: Option<&ResourceList>) {
    for (name, amount) in own.into_iter().flatten().filter(|(name, _)| is_pod_level(name)) {
        list.insert(name.clone(), *amount);
    }
}

/// What a pod requests: containers, replaced by pod-level amounts, plus overhead.
pub fn pod_requests(pod: &Pod) -> ResourceList {
    let mut list = container_requests(pod);
    replace_pod_level(&mut list, pod.spec.resources.as_ref().map(|r| &r.requests));
    add(&mut list, &pod.spec.overhead);
    list
}

/// What a pod is limited to; overhead is added only to limits that are there.
pub fn pod_limits(pod: &Pod) -> ResourceList {
    let mut list = container_limits(pod);
    replace_pod_level(&mut list, pod.spec.resources.as_ref().map(|r| &r.limits));
    for (name, extra) in &pod.spec.overhead {
        if let Some(limit) = list.get_mut(name).filter(|l| !l.is_zero()) {
            *limit = limit.plus(*extra);
        }
    }
    list
}

/// Shares of a request in milli CPUs.
pub fn shares(milli_cpu: i64) -> u64 {
    let shares = milli_cpu.max(0).saturating_mul(1024) / 1000;
    u64::try_from(shares).unwrap_or(MIN_SHARES).clamp(MIN_SHARES, MAX_SHARES)
}

/// Shares of a container: its request, else its limit, else the least.
pub fn container_shares(container: &Container) -> u64 {
    let r = &container.resources;
    shares(r.requests.get(value::CPU).or_else(|| r.limits.get(value::CPU)).map_or(0, Quantity::milli))
}

/// Quota in microseconds a period of a limit in milli CPUs; 0 means no limit.
pub fn quota(milli_cpu: i64, period_micros: u64) -> i64 {
    if milli_cpu <= 0 {
        return 0;
    }
    let quota = i128::from(milli_cpu).saturating_mul(i128::from(period_micros)) / 1000;
    i64::try_from(quota).unwrap_or(i64::MAX).max(MIN_QUOTA_MICROS)
}

/// cpu.weight of the cgroups of pods and QoS classes: linear in the shares.
pub fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(MIN_SHARES, MAX_SHARES);
    1 + (shares - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}

/// cpu.weight of the cgroup of a container, as today's OCI runtimes make it: 1024 shares are the kernel's 100.
pub fn container_weight(shares: u64) -> u64 {
    if shares <= MIN_SHARES {
        return 1;
    }
    if shares >= MAX_SHARES {
        return 10_000;
    }
    let l = log2(shares);
    let weight = exp((l * l + 125.0 * l) / 612.0 * LN_10 - 7.0 / 34.0 * LN_10);
    // rounded up, but not because of the last bits: 1024 is 100 exactly
    let whole = (weight - 1e-9) as u64;
    whole.saturating_add(1).clamp(1, 10_000)
}

const LN_2: f64 = core::f64::consts::LN_2;
const LN_10: f64 = core::f64::consts::LN_10;

/// Binary logarithm of a positive number below 2^32, by the series of the area tangent; `core` has none.
fn log2(number: u64) -> f64 {
    let exponent = 63u32.saturating_sub(number.leading_zeros());
    let mantissa = number as f64 / (1u64 << exponent) as f64;
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (z, 0.0);
    for odd in 0..24u32 {
        sum += power / f64::from(2 * odd + 1);
        power *= z * z;
    }
    f64::from(exponent) + 2.0 * sum / LN_2
}

/// e^x for 0 <= x < 16, by the series.
fn exp(x: f64) -> f64 {
    let small = x / 16.0;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..24u32 {
        term *= small / f64::from(n);
        sum += term;
    }
    (0..4).fold(sum, |value, _| value * value)
}

/// What is written into the cgroup of a pod. What is none is left at the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCgroup {
    /// The class the values follow from.
    pub qos: QosClass,
    /// CPU shares.
    pub shares: u64,
    /// cpu.weight of the shares.
    pub weight: u64,
    /// Quota in microseconds and period; -1 is no limit.
    pub quota: Option<(i64, u64)>,
    /// memory.max in bytes.
    pub memory_max: Option<u64>,
}

/// The values of the cgroup of a pod. `enforce_quota` is `cpuCFSQuota`, and false for a pod with exclusive CPUs.
pub fn pod_cgroup(pod: &Pod, period_micros: u64, enforce_quota: bool) -> PodCgroup {
    let qos = qos::class(pod);
    let (requests, limits) = (pod_requests(pod), pod_limits(pod));
    let milli = |list: &ResourceList| list.get(value::CPU).map_or(0, Quantity::milli);
    let declared = |name: &str| {
        let of_pod = pod.spec.resources.as_ref().is_some_and(|r| r.limits.contains_key(name));
        let has = |c: &Container| c.resources.limits.get(name).is_some_and(|l| !l.is_zero());
        of_pod || pod.spec.init_containers.iter().chain(&pod.spec.containers).all(has)
    };
    let quota = if enforce_quota { quota(milli(&limits), period_micros) } else { -1 };
    let shares = if qos == QosClass::BestEffort { MIN_SHARES } else { shares(milli(&requests)) };
    let (cpu, memory) = match qos {
        QosClass::Guaranteed => (true, true),
        QosClass::Burstable => (declared(value::CPU), declared(value::MEMORY)),
        QosClass::BestEffort => (false, false),
    };
    PodCgroup {
        qos,
        shares,
        weight: weight(shares),
        quota: cpu.then_some((quota, period_micros)),
        memory_max: if memory { limits.get(value::MEMORY).map(Quantity::bytes) } else { None },
    }
}

/// memory.swap.max of a Burstable container under `LimitedSwap`, in bytes: the share of the node's swap that its
/// request is of the node's memory. All other containers get none.
pub fn limited_swap(request: u64, node_memory: u64, node_swap: u64) -> u64 {
    if node_memory == 0 {
        return 0;
    }
    (request as f64 / node_memory as f64 * node_swap as f64) as u64
}

/// How cgroups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Plain folders.
    Cgroupfs,
    /// Slices of systemd.
    Systemd,
}

/// Why a cgroup cannot be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupNameError {
    /// The part that is not allowed.
    pub part: String,
}

impl fmt::Display for CgroupNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' cannot be part of a cgroup name: it is empty or has '_' or '/'", self.part)
    }
}

impl core::error::Error for CgroupNameError {}

/// The path of a cgroup below the mount, from the parts of its internal name: `["kubepods", "burstable"]`.
pub fn cgroup_path(parts: &[&str], driver: CgroupDriver) -> Result<String, CgroupNameError> {
    let mut path = String::new();
    let mut slice = String::new();
    for part in parts {
        if part.is_empty() || part.contains(['_', '/']) {
            return Err(CgroupNameError { part: String::from(*part) });
        }
        match driver {
            CgroupDriver::Cgroupfs => path.push_str(&format!("/{part}")),
            CgroupDriver::Systemd => {
                // '-' separates levels, so one inside a part is escaped
                if !slice.is_empty() {
                    slice.push('-');
                }
                slice.push_str(&part.replace('-', "_"));
                path.push_str(&format!("/{slice}.slice"));
            }
        }
    }
    if path.is_empty() {
        path.push('/');
    }
    Ok(path)
}

/// The parts of the internal name of a pod's cgroup. `root` are those of `cgroupRoot`.
pub fn pod_cgroup_parts<'a>(root: &[&'a str], qos: QosClass, pod_part: &'a str) -> Vec<&'a str> {
    let mut parts: Vec<&'a str> = root.to_vec();
    parts.push("kubepods");
    match qos {
        QosClass::Guaranteed => {}
        QosClass::Burstable => parts.push("burstable"),
        QosClass::BestEffort => parts.push("besteffort"),
    }
    parts.push(pod_part);
    parts
}

/// The last part of the name of a pod's cgroup.
pub fn pod_cgroup_part(uid: &str) -> String {
    format!("pod{uid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_a_container_agrees_with_the_formula_in_floating_point() {
        for shares in (3..MAX_SHARES).step_by(7) {
            let l = (shares as f64).log2();
            let wanted = 10f64.powf((l * l + 125.0 * l) / 612.0 - 7.0 / 34.0);
            let off = (wanted.ceil() - container_weight(shares) as f64).abs();
            assert!(off == 0.0 || (wanted - wanted.round()).abs() < 1e-9, "{shares}: {wanted}");
        }
        assert_eq!(container_weight(1024), 100);
    }

    #[test]
    fn a_part_with_a_separator_is_refused() {
        for part in ["", "a_b", "a/b"] {
            assert!(cgroup_path(&["kubepods", part], CgroupDriver::Systemd).is_err());
        }
        assert_eq!(cgroup_path(&[], CgroupDriver::Systemd).as_deref(), Ok("/"));
    }
}
