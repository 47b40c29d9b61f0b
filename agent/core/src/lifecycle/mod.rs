//! States of pods and containers, and the plan that moves them.
//!
//! [`pod::PodRuntime`] is all that is remembered about one pod. Events change it, [`pod::PodRuntime::plan`] says what
//! to do next and when to look again. Both are pure: time is an argument, effects are [`pod::Action`]s that the agent
//! carries out and answers with [`pod::Event`]s. A pod's plan looks at that pod only, so the cost of one event does not
//! grow with the number of pods.

pub mod backoff;
pub mod from_pod;
pub mod pod;
pub mod shape;

pub use backoff::{Backoff, BackoffSettings};
pub use pod::{Action, ContainerRuntime, ContainerState, Event, Plan, PodRuntime, Stage, Terminated};
pub use shape::{ContainerKind, ContainerShape, PodShape, RestartPolicy, RestartRule, RuleAction};

/// One second in the unit of [`Now::boot`].
pub const SECOND: u64 = 1_000_000_000;

/// The time of one turn, read once at the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// nanoseconds of `CLOCK_BOOTTIME`: all arithmetic
    pub boot: u64,
    /// nanoseconds since 1970: display only, jumps
    pub wall: i64,
}
