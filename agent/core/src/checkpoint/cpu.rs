//! `cpu_manager_state`, versions 1 to 4.

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use podkeep_hal::cpu_set::CpuSet;
use serde_json::Value;

use super::{
    CheckpointError, Format,
    dump::{hash, hash_data, map as dump_map},
    json::{self, Object, Writer},
};
use crate::resource::cpu_state::{CpuAssignments, CpuState};

/// File name in the kubelet's root folder.
pub const FILE: &str = "cpu_manager_state";

/// Pod and container of a container id, for files of version 1.
pub type ContainerIds = BTreeMap<String, (String, String)>;

/// Entries of a file: by pod and container, or (version 1) by container id.
enum Entries {
    ByPod(Vec<(String, Vec<(String, String)>)>),
    ById(Vec<(String, String)>),
}

/// Reads a state file; an empty text is no state.
///
/// # Errors
/// The file is damaged, or was written under another policy.
pub fn restore(text: &str, policy: &str, ids: &ContainerIds) -> Result<CpuState, CheckpointError> {
    if text.is_empty() {
        return Ok(CpuState::default());
    }
    let file = json::object(text)?;
    let (data, data_checksum) = (json::text(&file, "data")?, json::checksum(&file, "dataChecksum")?);
    if data.is_empty() && data_checksum == 0 {
        verify(&file)?;
        return state(&file, policy, ids);
    }
    let envelope =
        |inner, unreadable| CheckpointError::Envelope { version: 4, inner: Box::new(inner), unreadable };
    let inner = json::object(&data).map_err(|error| envelope(error, Some("cpu")))?;
    let actual = hash_data(&data);
    if actual != data_checksum {
        return Err(envelope(CheckpointError::Corrupt { stored: data_checksum, actual }, None));
    }
    state(&inner, policy, ids)
}

fn state(file: &Object, policy: &str, ids: &ContainerIds) -> Result<CpuState, CheckpointError> {
    let stored = json::text(file, "policyName")?;
    if stored != policy {
        return Err(CheckpointError::Policy { prefix: "", configured: policy.to_string(), stored });
    }
    let text = json::text(file, "defaultCpuSet")?;
    let default = CpuSet::parse(&text).map_err(|error| CheckpointError::DefaultSet { text, error })?;
    let mut assignments = CpuAssignments::new();
    let mut add = |pod: String, container: String, text: String| match CpuSet::parse(&text) {
        Ok(cpus) => {
            assignments.entry(pod).or_default().insert(container, cpus);
            Ok(())
        }
        Err(error) => Err(CheckpointError::ContainerSet { pod, container, text, error }),
    };
    match entries(file)? {
        Some(Entries::ByPod(pods)) => {
            for (pod, containers) in pods {
                for (container, text) in containers {
                    add(pod.clone(), container, text)?;
                }
            }
        }
        Some(Entries::ById(containers)) => {
            for (id, text) in containers {
                if let Some((pod, container)) = ids.get(&id) {
                    add(pod.clone(), container.clone(), text)?;
                }
            }
        }
        None => {}
    }
    Ok(CpuState { default, assignments, pods: pods(file)? })
}

fn text_of(key: &str, value: &Value) -> Result<String, CheckpointError> {
    value.as_str().map(ToString::to_string).ok_or_else(|| json::kind(key, "a text"))
}

fn entries(file: &Object) -> Result<Option<Entries>, CheckpointError> {
    let Some(list) = json::map(file, "entries")? else { return Ok(None) };
    if list.iter().any(|(_, value)| value.is_string()) {
        let ids = list.into_iter().map(|(id, value)| Ok((id.clone(), text_of(id, value)?)));
        return Ok(Some(Entries::ById(ids.collect::<Result<_, CheckpointError>>()?)));
    }
    let pods = list.into_iter().map(|(pod, value)| {
        let containers =
            json::inner(pod, value)?.iter().map(|(name, value)| Ok((name.clone(), text_of(name, value)?)));
        Ok((pod.clone(), containers.collect::<Result<_, CheckpointError>>()?))
    });
    Ok(Some(Entries::ByPod(pods.collect::<Result<_, CheckpointError>>()?)))
}

fn pods(file: &Object) -> Result<BTreeMap<String, CpuSet>, CheckpointError> {
    let mut pods = BTreeMap::new();
    for (pod, value) in json::map(file, "podEntries")?.unwrap_or_default() {
        let text = json::text(json::inner(pod, value)?, "cpuSet")?;
        let cpus = CpuSet::parse(&text).map_err(|error| CheckpointError::ContainerSet {
            pod: pod.clone(),
            container: String::new(),
            text,
            error,
        })?;
        pods.insert(pod.clone(), cpus);
    }
    Ok(pods)
}

/// A file is good if its checksum fits any of the forms it may have been written in.
fn verify(file: &Object) -> Result<(), CheckpointError> {
    let stored = json::checksum(file, "checksum")?;
    let plain = dump(file, None)?;
    let with_pods = dump(file, Some(&pods(file)?))?;
    let actual = hash(&plain);
    if stored == 0 || stored == actual || stored == hash(&with_pods) {
        return Ok(());
    }
    Err(CheckpointError::Corrupt { stored, actual })
}

fn dump(file: &Object, pods: Option<&BTreeMap<String, CpuSet>>) -> Result<String, CheckpointError> {
    let (kind, entries) = match entries(file)? {
        Some(Entries::ById(ids)) => ("map[string]string", dump_map(Some(ids))),
        Some(Entries::ByPod(pods)) => {
            let pods = pods.into_iter().map(|(pod, containers)| (pod, dump_map(Some(containers)))).collect();
            ("map[string]map[string]string", dump_map(Some(pods)))
        }
        None => ("map[string]map[string]string", dump_map::<String>(None)),
    };
    Ok(object_text(
        &json::text(file, "policyName")?,
        &json::text(file, "defaultCpuSet")?,
        &format!("({kind}){entries}"),
        pods,
    ))
}

fn object_text(
    policy: &str,
    default: &str,
    entries: &str,
    pods: Option<&BTreeMap<String, CpuSet>>,
) -> String {
    let members = |cpus: &CpuSet| dump_map(Some(cpus.iter().map(|cpu| (cpu, "{}".to_string())).collect()));
    let pods = pods.map_or_else(String::new, |pods| {
        let entry = |cpus: &CpuSet| {
            format!("{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){}}}}}", members(cpus))
        };
        let pods = pods.iter().map(|(pod, cpus)| (pod.clone(), entry(cpus))).collect();
        format!(" PodEntries:(state.PodCPUAssignments){}", dump_map(Some(pods)))
    });
    format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){default} \
         Entries:{entries}{pods} Checksum:(checksum.Checksum)0}}"
    )
}

/// Writes a state file.
#[must_use]
pub fn encode(state: &CpuState, policy: &str, format: Format) -> String {
    match format {
        Format::Plain => {
            let containers = |held: &BTreeMap<String, CpuSet>| {
                dump_map(Some(held.iter().map(|(name, cpus)| (name.clone(), cpus.to_string())).collect()))
            };
            let pods = state.assignments.iter().map(|(pod, held)| (pod.clone(), containers(held))).collect();
            let entries = format!("(map[string]map[string]string){}", dump_map(Some(pods)));
            let checksum = hash(&object_text(policy, &state.default.to_string(), &entries, None));
            body(&CpuState { pods: BTreeMap::new(), ..state.clone() }, policy)
                .raw("checksum", checksum)
                .finish()
        }
        Format::Envelope => {
            let data = body(state, policy).finish();
            let checksum = hash_data(&data);
            body(state, policy).raw("checksum", 0).text("data", &data).raw("dataChecksum", checksum).finish()
        }
    }
}

fn body(state: &CpuState, policy: &str) -> Writer {
    let mut writer =
        Writer::new().text("policyName", policy).text("defaultCpuSet", &state.default.to_string());
    if !state.assignments.is_empty() {
        let containers = |held: &BTreeMap<String, CpuSet>| {
            json::sorted(held.iter().map(|(name, cpus)| (name, json::quote(&cpus.to_string()))))
        };
        writer = writer.raw(
            "entries",
            json::sorted(state.assignments.iter().map(|(pod, held)| (pod, containers(held)))),
        );
    }
    if !state.pods.is_empty() {
        let entry = |cpus: &CpuSet| Writer::new().text("cpuSet", &cpus.to_string()).finish();
        writer =
            writer.raw("podEntries", json::sorted(state.pods.iter().map(|(pod, cpus)| (pod, entry(cpus)))));
    }
    writer
}
