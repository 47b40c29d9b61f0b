//! Text of a manifest to objects, with every complaint at its place.
//!
//! A file is taken as a whole: with one error in it none of its objects counts, so a ConfigMap and the pod that needs
//! it change together. A document of another kind is left out with a warning; unknown fields are warnings.

use podkeep_core::desired::{Finding, Object, Placed};
use podkeep_core::types::{ConfigMap, Pod, Secret};

use super::fill::Filling;
use super::node::{Node, Position, Shown, SyntaxError, Value};
use super::{json, yaml};

/// A larger file is refused unread, as the kubelet does.
pub const MAX_FILE: u64 = 10 << 20;

/// What a text held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// empty when there are errors
    pub objects: Vec<Placed>,
    /// unknown fields, documents of other kinds
    pub warnings: Vec<Finding>,
    pub errors: Vec<Finding>,
}

/// A complaint about an object as a whole: field path, message, hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaint {
    pub path: String,
    pub message: String,
    pub hint: String,
}

/// Reads a manifest. `origin` is the name that findings carry, fit for display.
pub fn decode_file(text: &[u8], origin: &str) -> Decoded {
    decode_judged(text, origin, &mut |_| Vec::new())
}

/// The same with `judge` asked about each object that was read; it may change it, and what it answers becomes errors
/// with line and column.
pub fn decode_judged(
    text: &[u8],
    origin: &str,
    judge: &mut dyn FnMut(&mut Object) -> Vec<Complaint>,
) -> Decoded {
    let mut reading = Reading { origin, judge, decoded: Decoded::default(), foreign: 0 };
    match parse(text) {
        Ok(documents) => {
            for (document, number) in documents.iter().zip(1u32..) {
                if !document.is_null() {
                    reading.document(document, number);
                }
            }
        }
        Err(error) => reading.decoded.errors.push(syntax_finding(error, origin)),
    }
    let Reading { mut decoded, foreign, .. } = reading;
    if !decoded.errors.is_empty() {
        decoded.objects.clear();
    } else if decoded.objects.is_empty() && foreign > 0 {
        // nothing in the file can be used: that is no mere warning
        decoded.errors = std::mem::take(&mut decoded.warnings);
    }
    decoded
}

/// Bytes to documents; doubled keys are handed out instead of refused, the last one counts. JSON stays strict.
pub fn parse_lenient(bytes: &[u8]) -> Result<(Vec<Node<'_>>, Vec<SyntaxError>), SyntaxError> {
    let text = text_of(bytes)?;
    if text.trim_start().starts_with(['{', '[']) {
        return json::parse(text).map(|node| (vec![node], Vec::new()));
    }
    yaml::parse_lenient(text)
}

/// Bytes to documents.
pub fn parse(bytes: &[u8]) -> Result<Vec<Node<'_>>, SyntaxError> {
    let text = text_of(bytes)?;
    if text.trim_start().starts_with(['{', '[']) {
        return json::parse(text).map(|node| vec![node]);
    }
    yaml::parse(text)
}

pub fn syntax_finding(error: SyntaxError, origin: &str) -> Finding {
    Finding {
        file: origin.to_string(),
        line: error.at.line,
        column: error.at.column,
        path: String::new(),
        message: error.message,
        hint: error.hint,
    }
}

/// UTF-8 without a byte order mark and without control characters, or one line that shows none of the content.
fn text_of(bytes: &[u8]) -> Result<&str, SyntaxError> {
    let size = bytes.len() as u64;
    if size > MAX_FILE {
        let message = format!("{size} bytes are more than the {MAX_FILE} a manifest may have");
        return Err(SyntaxError::new(Position::default(), message));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let is_control = |byte: &u8| (*byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || *byte == 0x7f;
    if let Some(offset) = bytes.iter().position(is_control) {
        let byte = bytes.get(offset).copied().unwrap_or(0);
        let at = place(bytes, offset);
        return Err(SyntaxError::new(at, format!("not a text file: control byte 0x{byte:02x}")));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        let byte = bytes.get(offset).copied().unwrap_or(0);
        SyntaxError::new(place(bytes, offset), format!("not UTF-8 text: byte 0x{byte:02x}"))
            .hint("save the file as UTF-8")
    })
}

fn place(bytes: &[u8], offset: usize) -> Position {
    let before = bytes.get(..offset).unwrap_or(bytes);
    let lines = before.iter().filter(|byte| **byte == b'\n').count();
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |i| i.saturating_add(1));
    let column = String::from_utf8_lossy(before.get(line_start..).unwrap_or(&[])).chars().count();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
    Position { line: number(lines), column: number(column) }
}

struct Reading<'r> {
    origin: &'r str,
    judge: &'r mut dyn FnMut(&mut Object) -> Vec<Complaint>,
    decoded: Decoded,
    /// documents of kinds that are none of ours
    foreign: u32,
}

/// What `apiVersion` and `kind` say.
enum Kind {
    Pod,
    ConfigMap,
    Secret,
    List,
    PodList,
}

impl Reading<'_> {
    fn document(&mut self, node: &Node<'_>, document: u32) {
        match self.kind(node, "", None) {
            Some(Kind::List) => self.items(node, document, None),
            Some(Kind::PodList) => self.items(node, document, Some("Pod")),
            Some(kind) => self.one(node, document, String::new(), &kind),
            None => {}
        }
    }

    fn items(&mut self, node: &Node<'_>, document: u32, implied: Option<&str>) {
        let Some(items) = node.get("items").filter(|items| !items.is_null()) else { return };
        let Value::Seq(list) = &items.value else {
            return self.error(
                items.at,
                "items",
                format!("expected a list, found {}", items.describe(true)),
                "",
            );
        };
        for (index, item) in list.iter().enumerate() {
            let path = format!("items[{index}]");
            match self.kind(item, &path, implied) {
                Some(Kind::List | Kind::PodList) => {
                    self.error(item.at, &path, "a list inside a list".to_string(), "put its items here");
                }
                Some(kind) => self.one(item, document, path, &kind),
                None => {}
            }
        }
    }

    /// `implied`: the kind of an item that names none.
    fn kind(&mut self, node: &Node<'_>, path: &str, implied: Option<&str>) -> Option<Kind> {
        if !matches!(node.value, Value::Map(_)) {
            let found = node.describe(true);
            let message = format!("expected a mapping with apiVersion and kind, found {found}");
            self.error(node.at, path, message, "");
            return None;
        }
        let text = |key: &str| node.get(key).filter(|value| !value.is_null()).and_then(Node::text);
        let (version, kind) = match (text("apiVersion"), text("kind"), implied) {
            (Some(version), Some(kind), _) => (version, kind),
            (version, kind, Some(implied)) => (version.unwrap_or("v1"), kind.unwrap_or(implied)),
            (version, kind, None) => {
                let missing: Vec<&str> = [("apiVersion", version), ("kind", kind)]
                    .iter()
                    .filter(|(_, value)| value.is_none())
                    .map(|(name, _)| *name)
                    .collect();
                let message = format!("{} is missing", missing.join(" and "));
                self.error(node.at, path, message, "a pod begins with 'apiVersion: v1' and 'kind: Pod'");
                return None;
            }
        };
        match (version, kind) {
            ("v1", "Pod") => Some(Kind::Pod),
            ("v1", "ConfigMap") => Some(Kind::ConfigMap),
            ("v1", "Secret") => Some(Kind::Secret),
            ("v1", "List") => Some(Kind::List),
            ("v1", "PodList") => Some(Kind::PodList),
            _ => {
                self.foreign(node, path, version, kind);
                None
            }
        }
    }

    fn foreign(&mut self, node: &Node<'_>, path: &str, version: &str, kind: &str) {
        self.foreign = self.foreign.saturating_add(1);
        let ours = ["Pod", "ConfigMap", "Secret", "List", "PodList"];
        let (key, message, hint) = if ours.contains(&kind) {
            let message = format!("kind {kind} exists in apiVersion v1, not in {}", Shown(version));
            ("apiVersion", message, "write 'apiVersion: v1'".to_string())
        } else {
            let group = version.split_once('/').map_or("core", |(group, _)| group);
            let name = Shown(kind).to_string();
            let name = name.trim_matches('\'');
            let group = Shown(group).to_string();
            let message = format!(
                "kind {name} of group {} is not a Pod, ConfigMap or Secret and is left out",
                group.trim_matches('\'')
            );
            let near = super::suggest::nearest(kind, &ours);
            ("kind", message, near.map(|near| format!("did you mean '{near}'?")).unwrap_or_default())
        };
        let at = node.get(key).map_or(node.at, |value| value.at);
        let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        let finding = self.finding(at, &path, message, &hint);
        self.decoded.warnings.push(finding);
    }

    fn one(&mut self, node: &Node<'_>, document: u32, path: String, kind: &Kind) {
        let mut filling = Filling::new(self.origin, matches!(kind, Kind::Secret)).below(path.clone());
        let mut object = match kind {
            Kind::Pod | Kind::List | Kind::PodList => {
                let mut pod = Box::new(Pod::default());
                // the status of a manifest is nobody's
                filling.object(node, &mut *pod, &["status"]);
                Object::Pod(pod)
            }
            Kind::ConfigMap => {
                let mut map = Box::new(ConfigMap::default());
                filling.object(node, &mut *map, &[]);
                Object::ConfigMap(map)
            }
            Kind::Secret => {
                let mut secret = Box::new(Secret::default());
                filling.object(node, &mut *secret, &[]);
                Object::Secret(secret)
            }
        };
        self.decoded.warnings.append(&mut filling.unknown_keys());
        if !filling.errors.is_empty() {
            return self.decoded.errors.append(&mut filling.errors);
        }
        for Complaint { path: field, message, hint } in (self.judge)(&mut object) {
            let at = node.locate(&field);
            let whole = match (path.is_empty(), field.is_empty()) {
                (true, _) => field,
                (false, true) => path.clone(),
                (false, false) => format!("{path}.{field}"),
            };
            self.error(at, &whole, message, &hint);
        }
        self.decoded.objects.push(Placed { object, line: node.at.line, document });
    }

    fn finding(&self, at: Position, path: &str, message: String, hint: &str) -> Finding {
        Finding {
            file: self.origin.to_string(),
            line: at.line,
            column: at.column,
            path: path.to_string(),
            message,
            hint: hint.to_string(),
        }
    }

    fn error(&mut self, at: Position, path: &str, message: String, hint: &str) {
        let finding = self.finding(at, path, message, hint);
        self.decoded.errors.push(finding);
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
