//! Who owns which CPU, and whether a saved picture of that fits the machine.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
};
use core::fmt;

use podkeep_hal::cpu_set::CpuSet;

use super::cpu_take::TakeError;

/// CPUs by pod and container.
pub type CpuAssignments = BTreeMap<String, BTreeMap<String, CpuSet>>;

/// The pools of the static policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// Shared by everyone who owns nothing. Holds the reserved CPUs, unless the reservation is strict.
    pub default: CpuSet,
    /// Owned by one container, or passed on among the containers of one pod.
    pub assignments: CpuAssignments,
    /// Owned by a pod as a whole, its containers' CPUs included.
    pub pods: BTreeMap<String, CpuSet>,
}

impl CpuState {
    /// CPUs of a container.
    #[must_use]
    pub fn assigned(&self, pod: &str, container: &str) -> Option<CpuSet> {
        self.assignments.get(pod)?.get(container).copied()
    }

    /// Every CPU that is owned.
    #[must_use]
    pub fn owned(&self) -> CpuSet {
        let containers = self.assignments.values().flat_map(BTreeMap::values);
        containers.chain(self.pods.values()).fold(CpuSet::EMPTY, |all, cpus| all.union(cpus))
    }

    pub(super) fn assign(&mut self, pod: &str, container: &str, cpus: CpuSet) {
        self.assignments.entry(pod.to_string()).or_default().insert(container.to_string(), cpus);
    }

    /// Does a saved state fit the machine? Same checks in the same order as the kubelet at its start.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn validate(&self, all: &CpuSet, reserved: &CpuSet, strict: bool) -> Result<(), CpuError> {
        if strict {
            let meeting = reserved.intersection(&self.default);
            if !meeting.is_empty() {
                return Err(CpuError::StrictlyReservedInDefault { cpus: meeting, default: self.default });
            }
        } else if !reserved.is_subset(&self.default) {
            return Err(CpuError::ReservedMissingFromDefault { reserved: *reserved, default: self.default });
        }
        for (pod, containers) in &self.assignments {
            for (container, cpus) in containers {
                if !cpus.is_disjoint(&self.default) {
                    return Err(CpuError::AssignmentOverlapsDefault {
                        pod: pod.clone(),
                        container: container.clone(),
                        cpus: *cpus,
                        default: self.default,
                    });
                }
            }
        }
        let machine = if strict { all.difference(reserved) } else { *all };
        let state = self.default.union(&self.owned());
        if state == machine { Ok(()) } else { Err(CpuError::SetChanged { machine, state }) }
    }
}

/// Why CPUs were not given, or a saved state not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// The explicit list is not as long as the reserved amount.
    ReservedCount {
        /// CPUs listed.
        listed: usize,
        /// CPUs reserved.
        reserved: usize,
    },
    /// Nothing is reserved for the system itself.
    NothingReserved,
    /// Containers own CPUs, but the shared pool is empty.
    DefaultEmpty,
    /// Strict reservation: reserved CPUs are in the shared pool.
    StrictlyReservedInDefault {
        /// Those CPUs.
        cpus: CpuSet,
        /// The shared pool.
        default: CpuSet,
    },
    /// Reserved CPUs are not in the shared pool.
    ReservedMissingFromDefault {
        /// Reserved CPUs.
        reserved: CpuSet,
        /// The shared pool.
        default: CpuSet,
    },
    /// A container owns a CPU of the shared pool.
    AssignmentOverlapsDefault {
        /// Its pod.
        pod: String,
        /// Its name.
        container: String,
        /// Its CPUs.
        cpus: CpuSet,
        /// The shared pool.
        default: CpuSet,
    },
    /// The machine has other CPUs than the state.
    SetChanged {
        /// CPUs of the machine.
        machine: CpuSet,
        /// CPUs in the state.
        state: CpuSet,
    },
    /// Too few CPUs.
    NotEnough(TakeError),
    /// `full-pcpus-only` cannot be kept.
    SmtAlignment {
        /// CPUs asked for.
        requested: usize,
        /// Threads a core has.
        cpus_per_core: usize,
        /// CPUs on cores without a reserved thread, if these are too few.
        available: Option<usize>,
    },
    /// Containers with own CPUs use up the pod's CPUs, but others share.
    EmptyPodSharedPool,
    /// Nothing is left for an init container that shares.
    NoCpusForSharedInit,
    /// An init container asks for more than its pod has left.
    InitExceedsPod {
        /// CPUs asked for.
        requested: usize,
        /// CPUs left.
        left: usize,
    },
}

impl CpuError {
    /// Stable code of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ReservedCount { .. } => "reserved_count",
            Self::NothingReserved => "nothing_reserved",
            Self::DefaultEmpty => "default_empty",
            Self::StrictlyReservedInDefault { .. } => "strictly_reserved_in_default",
            Self::ReservedMissingFromDefault { .. } => "reserved_missing_from_default",
            Self::AssignmentOverlapsDefault { .. } => "assignment_overlaps_default",
            Self::SetChanged { .. } => "cpu_set_changed",
            Self::NotEnough(_) => "not_enough_cpus",
            Self::SmtAlignment { .. } => "smt_alignment",
            Self::EmptyPodSharedPool => "empty_pod_shared_pool",
            Self::NoCpusForSharedInit => "no_cpus_for_shared_init",
            Self::InitExceedsPod { .. } => "init_exceeds_pod",
        }
    }
}

impl From<TakeError> for CpuError {
    fn from(error: TakeError) -> Self {
        Self::NotEnough(error)
    }
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReservedCount { listed, reserved } => write!(
                f,
                "unable to reserve the required amount of CPUs: {listed} are listed, {reserved} are reserved"
            ),
            Self::NothingReserved => f.write_str(
                "the static policy requires systemReserved.cpu + kubeReserved.cpu or reservedSystemCPUs to be greater than zero",
            ),
            Self::DefaultEmpty => f.write_str("default cpuset cannot be empty"),
            Self::StrictlyReservedInDefault { cpus, default } => write!(
                f,
                "some of strictly reserved cpus: \"{cpus}\" are present in defaultCpuSet: \"{default}\""
            ),
            Self::ReservedMissingFromDefault { reserved, default } => write!(
                f,
                "not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\""
            ),
            Self::AssignmentOverlapsDefault { pod, container, cpus, default } => write!(
                f,
                "pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{default}\""
            ),
            Self::SetChanged { machine, state } => write!(
                f,
                "current set of available CPUs \"{machine}\" doesn't match with CPUs in state \"{state}\""
            ),
            Self::NotEnough(error) => error.fmt(f),
            Self::SmtAlignment { requested, cpus_per_core, available: None } => write!(
                f,
                "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {cpus_per_core}"
            ),
            Self::SmtAlignment { requested, cpus_per_core, available: Some(available) } => write!(
                f,
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, \
                 requested CPUs = {requested}, CPUs per core = {cpus_per_core}"
            ),
            Self::EmptyPodSharedPool => f.write_str(
                "pod rejected, sum of exclusive container cpu requests equals pod budget, \
                 leaving no cpus for shared containers",
            ),
            Self::NoCpusForSharedInit => {
                f.write_str("pod rejected, pod has shared init containers but no cpus available for them")
            }
            Self::InitExceedsPod { requested, left } => write!(
                f,
                "pod rejected, init container requests {requested} exclusive cpus, the pod has {left} left for it"
            ),
        }
    }
}

impl core::error::Error for CpuError {}
