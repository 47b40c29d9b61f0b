//! The order for one sandbox or container, as the agent sends it and the supervisor's child carries it out.
//!
//! Everything is decided already: names are resolved, limits are written to cgroups, volumes are prepared,
//! seccomp programs are compiled. What is here is only carried out. The supervisor outlives agent upgrades, so
//! every field has a default and unknown ones are ignored: fields are added, never changed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a namespace comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Namespace {
    /// the host's
    Host,
    /// the pod's own, made with the sandbox and shared by its containers
    #[default]
    Sandbox,
    /// made anew for each container (pid namespaces, unless `shareProcessNamespace` or `hostPID`)
    Container,
}

/// A range of ids of the host that stands for 0.. inside a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdMap {
    /// first uid and gid on the host
    pub host_base: u32,
    /// how many ids, a multiple of 65536
    pub size: u32,
}

/// A pod's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxSpec {
    /// unique for the life of the node; file-name safe
    pub id: String,
    /// opaque to the supervisor, given back in `List`
    pub labels: String,
    /// own uts namespace with this host name; `None`: the host's uts namespace
    pub hostname: Option<String>,
    pub net: Namespace,
    pub ipc: Namespace,
    /// `Sandbox`: one pid namespace for the pod, held by a tiny reaper process
    pub pid: Namespace,
    /// own user namespace (`hostUsers: false`)
    pub user: Option<IdMap>,
    /// kernel settings written inside the namespaces, key with dots
    pub sysctls: Vec<(String, String)>,
    /// cgroup folders the reaper process joins (one a hierarchy on v1, one on v2)
    pub cgroups: Vec<PathBuf>,
}

/// The root file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RootSpec {
    /// unpacked layers, the lowest first, read-only
    pub layers: Vec<PathBuf>,
    /// writable layer; its parent is made by the agent. `upper` and `work` lie on one file system.
    pub upper: PathBuf,
    pub work: PathBuf,
    pub readonly: bool,
    /// where overlayfs is missing the agent asks for a plain copy of the layers, made in `upper`
    pub copy: bool,
}

/// How mounts made later travel between host and container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Propagation {
    #[default]
    Private,
    /// HostToContainer
    Slave,
    /// Bidirectional
    Shared,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountKind {
    /// A file or folder of the host. `sub_path` is resolved below `source` and never leaves it.
    #[serde(rename_all = "camelCase")]
    Bind {
        source: PathBuf,
        #[serde(default)]
        sub_path: Option<String>,
        /// the sub path may be made as a folder when it is missing
        #[serde(default)]
        create_sub_path: bool,
        #[serde(default)]
        propagation: Propagation,
        /// read-only reaches the mounts below, too (`recursiveReadOnly`)
        #[serde(default)]
        recursive_readonly: bool,
    },
    /// `size` in bytes, 0: the kernel's default
    Tmpfs {
        size: u64,
        mode: u32,
    },
    Proc,
    Sysfs,
    /// the container's own cgroup view
    Cgroup,
    Mqueue,
    /// a fresh devpts instance
    Devpts,
}

/// One mount, made in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountSpec {
    /// absolute path inside the container; resolved inside its root, made when missing
    pub target: String,
    pub kind: MountKind,
    #[serde(default)]
    pub readonly: bool,
    #[serde(default)]
    pub nosuid: bool,
    #[serde(default)]
    pub nodev: bool,
    #[serde(default)]
    pub noexec: bool,
}

/// A device node to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSpec {
    pub path: String,
    /// `c`, `b` or `p`
    pub kind: char,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Capability sets as bit masks (bit n = capability n of `capability.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapabilitySets {
    pub bounding: u64,
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

/// One resource limit; `u64::MAX` is unlimited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rlimit {
    /// `RLIMIT_*` number
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// What is executed, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessSpec {
    pub args: Vec<String>,
    /// `NAME=value`
    pub env: Vec<String>,
    pub cwd: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// file mode mask; `None`: 0022
    pub umask: Option<u32>,
    pub capabilities: CapabilitySets,
    pub no_new_privileges: bool,
    pub rlimits: Vec<Rlimit>,
    /// refused values (no CAP_SYS_RESOURCE) degrade: the start goes on and the answer says so
    pub oom_score_adj: Option<i32>,
    /// file with a compiled classic BPF program (array of `sock_filter`), `None`: unconfined
    pub seccomp: Option<PathBuf>,
    /// written to /proc/self/attr/exec where the kernel has AppArmor
    pub apparmor: Option<String>,
    /// the same for SELinux
    pub selinux: Option<String>,
    pub tty: bool,
    /// rows and columns of the terminal, known before the program asks
    pub tty_size: Option<(u16, u16)>,
}

/// Where the output goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogSpec {
    /// CRI log file; rotated to `<path>.<timestamp>` (see supervisor::logs)
    pub path: PathBuf,
    /// bytes of one file at the most, enforced before every write
    pub max_size: u64,
    /// files of one container at the most, the live one counted
    pub max_files: u32,
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerSpec {
    /// unique for the life of the node: 64 hex digits
    pub id: String,
    pub sandbox_id: String,
    /// opaque to the supervisor, given back in `List`
    pub labels: String,
    pub root: RootSpec,
    pub mounts: Vec<MountSpec>,
    pub devices: Vec<DeviceSpec>,
    /// all devices of the host's /dev are bound in (privileged)
    pub host_devices: bool,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub process: ProcessSpec,
    /// namespaces of the pod or the host that are joined; `Container` makes a new one
    pub net: Namespace,
    pub ipc: Namespace,
    pub uts: Namespace,
    pub pid: Namespace,
    pub cgroup_ns: Namespace,
    pub user: Option<IdMap>,
    /// cgroup folders to join: one a hierarchy on v1, one on v2; made and limited by the agent beforehand
    pub cgroups: Vec<PathBuf>,
    pub log: Option<LogSpec>,
    pub stdin: bool,
    pub stdin_once: bool,
}
