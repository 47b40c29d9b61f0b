//! From the sources to the node: what they tell becomes pods, ConfigMaps and Secrets of the node, and the status of
//! files that people ask for.

use std::rc::Rc;

use podkeep_core::desired::{
    Changes, Desired, FileKey, Finding, ObjectKey, Shared, SourceKind, SourceUpdate,
};
use podkeep_core::lifecycle::pod::Step;
use podkeep_core::types::Pod;
use smol::channel::Sender;

use super::pods::{self, Uid, Wanted, full_name, turn};
use super::{Node, Turn, files, hold};
use crate::api::SourceStatus;
use crate::source::dir::{DirOptions, DirSource};
use crate::source::http::{HttpOptions, HttpSource};
use crate::source::judge::{judge, shown_path};

/// The sources at work, and what they have told.
#[derive(Debug)]
pub struct Sources {
    desired: Desired,
    /// makes the folder be looked at again
    knock: Option<Sender<()>>,
    /// the sources spoke: pods of the last run take their turns
    thawed: bool,
    /// pods of the last run that no file names yet, and the file or address each came from
    leftovers: Vec<(ObjectKey, Rc<str>)>,
}

/// Starts the sources of the settings. What they tell comes as [`Turn::Source`].
pub fn start(node: &Rc<Node>, turns: &Sender<Turn>) -> Result<Sources, String> {
    let settings = &node.settings;
    let judge = judge(&settings.node_name);
    let mut running =
        Sources { desired: Desired::default(), knock: None, thawed: false, leftovers: Vec::new() };
    running.remember_last_run(node);
    let (to, updates) = smol::channel::bounded::<SourceUpdate>(64);
    if let Some(path) = settings.manifests.clone() {
        let (quiet, rescan) =
            (settings.node.settle_period.to_std(), settings.kubelet.file_check_frequency.to_std());
        let (source, knock) = DirSource::new(DirOptions { path, quiet, rescan, judge: judge.clone() });
        running.knock = Some(knock);
        node.executor.spawn(source.run(to.clone())).detach();
    }
    let url = settings.kubelet.static_pod_url.clone();
    if !url.is_empty() {
        let all = &settings.kubelet.static_pod_url_header;
        let headers = all.iter().flat_map(|(name, values)| values.iter().map(|v| (name.clone(), v.clone())));
        let (headers, every) = (headers.collect(), settings.kubelet.http_check_frequency.to_std());
        let source = HttpSource::new(HttpOptions { url, headers, every, judge })
            .map_err(|error| format!("staticPodURL: {error}"))?;
        node.executor.spawn(source.run(to.clone())).detach();
    }
    if settings.manifests.is_none() && settings.kubelet.static_pod_url.is_empty() {
        log::warn!("neither staticPodPath nor staticPodURL is set: this node runs nothing new");
        // pods of the last run go on
        let (files, removed, notes) = (Vec::new(), Vec::new(), Vec::new());
        let nothing = SourceUpdate { source: SourceKind::File, files, removed, notes, complete: false };
        to.try_send(nothing).map_err(|error| error.to_string())?;
    }
    let turns = turns.clone();
    let forward = async move {
        while let Ok(update) = updates.recv().await {
            if turns.send(Turn::Source(update)).await.is_err() {
                return;
            }
        }
    };
    node.executor.spawn(forward).detach();
    Ok(running)
}

impl Sources {
    fn remember_last_run(&mut self, node: &Node) {
        let pods = node.pods.borrow();
        let key = |pod: &Pod| ObjectKey::pod(&pod.metadata.namespace, &pod.metadata.name);
        let entries = || pods.entries.values();
        self.desired = Desired::new(entries().map(|entry| (key(&entry.pod), entry.uid.to_string())));
        self.leftovers = entries().map(|entry| (key(&entry.pod), entry.source.clone())).collect();
    }

    /// Takes in what a source told.
    pub fn take(&mut self, node: &Rc<Node>, update: SourceUpdate) {
        let source = update.source;
        let changes = self.desired.apply(update);
        self.show(node, &changes);
        let mut names = Vec::new();
        for key in &changes.objects {
            match key.kind {
                "Pod" => names.push((key.full_name(), self.wanted(key))),
                _ => self.set_object(node, key),
            }
        }
        if self.desired.is_complete(source) {
            self.desired.forget_running();
        }
        names.extend(self.unwanted_leftovers());
        pods::change(node, names);
        if !self.thawed {
            self.thawed = true;
            hold::sort(node);
            pods::thaw(node);
        }
        for key in changes.objects.iter().filter(|key| key.kind != "Pod") {
            refresh_users(node, key);
        }
        // a pod that changed in place may have given up a port
        if !changes.objects.is_empty() {
            hold::recheck(node);
        }
    }

    /// Makes the folder be looked at again.
    pub fn rescan(&mut self) {
        if let Some(knock) = &self.knock {
            // a knock that waits already is enough
            knock.try_send(()).ok();
        }
    }

    fn wanted(&self, key: &ObjectKey) -> Option<Wanted> {
        match self.desired.get(key)? {
            (Shared::Pod(pod), file) => Some(Wanted { pod: pod.clone(), source: file.into() }),
            _ => None,
        }
    }

    /// Pods of the last run that no file names, now that it is known that none does. The others wait for their source.
    fn unwanted_leftovers(&mut self) -> Vec<(String, Option<Wanted>)> {
        let desired = &self.desired;
        let mut unwanted = Vec::new();
        self.leftovers.retain(|(key, source)| {
            let is_address = source.starts_with("http://") || source.starts_with("https://");
            let kind = if is_address { SourceKind::Http } else { SourceKind::File };
            let is_wanted = desired.get(key).is_some();
            let goes = !is_wanted && desired.may_remove(kind, source);
            if goes {
                unwanted.push((key.full_name(), None));
            }
            !is_wanted && !goes
        });
        unwanted
    }

    fn set_object(&self, node: &Node, key: &ObjectKey) {
        let mut objects = node.objects.borrow_mut();
        let name = key.full_name();
        match (self.desired.get(key).map(|(object, _)| object), key.kind) {
            (Some(Shared::ConfigMap(map)), _) => {
                objects.config_maps.insert(name, map.clone());
            }
            (Some(Shared::Secret(secret)), _) => {
                objects.secrets.insert(name, secret.clone());
            }
            (_, "ConfigMap") => {
                objects.config_maps.remove(&name);
            }
            (..) => {
                objects.secrets.remove(&name);
            }
        }
    }

    /// Brings the status of files up to date and logs what is new in it.
    fn show(&self, node: &Node, changes: &Changes) {
        let mut shown = node.sources.borrow_mut();
        for file in &changes.files {
            let name = shown_path(file);
            let at = shown.iter().position(|status| status.path == name);
            let Some(status) = self.status(file) else {
                if let Some(at) = at {
                    shown.remove(at);
                }
                continue;
            };
            let before = at.and_then(|at| shown.get(at)).cloned().unwrap_or_default();
            log_new(&before.errors, &status.errors);
            log_new(&before.warnings, &status.warnings);
            match at.and_then(|at| shown.get_mut(at)) {
                Some(slot) => *slot = status,
                None => {
                    let place = shown.partition_point(|other| other.path < status.path);
                    shown.insert(place, status);
                }
            }
        }
        self.show_notes(&mut shown);
    }

    /// Sources as a whole stand before their files, while there is something to say of them.
    fn show_notes(&self, shown: &mut Vec<SourceStatus>) {
        let notes: Vec<&Finding> = self.desired.notes().collect();
        let before: Vec<String> = shown
            .iter()
            .filter(|status| status.is_source)
            .flat_map(|status| status.errors.iter().cloned())
            .collect();
        let now: Vec<String> = notes.iter().map(ToString::to_string).collect();
        log_new(&before, &now);
        shown.retain(|status| !status.is_source);
        for note in notes {
            let status = SourceStatus {
                path: note.file.clone(),
                errors: vec![note.to_string()],
                is_source: true,
                ..SourceStatus::default()
            };
            shown.insert(0, status);
        }
    }

    fn status(&self, file: &FileKey) -> Option<SourceStatus> {
        let status = self.desired.status(file)?;
        let words = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect();
        Some(SourceStatus {
            path: status.name,
            pods: status.objects.iter().filter(|key| key.kind == "Pod").map(ObjectKey::full_name).collect(),
            errors: words(&status.errors),
            warnings: words(&status.warnings),
            is_source: false,
        })
    }
}

fn log_new(before: &[String], now: &[String]) {
    for line in now.iter().filter(|line| !before.contains(line)) {
        log::warn!("{line}");
    }
    if now.is_empty() && !before.is_empty() {
        log::info!(
            "{}: good again",
            before.first().and_then(|line| line.split(": ").next()).unwrap_or_default()
        );
    }
}

/// A ConfigMap or Secret is another one: volumes that show it are made anew, pods that waited for it try again.
fn refresh_users(node: &Rc<Node>, key: &ObjectKey) {
    let users: Vec<(Uid, bool)> = {
        let pods = node.pods.borrow();
        let users = pods.entries.values().filter(|entry| uses(&entry.pod, key));
        users.map(|entry| (entry.uid.clone(), entry.runtime.volumes == Step::Ready)).collect()
    };
    for (uid, has_volumes) in users {
        if has_volumes {
            let shared = node.clone();
            node.executor.spawn(async move { refresh_volumes(&shared, &uid).await }).detach();
            continue;
        }
        if let Some(entry) = node.pods.borrow_mut().entries.get_mut(&uid)
            && matches!(entry.runtime.volumes, Step::Waiting { .. })
        {
            entry.runtime.volumes = Step::Todo;
        }
        turn(node, &uid, None);
    }
}

async fn refresh_volumes(node: &Rc<Node>, uid: &Uid) {
    let Some(pod) = node.pods.borrow().entries.get(uid).map(|entry| entry.pod.clone()) else { return };
    match files::prepare(node, &pod).await {
        Ok(volumes) => {
            if let Some(entry) = node.pods.borrow_mut().entries.get_mut(uid) {
                entry.volumes = volumes;
            }
        }
        Err(wait) => {
            log::warn!(pod = full_name(&pod).as_str(); "volumes keep their old content: {}", wait.message)
        }
    }
}

/// Whether a pod names this object in a volume.
fn uses(pod: &Pod, key: &ObjectKey) -> bool {
    if pod.metadata.namespace != key.namespace {
        return false;
    }
    let is_map = key.kind == "ConfigMap";
    pod.spec.volumes.iter().any(|volume| {
        let sources = volume.projected.iter().flat_map(|projected| &projected.sources);
        if is_map {
            volume.config_map.as_ref().is_some_and(|map| map.name == key.name)
                || sources
                    .into_iter()
                    .any(|source| source.config_map.as_ref().is_some_and(|map| map.name == key.name))
        } else {
            volume.secret.as_ref().is_some_and(|secret| secret.secret_name == key.name)
                || sources
                    .into_iter()
                    .any(|source| source.secret.as_ref().is_some_and(|s| s.name == key.name))
        }
    })
}
