//! resource.Quantity: exact parsing, rounding, canonical text.
//!
//! A quantity is a whole number of billionths in 128 bits, so nothing is lost down to the smallest amount the API
//! knows, and everything up to about 10²⁹ is exact. Rules: apimachinery `resource.Quantity`.
use crate::types::object::{Edit, Field, Literal, Scalar, ScalarError, View};
use alloc::{format, string::String};
use core::{cmp::Ordering, fmt, str::FromStr};

const NANOS: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;

/// How a quantity was written, which decides how it is written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `n u m`, none, `k M G T P E`.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `e3`, `E-3`.
    DecimalExponent,
}

impl Format {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Format::DecimalSi => "DecimalSI",
            Format::BinarySi => "BinarySI",
            Format::DecimalExponent => "DecimalExponent",
        }
    }
}

/// An amount of a resource. Equality and order look at the amount alone, not at the notation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// No text at all.
    Empty,
    /// Not a sign, digits, an optional fraction and a suffix.
    Number {
        /// The whole text.
        text: String,
    },
    /// The number is fine, what follows is not a suffix.
    Suffix {
        /// The whole text.
        text: String,
        /// What follows the number.
        suffix: String,
        /// The suffix that is probably meant.
        meant: Option<&'static str>,
    },
    /// More than can be counted.
    TooLarge {
        /// The whole text.
        text: String,
    },
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuantityError::Empty => {
                f.write_str("'' is not a quantity: write a number such as 100m, 2 or 64Mi")
            }
            QuantityError::Number { text } => {
                write!(f, "'{text}' is not a quantity: write a number such as 100m, 2 or 64Mi")
            }
            QuantityError::Suffix { text, suffix, meant } => {
                write!(
                    f,
                    "'{text}' is not a quantity: '{suffix}' is not one of n u m k M G T P E Ki Mi Gi Ti Pi Ei"
                )?;
                match meant {
                    Some(meant) => write!(f, "; did you mean '{meant}'?"),
                    None => Ok(()),
                }
            }
            QuantityError::TooLarge { text } => write!(f, "'{text}' is more than can be counted"),
        }
    }
}

impl core::error::Error for QuantityError {}

enum Suffix {
    Decimal(i32),
    Binary(u32),
    Exponent(i32),
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

fn suffix(text: &str) -> Option<Suffix> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == text) {
        return Some(Suffix::Decimal(*exponent));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(s, _)| *s == text) {
        return Some(Suffix::Binary(*exponent));
    }
    let digits = text.strip_prefix(['e', 'E'])?;
    let bare = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if bare.is_empty() || !bare.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // a huge exponent is still an exponent; whether the amount can be counted is decided later
    Some(Suffix::Exponent(digits.parse().unwrap_or(if digits.starts_with('-') {
        i32::MIN
    } else {
        i32::MAX
    })))
}

/// The suffix somebody meant: other case, or a byte sign behind it.
fn meant(text: &str) -> Option<&'static str> {
    let bare = text.trim().trim_end_matches(['b', 'B']);
    if bare.is_empty() {
        return None;
    }
    let names = || DECIMAL.iter().map(|(s, _)| *s).chain(BINARY.iter().map(|(s, _)| *s));
    names().find(|s| *s == bare).or_else(|| names().find(|s| s.eq_ignore_ascii_case(bare)))
}

/// `value * 10^exponent`, rounded away from zero; none if it does not fit.
fn scale_ten(value: i128, exponent: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        return value.checked_mul(10i128.checked_pow(exponent.unsigned_abs())?);
    }
    match 10i128.checked_pow(exponent.unsigned_abs()) {
        Some(divisor) => Some(div_away(value, divisor)),
        None => Some(value.signum()),
    }
}

/// Division by a positive number, rounded away from zero.
fn div_away(value: i128, divisor: i128) -> i128 {
    let quotient = value.checked_div(divisor).unwrap_or(0);
    match value.checked_rem(divisor) {
        Some(0) | None => quotient,
        Some(_) => quotient.saturating_add(value.signum()),
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, rest) = rest.split_at_checked(digits_end).unwrap_or((rest, ""));
        let (fraction, rest) = match rest.strip_prefix('.') {
            None => ("", rest),
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                rest.split_at_checked(end).unwrap_or((rest, ""))
            }
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Number { text: text.into() });
        }
        let Some(kind) = suffix(rest) else {
            return Err(match rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == ' ' || c == '%') {
                true => QuantityError::Suffix { text: text.into(), suffix: rest.into(), meant: meant(rest) },
                false => QuantityError::Number { text: text.into() },
            });
        };
        let amount =
            amount(whole, fraction, &kind).ok_or_else(|| QuantityError::TooLarge { text: text.into() });
        let format = match kind {
            Suffix::Decimal(_) => Format::DecimalSi,
            Suffix::Binary(_) => Format::BinarySi,
            Suffix::Exponent(_) => Format::DecimalExponent,
        };
        amount.map(|nanos| Quantity { nanos: if negative { nanos.saturating_neg() } else { nanos }, format })
    }
}

/// Billionths of `whole.fraction` with its suffix, rounded up; none if they cannot be counted.
fn amount(whole: &str, fraction: &str, suffix: &Suffix) -> Option<i128> {
    // Digits behind the 28th of the fraction only matter as "more than nothing".
    const PLACES: usize = 28;
    let fraction = fraction.trim_end_matches('0');
    let (kept, dropped) = fraction.split_at_checked(PLACES).unwrap_or((fraction, ""));
    let mut mantissa: i128 = 0;
    for digit in whole.trim_start_matches('0').bytes().chain(kept.bytes()) {
        mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit.checked_sub(b'0')?))?;
    }
    let mut places = i32::try_from(kept.len()).ok()?;
    if !dropped.is_empty() {
        mantissa = mantissa.checked_mul(10)?.checked_add(1)?;
        places = places.checked_add(1)?;
    }
    match suffix {
        Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
            scale_ten(mantissa, exponent.saturating_add(9).saturating_sub(places))
        }
        Suffix::Binary(shift) => {
            let limit = i128::from(i64::MAX).checked_mul(NANOS)?;
            // the API caps binary amounts at 64 bits and lets no positive one fall below one
            let Some(scaled) = mantissa.checked_mul(1i128.checked_shl(*shift)?) else { return Some(limit) };
            let nanos = scale_ten(scaled, 9i32.saturating_sub(places)).unwrap_or(limit).min(limit);
            Some(if nanos > 0 { nanos.max(NANOS) } else { nanos })
        }
    }
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// A whole number of units.
    pub fn from_units(units: i64, format: Format) -> Quantity {
        Quantity { nanos: i128::from(units).saturating_mul(NANOS), format }
    }

    /// A whole number of thousandths, as of CPU.
    pub fn from_milli(milli: i64) -> Quantity {
        Quantity { nanos: i128::from(milli).saturating_mul(MILLI), format: Format::DecimalSi }
    }

    /// A number of bytes, written with Ki, Mi …
    pub fn from_bytes(bytes: u64) -> Quantity {
        Quantity { nanos: i128::from(bytes).saturating_mul(NANOS), format: Format::BinarySi }
    }

    /// The amount in billionths.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// How it was written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whole units, rounded away from zero; none beyond 64 bits.
    pub fn value(&self) -> Option<i64> {
        i64::try_from(div_away(self.nanos, NANOS)).ok()
    }

    /// Thousandths, rounded away from zero; none beyond 64 bits.
    pub fn milli_value(&self) -> Option<i64> {
        i64::try_from(div_away(self.nanos, MILLI)).ok()
    }

    /// Whole units, 0 for a negative amount, at most `u64::MAX`: bytes of a limit.
    pub fn bytes(&self) -> u64 {
        u64::try_from(div_away(self.nanos.max(0), NANOS)).unwrap_or(u64::MAX)
    }

    /// Thousandths, 0 for a negative amount, at most `i64::MAX`: milli CPUs of a limit.
    pub fn milli(&self) -> i64 {
        i64::try_from(div_away(self.nanos.max(0), MILLI)).unwrap_or(i64::MAX)
    }

    /// Rounded away from zero to thousandths, as the API does with every amount of a resource list.
    #[must_use]
    pub fn rounded_to_milli(self) -> Quantity {
        Quantity { nanos: div_away(self.nanos, MILLI).saturating_mul(MILLI), format: self.format }
    }

    /// Whether it is a whole number of units.
    pub fn is_whole(&self) -> bool {
        self.nanos.checked_rem(NANOS) == Some(0)
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// The sum, saturating; written as `self` unless that is zero.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        self.with(other, self.nanos.saturating_add(other.nanos))
    }

    /// The difference, saturating; written as `self` unless that is zero.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.with(other, self.nanos.saturating_sub(other.nanos))
    }

    fn with(self, other: Quantity, nanos: i128) -> Quantity {
        Quantity { nanos, format: if self.is_zero() { other.format } else { self.format } }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.unsigned_abs() < 1024 * NANOS.unsigned_abs();
        if self.format == Format::BinarySi && self.is_whole() && !small {
            let mut number = self.nanos.checked_div(NANOS).unwrap_or(0);
            let mut suffix = "";
            for (name, _) in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                number /= 1024;
                suffix = name;
            }
            return write!(f, "{number}{suffix}");
        }
        let (mut number, mut exponent) = (self.nanos, -9i32);
        while number % 1000 == 0 && (exponent < 18 || self.format == Format::DecimalExponent) {
            number /= 1000;
            exponent = exponent.saturating_add(3);
        }
        match (self.format, exponent) {
            (_, 0) => write!(f, "{number}"),
            (Format::DecimalExponent, _) => write!(f, "{number}e{exponent}"),
            _ => {
                let name = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| *s);
                write!(f, "{number}{name}")
            }
        }
    }
}

impl Field for Quantity {
    fn view(&self) -> View<'_> {
        View::Text(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Scalar(self)
    }
}

impl Scalar for Quantity {
    fn expects(&self) -> &'static str {
        "a quantity such as 100m, 2 or 64Mi"
    }
    fn set(&mut self, literal: Literal<'_>) -> Result<(), ScalarError> {
        let parsed = match literal {
            Literal::Str(text) => text.parse(),
            Literal::Int(i) => format!("{i}").parse(),
            Literal::Float(x) => format!("{x}").parse(),
            Literal::Bool(_) => return Err(ScalarError::Kind),
        };
        match parsed {
            Ok(quantity) => *self = quantity,
            Err(e) => return Err(ScalarError::Value(format!("{e}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_message_names_the_value_and_what_was_meant() {
        let error = "64MB".parse::<Quantity>().unwrap_err().to_string();
        assert!(error.contains("'64MB'") && error.contains("did you mean 'M'"), "{error}");
        let error = "1K".parse::<Quantity>().unwrap_err().to_string();
        assert!(error.contains("did you mean 'k'"), "{error}");
    }

    #[test]
    fn binary_amounts_are_capped_and_never_below_one() {
        assert_eq!(q("8Ei").to_string(), "9223372036854775807");
        assert_eq!(q("0.0001Ki").to_string(), "1");
        assert_eq!(q("1000000000000000000000Ei").value(), Some(i64::MAX));
    }

    #[test]
    fn what_cannot_be_counted_is_an_error() {
        assert!(matches!("1e40".parse::<Quantity>(), Err(QuantityError::TooLarge { .. })));
        assert_eq!(q("1e-99999999999").nanos(), 1);
        assert_eq!(q("0e99999999999").nanos(), 0);
    }

    fn any_text() -> impl Strategy<Value = String> {
        let suffixes = ["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "E-3", "e6"];
        (any::<bool>(), 0u64..1_000_000_000, 0u32..1_000_000, 0usize..7, 0usize..suffixes.len()).prop_map(
            move |(negative, whole, fraction, places, suffix)| {
                let sign = if negative { "-" } else { "" };
                let fraction = format!("{fraction:06}");
                let fraction = fraction.get(..places).filter(|f| !f.is_empty());
                let dot = if fraction.is_some() { "." } else { "" };
                format!("{sign}{whole}{dot}{}{}", fraction.unwrap_or(""), suffixes.get(suffix).unwrap_or(&""))
            },
        )
    }

    proptest! {
        #[test]
        fn written_and_read_again_is_the_same(text in any_text()) {
            let first = q(&text);
            let canonical = first.to_string();
            let again = q(&canonical);
            prop_assert_eq!(first, again);
            prop_assert_eq!(canonical, again.to_string());
        }

        #[test]
        fn order_is_that_of_the_difference(a in any_text(), b in any_text()) {
            let (a, b) = (q(&a), q(&b));
            prop_assert_eq!(a.cmp(&b) as i32, a.minus(b).sign());
            prop_assert_eq!(a.plus(b).minus(b), a);
        }

        #[test]
        fn rounding_goes_away_from_zero_by_less_than_one(text in any_text()) {
            let amount = q(&text);
            if let Some(value) = amount.value() {
                let gap = i128::from(value) * NANOS - amount.nanos();
                prop_assert!(gap.abs() < NANOS);
                prop_assert!(gap == 0 || gap.signum() == amount.nanos().signum());
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,24}") {
            let _outcome = text.parse::<Quantity>();
        }
    }
}
