//! Scalars with their own reading: int-or-string, time, bytes in base64, and contents that are known but not kept.
use super::object::{Edit, Field, Literal, Map, MapMut, Scalar, ScalarError, View};
use alloc::{format, string::String, vec::Vec};
use core::fmt;

/// A port or an amount that may be a number or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A name, a number in quotes, a percentage.
    Str(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(i) => write!(f, "{i}"),
            IntOrString::Str(s) => f.write_str(s),
        }
    }
}

impl Field for IntOrString {
    fn view(&self) -> View<'_> {
        match self {
            IntOrString::Int(i) => View::Int(i64::from(*i)),
            IntOrString::Str(s) => View::Str(s),
        }
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Scalar(self)
    }
}

impl Scalar for IntOrString {
    fn expects(&self) -> &'static str {
        "a whole number of 32 bits or a text"
    }
    fn set(&mut self, literal: Literal<'_>) -> Result<(), ScalarError> {
        *self = match literal {
            Literal::Str(s) => IntOrString::Str(s.into()),
            Literal::Int(i) => IntOrString::Int(i32::try_from(i).map_err(|_| ScalarError::Kind)?),
            Literal::Float(_) | Literal::Bool(_) => return Err(ScalarError::Kind),
        };
        Ok(())
    }
}

/// A moment as the API writes it: RFC 3339, whole seconds, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
}

/// Days since 1970-01-01 of a date of the Gregorian calendar, years 0 to 9999.
fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    // counted from March, so that the leap day is the last of the year
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + era * 400 + i64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_from_days(self.seconds.div_euclid(86_400));
        let rest = self.seconds.rem_euclid(86_400);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
    }
}

fn two(text: &str, at: usize, max: i64) -> Option<i64> {
    let part = text.get(at..at.checked_add(2)?)?;
    if !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    part.parse().ok().filter(|v| *v <= max)
}

impl Time {
    /// Reads RFC 3339 with any offset; a fraction of a second is dropped.
    pub fn parse(text: &str) -> Option<Time> {
        let year = text.get(..4).filter(|y| y.bytes().all(|b| b.is_ascii_digit()))?.parse::<i64>().ok()?;
        let (month, day) = (two(text, 5, 12)?, two(text, 8, 31)?);
        let (hour, minute, second) = (two(text, 11, 23)?, two(text, 14, 59)?, two(text, 17, 60)?);
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if marks.iter().any(|(at, mark)| text.as_bytes().get(*at) != Some(mark)) {
            return None;
        }
        let days = days_from_date(year, month, day);
        // a day that does not exist comes back as another one
        if month == 0 || day == 0 || date_from_days(days) != (year, month, day) {
            return None;
        }
        let mut zone = text.get(19..)?;
        if let Some(fraction) = zone.strip_prefix('.') {
            let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() == fraction.len() {
                return None;
            }
            zone = rest;
        }
        let offset = match (zone.as_bytes().first(), zone.len()) {
            (Some(b'Z'), 1) => 0,
            (Some(sign @ (b'+' | b'-')), 6) if zone.as_bytes().get(3) == Some(&b':') => {
                let seconds = two(zone, 1, 23)? * 3600 + two(zone, 4, 59)? * 60;
                if *sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        Some(Time { seconds: days * 86_400 + hour * 3600 + minute * 60 + second - offset })
    }
}

impl Field for Time {
    fn view(&self) -> View<'_> {
        View::Text(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Scalar(self)
    }
}

impl Scalar for Time {
    fn expects(&self) -> &'static str {
        "a time such as 2026-01-31T12:00:00Z"
    }
    fn set(&mut self, literal: Literal<'_>) -> Result<(), ScalarError> {
        let Literal::Str(text) = literal else { return Err(ScalarError::Kind) };
        *self = Time::parse(text).ok_or_else(|| {
            ScalarError::Value(format!("'{text}' is not a time such as 2026-01-31T12:00:00Z"))
        })?;
        Ok(())
    }
}

/// Bytes that stand in a manifest as base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// Only the number of bytes: they are secrets as often as not.
impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.0.len())
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.chunks(3) {
            let word = chunk.iter().fold(0u32, |w, b| (w << 8) | u32::from(*b)) << (8 * (3 - chunk.len()));
            for place in 0..4 {
                let index = (word >> (18 - 6 * place)) & 63;
                let letter = ALPHABET.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(b'A');
                let letter = if place <= chunk.len() { letter } else { b'=' };
                fmt::Write::write_char(f, char::from(letter))?;
            }
        }
        Ok(())
    }
}

impl Bytes {
    /// Reads base64 with padding; line breaks are passed over.
    pub fn parse(text: &str) -> Option<Bytes> {
        let mut bytes = Vec::new();
        let (mut word, mut letters, mut padding) = (0u32, 0usize, 0usize);
        for letter in text.bytes().filter(|b| *b != b'\n' && *b != b'\r') {
            let digit = match letter {
                b'=' if letters >= 2 => {
                    padding += 1;
                    0
                }
                _ if padding > 0 => return None,
                other => u32::try_from(ALPHABET.iter().position(|a| *a == other)?).ok()?,
            };
            word = (word << 6) | digit;
            letters += 1;
            if letters == 4 {
                let [_, a, b, c] = word.to_be_bytes();
                bytes.extend_from_slice([a, b, c].get(..3usize.checked_sub(padding)?)?);
                (word, letters) = (0, 0);
            }
        }
        (letters == 0).then_some(Bytes(bytes))
    }
}

impl Field for Bytes {
    fn view(&self) -> View<'_> {
        View::Text(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Scalar(self)
    }
}

impl Scalar for Bytes {
    fn expects(&self) -> &'static str {
        "a text in base64"
    }
    fn set(&mut self, literal: Literal<'_>) -> Result<(), ScalarError> {
        let Literal::Str(text) = literal else { return Err(ScalarError::Kind) };
        // the value is not repeated: it may be a secret
        *self = Bytes::parse(text).ok_or_else(|| {
            ScalarError::Value("the value is not base64: encode it, or use the field for plain text".into())
        })?;
        Ok(())
    }
}

/// A map whose contents the node has no use for (`fieldsV1`): accepted and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped;

impl Field for Dropped {
    fn view(&self) -> View<'_> {
        View::Map(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Map(self)
    }
}

impl Map for Dropped {
    fn is_empty(&self) -> bool {
        true
    }
    fn each(&self, _: &mut dyn FnMut(&str, &dyn Field) -> bool) {}
}

impl MapMut for Dropped {
    fn insert(&mut self, _: String) -> Option<&mut dyn Field> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn times_are_read_with_any_offset_and_written_in_utc() {
        for (text, seconds, written) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2024-02-29T23:59:59.75+01:00", 1_709_247_599, "2024-02-29T22:59:59Z"),
            ("1969-12-31T23:59:59Z", -1, "1969-12-31T23:59:59Z"),
            ("2000-03-01T00:00:00-00:30", 951_870_600, "2000-03-01T00:30:00Z"),
        ] {
            let time = Time::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((time.seconds, time.to_string().as_str()), (seconds, written));
        }
        for bad in ["2023-02-29T00:00:00Z", "2024-01-01", "2024-01-01 00:00:00Z", "2024-01-01T24:00:00Z", ""]
        {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn base64_both_ways() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(Bytes(plain.into()).to_string(), text);
            assert_eq!(Bytes::parse(text), Some(Bytes(plain.into())));
        }
        for bad in ["Zg", "Zg=", "Z===", "Zg==Zg==", "Zm9*"] {
            assert_eq!(Bytes::parse(bad), None, "{bad}");
        }
    }
}
