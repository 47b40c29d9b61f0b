//! The folder into which started programs write the time of their first instruction.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::time::{ClockId, clock_gettime};

use crate::trouble::{Doing, Result, Trouble};

/// Nanoseconds of `CLOCK_BOOTTIME`.
///
/// # Errors
/// The kernel has no such clock.
pub fn now() -> Result<u64> {
    let t = clock_gettime(ClockId::CLOCK_BOOTTIME).doing("clock")?;
    let ns = i128::from(t.tv_sec()) * 1_000_000_000 + i128::from(t.tv_nsec());
    u64::try_from(ns).doing("clock")
}

/// A folder of stamps, watched.
#[derive(Debug)]
pub struct Stamps {
    pub dir: PathBuf,
    inotify: Inotify,
}

impl Stamps {
    /// # Errors
    /// The folder cannot be made or watched.
    pub fn new(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).doing(dir.display())?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).doing("inotify")?;
        inotify.add_watch(dir, AddWatchFlags::IN_CLOSE_WRITE).doing(dir.display())?;
        Ok(Self { dir: dir.into(), inotify })
    }

    /// The times written to one file so far.
    #[must_use]
    pub fn read(&self, name: &str) -> Vec<u64> {
        let text = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Waits for the `count`-th line (from 1) of every named file and returns the latest of their times.
    ///
    /// # Errors
    /// They are not there within `limit`; names those that are missing.
    pub fn wait(&self, names: &[String], count: usize, limit: Duration) -> Result<u64> {
        let end = Instant::now() + limit;
        let mut missing: Vec<&String> = names.iter().collect();
        let mut latest = 0;
        loop {
            // events are taken before the look, so that one that comes after it wakes the next poll
            while self.inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
            missing.retain(|name| match self.read(name).get(count - 1) {
                Some(time) => {
                    latest = latest.max(*time);
                    false
                }
                None => true,
            });
            if missing.is_empty() {
                return Ok(latest);
            }
            if Instant::now() > end {
                return Err(Trouble::new(format!(
                    "{} of {} did not start: {:?}",
                    missing.len(),
                    names.len(),
                    missing.first()
                )));
            }
            let mut fds = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(100_u8)).doing("poll")?;
        }
    }
}
