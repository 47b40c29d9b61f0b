//! The two clocks of the supervisor.

use nix::time::{ClockId, clock_gettime};

/// Unix time in nanoseconds: for records and people.
#[must_use]
pub(super) fn unix_ns() -> i64 {
    nanoseconds(ClockId::CLOCK_REALTIME)
}

/// Nanoseconds since boot, sleep included: for arithmetic.
#[must_use]
pub(super) fn boot_ns() -> u64 {
    u64::try_from(nanoseconds(ClockId::CLOCK_BOOTTIME)).unwrap_or(0)
}

#[expect(clippy::useless_conversion, reason = "seconds are 32 bits wide on some targets")]
fn nanoseconds(clock: ClockId) -> i64 {
    let Ok(now) = clock_gettime(clock) else {
        return 0;
    };
    i64::from(now.tv_sec()).saturating_mul(1_000_000_000).saturating_add(i64::from(now.tv_nsec()))
}
