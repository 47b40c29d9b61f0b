//! The image store on disk.
//!
//! ```text
//! images/
//!   lock                        shared: something is being added; exclusive: clean-up
//!   layers/sha256-<diff id>/    one unpacked layer, shared by all images that have it
//!   layers/sha256-<diff id>.json   its size
//!   configs/sha256-<digest>.json   image configs; the digest is the image's id
//!   manifests/sha256-<digest>.json
//!   access/sha256-<digest>.json    with whose credentials an image was pulled
//!   names/<sha256 of the name>.json   a name and its image: the index, one file a name
//!   tmp/sha256-<diff id>/root/  a layer being unpacked; its folder is locked by who does it
//!   bad/                        files that could not be trusted, set aside
//! ```
//!
//! Nothing is visible half: a layer is unpacked in `tmp`, synced, and renamed into `layers`; config and
//! manifest follow; the name comes last. A power cut leaves a complete image, or layers without a name, which
//! the next attempt uses. What a file says is checked whenever it is read (its name is its digest), and
//! since each name has its own file, a damaged one costs that name only: the rest of the index is what is
//! in the folder.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use podkeep_core::image::Platform;
use serde::{Deserialize, Serialize};

use super::access::AccessFile;
use super::digest::Digest;
use super::error::ImageError;
use super::name::ImageName;
use super::oci::{self, ConfigFile, ImageConfig};
use super::tree;

/// What is known of one image, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// digest of the config
    pub id: Digest,
    /// the name it was found by, made whole
    pub name: String,
    /// digest of the manifest, as registries know it; none for docker-save archives
    pub manifest: Option<Digest>,
    /// unpacked layers, the lowest first; none twice
    pub layers: Vec<PathBuf>,
    pub config: ImageConfig,
    /// bytes of file content in the layers
    pub size: u64,
    /// RFC 3339, as the image states it
    pub created: Option<String>,
    pub pinned: bool,
}

/// One line of `image ls`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageSummary {
    pub id: String,
    pub names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// bytes
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// never removed to make room
    pub pinned: bool,
    /// `loaded`, `pulled` or `baked`
    pub source: Origin,
    /// a part is missing or damaged; empty when all is well
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// How an image came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// from a file: cannot be fetched again, so never removed to make room
    #[default]
    Loaded,
    Pulled,
    /// read-only folder of the firmware
    Baked,
}

/// A name and its image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameFile {
    name: String,
    image: String,
    #[serde(default)]
    manifest: Option<String>,
    #[serde(default)]
    pinned: bool,
    #[serde(default)]
    source: Origin,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct LayerFile {
    bytes: u64,
    entries: u64,
    /// digest of the unpacked tree, of baked layers
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<String>,
}

const NAME_LIMIT: u64 = 16 * 1024;

/// The store. All calls block on the disk.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    /// read-only folders of the same form, used in place
    baked: Vec<PathBuf>,
    platform: Platform,
}

/// Held while something is added: what has no name yet is not cleaned up.
pub(super) struct Adding {
    _lock: Flock<File>,
}

/// A layer that this caller alone may unpack.
pub(super) struct LayerSlot {
    lock: Flock<File>,
    folder: PathBuf,
    diff_id: Digest,
}

impl Store {
    /// Opens the store below `state_dir/images`, made when missing, and drops what a power cut left half done.
    pub fn open(state_dir: &Path) -> Result<Self, ImageError> {
        Self::open_for(state_dir, host_platform())
    }

    /// The same for another machine: `image pack` and tests.
    pub fn open_for(state_dir: &Path, platform: Platform) -> Result<Self, ImageError> {
        Self::at(state_dir.join("images"), platform)
    }

    pub(super) fn at(root: PathBuf, platform: Platform) -> Result<Self, ImageError> {
        let store = Self { root, baked: Vec::new(), platform };
        for folder in ["", "layers", "configs", "manifests", "names", "access", "tmp", "bad"] {
            let path = store.root.join(folder);
            // layers hold setuid programs: nobody but root may reach them
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|e| ImageError::io("make the folder", &path, &e))?;
        }
        store.clean_leftovers()?;
        Ok(store)
    }

    /// Adds a folder that `image bake` made, on a partition that may be read-only. Its images are used in place;
    /// a name of the store itself wins over the same name there.
    pub fn with_baked(mut self, folder: &Path) -> Result<Self, ImageError> {
        if !is_baked(folder) {
            return Err(ImageError::NotAnImage {
                path: folder.to_owned(),
                why: "it is no folder of baked images".to_owned(),
            });
        }
        self.baked.push(folder.to_owned());
        // a folder whose index says what it does not hold is found now, not when a pod needs it
        for entry in self.names_in(folder)? {
            if self.record(entry.clone())?.is_none() {
                let why = format!("image \"{}\" is incomplete there", entry.name);
                return Err(ImageError::Corrupt { path: folder.to_owned(), why });
            }
        }
        Ok(self)
    }

    /// The store's own folder, then the baked ones.
    fn roots(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.root.as_path()).chain(self.baked.iter().map(PathBuf::as_path))
    }

    #[must_use]
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The image of `name`: a name, an id, or `REPOSITORY@DIGEST`. `Ok(None)`: not here, or not complete.
    pub fn get(&self, name: &str) -> Result<Option<ImageRecord>, ImageError> {
        if let Some(id) = Digest::parse(name).ok().or_else(|| Digest::from_hex(name)) {
            return self.by_id(&id, name);
        }
        let parsed = ImageName::parse(name)?;
        let entry = match self.name_file(&parsed.to_string())? {
            Some(entry) => Some(entry),
            None => match parsed.local_alias() {
                Some(alias) => self.name_file(&alias.to_string())?,
                None => None,
            },
        };
        match (entry, parsed.digest) {
            (Some(entry), _) => self.record(entry),
            // the digest alone says what is meant, whatever name it came under
            (None, Some(digest)) => self.by_manifest(&digest, &parsed.to_string()),
            (None, None) => Ok(None),
        }
    }

    fn by_id(&self, id: &Digest, name: &str) -> Result<Option<ImageRecord>, ImageError> {
        if self.small("configs", id)?.is_none() {
            return self.by_manifest(id, name);
        }
        let text = id.to_string();
        let named = self.names()?.into_iter().find(|entry| entry.image == text);
        let unnamed = || NameFile {
            name: name.to_owned(),
            image: text.clone(),
            manifest: None,
            pinned: false,
            source: Origin::Loaded,
        };
        self.record(named.unwrap_or_else(unnamed))
    }

    /// Any name under which this manifest or index came.
    fn by_manifest(&self, digest: &Digest, name: &str) -> Result<Option<ImageRecord>, ImageError> {
        let text = digest.to_string();
        match self.names()?.into_iter().find(|entry| entry.manifest.as_ref() == Some(&text)) {
            Some(entry) => self.record(NameFile { name: name.to_owned(), ..entry }),
            None => Ok(None),
        }
    }

    fn record(&self, entry: NameFile) -> Result<Option<ImageRecord>, ImageError> {
        let id = Digest::parse(&entry.image)?;
        let Some(text) = self.small("configs", &id)? else { return Ok(None) };
        let config: ConfigFile = oci::parse("image config", &text)?;
        let diff_ids = config.diff_ids()?;
        let mut layers = Vec::new();
        let mut size = 0u64;
        for diff_id in distinct(&diff_ids) {
            let Some(path) = self.find_layer(&diff_id) else { return Ok(None) };
            let about = self.layer_file(&diff_id);
            size = size.saturating_add(about.bytes);
            layers.push((path, about.entries));
        }
        // layers of no content cost a mount each
        if layers.iter().any(|(_, entries)| *entries > 0) {
            layers.retain(|(_, entries)| *entries > 0);
        }
        Ok(Some(ImageRecord {
            id,
            name: entry.name,
            manifest: entry.manifest.as_deref().map(Digest::parse).transpose()?,
            layers: layers.into_iter().map(|(path, _)| path).collect(),
            config: config.config,
            size,
            created: config.created,
            pinned: entry.pinned,
        }))
    }

    /// All images, by name.
    pub fn list(&self) -> Result<Vec<ImageSummary>, ImageError> {
        let mut images: Vec<ImageSummary> = Vec::new();
        for entry in self.names()? {
            if let Some(image) = images.iter_mut().find(|image| image.id == entry.image) {
                image.names.push(entry.name);
                image.pinned |= entry.pinned;
                image.manifest = image.manifest.take().or(entry.manifest);
                continue;
            }
            let (size, created, problem) = match self.record(entry.clone()) {
                Ok(Some(record)) => (record.size, record.created, String::new()),
                Ok(None) => (0, None, "incomplete: load or pull it again".to_owned()),
                Err(error) => (0, None, error.to_string()),
            };
            images.push(ImageSummary {
                id: entry.image,
                names: vec![entry.name],
                manifest: entry.manifest,
                size,
                created,
                pinned: entry.pinned,
                source: entry.source,
                problem,
            });
        }
        Ok(images)
    }

    /// Removes a name, or with an id all names of the image; content that nothing else uses goes, too.
    /// `in_use`: ids of the images that containers have.
    pub fn remove(&self, name: &str, in_use: &BTreeSet<String>) -> Result<Vec<String>, ImageError> {
        let missing = || ImageError::NotFound { name: name.to_owned() };
        let id = Digest::parse(name).ok().or_else(|| Digest::from_hex(name)).map(|id| id.to_string());
        let entries = self.names_in(&self.root)?;
        let doomed: Vec<&NameFile> = match &id {
            Some(id) => entries.iter().filter(|entry| entry.image == *id).collect(),
            None => {
                let parsed = ImageName::parse(name)?;
                let alias = parsed.local_alias().map(|alias| alias.to_string());
                let whole = parsed.to_string();
                let exact = entries.iter().find(|entry| entry.name == whole);
                exact
                    .or_else(|| entries.iter().find(|entry| Some(&entry.name) == alias.as_ref()))
                    .into_iter()
                    .collect()
            }
        };
        if doomed.is_empty() && self.get(name)?.is_some() {
            return Err(ImageError::Baked { name: name.to_owned() });
        }
        let image = doomed.first().ok_or_else(missing)?.image.clone();
        let last = doomed.len() == entries.iter().filter(|entry| entry.image == image).count();
        if last && in_use.contains(&image) {
            return Err(ImageError::InUse { name: name.to_owned() });
        }
        let mut removed = Vec::new();
        for entry in doomed {
            let path = self.name_path(&entry.name);
            fs::remove_file(&path).map_err(|e| ImageError::io("remove", &path, &e))?;
            removed.push(entry.name.clone());
        }
        sync_folder(&self.root.join("names"))?;
        self.collect(in_use)?;
        Ok(removed)
    }

    /// Marks a name as never to be removed to make room.
    pub fn set_pinned(&self, name: &str, pinned: bool) -> Result<(), ImageError> {
        let whole = ImageName::parse(name)?.to_string();
        let mut entry = self
            .read_name(&self.name_path(&whole))?
            .ok_or_else(|| ImageError::NotFound { name: name.to_owned() })?;
        entry.pinned = pinned;
        self.write_name(&entry)
    }

    /// Removes configs, manifests and layers that no name and no container has. Skipped while something is
    /// being added. Gives the bytes of file content removed.
    pub fn collect(&self, in_use: &BTreeSet<String>) -> Result<u64, ImageError> {
        let Some(_alone) = self.try_exclusive()? else { return Ok(0) };
        let names = self.names()?;
        let mut keep: BTreeSet<String> = in_use.clone();
        keep.extend(names.iter().map(|entry| entry.image.clone()));
        let mut layers = BTreeSet::new();
        for id in keep.iter().filter_map(|id| Digest::parse(id).ok()) {
            let Some(text) = self.small("configs", &id)? else {
                // its layers are unknown and a container may stand on them: nothing is removed
                if in_use.contains(&id.to_string()) {
                    return Ok(0);
                }
                continue;
            };
            let config: ConfigFile = oci::parse("image config", &text)?;
            layers.extend(config.diff_ids()?.iter().map(Digest::file_name));
        }
        let manifests: BTreeSet<String> = names.into_iter().filter_map(|entry| entry.manifest).collect();
        self.sweep("configs", |digest| keep.contains(&digest.to_string()))?;
        self.sweep("access", |digest| keep.contains(&digest.to_string()))?;
        self.sweep("manifests", |digest| manifests.contains(&digest.to_string()))?;
        let mut freed = 0u64;
        for digest in self.digests("layers")? {
            if layers.contains(&digest.file_name()) {
                continue;
            }
            freed = freed.saturating_add(self.layer_file(&digest).bytes);
            self.drop_layer(&digest)?;
        }
        Ok(freed)
    }

    fn drop_layer(&self, digest: &Digest) -> Result<(), ImageError> {
        // out of sight in one step, then file by file
        let doomed = self.root.join("tmp").join(format!("gone-{}", digest.hex()));
        let path = self.layer_path(digest);
        match fs::rename(&path, &doomed) {
            Ok(()) => remove_tree(&doomed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ImageError::io("remove", &path, &error)),
        }
        remove_if_there(&self.small_path("layers", digest))
    }

    fn sweep(&self, folder: &str, keep: impl Fn(&Digest) -> bool) -> Result<(), ImageError> {
        for digest in self.digests(folder)? {
            if !keep(&digest) {
                remove_if_there(&self.small_path(folder, &digest))?;
            }
        }
        Ok(())
    }

    /// Digests that have a file or folder in `folder`.
    fn digests(&self, folder: &str) -> Result<BTreeSet<Digest>, ImageError> {
        let mut digests = BTreeSet::new();
        for name in file_names(&self.root.join(folder))? {
            let Some(hex) = name.strip_prefix("sha256-") else { continue };
            digests.extend(Digest::from_hex(hex.strip_suffix(".json").unwrap_or(hex)));
        }
        Ok(digests)
    }

    /// Announces that content is being added.
    pub(super) fn begin_adding(&self) -> Result<Adding, ImageError> {
        let lock = self.lock_file(FlockArg::LockShared)?;
        Ok(Adding { _lock: lock })
    }

    fn try_exclusive(&self) -> Result<Option<Flock<File>>, ImageError> {
        match self.lock_file(FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err(ImageError::Io { errno, .. }) if errno == Errno::EWOULDBLOCK as i32 => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock_file(&self, how: FlockArg) -> Result<Flock<File>, ImageError> {
        let path = self.root.join("lock");
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(|e| ImageError::io("open", &path, &e))?;
        Flock::lock(file, how).map_err(|(_, errno)| ImageError::errno("lock", path, errno))
    }

    #[must_use]
    pub(super) fn has_layer(&self, diff_id: &Digest) -> bool {
        self.find_layer(diff_id).is_some()
    }

    fn find_layer(&self, diff_id: &Digest) -> Option<PathBuf> {
        self.roots().map(|root| root.join("layers").join(diff_id.file_name())).find(|path| path.is_dir())
    }

    /// Waits until nobody else unpacks this layer; `None`: it is in the store (by now).
    pub(super) fn layer_slot(&self, diff_id: &Digest) -> Result<Option<LayerSlot>, ImageError> {
        let folder = self.root.join("tmp").join(diff_id.file_name());
        loop {
            if self.has_layer(diff_id) {
                return Ok(None);
            }
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|e| ImageError::io("make the folder", &folder, &e))?;
            let file = File::open(&folder).map_err(|e| ImageError::io("open", &folder, &e))?;
            let lock = Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, errno)| ImageError::errno("lock", &folder, errno))?;
            // who held it may have finished and removed the folder
            if is_same_file(&lock, &folder) && !self.has_layer(diff_id) {
                remove_tree_if_there(&folder.join("root"))?;
                return Ok(Some(LayerSlot { lock, folder, diff_id: *diff_id }));
            }
        }
    }

    /// Makes an unpacked layer visible.
    pub(super) fn commit_layer(&self, slot: LayerSlot, bytes: u64, entries: u64) -> Result<(), ImageError> {
        let about = serde_json::to_vec(&LayerFile { bytes, entries, tree: None }).unwrap_or_default();
        let root = slot.folder.join("root");
        // the content of all files reaches the disk before the name does
        nix::unistd::syncfs(&*slot.lock).map_err(|e| ImageError::errno("sync", &root, e))?;
        self.write_small("layers", &slot.diff_id, &about)?;
        let target = self.layer_path(&slot.diff_id);
        fs::rename(&root, &target).map_err(|e| ImageError::io("rename", &target, &e))?;
        sync_folder(&self.root.join("layers"))?;
        fs::remove_dir(&slot.folder).map_err(|e| ImageError::io("remove", &slot.folder, &e))
    }

    /// Makes an image visible; its layers are complete. The name comes last.
    pub(super) fn commit_image(
        &self,
        name: &ImageName,
        config: (&Digest, &[u8]),
        manifest: Option<(&Digest, &[u8])>,
        source: Origin,
    ) -> Result<(), ImageError> {
        self.write_small("configs", config.0, config.1)?;
        if let Some((digest, text)) = manifest {
            self.write_small("manifests", digest, text)?;
        }
        let before = self.name_file(&name.to_string())?;
        self.write_name(&NameFile {
            name: name.to_string(),
            image: config.0.to_string(),
            manifest: manifest.map(|(digest, _)| digest.to_string()),
            pinned: before.is_some_and(|before| before.pinned),
            source,
        })
    }

    /// With whose credentials an image was pulled; `None`: it was not. What cannot be read gives nobody a right.
    pub(super) fn access(&self, image: &Digest) -> Result<Option<AccessFile>, ImageError> {
        let path = self.small_path("access", image);
        let Some(text) = read_if_there(&path, oci::CONFIG_LIMIT)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&text).unwrap_or_default()))
    }

    pub(super) fn write_access(&self, image: &Digest, access: &AccessFile) -> Result<(), ImageError> {
        self.write_small("access", image, &serde_json::to_vec(access).unwrap_or_default())
    }

    /// All names; one of the store's own folder hides the same name elsewhere.
    fn names(&self) -> Result<Vec<NameFile>, ImageError> {
        let mut names: Vec<NameFile> = Vec::new();
        for root in self.roots() {
            for entry in self.names_in(root)? {
                if names.iter().all(|known| known.name != entry.name) {
                    names.push(entry);
                }
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }

    fn names_in(&self, root: &Path) -> Result<Vec<NameFile>, ImageError> {
        let folder = root.join("names");
        let mut names = Vec::new();
        for file in file_names(&folder)?.iter().filter(|name| name.ends_with(".json")) {
            names.extend(self.read_name(&folder.join(file))?);
        }
        Ok(names)
    }

    fn name_file(&self, name: &str) -> Result<Option<NameFile>, ImageError> {
        for root in self.roots() {
            if let Some(entry) = self.read_name(&root.join("names").join(name_file_name(name)))? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// A damaged file is set aside: it is one name that has to be loaded again.
    fn read_name(&self, path: &Path) -> Result<Option<NameFile>, ImageError> {
        let Some(text) = read_if_there(path, NAME_LIMIT)? else { return Ok(None) };
        let entry = serde_json::from_slice::<NameFile>(&text).ok();
        let entry = entry.filter(|entry| path.file_name() == Some(name_file_name(&entry.name).as_ref()));
        if entry.is_none() {
            self.set_aside(path)?;
        }
        Ok(entry)
    }

    fn write_name(&self, entry: &NameFile) -> Result<(), ImageError> {
        let text = serde_json::to_vec(entry).unwrap_or_default();
        write_durable(&self.name_path(&entry.name), &text)
    }

    /// A file whose name is the digest of its content; damaged: set aside.
    fn small(&self, folder: &str, digest: &Digest) -> Result<Option<Vec<u8>>, ImageError> {
        for root in self.roots() {
            let path = root.join(folder).join(small_name(digest));
            let Some(text) = read_if_there(&path, oci::CONFIG_LIMIT)? else { continue };
            if Digest::of(&text) == *digest {
                return Ok(Some(text));
            }
            self.set_aside(&path)?;
        }
        Ok(None)
    }

    fn write_small(&self, folder: &str, digest: &Digest, text: &[u8]) -> Result<(), ImageError> {
        write_durable(&self.small_path(folder, digest), text)
    }

    fn set_aside(&self, path: &Path) -> Result<(), ImageError> {
        let shown = path.display();
        if !path.starts_with(&self.root) {
            log::warn!("image store: \"{shown}\" is damaged and not used; write the partition again");
            return Ok(());
        }
        log::warn!("image store: \"{shown}\" is damaged and set aside; its image must be loaded again");
        let bad = self.root.join("bad").join(path.file_name().unwrap_or_default());
        match fs::rename(path, &bad) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ImageError::io("set aside", path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Drops temporary files and layers that nobody is working on.
    fn clean_leftovers(&self) -> Result<(), ImageError> {
        let tmp = self.root.join("tmp");
        for name in file_names(&tmp)? {
            let path = tmp.join(&name);
            let Ok(file) = File::open(&path) else { continue };
            // locked: another process is at work there
            if let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                remove_tree(&path)?;
            }
        }
        let Some(_alone) = self.try_exclusive()? else { return Ok(()) };
        for folder in ["layers", "configs", "manifests", "names", "access"] {
            let folder = self.root.join(folder);
            for name in file_names(&folder)?.iter().filter(|name| name.starts_with(TEMPORARY)) {
                remove_if_there(&folder.join(name))?;
            }
        }
        Ok(())
    }

    fn layer_file(&self, diff_id: &Digest) -> LayerFile {
        let read =
            |root: &Path| read_if_there(&root.join("layers").join(small_name(diff_id)), NAME_LIMIT).ok()?;
        let text = self.roots().find_map(read);
        // without the file a layer is taken to have content of unknown size
        let unknown = LayerFile { bytes: 0, entries: 1, tree: None };
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(unknown)
    }

    fn layer_path(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("layers").join(diff_id.file_name())
    }

    fn small_path(&self, folder: &str, digest: &Digest) -> PathBuf {
        self.root.join(folder).join(small_name(digest))
    }

    fn name_path(&self, name: &str) -> PathBuf {
        self.root.join("names").join(name_file_name(name))
    }

    /// Reads all of an image and compares it with the digests that `image bake` wrote. Layers without such a
    /// digest are passed over; gives the number of those compared.
    pub fn verify(&self, image: &ImageRecord) -> Result<usize, ImageError> {
        let mut compared = 0;
        for layer in &image.layers {
            let name = layer.file_name().and_then(|name| name.to_str()?.strip_prefix("sha256-"));
            let about = name.and_then(Digest::from_hex).map(|diff_id| self.layer_file(&diff_id));
            let Some(expected) = about.and_then(|about| about.tree) else { continue };
            let found = super::bake::tree_digest(layer)?.to_string();
            if found != expected {
                return Err(ImageError::DigestMismatch { what: "unpacked layer", expected, found });
            }
            compared += 1;
        }
        Ok(compared)
    }

    /// Ends the making of a baked folder: digests of all trees, and nothing left that only a live store needs.
    pub(super) fn seal(self) -> Result<(), ImageError> {
        for diff_id in self.digests("layers")? {
            let mut about = self.layer_file(&diff_id);
            about.tree = Some(super::bake::tree_digest(&self.layer_path(&diff_id))?.to_string());
            self.write_small("layers", &diff_id, &serde_json::to_vec(&about).unwrap_or_default())?;
        }
        for mut entry in self.names_in(&self.root)? {
            entry.pinned = true;
            self.write_name(&entry)?;
        }
        for folder in ["access", "tmp", "bad"] {
            let path = self.root.join(folder);
            fs::remove_dir(&path).map_err(|e| ImageError::io("remove", &path, &e))?;
        }
        remove_if_there(&self.root.join("lock"))
    }
}

/// Whether a folder has the form of a baked one.
pub(super) fn is_baked(folder: &Path) -> bool {
    ["names", "configs", "layers"].iter().all(|name| folder.join(name).is_dir())
}

fn small_name(digest: &Digest) -> String {
    format!("{}.json", digest.file_name())
}

fn name_file_name(name: &str) -> String {
    format!("{}.json", Digest::of(name.as_bytes()).hex())
}

impl LayerSlot {
    /// The folder to unpack into, new and empty.
    pub(super) fn make_root(&self) -> Result<OwnedFd, ImageError> {
        let root = self.folder.join("root");
        let made = fs::DirBuilder::new().mode(0o755).create(&root);
        made.map_err(|e| ImageError::io("make the folder", &root, &e))?;
        File::open(&root).map(OwnedFd::from).map_err(|e| ImageError::io("open", &root, &e))
    }

    /// Gives up: what was unpacked goes.
    pub(super) fn abandon(self) {
        if let Err(error) = remove_tree(&self.folder) {
            log::warn!("image store: {error}; it is removed at the next start");
        }
        drop(self.lock);
    }
}

/// Overlayfs refuses one folder twice; what lies under its own copy cannot be seen anyway.
fn distinct(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut seen = BTreeSet::new();
    let mut layers: Vec<Digest> = diff_ids.iter().rev().filter(|id| seen.insert(**id)).copied().collect();
    layers.reverse();
    layers
}

/// The machine this program was built for, and the kernel's word for ARM.
#[must_use]
pub fn host_platform() -> Platform {
    let machine = nix::sys::utsname::uname().ok();
    let machine = machine.as_ref().and_then(|names| names.machine().to_str()).unwrap_or_default();
    Platform::from_machine(std::env::consts::ARCH, machine)
}

const TEMPORARY: &str = ".tmp-";

/// Writes a file so that after a power cut it is whole or as before.
fn write_durable(path: &Path, content: &[u8]) -> Result<(), ImageError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = path.parent().unwrap_or(Path::new("."));
    let temporary =
        folder.join(format!("{TEMPORARY}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if let Err(error) = written {
        remove_if_there(&temporary)?;
        return Err(ImageError::io("write", path, &error));
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<(), ImageError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| ImageError::io("sync", folder, &e))
}

fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ImageError::io("open", path, &error)),
    };
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content).map_err(|e| ImageError::io("read", path, &e))?;
    Ok(Some(content))
}

fn remove_if_there(path: &Path) -> Result<(), ImageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ImageError::io("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Removes a file or folder with all it holds.
fn remove_tree(path: &Path) -> Result<(), ImageError> {
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = File::open(parent).map_err(|e| ImageError::io("open", parent, &e))?;
    tree::remove(parent.as_fd(), name.as_bytes())
}

fn remove_tree_if_there(path: &Path) -> Result<(), ImageError> {
    if path.symlink_metadata().is_err() { Ok(()) } else { remove_tree(path) }
}

fn file_names(folder: &Path) -> Result<Vec<String>, ImageError> {
    let entries = fs::read_dir(folder).map_err(|e| ImageError::io("read the folder", folder, &e))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn is_same_file(open: &File, path: &Path) -> bool {
    match (open.metadata(), path.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}
