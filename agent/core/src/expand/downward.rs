//! The downward API: fields and resources of a pod as text.
use crate::types::{Container, Pod, Quantity, ResourceList, ResourceRequirements, StringMap, value};
use crate::validation::names;
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// What is known of a pod where a container starts.
pub struct Facts<'a> {
    /// The pod, with its final name and uid.
    pub pod: &'a Pod,
    /// Addresses of the node, the primary family first, at most one a family.
    pub host_ips: &'a [String],
    /// Addresses of the pod in the same order.
    pub pod_ips: &'a [String],
    /// What the node can give, for limits that are not set.
    pub allocatable: &'a ResourceList,
}

impl<'a> Facts<'a> {
    /// A container of the pod by name, init containers included.
    pub fn container(&self, name: &str) -> Option<&'a Container> {
        let spec = &self.pod.spec;
        spec.containers.iter().chain(&spec.init_containers).find(|c| c.name == name)
    }
}

/// Why a field or resource has no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// Not a field the downward API knows.
    Path {
        /// What was asked for.
        path: String,
    },
    /// The key in `['…']` is no key of a label or annotation.
    Key {
        /// What was asked for.
        path: String,
    },
    /// Not a resource the downward API knows.
    Resource {
        /// What was asked for.
        resource: String,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::Path { path } => write!(f, "'{path}' is not a field of the downward API"),
            FieldError::Key { path } => write!(f, "the key in '{path}' is not valid"),
            FieldError::Resource { resource } => write!(
                f,
                "'{resource}' is not one of limits or requests of cpu, memory, ephemeral-storage and hugepages-SIZE"
            ),
        }
    }
}

impl core::error::Error for FieldError {}

/// Splits `metadata.labels['key']` into the field and the key.
pub fn split_subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// A field of a pod as text. A label that is not there is an empty text.
pub fn field(facts: &Facts<'_>, path: &str) -> Result<String, FieldError> {
    let (meta, spec) = (&facts.pod.metadata, &facts.pod.spec);
    if let Some((field, key)) = split_subscript(path) {
        let (map, valid) = match field {
            "metadata.labels" => (&meta.labels, names::is_qualified(key)),
            "metadata.annotations" => (&meta.annotations, names::is_qualified(&key.to_ascii_lowercase())),
            _ => return Err(FieldError::Path { path: path.into() }),
        };
        if !valid {
            return Err(FieldError::Key { path: path.into() });
        }
        return Ok(map.get(key).cloned().unwrap_or_default());
    }
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => quoted_lines(&meta.labels),
        "metadata.annotations" => quoted_lines(&meta.annotations),
        "spec.nodeName" => spec.node_name.clone(),
        "spec.serviceAccountName" => spec.service_account_name.clone(),
        "status.hostIP" => first(facts.host_ips),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => first(facts.pod_ips),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(FieldError::Path { path: path.into() }),
    })
}

/// `key="value"` lines in the order of the keys, without a last line break.
fn quoted_lines(map: &StringMap) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// A text in quotes with the escapes of Go, whose format this file has.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x10000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Letters, marks, numbers, punctuation, symbols and the space; not controls, formats, other spaces, private use.
fn is_printable(c: char) -> bool {
    let hidden = matches!(u32::from(c),
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e
        | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0xe0fff | 0xf0000..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || hidden)
}

/// A limit or request of a container as text, divided by `divisor` (0 counts as 1) and rounded up. A limit that is
/// not set is what the node can give; a request that is not set is 0.
pub fn resource(
    resources: &ResourceRequirements,
    name: &str,
    divisor: Quantity,
    allocatable: &ResourceList,
) -> Result<String, FieldError> {
    let unknown = || FieldError::Resource { resource: name.into() };
    let (side, resource) = name.split_once('.').ok_or_else(unknown)?;
    let is_cpu = resource == value::CPU;
    let has_name = resource.strip_prefix(value::HUGEPAGES_PREFIX).is_some_and(|size| !size.is_empty());
    if !(is_cpu || resource == value::MEMORY || resource == value::EPHEMERAL_STORAGE || has_name) {
        return Err(unknown());
    }
    let amount = match side {
        "limits" => match resources.limits.get(resource).filter(|l| has_name || !l.is_zero()) {
            Some(limit) => *limit,
            None if has_name => Quantity::ZERO,
            None => allocatable.get(resource).copied().unwrap_or_default(),
        },
        "requests" => resources.requests.get(resource).copied().unwrap_or_default(),
        _ => return Err(unknown()),
    };
    let count = |q: &Quantity| match is_cpu {
        true => i128::from(q.milli()),
        false => i128::from(q.bytes()),
    };
    let divisor = if divisor.is_zero() { if is_cpu { 1000 } else { 1 } } else { count(&divisor).max(1) };
    let amount = count(&amount);
    let whole = amount.checked_div(divisor).unwrap_or(0);
    let rest = amount.checked_rem(divisor).unwrap_or(0);
    Ok(whole.saturating_add(i128::from(rest > 0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(
            quoted("a\"\\\n\t\u{1}\u{7f}é\u{200b}\u{1f600}"),
            "\"a\\\"\\\\\\n\\t\\x01\\x7fé\\u200b\u{1f600}\""
        );
    }

    #[test]
    fn a_missing_limit_is_what_the_node_can_give() {
        let node: ResourceList = [("memory".to_string(), Quantity::from_bytes(1 << 30))].into();
        let none = ResourceRequirements::default();
        let text = |name, divisor: &str| resource(&none, name, divisor.parse().unwrap(), &node);
        assert_eq!(text("limits.memory", "1Mi").as_deref(), Ok("1024"));
        assert_eq!(text("requests.memory", "0").as_deref(), Ok("0"));
        assert!(text("limits.hugepages-", "0").is_err());
    }
}
