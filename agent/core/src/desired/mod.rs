//! All manifests to the desired set: duplicates, last good version of a file.
//!
//! Rules:
//! - a file that cannot be used keeps what it held before, and its errors stay visible;
//! - of two files that claim one name, the one that claimed it first has it, and the other is refused naming both. At
//!   start the one whose object already runs is the first; else the older file; else the one that sorts first. So
//!   the answer is the same at each look and after a restart;
//! - when the file that has a name gives it up, the next one takes over.

mod report;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub use report::{FileKey, FileReport, Finding, Object, Placed, SourceKind, SourceUpdate};

use crate::types::{ConfigMap, Pod, Secret};

/// What an object is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `Pod`, `ConfigMap`, `Secret`
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// The key of a pod by its full name.
    pub fn pod(namespace: &str, name: &str) -> Self {
        ObjectKey { kind: "Pod", namespace: namespace.into(), name: name.into() }
    }

    fn of(object: &Object) -> Self {
        let metadata = object.metadata();
        // pods have their namespace filled in
        let namespace = if metadata.namespace.is_empty() { "default" } else { &metadata.namespace };
        ObjectKey { kind: object.kind(), namespace: namespace.into(), name: metadata.name.clone() }
    }

    /// `namespace/name`
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// An object in force, cheap to hand around.
#[derive(Clone, Debug, PartialEq)]
pub enum Shared {
    Pod(Rc<Pod>),
    ConfigMap(Rc<ConfigMap>),
    Secret(Rc<Secret>),
}

impl Shared {
    fn new(object: Object) -> Self {
        match object {
            Object::Pod(pod) => Shared::Pod(Rc::from(pod)),
            Object::ConfigMap(map) => Shared::ConfigMap(Rc::from(map)),
            Object::Secret(secret) => Shared::Secret(Rc::from(secret)),
        }
    }

    fn uid(&self) -> &str {
        match self {
            Shared::Pod(pod) => &pod.metadata.uid,
            Shared::ConfigMap(map) => &map.metadata.uid,
            Shared::Secret(secret) => &secret.metadata.uid,
        }
    }
}

/// An object of a file.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    object: Shared,
    line: u32,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct File {
    name: String,
    objects: BTreeMap<ObjectKey, Held>,
    /// its text cannot be used, and nothing is known of what it held before
    unknown: bool,
    warnings: Vec<Finding>,
    errors: Vec<Finding>,
}

/// A file as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileStatus {
    pub name: String,
    /// objects of it that are in force
    pub objects: Vec<ObjectKey>,
    pub warnings: Vec<Finding>,
    pub errors: Vec<Finding>,
}

/// All that is wanted.
#[derive(Debug, Default)]
pub struct Desired {
    files: BTreeMap<FileKey, File>,
    /// files that claim a name; the first has it
    claims: BTreeMap<ObjectKey, Vec<FileKey>>,
    complete: BTreeSet<SourceKind>,
    notes: BTreeMap<SourceKind, Vec<Finding>>,
    /// uids of pods that ran before the sources spoke
    running: BTreeMap<ObjectKey, String>,
}

/// What an update changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// names under which something else is wanted now, or nothing any more
    pub objects: BTreeSet<ObjectKey>,
    /// files whose status is another one now
    pub files: BTreeSet<FileKey>,
}

impl Desired {
    /// `running`: pods found at start, by key, with their uid.
    pub fn new(running: impl IntoIterator<Item = (ObjectKey, String)>) -> Self {
        Desired { running: running.into_iter().collect(), ..Desired::default() }
    }

    /// Takes in what a source told.
    pub fn apply(&mut self, mut update: SourceUpdate) -> Changes {
        let mut changes = Changes::default();
        // of files that come together the older one was first
        update.files.sort_by(|a, b| (a.since, &a.file).cmp(&(b.since, &b.file)));
        for key in update.removed {
            if let Some(file) = self.files.remove(&key) {
                self.give_up(&key, file.objects.keys().cloned(), &mut changes);
            }
            changes.files.insert(key);
        }
        for report in update.files {
            self.take(report, &mut changes);
        }
        if update.complete {
            self.complete.insert(update.source);
        }
        self.notes.insert(update.source, update.notes);
        changes
    }

    fn take(&mut self, report: FileReport, changes: &mut Changes) {
        let FileReport { file: key, name, objects, warnings, errors, .. } = report;
        changes.files.insert(key.clone());
        let file = self.files.entry(key.clone()).or_default();
        (file.name, file.warnings, file.errors) = (name, warnings, errors);
        let Some(placed) = objects else {
            file.unknown = file.objects.is_empty();
            return;
        };
        file.unknown = false;
        let mut new: BTreeMap<ObjectKey, Held> = BTreeMap::new();
        for Placed { object, line, .. } in placed {
            let object_key = ObjectKey::of(&object);
            if let Some(first) = new.get(&object_key) {
                let finding = twice(&object_key, &file.name, first.line, line);
                file.errors.push(finding);
                continue;
            }
            new.insert(object_key, Held { object: Shared::new(object), line });
        }
        let old = core::mem::take(&mut file.objects);
        let lost: Vec<ObjectKey> = old.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
        let gained: Vec<(ObjectKey, String)> = new
            .iter()
            .filter(|(key, _)| !old.contains_key(*key))
            .map(|(key, held)| (key.clone(), held.object.uid().to_string()))
            .collect();
        let other: Vec<ObjectKey> = new
            .iter()
            .filter(|(key, held)| old.get(*key).is_some_and(|old| old.object != held.object))
            .map(|(key, _)| key.clone())
            .collect();
        file.objects = new;
        self.give_up(&key, lost.into_iter(), changes);
        for object in other {
            if self.owner(&object) == Some(&key) {
                changes.objects.insert(object);
            }
        }
        for (object, uid) in gained {
            self.claim(&key, object, &uid, changes);
        }
    }

    fn claim(&mut self, file: &FileKey, object: ObjectKey, uid: &str, changes: &mut Changes) {
        let runs = self.running.get(&object).is_some_and(|running| running == uid);
        let claims = self.claims.entry(object.clone()).or_default();
        // both sides of a conflict say so
        changes.files.extend(claims.iter().cloned());
        if claims.is_empty() || runs {
            changes.objects.insert(object);
            claims.insert(0, file.clone());
        } else {
            claims.push(file.clone());
        }
    }

    fn give_up(&mut self, file: &FileKey, objects: impl Iterator<Item = ObjectKey>, changes: &mut Changes) {
        for object in objects {
            let Some(claims) = self.claims.get_mut(&object) else { continue };
            let was_owner = claims.first() == Some(file);
            claims.retain(|claim| claim != file);
            changes.files.extend(claims.iter().cloned());
            if claims.is_empty() {
                self.claims.remove(&object);
            }
            if was_owner {
                changes.objects.insert(object);
            }
        }
    }

    fn owner(&self, object: &ObjectKey) -> Option<&FileKey> {
        self.claims.get(object)?.first()
    }

    /// The object wanted under a name, and the file it comes from, as shown.
    pub fn get(&self, key: &ObjectKey) -> Option<(&Shared, &str)> {
        let file = self.files.get(self.owner(key)?)?;
        Some((&file.objects.get(key)?.object, &file.name))
    }

    /// The pods that are wanted.
    pub fn pods(&self) -> impl Iterator<Item = (&ObjectKey, &Rc<Pod>, &str)> {
        self.claims.keys().filter_map(|key| match self.get(key)? {
            (Shared::Pod(pod), file) => Some((key, pod, file)),
            _ => None,
        })
    }

    /// Whether all of a source was read once, so that what it does not name is not wanted.
    pub fn is_complete(&self, source: SourceKind) -> bool {
        self.complete.contains(&source)
    }

    /// Whether a pod that ran before from this file (by its shown name) may be ended because no file names it now:
    /// not while its source was not read, nor while its file is there but cannot be read.
    pub fn may_remove(&self, source: SourceKind, file: &str) -> bool {
        self.is_complete(source)
            && !self
                .files
                .iter()
                .any(|(key, state)| key.source == source && state.name == file && state.unknown)
    }

    /// The sources have been heard and the pods of the last run sorted: from now on who was first is known.
    pub fn forget_running(&mut self) {
        self.running.clear();
    }

    /// What is to be said of the sources as a whole.
    pub fn notes(&self) -> impl Iterator<Item = &Finding> {
        self.notes.values().flatten()
    }

    /// All files, in order.
    pub fn files(&self) -> impl Iterator<Item = &FileKey> {
        self.files.keys()
    }

    /// A file as it is shown; nothing if it is gone.
    pub fn status(&self, file: &FileKey) -> Option<FileStatus> {
        let state = self.files.get(file)?;
        let mut status = FileStatus {
            name: state.name.clone(),
            objects: Vec::new(),
            warnings: state.warnings.clone(),
            errors: state.errors.clone(),
        };
        for (key, held) in &state.objects {
            match self.owner(key) {
                Some(owner) if owner != file => {
                    let other = self.files.get(owner).map_or("", |other| &other.name);
                    status.errors.push(taken(key, state, held, other));
                }
                _ => status.objects.push(key.clone()),
            }
        }
        Some(status)
    }
}

fn twice(key: &ObjectKey, file: &str, first: u32, second: u32) -> Finding {
    Finding {
        file: file.into(),
        line: second,
        column: 1,
        path: "metadata.name".into(),
        message: format!(
            "{} {} stands at line {first} already: this one is refused",
            key.kind,
            key.full_name()
        ),
        hint: "give it another name, or remove one".into(),
    }
}

fn taken(key: &ObjectKey, file: &File, held: &Held, other: &str) -> Finding {
    Finding {
        file: file.name.clone(),
        line: held.line,
        column: 1,
        path: "metadata.name".into(),
        message: format!(
            "{} {} is defined by {other} already: this one is refused",
            key.kind,
            key.full_name()
        ),
        hint: "give it another name, or remove one of the files".into(),
    }
}

#[cfg(test)]
mod tests;
