//! Reading of policy options: exact names, gates, and the few spellings of true and false that count.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
};
use core::fmt;

use super::cpu_take::Sorting;
use crate::topology::policy::Policy;

/// An option that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// No option of that name.
    Unknown {
        /// Whose options: "cpu" or "topology".
        manager: &'static str,
        /// The name.
        name: String,
    },
    /// The feature gate of the option is off.
    Gated {
        /// The option.
        name: String,
        /// The gate.
        gate: &'static str,
    },
    /// Neither true nor false.
    NotABoolean {
        /// The option.
        name: String,
        /// Its value.
        value: String,
    },
    /// No whole number.
    NotANumber {
        /// The option.
        name: String,
        /// Its value.
        value: String,
    },
    /// Below the least allowed value.
    TooSmall {
        /// The option.
        name: String,
        /// Its value.
        value: i64,
        /// The least allowed.
        least: usize,
    },
    /// Two options that exclude each other.
    Exclusive {
        /// One option.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// An option this machine or another setting rules out.
    Ruled {
        /// The option.
        name: &'static str,
        /// What rules it out.
        by: &'static str,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { manager, name } => {
                write!(f, "unsupported {manager} manager policy option: \"{name}\"")
            }
            Self::Gated { name, gate } => {
                write!(f, "policy option \"{name}\" is not enabled: turn on the feature gate {gate}")
            }
            Self::NotABoolean { name, value } => {
                write!(f, "bad value for option \"{name}\": \"{value}\" is neither true nor false")
            }
            Self::NotANumber { name, value } => {
                write!(f, "unable to convert policy option to integer \"{name}\": \"{value}\"")
            }
            Self::TooSmall { name, value, least } => {
                write!(f, "the value of \"{name}\" should not be less than {least}, found {value}")
            }
            Self::Exclusive { one, other } => {
                write!(f, "static policy options {one} and {other} can not be used at the same time")
            }
            Self::Ruled { name, by } => write!(f, "policy option \"{name}\" cannot be used {by}"),
        }
    }
}

impl core::error::Error for OptionError {}

/// Reads a boolean as the kubelet does.
///
/// # Errors
/// Any other spelling.
pub fn boolean(name: &str, value: &str) -> Result<bool, OptionError> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(OptionError::NotABoolean { name: name.to_string(), value: value.to_string() }),
    }
}

/// Gates of the CPU manager's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptionGates {
    /// `CPUManagerPolicyAlphaOptions`, off by default.
    pub alpha: bool,
    /// `CPUManagerPolicyBetaOptions`, on by default.
    pub beta: bool,
}

impl Default for CpuOptionGates {
    fn default() -> Self {
        Self { alpha: false, beta: true }
    }
}

/// `cpuManagerPolicyOptions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "six independent switches, named as users write them")]
pub struct CpuOptions {
    /// `full-pcpus-only`.
    pub full_pcpus_only: bool,
    /// `distribute-cpus-across-numa`.
    pub distribute_across_numa: bool,
    /// `align-by-socket`.
    pub align_by_socket: bool,
    /// `distribute-cpus-across-cores`.
    pub distribute_across_cores: bool,
    /// `strict-cpu-reservation`.
    pub strict_reservation: bool,
    /// `prefer-align-cpus-by-uncorecache`.
    pub align_by_uncore: bool,
}

const FULL: &str = "full-pcpus-only";
const NUMA: &str = "distribute-cpus-across-numa";
const SOCKET: &str = "align-by-socket";
const CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const UNCORE: &str = "prefer-align-cpus-by-uncorecache";

impl CpuOptions {
    /// Reads the configured options.
    ///
    /// # Errors
    /// An unknown or gated name, a value that is no boolean, or two options that exclude each other.
    pub fn parse(options: &BTreeMap<String, String>, gates: CpuOptionGates) -> Result<Self, OptionError> {
        let mut parsed = Self::default();
        for (name, value) in options {
            let (slot, open, gate) = match name.as_str() {
                FULL => (&mut parsed.full_pcpus_only, true, ""),
                NUMA => (&mut parsed.distribute_across_numa, gates.beta, "CPUManagerPolicyBetaOptions"),
                STRICT => (&mut parsed.strict_reservation, gates.beta, "CPUManagerPolicyBetaOptions"),
                UNCORE => (&mut parsed.align_by_uncore, gates.beta, "CPUManagerPolicyBetaOptions"),
                SOCKET => (&mut parsed.align_by_socket, gates.alpha, "CPUManagerPolicyAlphaOptions"),
                CORES => (&mut parsed.distribute_across_cores, gates.alpha, "CPUManagerPolicyAlphaOptions"),
                _ => return Err(OptionError::Unknown { manager: "cpu", name: name.clone() }),
            };
            if !open {
                return Err(OptionError::Gated { name: name.clone(), gate });
            }
            *slot = boolean(name, value)?;
        }
        parsed.exclusive()?;
        Ok(parsed)
    }

    fn exclusive(&self) -> Result<(), OptionError> {
        let pairs = [
            (self.full_pcpus_only && self.distribute_across_cores, FULL, CORES),
            (self.distribute_across_numa && self.distribute_across_cores, NUMA, CORES),
            (self.align_by_uncore && self.distribute_across_cores, UNCORE, CORES),
            (self.align_by_uncore && self.distribute_across_numa, UNCORE, NUMA),
        ];
        match pairs.into_iter().find(|(both, ..)| *both) {
            Some((_, one, other)) => Err(OptionError::Exclusive { one, other }),
            None => Ok(()),
        }
    }

    /// Do the options fit the topology policy and the machine?
    ///
    /// # Errors
    /// `align-by-socket` with `single-numa-node`, or on a machine with more sockets than nodes.
    pub fn fits(&self, policy: Policy, sockets: usize, nodes: usize) -> Result<(), OptionError> {
        let ruled = |by| Err(OptionError::Ruled { name: SOCKET, by });
        if self.align_by_socket && policy == Policy::SingleNumaNode {
            return ruled("with topology manager policy single-numa-node");
        }
        if self.align_by_socket && sockets > nodes {
            return ruled("on a machine with more sockets than NUMA nodes");
        }
        Ok(())
    }

    /// Order in which single CPUs are taken.
    #[must_use]
    pub fn sorting(&self) -> Sorting {
        if self.distribute_across_cores { Sorting::Spread } else { Sorting::Packed }
    }
}
