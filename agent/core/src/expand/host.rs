//! Host name and hosts file of a pod.
use crate::types::{HostAlias, Pod};
use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;

/// The longest host name of Linux that is also a DNS label, in bytes.
const HOSTNAME_MAX: usize = 63;
/// The longest name the kernel takes, in bytes.
const KERNEL_MAX: usize = 64;

/// Cuts a name to 63 bytes; what then stands at the end must not be `-` or `.`.
pub fn truncated(name: &str) -> String {
    match name.get(..HOSTNAME_MAX) {
        Some(cut) if name.len() > HOSTNAME_MAX => cut.trim_end_matches(['-', '.']).to_string(),
        _ => name.to_string(),
    }
}

/// Names of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    /// What `hostname` prints inside.
    pub hostname: String,
    /// The short name, for the hosts file.
    pub short: String,
    /// `subdomain.namespace.svc.domain`, or empty.
    pub domain: String,
}

/// Why a pod has no host name. It stays pending with `FailedCreatePodSandBox`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNameError {
    /// The full name that is too long.
    pub name: String,
}

impl fmt::Display for HostNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the host name '{}' has more than {KERNEL_MAX} characters: shorten hostname or subdomain",
            self.name
        )
    }
}

impl core::error::Error for HostNameError {}

/// The names of a pod with its own network. `cluster_domain` is `clusterDomain` of the configuration.
pub fn names(pod: &Pod, cluster_domain: &str) -> Result<HostNames, HostNameError> {
    let spec = &pod.spec;
    if let Some(name) = spec.hostname_override.as_ref().filter(|n| !n.is_empty()) {
        // taken as it is; validation has limited it to 64 characters
        return Ok(HostNames { hostname: name.clone(), short: name.clone(), domain: String::new() });
    }
    let short = truncated(if spec.hostname.is_empty() { &pod.metadata.name } else { &spec.hostname });
    let domain = match spec.subdomain.as_str() {
        "" => String::new(),
        sub => format!("{sub}.{}.svc.{cluster_domain}", pod.metadata.namespace),
    };
    let full = if domain.is_empty() { short.clone() } else { format!("{short}.{domain}") };
    if spec.set_hostname_as_fqdn == Some(true) {
        if full.len() > KERNEL_MAX {
            return Err(HostNameError { name: full });
        }
        return Ok(HostNames { hostname: full, short, domain });
    }
    Ok(HostNames { hostname: short.clone(), short, domain })
}

const LOCAL: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
                     fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

/// The hosts file of a pod with its own network.
pub fn hosts_file(pod_ips: &[String], name: &str, domain: &str, aliases: &[HostAlias]) -> String {
    let mut text = format!("# Kubernetes-managed hosts file.\n{LOCAL}");
    for ip in pod_ips {
        match domain {
            "" => text.push_str(&format!("{ip}\t{name}\n")),
            _ => text.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n")),
        }
    }
    push_aliases(&mut text, aliases);
    text
}

/// The hosts file of a pod in the network of the node. `node_file` is the node's own.
pub fn host_network_hosts_file(node_file: &str, aliases: &[HostAlias]) -> String {
    let mut text = format!("# Kubernetes-managed hosts file (host network).\n{node_file}");
    push_aliases(&mut text, aliases);
    text
}

fn push_aliases(text: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    text.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.join("\t")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_must_fit() {
        let mut pod = Pod::default();
        pod.metadata.name = "web-node1".into();
        pod.metadata.namespace = "ns".into();
        pod.spec.subdomain = "sub".into();
        let plain = names(&pod, "cluster.local").unwrap();
        assert_eq!(
            (plain.hostname.as_str(), plain.domain.as_str()),
            ("web-node1", "sub.ns.svc.cluster.local")
        );
        pod.spec.set_hostname_as_fqdn = Some(true);
        assert_eq!(names(&pod, "cluster.local").unwrap().hostname, "web-node1.sub.ns.svc.cluster.local");
        pod.spec.hostname = "a".repeat(50);
        assert!(names(&pod, "cluster.local").is_err());
    }
}
