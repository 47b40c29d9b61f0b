//! Files that change all at once under a running container, laid out as the kubelet does.
//!
//! ```text
//! <volume>/..data       -> ..k3Rt5a        exchanged by rename: readers see the old or the new set, never a mixture
//! <volume>/..k3Rt5a/a/b                    the files
//! <volume>/a            -> ..data/a        one link for each first part of a path
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::unistd::{Gid, mkdtemp};

use super::error::{VolumeError, errno};
use super::payload::{File, Payload};
use super::{Context, empty_dir};

/// One writer at a time: a start and a refresh of the same pod would sweep each other's new set.
static WRITING: Mutex<()> = Mutex::new(());

const LINK: &str = "..data";
const NEW_LINK: &str = "..data_tmp";
/// Mode of the volume's folder: the content is the agent's.
const FOLDER: u32 = 0o755;
/// `fsGroup` may read files, and enter folders that hand the group down.
const GROUP_FILE: u32 = 0o440;
const GROUP_FOLDER: u32 = 0o2550;

/// Brings the files of a volume on disk up to date.
pub(super) fn volume(
    ctx: &Context<'_>,
    kind: &str,
    name: &str,
    payload: &Payload,
) -> Result<PathBuf, VolumeError> {
    let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = ctx.dir(kind, name);
    empty_dir::on_disk(ctx, name, &dir, FOLDER)?;
    Writer { volume: name, dir: &dir, group: ctx.fs_group() }.write(payload)?;
    Ok(dir)
}

/// The same in memory, so that secrets never reach a disk.
pub(super) fn volume_in_memory(
    ctx: &Context<'_>,
    kind: &str,
    name: &str,
    payload: &Payload,
) -> Result<PathBuf, VolumeError> {
    let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = ctx.dir(kind, name);
    empty_dir::in_memory(ctx, name, &dir, empty_dir::memory_size(ctx, None), FOLDER)?;
    Writer { volume: name, dir: &dir, group: ctx.fs_group() }.write(payload)?;
    Ok(dir)
}

struct Writer<'a> {
    volume: &'a str,
    dir: &'a Path,
    group: Option<u32>,
}

impl Writer<'_> {
    fn failed<'b>(
        &'b self,
        step: &'static str,
        path: &'b Path,
    ) -> impl FnOnce(std::io::Error) -> VolumeError + 'b {
        move |e| VolumeError::system(self.volume, step, path)(errno(&e))
    }

    fn write(&self, payload: &Payload) -> Result<(), VolumeError> {
        payload.keys().try_for_each(|path| self.check(path))?;
        let payload = self.with_group(payload);
        let link = self.dir.join(LINK);
        let old = fs::read_link(&link).ok();
        if old.as_ref().is_some_and(|old| found(&self.dir.join(old)).is_some_and(|files| files == payload)) {
            return self.link_names(&payload);
        }
        let new = mkdtemp(&self.dir.join("..XXXXXX")).map_err(VolumeError::system(
            self.volume,
            "make folder",
            self.dir,
        ))?;
        if let Err(error) = self.fill(&new, &payload).and_then(|()| self.exchange(&new, &link)) {
            fs::remove_dir_all(&new).ok();
            return Err(error);
        }
        self.link_names(&payload)?;
        self.sweep(&new)
    }

    /// Paths stay inside, and names that begin with two dots are ours.
    fn check(&self, path: &str) -> Result<(), VolumeError> {
        let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
        let long = path.len() > 4096 || path.split('/').any(|part| part.len() > 255);
        if path.is_empty() || !plain || long || path.starts_with("..") || path.contains('\0') {
            return Err(VolumeError::FileName { volume: self.volume.to_owned(), path: path.to_owned() });
        }
        Ok(())
    }

    fn with_group(&self, payload: &Payload) -> Payload {
        let extra = if self.group.is_some() { GROUP_FILE } else { 0 };
        let file = |(path, file): (&String, &File)| {
            (path.clone(), File { data: file.data.clone(), mode: file.mode | extra })
        };
        payload.iter().map(file).collect()
    }

    fn fill(&self, new: &Path, payload: &Payload) -> Result<(), VolumeError> {
        self.own(new, FOLDER, GROUP_FOLDER)?;
        for (path, file) in payload {
            let path = new.join(path);
            self.make_parents(new, &path)?;
            let mut made = OpenOptions::new();
            let mut made = made
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(self.failed("make", &path))?;
            made.write_all(&file.data).map_err(self.failed("write", &path))?;
            drop(made);
            self.own(&path, file.mode, 0)?;
        }
        Ok(())
    }

    fn make_parents(&self, top: &Path, file: &Path) -> Result<(), VolumeError> {
        let mut missing: Vec<&Path> =
            file.ancestors().skip(1).take_while(|p| *p != top).filter(|p| !p.is_dir()).collect();
        missing.reverse();
        for dir in missing {
            DirBuilder::new().mode(0o700).create(dir).map_err(self.failed("make folder", dir))?;
            self.own(dir, FOLDER, GROUP_FOLDER)?;
        }
        Ok(())
    }

    /// Group first: changing it takes setgid away.
    fn own(&self, path: &Path, mode: u32, for_group: u32) -> Result<(), VolumeError> {
        let mut mode = mode;
        if let Some(group) = self.group {
            let owned = nix::unistd::chown(path, None, Some(Gid::from_raw(group)));
            owned.map_err(VolumeError::system(self.volume, "set the group of", path))?;
            mode |= for_group;
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(self.failed("set the mode of", path))
    }

    fn exchange(&self, new: &Path, link: &Path) -> Result<(), VolumeError> {
        let temporary = self.dir.join(NEW_LINK);
        let target = new.file_name().unwrap_or_default();
        match fs::remove_file(&temporary) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(self.failed("remove", &temporary)(e)),
            _ => {}
        }
        symlink(target, &temporary).map_err(self.failed("link", &temporary))?;
        fs::rename(&temporary, link).map_err(self.failed("exchange", link))
    }

    /// One link for each first part of a path; those of files that are gone go, too.
    fn link_names(&self, payload: &Payload) -> Result<(), VolumeError> {
        let wanted: BTreeSet<&str> = payload.keys().filter_map(|p| p.split('/').next()).collect();
        for name in &wanted {
            let link = self.dir.join(name);
            let target = Path::new(LINK).join(name);
            if fs::read_link(&link).is_ok_and(|t| t == target) {
                continue;
            }
            fs::remove_file(&link).ok();
            symlink(&target, &link).map_err(self.failed("link", &link))?;
        }
        for name in self.names()? {
            let text = name.to_string_lossy();
            if !text.starts_with("..") && !wanted.contains(text.as_ref()) {
                let path = self.dir.join(&name);
                fs::remove_file(&path).map_err(self.failed("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Sets that are not the current one: the last, and what a crash left.
    fn sweep(&self, current: &Path) -> Result<(), VolumeError> {
        for name in self.names()? {
            let path = self.dir.join(&name);
            let text = name.to_string_lossy();
            if text.starts_with("..") && text != LINK && path != current && path.is_dir() {
                fs::remove_dir_all(&path).map_err(self.failed("remove", &path))?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<OsString>, VolumeError> {
        let entries = fs::read_dir(self.dir).map_err(self.failed("list", self.dir))?;
        Ok(entries.filter_map(Result::ok).map(|e| e.file_name()).collect())
    }
}

/// The files of a set, by path; `None` when something cannot be read.
fn found(set: &Path) -> Option<Payload> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(set.to_owned(), String::new())];
    while let Some((dir, prefix)) = folders.pop() {
        for entry in fs::read_dir(&dir).ok()? {
            let entry = entry.ok()?;
            let name = format!("{prefix}{}", entry.file_name().to_str()?);
            let meta = entry.metadata().ok()?;
            if meta.is_dir() {
                folders.push((entry.path(), format!("{name}/")));
            } else {
                let data = fs::read(entry.path()).ok()?;
                files.insert(name, File { data, mode: meta.mode() & 0o777 });
            }
        }
    }
    Some(files)
}
