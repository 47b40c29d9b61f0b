//! What a pod finds on the host: its files, its volumes, its image, its variables. Effects, no decisions.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podkeep_core::expand::downward::Facts;
use podkeep_core::expand::env::{self, Environment, Objects};
use podkeep_core::expand::host;
use podkeep_core::lifecycle::from_pod::container_of;
use podkeep_core::types::{ConfigMap, Container, Pod, ResourceList, Secret};
use podkeep_hal::linux::cgroups::{
    Access, Cgroups, Controllers, DeviceKind, DevicePolicy, DeviceRule, Group,
};

use super::act::{Blocked, Image};
use super::{Node, pods::Uid, settings::Settings};
use crate::container::build::{self, HostVolume, SHM_SIZE, User};
use crate::container::spec::ProcessSpec;
use crate::volume::{self, VolumeSource};

/// Bytes of a termination message, as the kubelet's.
const MESSAGE_LIMIT: u64 = 4096;
/// Lines of the log taken instead, and bytes of them.
const FALLBACK_LINES: usize = 80;
const FALLBACK_BYTES: u64 = 2048;

/// 64 hex digits that never come again.
#[must_use]
pub fn new_id() -> String {
    let mut bytes = [0_u8; 32];
    // getrandom(2) through the device: it blocks only before the kernel has any entropy at all
    if fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).is_err() {
        let now = crate::clock::now();
        for (byte, source) in
            bytes.iter_mut().zip(now.boot.to_le_bytes().iter().chain(&now.wall.to_le_bytes()))
        {
            *byte = *source;
        }
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes with every boot; empty where the kernel does not say.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// One agent for one run folder.
pub fn lock(run_dir: &Path) -> Result<nix::fcntl::Flock<fs::File>, String> {
    fs::create_dir_all(run_dir).map_err(|error| format!("run folder '{}': {error}", run_dir.display()))?;
    let path = run_dir.join("agent.lock");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| format!("'{}': {error}", path.display()))?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        format!(
            "another agent uses '{}' ({}); give this one another --run-dir",
            run_dir.display(),
            errno.desc()
        )
    })
}

/// The supervisor's own group, beside the pods': what stops the agent's service must not stop it.
#[must_use]
pub fn supervisor_cgroup(all: Option<&Cgroups>, settings: &Settings) -> Vec<PathBuf> {
    let Some(all) = all else { return Vec::new() };
    let path = format!("{}podkeep-supervisor", settings.cgroup_root);
    match all.create(&path, Controllers::usual()) {
        Ok((group, _)) => group.join_dirs(),
        Err(error) => {
            log::warn!("the supervisor gets no group of its own: {error}");
            Vec::new()
        }
    }
}

/// Name that `hostname` prints inside.
#[must_use]
pub fn hostname(node: &Node, pod: &Pod) -> String {
    host::names(pod, cluster_domain(node))
        .map(|names| names.hostname)
        .unwrap_or_else(|_| host::truncated(&pod.metadata.name))
}

fn cluster_domain(node: &Node) -> &str {
    &node.settings.kubelet.cluster_domain
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

/// `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod.
pub fn write_pod_files(node: &Node, pod: &Pod, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o750))?;
    let etc = node.settings.root.join("etc");
    let read = |name: &str| fs::read_to_string(etc.join(name)).unwrap_or_default();
    let host = pod.spec.host_network;
    let names = host::names(pod, cluster_domain(node)).map_err(io::Error::other)?;
    let hosts = if host {
        host::host_network_hosts_file(&read("hosts"), &pod.spec.host_aliases)
    } else {
        host::hosts_file(&[], &names.short, &names.domain, &pod.spec.host_aliases)
    };
    write_file(&dir.join("etc-hosts"), &hosts)?;
    let hostname = if host { &node.settings.hostname } else { &names.hostname };
    write_file(&dir.join("hostname"), &format!("{hostname}\n"))?;
    let resolv = match node.settings.kubelet.resolv_conf.as_deref() {
        Some("") => String::new(),
        Some(path) => {
            let below = path.strip_prefix('/').unwrap_or(path);
            fs::read_to_string(node.settings.root.join(below)).unwrap_or_default()
        }
        None => read("resolv.conf"),
    };
    write_file(&dir.join("resolv.conf"), &resolv)
}

/// The pod's own /dev/shm.
pub fn mount_shm(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    if is_mount_point(dir) {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let data = format!("size={SHM_SIZE},mode=1777");
    mount(Some("shm"), dir, Some("tmpfs"), flags, Some(data.as_str()))?;
    Ok(())
}

fn is_mount_point(dir: &Path) -> bool {
    let parent = dir.parent().and_then(|parent| fs::metadata(parent).ok());
    let own = fs::metadata(dir).ok();
    matches!((own, parent), (Some(own), Some(parent)) if own.dev() != parent.dev())
}

/// Takes it away again; what is still open stays until it is closed.
pub fn unmount_shm(dir: &Path) {
    if is_mount_point(dir)
        && let Err(errno) = umount2(dir, MntFlags::MNT_DETACH)
    {
        log::warn!("'{}' is not unmounted: {}", dir.display(), errno.desc());
        return;
    }
    // not there, or not empty for a reason told above
    fs::remove_dir(dir).ok();
}

/// Why volumes are not there yet.
#[derive(Debug)]
pub struct VolumeWait {
    pub reason: String,
    pub message: String,
    /// a name whose folder is there: when something appears under it, trying again can help. True: something wrong
    /// stands there already.
    pub watch: Option<(PathBuf, bool)>,
}

/// Makes the volumes of a pod. On a thread of its own: looking at a path of the host can hang for as long as a network
/// file system likes.
pub async fn prepare(node: &Rc<Node>, pod: &Rc<Pod>) -> Result<BTreeMap<String, HostVolume>, VolumeWait> {
    if pod.spec.volumes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let objects = VolumeObjects::of(node, pod);
    let (pod_dir, capacity) = (super::pods::pod_dir(node, &pod.metadata.uid), allocatable(node));
    let allocatable_memory = node.settings.memory_capacity;
    let host_ips: Vec<String> =
        Some(node.settings.host_ip.clone()).filter(|ip| !ip.is_empty()).into_iter().collect();
    let pod_of_images = pod.clone();
    let pod = Pod::clone(pod);
    let made = crate::offload::run(move || {
        let facts = facts(&pod, &capacity, &host_ips);
        let ctx = volume::Context { facts: &facts, objects: &objects, pod_dir: &pod_dir, allocatable_memory };
        volume::prepare(&ctx)
    });
    let made = made.await.map_err(|error| VolumeWait {
        reason: error.reason().to_owned(),
        message: error.to_string(),
        watch: error.retry_on().map(|path| (path.clone(), error.is_wrong_type())),
    })?;
    let mut volumes = BTreeMap::new();
    for volume in made {
        let found = match volume.source {
            VolumeSource::Path(path) => HostVolume { path, readonly: volume.read_only },
            VolumeSource::Image { reference, pull_policy } => {
                image_volume(node, &pod_of_images, &volume.name, &reference, &pull_policy).await?
            }
        };
        volumes.insert(volume.name, found);
    }
    Ok(volumes)
}

/// An image volume: the image is had as a container's would be, then its layers are mounted.
async fn image_volume(
    node: &Rc<Node>,
    pod: &Pod,
    volume: &str,
    reference: &str,
    pull_policy: &str,
) -> Result<HostVolume, VolumeWait> {
    let policy = if pull_policy.is_empty() {
        podkeep_core::defaults::default_pull_policy(reference)
    } else {
        pull_policy
    };
    let image = super::image::by_name(node, pod, reference, policy).await.map_err(|blocked| VolumeWait {
        reason: blocked.reason.to_owned(),
        message: format!("volume '{volume}': {}", blocked.message),
        watch: None,
    })?;
    let pod_dir = super::pods::pod_dir(node, &pod.metadata.uid);
    let name = volume.to_owned();
    let mounted = crate::offload::run(move || volume::mount_image(&pod_dir, &name, &image.layers)).await;
    let path = mounted.map_err(|error| VolumeWait {
        reason: error.reason().to_owned(),
        message: error.to_string(),
        watch: None,
    })?;
    Ok(HostVolume { path, readonly: true })
}

/// The objects that the volumes of a pod name, copied for another thread.
struct VolumeObjects {
    config_maps: BTreeMap<String, ConfigMap>,
    secrets: BTreeMap<String, Secret>,
}

impl VolumeObjects {
    fn of(node: &Node, pod: &Pod) -> Self {
        let all = node.objects.borrow();
        let key = |name: &String| format!("{}/{name}", pod.metadata.namespace);
        let volumes = &pod.spec.volumes;
        let parts = || volumes.iter().filter_map(|v| v.projected.as_ref()).flat_map(|p| &p.sources);
        let maps = volumes.iter().filter_map(|v| Some(&v.config_map.as_ref()?.name));
        let maps = maps.chain(parts().filter_map(|p| Some(&p.config_map.as_ref()?.name)));
        let secrets = volumes.iter().filter_map(|v| Some(&v.secret.as_ref()?.secret_name));
        let secrets = secrets.chain(parts().filter_map(|p| Some(&p.secret.as_ref()?.name)));
        Self {
            config_maps: maps
                .filter_map(|n| Some((n.clone(), ConfigMap::clone(all.config_maps.get(&key(n))?))))
                .collect(),
            secrets: secrets
                .filter_map(|n| Some((n.clone(), Secret::clone(all.secrets.get(&key(n))?))))
                .collect(),
        }
    }
}

impl Objects for VolumeObjects {
    fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        self.config_maps.get(name)
    }
    fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name)
    }
    fn file_key(&self, _volume: &str, _path: &str, _key: &str) -> Option<String> {
        None
    }
}

fn facts<'a>(pod: &'a Pod, allocatable: &'a ResourceList, ips: &'a [String]) -> Facts<'a> {
    Facts { pod, host_ips: ips, pod_ips: &[], allocatable }
}

struct NamespaceObjects {
    config_maps: BTreeMap<String, Rc<ConfigMap>>,
    secrets: BTreeMap<String, Rc<Secret>>,
}

impl Objects for NamespaceObjects {
    fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        self.config_maps.get(name).map(Rc::as_ref)
    }
    fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name).map(Rc::as_ref)
    }
    fn file_key(&self, _volume: &str, _path: &str, _key: &str) -> Option<String> {
        None
    }
}

fn in_namespace<T>(all: &BTreeMap<String, Rc<T>>, namespace: &str) -> BTreeMap<String, Rc<T>> {
    let of = |name: &str| {
        name.split_once('/').filter(|(own, _)| *own == namespace).map(|(_, name)| name.to_owned())
    };
    all.iter().filter_map(|(name, object)| Some((of(name)?, object.clone()))).collect()
}

/// Variables of a container and what is expanded with them.
#[derive(Debug)]
pub struct Env {
    inner: Environment,
    pub variables: Vec<(String, String)>,
    /// by mount path
    pub sub_paths: BTreeMap<String, String>,
}

impl Env {
    /// Expands an element of `command` or `args`.
    #[must_use]
    pub fn expand(&self, text: &str) -> String {
        self.inner.expand(text)
    }
}

/// What the node can give, for limits that are not set.
#[must_use]
pub fn allocatable(node: &Node) -> ResourceList {
    use podkeep_core::quantity::{Format, Quantity};
    let cpus =
        std::thread::available_parallelism().map_or(1, |count| i64::try_from(count.get()).unwrap_or(1));
    BTreeMap::from([
        ("cpu".to_owned(), Quantity::from_units(cpus, Format::DecimalSi)),
        ("memory".to_owned(), Quantity::from_bytes(node.settings.memory_capacity)),
    ])
}

/// The environment the manifest asks for.
pub fn environment(node: &Node, pod: &Pod, container: &Container) -> Result<Env, String> {
    let objects = {
        let all = node.objects.borrow();
        let namespace = &pod.metadata.namespace;
        NamespaceObjects {
            config_maps: in_namespace(&all.config_maps, namespace),
            secrets: in_namespace(&all.secrets, namespace),
        }
    };
    let allocatable = allocatable(node);
    let ips: Vec<String> =
        Some(node.settings.host_ip.clone()).filter(|ip| !ip.is_empty()).into_iter().collect();
    let facts = facts(pod, &allocatable, &ips);
    let inner = env::environment(container, &facts, &objects).map_err(|error| error.to_string())?;
    let mut sub_paths = BTreeMap::new();
    for mount in container.volume_mounts.iter().filter(|mount| !mount.sub_path_expr.is_empty()) {
        let expanded = inner.sub_path(&mount.sub_path_expr).map_err(|error| error.to_string())?;
        sub_paths.insert(mount.mount_path.clone(), expanded);
    }
    Ok(Env { variables: inner.variables.clone(), inner, sub_paths })
}

/// The image, by the policy of the container.
pub async fn ensure_image(node: &Rc<Node>, pod: &Pod, container: &Container) -> Result<Image, Blocked> {
    let image = super::image::for_container(node, pod, container).await?;
    if let Some(signal) = stop_signal(container, &image) {
        let uid: Uid = pod.metadata.uid.as_str().into();
        node.set_stop_signal(&uid, &container.name, signal);
    }
    Ok(image)
}

/// Something was loaded: containers that wait for an image look again.
pub fn image_arrived(node: &Rc<Node>) {
    let waiting: Vec<Uid> = {
        let mut pods = node.pods.borrow_mut();
        let mut found = Vec::new();
        for entry in pods.entries.values_mut() {
            if entry.runtime.retry_blocked(|reason| reason.contains("Image")) {
                found.push(entry.uid.clone());
            }
        }
        found
    };
    for uid in waiting {
        super::turn(node, &uid, None);
    }
}

fn stop_signal(container: &Container, image: &Image) -> Option<i32> {
    let own = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.clone());
    let name = own.or_else(|| image.stop_signal.clone())?;
    if let Ok(number) = name.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let full = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    if let Some(offset) = full.strip_prefix("SIGRTMIN+").and_then(|offset| offset.parse::<i32>().ok()) {
        // the C library keeps 32 and 33 for itself
        return Some(34_i32.saturating_add(offset)).filter(|signal| *signal <= 64);
    }
    full.parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32)
}

/// Writable layer and termination message of one attempt. What could not be had is told.
pub fn make_container_dir(dir: &Path, user: &User, message: bool) -> io::Result<Vec<String>> {
    // the writable layer itself is made with the root, which knows owner and mode of the topmost layer
    fs::create_dir_all(dir)?;
    if message {
        let path = dir.join("termination-log");
        fs::File::create(&path)?.set_permissions(fs::Permissions::from_mode(0o666))?;
        std::os::unix::fs::chown(&path, Some(user.uid), Some(user.gid))?;
    }
    Ok(Vec::new())
}

/// Device rules of a container: the usual ones and the device files among its volumes.
pub fn device_rules(
    group: &Group,
    container: &Container,
    volumes: &BTreeMap<String, HostVolume>,
) -> Vec<String> {
    let policy = if build::is_privileged(container) {
        DevicePolicy::All
    } else {
        let rules: Vec<DeviceRule> = container
            .volume_mounts
            .iter()
            .filter_map(|mount| device_rule(&volumes.get(&mount.name)?.path))
            .collect();
        DevicePolicy::usual(&rules)
    };
    match group.devices(&policy) {
        Ok(degraded) => degraded.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn device_rule(path: &Path) -> Option<DeviceRule> {
    let meta = fs::metadata(path).ok()?;
    let kind = if meta.file_type().is_char_device() {
        DeviceKind::Char
    } else if meta.file_type().is_block_device() {
        DeviceKind::Block
    } else {
        return None;
    };
    let number = meta.rdev();
    let part = |value: u64| u32::try_from(value).ok();
    Some(DeviceRule {
        kind,
        major: part(nix::sys::stat::major(number)),
        minor: part(nix::sys::stat::minor(number)),
        access: Access::ALL,
    })
}

/// Logs of the runs before the previous one.
pub fn drop_old_logs(dir: &Path, ended: u32) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let attempt =
            name.to_str().and_then(|name| name.split('.').next()).and_then(|n| n.parse::<u32>().ok());
        if attempt.is_some_and(|attempt| attempt < ended)
            && let Err(error) = fs::remove_file(entry.path())
        {
            log::warn!("old log '{}' not removed: {error}", entry.path().display());
        }
    }
}

/// What the container left as its last words: its file, or the end of its log where the policy says so.
#[must_use]
pub fn termination_message(container: &Container, dir: &Path, log: Option<PathBuf>, code: i32) -> String {
    let text = read_limited(&dir.join("termination-log"), MESSAGE_LIMIT);
    if !text.is_empty() || container.termination_message_policy != "FallbackToLogsOnError" || code == 0 {
        return text;
    }
    log.map(|path| log_tail(&path, FALLBACK_LINES, FALLBACK_BYTES)).unwrap_or_default()
}

/// The end of a log as text: at most so many lines, and of them at most so many bytes.
fn log_tail(path: &Path, lines: usize, bytes: u64) -> String {
    use std::io::{Seek, SeekFrom};
    let Ok(mut file) = fs::File::open(path) else { return String::new() };
    let length = file.metadata().map(|meta| meta.len()).unwrap_or_default();
    let mut raw = Vec::new();
    // a CRI line carries some fifty bytes before its text
    let from = length.saturating_sub(bytes.saturating_mul(4));
    if file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut raw)).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&raw);
    let whole: Vec<&str> = text.lines().skip(usize::from(from > 0)).collect();
    let tail = whole.get(whole.len().saturating_sub(lines)..).unwrap_or_default();
    let mut out = String::new();
    for line in tail {
        let mut parts = line.splitn(4, ' ').skip(2);
        let full = parts.next() == Some("F");
        out.push_str(parts.next().unwrap_or_default());
        if full {
            out.push('\n');
        }
    }
    let mut cut = out.len().saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    while !out.is_char_boundary(cut) {
        cut += 1;
    }
    out.split_off(cut)
}

fn read_limited(path: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    // the container may have made anything of it: only a regular file is read
    let regular = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    if regular && let Ok(file) = fs::File::open(path) {
        file.take(limit).read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What an exec shares with its container: user, rights, variables, filter.
pub fn exec_process(node: &Rc<Node>, uid: &Uid, name: &str) -> Result<ProcessSpec, String> {
    let pod = {
        let pods = node.pods.borrow();
        pods.entries.get(uid).map(|entry| entry.pod.clone()).ok_or("pod is gone")?
    };
    let container = container_of(&pod, name).ok_or("container is gone")?;
    let record = node.images.get(&container.image).map_err(|error| error.to_string())?;
    let image: Image = record.ok_or_else(|| format!("image '{}' is gone", container.image))?.into();
    let user = super::image::user(&pod, container, &image).map_err(|blocked| blocked.message)?;
    let env = environment(node, &pod, container)?;
    let rights = super::rights::of(node, &pod, container).map_err(|blocked| blocked.message)?;
    let hostname = if pod.spec.host_network { node.settings.hostname.clone() } else { hostname(node, &pod) };
    Ok(build::exec_process(&pod, container, &image.defaults, &user, &env.variables, &hostname, rights))
}

/// Takes away the cgroups of a node that has ended (demo, tests).
pub fn remove_cgroup_root(name: &str) {
    let Ok(all) = podkeep_hal::linux::cgroups::Cgroups::open(Path::new("/")) else { return };
    let patience = std::time::Duration::from_secs(2);
    if let Ok(group) = all.group(name)
        && group.exists()
        && let Err(error) = group.kill(patience).and_then(|()| group.remove(patience))
    {
        log::warn!("cgroup '{name}' not removed: {error}");
    }
}
