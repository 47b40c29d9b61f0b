//! Our own settings: a second document in the same file, `podkeep.dev/v1alpha1`, kind `NodeConfiguration`.
//!
//! They do not stand in KubeletConfiguration, so that its document stays valid for a kubelet.

use alloc::string::String;
use alloc::vec::Vec;

use super::duration::Duration;
use super::validate::{ConfigFault, Faults};
use crate::object;
use crate::types::Quantity;

pub const API_VERSION: &str = "podkeep.dev/v1alpha1";
pub const KIND: &str = "NodeConfiguration";

object! {
    /// What a kubelet has no setting for.
    pub struct NodeConfiguration {
        api_version: String = "apiVersion",
        kind: String = "kind",
        /// images, volumes and small state files; survives a reboot
        state_dir: String = "stateDir",
        /// what ends with the machine's run: sockets, records of containers
        run_dir: String = "runDir",
        /// the agent's socket; empty: `podkeep.sock` in `runDir`
        socket: String = "socket",
        /// empty: the host's name in lower case
        node_name: String = "nodeName",
        /// how long a file that is being rewritten in place must be left alone before it counts
        settle_period: Duration = "settlePeriod",
        /// a limit that this kernel cannot enforce: `warn` and run the pod, or `refuse` it
        unenforceable_limits: String = "unenforceableLimits",
        crash_back_off: CrashBackOff = "crashBackOff",
        logs: LogLimits = "logs",
        /// images of the firmware: folders of `image bake` are used in place; archives, layouts and folders of them are
        /// loaded when one of their images is first wanted
        image_dirs: Vec<String> = "imageDirs",
        /// how registries are reached where the default (https, the system's certificates) is not right
        registries: Vec<RegistryConfig> = "registries",
        /// registries asked in turn for a name without registry; empty: such a name is not pulled
        short_names: Vec<String> = "shortNames",
        /// Docker's `config.json` with credentials of the node
        docker_config_file: String = "dockerConfigFile",
        /// file or folder of `CredentialProviderConfig`, the kubelet's `--image-credential-provider-config`
        image_credential_provider_config: String = "imageCredentialProviderConfig",
        /// folder of their programs
        image_credential_provider_bin_dir: String = "imageCredentialProviderBinDir",
    }

    /// One registry.
    pub struct RegistryConfig {
        /// as in image names: `docker.io`, `registry.example.com:5000`
        name: String = "name",
        /// asked before the registry, in this order: `https://HOST[:PORT]`, or `http://` where that is wanted
        mirrors: Vec<String> = "mirrors",
        /// not encrypted; loopback addresses need no word of it
        plain_http: bool = "plainHTTP",
        /// certificates (PEM) that are trusted instead of the system's
        ca_file: String = "caFile",
    }

    /// How long a crashing container waits; the longest wait is the kubelet's `crashLoopBackOff`.
    pub struct CrashBackOff {
        /// before the second restart in a row (the first is at once)
        initial: Option<Duration> = "initial",
        /// a run of this length makes the next crash count as the first; absent: twice the longest wait
        reset_after: Option<Duration> = "resetAfter",
    }

    /// Output of containers.
    pub struct LogLimits {
        /// bytes a second of one container before lines are dropped; absent: no limit
        rate: Option<Quantity> = "rate",
    }
}

/// Fills in what is absent.
pub fn set_defaults(config: &mut NodeConfiguration) {
    for (slot, value) in [
        (&mut config.state_dir, "/var/lib/podkeep"),
        (&mut config.run_dir, "/run/podkeep"),
        (&mut config.unenforceable_limits, "warn"),
    ] {
        if slot.is_empty() {
            slot.push_str(value);
        }
    }
    if config.socket.is_empty() {
        config.socket = alloc::format!("{}/podkeep.sock", config.run_dir.trim_end_matches('/'));
    }
    if config.settle_period.is_zero() {
        config.settle_period = Duration::from_millis(500);
    }
    config.crash_back_off.initial.get_or_insert(Duration::from_secs(10));
}

/// Judges settings that have their defaults.
pub fn validate(config: &NodeConfiguration) -> Vec<ConfigFault> {
    let mut faults = Faults(Vec::new());
    for (path, dir) in
        [("stateDir", &config.state_dir), ("runDir", &config.run_dir), ("socket", &config.socket)]
    {
        if !dir.starts_with('/') {
            faults.add(path, alloc::format!("'{dir}' is not an absolute path"));
        }
    }
    // the address of a unix socket has 108 bytes, the last is zero
    if config.socket.len() > 107 {
        faults.add("socket", alloc::format!("the path has {} bytes, 107 are possible", config.socket.len()));
    }
    for (i, dir) in config.image_dirs.iter().enumerate() {
        if !dir.starts_with('/') {
            faults.add(&alloc::format!("imageDirs[{i}]"), alloc::format!("'{dir}' is not an absolute path"));
        }
    }
    registries(config, &mut faults);
    faults.one_of("unenforceableLimits", &config.unenforceable_limits, &["warn", "refuse"]);
    let settle = config.settle_period;
    if settle < Duration::from_millis(10) || settle > Duration::from_secs(60) {
        faults.add("settlePeriod", alloc::format!("{settle} is not between 10ms and 1m0s"));
    }
    for (path, length) in [
        ("crashBackOff.initial", config.crash_back_off.initial),
        ("crashBackOff.resetAfter", config.crash_back_off.reset_after),
    ] {
        if let Some(length) = length
            && (length < Duration::from_millis(100) || length > Duration::from_secs(3600))
        {
            faults.add(path, alloc::format!("{length} is not between 100ms and 1h0m0s"));
        }
    }
    if config.logs.rate.is_some_and(|rate| rate.sign() <= 0) {
        faults.add("logs.rate", "must be more than 0");
    }
    faults.0
}

/// A registry as it stands in image names, or a mirror without its scheme.
fn is_host(text: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !text.is_empty() && text.chars().all(part)
}

fn registries(config: &NodeConfiguration, faults: &mut Faults) {
    for (i, registry) in config.registries.iter().enumerate() {
        let path = |field: &str| alloc::format!("registries[{i}].{field}");
        let name = &registry.name;
        if !is_host(name) {
            faults.add(&path("name"), alloc::format!("'{name}' is not HOST or HOST:PORT"));
        }
        if config.registries.iter().take(i).any(|other| other.name == *name) {
            faults.add(&path("name"), alloc::format!("'{name}' is there already"));
        }
        for (k, mirror) in registry.mirrors.iter().enumerate() {
            let host =
                mirror.strip_prefix("https://").or_else(|| mirror.strip_prefix("http://")).unwrap_or(mirror);
            if !is_host(host.trim_end_matches('/')) {
                let message =
                    alloc::format!("'{mirror}' is not HOST[:PORT] with https:// or http:// before it");
                faults.add(&path(&alloc::format!("mirrors[{k}]")), message);
            }
        }
        if !registry.ca_file.is_empty() && !registry.ca_file.starts_with('/') {
            faults.add(&path("caFile"), alloc::format!("'{}' is not an absolute path", registry.ca_file));
        }
        if registry.plain_http && !registry.ca_file.is_empty() {
            faults.add(&path("caFile"), "not together with plainHTTP");
        }
    }
    for (i, name) in config.short_names.iter().enumerate() {
        if !is_host(name) {
            faults
                .add(&alloc::format!("shortNames[{i}]"), alloc::format!("'{name}' is not HOST or HOST:PORT"));
        }
    }
    let (providers, programs) =
        (&config.image_credential_provider_config, &config.image_credential_provider_bin_dir);
    for (path, file) in [
        ("dockerConfigFile", &config.docker_config_file),
        ("imageCredentialProviderConfig", providers),
        ("imageCredentialProviderBinDir", programs),
    ] {
        if !file.is_empty() && !file.starts_with('/') {
            faults.add(path, alloc::format!("'{file}' is not an absolute path"));
        }
    }
    if providers.is_empty() != programs.is_empty() {
        faults.add("imageCredentialProviderBinDir", "goes together with imageCredentialProviderConfig");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_faults_have_paths() {
        let mut config = NodeConfiguration::default();
        set_defaults(&mut config);
        assert_eq!(validate(&config), []);
        assert_eq!(config.socket, "/run/podkeep/podkeep.sock");
        config.run_dir = "run".into();
        config.unenforceable_limits = "maybe".into();
        config.settle_period = Duration::from_secs(61);
        config.crash_back_off.initial = Some(Duration::ZERO);
        config.socket = alloc::format!("/{}", "x".repeat(200));
        let paths: Vec<String> = validate(&config).into_iter().map(|fault| fault.path).collect();
        assert_eq!(
            paths,
            ["runDir", "socket", "unenforceableLimits", "settlePeriod", "crashBackOff.initial"]
        );
    }

    #[test]
    fn registries_are_judged_with_their_place() {
        let mut config = NodeConfiguration::default();
        set_defaults(&mut config);
        let registry = |name: &str| RegistryConfig { name: name.into(), ..RegistryConfig::default() };
        config.registries = [registry("docker.io"), registry("https://x"), registry("docker.io")].into();
        config.registries[0].mirrors = ["https://cache:5000/".into(), "ftp://x".into()].into();
        config.registries[0].ca_file = "ca.pem".into();
        config.short_names = ["docker.io/library".into()].into();
        config.docker_config_file = "/root/.docker/config.json".into();
        let paths: Vec<String> = validate(&config).into_iter().map(|fault| fault.path).collect();
        let expected = [
            "registries[0].mirrors[1]",
            "registries[0].caFile",
            "registries[1].name",
            "registries[2].name",
            "shortNames[0]",
        ];
        assert_eq!(paths, expected);
    }
}
