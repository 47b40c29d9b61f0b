//! Validation of rights: ids, capabilities, profiles, kernel parameters.
use super::{Path, Report, volumes};
use crate::types::{AppArmorProfile, Container, Object, Pod, PodSecurityContext, PodSpec, SeccompProfile};
use alloc::collections::BTreeSet;

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// The longest path of the kernel without its end, in bytes.
const PATH_MAX: usize = 4095;
/// The longest name of a kernel parameter, in bytes.
const SYSCTL_MAX: usize = 253;

pub(super) fn is_privileged(c: &Container) -> bool {
    c.security_context.as_ref().is_some_and(|s| s.privileged == Some(true))
}

fn id(report: &mut Report, id: Option<i64>, name: &str, path: &Path<'_>) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        report.invalid_number(&path.child(name), id, "must be between 0 and 2147483647, inclusive");
    }
}

/// Rights of a container.
pub(super) fn container(report: &mut Report, c: &Container, host_users: bool, path: &Path<'_>) {
    let Some(s) = c.security_context.as_deref() else { return };
    id(report, s.run_as_user, "runAsUser", path);
    id(report, s.run_as_group, "runAsGroup", path);
    if let Some(mount) = &s.proc_mount {
        let at = path.child("procMount");
        report.one_of(&at, mount, &["Default", "Unmasked"]);
        if host_users && mount == "Unmasked" {
            report.invalid(&at, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(report, s.seccomp_profile.as_deref(), &path.child("seccompProfile"));
    if s.allow_privilege_escalation == Some(false) {
        if s.privileged == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            report.invalid_whole(path, detail);
        }
        let added = s.capabilities.iter().flat_map(|c| &c.add);
        for _ in added.filter(|name| *name == "CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            report.invalid_whole(path, detail);
        }
    }
    app_armor(report, s.app_armor_profile.as_deref(), &path.child("appArmorProfile"));
}

fn seccomp(report: &mut Report, profile: Option<&SeccompProfile>, path: &Path<'_>) {
    let Some(profile) = profile else { return };
    match profile.profile_type.as_str() {
        "" => report.required(&path.child("type"), "type is required when seccompProfile is set"),
        other => report.one_of(&path.child("type"), other, &PROFILE_TYPES),
    }
    let at = path.child("localhostProfile");
    match (&profile.localhost_profile, profile.profile_type == "Localhost") {
        (None, true) => report.required(&at, "must be set when seccomp type is Localhost"),
        (Some(file), true) => volumes::descending(report, file, &at),
        (Some(file), false) => report.invalid(&at, file, "can only be set when seccomp type is Localhost"),
        (None, false) => {}
    }
}

fn app_armor(report: &mut Report, profile: Option<&AppArmorProfile>, path: &Path<'_>) {
    let Some(profile) = profile else { return };
    let at = path.child("localhostProfile");
    match (profile.profile_type.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => report.required(&at, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                report.invalid(&at, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                report.required(&at, "must be set when AppArmor type is Localhost");
            }
            if name.len() > PATH_MAX {
                report.too_long(&at, PATH_MAX);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            report.invalid(&at, name, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => report.required(&path.child("type"), "type is required when appArmorProfile is set"),
        (other, _) => report.not_supported(&path.child("type"), other, &PROFILE_TYPES),
    }
}

/// Rights of all containers of a pod.
pub(super) fn pod(report: &mut Report, pod: &Pod, path: &Path<'_>) {
    if pod.spec.share_process_namespace == Some(true) && pod.spec.host_pid {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        report.invalid_whole(&path.child("shareProcessNamespace"), detail);
    }
    let Some(s) = pod.spec.security_context.as_deref() else { return };
    id(report, s.fs_group, "fsGroup", path);
    id(report, s.run_as_user, "runAsUser", path);
    id(report, s.run_as_group, "runAsGroup", path);
    let groups = path.child("supplementalGroups");
    for (index, group) in s.supplemental_groups.iter().enumerate() {
        if !(0..=i64::from(i32::MAX)).contains(group) {
            let detail = "must be between 0 and 2147483647, inclusive";
            report.invalid_number(&groups.index(index), *group, detail);
        }
    }
    sysctls(report, s, pod, &path.child("sysctls"));
    for (name, policy, known) in [
        ("fsGroupChangePolicy", &s.fs_group_change_policy, ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", &s.supplemental_groups_policy, ["Merge", "Strict"]),
        ("seLinuxChangePolicy", &s.se_linux_change_policy, ["MountOption", "Recursive"]),
    ] {
        if let Some(policy) = policy {
            report.one_of(&path.child(name), policy, &known);
        }
    }
    seccomp(report, s.seccomp_profile.as_deref(), &path.child("seccompProfile"));
    app_armor(report, s.app_armor_profile.as_deref(), &path.child("appArmorProfile"));
}

/// Lower-case words joined by `.` or `/`, each beginning and ending with a letter or digit.
fn is_sysctl(name: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let word = |word: &str| {
        let bytes = word.as_bytes();
        bytes.first().is_some_and(|b| alnum(*b))
            && bytes.last().is_some_and(|b| alnum(*b))
            && bytes.iter().all(|b| alnum(*b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= SYSCTL_MAX && name.split(['.', '/']).all(word)
}

fn sysctls(report: &mut Report, s: &PodSecurityContext, pod: &Pod, path: &Path<'_>) {
    let mut taken = BTreeSet::new();
    for (index, parameter) in s.sysctls.iter().enumerate() {
        let element = path.index(index);
        let at = element.child("name");
        let name = parameter.name.as_str();
        if name.is_empty() {
            report.required(&at, "");
        } else if !is_sysctl(name) {
            report.invalid(
                &at,
                name,
                "must be lower-case words joined by '.' or '/', at most 253 characters",
            );
        } else if taken.contains(name) {
            report.duplicate(&at, name, "");
        }
        // parameters of a namespace that is the node's own would change the node
        let dotted = name.replace('/', ".");
        let network = dotted.starts_with("net.");
        let ipc = dotted.starts_with("fs.mqueue.")
            || dotted.starts_with("kernel.msg")
            || dotted.starts_with("kernel.shm")
            || dotted == "kernel.sem";
        if pod.spec.host_network && network {
            report.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
        } else if pod.spec.host_ipc && ipc {
            report.invalid(&at, name, "may not be specified when 'hostIPC' is true");
        }
        taken.insert(name);
    }
}

/// What a pod for Windows must not have. Such a pod is valid, but no node of ours runs it.
pub(super) fn windows(report: &mut Report, spec: &PodSpec, path: &Path<'_>) {
    let detail = "cannot be set for a windows pod";
    for (name, set) in [
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
        ("shareProcessNamespace", spec.share_process_namespace.is_some()),
    ] {
        if set {
            report.forbidden(&path.child(name), detail);
        }
    }
    if let Some(context) = spec.security_context.as_deref() {
        only(report, context, &["windowsOptions", "runAsNonRoot"], &path.child("securityContext"));
    }
    for (name, list) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        let list_path = path.child(name);
        for (index, c) in list.iter().enumerate() {
            let at = list_path.index(index);
            if let Some(context) = c.security_context.as_deref() {
                only(report, context, &["windowsOptions", "runAsNonRoot"], &at.child("securityContext"));
            }
        }
    }
}

/// Every field but these must be absent.
fn only(report: &mut Report, object: &dyn Object, allowed: &[&str], path: &Path<'_>) {
    for (index, name) in object.shape().fields.iter().enumerate() {
        let set = object.at(index).is_some_and(|field| !field.view().is_empty());
        if set && !allowed.contains(name) {
            report.forbidden(&path.child(name), "cannot be set for a windows pod");
        }
    }
}
