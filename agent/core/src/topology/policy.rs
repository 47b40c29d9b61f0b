//! Policies and their options: what a merged hint is worth.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use podkeep_hal::numa_mask::NumaMask;

use super::{
    distance::{Distances, MaskRule},
    hint::Hint,
    merge::merge,
};
use crate::resource::options::{OptionError, boolean};

/// `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// No alignment.
    #[default]
    None,
    /// Align if possible, admit anyway.
    BestEffort,
    /// Admit only on the narrowest node set the machine allows.
    Restricted,
    /// Admit only on one node.
    SingleNumaNode,
}

/// `topologyManagerScope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Each container by itself.
    #[default]
    Container,
    /// All containers of a pod together.
    Pod,
}

impl Policy {
    /// Reads the configured name; the empty name is `none`.
    ///
    /// # Errors
    /// No such policy.
    pub fn parse(name: &str) -> Result<Self, PolicyError> {
        match name {
            "none" | "" => Ok(Self::None),
            "best-effort" => Ok(Self::BestEffort),
            "restricted" => Ok(Self::Restricted),
            "single-numa-node" => Ok(Self::SingleNumaNode),
            _ => Err(PolicyError::Unknown { name: name.to_string() }),
        }
    }

    /// The configured name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }

    /// May the policy be used on a machine with so many nodes?
    ///
    /// # Errors
    /// More nodes than configured.
    pub fn allows_nodes(self, nodes: usize, most: usize) -> Result<(), PolicyError> {
        if self == Self::None || nodes <= most { Ok(()) } else { Err(PolicyError::TooManyNodes { most }) }
    }

    /// Is a pod with this merged hint let in?
    #[must_use]
    pub fn admits(self, hint: &Hint) -> bool {
        match self {
            Self::None | Self::BestEffort => true,
            Self::Restricted | Self::SingleNumaNode => hint.preferred,
        }
    }

    /// Merges offers under this policy.
    #[must_use]
    pub fn merge(self, all: NumaMask, lists: &[Vec<Hint>], closest: Option<&Distances>) -> Hint {
        match self {
            Self::None => Hint::UNMET,
            Self::BestEffort | Self::Restricted => merge(all, lists, MaskRule { closest }),
            Self::SingleNumaNode => {
                let single: Vec<Vec<Hint>> = lists.iter().map(|list| single_node(list)).collect();
                let hint = merge(all, &single, MaskRule::default());
                if hint.mask == Some(all) { Hint { mask: None, ..hint } } else { hint }
            }
        }
    }
}

/// Hints `single-numa-node` looks at: preferred, and of one node or none in particular.
#[must_use]
pub fn single_node(list: &[Hint]) -> Vec<Hint> {
    let single = |hint: &&Hint| hint.preferred && hint.mask.is_none_or(|mask| mask.count() == 1);
    list.iter().filter(single).copied().collect()
}

/// Nodes the kubelet supports without being asked to.
pub const DEFAULT_MOST_NODES: usize = 8;

/// `topologyManagerPolicyOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyOptions {
    /// `prefer-closest-numa-nodes`.
    pub prefer_closest: bool,
    /// `max-allowable-numa-nodes`.
    pub most_nodes: usize,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self { prefer_closest: false, most_nodes: DEFAULT_MOST_NODES }
    }
}

impl PolicyOptions {
    /// Reads the configured options.
    ///
    /// # Errors
    /// An unknown name or a value that does not fit.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self, OptionError> {
        let mut parsed = Self::default();
        for (name, value) in options {
            match name.as_str() {
                "prefer-closest-numa-nodes" => parsed.prefer_closest = boolean(name, value)?,
                "max-allowable-numa-nodes" => parsed.most_nodes = most_nodes(name, value)?,
                _ => return Err(OptionError::Unknown { manager: "topology", name: name.clone() }),
            }
        }
        Ok(parsed)
    }
}

fn most_nodes(name: &str, value: &str) -> Result<usize, OptionError> {
    let number: i64 =
        value.parse().map_err(|_| OptionError::NotANumber { name: name.into(), value: value.into() })?;
    match usize::try_from(number) {
        Ok(most) if most >= DEFAULT_MOST_NODES => Ok(most),
        _ => Err(OptionError::TooSmall { name: name.into(), value: number, least: DEFAULT_MOST_NODES }),
    }
}

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// No policy of that name.
    Unknown {
        /// The name.
        name: String,
    },
    /// The machine has more nodes than allowed.
    TooManyNodes {
        /// How many are allowed.
        most: usize,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name } => write!(f, "unknown policy: \"{name}\""),
            Self::TooManyNodes { most } => write!(
                f,
                "unsupported on machines with more than {most} NUMA Nodes: \
                 raise max-allowable-numa-nodes in topologyManagerPolicyOptions"
            ),
        }
    }
}

impl core::error::Error for PolicyError {}
