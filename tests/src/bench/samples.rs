//! Measured durations and what is told of them.

use serde_json::{Value, json};

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    ns: Vec<u64>,
}

impl Samples {
    pub fn add(&mut self, ns: u64) {
        self.ns.push(ns);
    }

    /// The value that `percent` of the samples do not exceed; `None` without samples.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.ns.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        sorted.get((last * percent).div_ceil(100)).copied()
    }

    #[must_use]
    pub fn median_ms(&self) -> Option<f64> {
        self.percentile(50).map(ms)
    }

    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "n": self.ns.len(),
            "min_ms": self.percentile(0).map(ms),
            "median_ms": self.median_ms(),
            "p95_ms": self.percentile(95).map(ms),
            "max_ms": self.percentile(100).map(ms),
        })
    }
}

/// Milliseconds with three digits behind the point.
#[must_use]
pub fn ms(ns: u64) -> f64 {
    // microseconds fit f64 exactly for 285 years
    f64::from(u32::try_from(ns / 1000).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_samples() {
        let mut s = Samples::default();
        assert_eq!(s.median_ms(), None);
        for n in [5_000_000, 1_000_000, 3_000_000] {
            s.add(n);
        }
        assert_eq!(s.median_ms(), Some(3.0));
        assert_eq!(s.percentile(0), Some(1_000_000));
        assert_eq!(s.percentile(95), Some(5_000_000));
    }
}
