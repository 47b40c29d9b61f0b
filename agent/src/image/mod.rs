//! Image store: content-addressed layers, load, pack, unpack.
//!
//! [`ImageStore`] is the node loop's view: async, with the blocking work on a few threads. [`store::Store`] is
//! the same for programs that block anyway.

mod content;
pub mod digest;
pub mod error;
pub mod load;
pub mod name;
pub mod oci;
pub mod pack;
mod pick;
pub mod progress;
pub mod rootfs;
pub mod store;
pub mod tar_stream;
mod tree;
pub mod unpack;
pub mod user;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use podkeep_core::image::PullPolicy;
use smol::lock::Semaphore;

pub use digest::Digest;
pub use error::ImageError;
pub use name::ImageName;
pub use oci::ImageConfig;
pub use progress::{Progress, Step};
pub use store::{ImageRecord, ImageSummary, Origin, Store};
pub use user::{ResolvedUser, resolve_user};

/// Loads and pulls at the same time: each holds a thread and a decompressor.
const PARALLEL: usize = 2;

/// The store for async callers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ImageStore {
    store: Store,
    working: Arc<Semaphore>,
}

impl ImageStore {
    /// Opens `state_dir/images`, made when missing.
    pub async fn open(state_dir: &Path) -> Result<Self, ImageError> {
        let state_dir = state_dir.to_owned();
        let store = smol::unblock(move || Store::open(&state_dir)).await?;
        Ok(Self::from(store))
    }

    /// The image of `name`, if it is complete. A few small reads: 0.1 ms.
    pub fn get(&self, name: &str) -> Result<Option<ImageRecord>, ImageError> {
        self.store.get(name)
    }

    /// The image of `name`, fetched if `policy` asks for it.
    pub async fn ensure(
        &self,
        name: &str,
        policy: PullPolicy,
        progress: Arc<Progress>,
    ) -> Result<ImageRecord, ImageError> {
        progress.check()?;
        let found = self.store.get(name)?;
        match (policy, found) {
            (PullPolicy::Never | PullPolicy::IfNotPresent, Some(record)) => Ok(record),
            _ => Err(ImageError::NotFound { name: name.to_owned() }),
        }
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
        smol::unblock(move || load::load(&store, &path, name.as_deref(), &progress)).await
    }

    /// Removes a name, or an image by id; see [`Store::remove`].
    pub async fn remove(&self, name: &str, in_use: BTreeSet<String>) -> Result<Vec<String>, ImageError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        smol::unblock(move || store.remove(&name, &in_use)).await
    }

    pub async fn list(&self) -> Result<Vec<ImageSummary>, ImageError> {
        let store = self.store.clone();
        smol::unblock(move || store.list()).await
    }

    /// The blocking store below.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl From<Store> for ImageStore {
    fn from(store: Store) -> Self {
        Self { store, working: Arc::new(Semaphore::new(PARALLEL)) }
    }
}
