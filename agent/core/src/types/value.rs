//! The words that stand in fields with a fixed set of values.

/// `restartPolicy`, `imagePullPolicy`.
pub const ALWAYS: &str = "Always";
/// `restartPolicy`.
pub const ON_FAILURE: &str = "OnFailure";
/// `restartPolicy`, `imagePullPolicy`, `preemptionPolicy`.
pub const NEVER: &str = "Never";
/// `imagePullPolicy`.
pub const IF_NOT_PRESENT: &str = "IfNotPresent";

/// `dnsPolicy`.
pub const CLUSTER_FIRST: &str = "ClusterFirst";
/// `dnsPolicy`.
pub const CLUSTER_FIRST_WITH_HOST_NET: &str = "ClusterFirstWithHostNet";
/// `dnsPolicy`.
pub const DNS_DEFAULT: &str = "Default";
/// `dnsPolicy`, `mountPropagation`.
pub const NONE: &str = "None";

/// `protocol` of a port.
pub const TCP: &str = "TCP";
/// `protocol` of a port.
pub const UDP: &str = "UDP";
/// `protocol` of a port.
pub const SCTP: &str = "SCTP";

/// `status.phase`.
pub const PENDING: &str = "Pending";
/// `status.phase`.
pub const RUNNING: &str = "Running";
/// `status.phase`.
pub const SUCCEEDED: &str = "Succeeded";
/// `status.phase`.
pub const FAILED: &str = "Failed";

/// `status` of a condition.
pub const TRUE: &str = "True";
/// `status` of a condition.
pub const FALSE: &str = "False";
/// `status` of a condition, phase of a pod.
pub const UNKNOWN: &str = "Unknown";

/// Name of the CPU resource.
pub const CPU: &str = "cpu";
/// Name of the memory resource.
pub const MEMORY: &str = "memory";
/// Name of the local storage resource.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// What the names of huge page resources begin with.
pub const HUGEPAGES_PREFIX: &str = "hugepages-";
