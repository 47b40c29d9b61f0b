//! What a source tells: files, the objects in them, what is wrong with them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
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

/// Where objects come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    File,
    Http,
}

impl SourceKind {
    /// The value of the annotation `kubernetes.io/config.source`.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::File => "file",
            SourceKind::Http => "http",
        }
    }
}

/// One file, or one address. The order decides between two that claim one name and nothing else tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    pub source: SourceKind,
    /// the path in its own bytes, or the address
    pub path: Vec<u8>,
}

/// What a file holds now.
#[derive(Clone, Debug, PartialEq)]
pub struct FileReport {
    pub file: FileKey,
    /// the path as messages show it
    pub name: String,
    /// `None`: the file cannot be used, what it held before stays in force
    pub objects: Option<Vec<Placed>>,
    /// nanoseconds since 1970: the last change of its inode, 0 if unknown. The older of two files was first.
    pub since: i128,
    pub warnings: Vec<Finding>,
    pub errors: Vec<Finding>,
}

/// What changed at a source since its last update. Files that are not named are as they were.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceUpdate {
    pub source: SourceKind,
    pub files: Vec<FileReport>,
    /// files that are gone
    pub removed: Vec<FileKey>,
    /// the state of the source as a whole (folder missing, address does not answer); replaces earlier notes
    pub notes: Vec<Finding>,
    /// all of the source was read at least once: what it does not name is not wanted
    pub complete: bool,
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
