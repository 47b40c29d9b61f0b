//! From nodes to API objects, in one walk over the fields the types list: wrong kinds of values are refused by
//! path, line and column (all of them, not the first), unknown keys are collected with the nearest known name.
//!
//! Rules (docs/decisions/0010-manifest-text.md): a number or boolean is no text and a text is no number; null is the same
//! as absent, but a written `~` is no text either; a list has no empty items.

use podkeep_core::desired::Finding;
use podkeep_core::types::object::{Edit, Literal, Object, ScalarError, Shape};

use super::node::{Node, Position, Resolved, Shown, Value, resolve};
use super::suggest;

/// More findings than this of one file help nobody.
const MAX_FINDINGS: usize = 50;

/// One walk: what was found on the way.
#[derive(Debug)]
pub struct Filling<'o> {
    /// the file's name, as messages show it
    origin: &'o str,
    /// values must not be shown
    secret: bool,
    path: String,
    pub errors: Vec<Finding>,
    unknown: Vec<Unknown>,
    /// every struct met and where, for "this field exists at"
    shapes: Vec<(String, &'static Shape)>,
}

#[derive(Debug)]
struct Unknown {
    parent: String,
    path: String,
    key: String,
    at: Position,
    shape: &'static Shape,
}

impl<'o> Filling<'o> {
    pub fn new(origin: &'o str, secret: bool) -> Self {
        Filling {
            origin,
            secret,
            path: String::new(),
            errors: Vec::new(),
            unknown: Vec::new(),
            shapes: Vec::new(),
        }
    }

    /// Starts below a field path: `items[3]`.
    pub fn below(mut self, path: String) -> Self {
        self.path = path;
        self
    }

    /// Fills `object` from a mapping. Keys in `skip` are not looked at.
    pub fn object(&mut self, node: &Node<'_>, object: &mut dyn Object, skip: &[&str]) {
        let Value::Map(entries) = &node.value else {
            let wanted = format!("a mapping with the fields of {}", object.shape().name);
            return self.mismatch(node, &wanted, "");
        };
        let shape = object.shape();
        self.shapes.push((self.path.clone(), shape));
        for entry in entries.iter().filter(|entry| !skip.contains(&entry.key.as_ref())) {
            let index = shape.fields.iter().position(|name| *name == entry.key);
            let parent = self.enter_key(&entry.key);
            match index.and_then(|i| object.at_mut(i)) {
                Some(field) => self.field(&entry.value, field.edit(), Home::Struct),
                None => self.note_unknown(parent, &entry.key, entry.at, shape),
            }
            self.path.truncate(parent);
        }
    }

    /// The unknown keys as findings, each with a hint where one is known.
    pub fn unknown_keys(&self) -> Vec<Finding> {
        self.unknown
            .iter()
            .map(|unknown| Finding {
                hint: self.hint_for(unknown),
                ..self.finding(
                    unknown.at,
                    unknown.path.clone(),
                    format!("unknown field {} in {}", Shown(&unknown.key), unknown.shape.name),
                )
            })
            .collect()
    }

    fn hint_for(&self, unknown: &Unknown) -> String {
        let fields = unknown.shape.fields;
        if let Some(name) = fields.iter().find(|name| name.eq_ignore_ascii_case(&unknown.key)) {
            return format!("did you mean '{name}'? upper and lower case matter");
        }
        let key = unknown.key.as_str();
        let elsewhere = self
            .shapes
            .iter()
            .filter(|(path, shape)| *path != unknown.parent && shape.fields.contains(&key))
            .max_by_key(|(path, _)| (common_steps(path, &unknown.parent), core::cmp::Reverse(path.len())));
        if let Some((path, _)) = elsewhere {
            let dot = if path.is_empty() { "" } else { "." };
            return format!("this field exists at {path}{dot}{key}");
        }
        suggest::nearest(key, fields).map(|name| format!("did you mean '{name}'?")).unwrap_or_default()
    }

    fn note_unknown(&mut self, parent: usize, key: &str, at: Position, shape: &'static Shape) {
        if self.unknown.len() < MAX_FINDINGS {
            let parent = self.path.get(..parent).unwrap_or("").to_string();
            self.unknown.push(Unknown { parent, path: self.path.clone(), key: key.to_string(), at, shape });
        }
    }

    fn finding(&self, at: Position, path: String, message: String) -> Finding {
        Finding {
            file: self.origin.to_string(),
            line: at.line,
            column: at.column,
            path,
            message,
            hint: String::new(),
        }
    }

    fn error(&mut self, at: Position, message: String, hint: impl Into<String>) {
        if self.errors.len() < MAX_FINDINGS {
            let finding = Finding { hint: hint.into(), ..self.finding(at, self.path.clone(), message) };
            self.errors.push(finding);
        }
    }

    fn mismatch(&mut self, node: &Node<'_>, wanted: &str, hint: &str) {
        let found = node.describe(self.secret);
        self.error(node.at, format!("expected {wanted}, found {found}"), hint);
    }

    /// Appends a key to the path; gives the length to cut it back to.
    fn enter_key(&mut self, key: &str) -> usize {
        let before = self.path.len();
        let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if plain && !key.is_empty() {
            if before > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
        } else {
            let shown = Shown(key).to_string();
            self.path.push('[');
            self.path.push_str(shown.trim_matches('\''));
            self.path.push(']');
        }
        before
    }

    fn enter_index(&mut self, index: usize) -> usize {
        let before = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        before
    }

    fn field(&mut self, node: &Node<'_>, edit: Edit<'_>, home: Home) {
        if node.is_null() {
            return self.null(node, edit, home);
        }
        match edit {
            Edit::Opt(slot) => self.field(node, slot.fill().edit(), home),
            Edit::Object(object) => self.object(node, object, &[]),
            Edit::List(list) => match &node.value {
                Value::Seq(items) => {
                    for (index, item) in items.iter().enumerate() {
                        let before = self.enter_index(index);
                        if let Some(slot) = list.push() {
                            self.field(item, slot.edit(), Home::List);
                        }
                        self.path.truncate(before);
                    }
                }
                Value::Plain(_) | Value::Text(_) => {
                    self.mismatch(node, "a list", "write it as [item] or with a '- ' before each item");
                }
                Value::Map(_) => self.mismatch(node, "a list", "put '- ' before each item"),
            },
            Edit::Map(map) => match &node.value {
                Value::Map(entries) => {
                    for entry in entries {
                        let before = self.enter_key(&entry.key);
                        if let Some(slot) = map.insert(entry.key.to_string()) {
                            self.field(&entry.value, slot.edit(), Home::Map);
                        }
                        self.path.truncate(before);
                    }
                }
                Value::Plain(_) | Value::Text(_) | Value::Seq(_) => {
                    self.mismatch(node, "a mapping", "write it as {key: value}");
                }
            },
            scalar => self.scalar(node, scalar),
        }
    }

    fn null(&mut self, node: &Node<'_>, edit: Edit<'_>, home: Home) {
        let tilde = node.text() == Some("~");
        let text = match edit {
            Edit::Str(_) => true,
            Edit::Opt(slot) if tilde => {
                let text = matches!(slot.fill().edit(), Edit::Str(_));
                slot.clear();
                text
            }
            _ => false,
        };
        if tilde && text {
            self.error(
                node.at,
                "expected a text, found '~', which means nothing in YAML".to_string(),
                "quote it: \"~\", or leave the field out",
            );
        } else if home == Home::List {
            self.error(
                node.at,
                "a list item is empty".to_string(),
                "remove the item, or write \"\" for an empty text",
            );
        }
    }

    fn scalar(&mut self, node: &Node<'_>, edit: Edit<'_>) {
        let (text, plain) = match &node.value {
            Value::Plain(text) => (text, true),
            Value::Text(text) => (text, false),
            Value::Seq(_) | Value::Map(_) => return self.mismatch(node, wanted(&edit), ""),
        };
        let meaning = if plain { resolve(text) } else { Resolved::Text };
        match (edit, meaning) {
            (Edit::Str(slot), Resolved::Text) => slot.push_str(text),
            (Edit::Bool(slot), Resolved::Bool(value)) => *slot = value,
            (Edit::I32(slot), Resolved::Int(value)) => match i32::try_from(value) {
                Ok(value) => *slot = value,
                Err(_) => self.mismatch(node, "a whole number of 32 bits", ""),
            },
            (Edit::I64(slot), Resolved::Int(value)) => match i64::try_from(value) {
                Ok(value) => *slot = value,
                Err(_) => self.mismatch(node, "a whole number of 64 bits", ""),
            },
            (Edit::F64(slot), Resolved::Float(value)) => *slot = value,
            (Edit::F64(slot), Resolved::Int(value)) => {
                // as exact as the type of the field allows
                *slot = value.to_string().parse().unwrap_or(f64::MAX);
            }
            (Edit::Scalar(slot), meaning) => {
                let literal = match meaning {
                    Resolved::Bool(value) => Literal::Bool(value),
                    Resolved::Int(value) => Literal::Int(value),
                    Resolved::Float(value) => Literal::Float(value),
                    Resolved::Text | Resolved::Null => Literal::Str(text),
                };
                match slot.set(literal) {
                    Ok(()) => {}
                    Err(ScalarError::Value(why)) => self.error(node.at, why, ""),
                    Err(ScalarError::Kind) => {
                        let hint =
                            if plain && meaning != Resolved::Text { "quote it if it is text" } else { "" };
                        self.mismatch(node, slot.expects(), hint);
                    }
                }
            }
            (edit, meaning) => self.wrong_kind(node, text, &edit, meaning),
        }
    }

    fn wrong_kind(&mut self, node: &Node<'_>, text: &str, edit: &Edit<'_>, meaning: Resolved) {
        let hint = match edit {
            Edit::Str(_) if self.secret => "put it in quotes".to_string(),
            Edit::Str(_) => format!("quote it: \"{}\"", Shown(text).to_string().trim_matches('\'')),
            Edit::I32(_) | Edit::I64(_) if meaning == Resolved::Text => match resolve(text) {
                Resolved::Int(_) => "remove the quotes".to_string(),
                _ => String::new(),
            },
            Edit::I32(_) | Edit::I64(_) if text.trim_start_matches('-').starts_with('0') => {
                "a leading zero means octal, which has no digits 8 and 9".to_string()
            }
            Edit::Bool(_) if matches!(resolve(text), Resolved::Bool(_)) => "remove the quotes".to_string(),
            _ => String::new(),
        };
        self.mismatch(node, wanted(edit), &hint);
    }
}

/// Where a value stands: null means something else in each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    Struct,
    List,
    Map,
}

fn wanted(edit: &Edit<'_>) -> &'static str {
    match edit {
        Edit::Bool(_) => "true or false",
        Edit::I32(_) | Edit::I64(_) => "a whole number",
        Edit::F64(_) => "a number",
        Edit::Str(_) => "a text",
        Edit::Scalar(_) | Edit::Opt(_) => "a single value",
        Edit::Object(_) | Edit::Map(_) => "a mapping",
        Edit::List(_) => "a list",
    }
}

fn common_steps(a: &str, b: &str) -> usize {
    a.split('.').zip(b.split('.')).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use podkeep_core::object;
    use podkeep_core::types::scalar::IntOrString;

    use super::*;
    use crate::source::{json, yaml};

    object! {
        pub struct Port {
            number: i32 = "containerPort",
            host: Option<i64> = "hostPort",
            to: IntOrString = "to",
        }
        pub struct Part {
            name: String = "name",
            args: Vec<String> = "args",
            ports: Vec<Port> = "ports",
            tty: Option<bool> = "tty",
            value: Option<String> = "value",
        }
        pub struct Spec {
            restart: Option<String> = "restartPolicy",
            parts: Vec<Part> = "containers",
        }
        pub struct Meta {
            name: String = "name",
            notes: BTreeMap<String, String> = "annotations",
        }
        pub struct Whole {
            meta: Meta = "metadata",
            spec: Spec = "spec",
        }
    }

    fn read(text: &str) -> (Whole, Vec<String>, Vec<String>) {
        let node = if text.starts_with('{') {
            json::parse(text).unwrap()
        } else {
            yaml::parse(text).unwrap().remove(0)
        };
        let mut whole = Whole::default();
        let mut filling = Filling::new("f.yaml", false);
        filling.object(&node, &mut whole, &["kind"]);
        let show = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect();
        let unknown = filling.unknown_keys();
        (whole, show(&filling.errors), show(&unknown))
    }

    #[test]
    fn values_reach_their_fields() {
        let (whole, errors, unknown) = read(
            "kind: X\nmetadata: {name: a, annotations: {x/y: '1', e: }}\nspec:\n  restartPolicy: null\n  containers:\n  \
             - {name: c, args: [b, 12:30], tty: yes, ports: [{containerPort: 0644, to: 80}, {hostPort: 8_080, to: web}]}\n",
        );
        assert_eq!((errors, unknown), (vec![], vec![]));
        assert_eq!(whole.meta.notes["x/y"], "1");
        assert_eq!(whole.meta.notes["e"], "");
        assert_eq!(whole.spec.restart, None);
        let part = &whole.spec.parts[0];
        assert_eq!(part.args, ["b", "12:30"]);
        assert_eq!(part.tty, Some(true));
        assert_eq!((part.ports[0].number, &part.ports[0].to), (420, &IntOrString::Int(80)));
        assert_eq!((part.ports[1].host, &part.ports[1].to), (Some(8080), &IntOrString::Str("web".into())));
    }

    #[test]
    fn wrong_kinds_are_all_named_with_path_and_hint() {
        let (_, errors, _) = read(
            "metadata:\n  name: 12\n  annotations: {a/b: 1.10, c: yes, d: ~}\nspec:\n  containers:\n  - args: [code, 0898]\n    \
             ports: [{containerPort: \"80\"}, {containerPort: 3000000000}, {containerPort: 089}, {to: 1.5}]\n    tty: 'true'\n    \
             value: ~\n  - args: sh -c x\n  - \n  - [1]\n",
        );
        let expected = [
            "f.yaml:2:9: metadata.name: expected a text, found the number '12' (quote it: \"12\")",
            "f.yaml:3:22: metadata.annotations[a/b]: expected a text, found the number '1.10' (quote it: \"1.10\")",
            "f.yaml:3:31: metadata.annotations.c: expected a text, found the boolean 'yes' (quote it: \"yes\")",
            "f.yaml:3:39: metadata.annotations.d: expected a text, found '~', which means nothing in YAML (quote it: \"~\", or leave the field out)",
            "f.yaml:6:18: spec.containers[0].args[1]: expected a text, found the number '0898' (quote it: \"0898\")",
            "f.yaml:7:29: spec.containers[0].ports[0].containerPort: expected a whole number, found the text '80' (remove the quotes)",
            "f.yaml:7:52: spec.containers[0].ports[1].containerPort: expected a whole number of 32 bits, found the number '3000000000'",
            "f.yaml:7:81: spec.containers[0].ports[2].containerPort: expected a whole number, found the number '089' (a leading zero means octal, which has no digits 8 and 9)",
            "f.yaml:7:92: spec.containers[0].ports[3].to: expected a whole number of 32 bits or a text, found the number '1.5' (quote it if it is text)",
            "f.yaml:8:10: spec.containers[0].tty: expected true or false, found the text 'true' (remove the quotes)",
            "f.yaml:9:12: spec.containers[0].value: expected a text, found '~', which means nothing in YAML (quote it: \"~\", or leave the field out)",
            "f.yaml:10:11: spec.containers[1].args: expected a list, found the text 'sh -c x' (write it as [item] or with a '- ' before each item)",
            "f.yaml:11:5: spec.containers[2]: a list item is empty (remove the item, or write \"\" for an empty text)",
            "f.yaml:12:5: spec.containers[3]: expected a mapping with the fields of Part, found a list",
        ];
        for (error, expected) in errors.iter().zip(expected) {
            assert_eq!(error, expected);
        }
        assert_eq!(errors.len(), expected.len());
    }

    #[test]
    fn unknown_keys_have_a_hint() {
        let (_, errors, unknown) = read(
            "{\"kind\": \"X\", \"metadata\": {\"restartPolicy\": \"Never\", \"nam\": 1},\n \"spec\": {\"containers\": [{\"Name\": \"a\", \
             \"hostPort\": 1, \"ports\": [{}], \"zzzzzzz\": null}]}}",
        );
        assert_eq!(errors, [] as [&str; 0]);
        assert_eq!(
            unknown,
            [
                "f.yaml:1:28: metadata.restartPolicy: unknown field 'restartPolicy' in Meta (this field exists at spec.restartPolicy)",
                "f.yaml:1:54: metadata.nam: unknown field 'nam' in Meta (did you mean 'name'?)",
                "f.yaml:2:27: spec.containers[0].Name: unknown field 'Name' in Part (did you mean 'name'? upper and lower case matter)",
                "f.yaml:2:40: spec.containers[0].hostPort: unknown field 'hostPort' in Part (this field exists at spec.containers[0].ports[0].hostPort)",
                "f.yaml:2:70: spec.containers[0].zzzzzzz: unknown field 'zzzzzzz' in Part",
            ]
        );
    }

    #[test]
    fn secret_values_are_not_shown() {
        let node = yaml::parse("metadata: {name: 4711}\nspec: {containers: hunter2}").unwrap().remove(0);
        let mut filling = Filling::new("s.yaml", true);
        filling.object(&node, &mut Whole::default(), &[]);
        let text = filling.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert_eq!(filling.errors.len(), 2, "{text}");
        assert!(!text.contains("4711") && !text.contains("hunter2"), "{text}");
    }
}
