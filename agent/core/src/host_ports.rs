//! Ports of the host that pods ask for: which two pods cannot run side by side.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::types::Pod;

/// A port of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// empty: all addresses
    pub ip: String,
    pub port: i32,
    /// `TCP`, `UDP`, `SCTP`
    pub protocol: String,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.ip.is_empty() {
            write!(f, "{}:", self.ip)?;
        }
        write!(f, "{}/{}", self.port, self.protocol)
    }
}

impl HostPort {
    /// Whether both cannot be listened on at once.
    pub fn conflicts(&self, other: &HostPort) -> bool {
        let all = |ip: &str| matches!(ip, "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (all(&self.ip) || all(&other.ip) || self.ip == other.ip)
    }
}

/// The host's ports of a pod whose defaults are filled in.
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let ports = containers.flat_map(|container| &container.ports).filter(|port| port.host_port > 0);
    ports
        .map(|port| HostPort {
            ip: port.host_ip.clone(),
            port: port.host_port,
            protocol: if port.protocol.is_empty() { "TCP".into() } else { port.protocol.clone() },
        })
        .collect()
}

/// The first port of `wanted` that is among `held`.
pub fn conflict<'a>(wanted: &'a [HostPort], held: &[HostPort]) -> Option<&'a HostPort> {
    wanted.iter().find(|port| held.iter().any(|other| port.conflicts(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Container, ContainerPort};
    use alloc::string::ToString;
    use alloc::vec;

    fn port(ip: &str, port: i32, protocol: &str) -> HostPort {
        HostPort { ip: ip.into(), port, protocol: protocol.into() }
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let web = port("", 80, "TCP");
        assert!(web.conflicts(&web));
        assert!(web.conflicts(&port("10.0.0.1", 80, "TCP")));
        assert!(port("0.0.0.0", 80, "TCP").conflicts(&port("10.0.0.1", 80, "TCP")));
        assert!(!port("10.0.0.2", 80, "TCP").conflicts(&port("10.0.0.1", 80, "TCP")));
        assert!(!web.conflicts(&port("", 80, "UDP")));
        assert!(!web.conflicts(&port("", 81, "TCP")));
    }

    #[test]
    fn only_host_ports_count() {
        let ports = vec![
            ContainerPort { container_port: 8080, ..Default::default() },
            ContainerPort {
                container_port: 53,
                host_port: 5353,
                protocol: "UDP".into(),
                ..Default::default()
            },
        ];
        let mut pod = Pod::default();
        pod.spec.containers.push(Container { ports, ..Default::default() });
        let found = host_ports(&pod);
        assert_eq!(found, [port("", 5353, "UDP")]);
        assert_eq!(conflict(&found, &[port("127.0.0.1", 5353, "UDP")]).unwrap().to_string(), "5353/UDP");
        assert_eq!(conflict(&found, &[port("", 5353, "TCP")]), None);
    }
}
