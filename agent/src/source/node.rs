//! The tree a manifest's text becomes, whatever it was written in: every node knows its line and column.
//!
//! Scalars stay as they were written; what a plain word means (number, boolean, null, text) is decided by
//! [`resolve`] when a typed field asks, by the rules of docs/decisions/0010-manifest-text.md.

use std::borrow::Cow;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Nesting deeper than this is refused while parsing; a pod needs about 12.
pub const MAX_DEPTH: usize = 64;
/// Nodes of one file, those copied by aliases included. 500 ordinary pods need about 60,000; the tree of a full
/// budget takes about 10 MB.
pub const MAX_NODES: usize = 100_000;
/// Bytes of text that aliases may copy.
pub const MAX_ALIAS_TEXT: usize = 1 << 20;

/// 1-based; columns count characters, as editors do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node<'a> {
    pub at: Position,
    pub value: Value<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// written without quotes: its meaning depends on the field it stands in
    Plain(Cow<'a, str>),
    /// quoted, a block scalar, a JSON string, or tagged `!!str`
    Text(Cow<'a, str>),
    Seq(Vec<Node<'a>>),
    /// keys are unique and in the order written
    Map(Vec<Entry<'a>>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    pub key: Cow<'a, str>,
    pub at: Position,
    pub value: Node<'a>,
}

/// Why a text is not a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub at: Position,
    pub message: String,
    pub hint: String,
}

impl SyntaxError {
    pub fn new(at: Position, message: impl Into<String>) -> Self {
        SyntaxError { at, message: message.into(), hint: String::new() }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

/// What a plain scalar means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolved {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text,
}

impl<'a> Node<'a> {
    /// The value of a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            Value::Plain(_) | Value::Text(_) | Value::Seq(_) => None,
        }
    }

    /// The text of a scalar, as written.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Plain(text) | Value::Text(text) => Some(text),
            Value::Seq(_) | Value::Map(_) => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Plain(text) if matches!(resolve(text), Resolved::Null))
    }

    /// The place of a field path, if all of it was written.
    pub fn locate_exactly(&self, path: &str) -> Option<Position> {
        self.walk(path).1
    }

    /// The place of a field path (`spec.containers[1].ports[0].name`, `metadata.labels[a/b]`), or of its nearest
    /// ancestor that was written.
    pub fn locate(&self, path: &str) -> Position {
        self.walk(path).0
    }

    /// The place of the nearest ancestor, and that of the path itself.
    fn walk(&self, path: &str) -> (Position, Option<Position>) {
        let mut node = self;
        let mut at = self.at;
        for step in Steps(path) {
            let next = match &node.value {
                Value::Map(entries) => {
                    entries.iter().find(|entry| entry.key == step).map(|entry| (entry.at, &entry.value))
                }
                Value::Seq(items) => {
                    step.parse::<usize>().ok().and_then(|i| items.get(i)).map(|item| (item.at, item))
                }
                Value::Plain(_) | Value::Text(_) => None,
            };
            let Some((place, child)) = next else { return (at, None) };
            at = place;
            node = child;
        }
        (at, Some(at))
    }

    /// Lays another tree over this one: mappings key by key, all else replaced.
    pub fn overlay(&mut self, other: &Node<'a>) {
        match (&mut self.value, &other.value) {
            (Value::Map(entries), Value::Map(others)) => {
                for other in others {
                    match entries.iter_mut().find(|entry| entry.key == other.key) {
                        Some(entry) => entry.value.overlay(&other.value),
                        None => entries.push(other.clone()),
                    }
                }
            }
            _ => *self = other.clone(),
        }
    }

    /// "a mapping", "the number 8080", …: what a message says was found. `secret`: without the value.
    pub fn describe(&self, secret: bool) -> String {
        let (what, text) = match &self.value {
            Value::Seq(_) => return "a list".to_string(),
            Value::Map(_) => return "a mapping".to_string(),
            Value::Text(text) => ("the text", text),
            Value::Plain(text) => match resolve(text) {
                Resolved::Null => return "nothing".to_string(),
                Resolved::Bool(_) => ("the boolean", text),
                Resolved::Int(_) | Resolved::Float(_) => ("the number", text),
                Resolved::Text => ("the text", text),
            },
        };
        if secret {
            return format!("a value ({} characters)", text.chars().count());
        }
        format!("{what} {}", Shown(text))
    }
}

/// Splits a field path into keys and indices.
struct Steps<'p>(&'p str);

impl<'p> Iterator for Steps<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let rest = self.0.trim_start_matches('.');
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']').unwrap_or((inner, ""));
            self.0 = after;
            return Some(step);
        }
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (step, after) = rest.split_at(end);
        self.0 = after;
        Some(step)
    }
}

/// A foreign text in a message: quoted, control characters escaped, at most 40 characters.
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'")?;
        for (i, c) in self.0.chars().enumerate() {
            if i == 40 {
                f.write_str("…")?;
                break;
            }
            match c {
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("'")
    }
}

/// A path for people: control characters and bytes that are no text are escaped, so two paths never look alike.
pub fn display_path(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The meaning of a plain scalar, as the kubelet's reader (YAML 1.1 without base 60) has it.
pub fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            return Resolved::Bool(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Resolved::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        _ => {}
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    if !numeric {
        return Resolved::Text;
    }
    let digits: Cow<'_, str> =
        if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    if let Some(value) = integer(&digits) {
        return Resolved::Int(value);
    }
    if is_float(&digits)
        && let Ok(value) = digits.parse::<f64>()
    {
        return Resolved::Float(value);
    }
    Resolved::Text
}

/// `-12`, `0644` and `0o644` (octal), `0x1F`, `0b101`.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(i) => (rest.get(..i).unwrap_or(""), rest.get(i + 1..)),
        None => (rest, None),
    };
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['-', '+']).unwrap_or(e);
        !e.is_empty() && all_digits(e)
    });
    mantissa_fits && exponent_fits
}

/// The first key that stands twice in a mapping: its index, and that of the one before it.
pub fn duplicate(entries: &[Entry<'_>]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    let key = |i: &usize| entries.get(*i).map(|e| e.key.as_ref()).unwrap_or("");
    order.sort_by(|a, b| key(a).cmp(key(b)).then(a.cmp(b)));
    order.iter().zip(order.iter().skip(1)).filter(|(a, b)| key(a) == key(b)).map(|(a, b)| (*b, *a)).min()
}

pub fn duplicate_error(entries: &[Entry<'_>]) -> Option<SyntaxError> {
    let (second, first) = duplicate(entries)?;
    let (second, first) = (entries.get(second)?, entries.get(first)?);
    Some(
        SyntaxError::new(
            second.at,
            format!(
                "key {} stands twice in one mapping, at line {} and at line {}",
                Shown(&second.key),
                first.at.line,
                second.at.line
            ),
        )
        .hint("put both into one, or remove one"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_plain_words_as_the_kubelet() {
        let cases: &[(&str, Resolved)] = &[
            ("0644", Resolved::Int(420)),
            ("0o644", Resolved::Int(420)),
            ("0755", Resolved::Int(493)),
            ("420", Resolved::Int(420)),
            ("0", Resolved::Int(0)),
            ("-1", Resolved::Int(-1)),
            ("+12", Resolved::Int(12)),
            ("8_080", Resolved::Int(8080)),
            ("0x1F", Resolved::Int(31)),
            ("0b101", Resolved::Int(5)),
            ("0898", Resolved::Float(898.0)),
            ("1.10", Resolved::Float(1.1)),
            (".1", Resolved::Float(0.1)),
            ("12345e7", Resolved::Float(12345e7)),
            ("no", Resolved::Bool(false)),
            ("on", Resolved::Bool(true)),
            ("~", Resolved::Null),
            ("", Resolved::Null),
            ("12:30:45", Resolved::Text),
            ("400m", Resolved::Text),
            ("1.2.3", Resolved::Text),
            ("-", Resolved::Text),
            ("+", Resolved::Text),
            (".", Resolved::Text),
            ("0x", Resolved::Text),
            ("--1", Resolved::Text),
            ("-+1", Resolved::Text),
            ("1e", Resolved::Text),
            ("nope", Resolved::Text),
            ("2001-01-01", Resolved::Text),
        ];
        for (text, expected) in cases {
            assert_eq!(resolve(text), *expected, "{text}");
        }
    }

    #[test]
    fn steps_of_a_field_path() {
        let steps: Vec<&str> = Steps("spec.containers[1].ports[0].name").collect();
        assert_eq!(steps, ["spec", "containers", "1", "ports", "0", "name"]);
        let steps: Vec<&str> = Steps("metadata.labels[a.b/c].x").collect();
        assert_eq!(steps, ["metadata", "labels", "a.b/c", "x"]);
        assert_eq!(Steps("[").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn shown_text_is_short_and_printable() {
        assert_eq!(Shown("a\nb\u{1b}").to_string(), "'a\\nb\\u{1b}'");
        assert!(Shown(&"x".repeat(500)).to_string().chars().count() < 50);
    }
}
