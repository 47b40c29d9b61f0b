//! What a container may do: capabilities, system call filter, AppArmor profile. The manifest's words to the runtime's.

use std::path::PathBuf;

use podkeep_core::types::{AppArmorProfile, Container, Pod, SeccompProfile};

use super::Node;
use super::act::Blocked;
use crate::container::build::is_privileged;
use crate::container::caps;
use crate::container::seccomp::Filter;
use crate::container::spec::CapabilitySets;

/// The rights of one container.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    pub capabilities: CapabilitySets,
    /// compiled program
    pub seccomp: Option<PathBuf>,
    pub apparmor: Option<String>,
    /// asked for and not to be had, in words
    pub lost: Vec<String>,
}

/// Resolves them; a profile that cannot be read blocks the start, a capability this machine lacks does not.
pub fn of(node: &Node, pod: &Pod, container: &Container) -> Result<Rights, Blocked> {
    let privileged = is_privileged(container);
    let security = container.security_context.as_deref();
    let wanted = security.and_then(|security| security.capabilities.as_deref());
    let (mask, lost) = match (privileged, wanted) {
        (true, _) => (node.host_capabilities, caps::Lost::default()),
        (false, Some(wanted)) => caps::set(&wanted.add, &wanted.drop, node.host_capabilities),
        (false, None) => caps::set(&[], &[], node.host_capabilities),
    };
    let mut words = Vec::new();
    if !lost.unknown.is_empty() {
        words.push(format!("unknown capabilities left out: {}", lost.unknown.join(", ")));
    }
    if !lost.unavailable.is_empty() {
        words.push(format!("capabilities this machine lacks are left out: {}", lost.unavailable.join(", ")));
    }
    let filter = filter(pod, container, privileged);
    let seccomp = node.filters.program(&filter, mask).map_err(Blocked::config)?;
    Ok(Rights {
        capabilities: caps::sets(mask),
        seccomp,
        apparmor: apparmor(pod, container, privileged),
        lost: words,
    })
}

fn filter(pod: &Pod, container: &Container, privileged: bool) -> Filter {
    if privileged {
        // as the container runtimes: a privileged container is not confined whatever its profile says
        return Filter::Unconfined;
    }
    let own = container.security_context.as_deref().and_then(|security| security.seccomp_profile.as_deref());
    let of_pod =
        pod.spec.security_context.as_deref().and_then(|security| security.seccomp_profile.as_deref());
    let localhost =
        |profile: &SeccompProfile| Filter::Localhost(profile.localhost_profile.clone().unwrap_or_default());
    match own.or(of_pod) {
        Some(profile) if profile.profile_type == "Unconfined" => Filter::Unconfined,
        Some(profile) if profile.profile_type == "Localhost" => localhost(profile),
        Some(_) => Filter::RuntimeDefault,
        // stricter than the kubelet, which filters only where `seccompDefault` is set (docs/differences.md)
        None => Filter::RuntimeDefault,
    }
}

/// Only a named profile is asked for: there is no default one on a board without the tools that load it.
fn apparmor(pod: &Pod, container: &Container, privileged: bool) -> Option<String> {
    let own =
        container.security_context.as_deref().and_then(|security| security.app_armor_profile.as_deref());
    let of_pod =
        pod.spec.security_context.as_deref().and_then(|security| security.app_armor_profile.as_deref());
    let named = |profile: &AppArmorProfile| match profile.profile_type.as_str() {
        "Localhost" => profile.localhost_profile.clone(),
        "Unconfined" => Some("unconfined".to_owned()),
        _ => None,
    };
    if privileged { None } else { own.or(of_pod).and_then(named) }
}

/// Capabilities that can be had here at all.
#[must_use]
pub fn host_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    caps::host_bounding(&status).unwrap_or(caps::DEFAULT)
}

/// Version of the running kernel.
#[must_use]
pub fn kernel_version() -> (u32, u32) {
    let names = nix::sys::utsname::uname().ok();
    let release = names.as_ref().and_then(|names| names.release().to_str()).unwrap_or_default().to_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
