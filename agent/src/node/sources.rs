//! The sources beside the loop: what they tell becomes the wanted set, and what is wrong with it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use podkeep_core::desired::{FileKey, Finding, Object, SourceKind, SourceUpdate};
use podkeep_core::identity::{CONFIG_SOURCE, IdentityError, Served, Source, static_pod};
use podkeep_core::types::Pod;
use smol::channel::Sender;

use super::pods::{self, Entry, Wanted, full_name, reconcile, thaw};
use super::{Node, Turn};
use crate::api::SourceStatus;
use crate::source::Judge;
use crate::source::decode::Complaint;
use crate::source::dir::{DirOptions, DirSource};

/// Makes a decoded pod the node's own: defaults, UID, names, validation.
fn judge(node_name: String) -> Arc<Judge> {
    Arc::new(move |file: &FileKey, object: &mut Object| {
        let path = String::from_utf8_lossy(&file.path).into_owned();
        let source = match file.source {
            SourceKind::File => Source::File(&path),
            SourceKind::Http => Source::Http(&path),
        };
        let fault = |message: String| Complaint { message, ..Complaint::default() };
        match object {
            Object::Pod(pod) => {
                match static_pod(std::mem::take(&mut **pod), &node_name, source, Served::LOCAL) {
                    Ok(made) => {
                        **pod = made;
                        // the time of first sight is added where the pod is shown: it counts for no comparison
                        pod.metadata.annotations.insert(CONFIG_SOURCE.into(), source.name().into());
                        Vec::new()
                    }
                    Err(IdentityError::Invalid(errors)) => errors
                        .into_iter()
                        .map(|error| Complaint {
                            path: error.field.clone(),
                            message: error.message(),
                            hint: String::new(),
                        })
                        .collect(),
                    Err(other) => vec![fault(other.to_string())],
                }
            }
            Object::ConfigMap(map) => {
                default_namespace(&mut map.metadata.namespace);
                Vec::new()
            }
            Object::Secret(secret) => {
                podkeep_core::defaults::secret(secret);
                default_namespace(&mut secret.metadata.namespace);
                Vec::new()
            }
        }
    })
}

fn default_namespace(namespace: &mut String) {
    if namespace.is_empty() {
        namespace.push_str("default");
    }
}

/// One file as it was last usable, and what is wrong with it now.
#[derive(Debug, Default)]
struct Kept {
    name: String,
    objects: Vec<Object>,
    since: i128,
    findings: (Vec<Finding>, Vec<Finding>),
}

/// All sources of the node.
#[derive(Debug, Default)]
pub struct Sources {
    files: BTreeMap<FileKey, Kept>,
    /// known from the last run and not spoken of yet
    seeded: BTreeSet<FileKey>,
    /// which file holds a name: it keeps it while both claim it
    holders: BTreeMap<String, FileKey>,
    notes: BTreeMap<u8, Vec<Finding>>,
    /// sources that have not told everything yet
    silent: Vec<SourceKind>,
    thawed: bool,
}

/// Starts the configured sources.
pub fn start(node: &Rc<Node>, turns: &Sender<Turn>) -> Sources {
    let judge = judge(node.settings.node_name.clone());
    let (sender, updates) = smol::channel::bounded(64);
    let mut silent = Vec::new();
    if let Some(path) = node.settings.manifests.clone() {
        silent.push(SourceKind::File);
        let options = DirOptions {
            path,
            quiet: node.settings.node.settle_period.to_std(),
            rescan: node.settings.kubelet.file_check_frequency.to_std(),
            judge,
        };
        node.executor.spawn(DirSource::new(options).run(sender)).detach();
    }
    let turns = turns.clone();
    node.executor
        .spawn(async move {
            while let Ok(update) = updates.recv().await {
                if turns.send(Turn::Source(update)).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    let mut sources = Sources { silent, ..Sources::default() };
    seed(node, &mut sources);
    if sources.silent.is_empty() {
        sources.thawed = true;
        thaw(node);
    }
    sources
}

/// What the last run of the agent held stands for its files until they speak: a file that is broken now keeps its pod.
fn seed(node: &Rc<Node>, sources: &mut Sources) {
    for entry in node.pods.borrow().entries.values() {
        let annotation = entry.pod.metadata.annotations.get(CONFIG_SOURCE);
        let source = match annotation.map(String::as_str) {
            Some("http") => SourceKind::Http,
            _ => SourceKind::File,
        };
        if entry.source.is_empty() || entry.rebuilt {
            continue;
        }
        let key = FileKey { source, path: entry.source.as_bytes().to_vec() };
        let kept = sources.files.entry(key.clone()).or_default();
        kept.name = entry.source.to_string();
        kept.objects.push(Object::Pod(Box::new((*entry.pod).clone())));
        sources.seeded.insert(key.clone());
        sources.holders.insert(full_name(&entry.pod), key);
    }
}

impl Sources {
    /// Takes in what a source tells and brings the node in line with it.
    pub fn take(&mut self, node: &Rc<Node>, update: SourceUpdate) {
        for report in update.files {
            self.seeded.remove(&report.file);
            let kept = self.files.entry(report.file).or_default();
            for finding in report.errors.iter().filter(|finding| !kept.findings.0.contains(finding)) {
                log::warn!("{finding}");
            }
            for finding in report.warnings.iter().filter(|finding| !kept.findings.1.contains(finding)) {
                log::warn!("{finding}");
            }
            kept.name = report.name;
            kept.since = report.since;
            kept.findings = (report.errors, report.warnings);
            if let Some(objects) = report.objects {
                kept.objects = objects.into_iter().map(|placed| placed.object).collect();
            }
        }
        for key in update.removed {
            self.files.remove(&key);
        }
        for note in &update.notes {
            log::info!("{note}");
        }
        self.notes.insert(update.source as u8, update.notes);
        if update.complete {
            self.first_words(update.source);
        }
        let wanted = self.wanted(node);
        let silent = self.silent.clone();
        reconcile(node, &wanted, &|entry: &Entry| !silent.contains(&source_of(entry)));
        if self.silent.is_empty() && !self.thawed {
            self.thawed = true;
            thaw(node);
        }
    }

    /// A source has told everything: what only the last run knew of it is not wanted any more.
    fn first_words(&mut self, source: SourceKind) {
        if let Some(at) = self.silent.iter().position(|silent| *silent == source) {
            self.silent.swap_remove(at);
            let unspoken: Vec<FileKey> =
                self.seeded.iter().filter(|key| key.source == source).cloned().collect();
            for key in unspoken {
                self.seeded.remove(&key);
                self.files.remove(&key);
            }
        }
    }

    fn wanted(&mut self, node: &Rc<Node>) -> BTreeMap<String, Wanted> {
        let mut claims: BTreeMap<String, Vec<(&FileKey, &Kept, &Pod)>> = BTreeMap::new();
        let mut objects = super::Objects::default();
        for (key, kept) in &self.files {
            for object in &kept.objects {
                match object {
                    Object::Pod(pod) => claims.entry(full_name(pod)).or_default().push((key, kept, pod)),
                    Object::ConfigMap(map) => {
                        let name = format!("{}/{}", map.metadata.namespace, map.metadata.name);
                        objects.config_maps.insert(name, Rc::new((**map).clone()));
                    }
                    Object::Secret(secret) => {
                        let name = format!("{}/{}", secret.metadata.namespace, secret.metadata.name);
                        objects.secrets.insert(name, Rc::new((**secret).clone()));
                    }
                }
            }
        }
        let mut wanted = BTreeMap::new();
        let mut holders = BTreeMap::new();
        let mut conflicts: BTreeMap<FileKey, String> = BTreeMap::new();
        for (name, mut claimants) in claims {
            claimants.sort_by_key(|(key, kept, _)| {
                (self.holders.get(&name) != Some(*key), kept.since, (*key).clone())
            });
            let Some((key, kept, pod)) = claimants.first().copied() else { continue };
            for (other, its, _) in claimants.iter().skip(1) {
                let text = format!(
                    "{}: pod '{name}' is defined in '{}' already; this one is not used",
                    its.name, kept.name
                );
                conflicts.insert((*other).clone(), text);
            }
            holders.insert(name.clone(), key.clone());
            wanted.insert(name, Wanted { pod: Rc::new(pod.clone()), source: kept.name.as_str().into() });
        }
        self.holders = holders;
        node.objects.replace(objects);
        node.sources.replace(self.statuses(&conflicts));
        wanted
    }

    fn statuses(&self, conflicts: &BTreeMap<FileKey, String>) -> Vec<SourceStatus> {
        let lines = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut all: Vec<SourceStatus> = self
            .files
            .iter()
            .map(|(key, kept)| {
                let mut errors = lines(&kept.findings.0);
                errors.extend(conflicts.get(key).cloned());
                let pods = kept.objects.iter().filter_map(|object| match object {
                    Object::Pod(pod) => Some(full_name(pod)),
                    _ => None,
                });
                SourceStatus {
                    path: kept.name.clone(),
                    pods: pods.collect(),
                    errors,
                    warnings: lines(&kept.findings.1),
                }
            })
            .collect();
        for notes in self.notes.values() {
            all.extend(notes.iter().map(|note| SourceStatus {
                path: note.file.clone(),
                warnings: vec![note.to_string()],
                ..SourceStatus::default()
            }));
        }
        all
    }
}

fn source_of(entry: &Entry) -> SourceKind {
    let annotation = entry.pod.metadata.annotations.get(CONFIG_SOURCE);
    if annotation.map(String::as_str) == Some("http") { SourceKind::Http } else { SourceKind::File }
}

/// A look at all pods that wait for what another one held.
pub fn recheck(node: &Rc<Node>) {
    let held: Vec<pods::Uid> = node
        .pods
        .borrow()
        .entries
        .values()
        .filter(|entry| entry.held.is_some())
        .map(|entry| entry.uid.clone())
        .collect();
    for uid in held {
        super::turn(node, &uid, None);
    }
}
