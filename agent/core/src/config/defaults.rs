//! What the kubelet fills in where its settings are absent; a zero counts as absent for lengths of time and for those
//! numbers that the API does not make optional.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use super::duration::Duration;
use super::kubelet::KubeletConfiguration;

/// Hard eviction thresholds on Linux.
pub const EVICTION_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

fn time(slot: &mut Duration, seconds: i64) {
    if slot.is_zero() {
        *slot = Duration::from_secs(seconds);
    }
}

fn number(slot: &mut i32, value: i32) {
    if *slot == 0 {
        *slot = value;
    }
}

fn word(slot: &mut String, value: &str) {
    if slot.is_empty() {
        slot.push_str(value);
    }
}

/// Fills in every default of the API.
pub fn set_defaults(config: &mut KubeletConfiguration) {
    server(config);
    images_and_logs(config);
    resources(config);
    pods(config);
    without_api_server(config);
}

fn server(c: &mut KubeletConfiguration) {
    c.enable_server.get_or_insert(true);
    time(&mut c.sync_frequency, 60);
    time(&mut c.file_check_frequency, 20);
    time(&mut c.http_check_frequency, 20);
    word(&mut c.address, "0.0.0.0");
    number(&mut c.port, 10250);
    c.authentication.anonymous.enabled.get_or_insert(false);
    c.authentication.webhook.enabled.get_or_insert(true);
    time(&mut c.authentication.webhook.cache_ttl, 120);
    word(&mut c.authorization.mode, "Webhook");
    time(&mut c.authorization.webhook.cache_authorized_ttl, 300);
    time(&mut c.authorization.webhook.cache_unauthorized_ttl, 30);
    c.healthz_port.get_or_insert(10248);
    word(&mut c.healthz_bind_address, "127.0.0.1");
    c.enable_debugging_handlers.get_or_insert(true);
    c.enable_profiling_handler.get_or_insert(true);
    c.enable_debug_flags_handler.get_or_insert(true);
    c.enable_system_log_handler.get_or_insert(true);
    time(&mut c.streaming_connection_idle_timeout, 4 * 3600);
    word(&mut c.logging.format, "text");
    word(&mut c.container_runtime_endpoint, "unix:///run/containerd/containerd.sock");
    word(&mut c.pod_logs_dir, "/var/log/pods");
    c.local_storage_capacity_isolation.get_or_insert(true);
    c.seccomp_default.get_or_insert(false);
}

fn images_and_logs(c: &mut KubeletConfiguration) {
    c.registry_pull_qps.get_or_insert(5);
    number(&mut c.registry_burst, 10);
    c.event_record_qps.get_or_insert(50);
    number(&mut c.event_burst, 100);
    let parallel = c.max_parallel_image_pulls.is_some_and(|max| max > 1);
    c.serialize_image_pulls.get_or_insert(!parallel);
    word(&mut c.image_pull_credentials_verification_policy, "NeverVerifyPreloadedImages");
    time(&mut c.image_minimum_gc_age, 120);
    c.image_gc_high_threshold_percent.get_or_insert(85);
    c.image_gc_low_threshold_percent.get_or_insert(80);
    word(&mut c.container_log_max_size, "10Mi");
    c.container_log_max_files.get_or_insert(5);
    c.container_log_max_workers.get_or_insert(1);
    c.container_log_monitor_interval.get_or_insert(Duration::from_secs(10));
}

fn resources(c: &mut KubeletConfiguration) {
    c.oom_score_adj.get_or_insert(-999);
    time(&mut c.volume_stats_agg_period, 60);
    word(&mut c.cgroup_driver, "cgroupfs");
    c.cgroups_per_qos.get_or_insert(true);
    word(&mut c.cpu_manager_policy, "none");
    time(&mut c.cpu_manager_reconcile_period, 10);
    word(&mut c.memory_manager_policy, "None");
    word(&mut c.topology_manager_policy, "none");
    word(&mut c.topology_manager_scope, "container");
    c.cpu_cfs_quota.get_or_insert(true);
    c.cpu_cfs_quota_period.get_or_insert(Duration::from_millis(100));
    c.fail_swap_on.get_or_insert(true);
    c.fail_cgroup_v1.get_or_insert(true);
    c.memory_throttling_factor.get_or_insert(0.9);
    word(&mut c.memory_reservation_policy, "None");
    c.enforce_node_allocatable.get_or_insert_with(|| alloc::vec!["pods".to_string()]);
    let merge = *c.merge_default_eviction_settings.get_or_insert(false);
    if c.eviction_hard.is_empty() || merge {
        let own = core::mem::take(&mut c.eviction_hard);
        let defaults = EVICTION_HARD.iter().map(|(signal, value)| (signal.to_string(), value.to_string()));
        c.eviction_hard = defaults.chain(own).collect::<BTreeMap<_, _>>();
    }
    time(&mut c.eviction_pressure_transition_period, 300);
    if c.max_open_files == 0 {
        c.max_open_files = 1_000_000;
    }
}

fn pods(c: &mut KubeletConfiguration) {
    number(&mut c.max_pods, 110);
    c.pod_pids_limit = Some(c.pod_pids_limit.unwrap_or(-1).max(-1));
    c.resolv_conf.get_or_insert_with(|| "/etc/resolv.conf".to_string());
    time(&mut c.runtime_request_timeout, 120);
    word(&mut c.hairpin_mode, "promiscuous-bridge");
    word(&mut c.volume_plugin_dir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/");
    word(&mut c.change_detection_strategy, "Watch");
    c.make_iptables_util_chains.get_or_insert(true);
    c.iptables_masquerade_bit.get_or_insert(14);
    c.iptables_drop_bit.get_or_insert(15);
    if c.feature_gates.get("KubeletCrashLoopBackOffMax") != Some(&false) {
        c.crash_loop_back_off.max_container_restart_period.get_or_insert(Duration::from_secs(300));
    }
    c.user_namespaces.get_or_insert_default().ids_per_pod.get_or_insert(65536);
}

fn without_api_server(c: &mut KubeletConfiguration) {
    time(&mut c.node_status_update_frequency, 10);
    time(&mut c.node_status_report_frequency, 300);
    number(&mut c.node_lease_duration_seconds, 40);
    c.node_status_max_images.get_or_insert(50);
    word(&mut c.content_type, "application/vnd.kubernetes.protobuf");
    c.kube_api_qps.get_or_insert(50);
    number(&mut c.kube_api_burst, 100);
    c.enable_controller_attach_detach.get_or_insert(true);
    c.register_node.get_or_insert(true);
}
