//! Thresholds of node pressure from the settings. Rules: the kubelet's eviction helpers.
use crate::config::Duration;
use crate::quantity::Quantity;
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory of the pods' cgroup below its limit.
    AllocatableMemory,
    /// Space for writable layers.
    ContainerFs,
    /// Inodes for writable layers.
    ContainerFsInodes,
    /// Space for images.
    ImageFs,
    /// Inodes for images.
    ImageFsInodes,
    /// Memory of the node.
    Memory,
    /// Space of the agent's folder.
    NodeFs,
    /// Inodes of the agent's folder.
    NodeFsInodes,
    /// Process ids.
    Pid,
}

/// All signals with their names in the settings, in the order of the names.
pub const SIGNALS: [(&str, Signal); 9] = [
    ("allocatableMemory.available", Signal::AllocatableMemory),
    ("containerfs.available", Signal::ContainerFs),
    ("containerfs.inodesFree", Signal::ContainerFsInodes),
    ("imagefs.available", Signal::ImageFs),
    ("imagefs.inodesFree", Signal::ImageFsInodes),
    ("memory.available", Signal::Memory),
    ("nodefs.available", Signal::NodeFs),
    ("nodefs.inodesFree", Signal::NodeFsInodes),
    ("pid.available", Signal::Pid),
];

impl Signal {
    /// The signal of a name.
    pub fn parse(name: &str) -> Option<Signal> {
        SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
    }

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        SIGNALS.iter().find(|(_, signal)| *signal == self).map_or("", |(name, _)| *name)
    }
}

/// An amount, or a share of the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// An amount.
    Quantity(Quantity),
    /// A share from 0 to 1.
    Share(f64),
}

impl Amount {
    /// The amount of a capacity, in units.
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Amount::Quantity(quantity) => quantity.bytes(),
            // the share is between 0 and 1, so the product fits
            Amount::Share(share) => (capacity as f64 * share) as u64,
        }
    }
}

/// Eviction begins when less than this is available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// What is measured.
    pub signal: Signal,
    /// The least that must be available.
    pub value: Amount,
    /// How long it must be less, in nanoseconds; 0 for a hard threshold.
    pub grace: i64,
    /// How much more must be free again before it counts as over.
    pub min_reclaim: Option<Amount>,
}

/// Why the settings are not thresholds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionError {
    /// Not a signal.
    Signal {
        /// Setting it stands in.
        setting: &'static str,
        /// The name.
        name: String,
    },
    /// Not an amount, or not one that makes sense.
    Value {
        /// Setting it stands in.
        setting: &'static str,
        /// The signal.
        name: String,
        /// What was found.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A soft threshold without a grace period.
    NoGrace {
        /// The signal.
        name: String,
    },
}

impl fmt::Display for EvictionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvictionError::Signal { setting, name } => {
                write!(f, "{setting}: '{name}' is not a signal; known are ")?;
                for (index, (known, _)) in SIGNALS.iter().enumerate() {
                    write!(f, "{}{known}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            EvictionError::Value { setting, name, value, allowed } => {
                write!(f, "{setting}[{name}]: '{value}' is not allowed: {allowed}")
            }
            EvictionError::NoGrace { name } => {
                write!(f, "evictionSoft[{name}]: no grace period: add {name} to evictionSoftGracePeriod")
            }
        }
    }
}

impl core::error::Error for EvictionError {}

/// The settings, as they are written.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// `evictionHard`.
    pub hard: &'a BTreeMap<String, String>,
    /// `evictionSoft`.
    pub soft: &'a BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`.
    pub grace: &'a BTreeMap<String, String>,
    /// `evictionMinimumReclaim`.
    pub min_reclaim: &'a BTreeMap<String, String>,
    /// Whether `enforceNodeAllocatable` has `pods`.
    pub enforce_pods: bool,
}

fn signal(setting: &'static str, name: &str) -> Result<Signal, EvictionError> {
    Signal::parse(name).ok_or_else(|| EvictionError::Signal { setting, name: name.into() })
}

/// A number behind which any number of percent signs stand.
fn share(text: &str) -> Option<f64> {
    let number = text.trim_end_matches('%').parse::<f64>().ok().filter(|n| n.is_finite())?;
    Some(number / 100.0)
}

fn threshold(setting: &'static str, name: &str, text: &str) -> Result<Option<Threshold>, EvictionError> {
    let signal = signal(setting, name)?;
    let refused = |allowed| EvictionError::Value { setting, name: name.into(), value: text.into(), allowed };
    let value = if text.ends_with('%') {
        // written exactly so they switch the threshold off
        if text == "0%" || text == "100%" {
            return Ok(None);
        }
        let share = share(text).filter(|share| (0.0..=1.0).contains(share));
        Amount::Share(share.ok_or_else(|| refused("write a percentage from 0% to 100%"))?)
    } else {
        let quantity = text.parse::<Quantity>().ok().filter(|q| q.sign() > 0);
        Amount::Quantity(
            quantity.ok_or_else(|| refused("write a positive quantity such as 100Mi, or a percentage"))?,
        )
    };
    Ok(Some(Threshold { signal, value, grace: 0, min_reclaim: None }))
}

/// The thresholds of the settings, sorted by signal, then by grace period.
pub fn thresholds(settings: &Settings<'_>) -> Result<Vec<Threshold>, EvictionError> {
    let graces = graces(settings.grace)?;
    let reclaims = reclaims(settings.min_reclaim)?;
    let mut list = Vec::new();
    for (name, text) in settings.hard {
        list.extend(threshold("evictionHard", name, text)?);
    }
    for (name, text) in settings.soft {
        let Some(mut soft) = threshold("evictionSoft", name, text)? else { continue };
        soft.grace =
            *graces.get(&soft.signal).ok_or_else(|| EvictionError::NoGrace { name: name.to_string() })?;
        list.push(soft);
    }
    for threshold in &mut list {
        threshold.min_reclaim = reclaims.get(&threshold.signal).copied();
    }
    if settings.enforce_pods {
        // what holds for the memory of the node holds for what the pods may use of it
        let of_pods: Vec<Threshold> = list
            .iter()
            .filter(|t| t.signal == Signal::Memory && t.grace == 0)
            .map(|t| Threshold { signal: Signal::AllocatableMemory, ..*t })
            .collect();
        list.extend(of_pods);
    }
    list.sort_by_key(|t| (t.signal, t.grace));
    Ok(list)
}

fn graces(map: &BTreeMap<String, String>) -> Result<BTreeMap<Signal, i64>, EvictionError> {
    let setting = "evictionSoftGracePeriod";
    let mut graces = BTreeMap::new();
    for (name, text) in map {
        let nanos = Duration::parse(text).map(|d| d.nanos).filter(|nanos| *nanos >= 0);
        let nanos = nanos.ok_or_else(|| EvictionError::Value {
            setting,
            name: name.into(),
            value: text.into(),
            allowed: "write a duration such as 1m30s",
        })?;
        graces.insert(signal(setting, name)?, nanos);
    }
    Ok(graces)
}

fn reclaims(map: &BTreeMap<String, String>) -> Result<BTreeMap<Signal, Amount>, EvictionError> {
    let setting = "evictionMinimumReclaim";
    let mut reclaims = BTreeMap::new();
    for (name, text) in map {
        let amount = if text.ends_with('%') {
            share(text).filter(|share| *share > 0.0).map(Amount::Share)
        } else {
            text.parse::<Quantity>().ok().filter(|q| q.sign() >= 0).map(Amount::Quantity)
        };
        let amount = amount.ok_or_else(|| EvictionError::Value {
            setting,
            name: name.into(),
            value: text.into(),
            allowed: "write a quantity such as 500Mi, or a percentage above 0%",
        })?;
        reclaims.insert(signal(setting, name)?, amount);
    }
    Ok(reclaims)
}
