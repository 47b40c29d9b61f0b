//! Probes: when they run, how results are counted, what a result means. Rules: the kubelet's `prober` package.
pub mod request;

use crate::types::{Probe, value};

/// How often a handler that could not run is tried within one tick before the tick is given up.
pub const ATTEMPTS: u32 = 3;
/// The most bytes of an answer that are read.
pub const OUTPUT_MAX: usize = 10 << 10;
/// The least seconds a container gets between the stop signal and the kill.
pub const MINIMUM_STOP_SECONDS: i64 = 2;

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A failure restarts the container.
    Liveness,
    /// A failure makes it not ready.
    Readiness,
    /// A success lets the other two begin; a failure restarts the container.
    Startup,
}

/// What a probe says of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Well.
    Success,
    /// Not well.
    Failure,
    /// Not known yet.
    Unknown,
}

impl Kind {
    /// What holds before the first result.
    pub fn initial(self) -> Verdict {
        match self {
            Kind::Liveness => Verdict::Success,
            Kind::Readiness => Verdict::Failure,
            Kind::Startup => Verdict::Unknown,
        }
    }

    /// The name at the beginning of the message of its event: `Liveness probe failed: …`.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Liveness => "Liveness",
            Kind::Readiness => "Readiness",
            Kind::Startup => "Startup",
        }
    }
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler ran and is content.
    Success,
    /// The handler ran and is not content.
    Failure,
    /// The handler could not run; says nothing about the container.
    Error,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecEnd {
    /// With this code.
    Exit(i32),
    /// It was still running when its time was over.
    TimedOut,
    /// It could not be started.
    NotRun,
}

/// What the end of a command means.
pub fn exec(end: ExecEnd) -> Outcome {
    match end {
        ExecEnd::Exit(0) => Outcome::Success,
        ExecEnd::Exit(_) | ExecEnd::TimedOut => Outcome::Failure,
        ExecEnd::NotRun => Outcome::Error,
    }
}

/// What a connection attempt means: being accepted is all that counts.
pub fn tcp(accepted: bool) -> Outcome {
    if accepted { Outcome::Success } else { Outcome::Failure }
}

/// What the answer of a health service means; none is any failure of the call.
pub fn grpc(status: Option<&str>) -> Outcome {
    if status == Some("SERVING") { Outcome::Success } else { Outcome::Failure }
}

/// The count of results of one probe of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    kind: Kind,
    success_threshold: i32,
    failure_threshold: i32,
    last: Option<Outcome>,
    run: i32,
    held: bool,
    published: Verdict,
}

impl Counter {
    /// A new count with the thresholds of a probe whose defaults are filled in.
    pub fn new(kind: Kind, probe: &Probe) -> Counter {
        Counter {
            kind,
            success_threshold: probe.success_threshold.max(1),
            failure_threshold: probe.failure_threshold.max(1),
            last: None,
            run: 0,
            held: false,
            published: kind.initial(),
        }
    }

    /// What holds now.
    pub fn published(&self) -> Verdict {
        self.published
    }

    /// Whether the probe waits for a new container.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether the container must be restarted for what holds now.
    pub fn wants_restart(&self) -> bool {
        self.published == Verdict::Failure && self.kind != Kind::Readiness
    }

    /// A new container has taken the place of the old one.
    pub fn new_container(&mut self) {
        self.published = self.kind.initial();
        self.held = false;
    }

    /// The container does not run.
    pub fn not_running(&mut self) {
        if !self.held {
            self.published = Verdict::Failure;
        }
    }

    /// The pod is being stopped: the container is not to be restarted for what happens now. Readiness goes on.
    pub fn stopping(&mut self) {
        if self.kind != Kind::Readiness {
            self.published = Verdict::Success;
            self.held = true;
        }
    }

    /// Takes a result over. Answers whether what holds has changed.
    pub fn record(&mut self, outcome: Outcome) -> bool {
        if self.held || outcome == Outcome::Error {
            return false;
        }
        self.run = if self.last == Some(outcome) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(outcome);
        let (verdict, threshold) = match outcome {
            Outcome::Success => (Verdict::Success, self.success_threshold),
            _ => (Verdict::Failure, self.failure_threshold),
        };
        if self.run < threshold {
            return false;
        }
        let changed = self.published != verdict;
        self.published = verdict;
        if self.kind == Kind::Startup || self.wants_restart() {
            self.held = true;
            self.run = 0;
        }
        changed
    }
}

/// Whether a probe runs at a tick: the container runs, its delay is over, and the startup probe comes first.
/// `since_start` is in nanoseconds and counts in whole seconds.
pub fn runs(kind: Kind, running: bool, started: bool, initial_delay_seconds: i32, since_start: u64) -> bool {
    let seconds = since_start / 1_000_000_000;
    let delay = u64::try_from(initial_delay_seconds).unwrap_or(0);
    running && seconds >= delay && started != (kind == Kind::Startup)
}

/// `started` and `ready` of a regular container or a sidecar. A probe that the container does not have is none.
pub fn flags(running: bool, startup: Option<Verdict>, readiness: Option<Verdict>) -> (bool, bool) {
    let passed = |verdict: Option<Verdict>| verdict.is_none_or(|v| v == Verdict::Success);
    let started = running && passed(startup);
    (started, started && passed(readiness))
}

/// `ready` of an init container that ends.
pub fn init_ready(exit_code: Option<i32>) -> bool {
    exit_code == Some(0)
}

/// Seconds between the stop signal and the kill. `deletion` is the grace of a pod that is being deleted, `probe` that
/// of the liveness or startup probe that failed, `over` one the caller insists on.
pub fn stop_seconds(pod: i64, deletion: Option<i64>, probe: Option<i64>, over: Option<i64>) -> i64 {
    over.or(deletion).or(probe).unwrap_or(pod).max(MINIMUM_STOP_SECONDS)
}

/// Whether a container of a pod with this policy is probed again after its end.
pub fn goes_on_after_exit(restart_policy: &str) -> bool {
    restart_policy != value::NEVER
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counter(kind: Kind, success: i32, failure: i32) -> Counter {
        let probe = Probe { success_threshold: success, failure_threshold: failure, ..Default::default() };
        Counter::new(kind, &probe)
    }

    #[test]
    fn a_pod_that_stops_is_not_restarted_for_its_probes() {
        let mut liveness = counter(Kind::Liveness, 1, 1);
        liveness.stopping();
        assert!(!liveness.record(Outcome::Failure) && !liveness.wants_restart());
        let mut readiness = counter(Kind::Readiness, 1, 1);
        readiness.record(Outcome::Success);
        readiness.stopping();
        assert!(readiness.record(Outcome::Failure));
    }

    #[test]
    fn a_container_that_is_gone_is_not_well() {
        let mut readiness = counter(Kind::Readiness, 1, 3);
        readiness.record(Outcome::Success);
        readiness.not_running();
        assert_eq!(readiness.published(), Verdict::Failure);
        readiness.new_container();
        assert_eq!(readiness.published(), Verdict::Failure);
    }

    proptest! {
        #[test]
        fn readiness_changes_only_after_threshold_equal_results(
            results in prop::collection::vec(any::<bool>(), 1..40), success in 1i32..4, failure in 1i32..4
        ) {
            let mut readiness = counter(Kind::Readiness, success, failure);
            for (index, well) in results.iter().enumerate() {
                let changed = readiness.record(if *well { Outcome::Success } else { Outcome::Failure });
                let run = results[..=index].iter().rev().take_while(|r| *r == well).count();
                let threshold = if *well { success } else { failure };
                if changed {
                    prop_assert!(run >= threshold as usize);
                }
                if run >= threshold as usize {
                    prop_assert_eq!(readiness.published() == Verdict::Success, *well);
                }
            }
        }
    }
}
