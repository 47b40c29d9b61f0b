//! A recorded machine: its files as one nested object. A text is a file (one byte a sign), `{"@link": TARGET}` a
//! symbolic link, any other object a folder.

use core::fmt;
use std::{
    boxed::Box,
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::{
    error::{ErrorPath, HalError},
    files::Files,
};

const LINK: &str = "@link";

/// Links followed on one path; kernels stop at forty, trees of /sys need two.
const LINKS_FOLLOWED: usize = 16;

/// Folders inside each other; /sys has at most about fifteen.
const DEPTH: usize = 64;

/// One entry of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file with its content.
    File(Vec<u8>),
    /// A symbolic link, relative to the folder it is in or absolute.
    Link(String),
    /// A folder.
    Folder(BTreeMap<String, Entry>),
}

/// A whole tree; the root is a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    root: BTreeMap<String, Entry>,
}

impl Snapshot {
    /// A tree without files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From lines `path = content`; `#` starts a comment line, and content ends in a line end.
    #[must_use]
    pub fn from_lines(text: &str) -> Self {
        let mut snapshot = Self::new();
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            if let Some((path, content)) = line.split_once(" =") {
                let mut bytes = content.trim().as_bytes().to_vec();
                bytes.push(b'\n');
                snapshot.put(path.trim(), Entry::File(bytes));
            }
        }
        snapshot
    }

    /// Sets a file, link or folder, with the folders it needs.
    pub fn put(&mut self, path: &str, entry: Entry) {
        let mut folder = &mut self.root;
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                folder.insert(part.to_string(), entry);
                return;
            }
            let next = folder.entry(part.to_string()).or_insert_with(|| Entry::Folder(BTreeMap::new()));
            if !matches!(next, Entry::Folder(_)) {
                *next = Entry::Folder(BTreeMap::new());
            }
            let Entry::Folder(inner) = next else { return };
            folder = inner;
        }
    }

    /// Sets a file's text.
    pub fn put_text(&mut self, path: &str, text: &str) {
        self.put(path, Entry::File(text.as_bytes().to_vec()));
    }

    /// Takes a file or folder out.
    pub fn remove(&mut self, path: &str) {
        let mut folder = &mut self.root;
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                folder.remove(part);
                return;
            }
            let Some(Entry::Folder(inner)) = folder.get_mut(part) else { return };
            folder = inner;
        }
    }

    /// The entry at a path, links followed.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        let mut left: Vec<String> = path.split('/').rev().map(ToString::to_string).collect();
        let mut trail: Vec<&BTreeMap<String, Entry>> = Vec::new();
        let mut here = &self.root;
        let mut links = 0usize;
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    here = trail.pop().unwrap_or(&self.root);
                    continue;
                }
                _ => {}
            }
            let entry = here.get(&part)?;
            match entry {
                Entry::Folder(inner) => {
                    trail.push(here);
                    here = inner;
                    if left.iter().all(|part| part.is_empty() || part == ".") {
                        return Some(entry);
                    }
                }
                Entry::Link(target) => {
                    links = links.saturating_add(1);
                    if links > LINKS_FOLLOWED {
                        return None;
                    }
                    if target.starts_with('/') {
                        trail.clear();
                        here = &self.root;
                    }
                    left.extend(target.split('/').rev().map(ToString::to_string));
                }
                Entry::File(_) => return left.iter().all(String::is_empty).then_some(entry),
            }
        }
        None
    }

    /// Every file and link with its path, folders first to last by name.
    pub fn walk(&self, each: &mut dyn FnMut(&str, &Entry)) {
        walk(&self.root, &mut String::new(), each);
    }
}

fn walk(folder: &BTreeMap<String, Entry>, path: &mut String, each: &mut dyn FnMut(&str, &Entry)) {
    for (name, entry) in folder {
        let length = path.len();
        path.push('/');
        path.push_str(name);
        match entry {
            Entry::Folder(inner) => walk(inner, path, each),
            entry => each(path, entry),
        }
        path.truncate(length);
    }
}

impl Files for Snapshot {
    fn read(&self, path: &str) -> Result<Vec<u8>, HalError> {
        match self.get(path) {
            Some(Entry::File(bytes)) => Ok(bytes.clone()),
            Some(_) => Err(HalError::Read { path: ErrorPath::new(path), errno: 21 }),
            None => Err(HalError::Read { path: ErrorPath::new(path), errno: 2 }),
        }
    }

    fn names(&self, folder: &str) -> Vec<String> {
        match self.get(folder) {
            Some(Entry::Folder(inner)) => inner.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.root)
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(bytes) => {
                let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                serializer.serialize_str(&text)
            }
            Self::Link(target) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(LINK, target)?;
                map.end()
            }
            Self::Folder(inner) => serializer.collect_map(inner),
        }
    }
}

impl<'de> Deserialize<'de> for Snapshot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Entry::deserialize(deserializer)? {
            Entry::Folder(root) if depth(&root) <= DEPTH => Ok(Self { root }),
            Entry::Folder(_) => Err(D::Error::custom("folders lie too deep inside each other")),
            _ => Err(D::Error::custom("a snapshot is an object of files and folders")),
        }
    }
}

fn depth(folder: &BTreeMap<String, Entry>) -> usize {
    let inner = folder.values().filter_map(|entry| match entry {
        Entry::Folder(inner) => Some(depth(inner)),
        _ => None,
    });
    inner.max().unwrap_or(0).saturating_add(1)
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text of one-byte signs, a link, or an object")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Entry, E> {
        let bytes: Option<Vec<u8>> = text.chars().map(|sign| u8::try_from(u32::from(sign)).ok()).collect();
        bytes.map(Entry::File).ok_or_else(|| E::custom("a file holds a sign of more than one byte"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut folder = BTreeMap::new();
        while let Some(name) = map.next_key::<Box<str>>()? {
            let entry: Entry = map.next_value()?;
            folder.insert(String::from(name), entry);
        }
        if folder.len() == 1
            && let Some(Entry::File(target)) = folder.get(LINK)
        {
            return Ok(Entry::Link(target.iter().map(|byte| char::from(*byte)).collect()));
        }
        Ok(Entry::Folder(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_and_loops_end() {
        let tree = r#"{"a": {"b": {"up": {"@link": "../f"}}, "f": "hi\n"}, "l": {"@link": "a/b"},
                       "abs": {"@link": "/a/f"}, "loop": {"@link": "loop"}}"#;
        let snapshot: Snapshot = serde_json::from_str(tree).unwrap();
        assert_eq!(snapshot.text("/l/up").as_deref(), Some("hi"));
        assert_eq!(snapshot.text("/abs").as_deref(), Some("hi"));
        assert_eq!(snapshot.names("/a"), ["b", "f"]);
        assert_eq!(snapshot.names("/l"), ["up"]);
        assert!(snapshot.read("/loop").is_err());
        assert!(snapshot.read("/a").is_err());
        assert!(snapshot.read("/a/f/x").is_err());
        let again: Snapshot = serde_json::from_str(&serde_json::to_string(&snapshot).unwrap()).unwrap();
        assert_eq!(again, snapshot);
    }

    #[test]
    fn lines_become_files() {
        let snapshot =
            Snapshot::from_lines("# x\n/sys/a = 1-3\n/sys/empty = \n/proc/meminfo = MemTotal: 5 kB\n");
        assert_eq!(snapshot.text("/sys/a").as_deref(), Some("1-3"));
        assert_eq!(snapshot.text("/sys/empty").as_deref(), Some(""));
        assert_eq!(snapshot.text("/proc/meminfo").as_deref(), Some("MemTotal: 5 kB"));
    }

    #[test]
    fn wide_signs_are_refused() {
        assert!(serde_json::from_str::<Snapshot>("{\"a\": \"\u{4e00}\"}").is_err());
        assert!(serde_json::from_str::<Snapshot>("\"a\"").is_err());
    }
}
