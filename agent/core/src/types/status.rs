//! Status of a pod and its containers.
use super::{ResourceList, ResourceRequirements, Time};
use crate::object;
use alloc::{boxed::Box, string::String, vec::Vec};

object! {
    /// What is known of a pod.
    pub struct PodStatus {
        observed_generation: i64 = "observedGeneration",
        phase: String = "phase",
        conditions: Vec<PodCondition> = "conditions",
        message: String = "message",
        reason: String = "reason",
        nominated_node_name: String = "nominatedNodeName",
        host_ip: String = "hostIP",
        host_ips: Vec<IpEntry> = "hostIPs",
        pod_ip: String = "podIP",
        pod_ips: Vec<IpEntry> = "podIPs",
        start_time: Option<Time> = "startTime",
        init_container_statuses: Vec<ContainerStatus> = "initContainerStatuses",
        container_statuses: Vec<ContainerStatus> = "containerStatuses",
        qos_class: String = "qosClass",
        ephemeral_container_statuses: Vec<ContainerStatus> = "ephemeralContainerStatuses",
        resize: String = "resize",
        resource_claim_statuses: Vec<PodResourceClaimStatus> = "resourceClaimStatuses",
        extended_resource_claim_status: Option<Box<PodExtendedResourceClaimStatus>> = "extendedResourceClaimStatus",
        allocated_resources: ResourceList = "allocatedResources",
        resources: Option<Box<ResourceRequirements>> = "resources",
    }

    /// An address.
    pub struct IpEntry {
        ip: String = "ip" always,
    }

    /// One statement about a pod.
    pub struct PodCondition {
        condition_type: String = "type" always,
        observed_generation: i64 = "observedGeneration",
        status: String = "status" always,
        last_probe_time: Option<Time> = "lastProbeTime" always,
        last_transition_time: Option<Time> = "lastTransitionTime" always,
        reason: String = "reason",
        message: String = "message",
    }

    /// What is known of a container.
    pub struct ContainerStatus {
        name: String = "name" always,
        state: ContainerState = "state",
        last_state: ContainerState = "lastState",
        ready: bool = "ready" always,
        restart_count: i32 = "restartCount" always,
        image: String = "image" always,
        image_id: String = "imageID" always,
        container_id: String = "containerID",
        started: Option<bool> = "started",
        allocated_resources: ResourceList = "allocatedResources",
        resources: Option<Box<ResourceRequirements>> = "resources",
        volume_mounts: Vec<VolumeMountStatus> = "volumeMounts",
        user: Option<Box<ContainerUser>> = "user",
        allocated_resources_status: Vec<ResourceStatus> = "allocatedResourcesStatus",
        stop_signal: Option<String> = "stopSignal",
    }

    /// One of the three states of a container; none of them is "waiting" without a reason.
    pub struct ContainerState {
        waiting: Option<Box<ContainerStateWaiting>> = "waiting",
        running: Option<Box<ContainerStateRunning>> = "running",
        terminated: Option<Box<ContainerStateTerminated>> = "terminated",
    }

    /// Not yet running.
    pub struct ContainerStateWaiting {
        reason: String = "reason",
        message: String = "message",
    }

    /// Running.
    pub struct ContainerStateRunning {
        started_at: Option<Time> = "startedAt" always,
    }

    /// Ended.
    pub struct ContainerStateTerminated {
        exit_code: i32 = "exitCode" always,
        signal: i32 = "signal",
        reason: String = "reason",
        message: String = "message",
        started_at: Option<Time> = "startedAt" always,
        finished_at: Option<Time> = "finishedAt" always,
        container_id: String = "containerID",
    }

    /// How a volume is mounted.
    pub struct VolumeMountStatus {
        name: String = "name" always,
        mount_path: String = "mountPath" always,
        read_only: bool = "readOnly",
        recursive_read_only: Option<String> = "recursiveReadOnly",
    }

    /// Who the first process runs as.
    pub struct ContainerUser {
        linux: Option<Box<LinuxContainerUser>> = "linux",
    }

    /// Ids of the first process.
    pub struct LinuxContainerUser {
        uid: i64 = "uid" always,
        gid: i64 = "gid" always,
        supplemental_groups: Vec<i64> = "supplementalGroups",
    }

    /// Health of allocated devices.
    pub struct ResourceStatus {
        name: String = "name" always,
        resources: Vec<ResourceHealth> = "resources",
    }

    /// Health of one device.
    pub struct ResourceHealth {
        resource_id: String = "resourceID" always,
        health: String = "health",
        message: Option<String> = "message",
    }

    /// The claim made for an entry of `resourceClaims`.
    pub struct PodResourceClaimStatus {
        name: String = "name" always,
        resource_claim_name: Option<String> = "resourceClaimName",
    }

    /// The claim made for extended resources.
    pub struct PodExtendedResourceClaimStatus {
        request_mappings: Vec<ContainerExtendedResourceRequest> = "requestMappings" always,
        resource_claim_name: String = "resourceClaimName" always,
    }

    /// One extended resource of one container.
    pub struct ContainerExtendedResourceRequest {
        container_name: String = "containerName" always,
        resource_name: String = "resourceName" always,
        request_name: String = "requestName" always,
    }
}
