//! Wall-clock times as the log files carry them (RFC 3339 with nanoseconds), and as rotated files are named.

/// Bytes of [`rfc3339`]: `2026-11-30T22:13:00.000000000Z`.
pub const LENGTH: usize = 30;

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Calendar fields of a Unix time, UTC.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanosecond: i64,
}

/// Days since 1970 to year, month, day of the Gregorian calendar. Years are counted from March, so that the leap day is
/// the last of its year; 146,097 days are one full cycle of 400 years.
const fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// The reverse of [`civil`].
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

const fn fields(unix_ns: i64) -> Fields {
    let seconds = unix_ns.div_euclid(NANOS);
    let second_of_day = seconds.rem_euclid(DAY);
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    Fields {
        year,
        month,
        day,
        hour: second_of_day / 3600,
        minute: second_of_day / 60 % 60,
        second: second_of_day % 60,
        nanosecond: unix_ns.rem_euclid(NANOS),
    }
}

/// Writes `value` with leading zeroes into the whole of `into`.
fn digits(into: &mut [u8], mut value: i64) {
    for place in into.iter_mut().rev() {
        *place = b'0'.saturating_add(u8::try_from(value % 10).unwrap_or(0));
        value /= 10;
    }
}

fn put(text: &mut [u8], at: usize, length: usize, value: i64) {
    if let Some(place) = at.checked_add(length).and_then(|end| text.get_mut(at..end)) {
        digits(place, value);
    }
}

/// `unix_ns` as `2026-11-30T22:13:00.000000000Z`. Always nine digits, so that every line has the same prefix length.
#[must_use]
pub fn rfc3339(unix_ns: i64) -> [u8; LENGTH] {
    let time = fields(unix_ns);
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    for (at, length, value) in [
        (0, 4, time.year),
        (5, 2, time.month),
        (8, 2, time.day),
        (11, 2, time.hour),
        (14, 2, time.minute),
        (17, 2, time.second),
        (20, 9, time.nanosecond),
    ] {
        put(&mut text, at, length, value);
    }
    text
}

/// `unix_ns` as `20261130-221300`, the way the kubelet names rotated files.
#[must_use]
pub fn compact(unix_ns: i64) -> [u8; 15] {
    let time = fields(unix_ns);
    let mut text = *b"00000000-000000";
    for (at, length, value) in [
        (0, 4, time.year),
        (4, 2, time.month),
        (6, 2, time.day),
        (9, 2, time.hour),
        (11, 2, time.minute),
        (13, 2, time.second),
    ] {
        put(&mut text, at, length, value);
    }
    text
}

fn number(text: &[u8], at: usize, length: usize) -> Option<i64> {
    let part = text.get(at..at.checked_add(length)?)?;
    let mut value = 0_i64;
    for &byte in part {
        value = value * 10 + i64::from(char::from(byte).to_digit(10)?);
    }
    Some(value)
}

/// Seconds east of UTC of `Z`, `+01:00` or `-07:30`.
fn offset(text: &[u8]) -> Option<i64> {
    match (text.first()?, text.len()) {
        (b'Z' | b'z', 1) => Some(0),
        (&sign @ (b'+' | b'-'), 6) if text.get(3) == Some(&b':') => {
            let seconds = number(text, 1, 2)? * 3600 + number(text, 4, 2)? * 60;
            Some(if sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

/// Any RFC 3339 time to Unix nanoseconds; `None` when it is none or lies outside the years 1678 to 2261.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let shape = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if shape.iter().any(|&(at, byte)| text.get(at) != Some(&byte))
        || !matches!(text.get(10), Some(b'T' | b't' | b' '))
    {
        return None;
    }
    let (month, day) = (number(text, 5, 2)?, number(text, 8, 2)?);
    let (hour, minute, second) = (number(text, 11, 2)?, number(text, 14, 2)?, number(text, 17, 2)?);
    let in_range =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !in_range {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanosecond = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return None;
        }
        // digits beyond nanoseconds say nothing here
        let kept = length.min(9);
        let scale = 10_i64.checked_pow(u32::try_from(9_usize.saturating_sub(kept)).ok()?)?;
        nanosecond = number(fraction, 0, kept)?.checked_mul(scale)?;
        rest = fraction.get(length..)?;
    }
    let seconds =
        days(number(text, 0, 4)?, month, day) * DAY + hour * 3600 + minute * 60 + second - offset(rest)?;
    seconds.checked_mul(NANOS)?.checked_add(nanosecond)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_written_as_the_calendar_says() {
        for (unix_ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z"),
            (1_796_076_780_123_456_789, "2026-11-30T22:13:00.123456789Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
        ] {
            assert_eq!(core::str::from_utf8(&rfc3339(unix_ns)).unwrap(), text);
            assert_eq!(parse(text.as_bytes()), Some(unix_ns));
        }
        assert_eq!(&compact(1_796_076_780_000_000_000), b"20261130-221300");
    }

    #[test]
    fn other_writers_times_are_understood() {
        let expected = Some(1_796_076_780_500_000_000);
        for text in ["2026-11-30T22:13:00.5Z", "2026-11-30T23:13:00.500+01:00", "2026-11-30 14:43:00.5-07:30"]
        {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        for text in
            ["", "2026-11-30", "2026-13-30T22:13:00Z", "2026-11-30T22:13:00", "2026-11-30T22:13:00.Z", "x"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_time_comes_back(unix_ns in any::<i64>()) {
            prop_assert_eq!(parse(&rfc3339(unix_ns)), Some(unix_ns));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(bytes.len() >= 20 || parse(&bytes).is_none());
        }
    }
}
