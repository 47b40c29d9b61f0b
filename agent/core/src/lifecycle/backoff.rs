//! Container restart back-off with the kubelet's numbers.
//!
//! The first crash is restarted at once, the following ones after 10, 20, 40 … 300 s, counted from the time the
//! container finished. A container that finished more than twice the longest delay after the last step starts afresh
//! (client-go `util/flowcontrol/backoff.go`; KEP-4603 made the cap a node setting).

use super::SECOND;

/// Node settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// nanoseconds
    pub first: u64,
    /// nanoseconds
    pub cap: u64,
    /// the history is forgotten when the container finished this long after the last step, nanoseconds
    pub reset: u64,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { first: 10 * SECOND, cap: 300 * SECOND, reset: 600 * SECOND }
    }
}

impl BackoffSettings {
    /// `crashLoopBackOff.maxContainerRestartPeriod`: a cap below the first delay is the first delay, too.
    #[must_use]
    pub fn with_cap(cap: u64) -> Self {
        let plain = Self::default();
        Self { first: plain.first.min(cap), cap, reset: plain.reset }
    }
}

/// One container's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// delay before the next restart, 0: no history, nanoseconds
    pub delay: u64,
    /// when the delay was last raised, boot nanoseconds
    pub stepped_at: u64,
}

impl Backoff {
    fn expired(&self, finished: u64, settings: &BackoffSettings) -> bool {
        finished.saturating_sub(self.stepped_at) > settings.reset
    }

    /// The time before which a container that finished at `finished` may not start; `None`: at once.
    #[must_use]
    pub fn not_before(&self, finished: u64, settings: &BackoffSettings) -> Option<u64> {
        (self.delay > 0 && !self.expired(finished, settings)).then(|| finished.saturating_add(self.delay))
    }

    /// Records a restart made at `now` of a container that finished at `finished`.
    pub fn step(&mut self, finished: u64, now: u64, settings: &BackoffSettings) {
        self.delay = if self.delay == 0 || self.expired(finished, settings) {
            settings.first
        } else {
            self.delay.saturating_mul(2).min(settings.cap)
        };
        self.stepped_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_the_kubelets() {
        let settings = BackoffSettings::default();
        let mut backoff = Backoff::default();
        let (mut now, mut seen) = (1_000 * SECOND, alloc::vec::Vec::new());
        for _ in 0..9 {
            let finished = now;
            let start = backoff.not_before(finished, &settings).unwrap_or(finished);
            seen.push((start - finished) / SECOND);
            backoff.step(finished, start, &settings);
            now = start + SECOND;
        }
        assert_eq!(seen, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_long_run_starts_afresh() {
        let settings = BackoffSettings::default();
        let mut backoff = Backoff { delay: 300 * SECOND, stepped_at: 0 };
        assert_eq!(backoff.not_before(601 * SECOND, &settings), None);
        backoff.step(601 * SECOND, 601 * SECOND, &settings);
        assert_eq!(backoff.delay, 10 * SECOND);
    }

    #[test]
    fn a_low_cap_is_the_first_delay_too() {
        let settings = BackoffSettings::with_cap(2 * SECOND);
        let mut backoff = Backoff::default();
        backoff.step(0, 0, &settings);
        backoff.step(1, 1, &settings);
        assert_eq!(backoff.delay, 2 * SECOND);
    }

    #[test]
    fn arithmetic_saturates() {
        let settings = BackoffSettings { first: u64::MAX, cap: u64::MAX, reset: u64::MAX };
        let mut backoff = Backoff::default();
        backoff.step(0, u64::MAX, &settings);
        backoff.step(u64::MAX, 0, &settings);
        assert_eq!(backoff.not_before(u64::MAX, &settings), Some(u64::MAX));
    }
}
