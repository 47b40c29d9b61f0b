//! API defaults of a pod: what the API server would have filled in.
use crate::reference::Reference;
use crate::resources;
use crate::types::{
    Container, ContainerPort, ContainerResizePolicy, EmptyDirVolumeSource, EnvVar, HTTPGetAction, Lifecycle,
    ObjectFieldSelector, Pod, PodSpec, Probe, Quantity, ResourceFieldSelector, ResourceList,
    ResourceRequirements, Secret, Volume, value,
};
use alloc::{boxed::Box, string::String, vec::Vec};

/// `defaultMode` of volumes with files: 0644.
pub const DEFAULT_MODE: i32 = 0o644;
/// Default of `terminationGracePeriodSeconds`, in seconds.
pub const GRACE_PERIOD_SECONDS: i64 = 30;
/// Default of `schedulerName`.
pub const SCHEDULER: &str = "default-scheduler";

/// Fills in every default of the API. Doing it twice changes nothing.
pub fn pod(pod: &mut Pod) {
    let spec = &mut pod.spec;
    spec_defaults(spec);
    for c in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        requests_from_limits(&mut c.resources);
        resize_policy(c);
        if spec.host_network {
            host_ports(&mut c.ports);
        }
    }
    pod_level(pod);
}

/// Fills in the defaults of a Secret.
pub fn secret(secret: &mut Secret) {
    fill(&mut secret.secret_type, "Opaque");
}

fn fill(slot: &mut String, default: &str) {
    if slot.is_empty() {
        slot.push_str(default);
    }
}

fn spec_defaults(spec: &mut PodSpec) {
    fill(&mut spec.dns_policy, value::CLUSTER_FIRST);
    fill(&mut spec.restart_policy, value::ALWAYS);
    fill(&mut spec.scheduler_name, SCHEDULER);
    spec.termination_grace_period_seconds.get_or_insert(GRACE_PERIOD_SECONDS);
    spec.security_context.get_or_insert_default();
    spec.enable_service_links.get_or_insert(true);
    // one name and its old spelling
    if spec.service_account_name.is_empty() {
        spec.service_account_name.clone_from(&spec.service_account);
    }
    spec.service_account.clone_from(&spec.service_account_name);
    spec.volumes.iter_mut().for_each(volume);
    for c in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        container(c);
    }
    for e in &mut spec.ephemeral_containers {
        common(
            &e.image,
            &mut e.image_pull_policy,
            (&mut e.termination_message_path, &mut e.termination_message_policy),
        );
        e.ports.iter_mut().for_each(port);
        e.env.iter_mut().for_each(env);
        for probe in
            [&mut e.liveness_probe, &mut e.readiness_probe, &mut e.startup_probe].into_iter().flatten()
        {
            probe_defaults(probe);
        }
        e.lifecycle.iter_mut().for_each(|l| lifecycle(l));
        round(&mut e.resources);
    }
    round_list(&mut spec.overhead);
}

fn common(image: &str, pull_policy: &mut String, message: (&mut String, &mut String)) {
    fill(pull_policy, default_pull_policy(image));
    fill(message.0, "/dev/termination-log");
    fill(message.1, "File");
}

/// `Always` for the tag `latest`, given or implied; else `IfNotPresent`.
pub fn default_pull_policy(image: &str) -> &'static str {
    match Reference::parse(image) {
        Ok(reference) if reference.tag_or_latest() == Some("latest") => value::ALWAYS,
        _ => value::IF_NOT_PRESENT,
    }
}

fn container(c: &mut Container) {
    common(
        &c.image,
        &mut c.image_pull_policy,
        (&mut c.termination_message_path, &mut c.termination_message_policy),
    );
    c.ports.iter_mut().for_each(port);
    c.env.iter_mut().for_each(env);
    for probe in [&mut c.liveness_probe, &mut c.readiness_probe, &mut c.startup_probe].into_iter().flatten() {
        probe_defaults(probe);
    }
    c.lifecycle.iter_mut().for_each(|l| lifecycle(l));
    round(&mut c.resources);
}

fn port(port: &mut ContainerPort) {
    fill(&mut port.protocol, value::TCP);
}

fn field(selector: &mut ObjectFieldSelector) {
    fill(&mut selector.api_version, "v1");
}

fn resource_field(selector: &mut ResourceFieldSelector) {
    selector.divisor.get_or_insert(Quantity::ZERO);
}

fn env(env: &mut EnvVar) {
    let Some(source) = &mut env.value_from else { return };
    source.field_ref.iter_mut().for_each(|f| field(f));
    source.resource_field_ref.iter_mut().for_each(|r| resource_field(r));
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn probe_defaults(probe: &mut Probe) {
    for (slot, default) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if *slot == 0 {
            *slot = default;
        }
    }
    probe.http_get.iter_mut().for_each(|h| http_get(h));
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn http_get(action: &mut HTTPGetAction) {
    fill(&mut action.path, "/");
    fill(&mut action.scheme, "HTTP");
}

fn lifecycle(lifecycle: &mut Lifecycle) {
    for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
        handler.http_get.iter_mut().for_each(|h| http_get(h));
    }
}

fn volume(volume: &mut Volume) {
    if !crate::validation::volumes::has_source(volume) {
        volume.empty_dir = Some(Box::new(EmptyDirVolumeSource::default()));
    }
    if let Some(v) = &mut volume.host_path {
        v.path_type.get_or_insert_default();
    }
    if let Some(v) = &mut volume.secret {
        v.default_mode.get_or_insert(DEFAULT_MODE);
    }
    if let Some(v) = &mut volume.config_map {
        v.default_mode.get_or_insert(DEFAULT_MODE);
    }
    if let Some(v) = &mut volume.downward_api {
        v.default_mode.get_or_insert(DEFAULT_MODE);
        v.items.iter_mut().for_each(downward_file);
    }
    if let Some(v) = &mut volume.projected {
        v.default_mode.get_or_insert(DEFAULT_MODE);
        for source in &mut v.sources {
            if let Some(api) = &mut source.downward_api {
                api.items.iter_mut().for_each(downward_file);
            }
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(3600);
            }
        }
    }
    if let Some(v) = &mut volume.image {
        let default = default_pull_policy(&v.reference);
        fill(&mut v.pull_policy, default);
    }
    storage_volume(volume);
}

fn downward_file(file: &mut crate::types::DownwardAPIVolumeFile) {
    file.field_ref.iter_mut().for_each(|f| field(f));
    file.resource_field_ref.iter_mut().for_each(|r| resource_field(r));
}

/// Volumes of storage systems: known, defaulted, not mounted here.
fn storage_volume(volume: &mut Volume) {
    if let Some(v) = &mut volume.iscsi {
        fill(&mut v.iscsi_interface, "default");
    }
    if let Some(v) = &mut volume.rbd {
        fill(&mut v.pool, "rbd");
        fill(&mut v.user, "admin");
        fill(&mut v.keyring, "/etc/ceph/keyring");
    }
    if let Some(v) = &mut volume.azure_disk {
        v.caching_mode.get_or_insert_with(|| "ReadWrite".into());
        v.kind.get_or_insert_with(|| "Shared".into());
        v.fs_type.get_or_insert_with(|| "ext4".into());
        v.read_only.get_or_insert(false);
    }
    if let Some(v) = &mut volume.scale_io {
        fill(&mut v.storage_mode, "ThinProvisioned");
        fill(&mut v.fs_type, "xfs");
    }
    if let Some(template) = volume.ephemeral.as_mut().and_then(|e| e.volume_claim_template.as_mut()) {
        template.spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
        round(&mut template.spec.resources);
    }
}

fn round(resources: &mut ResourceRequirements) {
    round_list(&mut resources.limits);
    round_list(&mut resources.requests);
}

fn round_list(list: &mut ResourceList) {
    for amount in list.values_mut() {
        *amount = amount.rounded_to_milli();
    }
}

fn requests_from_limits(resources: &mut ResourceRequirements) {
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
}

/// What a resize of CPU and memory means, for the resources the container names.
fn resize_policy(c: &mut Container) {
    for name in [value::CPU, value::MEMORY] {
        let named = c.resources.requests.contains_key(name) || c.resources.limits.contains_key(name);
        if named && !c.resize_policy.iter().any(|p| p.resource_name == name) {
            c.resize_policy.push(ContainerResizePolicy {
                resource_name: name.into(),
                restart_policy: "NotRequired".into(),
            });
        }
    }
}

fn host_ports(ports: &mut Vec<ContainerPort>) {
    for port in ports {
        if port.host_port == 0 {
            port.host_port = port.container_port;
        }
    }
}

/// Pod-level amounts: huge page limits and requests from the containers, then requests from the limits.
fn pod_level(pod: &mut Pod) {
    let Some(own) = pod.spec.resources.as_deref() else { return };
    let mut own = own.clone();
    round(&mut own);
    if own.limits.keys().chain(own.requests.keys()).any(|name| resources::is_pod_level(name)) {
        for (name, limit) in resources::container_limits(pod) {
            if name.starts_with(value::HUGEPAGES_PREFIX) {
                own.limits.entry(name).or_insert(limit);
            }
        }
        for (name, request) in resources::container_requests(pod) {
            if resources::is_pod_level(&name) && !name.starts_with(value::HUGEPAGES_PREFIX) {
                own.requests.entry(name).or_insert(request);
            }
        }
        for (name, limit) in &own.limits {
            if resources::is_pod_level(name) {
                own.requests.entry(name.clone()).or_insert(*limit);
            }
        }
    }
    pod.spec.resources = Some(Box::new(own));
}
