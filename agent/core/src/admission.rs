//! The one-time decision whether a pod may run here, for what does not depend on other pods.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::Pod;

/// Why a pod is refused; it stays Failed until its manifest changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// the kubelet's word: `SysctlForbidden`, `PodOSNotSupported`…
    pub reason: &'static str,
    pub message: String,
}

/// Kernel settings that touch nobody outside the pod's own namespaces (kubelet `pkg/kubelet/sysctl/safe_sysctls.go`, 1.36).
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// `net/ipv4/x` and `net.ipv4.x` are the same setting; a first `/` means that dots are part of a name.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.get(at..).is_some_and(|rest| rest.starts_with('/')) => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => String::from(name),
    }
}

fn is_allowed(name: &str, allowed: &[String]) -> bool {
    SAFE_SYSCTLS.contains(&name)
        || allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => dotted(pattern) == name,
        })
}

/// Decides. `allowed_sysctls` is `allowedUnsafeSysctls` of the configuration.
pub fn admit(pod: &Pod, allowed_sysctls: &[String]) -> Result<(), Rejection> {
    let os = pod.spec.os.as_ref().map_or("linux", |os| os.name.as_str());
    if os != "linux" && !os.is_empty() {
        return Err(Rejection {
            reason: "PodOSNotSupported",
            message: format!(
                "Failed to admit pod as the OS field doesn't match node OS: '{os}' is not 'linux'"
            ),
        });
    }
    let sysctls = pod.spec.security_context.iter().flat_map(|security| &security.sysctls);
    for sysctl in sysctls {
        let name = dotted(&sysctl.name);
        let forbidden = |message: String| Err(Rejection { reason: "SysctlForbidden", message });
        if !is_allowed(&name, allowed_sysctls) {
            return forbidden(format!("forbidden sysctl: \"{name}\" not allowlisted (allowedUnsafeSysctls)"));
        }
        if pod.spec.host_network && name.starts_with("net.") {
            return forbidden(format!("forbidden sysctl: \"{name}\" not allowed with host net enabled"));
        }
        let of_ipc = name.starts_with("kernel.shm")
            || name.starts_with("kernel.msg")
            || name.starts_with("fs.mqueue.");
        if pod.spec.host_ipc && of_ipc {
            return forbidden(format!("forbidden sysctl: \"{name}\" not allowed with host ipc enabled"));
        }
    }
    Ok(())
}

/// Fields that are read and checked, but that nothing acts on yet: the status says so, nobody has to find out.
#[must_use]
pub fn not_acted_on(pod: &Pod) -> Vec<String> {
    let mut found = Vec::new();
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        let hooks = container.lifecycle.as_deref();
        for (field, given) in [
            ("livenessProbe", container.liveness_probe.is_some()),
            ("readinessProbe", container.readiness_probe.is_some()),
            ("startupProbe", container.startup_probe.is_some()),
            ("lifecycle.postStart", hooks.is_some_and(|hooks| hooks.post_start.is_some())),
            ("lifecycle.preStop", hooks.is_some_and(|hooks| hooks.pre_stop.is_some())),
        ] {
            if given {
                found.push(format!("{}: {field}", container.name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{PodSecurityContext, Sysctl};
    use alloc::boxed::Box;
    use alloc::vec;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.spec.security_context = Some(Box::new(PodSecurityContext {
            sysctls: vec![Sysctl { name: name.into(), value: "1".into() }],
            ..PodSecurityContext::default()
        }));
        pod
    }

    #[test]
    fn only_safe_and_allowed_settings_pass() {
        assert!(admit(&pod("net.ipv4.tcp_syncookies"), &[]).is_ok());
        assert!(admit(&pod("net/ipv4/tcp_syncookies"), &[]).is_ok());
        assert_eq!(admit(&pod("kernel.msgmax"), &[]).map_err(|r| r.reason), Err("SysctlForbidden"));
        assert!(admit(&pod("kernel.msgmax"), &["kernel.msg*".into()]).is_ok());
        assert!(admit(&pod("kernel.msgmax"), &["kernel.msgmax".into()]).is_ok());
        let mut host = pod("net.ipv4.tcp_syncookies");
        host.spec.host_network = true;
        assert!(admit(&host, &[]).is_err());
    }

    #[test]
    fn fields_nothing_acts_on_are_named_with_their_container() {
        let mut pod = Pod::default();
        assert!(not_acted_on(&pod).is_empty());
        let container = crate::types::Container {
            name: "a".into(),
            liveness_probe: Some(Box::default()),
            ..crate::types::Container::default()
        };
        pod.spec.containers.push(container);
        assert_eq!(not_acted_on(&pod), ["a: livenessProbe"]);
    }
}
