//! The configuration in the units and forms the loop works with, with the command line's words over it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use podkeep_core::config::{KubeletConfiguration, NodeConfiguration};
use podkeep_core::lifecycle::BackoffSettings;
use podkeep_core::quantity::Quantity;

use super::RunOptions;

/// What the loop needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    pub kubelet: KubeletConfiguration,
    pub node: NodeConfiguration,
    pub node_name: String,
    pub hostname: String,
    pub state_dir: PathBuf,
    pub run_dir: PathBuf,
    pub socket: PathBuf,
    pub manifests: Option<PathBuf>,
    pub pod_logs_dir: PathBuf,
    /// facts of the machine are read below this folder
    pub root: PathBuf,
    /// ends with `/` unless empty
    pub cgroup_root: String,
    pub backoff: BackoffSettings,
    pub cfs_quota: bool,
    /// microseconds
    pub cfs_period_us: u64,
    pub pod_pids_limit: Option<u64>,
    pub single_process_oom_kill: bool,
    pub log_max_size: u64,
    pub log_max_files: u32,
    pub ids_per_pod: u32,
    /// bytes
    pub memory_capacity: u64,
    /// overlayfs is missing here
    pub copy_root: bool,
    pub host_ip: String,
    pub log_json: bool,
    pub verbosity: u8,
}

/// Settings and what their author should know.
#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    pub warnings: Vec<String>,
}

/// Reads the configuration and puts the command line over it.
pub fn load(options: &RunOptions) -> Result<Loaded, String> {
    let read = crate::config::load(options.config.as_deref(), options.config_dir.as_deref())
        .map_err(|error| error.to_string())?;
    let settings = settings(read.kubelet, read.node, options)?;
    Ok(Loaded { settings, warnings: read.warnings.iter().map(ToString::to_string).collect() })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn settings(
    kubelet: KubeletConfiguration,
    node: NodeConfiguration,
    options: &RunOptions,
) -> Result<Settings, String> {
    let root = options.root.clone().unwrap_or_else(|| "/".into());
    let hostname = nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_else(|_| "localhost".to_owned());
    let given = options.node_name.clone().unwrap_or_else(|| node.node_name.clone());
    let node_name = if given.trim().is_empty() { hostname.clone() } else { given }.trim().to_lowercase();
    if !podkeep_core::validation::names::is_dns_subdomain(&node_name) {
        return Err(format!(
            "node name '{node_name}' is not a DNS name (a-z, 0-9, '-' and '.'); set it with --node-name or nodeName"
        ));
    }
    let pick = |given: &Option<PathBuf>, configured: &str| {
        absolute(given.as_deref().unwrap_or(Path::new(configured)))
    };
    let run_dir = pick(&options.run_dir, &node.run_dir);
    // a socket that only has its default follows the run folder that was asked for
    let default_socket = format!("{}/podkeep.sock", node.run_dir.trim_end_matches('/'));
    let socket = match &options.socket {
        Some(socket) => absolute(socket),
        None if node.socket == default_socket => run_dir.join("podkeep.sock"),
        None => PathBuf::from(&node.socket),
    };
    let manifests = options
        .manifests
        .clone()
        .or_else(|| Some(PathBuf::from(kubelet.static_pod_path.trim_end_matches('/'))))
        .filter(|path| !path.as_os_str().is_empty())
        .map(|path| absolute(&path));
    let cgroup_root = kubelet.cgroup_root.trim_matches('/');
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let cap = kubelet.crash_loop_back_off.max_container_restart_period.map(|cap| nanos(cap.to_std()));
    let mut backoff = cap.map_or_else(BackoffSettings::default, BackoffSettings::with_cap);
    if let Some(initial) = node.crash_back_off.initial {
        backoff.first = nanos(initial.to_std()).min(backoff.cap);
    }
    if let Some(reset) = node.crash_back_off.reset_after {
        backoff.reset = nanos(reset.to_std());
    }
    let period = kubelet.cpu_cfs_quota_period.map_or(Duration::from_millis(100), |period| period.to_std());
    let log_size = kubelet.container_log_max_size.parse::<Quantity>().map_or(10 << 20, |size| size.bytes());
    Ok(Settings {
        hostname,
        state_dir: pick(&options.state_dir, &node.state_dir),
        run_dir,
        socket,
        manifests,
        pod_logs_dir: absolute(Path::new(&kubelet.pod_logs_dir)),
        cgroup_root: if cgroup_root.is_empty() { String::new() } else { format!("{cgroup_root}/") },
        backoff,
        cfs_quota: kubelet.cpu_cfs_quota != Some(false),
        cfs_period_us: u64::try_from(period.as_micros()).unwrap_or(100_000),
        pod_pids_limit: kubelet
            .pod_pids_limit
            .and_then(|limit| u64::try_from(limit).ok())
            .filter(|limit| *limit > 0),
        single_process_oom_kill: kubelet.single_process_oom_kill == Some(true),
        log_max_size: log_size,
        log_max_files: kubelet
            .container_log_max_files
            .and_then(|files| u32::try_from(files).ok())
            .unwrap_or(5),
        ids_per_pod: kubelet
            .user_namespaces
            .as_ref()
            .and_then(|spaces| spaces.ids_per_pod)
            .and_then(|ids| u32::try_from(ids).ok())
            .unwrap_or(65_536),
        memory_capacity: memory_capacity(&root),
        copy_root: !has_overlay(&root),
        host_ip: String::new(),
        log_json: options.log_format.as_deref().unwrap_or(&kubelet.logging.format) == "json",
        verbosity: options.verbosity.unwrap_or_default(),
        node_name,
        root,
        kubelet,
        node,
    })
}

fn memory_capacity(root: &Path) -> u64 {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

fn has_overlay(root: &Path) -> bool {
    let listed = || {
        std::fs::read_to_string(root.join("proc/filesystems"))
            .is_ok_and(|text| text.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay"))
    };
    // as a module it is listed only once something has asked for it
    listed() || {
        nix::mount::mount(Some("none"), "/", Some("overlay"), nix::mount::MsFlags::MS_RDONLY, None::<&str>)
            .ok();
        listed()
    }
}
