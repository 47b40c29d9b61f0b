//! Watches: a folder, all links that lead to it and to the files in it, the folders that are still missing, and the
//! mount table. Nothing here polls; an idle node is not woken.
//!
//! What is watched where:
//! - the folder: everything that happens to names in it;
//! - each folder on a path: only that it moves or goes away, so a busy `/tmp` above wakes nobody;
//! - where a link stands, or where something is missing: the names of that folder, sorted out by name;
//! - the folder of a link's target: the same, for the target's name.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::task::Poll;

use async_io::Async;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use smol::future::poll_fn;

use super::settle::Seen;

/// As many links as the kernel follows.
const MAX_LINKS: u32 = 40;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// a name in the folder
    Name(OsString, Seen),
    /// what the link of this name in the folder leads to
    Target(OsString, Seen),
    /// a path no longer leads where it led, or events were lost: look at everything again
    Structure,
}

/// Who is interested in a name of a watched folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Interest {
    /// the link of this name in the manifest folder ends here
    Target(OsString),
    /// a link on the way, or something missing on the way
    Way,
}

/// A path taken apart.
#[derive(Debug, Default)]
struct Trace {
    /// folders that were passed
    folders: Vec<PathBuf>,
    /// folder and name of each link, and of the first missing part
    way: Vec<(PathBuf, OsString)>,
    /// where the path ends, with no links in it; none if part of the way is missing
    end: Option<PathBuf>,
}

fn trace(path: &Path) -> Trace {
    let mut trace = Trace::default();
    let mut at = PathBuf::from("/");
    let mut links = 0;
    let mut rest: VecDeque<OsString> = parts(path);
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let Ok(metadata) = next.symlink_metadata() else {
            trace.way.push((at, part));
            return trace;
        };
        if metadata.is_symlink() {
            links += 1;
            trace.way.push((at.clone(), part));
            let Ok(target) = next.read_link() else { return trace };
            if links > MAX_LINKS {
                return trace;
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in parts(&target).into_iter().rev() {
                rest.push_front(part);
            }
            continue;
        }
        if metadata.is_dir() {
            trace.folders.push(next.clone());
        }
        at = next;
    }
    trace.end = Some(at);
    trace
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_os_string()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// Device and inode a path leads to.
pub fn place(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Adds to what a folder is watched for already; nix has no name for it.
fn mask_add() -> AddWatchFlags {
    AddWatchFlags::from_bits_retain(nix::libc::IN_MASK_ADD)
}

/// The kernel's watches for one state of the paths; made anew when that state changes.
#[derive(Debug)]
pub struct Watches {
    inotify: Async<Inotify>,
    /// the manifest folder's own watch
    folder: Option<WatchDescriptor>,
    interests: HashMap<WatchDescriptor, HashMap<OsString, Vec<Interest>>>,
    /// the way of each link in the folder, and device and inode of what it led to
    links: HashMap<OsString, (Vec<(PathBuf, OsString)>, Option<(u64, u64)>)>,
    /// what could not be watched
    pub failure: Option<Errno>,
}

fn names_mask() -> AddWatchFlags {
    AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_ATTRIB
}

fn self_mask() -> AddWatchFlags {
    AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF
}

impl Watches {
    /// Watches the folder at `path` (absolute) and all that leads to it.
    pub fn of_folder(path: &Path) -> io::Result<(Watches, Option<PathBuf>)> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut watches = Watches {
            inotify: Async::new_nonblocking(inotify)?,
            folder: None,
            interests: HashMap::new(),
            links: HashMap::new(),
            failure: None,
        };
        // between tracing and watching something may have changed: then trace again
        let mut end = None;
        for _ in 0..8 {
            let traced = trace(path);
            watches.follow(&traced, None);
            let again = trace(path);
            let settled = again.end == traced.end && again.way == traced.way;
            end = again.end;
            if settled {
                break;
            }
        }
        if let Some(real) = &end {
            watches.folder = watches.add(real, names_mask() | self_mask() | AddWatchFlags::IN_ONLYDIR);
        }
        Ok((watches, end))
    }

    /// Watches where the link `name` in the folder (its real path) leads.
    pub fn of_link(&mut self, folder: &Path, name: &OsStr) {
        let traced = trace(&folder.join(name));
        self.follow(&traced, Some(name));
        let end = place(&folder.join(name));
        self.links.insert(name.to_os_string(), (traced.way, end));
    }

    /// Whether a link leads another way than the one that is watched.
    pub fn leads_elsewhere(&self, folder: &Path, name: &OsStr) -> bool {
        self.links.get(name).map(|(way, _)| way) != Some(&trace(&folder.join(name)).way)
    }

    /// Whether a link in the folder leads to another file than when it was traced.
    pub fn any_link_moved(&self, folder: &Path) -> bool {
        self.links.iter().any(|(name, (_, end))| place(&folder.join(name)) != *end)
    }

    fn follow(&mut self, trace: &Trace, target_of: Option<&OsStr>) {
        for folder in &trace.folders {
            self.add(folder, self_mask());
        }
        for (folder, name) in &trace.way {
            self.interest(folder, name, Interest::Way);
        }
        let end = trace.end.as_ref().and_then(|end| Some((end.parent()?, end.file_name()?)));
        if let (Some(link), Some((folder, name))) = (target_of, end) {
            self.interest(folder, name, Interest::Target(link.to_os_string()));
        }
    }

    fn interest(&mut self, folder: &Path, name: &OsStr, interest: Interest) {
        let Some(watch) = self.add(folder, names_mask() | self_mask()) else { return };
        let found = self.interests.entry(watch).or_default().entry(name.to_os_string()).or_default();
        if !found.contains(&interest) {
            found.push(interest);
        }
    }

    fn add(&mut self, path: &Path, mask: AddWatchFlags) -> Option<WatchDescriptor> {
        // one folder may be reached by several paths, and has one watch
        match self.inotify.get_ref().add_watch(path, mask | mask_add()) {
            Ok(watch) => Some(watch),
            // gone since it was traced: its parent's watch tells
            Err(Errno::ENOENT | Errno::ENOTDIR) => None,
            Err(errno) => {
                self.failure = Some(errno);
                None
            }
        }
    }

    /// Waits for events; what they mean, in order. Empty when they concern nobody.
    pub async fn changes(&self) -> io::Result<Vec<Change>> {
        self.inotify.readable().await?;
        let mut changes = Vec::new();
        loop {
            match self.inotify.get_ref().read_events() {
                Ok(events) => events.iter().for_each(|event| self.sort(event, &mut changes)),
                Err(Errno::EAGAIN) => return Ok(changes),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn sort(&self, event: &InotifyEvent, changes: &mut Vec<Change>) {
        let lost = AddWatchFlags::IN_Q_OVERFLOW
            | AddWatchFlags::IN_UNMOUNT
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        if event.mask.intersects(lost) {
            return changes.push(Change::Structure);
        }
        let Some(name) = &event.name else { return };
        let seen = seen(event.mask);
        let interests = self.interests.get(&event.wd).and_then(|names| names.get(name));
        for interest in interests.into_iter().flatten() {
            match interest {
                // writing into a folder on the way, or its time stamps, lead nowhere else
                Interest::Way if matches!(seen, Seen::Attributes | Seen::Written | Seen::Closed) => {}
                Interest::Way => changes.push(Change::Structure),
                Interest::Target(link) => changes.push(Change::Target(link.clone(), seen)),
            }
        }
        if Some(event.wd) == self.folder {
            changes.push(Change::Name(name.clone(), seen));
        }
    }
}

fn seen(mask: AddWatchFlags) -> Seen {
    if mask.intersects(AddWatchFlags::IN_MOVED_TO) {
        Seen::Placed
    } else if mask.intersects(AddWatchFlags::IN_CLOSE_WRITE) {
        Seen::Closed
    } else if mask.intersects(AddWatchFlags::IN_CREATE) {
        Seen::Created
    } else if mask.contains(AddWatchFlags::IN_DELETE) {
        Seen::Deleted
    } else if mask.contains(AddWatchFlags::IN_MOVED_FROM) {
        Seen::Gone
    } else if mask.intersects(AddWatchFlags::IN_MODIFY) {
        Seen::Written
    } else {
        Seen::Attributes
    }
}

/// Tells when a file system was mounted or unmounted (proc(5), mountinfo and poll).
#[derive(Debug)]
pub struct MountTable {
    /// holds the table with interest in priority events alone: the table itself is always readable
    epoll: Async<Table>,
}

/// `Async` wants a type that knows its descriptor.
#[derive(Debug)]
struct Table(Epoll, #[expect(dead_code, reason = "kept open while it is watched")] std::fs::File);

impl std::os::fd::AsFd for Table {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

impl MountTable {
    pub fn open() -> io::Result<MountTable> {
        let table = std::fs::File::open("/proc/self/mountinfo")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&table, EpollEvent::new(EpollFlags::EPOLLPRI, 0))?;
        Ok(MountTable { epoll: Async::new_nonblocking(Table(epoll, table))? })
    }

    /// Waits for a change that `is_different` confirms. Asking a mount table whether it changed takes the answer away
    /// (fs/namespace.c, `mounts_poll`), and the reactor may ask without telling us. So the table only wakes, and
    /// what counts is asked each time, after the reactor has begun to wait.
    pub async fn changed(&self, is_different: impl Fn() -> bool) -> io::Result<()> {
        poll_fn(|cx| {
            while let Poll::Ready(ready) = self.epoll.poll_readable(cx) {
                ready?;
                // only empties the inner list
                let mut events = [EpollEvent::empty()];
                self.epoll.get_ref().0.wait(&mut events, EpollTimeout::ZERO)?;
            }
            if is_different() { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}

/// Whether a name in the folder is a manifest's: by its ending, and not hidden.
pub fn is_manifest_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    !name.starts_with(b".")
        && [b".yaml".as_slice(), b".yml", b".json"]
            .iter()
            .any(|ending| name.len() > ending.len() && name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::source::testing::Scratch;

    #[test]
    fn trace_follows_links_and_stops_at_what_is_missing() {
        let dir = Scratch::new("trace");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("real/sub")).unwrap();
        symlink("real", at("link")).unwrap();
        symlink(at("link/sub"), at("abs")).unwrap();
        symlink("round", at("round")).unwrap();
        let found = trace(&at("abs"));
        assert_eq!(found.end, Some(at("real/sub")));
        assert_eq!(
            found.way,
            [(dir.path().to_path_buf(), "abs".into()), (dir.path().to_path_buf(), "link".into())]
        );
        let found = trace(&at("abs/missing/more"));
        assert_eq!(found.end, None);
        assert_eq!(found.way.last().unwrap(), &(at("real/sub"), "missing".into()));
        assert_eq!(trace(&at("round")).end, None);
        assert_eq!(trace(&at("real/sub/../../link")).end, Some(at("real")));
    }

    #[test]
    fn manifest_names() {
        for name in ["a.yaml", "a.yml", "a.json", "-rf.yaml", "two\nlines.yaml"] {
            assert!(is_manifest_name(OsStr::new(name)), "{name}");
        }
        for name in [".a.yaml", "a.yaml~", "a.yaml.backup", "4913", ".yaml", "yaml", "..data", "a.YAML"] {
            assert!(!is_manifest_name(OsStr::new(name)), "{name}");
        }
    }
}
