//! Container: command, environment, probes, hooks, rights, resources.
use super::{IntOrString, Quantity, ResourceList};
use crate::object;
use alloc::{boxed::Box, string::String, vec::Vec};

/// A container and an ephemeral container have the same fields; the latter has one more.
macro_rules! container {
    ($(#[$meta:meta])* $name:ident { $($(#[$extra_meta:meta])* $extra:ident : $ty:ty = $key:literal),* }) => {
        object! {
            $(#[$meta])*
            pub struct $name {
                name: String = "name" always,
                image: String = "image",
                command: Vec<String> = "command",
                args: Vec<String> = "args",
                working_dir: String = "workingDir",
                ports: Vec<ContainerPort> = "ports",
                env_from: Vec<EnvFromSource> = "envFrom",
                env: Vec<EnvVar> = "env",
                resources: ResourceRequirements = "resources",
                resize_policy: Vec<ContainerResizePolicy> = "resizePolicy",
                restart_policy: Option<String> = "restartPolicy",
                restart_policy_rules: Vec<ContainerRestartRule> = "restartPolicyRules",
                volume_mounts: Vec<VolumeMount> = "volumeMounts",
                volume_devices: Vec<VolumeDevice> = "volumeDevices",
                liveness_probe: Option<Box<Probe>> = "livenessProbe",
                readiness_probe: Option<Box<Probe>> = "readinessProbe",
                startup_probe: Option<Box<Probe>> = "startupProbe",
                lifecycle: Option<Box<Lifecycle>> = "lifecycle",
                termination_message_path: String = "terminationMessagePath",
                termination_message_policy: String = "terminationMessagePolicy",
                image_pull_policy: String = "imagePullPolicy",
                security_context: Option<Box<SecurityContext>> = "securityContext",
                stdin: bool = "stdin",
                stdin_once: bool = "stdinOnce",
                tty: bool = "tty",
                $($(#[$extra_meta])* $extra: $ty = $key),*
            }
        }
    };
}

container! {
    /// A container of a pod, or an init container.
    Container {}
}

container! {
    /// A container that is added to a running pod.
    EphemeralContainer {
        target_container_name: String = "targetContainerName"
    }
}

object! {
    /// A port a container listens on.
    pub struct ContainerPort {
        name: String = "name",
        host_port: i32 = "hostPort",
        container_port: i32 = "containerPort" always,
        protocol: String = "protocol",
        host_ip: String = "hostIP",
    }

    /// Variables from all keys of an object.
    pub struct EnvFromSource {
        prefix: String = "prefix",
        config_map_ref: Option<Box<OptionalReference>> = "configMapRef",
        secret_ref: Option<Box<OptionalReference>> = "secretRef",
    }

    /// An object by name, which need not exist if `optional` is true.
    pub struct OptionalReference {
        name: String = "name",
        optional: Option<bool> = "optional",
    }

    /// An environment variable.
    pub struct EnvVar {
        name: String = "name" always,
        value: String = "value",
        value_from: Option<Box<EnvVarSource>> = "valueFrom",
    }

    /// Where the value of a variable comes from.
    pub struct EnvVarSource {
        field_ref: Option<Box<ObjectFieldSelector>> = "fieldRef",
        resource_field_ref: Option<Box<ResourceFieldSelector>> = "resourceFieldRef",
        config_map_key_ref: Option<Box<KeySelector>> = "configMapKeyRef",
        secret_key_ref: Option<Box<KeySelector>> = "secretKeyRef",
        file_key_ref: Option<Box<FileKeySelector>> = "fileKeyRef",
    }

    /// A field of the pod.
    pub struct ObjectFieldSelector {
        api_version: String = "apiVersion",
        field_path: String = "fieldPath" always,
    }

    /// A resource of a container.
    pub struct ResourceFieldSelector {
        container_name: String = "containerName",
        resource: String = "resource" always,
        divisor: Option<Quantity> = "divisor",
    }

    /// A key of a ConfigMap or Secret.
    pub struct KeySelector {
        name: String = "name",
        key: String = "key" always,
        optional: Option<bool> = "optional",
    }

    /// A key of a file of variables in a volume.
    pub struct FileKeySelector {
        volume_name: String = "volumeName" always,
        path: String = "path" always,
        key: String = "key" always,
        optional: Option<bool> = "optional",
    }

    /// Limits and requests.
    pub struct ResourceRequirements {
        limits: ResourceList = "limits",
        requests: ResourceList = "requests",
        claims: Vec<ResourceClaim> = "claims",
    }

    /// A claim of the pod this container uses.
    pub struct ResourceClaim {
        name: String = "name" always,
        request: String = "request",
    }

    /// What a resize of a resource means for the container.
    pub struct ContainerResizePolicy {
        resource_name: String = "resourceName" always,
        restart_policy: String = "restartPolicy" always,
    }

    /// What an exit code means for the restart.
    pub struct ContainerRestartRule {
        action: String = "action",
        exit_codes: Option<Box<ContainerRestartRuleOnExitCodes>> = "exitCodes",
    }

    /// The exit codes of a rule.
    pub struct ContainerRestartRuleOnExitCodes {
        operator: String = "operator",
        values: Vec<i32> = "values",
    }

    /// Where a volume appears in a container.
    pub struct VolumeMount {
        name: String = "name" always,
        read_only: bool = "readOnly",
        recursive_read_only: Option<String> = "recursiveReadOnly",
        mount_path: String = "mountPath" always,
        sub_path: String = "subPath",
        mount_propagation: Option<String> = "mountPropagation",
        sub_path_expr: String = "subPathExpr",
    }

    /// A block device of a volume claim.
    pub struct VolumeDevice {
        name: String = "name" always,
        device_path: String = "devicePath" always,
    }

    /// A check of a container.
    pub struct Probe {
        exec: Option<Box<ExecAction>> = "exec",
        http_get: Option<Box<HTTPGetAction>> = "httpGet",
        tcp_socket: Option<Box<TCPSocketAction>> = "tcpSocket",
        grpc: Option<Box<GRPCAction>> = "grpc",
        initial_delay_seconds: i32 = "initialDelaySeconds",
        timeout_seconds: i32 = "timeoutSeconds",
        period_seconds: i32 = "periodSeconds",
        success_threshold: i32 = "successThreshold",
        failure_threshold: i32 = "failureThreshold",
        termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
    }

    /// A command in the container.
    pub struct ExecAction {
        command: Vec<String> = "command",
    }

    /// An HTTP request.
    pub struct HTTPGetAction {
        path: String = "path",
        port: IntOrString = "port" always,
        host: String = "host",
        scheme: String = "scheme",
        http_headers: Vec<HTTPHeader> = "httpHeaders",
    }

    /// A header of a request.
    pub struct HTTPHeader {
        name: String = "name" always,
        value: String = "value" always,
    }

    /// A connection.
    pub struct TCPSocketAction {
        port: IntOrString = "port" always,
        host: String = "host",
    }

    /// A gRPC health check.
    pub struct GRPCAction {
        port: i32 = "port" always,
        service: Option<String> = "service" always,
    }

    /// Hooks of a container.
    pub struct Lifecycle {
        post_start: Option<Box<LifecycleHandler>> = "postStart",
        pre_stop: Option<Box<LifecycleHandler>> = "preStop",
        stop_signal: Option<String> = "stopSignal",
    }

    /// What a hook does.
    pub struct LifecycleHandler {
        exec: Option<Box<ExecAction>> = "exec",
        http_get: Option<Box<HTTPGetAction>> = "httpGet",
        tcp_socket: Option<Box<TCPSocketAction>> = "tcpSocket",
        sleep: Option<Box<SleepAction>> = "sleep",
    }

    /// A pause.
    pub struct SleepAction {
        seconds: i64 = "seconds" always,
    }

    /// Rights of a container.
    pub struct SecurityContext {
        capabilities: Option<Box<Capabilities>> = "capabilities",
        privileged: Option<bool> = "privileged",
        se_linux_options: Option<Box<SELinuxOptions>> = "seLinuxOptions",
        windows_options: Option<Box<WindowsOptions>> = "windowsOptions",
        run_as_user: Option<i64> = "runAsUser",
        run_as_group: Option<i64> = "runAsGroup",
        run_as_non_root: Option<bool> = "runAsNonRoot",
        read_only_root_filesystem: Option<bool> = "readOnlyRootFilesystem",
        allow_privilege_escalation: Option<bool> = "allowPrivilegeEscalation",
        proc_mount: Option<String> = "procMount",
        seccomp_profile: Option<Box<SeccompProfile>> = "seccompProfile",
        app_armor_profile: Option<Box<AppArmorProfile>> = "appArmorProfile",
    }

    /// Capabilities over and under the default ones, without `CAP_`.
    pub struct Capabilities {
        add: Vec<String> = "add",
        drop: Vec<String> = "drop",
    }

    /// A label of SELinux.
    pub struct SELinuxOptions {
        user: String = "user",
        role: String = "role",
        se_type: String = "type",
        level: String = "level",
    }

    /// Rights on Windows; of no use on this node.
    pub struct WindowsOptions {
        gmsa_credential_spec_name: Option<String> = "gmsaCredentialSpecName",
        gmsa_credential_spec: Option<String> = "gmsaCredentialSpec",
        run_as_user_name: Option<String> = "runAsUserName",
        host_process: Option<bool> = "hostProcess",
    }

    /// A system call filter.
    pub struct SeccompProfile {
        profile_type: String = "type" always,
        localhost_profile: Option<String> = "localhostProfile",
    }

    /// A profile of AppArmor.
    pub struct AppArmorProfile {
        profile_type: String = "type" always,
        localhost_profile: Option<String> = "localhostProfile",
    }
}
