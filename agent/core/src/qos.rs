//! Guaranteed, Burstable, BestEffort. Rules: the API's `qos` helper, on a pod with its defaults filled in.
use crate::types::{Pod, ResourceList, ResourceRequirements, value};
use core::fmt;

/// How well the resources of a pod are promised. The class never changes after admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    /// Limits everywhere, equal to the requests.
    Guaranteed,
    /// Anything between.
    Burstable,
    /// No CPU or memory is named.
    BestEffort,
}

impl QosClass {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Sums of one of the two resources that matter, in billionths; none if nobody names more than zero.
#[derive(Clone, Copy, Default, PartialEq)]
struct Amounts {
    cpu: Option<i128>,
    memory: Option<i128>,
}

impl Amounts {
    fn of(list: &ResourceList) -> Amounts {
        let get = |name| list.get(name).filter(|q| q.sign() > 0).map(|q| q.nanos());
        Amounts { cpu: get(value::CPU), memory: get(value::MEMORY) }
    }

    fn add(&mut self, other: Amounts) {
        let sum = |a: Option<i128>, b: Option<i128>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        *self = Amounts { cpu: sum(self.cpu, other.cpu), memory: sum(self.memory, other.memory) };
    }

    fn is_complete(self) -> bool {
        self.cpu.is_some() && self.memory.is_some()
    }
}

/// The class of a pod whose defaults are filled in. Pod-level resources, if present, decide alone; else all regular
/// and init containers count.
pub fn class(pod: &Pod) -> QosClass {
    let (mut requests, mut limits) = (Amounts::default(), Amounts::default());
    let mut complete = true;
    let mut count = |r: &ResourceRequirements| {
        let own = Amounts::of(&r.limits);
        requests.add(Amounts::of(&r.requests));
        limits.add(own);
        complete &= own.is_complete();
    };
    match &pod.spec.resources {
        Some(own) => count(own),
        None => {
            pod.spec.init_containers.iter().chain(&pod.spec.containers).for_each(|c| count(&c.resources));
        }
    }
    if requests == Amounts::default() && limits == Amounts::default() {
        return QosClass::BestEffort;
    }
    if complete && requests == limits { QosClass::Guaranteed } else { QosClass::Burstable }
}
