//! KubeletConfiguration v1beta1: wire form, defaults, validation. And our own settings beside it.

pub mod credential;
pub mod defaults;
pub mod duration;
pub mod kubelet;
pub mod node;
pub mod validate;

pub use duration::Duration;
pub use kubelet::KubeletConfiguration;
pub use node::NodeConfiguration;
pub use validate::ConfigFault;

use crate::lifecycle::backoff::BackoffSettings;

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// Settings that are read and judged, but have no effect on a node without an API server or with a built-in runtime.
pub const WITHOUT_USE: [&str; 25] = [
    "authentication",
    "authorization",
    "configMapAndSecretChangeDetectionStrategy",
    "containerRuntimeEndpoint",
    "contentType",
    "enableControllerAttachDetach",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "makeIPTablesUtilChains",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "providerID",
    "qosReserved",
    "registerNode",
    "registerWithTaints",
    "rotateCertificates",
    "runtimeRequestTimeout",
    "serverTLSBootstrap",
    "tracing",
    "volumePluginDir",
];

/// Feature gates that change something here; all others are left alone.
pub const GATES: [&str; 6] = [
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "KubeletCrashLoopBackOffMax",
    "MemoryQoS",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
];

/// How long crashing containers wait, by both documents.
pub fn back_off(kubelet: &KubeletConfiguration, node: &NodeConfiguration) -> BackoffSettings {
    let nanos = |length: Duration| u64::try_from(length.nanos).unwrap_or(0);
    let longest =
        kubelet.crash_loop_back_off.max_container_restart_period.unwrap_or(Duration::from_secs(300));
    let cap = nanos(longest);
    let first = node.crash_back_off.initial.map_or(cap, nanos).min(cap);
    let reset = node.crash_back_off.reset_after.map_or(cap.saturating_mul(2), nanos);
    BackoffSettings { first, cap, reset }
}
