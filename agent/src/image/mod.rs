//! Image store: content-addressed layers, load, pack, unpack.
//!
//! [`ImageStore`] is the node loop's view: async, with the blocking work on a few threads. [`store::Store`] is
//! the same for programs that block anyway.

pub mod access;
pub mod auth;
pub mod bake;
mod content;
pub mod digest;
pub mod error;
pub mod load;
pub mod name;
pub mod oci;
pub mod pack;
mod pick;
pub mod progress;
pub mod provider;
pub mod pull;
pub mod registry;
pub mod rootfs;
pub mod store;
pub mod tar_stream;
pub(crate) mod tls;
mod tree;
pub mod unpack;
pub mod user;
#[cfg(feature = "zstd")]
mod zstd;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use podkeep_core::image::PullPolicy;
use smol::lock::Semaphore;

pub use auth::{Credential, Keyring};
pub use digest::Digest;
pub use error::ImageError;
pub use name::ImageName;
pub use oci::ImageConfig;
pub use progress::{Progress, Step};
pub use registry::{RegistryEntry, RegistrySettings};
pub use store::{ImageRecord, ImageSummary, Origin, Store};
pub use user::{ResolvedUser, resolve_user};

/// Loads and pulls at the same time: each holds a thread and a decompressor.
const PARALLEL: usize = 2;

/// The store for async callers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ImageStore {
    store: Store,
    /// layouts and archives whose images are loaded when they are first wanted
    preloads: Arc<Vec<PathBuf>>,
    settings: Arc<RegistrySettings>,
    working: Arc<Semaphore>,
}

impl ImageStore {
    /// Opens `state_dir/images`, made when missing.
    pub async fn open(state_dir: &Path) -> Result<Self, ImageError> {
        let state_dir = state_dir.to_owned();
        let store = crate::offload::run(move || Store::open(&state_dir)).await?;
        Ok(Self::from(store))
    }

    /// The same with registries to pull from, at most `parallel` pulls and loads at once
    /// (`maxParallelImagePulls`; 1 with `serializeImagePulls`).
    #[must_use]
    pub fn with_registries(self, settings: RegistrySettings, parallel: usize) -> Self {
        let working = Arc::new(Semaphore::new(parallel.max(1)));
        Self { settings: Arc::new(settings), working, ..self }
    }

    /// Adds what the firmware brings: folders made by `image bake`, used in place; OCI layouts, archives and
    /// folders of them, loaded when one of their images is first wanted and not in the store. A folder that is
    /// missing or damaged is passed over with a warning: the rest of the node goes on.
    #[must_use]
    pub fn with_preloads(mut self, paths: &[PathBuf]) -> Self {
        let mut preloads = Vec::new();
        for path in paths {
            if !store::is_baked(path) {
                preloads.push(path.clone());
                continue;
            }
            match self.store.clone().with_baked(path) {
                Ok(store) => self.store = store,
                Err(error) => log::warn!("images of the firmware: {error}"),
            }
        }
        self.preloads = Arc::new(preloads);
        self
    }

    /// The image of `name` for a pod with these pull secrets: of the store, or loaded from the firmware's archives.
    /// `None`: it has to be pulled, also if it is here by credentials that this pod does not have.
    pub async fn find(
        &self,
        name: &str,
        secrets: &Keyring,
        progress: &Arc<Progress>,
    ) -> Result<Option<ImageRecord>, ImageError> {
        let found = match self.store.get(name)? {
            None if self.preload(name, progress).await? => self.store.get(name)?,
            found => found,
        };
        match found {
            Some(record) if self.may_use(&record, name, secrets)? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    fn may_use(&self, record: &ImageRecord, name: &str, secrets: &Keyring) -> Result<bool, ImageError> {
        // an id names no repository: whoever knows it was given it
        if name.starts_with("sha256:") || Digest::from_hex(name).is_some() {
            return Ok(true);
        }
        access::may_use(&self.store, &self.settings.verify, &record.id, &ImageName::parse(name)?, secrets)
    }

    /// The image of `name`, if it is complete: a few small reads, no network.
    pub fn get(&self, name: &str) -> Result<Option<ImageRecord>, ImageError> {
        self.store.get(name)
    }

    /// The image of `name`, pulled if `policy` asks for it. `secrets`: the pod's image pull secrets.
    pub async fn ensure(
        &self,
        name: &str,
        policy: PullPolicy,
        secrets: &Keyring,
        progress: Arc<Progress>,
    ) -> Result<ImageRecord, ImageError> {
        let missing = || ImageError::NotFound { name: name.to_owned() };
        let found = self.find(name, secrets, &progress).await?;
        match (policy, found) {
            (PullPolicy::Never | PullPolicy::IfNotPresent, Some(record)) => Ok(record),
            (PullPolicy::Never, None) => Err(missing()),
            (PullPolicy::IfNotPresent | PullPolicy::Always, _) => {
                self.pull(name, policy, secrets.clone(), progress).await?;
                self.store.get(name)?.ok_or_else(missing)
            }
        }
    }

    /// Loads `name` from the preloads that state it.
    async fn preload(&self, name: &str, progress: &Arc<Progress>) -> Result<bool, ImageError> {
        if self.preloads.is_empty() {
            return Ok(false);
        }
        let wanted = ImageName::parse(name)?;
        let _turn = self.working.acquire_arc().await;
        let (store, preloads, progress) =
            (self.store.clone(), Arc::clone(&self.preloads), Arc::clone(progress));
        crate::offload::run(move || {
            for path in preloads.iter().flat_map(|path| load::sources_in(path)) {
                match load::holds(&path, &wanted) {
                    Ok(false) => {}
                    Ok(true) => {
                        load::load(&store, &path, Some(&wanted.to_string()), &progress)?;
                        return Ok(true);
                    }
                    // a damaged archive hides no other one
                    Err(error) => log::warn!("images of the firmware: \"{}\": {error}", path.display()),
                }
            }
            Ok(false)
        })
        .await
    }

    /// Pulls; with `IfNotPresent` only if nobody else did while this call waited for its turn.
    pub async fn pull(
        &self,
        name: &str,
        policy: PullPolicy,
        secrets: Keyring,
        progress: Arc<Progress>,
    ) -> Result<(), ImageError> {
        let _turn = self.working.acquire_arc().await;
        if policy != PullPolicy::Always
            && let Some(record) = self.store.get(name)?
            && self.may_use(&record, name, &secrets)?
        {
            return Ok(());
        }
        let (store, settings, name) = (self.store.clone(), Arc::clone(&self.settings), name.to_owned());
        crate::offload::run(move || {
            progress.check()?;
            pull::pull(&store, &settings, &name, &secrets, &progress)
        })
        .await
    }

    /// Loads an image of a layout folder or archive; see [`load::load`].
    pub async fn load(
        &self,
        path: PathBuf,
        name: Option<String>,
        progress: Arc<Progress>,
    ) -> Result<Vec<String>, ImageError> {
        let _turn = self.working.acquire_arc().await;
        let store = self.store.clone();
        crate::offload::run(move || load::load(&store, &path, name.as_deref(), &progress)).await
    }

    /// Removes a name, or an image by id; see [`Store::remove`].
    pub async fn remove(&self, name: &str, in_use: BTreeSet<String>) -> Result<Vec<String>, ImageError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        crate::offload::run(move || store.remove(&name, &in_use)).await
    }

    pub async fn list(&self) -> Result<Vec<ImageSummary>, ImageError> {
        let store = self.store.clone();
        crate::offload::run(move || store.list()).await
    }

    /// The blocking store below.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl From<Store> for ImageStore {
    fn from(store: Store) -> Self {
        Self {
            store,
            preloads: Arc::default(),
            settings: Arc::default(),
            working: Arc::new(Semaphore::new(PARALLEL)),
        }
    }
}
