//! What settings may say, all faults together, each with the path of its field.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use podkeep_hal::cpu_set::CpuSet;

use super::duration::Duration;
use super::kubelet::KubeletConfiguration;
use crate::eviction::{self, EvictionError};
use crate::quantity::Quantity;

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// field path
    pub path: String,
    /// what was found and what is allowed
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl core::error::Error for ConfigFault {}

/// Collects faults.
pub(super) struct Faults(pub(super) Vec<ConfigFault>);

impl Faults {
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(ConfigFault { path: path.into(), message: message.into() });
    }

    pub(super) fn range(&mut self, path: &str, value: i64, low: i64, high: i64) {
        if value < low || value > high {
            self.add(path, format!("{value} is not between {low} and {high}"));
        }
    }

    pub(super) fn at_least(&mut self, path: &str, value: i64, low: i64) {
        if value < low {
            self.add(path, format!("{value} is less than {low}"));
        }
    }

    pub(super) fn one_of(&mut self, path: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.add(path, format!("'{value}' is not one of {}", Quoted(allowed)));
        }
    }

    pub(super) fn not_negative(&mut self, path: &str, value: Duration) {
        if value < Duration::ZERO {
            self.add(path, format!("{value} is negative"));
        }
    }
}

struct Quoted<'a>(&'a [&'a str]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, word) in self.0.iter().enumerate() {
            write!(f, "{}'{word}'", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Judges settings that have their defaults.
pub fn validate(config: &KubeletConfiguration) -> Vec<ConfigFault> {
    let mut faults = Faults(Vec::new());
    server(config, &mut faults);
    images(config, &mut faults);
    logs(config, &mut faults);
    cgroups(config, &mut faults);
    reservations(config, &mut faults);
    reserved_memory(config, &mut faults);
    managers(config, &mut faults);
    eviction_thresholds(config, &mut faults);
    shutdown(config, &mut faults);
    pods(config, &mut faults);
    without_api_server(config, &mut faults);
    faults.0
}

const TLS_VERSIONS: [&str; 5] = ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

fn server(c: &KubeletConfiguration, faults: &mut Faults) {
    faults.range("port", c.port.into(), 1, 65535);
    faults.range("readOnlyPort", c.read_only_port.into(), 0, 65535);
    faults.range("healthzPort", c.healthz_port.unwrap_or(0).into(), 0, 65535);
    for (path, text) in [("address", &c.address), ("healthzBindAddress", &c.healthz_bind_address)] {
        if text.parse::<core::net::IpAddr>().is_err() {
            faults.add(path, format!("'{text}' is not an IP address"));
        }
    }
    faults.one_of("tlsMinVersion", &c.tls_min_version, &TLS_VERSIONS);
    for (i, suite) in c.tls_cipher_suites.iter().enumerate() {
        if !suite.starts_with("TLS_") {
            let path = format!("tlsCipherSuites[{i}]");
            faults.add(&path, format!("'{suite}' is not the name of a cipher suite (they begin with TLS_)"));
        }
    }
    faults.one_of("authorization.mode", &c.authorization.mode, &["AlwaysAllow", "Webhook"]);
    let handler = c.enable_system_log_handler.unwrap_or(true);
    if c.enable_system_log_query == Some(true) && !handler {
        faults.add("enableSystemLogQuery", "needs enableSystemLogHandler, which is false");
    }
    if !c.static_pod_url.is_empty()
        && !["http://", "https://"].iter().any(|scheme| c.static_pod_url.starts_with(scheme))
    {
        faults.add("staticPodURL", "must begin with http:// or https://");
    }
    if let Some(rate) = c.tracing.as_ref().and_then(|tracing| tracing.sampling_rate_per_million) {
        faults.range("tracing.samplingRatePerMillion", rate.into(), 0, 1_000_000);
    }
    if c.container_runtime_endpoint.is_empty() {
        faults.add("containerRuntimeEndpoint", "must not be empty");
    }
}

fn images(c: &KubeletConfiguration, faults: &mut Faults) {
    faults.at_least("registryPullQPS", c.registry_pull_qps.unwrap_or(0).into(), 0);
    faults.at_least("registryBurst", c.registry_burst.into(), 0);
    let parallel = c.max_parallel_image_pulls;
    if let Some(max) = parallel {
        faults.at_least("maxParallelImagePulls", max.into(), 1);
    }
    if c.serialize_image_pulls == Some(true) && parallel.is_some_and(|max| max > 1) {
        faults.add("maxParallelImagePulls", "more than 1 needs 'serializeImagePulls: false'");
    }
    let (high, low) =
        (c.image_gc_high_threshold_percent.unwrap_or(85), c.image_gc_low_threshold_percent.unwrap_or(80));
    faults.range("imageGCHighThresholdPercent", high.into(), 0, 100);
    faults.range("imageGCLowThresholdPercent", low.into(), 0, 100);
    if low >= high {
        let message = format!("{low} must be less than imageGCHighThresholdPercent, which is {high}");
        faults.add("imageGCLowThresholdPercent", message);
    }
    let (least, most) = (c.image_minimum_gc_age, c.image_maximum_gc_age);
    faults.not_negative("imageMinimumGCAge", least);
    faults.not_negative("imageMaximumGCAge", most);
    if most > Duration::ZERO && most <= least {
        let message = format!("{most} must be more than imageMinimumGCAge, which is {least}");
        faults.add("imageMaximumGCAge", message);
    }
    let policy = &c.image_pull_credentials_verification_policy;
    let allowed =
        ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];
    faults.one_of("imagePullCredentialsVerificationPolicy", policy, &allowed);
    if !c.preloaded_images_verification_allowlist.is_empty() && policy != "NeverVerifyAllowlistedImages" {
        let message = "only with 'imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages'";
        faults.add("preloadedImagesVerificationAllowlist", message);
    }
}

fn logs(c: &KubeletConfiguration, faults: &mut Faults) {
    if !c.container_log_max_size.parse::<Quantity>().is_ok_and(|size| size.sign() > 0) {
        let message = format!("'{}' is not an amount of bytes such as 10Mi", c.container_log_max_size);
        faults.add("containerLogMaxSize", message);
    }
    faults.at_least("containerLogMaxFiles", c.container_log_max_files.unwrap_or(5).into(), 2);
    faults.at_least("containerLogMaxWorkers", c.container_log_max_workers.unwrap_or(1).into(), 1);
    let interval = c.container_log_monitor_interval.unwrap_or(Duration::from_secs(10));
    if interval < Duration::from_secs(3) {
        faults.add("containerLogMonitorInterval", format!("{interval} is less than 3s"));
    }
    let dir = &c.pod_logs_dir;
    if !dir.starts_with('/') || !is_clean(dir) || !dir.is_ascii() {
        let message =
            format!("'{dir}' is not an absolute path in ASCII without '..', '//' or a '/' at its end");
        faults.add("podLogsDir", message);
    }
    faults.one_of("logging.format", &c.logging.format, &["text", "json"]);
    faults.at_least("eventRecordQPS", c.event_record_qps.unwrap_or(0).into(), 0);
    faults.at_least("eventBurst", c.event_burst.into(), 0);
}

/// A path that Go's `filepath.Clean` would leave as it is.
fn is_clean(path: &str) -> bool {
    path == "/"
        || path
            .strip_prefix('/')
            .unwrap_or(path)
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

fn cgroups(c: &KubeletConfiguration, faults: &mut Faults) {
    faults.range("oomScoreAdj", c.oom_score_adj.unwrap_or(0).into(), -1000, 1000);
    faults.one_of("cgroupDriver", &c.cgroup_driver, &["cgroupfs", "systemd"]);
    if !c.system_cgroups.is_empty() && c.cgroup_root.is_empty() {
        faults.add("systemCgroups", "needs cgroupRoot, which is empty");
    }
    let period = c.cpu_cfs_quota_period.unwrap_or(Duration::from_millis(100));
    if period < Duration::from_millis(1) || period > Duration::from_secs(1) {
        faults.add("cpuCFSQuotaPeriod", format!("{period} is not between 1ms and 1s"));
    }
    let factor = c.memory_throttling_factor.unwrap_or(0.9);
    if !(factor > 0.0 && factor <= 1.0) {
        faults.add("memoryThrottlingFactor", format!("{factor} is not more than 0 and at most 1"));
    }
    faults.one_of("memoryReservationPolicy", &c.memory_reservation_policy, &["None", "TieredReservation"]);
    let memory_qos = c.feature_gates.get("MemoryQoS").copied().unwrap_or(false);
    if c.memory_reservation_policy == "TieredReservation" && !memory_qos {
        faults.add("memoryReservationPolicy", "'TieredReservation' needs 'featureGates: {MemoryQoS: true}'");
    }
    let swap = &c.memory_swap.swap_behavior;
    faults.one_of("memorySwap.swapBehavior", swap, &["", "NoSwap", "LimitedSwap"]);
    faults.at_least("maxOpenFiles", c.max_open_files, 0);
}

const ENFORCE: [&str; 6] = [
    "pods",
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
    "none",
];

fn reservations(c: &KubeletConfiguration, faults: &mut Faults) {
    let path = "enforceNodeAllocatable";
    let enforce = c.enforce_node_allocatable.as_deref().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for value in enforce {
        faults.one_of(path, value, &ENFORCE);
        if !seen.insert(value.as_str()) {
            faults.add(path, format!("'{value}' stands twice"));
        }
    }
    let has = |value: &str| enforce.iter().any(|v| v == value);
    if has("none") && enforce.len() > 1 {
        faults.add(path, "'none' must stand alone");
    }
    for (full, compressible, cgroup, field) in [
        (
            "system-reserved",
            "system-reserved-compressible",
            &c.system_reserved_cgroup,
            "systemReservedCgroup",
        ),
        ("kube-reserved", "kube-reserved-compressible", &c.kube_reserved_cgroup, "kubeReservedCgroup"),
    ] {
        if has(full) && has(compressible) {
            faults.add(path, format!("'{full}' and '{compressible}' exclude each other"));
        }
        if (has(full) || has(compressible)) && cgroup.is_empty() {
            faults.add(path, format!("'{full}' needs {field}, which is empty"));
        }
    }
    if c.cgroups_per_qos == Some(false) && enforce.iter().any(|value| value != "none") {
        faults.add("cgroupsPerQOS", "false needs 'enforceNodeAllocatable: []' or '[none]'");
    }
    for (field, map) in [("systemReserved", &c.system_reserved), ("kubeReserved", &c.kube_reserved)] {
        for (name, amount) in map {
            let path = format!("{field}[{name}]");
            faults.one_of(&path, name, &["cpu", "memory", "ephemeral-storage", "pid"]);
            match amount.parse::<Quantity>() {
                Ok(quantity) if quantity.sign() < 0 => faults.add(&path, format!("'{amount}' is negative")),
                Ok(_) => {}
                Err(error) => faults.add(&path, format!("{error}")),
            }
        }
    }
}

fn reserved_memory(c: &KubeletConfiguration, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (i, reservation) in c.reserved_memory.iter().enumerate() {
        let path = format!("reservedMemory[{i}]");
        faults.at_least(&format!("{path}.numaNode"), reservation.numa_node.into(), 0);
        if reservation.limits.is_empty() {
            faults.add(&format!("{path}.limits"), "must not be empty");
        }
        for (name, amount) in &reservation.limits {
            let path = format!("{path}.limits[{name}]");
            if name != "memory" && !name.starts_with("hugepages-") {
                faults.add(&path, format!("'{name}' is not 'memory' or 'hugepages-<size>'"));
            }
            if amount.sign() <= 0 {
                faults.add(&path, "must be more than 0");
            }
            if !seen.insert((reservation.numa_node, name.as_str())) {
                let message = format!("'{name}' stands twice for NUMA node {}", reservation.numa_node);
                faults.add(&path, message);
            }
        }
    }
}

fn managers(c: &KubeletConfiguration, faults: &mut Faults) {
    faults.one_of("cpuManagerPolicy", &c.cpu_manager_policy, &["none", "static"]);
    faults.one_of("memoryManagerPolicy", &c.memory_manager_policy, &["None", "Static"]);
    let policies = ["none", "best-effort", "restricted", "single-numa-node"];
    faults.one_of("topologyManagerPolicy", &c.topology_manager_policy, &policies);
    faults.one_of("topologyManagerScope", &c.topology_manager_scope, &["container", "pod"]);
    let cpus = &c.reserved_system_cpus;
    if !cpus.is_empty() {
        if let Err(error) = CpuSet::parse(cpus) {
            faults
                .add("reservedSystemCPUs", format!("'{cpus}' is not a list of CPUs such as 0-1,4: {error}"));
        }
        if !c.system_reserved_cgroup.is_empty() || !c.kube_reserved_cgroup.is_empty() {
            faults.add("reservedSystemCPUs", "not together with systemReservedCgroup or kubeReservedCgroup");
        }
    }
    let reserved = |map: &alloc::collections::BTreeMap<String, String>| {
        map.get("cpu").and_then(|cpu| cpu.parse::<Quantity>().ok()).is_some_and(|cpu| cpu.sign() > 0)
    };
    let any = !cpus.is_empty() || reserved(&c.system_reserved) || reserved(&c.kube_reserved);
    if c.cpu_manager_policy == "static" && !any {
        let message =
            "'static' needs CPUs kept for the system: set reservedSystemCPUs, or cpu in systemReserved";
        faults.add("cpuManagerPolicy", message);
    }
}

fn eviction_thresholds(c: &KubeletConfiguration, faults: &mut Faults) {
    let settings = eviction::Settings {
        hard: &c.eviction_hard,
        soft: &c.eviction_soft,
        grace: &c.eviction_soft_grace_period,
        min_reclaim: &c.eviction_minimum_reclaim,
        enforce_pods: c.enforce_node_allocatable.iter().flatten().any(|value| value == "pods"),
    };
    let Err(error) = eviction::thresholds(&settings) else { return };
    let (setting, name) = match &error {
        EvictionError::Signal { setting, name } | EvictionError::Value { setting, name, .. } => {
            (*setting, name)
        }
        EvictionError::NoGrace { name } => ("evictionSoft", name),
    };
    let path = format!("{setting}[{name}]");
    // the text begins with the path, or with the setting
    let text = format!("{error}");
    let message = text.strip_prefix(&path).or_else(|| text.strip_prefix(setting)).unwrap_or(&text);
    faults.add(&path, message.trim_start_matches(": "));
}

fn shutdown(c: &KubeletConfiguration, faults: &mut Faults) {
    let (all, critical) = (c.shutdown_grace_period, c.shutdown_grace_period_critical_pods);
    for (path, period) in [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)] {
        if !period.is_zero() && period < Duration::from_secs(1) {
            faults.add(path, format!("{period} is neither 0 nor at least 1s"));
        }
    }
    if critical > all {
        let message = format!("{critical} is more than shutdownGracePeriod, which is {all}");
        faults.add("shutdownGracePeriodCriticalPods", message);
    }
    let by_priority = !c.shutdown_grace_period_by_pod_priority.is_empty();
    if by_priority && (!all.is_zero() || !critical.is_zero()) {
        let message = "not together with shutdownGracePeriod or shutdownGracePeriodCriticalPods";
        faults.add("shutdownGracePeriodByPodPriority", message);
    }
}

fn pods(c: &KubeletConfiguration, faults: &mut Faults) {
    faults.at_least("maxPods", c.max_pods.into(), 0);
    faults.at_least("podsPerCore", c.pods_per_core.into(), 0);
    let modes = ["promiscuous-bridge", "hairpin-veth", "none"];
    faults.one_of("hairpinMode", &c.hairpin_mode, &modes);
    let longest = c.crash_loop_back_off.max_container_restart_period;
    if longest.is_some() && c.feature_gates.get("KubeletCrashLoopBackOffMax") == Some(&false) {
        let message = "must be left out while the feature gate KubeletCrashLoopBackOffMax is false";
        faults.add("crashLoopBackOff.maxContainerRestartPeriod", message);
    }
    let longest = longest.unwrap_or(Duration::from_secs(300));
    if longest < Duration::from_secs(1) || longest > Duration::from_secs(300) {
        let message = format!("{longest} is not between 1s and 5m0s");
        faults.add("crashLoopBackOff.maxContainerRestartPeriod", message);
    }
    if let Some(ids) = c.user_namespaces.as_ref().and_then(|user| user.ids_per_pod)
        && (ids < 65536 || ids % 65536 != 0 || ids >= 1 << 32)
    {
        let message = format!("{ids} is not a multiple of 65536 from 65536 to below 4294967296");
        faults.add("userNamespaces.idsPerPod", message);
    }
    for (i, pattern) in c.allowed_unsafe_sysctls.iter().enumerate() {
        let name = pattern.strip_suffix('*').unwrap_or(pattern);
        let complete = pattern.ends_with('*') && (name.ends_with('.') || name.ends_with('/'));
        if name.is_empty() || name.contains('*') || (pattern.ends_with('*') && !complete) {
            let message = format!("'{pattern}' is neither the name of a sysctl nor 'prefix.*'");
            faults.add(&format!("allowedUnsafeSysctls[{i}]"), message);
        }
    }
    if c.run_once {
        faults.add("runOnce", "true is not supported any more: remove it");
    }
}

fn without_api_server(c: &KubeletConfiguration, faults: &mut Faults) {
    faults.at_least("nodeLeaseDurationSeconds", c.node_lease_duration_seconds.into(), 1);
    faults.at_least("nodeStatusMaxImages", c.node_status_max_images.unwrap_or(50).into(), -1);
    faults.at_least("kubeAPIQPS", c.kube_api_qps.unwrap_or(0).into(), 0);
    faults.at_least("kubeAPIBurst", c.kube_api_burst.into(), 0);
    faults.range("iptablesMasqueradeBit", c.iptables_masquerade_bit.unwrap_or(14).into(), 0, 31);
    faults.range("iptablesDropBit", c.iptables_drop_bit.unwrap_or(15).into(), 0, 31);
    for (i, taint) in c.register_with_taints.iter().enumerate() {
        let path = format!("registerWithTaints[{i}]");
        if taint.key.is_empty() {
            faults.add(&format!("{path}.key"), "must not be empty");
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        faults.one_of(&format!("{path}.effect"), &taint.effect, &effects);
    }
}
