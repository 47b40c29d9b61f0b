//! Manifests of a folder, or one file, told as they change. Rules: docs/decisions/0011-manifest-folder.md.
//!
//! Nothing is read in intervals: inotify and the mount table say when to look. Only where they cannot tell (no watch to
//! be had, a network file system) the folder is listed every `rescan`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_io::Timer;
use podkeep_core::desired::{FileKey, Finding, SourceKind, SourceUpdate};
use smol::channel::{Receiver, Sender};
use smol::future::{FutureExt, pending};

use super::Judge;
use super::entry::{Entry, Examined};
use super::look::Stamp;
use super::node::display_path;
use super::settle::{Seen, Settle};
use super::watch::{Change, MountTable, Watches, is_manifest_name, place};

/// How a folder is watched.
#[derive(Clone)]
pub struct DirOptions {
    /// folder or file, absolute
    pub path: PathBuf,
    /// how long a file that is rewritten in place must be left alone
    pub quiet: Duration,
    /// how often to list the folder where changes cannot be waited for; zero: never
    pub rescan: Duration,
    pub judge: Arc<Judge>,
}

/// The source. [`DirSource::run`] is its life.
pub struct DirSource {
    options: DirOptions,
    /// by name in the folder
    files: BTreeMap<OsString, Entry>,
    /// names of files that a look is due for
    waiting: BTreeSet<OsString>,
    /// the one file, where the path names a file
    single: Option<OsString>,
    /// the folder without links; `None` while it is missing
    folder: Option<PathBuf>,
    /// device and inode of it
    place: Option<(u64, u64)>,
    notes: Vec<Finding>,
    complete: bool,
    /// it was when it was looked for first
    was_missing: bool,
    /// when the first listing counts as all there is: a folder that was missing may be filled just now
    complete_at: Option<Instant>,
    /// something to tell besides files
    news: bool,
    /// a wish to look at everything again
    knocks: Receiver<()>,
}

/// Why the source woke up.
enum Wake {
    Changes(io::Result<Vec<Change>>),
    /// other things may stand at the paths, by a mount or as somebody says
    Moved,
    Due,
}

impl DirSource {
    /// The source, and a way to make it look at everything again.
    pub fn new(mut options: DirOptions) -> (Self, Sender<()>) {
        if let Ok(path) = std::path::absolute(&options.path) {
            options.path = path;
        }
        let (knock, knocks) = smol::channel::bounded(1);
        let source = DirSource {
            knocks,
            options,
            files: BTreeMap::new(),
            waiting: BTreeSet::new(),
            single: None,
            folder: None,
            place: None,
            notes: Vec::new(),
            complete: false,
            complete_at: None,
            was_missing: false,
            news: true,
        };
        (source, knock)
    }

    /// Tells every change; ends when nobody listens.
    pub async fn run(mut self, to: Sender<SourceUpdate>) {
        let mounts = MountTable::open();
        loop {
            let watches = self.look_around(Instant::now(), mounts.as_ref().err());
            let blind = self.rescan_after(watches.as_ref(), mounts.is_err());
            let listed = Instant::now();
            loop {
                let update = self.due_looks(Instant::now());
                if let Some(update) = update
                    && to.send(update).await.is_err()
                {
                    return;
                }
                let rescan = blind.map(|after| listed + after);
                if rescan.is_some_and(|at| at <= Instant::now()) {
                    break;
                }
                let wake = self.wait(watches.as_ref(), mounts.as_ref().ok(), self.next_due(rescan)).await;
                if self.is_stale(wake, watches.as_ref()) {
                    break;
                }
            }
        }
    }

    async fn wait(
        &self,
        watches: Option<&Watches>,
        mounts: Option<&MountTable>,
        due: Option<Instant>,
    ) -> Wake {
        let changes = async {
            match watches {
                Some(watches) => Wake::Changes(watches.changes().await),
                None => pending().await,
            }
        };
        let mounted = async {
            match mounts {
                Some(mounts) if mounts.changed(|| self.leads_elsewhere(watches)).await.is_ok() => Wake::Moved,
                _ => pending().await,
            }
        };
        let timer = async {
            match due {
                Some(due) => {
                    Timer::at(due).await;
                    Wake::Due
                }
                None => pending().await,
            }
        };
        let knocked = async {
            match self.knocks.recv().await {
                Ok(()) => Wake::Moved,
                Err(_) => pending().await,
            }
        };
        changes.or(mounted).or(timer).or(knocked).await
    }

    /// Takes a wake-up in; true when paths lead elsewhere and everything has to be looked at again.
    fn is_stale(&mut self, wake: Wake, watches: Option<&Watches>) -> bool {
        match wake {
            Wake::Due => false,
            Wake::Moved => true,
            Wake::Changes(Err(_)) => true,
            Wake::Changes(Ok(changes)) => {
                let now = Instant::now();
                let mut stale = false;
                for change in changes {
                    stale |= match change {
                        Change::Structure => true,
                        Change::Name(name, seen) => self.event(name, seen, now),
                        Change::Target(name, seen) => {
                            let elsewhere =
                                self.folder.as_ref().zip(watches).is_some_and(|(folder, watches)| {
                                    matches!(seen, Seen::Created | Seen::Placed)
                                        && watches.leads_elsewhere(folder, &name)
                                });
                            self.expect_look(name, seen, now);
                            elsewhere
                        }
                    };
                }
                stale
            }
        }
    }

    /// Takes in what happened to a name in the folder; true when links have to be traced anew.
    fn event(&mut self, name: OsString, seen: Seen, now: Instant) -> bool {
        if !self.is_ours(&name) {
            return false;
        }
        if matches!(seen, Seen::Created | Seen::Placed) {
            let kind = self.path_of(&name).and_then(|path| path.symlink_metadata().ok());
            let single = self.single.is_some();
            if kind.is_some_and(|kind| kind.is_symlink() || (single && kind.is_dir())) {
                // looked at while it is traced
                return true;
            }
        }
        let known = self.files.contains_key(&name);
        if known || !matches!(seen, Seen::Deleted | Seen::Gone | Seen::Attributes) {
            self.expect_look(name, seen, now);
        }
        false
    }

    fn expect_look(&mut self, name: OsString, seen: Seen, now: Instant) {
        let entry = self.files.entry(name.clone()).or_default();
        entry.settle.event(seen, entry.precious, now, self.options.quiet);
        self.waiting.insert(name);
    }

    fn is_ours(&self, name: &OsStr) -> bool {
        match &self.single {
            Some(single) => single == name,
            None => is_manifest_name(name),
        }
    }

    fn path_of(&self, name: &OsStr) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// Makes all watches anew and lists the folder.
    fn look_around(&mut self, now: Instant, no_mounts: Option<&io::Error>) -> Option<Watches> {
        let before = std::mem::take(&mut self.notes);
        if let Some(error) = no_mounts {
            self.note(format!("mounts are not noticed: {error}"), "listing in intervals");
        }
        let (folder, single) = self.split_path();
        self.single = single;
        self.place = place(&folder);
        let watches = match Watches::of_folder(&folder) {
            Ok((mut watches, end)) => {
                self.folder = end.filter(|end| end.is_dir());
                self.list(&mut watches, now);
                if let Some(errno) = watches.failure {
                    self.note(format!("changes are not noticed: {}", errno.desc()), "listing in intervals");
                }
                Some(watches)
            }
            Err(error) => {
                self.folder = folder.canonicalize().ok();
                self.note(format!("changes are not noticed: {error}"), "listing in intervals");
                None
            }
        };
        self.news |= before != self.notes;
        watches
    }

    /// Folder, and the one file if the path means a file: it is one, was one, or has the name of one and is missing.
    fn split_path(&self) -> (PathBuf, Option<OsString>) {
        let path = &self.options.path;
        let is_file = match path.metadata() {
            Ok(metadata) => !metadata.is_dir(),
            Err(_) => self.single.is_some() || path.file_name().is_some_and(is_manifest_name),
        };
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) if is_file => (folder.to_path_buf(), Some(name.to_os_string())),
            _ => (path.clone(), None),
        }
    }

    fn list(&mut self, watches: &mut Watches, now: Instant) {
        let Some(folder) = self.folder.clone() else {
            // a missing folder says nothing of its files: they stay as they were
            let hint = if self.complete { "pods stay as they are until it is back" } else { "" };
            self.was_missing = true;
            self.complete_at = None;
            return self.note("the folder does not exist".to_string(), hint);
        };
        let names = match self.names(&folder) {
            Ok(names) => names,
            Err(error) => return self.note(format!("cannot be listed: {error}"), ""),
        };
        for name in names.iter().cloned() {
            let path = folder.join(&name);
            if path.is_symlink() {
                watches.of_link(&folder, &name);
            }
            let found = path.metadata().ok().map(|metadata| Stamp::of(&metadata));
            match (self.files.get(&name).and_then(|entry| entry.stamp), found) {
                (Some(known), Some(found)) if known == found => {}
                // another file stands there: it was put there whole
                (Some(known), Some(found)) if (known.device, known.inode) == (found.device, found.inode) => {
                    self.expect_look(name, Seen::Listed, now);
                }
                // the first listing tells of every file, also of a broken one: its old pod must not seem unwanted
                _ if !self.complete => self.expect_look(name, Seen::Listed, now),
                _ => self.expect_look(name, Seen::Placed, now),
            }
        }
        let gone: Vec<OsString> = self.files.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            self.expect_look(name, Seen::Gone, now);
        }
        if !self.complete {
            let wait = if self.was_missing { self.options.quiet } else { Duration::ZERO };
            self.complete_at.get_or_insert(now + wait);
        }
    }

    fn names(&self, folder: &Path) -> io::Result<BTreeSet<OsString>> {
        if let Some(single) = &self.single {
            let exists = folder.join(single).symlink_metadata().is_ok();
            return Ok(exists.then(|| single.clone()).into_iter().collect());
        }
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            if is_manifest_name(&name) {
                names.insert(name);
            }
        }
        Ok(names)
    }

    fn note(&mut self, message: String, hint: &str) {
        let file = display_path(&self.options.path);
        self.notes.push(Finding { file, message, hint: hint.to_string(), ..Finding::default() });
    }

    /// After how long to list again because changes are not told.
    fn rescan_after(&self, watches: Option<&Watches>, no_mounts: bool) -> Option<Duration> {
        let deaf = watches.is_none_or(|watches| watches.failure.is_some());
        let remote = self.folder.as_ref().is_some_and(|folder| is_remote(folder));
        let needed = deaf || remote || no_mounts;
        (needed && !self.options.rescan.is_zero()).then_some(self.options.rescan)
    }

    /// Whether another folder stands at the path than the one that is watched, or links lead to other files. Asked at
    /// every mount on the machine, so plain files are not looked at one by one.
    fn leads_elsewhere(&self, watches: Option<&Watches>) -> bool {
        let (path, _) = self.split_path();
        if place(&path) != self.place {
            return true;
        }
        let folder = self.folder.as_ref();
        folder.zip(watches).is_some_and(|(folder, watches)| watches.any_link_moved(folder))
    }

    fn next_due(&self, rescan: Option<Instant>) -> Option<Instant> {
        let due = self.waiting.iter().filter_map(|name| self.files.get(name)?.settle.due());
        due.chain(rescan).chain(self.complete_at).min()
    }

    /// Looks at all files whose time has come.
    fn due_looks(&mut self, now: Instant) -> Option<SourceUpdate> {
        let (judge, quiet) = (Arc::clone(&self.options.judge), self.options.quiet);
        let mut files = Vec::new();
        let mut removed = Vec::new();
        for name in std::mem::take(&mut self.waiting) {
            let Some(entry) = self.files.get_mut(&name) else { continue };
            match (&self.folder, entry.settle.due()) {
                (_, None) => continue,
                // while the folder is missing nothing can be learned of its files
                (None, Some(_)) => {
                    entry.settle = Settle::default();
                    continue;
                }
                (Some(_), Some(due)) if due > now => {}
                (Some(folder), Some(_)) => {
                    let path = folder.join(&name);
                    let key = file_key(&self.options.path, self.single.is_some(), &name);
                    match entry.examine(&path, &key, &*judge, quiet, now) {
                        Examined::Nothing => {}
                        Examined::Report(report) => files.push(report),
                        Examined::Gone => {
                            if self.files.remove(&name).is_some_and(|entry| entry.told) {
                                removed.push(key);
                            }
                            continue;
                        }
                    }
                }
            }
            if self.files.get(&name).is_some_and(|entry| entry.settle.due().is_some()) {
                self.waiting.insert(name);
            }
        }
        if self.complete_at.is_some_and(|at| at <= now) {
            self.complete_at = None;
            self.news |= !self.complete;
            self.complete = true;
        }
        if files.is_empty() && removed.is_empty() && !self.news {
            return None;
        }
        self.news = false;
        let (notes, complete) = (self.notes.clone(), self.complete);
        Some(SourceUpdate { source: SourceKind::File, files, removed, notes, complete })
    }
}

/// A file is known by the path it was asked for under, whatever that leads to.
fn file_key(path: &Path, single: bool, name: &OsStr) -> FileKey {
    let whole = if single { path.to_path_buf() } else { path.join(name) };
    FileKey { source: SourceKind::File, path: whole.into_os_string().into_vec() }
}

/// File systems whose changes may be made by another machine, which inotify does not see.
fn is_remote(folder: &Path) -> bool {
    /// NFS, SMB, CIFS, SMB2, FUSE (and virtiofs), 9p, Ceph, AFS (statfs(2))
    const REMOTE: [u64; 8] =
        [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f];
    let Ok(found) = nix::sys::statfs::statfs(folder) else { return false };
    // the type has another width and sign on every target
    let kind = i128::from(found.filesystem_type().0) & 0xffff_ffff;
    REMOTE.iter().any(|magic| i128::from(*magic) == kind)
}

#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;
