//! Text form of an object as the kubelet hashes it, and the hash.
//!
//! A struct is `(pkg.Type){Field:(type)value …}`, a map `(type)map[key:value …]` with sorted keys and no types inside,
//! a list `(type)[value …]`. What was never set prints as `<nil>`, what is empty as `[]` or `map[]`.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt::Display;

/// 32-bit FNV-1a.
#[must_use]
pub(super) fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Hash of a wrapped state.
#[must_use]
pub(super) fn hash_data(data: &str) -> u32 {
    hash(&format!("(string){data}"))
}

/// `map[a:x b:y]`, or `<nil>`. The entries are in order already.
pub(super) fn map<K: Display>(entries: Option<Vec<(K, String)>>) -> String {
    list_of(
        "map",
        entries.map(|list| list.into_iter().map(|(key, value)| format!("{key}:{value}")).collect()),
    )
}

/// `[x y]`, or `<nil>`.
pub(super) fn list<T: Display>(items: Option<Vec<T>>) -> String {
    list_of("", items.map(|list| list.iter().map(ToString::to_string).collect()))
}

fn list_of(prefix: &str, items: Option<Vec<String>>) -> String {
    match items {
        Some(items) => format!("{prefix}[{}]", items.join(" ")),
        None => "<nil>".to_string(),
    }
}
