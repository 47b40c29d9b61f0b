//! One descriptor that becomes readable when a watched group runs out of memory or becomes empty.
//!
//! v2: one inotify instance for all groups (a user has 128 of them by default). v1: an eventfd a group, registered in
//! `cgroup.event_control`; v1 has no event for "empty". Both hang in one epoll instance.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::Mode;

use super::controller::Controller;
use super::error::Error;
use super::files::{join, write_text};
use super::group::Group;

/// Epoll key of the inotify instance; eventfds count from 1.
const INOTIFY: u64 = 0;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happened {
    /// a memory event (limit reached, out of memory, kill): ask [`Group::oom_kills`]
    Memory,
    /// processes came or the last one went: ask [`Group::populated`]
    Population,
}

#[derive(Clone)]
struct Watched {
    token: u64,
    what: Happened,
}

/// Watches many groups through one descriptor. Events only say "look again"; tokens are the caller's.
pub struct Watcher {
    epoll: Epoll,
    inotify: Option<Inotify>,
    by_descriptor: BTreeMap<WatchDescriptor, Watched>,
    by_eventfd: BTreeMap<u64, (EventFd, Watched)>,
    next: u64,
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Watcher {
    /// # Errors
    /// The kernel's, when descriptors are short.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            inotify: None,
            by_descriptor: BTreeMap::new(),
            by_eventfd: BTreeMap::new(),
            next: INOTIFY,
        })
    }

    fn failed(group: &Group) -> impl Fn(Errno) -> Error + '_ {
        |errno| Error::Watch { path: group.path.clone(), errno }
    }

    /// Memory events of the group.
    ///
    /// # Errors
    /// [`Error::Watch`]; `ENOSYS` without a memory controller.
    pub fn watch_oom(&mut self, group: &Group, token: u64) -> Result<(), Error> {
        let failed = Self::failed(group);
        let watched = Watched { token, what: Happened::Memory };
        let tree = group.all.tree_of(Controller::Memory).ok_or_else(|| failed(Errno::ENOSYS))?;
        if tree.unified {
            return self.watch_file(group, "memory.events", watched).map_err(failed);
        }
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(&failed)?;
        let file = join(&group.path, "memory.oom_control");
        let control = openat(&tree.dir, file.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(&failed)?;
        let line = format!("{} {}", event.as_fd().as_raw_fd(), control.as_raw_fd());
        write_text(&tree.dir, &join(&group.path, "cgroup.event_control"), &line).map_err(&failed)?;
        self.next = self.next.saturating_add(1);
        self.epoll.add(&event, EpollEvent::new(EpollFlags::EPOLLIN, self.next)).map_err(&failed)?;
        self.by_eventfd.insert(self.next, (event, watched));
        Ok(())
    }

    /// Tells when the last process of the group and those below is gone, or the first came.
    ///
    /// # Errors
    /// [`Error::Watch`]; `ENOSYS` without a v2 hierarchy: wait for the processes by pidfd.
    pub fn watch_empty(&mut self, group: &Group, token: u64) -> Result<(), Error> {
        let failed = Self::failed(group);
        if group.all.unified().is_none() {
            return Err(failed(Errno::ENOSYS));
        }
        self.watch_file(group, "cgroup.events", Watched { token, what: Happened::Population }).map_err(failed)
    }

    fn watch_file(&mut self, group: &Group, file: &str, watched: Watched) -> Result<(), Errno> {
        let tree = group.all.unified().ok_or(Errno::ENOSYS)?;
        let inotify = match self.inotify.take() {
            Some(inotify) => inotify,
            None => {
                let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
                self.epoll.add(&inotify, EpollEvent::new(EpollFlags::EPOLLIN, INOTIFY))?;
                inotify
            }
        };
        let path = tree.mount.join(&group.path).join(file);
        let added = inotify.add_watch(&path, AddWatchFlags::IN_MODIFY);
        self.inotify = Some(inotify);
        self.by_descriptor.insert(added?, watched);
        Ok(())
    }

    /// Forgets all watches with this token.
    pub fn forget(&mut self, token: u64) {
        let gone: Vec<WatchDescriptor> =
            self.by_descriptor.iter().filter(|(_, w)| w.token == token).map(|(d, _)| *d).collect();
        for descriptor in gone {
            self.by_descriptor.remove(&descriptor);
            if let Some(inotify) = &self.inotify {
                // the kernel dropped it already when the group is gone
                inotify.rm_watch(descriptor).ok();
            }
        }
        // closing an eventfd takes it out of the epoll set
        self.by_eventfd.retain(|_, (_, w)| w.token != token);
    }

    /// Everything that happened since the last call, each pair once. Never blocks.
    pub fn drain(&mut self) -> Vec<(u64, Happened)> {
        let mut happened = Vec::new();
        let mut ready = [EpollEvent::empty(); 32];
        loop {
            let n = self.epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap_or(0);
            for event in ready.iter().take(n) {
                match event.data() {
                    INOTIFY => self.drain_inotify(&mut happened),
                    key => self.drain_eventfd(key, &mut happened),
                }
            }
            if n < ready.len() {
                break;
            }
        }
        happened.sort_unstable();
        happened.dedup();
        happened
    }

    fn drain_inotify(&mut self, happened: &mut Vec<(u64, Happened)>) {
        let Some(inotify) = &self.inotify else { return };
        while let Ok(events) = inotify.read_events() {
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    happened.extend(self.by_descriptor.values().map(|w| (w.token, w.what)));
                } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    self.by_descriptor.remove(&event.wd);
                } else if let Some(w) = self.by_descriptor.get(&event.wd) {
                    happened.push((w.token, w.what));
                }
            }
        }
    }

    fn drain_eventfd(&mut self, key: u64, happened: &mut Vec<(u64, Happened)>) {
        if let Some((event, w)) = self.by_eventfd.get(&key) {
            event.read().ok();
            happened.push((w.token, w.what));
        }
    }
}
