//! Ending and freezing everything in a group, forks included.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::controller::Controller;
use super::error::Error;
use super::files::{field, join, read_text, write_text};
use super::group::Group;
use super::watch::Watcher;
use crate::linux::sys::pidfd;

impl Group {
    /// True while a process lives here or below. One read on v2.
    ///
    /// # Errors
    /// [`Error::Read`]; a missing group is empty.
    pub fn populated(&self) -> Result<bool, Error> {
        if let Some(tree) = self.all.unified() {
            match read_text(&tree.dir, &join(&self.path, "cgroup.events")) {
                // in a hybrid set-up processes may have joined the v1 folders alone
                Ok(text) if field(&text, "populated") == Some(1) => return Ok(true),
                Ok(_) if self.all.layout.trees.len() == 1 => return Ok(false),
                Ok(_) | Err(Errno::ENOENT | Errno::ENODEV) => {}
                Err(errno) => return Err(self.read_error("cgroup.events", errno)),
            }
        }
        Ok(!self.procs_below()?.is_empty())
    }

    /// Sends SIGKILL to everything here and below, without waiting. A group that forks meanwhile may have to be killed
    /// again where the kernel has no `cgroup.kill` (v1, v2 before 5.14): [`Group::kill`] does that.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn kill_now(&self) -> Result<(), Error> {
        if let Some(tree) = self.all.unified() {
            // ENOENT: no such file in this kernel; EOPNOTSUPP: threaded group
            write_text(&tree.dir, &join(&self.path, "cgroup.kill"), "1").ok();
        }
        if !self.populated()? {
            return Ok(());
        }
        self.signal_all(Signal::SIGKILL as i32)
    }

    /// One signal to every process here and below. Where the group can be frozen it is, so that no fork slips through;
    /// SIGKILL reaches frozen processes on v2, others after the thaw.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn signal_all(&self, signal: i32) -> Result<(), Error> {
        let signal = Signal::try_from(signal).map_err(|errno| self.read_error("cgroup.procs", errno))?;
        let frozen = self.freeze(true).unwrap_or(false);
        let sent = self.procs_below().map(|pids| {
            for pid in pids {
                // ESRCH: gone meanwhile
                kill(Pid::from_raw(pid), signal).ok();
            }
        });
        if frozen {
            self.freeze(false)?;
        }
        sent
    }

    /// Kills and waits until nobody is left, at most for `patience`.
    ///
    /// # Errors
    /// [`Error::StillAlive`] when the time is over (a process hangs in the kernel), [`Error::Read`].
    pub fn kill(&self, patience: Duration) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            self.kill_now()?;
            let left = patience.saturating_sub(start.elapsed());
            if self.wait_empty(left)? {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Error::StillAlive {
                    path: self.path.clone(),
                    processes: self.procs_below()?.len(),
                });
            }
        }
    }

    /// Waits for the end of the processes there are now; true when the group is empty after that.
    fn wait_empty(&self, patience: Duration) -> Result<bool, Error> {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        // a pidfd tells the death of any process, ours or not; opened before the question so that none is missed
        let fds: Vec<OwnedFd> =
            self.procs_below()?.into_iter().filter_map(|pid| pidfd::open(pid).ok()).collect();
        if let Some(fd) = fds.first() {
            poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout).ok();
        }
        drop(fds);
        if !self.populated()? {
            return Ok(true);
        }
        // dead but not reaped: only v2 tells the moment
        if self.procs_below()?.is_empty()
            && let Ok(mut watcher) = Watcher::new()
            && watcher.watch_empty(self, 0).is_ok()
            && self.populated()?
        {
            poll(&mut [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)], timeout).ok();
        }
        Ok(!self.populated()?)
    }

    /// Stops (or lets go on) all processes here and below. False: this kernel cannot.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn freeze(&self, frozen: bool) -> Result<bool, Error> {
        let Some(tree) = self.all.tree_of(Controller::Freezer) else { return Ok(false) };
        let (file, value) = match (tree.unified, frozen) {
            (true, true) => ("cgroup.freeze", "1"),
            (true, false) => ("cgroup.freeze", "0"),
            (false, true) => ("freezer.state", "FROZEN"),
            (false, false) => ("freezer.state", "THAWED"),
        };
        match write_text(&tree.dir, &join(&self.path, file), value) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT | Errno::ENODEV | Errno::EACCES | Errno::EPERM) => Ok(false),
            Err(errno) => Err(Error::Refused {
                path: self.path.clone(),
                file: file.to_owned(),
                value: value.to_owned(),
                errno,
            }),
        }
    }
}
