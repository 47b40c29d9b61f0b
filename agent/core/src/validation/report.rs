//! Field paths, and the list of what is wrong at them.
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// A place in an object: `spec.containers[0].resources.limits[cpu]`. Kept as a chain on the stack, so that a valid pod
/// costs nothing.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    part: Part<'a>,
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, part: Part::Name(name) }
    }
    /// A field below.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), part: Part::Name(name) }
    }
    /// An element of a list.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), part: Part::Index(index) }
    }
    /// An entry of a map.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), part: Part::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            Part::Name(name) if self.parent.is_some() => write!(f, ".{name}"),
            Part::Name(name) => f.write_str(name),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// What kind of fault a field has, as the API names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Missing.
    Required,
    /// Present and wrong.
    Invalid,
    /// There twice.
    Duplicate,
    /// Not one of the known values.
    NotSupported,
    /// Not allowed here.
    Forbidden,
    /// Too many characters.
    TooLong,
    /// Too many elements.
    TooMany,
    /// Names something that is not there.
    NotFound,
}

impl Kind {
    /// Name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Required => "Required",
            Kind::Invalid => "Invalid",
            Kind::Duplicate => "Duplicate",
            Kind::NotSupported => "NotSupported",
            Kind::Forbidden => "Forbidden",
            Kind::TooLong => "TooLong",
            Kind::TooMany => "TooMany",
            Kind::NotFound => "NotFound",
        }
    }

    /// The words the API server uses, which people search for.
    fn words(self) -> &'static str {
        match self {
            Kind::Required => "Required value",
            Kind::Invalid => "Invalid value",
            Kind::Duplicate => "Duplicate value",
            Kind::NotSupported => "Unsupported value",
            Kind::Forbidden => "Forbidden",
            Kind::TooLong => "Too long",
            Kind::TooMany => "Too many",
            Kind::NotFound => "Not found",
        }
    }
}

/// A fault of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// Kind of the fault.
    pub kind: Kind,
    /// What was found, in quotes if it is a text; empty where it says nothing.
    pub value: String,
    /// What is allowed, what to do.
    pub detail: String,
}

impl FieldError {
    /// The text without the path.
    pub fn message(&self) -> String {
        let mut text = self.kind.words().to_string();
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                text.push_str(": ");
                text.push_str(part);
            }
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

impl core::error::Error for FieldError {}

/// A value of a message is cut here, so that a huge or binary one does not flood a log. In characters.
const VALUE_MAX: usize = 128;

fn shown(value: &str) -> String {
    let cut: String = value.chars().take(VALUE_MAX).collect();
    let dots = if cut.len() < value.len() { "..." } else { "" };
    format!("{cut:?}{dots}")
}

/// The faults found so far.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order they were found.
    pub errors: Vec<FieldError>,
}

impl Report {
    fn add(&mut self, path: &Path<'_>, kind: Kind, value: String, detail: &str) {
        self.errors.push(FieldError { field: path.to_string(), kind, value, detail: detail.into() });
    }

    /// Something is missing.
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.add(path, Kind::Required, String::new(), detail);
    }
    /// A text must not be empty.
    pub fn need(&mut self, path: &Path<'_>, name: &str, text: &str) {
        if text.is_empty() {
            self.required(&path.child(name), "");
        }
    }
    /// A text is wrong.
    pub fn invalid(&mut self, path: &Path<'_>, value: &str, detail: &str) {
        self.add(path, Kind::Invalid, shown(value), detail);
    }
    /// A number is wrong.
    pub fn invalid_number(&mut self, path: &Path<'_>, value: i64, detail: &str) {
        self.add(path, Kind::Invalid, value.to_string(), detail);
    }
    /// Something larger is wrong as a whole.
    pub fn invalid_whole(&mut self, path: &Path<'_>, detail: &str) {
        self.add(path, Kind::Invalid, String::new(), detail);
    }
    /// Something is there twice.
    pub fn duplicate(&mut self, path: &Path<'_>, value: &str, detail: &str) {
        self.add(path, Kind::Duplicate, shown(value), detail);
    }
    /// Something is not allowed here.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.add(path, Kind::Forbidden, String::new(), detail);
    }
    /// Something names what is not there.
    pub fn not_found(&mut self, path: &Path<'_>, value: &str) {
        self.add(path, Kind::NotFound, shown(value), "");
    }
    /// A text has more than `max` bytes.
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        self.add(path, Kind::TooLong, String::new(), &format!("may not be more than {max} bytes"));
    }
    /// A list has more than `max` elements.
    pub fn too_many(&mut self, path: &Path<'_>, found: usize, max: usize) {
        self.add(path, Kind::TooMany, found.to_string(), &format!("must have at most {max} items"));
    }
    /// A text is not one of those that are known.
    pub fn not_supported(&mut self, path: &Path<'_>, value: &str, known: &[&str]) {
        let list: Vec<String> = known.iter().map(|k| format!("{k:?}")).collect();
        self.add(path, Kind::NotSupported, shown(value), &format!("supported values: {}", list.join(", ")));
    }
    /// A text must be one of those that are known.
    pub fn one_of(&mut self, path: &Path<'_>, value: &str, known: &[&str]) {
        if !known.contains(&value) {
            self.not_supported(path, value, known);
        }
    }
    /// The same, and it must not be empty.
    pub fn need_one_of(&mut self, path: &Path<'_>, value: &str, known: &[&str]) {
        match value {
            "" => self.required(path, ""),
            _ => self.one_of(path, value, known),
        }
    }
    /// A text must follow a grammar.
    pub fn grammar(&mut self, path: &Path<'_>, value: &str, valid: fn(&str) -> bool, detail: &str) {
        if !valid(value) {
            self.invalid(path, value, detail);
        }
    }
    /// A number must not be negative.
    pub fn not_negative(&mut self, path: &Path<'_>, name: &str, value: i64) {
        if value < 0 {
            self.invalid_number(&path.child(name), value, "must be greater than or equal to 0");
        }
    }
}
