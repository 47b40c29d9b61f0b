//! Pod and its specification.
use super::affinity::{Affinity, TopologySpreadConstraint};
use super::{
    AppArmorProfile, Container, EphemeralContainer, LocalObjectReference, ObjectMeta, PodStatus,
    ResourceList, ResourceRequirements, SELinuxOptions, SeccompProfile, StringMap, Volume, WindowsOptions,
};
use crate::object;
use alloc::{boxed::Box, string::String, vec::Vec};

object! {
    /// Containers that run together.
    pub struct Pod {
        kind: String = "kind",
        api_version: String = "apiVersion",
        metadata: ObjectMeta = "metadata",
        spec: PodSpec = "spec",
        status: PodStatus = "status",
    }

    /// What is wanted of a pod.
    pub struct PodSpec {
        volumes: Vec<Volume> = "volumes",
        init_containers: Vec<Container> = "initContainers",
        containers: Vec<Container> = "containers" always,
        ephemeral_containers: Vec<EphemeralContainer> = "ephemeralContainers",
        restart_policy: String = "restartPolicy",
        termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        active_deadline_seconds: Option<i64> = "activeDeadlineSeconds",
        dns_policy: String = "dnsPolicy",
        node_selector: StringMap = "nodeSelector",
        service_account_name: String = "serviceAccountName",
        /// The old name of `serviceAccountName`.
        service_account: String = "serviceAccount",
        automount_service_account_token: Option<bool> = "automountServiceAccountToken",
        node_name: String = "nodeName",
        host_network: bool = "hostNetwork",
        host_pid: bool = "hostPID",
        host_ipc: bool = "hostIPC",
        share_process_namespace: Option<bool> = "shareProcessNamespace",
        security_context: Option<Box<PodSecurityContext>> = "securityContext",
        image_pull_secrets: Vec<LocalObjectReference> = "imagePullSecrets",
        hostname: String = "hostname",
        subdomain: String = "subdomain",
        affinity: Option<Box<Affinity>> = "affinity",
        scheduler_name: String = "schedulerName",
        tolerations: Vec<Toleration> = "tolerations",
        host_aliases: Vec<HostAlias> = "hostAliases",
        priority_class_name: String = "priorityClassName",
        priority: Option<i32> = "priority",
        dns_config: Option<Box<PodDNSConfig>> = "dnsConfig",
        readiness_gates: Vec<PodReadinessGate> = "readinessGates",
        runtime_class_name: Option<String> = "runtimeClassName",
        enable_service_links: Option<bool> = "enableServiceLinks",
        preemption_policy: Option<String> = "preemptionPolicy",
        overhead: ResourceList = "overhead",
        topology_spread_constraints: Vec<TopologySpreadConstraint> = "topologySpreadConstraints",
        set_hostname_as_fqdn: Option<bool> = "setHostnameAsFQDN",
        os: Option<Box<PodOS>> = "os",
        host_users: Option<bool> = "hostUsers",
        scheduling_gates: Vec<PodSchedulingGate> = "schedulingGates",
        resource_claims: Vec<PodResourceClaim> = "resourceClaims",
        resources: Option<Box<ResourceRequirements>> = "resources",
        hostname_override: Option<String> = "hostnameOverride",
        workload_ref: Option<Box<WorkloadReference>> = "workloadRef",
        scheduling_group: Option<Box<PodSchedulingGroup>> = "schedulingGroup",
    }

    /// Rights of all containers of a pod.
    pub struct PodSecurityContext {
        se_linux_options: Option<Box<SELinuxOptions>> = "seLinuxOptions",
        windows_options: Option<Box<WindowsOptions>> = "windowsOptions",
        run_as_user: Option<i64> = "runAsUser",
        run_as_group: Option<i64> = "runAsGroup",
        run_as_non_root: Option<bool> = "runAsNonRoot",
        supplemental_groups: Vec<i64> = "supplementalGroups",
        supplemental_groups_policy: Option<String> = "supplementalGroupsPolicy",
        fs_group: Option<i64> = "fsGroup",
        sysctls: Vec<Sysctl> = "sysctls",
        fs_group_change_policy: Option<String> = "fsGroupChangePolicy",
        seccomp_profile: Option<Box<SeccompProfile>> = "seccompProfile",
        app_armor_profile: Option<Box<AppArmorProfile>> = "appArmorProfile",
        se_linux_change_policy: Option<String> = "seLinuxChangePolicy",
    }

    /// A kernel parameter.
    pub struct Sysctl {
        name: String = "name" always,
        value: String = "value" always,
    }

    /// A taint that is tolerated.
    pub struct Toleration {
        key: String = "key",
        operator: String = "operator",
        value: String = "value",
        effect: String = "effect",
        toleration_seconds: Option<i64> = "tolerationSeconds",
    }

    /// A line of the hosts file.
    pub struct HostAlias {
        ip: String = "ip" always,
        hostnames: Vec<String> = "hostnames",
    }

    /// Additions to the resolver's configuration.
    pub struct PodDNSConfig {
        nameservers: Vec<String> = "nameservers",
        searches: Vec<String> = "searches",
        options: Vec<PodDNSConfigOption> = "options",
    }

    /// An option of the resolver.
    pub struct PodDNSConfigOption {
        name: String = "name",
        value: Option<String> = "value",
    }

    /// A condition that must be true for the pod to be ready.
    pub struct PodReadinessGate {
        condition_type: String = "conditionType" always,
    }

    /// The operating system a pod is for.
    pub struct PodOS {
        name: String = "name" always,
    }

    /// What holds a pod back from scheduling.
    pub struct PodSchedulingGate {
        name: String = "name" always,
    }

    /// A claim of a dynamically allocated resource.
    pub struct PodResourceClaim {
        name: String = "name" always,
        resource_claim_name: Option<String> = "resourceClaimName",
        resource_claim_template_name: Option<String> = "resourceClaimTemplateName",
    }

    /// The workload a pod belongs to.
    pub struct WorkloadReference {
        name: String = "name" always,
        pod_group: String = "podGroup" always,
        pod_group_replica_key: String = "podGroupReplicaKey",
    }

    /// The group a pod is scheduled with.
    pub struct PodSchedulingGroup {
        pod_group_name: Option<String> = "podGroupName",
    }
}
