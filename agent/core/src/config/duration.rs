//! Lengths of time as Go writes them: `1m30s`, `500ms`, `-1s`, `0`.

use alloc::format;
use core::fmt;

use crate::types::object::{Edit, Field, Literal, Scalar, ScalarError, View};

/// A signed length of time in nanoseconds, at most about 292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    pub nanos: i64,
}

/// A unit and its nanoseconds. Go knows micro in three spellings.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Duration {
    pub const ZERO: Duration = Duration { nanos: 0 };

    pub const fn from_secs(seconds: i64) -> Self {
        Duration { nanos: seconds.saturating_mul(1_000_000_000) }
    }

    pub const fn from_millis(millis: i64) -> Self {
        Duration { nanos: millis.saturating_mul(1_000_000) }
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// For timers; a negative length is none.
    pub fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(u64::try_from(self.nanos).unwrap_or(0))
    }

    /// `[-+]?(number unit)+` or `0`.
    pub fn parse(text: &str) -> Option<Duration> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Duration::ZERO);
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, after) = rest.split_at(end);
            let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, next) = after.split_at(unit_end);
            let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
            total = total.checked_add(scaled(number, scale)?)?;
            rest = next;
        }
        let nanos = i64::try_from(if negative { -total } else { total }).ok()?;
        Some(Duration { nanos })
    }
}

/// A decimal number of units in nanoseconds, cut off below one.
fn scaled(number: &str, scale: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(i128::from(scale))?;
    let mut place = i128::from(scale);
    for digit in fraction.bytes() {
        // further digits are below a nanosecond
        place /= 10;
        nanos = nanos.checked_add(place.checked_mul(i128::from(digit.saturating_sub(b'0')))?)?;
    }
    Some(nanos)
}

/// As Go: `1m0s`, `1h0m0s`, `1.5s`, `100ms`, `0s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        let (unit, scale) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        let seconds = nanos / 1_000_000_000;
        if unit == "s" && seconds >= 60 {
            if seconds >= 3600 {
                write!(f, "{}h", seconds / 3600)?;
            }
            write!(f, "{}m", seconds / 60 % 60)?;
            write_decimal(f, nanos % 60_000_000_000, scale)?;
        } else {
            write_decimal(f, nanos, scale)?;
        }
        f.write_str(unit)
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, scale: u64) -> fmt::Result {
    write!(f, "{}", nanos / scale)?;
    let mut rest = nanos % scale;
    if rest == 0 {
        return Ok(());
    }
    f.write_str(".")?;
    let mut place = scale / 10;
    while rest > 0 && place > 0 {
        write!(f, "{}", rest / place)?;
        rest %= place;
        place /= 10;
    }
    Ok(())
}

impl Field for Duration {
    fn view(&self) -> View<'_> {
        View::Text(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Scalar(self)
    }
}

impl Scalar for Duration {
    fn expects(&self) -> &'static str {
        "a length of time with a unit, such as 1m30s or 500ms"
    }
    fn set(&mut self, literal: Literal<'_>) -> Result<(), ScalarError> {
        *self = match literal {
            Literal::Str(text) => Duration::parse(text).ok_or_else(|| {
                ScalarError::Value(format!(
                    "'{text}' is not a length of time with a unit, such as 1m30s or 500ms"
                ))
            })?,
            // 0 needs no unit; Go's reader of these files takes no number, but nothing else can be meant
            Literal::Int(_) | Literal::Float(_) | Literal::Bool(_) => return Err(ScalarError::Kind),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, nanos, written) in [
            ("1m30s", 90_000_000_000, "1m30s"),
            ("60s", 60_000_000_000, "1m0s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("500ms", 500_000_000, "500ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("90.5s", 90_500_000_000, "1m30.5s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("-1s", -1_000_000_000, "-1s"),
            ("+2us", 2_000, "2µs"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1h1ns", 3_600_000_000_001, "1h0m0.000000001s"),
        ] {
            let duration = Duration::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((duration.nanos, duration.to_string().as_str()), (nanos, written), "{text}");
            assert_eq!(Duration::parse(&duration.to_string()), Some(duration));
        }
        for bad in ["", "60", "1", "s", "1x", "-", "1m30", ".s", "1.2.3s", "1 s", "9999999999999h", "1d"] {
            assert_eq!(Duration::parse(bad), None, "{bad}");
        }
    }
}
