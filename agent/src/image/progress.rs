//! How far a load or pull has come, and the way to stop it.

use std::io::{self, Read};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::error::ImageError;

/// A moment of a load or pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// layers of the image
    pub layers: usize,
    /// layers done, or found in the store
    pub layers_done: usize,
    /// stored bytes read so far
    pub bytes: u64,
    /// stored bytes of all layers that are not in the store; 0: unknown
    pub bytes_total: u64,
}

type Listener = Box<dyn Fn(&Step) + Send + Sync>;

/// Shared by the worker and whoever watches.
pub struct Progress {
    step: Mutex<Step>,
    listener: Option<Listener>,
    cancelled: Mutex<bool>,
    stop: Condvar,
}

/// The listener hears of this many bytes at once.
const REPORT_EVERY: u64 = 256 * 1024;

impl Default for Progress {
    fn default() -> Self {
        Self { step: Mutex::default(), listener: None, cancelled: Mutex::default(), stop: Condvar::new() }
    }
}

impl Progress {
    /// `listener` is called on the worker's thread, at every layer and every 256 KiB; it must not block.
    #[must_use]
    pub fn with_listener(listener: Listener) -> Self {
        Self { listener: Some(listener), ..Self::default() }
    }

    /// Asks the worker to stop at its next read. What is complete stays.
    pub fn cancel(&self) {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn step(&self) -> Step {
        self.step.lock().map_or_else(|poisoned| poisoned.into_inner().clone(), |step| step.clone())
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Step)) {
        let step = {
            let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut step);
            step.clone()
        };
        if let Some(listener) = &self.listener {
            listener(&step);
        }
    }

    pub(crate) fn check(&self) -> Result<(), ImageError> {
        if self.is_cancelled() { Err(ImageError::Cancelled) } else { Ok(()) }
    }

    /// Waits before another attempt, unless the work is cancelled meanwhile.
    pub(crate) fn pause(&self, length: Duration) -> Result<(), ImageError> {
        let cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.stop.wait_timeout_while(cancelled, length, |cancelled| !*cancelled);
        drop(waited);
        self.check()
    }

    /// A reader whose bytes are counted here.
    pub(crate) fn watch<R>(&self, inner: R) -> Watched<'_, R> {
        Watched { inner, progress: self, unreported: 0 }
    }
}

/// Counts bytes, and ends with an error when the work is cancelled.
pub(crate) struct Watched<'a, R> {
    inner: R,
    progress: &'a Progress,
    unreported: u64,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        let count = self.inner.read(buffer)?;
        self.unreported = self.unreported.saturating_add(count as u64);
        if self.unreported >= REPORT_EVERY || count == 0 {
            let bytes = std::mem::take(&mut self.unreported);
            self.progress.update(|step| step.bytes = step.bytes.saturating_add(bytes));
        }
        Ok(count)
    }
}
