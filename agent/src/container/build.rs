//! From a pod, an image and what the node prepared to the order for one container. Pure: nothing is read or made here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use podkeep_core::types::{Container, Pod, SecurityContext, VolumeMount};

use crate::node::rights::Rights;

use super::spec::{
    ContainerSpec, IdMap, LogSpec, MountKind, MountSpec, Namespace, ProcessSpec, Propagation, Rlimit,
    RootSpec,
};

/// Search path of images that set none, as the container runtimes have it.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Size of a pod's own /dev/shm, bytes; the container runtimes' 64 MiB.
pub const SHM_SIZE: u64 = 64 << 20;

/// Hidden from containers: they tell about, or reach into, the whole machine.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What an image says about its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageDefaults {
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub env: Vec<String>,
    pub working_dir: String,
}

/// Who the program runs as, resolved in the image's own user list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// empty: not known
    pub home: String,
}

/// A volume as it lies on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVolume {
    pub path: PathBuf,
    /// the volume itself cannot be written (configMap, secret, image…)
    pub readonly: bool,
}

/// Everything that goes into one container.
#[derive(Debug)]
pub struct Parts<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub id: &'a str,
    pub sandbox_id: &'a str,
    pub labels: String,
    pub image: &'a ImageDefaults,
    pub layers: &'a [PathBuf],
    pub user: &'a User,
    /// variables of the manifest, resolved and expanded, in their order
    pub env: &'a [(String, String)],
    pub volumes: &'a BTreeMap<String, HostVolume>,
    /// `<state-dir>/pods/<uid>`
    pub pod_dir: &'a Path,
    /// `<pod-dir>/containers/<name>/<attempt>`
    pub container_dir: &'a Path,
    /// the pod's /dev/shm on the host
    pub shm: Option<&'a Path>,
    pub hostname: &'a str,
    pub cgroups: Vec<PathBuf>,
    pub log: LogSpec,
    pub rights: Rights,
    pub oom_score_adj: i32,
    pub user_map: Option<IdMap>,
    /// no overlayfs here
    pub copy_root: bool,
    /// subPathExpr expanded, by mount path
    pub sub_paths: &'a BTreeMap<String, String>,
    pub rlimits: Vec<Rlimit>,
}

/// Privileged as the manifest says.
#[must_use]
pub fn is_privileged(container: &Container) -> bool {
    security(container).is_some_and(|security| security.privileged == Some(true))
}

fn security(container: &Container) -> Option<&SecurityContext> {
    container.security_context.as_deref()
}

/// `command` replaces the entry point and drops the image's arguments; `args` replaces the arguments only.
#[must_use]
pub fn arguments(
    container: &Container,
    image: &ImageDefaults,
    expand: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let own = |list: &[String]| list.iter().map(|word| expand(word)).collect::<Vec<_>>();
    if container.command.is_empty() {
        words.extend(image.entrypoint.iter().cloned());
        if container.args.is_empty() {
            words.extend(image.cmd.iter().cloned());
        }
    } else {
        words.extend(own(&container.command));
    }
    words.extend(own(&container.args));
    words
}

fn environment(
    container: &Container,
    image: &ImageDefaults,
    user: &User,
    env: &[(String, String)],
    hostname: &str,
) -> Vec<String> {
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| match variables.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => variables.push((name.to_owned(), value.to_owned())),
    };
    let split = |text: &str| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    if let Some((name, value)) = split(DEFAULT_PATH) {
        set(&name, &value);
    }
    set("HOSTNAME", hostname);
    if container.tty {
        set("TERM", "xterm");
    }
    if !user.home.is_empty() {
        set("HOME", &user.home);
    }
    for (name, value) in image.env.iter().filter_map(|text| split(text)) {
        set(&name, &value);
    }
    for (name, value) in env {
        set(name, value);
    }
    variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn plain(target: &str, kind: MountKind) -> MountSpec {
    MountSpec { target: target.into(), kind, readonly: false, nosuid: true, nodev: true, noexec: true }
}

fn file(target: &str, source: PathBuf) -> MountSpec {
    let kind = MountKind::Bind {
        source,
        sub_path: None,
        create_sub_path: false,
        propagation: Propagation::Private,
        recursive_readonly: false,
    };
    MountSpec { target: target.into(), kind, readonly: false, nosuid: false, nodev: false, noexec: false }
}

/// File systems of the kernel, then the pod's files, then the volumes, a folder before what lies in it.
fn mounts(parts: &Parts<'_>) -> Vec<MountSpec> {
    let privileged = is_privileged(parts.container);
    let mut list = vec![
        plain("/proc", MountKind::Proc),
        MountSpec { noexec: true, nodev: false, ..plain("/dev/pts", MountKind::Devpts) },
        plain("/dev/mqueue", MountKind::Mqueue),
        MountSpec { readonly: !privileged, ..plain("/sys", MountKind::Sysfs) },
        MountSpec { readonly: !privileged, ..plain("/sys/fs/cgroup", MountKind::Cgroup) },
    ];
    let mut own: Vec<MountSpec> = Vec::new();
    let taken = |target: &str| {
        parts.container.volume_mounts.iter().any(|mount| mount.mount_path.trim_end_matches('/') == target)
    };
    if !taken("/dev/shm") {
        match parts.shm {
            Some(path) => {
                own.push(MountSpec {
                    nosuid: true,
                    nodev: true,
                    noexec: true,
                    ..file("/dev/shm", path.into())
                });
            }
            None => own.push(plain("/dev/shm", MountKind::Tmpfs { size: SHM_SIZE, mode: 0o1777 })),
        }
    }
    for (target, name) in
        [("/etc/hosts", "etc-hosts"), ("/etc/resolv.conf", "resolv.conf"), ("/etc/hostname", "hostname")]
    {
        if !taken(target) && !taken("/etc") {
            own.push(file(target, parts.pod_dir.join(name)));
        }
    }
    let message = parts.container.termination_message_path.as_str();
    if !message.is_empty() && !taken(message) {
        own.push(file(message, parts.container_dir.join("termination-log")));
    }
    own.extend(parts.container.volume_mounts.iter().filter_map(|mount| volume_mount(parts, mount)));
    own.sort_by_key(|mount| mount.target.split('/').filter(|part| !part.is_empty()).count());
    list.extend(own);
    list
}

fn volume_mount(parts: &Parts<'_>, mount: &VolumeMount) -> Option<MountSpec> {
    let volume = parts.volumes.get(&mount.name)?;
    let sub_path = match parts.sub_paths.get(&mount.mount_path) {
        Some(expanded) => Some(expanded.clone()),
        None if mount.sub_path.is_empty() => None,
        None => Some(mount.sub_path.clone()),
    };
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => Propagation::Slave,
        Some("Bidirectional") => Propagation::Shared,
        _ => Propagation::Private,
    };
    let recursive = matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"));
    let kind = MountKind::Bind {
        source: volume.path.clone(),
        sub_path,
        create_sub_path: !volume.readonly,
        propagation,
        recursive_readonly: recursive && mount.read_only,
    };
    let readonly = mount.read_only || volume.readonly;
    let mut target = mount.mount_path.clone();
    if !target.starts_with('/') {
        target.insert(0, '/');
    }
    Some(MountSpec { target, kind, readonly, nosuid: false, nodev: false, noexec: false })
}

/// Who a container shares its process numbers with.
#[must_use]
pub fn pid_namespace(pod: &Pod) -> Namespace {
    if pod.spec.host_pid {
        Namespace::Host
    } else if pod.spec.share_process_namespace == Some(true) {
        Namespace::Sandbox
    } else {
        Namespace::Container
    }
}

fn process(parts: &Parts<'_>, args: Vec<String>) -> ProcessSpec {
    let shared = exec_process(
        parts.pod,
        parts.container,
        parts.image,
        parts.user,
        parts.env,
        parts.hostname,
        parts.rights.clone(),
    );
    ProcessSpec {
        args,
        rlimits: parts.rlimits.clone(),
        oom_score_adj: Some(parts.oom_score_adj),
        tty: parts.container.tty,
        ..shared
    }
}

/// A process that joins a running container (`exec`, probes, hooks): the same user, rights, variables and filter. Its
/// arguments are set by the caller.
#[must_use]
pub fn exec_process(
    pod: &Pod,
    container: &Container,
    image: &ImageDefaults,
    user: &User,
    env: &[(String, String)],
    hostname: &str,
    rights: Rights,
) -> ProcessSpec {
    let escalation = security(container).and_then(|security| security.allow_privilege_escalation);
    ProcessSpec {
        args: Vec::new(),
        env: environment(container, image, user, env, hostname),
        cwd: working_dir(container, image),
        uid: user.uid,
        gid: user.gid,
        groups: user.groups.clone(),
        capabilities: rights.capabilities,
        no_new_privileges: escalation == Some(false) && !is_privileged(container),
        seccomp: rights.seccomp,
        apparmor: rights.apparmor,
        selinux: selinux(pod, container),
        ..ProcessSpec::default()
    }
}

fn working_dir(container: &Container, image: &ImageDefaults) -> String {
    let candidates = [container.working_dir.as_str(), image.working_dir.as_str(), "/"];
    candidates.into_iter().find(|folder| !folder.is_empty()).unwrap_or("/").to_owned()
}

fn selinux(pod: &Pod, container: &Container) -> Option<String> {
    let own = security(container).and_then(|security| security.se_linux_options.as_deref());
    let options = own.or_else(|| pod.spec.security_context.as_deref()?.se_linux_options.as_deref())?;
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    Some(format!(
        "{}:{}:{}:{}",
        or(&options.user, "system_u"),
        or(&options.role, "system_r"),
        or(&options.se_type, "container_t"),
        or(&options.level, "s0")
    ))
}

/// The order.
#[must_use]
pub fn container_spec(parts: Parts<'_>, args: Vec<String>) -> ContainerSpec {
    let container = parts.container;
    let spec = &parts.pod.spec;
    let privileged = is_privileged(container);
    let unmasked =
        privileged || security(container).is_some_and(|s| s.proc_mount.as_deref() == Some("Unmasked"));
    let texts =
        |list: &[&str]| if unmasked { Vec::new() } else { list.iter().map(|p| (*p).to_owned()).collect() };
    let host_or_pod = |host: bool| if host { Namespace::Host } else { Namespace::Sandbox };
    ContainerSpec {
        id: parts.id.to_owned(),
        sandbox_id: parts.sandbox_id.to_owned(),
        labels: parts.labels.clone(),
        root: RootSpec {
            layers: parts.layers.to_vec(),
            upper: parts.container_dir.join("upper"),
            work: parts.container_dir.join("work"),
            readonly: security(container).is_some_and(|s| s.read_only_root_filesystem == Some(true)),
            copy: parts.copy_root,
        },
        mounts: mounts(&parts),
        devices: Vec::new(),
        host_devices: privileged,
        masked_paths: texts(&MASKED),
        readonly_paths: texts(&READ_ONLY),
        process: process(&parts, args),
        net: host_or_pod(spec.host_network),
        ipc: host_or_pod(spec.host_ipc),
        uts: host_or_pod(spec.host_network),
        pid: pid_namespace(parts.pod),
        cgroup_ns: if privileged { Namespace::Host } else { Namespace::Container },
        user: parts.user_map,
        cgroups: parts.cgroups.clone(),
        log: Some(parts.log.clone()),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(command: &[&str], args: &[&str]) -> Container {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Container { name: "c".into(), command: list(command), args: list(args), ..Container::default() }
    }

    #[test]
    fn command_and_args_follow_the_four_rules() {
        let image = ImageDefaults {
            entrypoint: vec!["/ep".into()],
            cmd: vec!["cmd".into()],
            ..ImageDefaults::default()
        };
        let run = |command: &[&str], args: &[&str]| {
            arguments(&container(command, args), &image, |text| text.replace("$(X)", "x"))
        };
        assert_eq!(run(&[], &[]), ["/ep", "cmd"]);
        assert_eq!(run(&["/c"], &[]), ["/c"]);
        assert_eq!(run(&[], &["a$(X)"]), ["/ep", "ax"]);
        assert_eq!(run(&["/c"], &["a"]), ["/c", "a"]);
    }

    fn spec(pod: &Pod, container: &Container) -> ContainerSpec {
        let volumes =
            BTreeMap::from([("v".to_owned(), HostVolume { path: "/srv/v".into(), readonly: false })]);
        let parts = Parts {
            pod,
            container,
            id: "id",
            sandbox_id: "s",
            labels: String::new(),
            image: &ImageDefaults {
                env: vec!["A=image".into(), "B=image".into()],
                ..ImageDefaults::default()
            },
            layers: &[],
            user: &User { home: "/root".into(), ..User::default() },
            env: &[("A".to_owned(), "own".to_owned())],
            volumes: &volumes,
            pod_dir: Path::new("/p"),
            container_dir: Path::new("/p/c"),
            shm: None,
            hostname: "h",
            cgroups: Vec::new(),
            log: LogSpec::default(),
            rights: Rights::default(),
            oom_score_adj: 0,
            user_map: None,
            copy_root: false,
            sub_paths: &BTreeMap::new(),
            rlimits: Vec::new(),
        };
        container_spec(parts, vec!["/c".into()])
    }

    #[test]
    fn manifest_variables_win_over_the_images() {
        let made = spec(&Pod::default(), &container(&[], &[]));
        assert!(made.process.env.contains(&"A=own".to_owned()));
        assert!(made.process.env.contains(&"B=image".to_owned()));
        assert!(made.process.env.contains(&"HOSTNAME=h".to_owned()));
    }

    #[test]
    fn folders_are_mounted_before_what_lies_in_them() {
        let mut one = container(&[], &[]);
        for (path, sub) in [("/data/deep/er", ""), ("/data", ""), ("/dev/shm", "")] {
            one.volume_mounts.push(VolumeMount {
                name: "v".into(),
                mount_path: path.into(),
                sub_path: sub.into(),
                ..VolumeMount::default()
            });
        }
        let made = spec(&Pod::default(), &one);
        let at = |target: &str| made.mounts.iter().position(|mount| mount.target == target);
        assert!(at("/data") < at("/data/deep/er"));
        assert_eq!(made.mounts.iter().filter(|mount| mount.target == "/dev/shm").count(), 1);
    }

    #[test]
    fn privileged_sees_everything_and_others_do_not() {
        let made = spec(&Pod::default(), &container(&[], &[]));
        assert!(made.masked_paths.contains(&"/proc/kcore".to_owned()) && !made.host_devices);
        let mut one = container(&[], &[]);
        one.security_context =
            Some(Box::new(SecurityContext { privileged: Some(true), ..SecurityContext::default() }));
        let made = spec(&Pod::default(), &one);
        assert!(made.masked_paths.is_empty() && made.host_devices);
    }
}
