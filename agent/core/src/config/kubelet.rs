//! KubeletConfiguration, `kubelet.config.k8s.io/v1beta1`, every field of Kubernetes 1.36.
//!
//! Wire names and which fields are optional follow the API, so "absent" and "zero" differ where the API tells them
//! apart. What stands alone has no use for is listed in [`super::WITHOUT_USE`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::duration::Duration;
use crate::object;
use crate::quantity::Quantity;
use crate::types::IntOrString;

object! {
    /// The kubelet's settings.
    pub struct KubeletConfiguration {
        api_version: String = "apiVersion",
        kind: String = "kind",
        enable_server: Option<bool> = "enableServer",
        static_pod_path: String = "staticPodPath",
        pod_logs_dir: String = "podLogsDir",
        sync_frequency: Duration = "syncFrequency",
        file_check_frequency: Duration = "fileCheckFrequency",
        http_check_frequency: Duration = "httpCheckFrequency",
        static_pod_url: String = "staticPodURL",
        static_pod_url_header: BTreeMap<String, Vec<String>> = "staticPodURLHeader",
        address: String = "address",
        port: i32 = "port",
        read_only_port: i32 = "readOnlyPort",
        tls_cert_file: String = "tlsCertFile",
        tls_private_key_file: String = "tlsPrivateKeyFile",
        tls_cipher_suites: Vec<String> = "tlsCipherSuites",
        tls_min_version: String = "tlsMinVersion",
        tls_curve_preferences: Vec<i32> = "tlsCurvePreferences",
        rotate_certificates: bool = "rotateCertificates",
        server_tls_bootstrap: bool = "serverTLSBootstrap",
        authentication: Authentication = "authentication",
        authorization: Authorization = "authorization",
        registry_pull_qps: Option<i32> = "registryPullQPS",
        registry_burst: i32 = "registryBurst",
        image_pull_credentials_verification_policy: String = "imagePullCredentialsVerificationPolicy",
        preloaded_images_verification_allowlist: Vec<String> = "preloadedImagesVerificationAllowlist",
        event_record_qps: Option<i32> = "eventRecordQPS",
        event_burst: i32 = "eventBurst",
        enable_debugging_handlers: Option<bool> = "enableDebuggingHandlers",
        enable_contention_profiling: bool = "enableContentionProfiling",
        healthz_port: Option<i32> = "healthzPort",
        healthz_bind_address: String = "healthzBindAddress",
        oom_score_adj: Option<i32> = "oomScoreAdj",
        cluster_domain: String = "clusterDomain",
        cluster_dns: Vec<String> = "clusterDNS",
        streaming_connection_idle_timeout: Duration = "streamingConnectionIdleTimeout",
        node_status_update_frequency: Duration = "nodeStatusUpdateFrequency",
        node_status_report_frequency: Duration = "nodeStatusReportFrequency",
        node_lease_duration_seconds: i32 = "nodeLeaseDurationSeconds",
        image_minimum_gc_age: Duration = "imageMinimumGCAge",
        image_maximum_gc_age: Duration = "imageMaximumGCAge",
        image_gc_high_threshold_percent: Option<i32> = "imageGCHighThresholdPercent",
        image_gc_low_threshold_percent: Option<i32> = "imageGCLowThresholdPercent",
        volume_stats_agg_period: Duration = "volumeStatsAggPeriod",
        kubelet_cgroups: String = "kubeletCgroups",
        system_cgroups: String = "systemCgroups",
        cgroup_root: String = "cgroupRoot",
        cgroups_per_qos: Option<bool> = "cgroupsPerQOS",
        cgroup_driver: String = "cgroupDriver",
        cpu_manager_policy: String = "cpuManagerPolicy",
        single_process_oom_kill: Option<bool> = "singleProcessOOMKill",
        cpu_manager_policy_options: BTreeMap<String, String> = "cpuManagerPolicyOptions",
        cpu_manager_reconcile_period: Duration = "cpuManagerReconcilePeriod",
        memory_manager_policy: String = "memoryManagerPolicy",
        topology_manager_policy: String = "topologyManagerPolicy",
        topology_manager_scope: String = "topologyManagerScope",
        topology_manager_policy_options: BTreeMap<String, String> = "topologyManagerPolicyOptions",
        qos_reserved: BTreeMap<String, String> = "qosReserved",
        runtime_request_timeout: Duration = "runtimeRequestTimeout",
        hairpin_mode: String = "hairpinMode",
        max_pods: i32 = "maxPods",
        pod_cidr: String = "podCIDR",
        pod_pids_limit: Option<i64> = "podPidsLimit",
        resolv_conf: Option<String> = "resolvConf",
        run_once: bool = "runOnce",
        cpu_cfs_quota: Option<bool> = "cpuCFSQuota",
        cpu_cfs_quota_period: Option<Duration> = "cpuCFSQuotaPeriod",
        node_status_max_images: Option<i32> = "nodeStatusMaxImages",
        max_open_files: i64 = "maxOpenFiles",
        content_type: String = "contentType",
        kube_api_qps: Option<i32> = "kubeAPIQPS",
        kube_api_burst: i32 = "kubeAPIBurst",
        serialize_image_pulls: Option<bool> = "serializeImagePulls",
        max_parallel_image_pulls: Option<i32> = "maxParallelImagePulls",
        eviction_hard: BTreeMap<String, String> = "evictionHard",
        eviction_soft: BTreeMap<String, String> = "evictionSoft",
        eviction_soft_grace_period: BTreeMap<String, String> = "evictionSoftGracePeriod",
        eviction_pressure_transition_period: Duration = "evictionPressureTransitionPeriod",
        eviction_max_pod_grace_period: i32 = "evictionMaxPodGracePeriod",
        eviction_minimum_reclaim: BTreeMap<String, String> = "evictionMinimumReclaim",
        merge_default_eviction_settings: Option<bool> = "mergeDefaultEvictionSettings",
        pods_per_core: i32 = "podsPerCore",
        enable_controller_attach_detach: Option<bool> = "enableControllerAttachDetach",
        protect_kernel_defaults: bool = "protectKernelDefaults",
        make_iptables_util_chains: Option<bool> = "makeIPTablesUtilChains",
        iptables_masquerade_bit: Option<i32> = "iptablesMasqueradeBit",
        iptables_drop_bit: Option<i32> = "iptablesDropBit",
        feature_gates: BTreeMap<String, bool> = "featureGates",
        fail_swap_on: Option<bool> = "failSwapOn",
        memory_swap: MemorySwap = "memorySwap",
        container_log_max_size: String = "containerLogMaxSize",
        container_log_max_files: Option<i32> = "containerLogMaxFiles",
        container_log_max_workers: Option<i32> = "containerLogMaxWorkers",
        container_log_monitor_interval: Option<Duration> = "containerLogMonitorInterval",
        change_detection_strategy: String = "configMapAndSecretChangeDetectionStrategy",
        system_reserved: BTreeMap<String, String> = "systemReserved",
        kube_reserved: BTreeMap<String, String> = "kubeReserved",
        reserved_system_cpus: String = "reservedSystemCPUs",
        show_hidden_metrics_for_version: String = "showHiddenMetricsForVersion",
        system_reserved_cgroup: String = "systemReservedCgroup",
        kube_reserved_cgroup: String = "kubeReservedCgroup",
        enforce_node_allocatable: Option<Vec<String>> = "enforceNodeAllocatable",
        allowed_unsafe_sysctls: Vec<String> = "allowedUnsafeSysctls",
        volume_plugin_dir: String = "volumePluginDir",
        provider_id: String = "providerID",
        kernel_memcg_notification: bool = "kernelMemcgNotification",
        logging: Logging = "logging",
        enable_system_log_handler: Option<bool> = "enableSystemLogHandler",
        enable_system_log_query: Option<bool> = "enableSystemLogQuery",
        shutdown_grace_period: Duration = "shutdownGracePeriod",
        shutdown_grace_period_critical_pods: Duration = "shutdownGracePeriodCriticalPods",
        shutdown_grace_period_by_pod_priority: Vec<ShutdownGroup> = "shutdownGracePeriodByPodPriority",
        reserved_memory: Vec<MemoryReservation> = "reservedMemory",
        enable_profiling_handler: Option<bool> = "enableProfilingHandler",
        enable_debug_flags_handler: Option<bool> = "enableDebugFlagsHandler",
        seccomp_default: Option<bool> = "seccompDefault",
        memory_throttling_factor: Option<f64> = "memoryThrottlingFactor",
        memory_reservation_policy: String = "memoryReservationPolicy",
        register_with_taints: Vec<ConfigTaint> = "registerWithTaints",
        register_node: Option<bool> = "registerNode",
        tracing: Option<Tracing> = "tracing",
        local_storage_capacity_isolation: Option<bool> = "localStorageCapacityIsolation",
        container_runtime_endpoint: String = "containerRuntimeEndpoint",
        image_service_endpoint: String = "imageServiceEndpoint",
        fail_cgroup_v1: Option<bool> = "failCgroupV1",
        user_namespaces: Option<UserNamespaces> = "userNamespaces",
        crash_loop_back_off: CrashLoopBackOff = "crashLoopBackOff",
    }

    /// How a caller of the kubelet's server proves who it is.
    pub struct Authentication {
        x509: X509Authentication = "x509",
        webhook: WebhookAuthentication = "webhook",
        anonymous: AnonymousAuthentication = "anonymous",
    }

    pub struct X509Authentication {
        client_ca_file: String = "clientCAFile",
    }

    pub struct WebhookAuthentication {
        enabled: Option<bool> = "enabled",
        cache_ttl: Duration = "cacheTTL",
    }

    pub struct AnonymousAuthentication {
        enabled: Option<bool> = "enabled",
    }

    /// What a caller of the kubelet's server may do.
    pub struct Authorization {
        mode: String = "mode",
        webhook: WebhookAuthorization = "webhook",
    }

    pub struct WebhookAuthorization {
        cache_authorized_ttl: Duration = "cacheAuthorizedTTL",
        cache_unauthorized_ttl: Duration = "cacheUnauthorizedTTL",
    }

    pub struct MemorySwap {
        swap_behavior: String = "swapBehavior",
    }

    pub struct Logging {
        format: String = "format",
        /// a length of time, or a number of nanoseconds as older tools write it
        flush_frequency: Option<IntOrString> = "flushFrequency",
        verbosity: i64 = "verbosity",
        vmodule: Vec<VModule> = "vmodule",
        options: LoggingOptions = "options",
    }

    pub struct VModule {
        file_pattern: String = "filePattern",
        verbosity: i64 = "verbosity",
    }

    pub struct LoggingOptions {
        text: LoggingStreams = "text",
        json: LoggingStreams = "json",
    }

    pub struct LoggingStreams {
        split_stream: bool = "splitStream",
        info_buffer_size: Option<Quantity> = "infoBufferSize",
    }

    /// Pods of this priority and up to the next group's get this long at a shutdown.
    pub struct ShutdownGroup {
        priority: i32 = "priority" always,
        shutdown_grace_period_seconds: i64 = "shutdownGracePeriodSeconds" always,
    }

    pub struct MemoryReservation {
        numa_node: i32 = "numaNode" always,
        limits: BTreeMap<String, Quantity> = "limits" always,
    }

    pub struct ConfigTaint {
        key: String = "key" always,
        value: String = "value",
        effect: String = "effect" always,
        time_added: Option<String> = "timeAdded",
    }

    pub struct Tracing {
        endpoint: Option<String> = "endpoint",
        sampling_rate_per_million: Option<i32> = "samplingRatePerMillion",
    }

    pub struct UserNamespaces {
        ids_per_pod: Option<i64> = "idsPerPod",
    }

    pub struct CrashLoopBackOff {
        max_container_restart_period: Option<Duration> = "maxContainerRestartPeriod",
    }
}
