//! All manifests to the desired set: duplicates, last good version of a file.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::types::{ConfigMap, ObjectMeta, Pod, Secret};

/// What a manifest can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Pod(Box<Pod>),
    ConfigMap(Box<ConfigMap>),
    Secret(Box<Secret>),
}

impl Object {
    pub fn kind(&self) -> &'static str {
        match self {
            Object::Pod(_) => "Pod",
            Object::ConfigMap(_) => "ConfigMap",
            Object::Secret(_) => "Secret",
        }
    }

    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Object::Pod(pod) => &pod.metadata,
            Object::ConfigMap(map) => &map.metadata,
            Object::Secret(secret) => &secret.metadata,
        }
    }
}

/// An object and where in its file it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    pub object: Object,
    /// 1-based
    pub line: u32,
    /// 1-based number of the YAML document; 1 in JSON
    pub document: u32,
}

/// Something the author of a file should know: where it stands, what it is, what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// file or address, already escaped for display
    pub file: String,
    /// 1-based; 0 where no place is known
    pub line: u32,
    /// 1-based, in characters; 0 where no place is known
    pub column: u32,
    /// field path (`spec.containers[1].name`), empty for the file as a whole
    pub path: String,
    pub message: String,
    /// what to do about it, may be empty
    pub hint: String,
}

/// `file:line:column: path: message (hint)`, on one line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            f.write_str(&self.file)?;
            if self.line > 0 {
                write!(f, ":{}", self.line)?;
                if self.column > 0 {
                    write!(f, ":{}", self.column)?;
                }
            }
            f.write_str(": ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}
