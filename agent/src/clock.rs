//! The two clocks, read here and nowhere else: boot time for arithmetic, wall time for display.

use nix::time::{ClockId, clock_gettime};
use podkeep_core::lifecycle::Now;
use podkeep_core::types::Time;

/// Both clocks. `CLOCK_BOOTTIME` counts suspended time, so a deadline holds over a sleep of the board.
#[must_use]
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map(nanoseconds).unwrap_or_default();
    let wall = clock_gettime(ClockId::CLOCK_REALTIME).map(nanoseconds).unwrap_or_default();
    Now { boot: u64::try_from(boot).unwrap_or_default(), wall }
}

fn nanoseconds(time: nix::sys::time::TimeSpec) -> i64 {
    let seconds = i64::try_from(time.tv_sec()).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(time.tv_nsec()).unwrap_or_default())
}

/// RFC 3339 in UTC with whole seconds, as the API writes times.
#[must_use]
pub fn rfc3339(wall: i64) -> String {
    Time { seconds: wall.div_euclid(1_000_000_000) }.to_string()
}

/// Unix seconds of an RFC 3339 time; a fraction is cut off.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    Time::parse(text).map(|time| time.seconds)
}
