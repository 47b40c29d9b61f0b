//! Reading JSON whatever the case of its keys, and writing it as the kubelet does.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::fmt::Display;

use serde_json::{Map, Value};

use super::CheckpointError;

pub(super) type Object = Map<String, Value>;

/// Reads a text that holds one object.
pub(super) fn object(text: &str) -> Result<Object, CheckpointError> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(kind("", "an object")),
        Err(error) if error.is_eof() => Err(CheckpointError::Truncated),
        Err(error) => Err(CheckpointError::Json { line: error.line(), column: error.column() }),
    }
}

pub(super) fn kind(key: &str, expected: &'static str) -> CheckpointError {
    CheckpointError::Kind { key: key.to_string(), expected }
}

/// The value of a key: as written, else in any case.
pub(super) fn get<'a>(object: &'a Object, key: &str) -> Option<&'a Value> {
    object
        .get(key)
        .or_else(|| object.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value))
}

/// A text; empty if absent.
pub(super) fn text(object: &Object, key: &str) -> Result<String, CheckpointError> {
    match get(object, key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(kind(key, "a text")),
    }
}

/// A whole number; zero if absent.
pub(super) fn number(object: &Object, key: &str) -> Result<u64, CheckpointError> {
    match get(object, key) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_u64().ok_or_else(|| kind(key, "a whole number")),
    }
}

/// A checksum; zero if absent.
pub(super) fn checksum(object: &Object, key: &str) -> Result<u32, CheckpointError> {
    u32::try_from(number(object, key)?).map_err(|_| kind(key, "a 32-bit checksum"))
}

/// An object; absent is empty, and null is none.
pub(super) fn map<'a>(
    object: &'a Object,
    key: &str,
) -> Result<Option<Vec<(&'a String, &'a Value)>>, CheckpointError> {
    match get(object, key) {
        None => Ok(Some(Vec::new())),
        Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map.iter().collect())),
        Some(_) => Err(kind(key, "an object")),
    }
}

/// The object inside a value.
pub(super) fn inner<'a>(key: &str, value: &'a Value) -> Result<&'a Object, CheckpointError> {
    value.as_object().ok_or_else(|| kind(key, "an object"))
}

/// A list of numbers of at most `T`; absent or null is none.
pub(super) fn numbers<T: TryFrom<u64>>(
    object: &Object,
    key: &str,
) -> Result<Option<Vec<T>>, CheckpointError> {
    match get(object, key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_u64().and_then(|number| T::try_from(number).ok()))
            .collect::<Option<Vec<T>>>()
            .map(Some)
            .ok_or_else(|| kind(key, "a list of numbers in range")),
        Some(_) => Err(kind(key, "a list of numbers")),
    }
}

/// A JSON text with the escapes the kubelet uses.
pub(super) fn quote(text: &str) -> String {
    let quoted = Value::String(text.to_string()).to_string();
    let mut escaped = String::with_capacity(quoted.len());
    for sign in quoted.chars() {
        match sign {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            sign => escaped.push(sign),
        }
    }
    escaped
}

/// One object being written, keys in the order they are added.
pub(super) struct Writer {
    text: String,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { text: "{".to_string() }
    }

    /// Adds a value that is JSON already.
    pub(super) fn raw(mut self, key: &str, json: impl Display) -> Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push_str(&quote(key));
        self.text.push(':');
        self.text.push_str(&json.to_string());
        self
    }

    pub(super) fn text(self, key: &str, text: &str) -> Self {
        let quoted = quote(text);
        self.raw(key, quoted)
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// An object with keys in the order of their texts.
pub(super) fn sorted<K: Display>(entries: impl Iterator<Item = (K, String)>) -> String {
    let mut entries: Vec<(String, String)> = entries.map(|(key, json)| (key.to_string(), json)).collect();
    entries.sort();
    entries.into_iter().fold(Writer::new(), |writer, (key, json)| writer.raw(&key, json)).finish()
}

/// A list.
pub(super) fn array(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    alloc::format!("[{}]", items.join(","))
}
