//! The answer of admission: what each container gets, or why the pod is refused, in words a person can act on.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use podkeep_hal::{cpu_set::CpuSet, numa_mask::NumaMask};

use super::{
    cpu_state::CpuError,
    device::{DeviceError, Ids},
    memory_state::MemoryError,
};
use crate::topology::hint::{Hint, Offers};

/// What one container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerGrant {
    /// Its name.
    pub container: String,
    /// CPUs it may run on: its own, or the shared pool as it is now.
    pub cpuset: CpuSet,
    /// Are these CPUs its own? If so it needs no CPU quota.
    pub exclusive: bool,
    /// Memory nodes it is bound to; none if to no node in particular.
    pub mems: Option<NumaMask>,
    /// What the topology manager decided for it.
    pub hint: Hint,
    /// Devices by resource.
    pub devices: BTreeMap<String, Ids>,
}

/// Why a pod is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Stable code, as the kubelet's.
    pub reason: String,
    /// The kubelet's text.
    pub message: String,
    /// Which container, which resource offered what, what was missing.
    pub explanation: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)?;
        if self.explanation.is_empty() { Ok(()) } else { write!(f, "; {}", self.explanation) }
    }
}

impl core::error::Error for Rejection {}

impl Rejection {
    fn unexpected(error: &impl fmt::Display, explanation: String) -> Self {
        Self {
            reason: "UnexpectedAdmissionError".to_string(),
            message: format!("Allocate failed due to {error}, which is unexpected"),
            explanation,
        }
    }

    /// The CPU manager could not give what was offered.
    #[must_use]
    pub fn cpu(container: &str, error: &CpuError, explanation: &str) -> Self {
        let explanation = format!("container \"{container}\": {explanation}");
        if let CpuError::SmtAlignment { .. } = error {
            return Self { reason: "SMTAlignmentError".to_string(), message: error.to_string(), explanation };
        }
        Self::unexpected(error, explanation)
    }

    /// The memory manager could not give what was offered.
    #[must_use]
    pub fn memory(container: &str, error: &MemoryError, explanation: &str) -> Self {
        Self::unexpected(error, format!("container \"{container}\": {explanation}"))
    }

    /// The device manager could not give what was offered.
    #[must_use]
    pub fn device(container: &str, error: &DeviceError) -> Self {
        Self::unexpected(error, format!("container \"{container}\""))
    }

    /// Nobody offers a resource at all.
    #[must_use]
    pub fn unknown_resource(container: &str, resource: &str, requested: u64) -> Self {
        Self {
            reason: format!("OutOf{resource}"),
            message: format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: 0, capacity: 0"
            ),
            explanation: format!("container \"{container}\": no device plugin has registered \"{resource}\""),
        }
    }

    /// The merged hint is not good enough for the policy.
    #[must_use]
    pub fn topology(whom: &str, policy: &str, hint: &Hint, offers: &[Offers], explanation: &str) -> Self {
        Self {
            reason: "TopologyAffinityError".to_string(),
            message: "Resources cannot be allocated with Topology locality".to_string(),
            explanation: format!(
                "{whom}: policy {policy} refuses {}; {}; {explanation}",
                name_hint(hint),
                name_offers(offers)
            ),
        }
    }
}

/// Node sets named in an explanation before the rest is counted.
const NAMED: usize = 4;

fn name_hint(hint: &Hint) -> String {
    let kind = if hint.preferred { "preferred" } else { "not preferred" };
    match hint.mask {
        Some(mask) => format!("nodes {mask} ({kind})"),
        None => format!("any node ({kind})"),
    }
}

fn name_offers(offers: &[Offers]) -> String {
    let named: Vec<String> =
        offers.iter().flatten().map(|(resource, offer)| name_offer(resource, offer.as_deref())).collect();
    if named.is_empty() { "no resource has a preference".to_string() } else { named.join("; ") }
}

fn name_offer(resource: &str, offer: Option<&[Hint]>) -> String {
    let Some(hints) = offer else { return format!("{resource} has no preference") };
    if hints.is_empty() {
        return format!("{resource} does not fit on any nodes");
    }
    let preferred: Vec<&Hint> = hints.iter().filter(|hint| hint.preferred).collect();
    let (kind, shown) = if preferred.is_empty() {
        ("only at best", hints.iter().collect())
    } else {
        ("preferably", preferred)
    };
    let masks: Vec<String> = shown
        .iter()
        .take(NAMED)
        .map(|hint| hint.mask.map_or_else(|| "any".to_string(), |mask| mask.to_string()))
        .collect();
    let more = shown.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{resource} fits {kind} on nodes {{{}}}{more}", masks.join("} {"))
}
