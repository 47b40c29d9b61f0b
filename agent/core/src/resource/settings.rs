//! What the configuration says about the managers, read once at the start.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
};
use core::fmt;

use podkeep_hal::{
    cpu_set::{CpuListError, CpuSet},
    numa_mask::NodeId,
};

use super::{
    memory_state::ReservedMemory,
    options::{CpuOptionGates, CpuOptions, OptionError},
};
use crate::{
    config::KubeletConfiguration,
    topology::policy::{Policy, PolicyError, PolicyOptions, Scope},
    types::Quantity,
};

/// Static CPU policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSettings {
    /// CPUs kept for the system.
    pub reserved: usize,
    /// Which ones, if listed.
    pub listed: Option<CpuSet>,
    /// Policy options.
    pub options: CpuOptions,
}

/// Policies of all managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// CPU policy `static`; none is policy `none`.
    pub cpu: Option<CpuSettings>,
    /// Memory policy `Static` with what is kept for the system; none is policy `None`.
    pub memory: Option<ReservedMemory>,
    /// Topology policy.
    pub policy: Policy,
    /// Its scope.
    pub scope: Scope,
    /// Its options.
    pub policy_options: PolicyOptions,
    /// CPUs for a pod as a whole (gates `PodLevelResources` and `PodLevelResourceManagers`).
    pub pod_level: bool,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// A policy option.
    Option(OptionError),
    /// A policy.
    Policy(PolicyError),
    /// The list of reserved CPUs.
    ReservedCpus(CpuListError),
    /// An amount.
    Amount {
        /// Where it stands.
        field: String,
        /// What is there.
        text: String,
    },
    /// A NUMA node number.
    Node {
        /// The number.
        node: i32,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
            Self::ReservedCpus(error) => write!(f, "reservedSystemCPUs: {error}"),
            Self::Amount { field, text } => write!(f, "{field}: \"{text}\" is no amount"),
            Self::Node { node } => {
                write!(f, "reservedMemory: there can be no NUMA node {node}, allowed are 0 to 63")
            }
        }
    }
}

impl core::error::Error for SettingError {}

impl From<OptionError> for SettingError {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

impl From<PolicyError> for SettingError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

impl Settings {
    /// Reads the configuration.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn new(config: &KubeletConfiguration) -> Result<Self, SettingError> {
        let gate = |name: &str, default: bool| config.feature_gates.get(name).copied().unwrap_or(default);
        Ok(Self {
            cpu: cpu(config)?,
            memory: memory(config)?,
            policy: Policy::parse(&config.topology_manager_policy)?,
            scope: if config.topology_manager_scope == "pod" { Scope::Pod } else { Scope::Container },
            policy_options: PolicyOptions::parse(&config.topology_manager_policy_options)?,
            pod_level: gate("PodLevelResources", true) && gate("PodLevelResourceManagers", false),
        })
    }

    /// Name of the CPU policy in state files.
    #[must_use]
    pub fn cpu_policy(&self) -> &'static str {
        if self.cpu.is_some() { "static" } else { "none" }
    }

    /// Name of the memory policy in state files.
    #[must_use]
    pub fn memory_policy(&self) -> &'static str {
        if self.memory.is_some() { "Static" } else { "None" }
    }
}

fn cpu(config: &KubeletConfiguration) -> Result<Option<CpuSettings>, SettingError> {
    if config.cpu_manager_policy != "static" {
        return Ok(None);
    }
    let gate = |name: &str, default: bool| config.feature_gates.get(name).copied().unwrap_or(default);
    let gates = CpuOptionGates {
        alpha: gate("CPUManagerPolicyAlphaOptions", false),
        beta: gate("CPUManagerPolicyBetaOptions", true),
    };
    let options = CpuOptions::parse(&config.cpu_manager_policy_options, gates)?;
    if !config.reserved_system_cpus.is_empty() {
        let listed = CpuSet::parse(&config.reserved_system_cpus).map_err(SettingError::ReservedCpus)?;
        return Ok(Some(CpuSettings { reserved: listed.len(), listed: Some(listed), options }));
    }
    let milli = |field: &str, amounts: &BTreeMap<String, String>| match amounts.get("cpu") {
        None => Ok(0u64),
        Some(text) => {
            amount(&format!("{field}.cpu"), text).map(|amount| u64::try_from(amount.milli()).unwrap_or(0))
        }
    };
    let milli = milli("systemReserved", &config.system_reserved)?
        .saturating_add(milli("kubeReserved", &config.kube_reserved)?);
    let reserved = usize::try_from(milli.div_ceil(1000)).unwrap_or(usize::MAX);
    Ok(Some(CpuSettings { reserved, listed: None, options }))
}

fn memory(config: &KubeletConfiguration) -> Result<Option<ReservedMemory>, SettingError> {
    if config.memory_manager_policy != "Static" {
        return Ok(None);
    }
    let mut reserved = ReservedMemory::new();
    for reservation in &config.reserved_memory {
        let node = NodeId::try_from(reservation.numa_node)
            .ok()
            .filter(|node| *node < 64)
            .ok_or(SettingError::Node { node: reservation.numa_node })?;
        let kinds = reserved.entry(node).or_default();
        kinds.extend(reservation.limits.iter().map(|(kind, amount)| (kind.clone(), amount.bytes())));
    }
    Ok(Some(reserved))
}

fn amount(field: &str, text: &str) -> Result<Quantity, SettingError> {
    text.parse().map_err(|_| SettingError::Amount { field: field.to_string(), text: text.to_string() })
}
