//! Making, finding and removing groups. A [`Group`] is a relative path that stands for one folder in each hierarchy.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};

use super::controller::{Controller, Controllers};
use super::error::{Degraded, Error};
use super::files::{join, read_text, write_text};
use super::layout::{self, Flavour, Layout, MissingController, Tree};

/// All control groups of this machine. Cheap to clone.
#[derive(Clone)]
pub struct Cgroups {
    pub(super) layout: Arc<Layout>,
}

/// One group in all hierarchies. Holds no descriptors; every call names its files anew.
#[derive(Clone)]
pub struct Group {
    pub(super) all: Cgroups,
    pub(super) path: String,
}

impl Cgroups {
    /// Looks at the mounts below `root` (`/`, or a folder of files in tests).
    ///
    /// # Errors
    /// [`Error::NoHierarchy`] when nothing is mounted.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let layout = layout::detect(root);
        if layout.trees.is_empty() {
            return Err(Error::NoHierarchy);
        }
        Ok(Self { layout: Arc::new(layout) })
    }

    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.layout.flavour
    }

    /// Controllers that are not there, each with the way to switch it on. To be told once at start.
    #[must_use]
    pub fn missing(&self) -> &[MissingController] {
        &self.layout.missing
    }

    /// Controllers that can be used, in whichever hierarchy.
    #[must_use]
    pub fn available(&self) -> Controllers {
        Controllers::of(
            &Controller::ALL.into_iter().filter(|c| self.tree_of(*c).is_some()).collect::<Vec<_>>(),
        )
    }

    /// A group that may exist or not; costs nothing.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub fn group(&self, path: &str) -> Result<Group, Error> {
        let bad = path.is_empty()
            || path.starts_with('/')
            || path.contains('\0')
            || path.split('/').any(|part| part.is_empty() || part == "." || part == "..");
        if bad {
            return Err(Error::Path { path: path.to_owned() });
        }
        Ok(Group { all: self.clone(), path: path.to_owned() })
    }

    /// Makes the group and all above it in the hierarchies of the `wanted` controllers (and always in the v2 one, which
    /// kills and counts). What exists already is taken over. What could not be had is told, not an error.
    ///
    /// # Errors
    /// When no folder could be made at all, or the group could never hold processes.
    pub fn create(&self, path: &str, wanted: Controllers) -> Result<(Group, Vec<Degraded>), Error> {
        let group = self.group(path)?;
        let mut degraded = Vec::new();
        let mut made = false;
        let mut last = Errno::ENOENT;
        for tree in self.trees_for(wanted) {
            match make_path(tree, path) {
                Ok(()) => made = true,
                Err(errno) => {
                    last = errno;
                    degraded.extend(not_made(tree, wanted, path, errno));
                    continue;
                }
            }
            if tree.unified {
                hand_down(tree, path, wanted.and(tree.controllers), &mut degraded)?;
            }
        }
        if !made {
            return Err(Error::Create { path: path.to_owned(), errno: last });
        }
        Ok((group, degraded))
    }

    /// v2 freezes every group by itself since 5.2; then the v1 freezer is not needed.
    fn unified_freezes(&self) -> bool {
        self.layout.kernel >= (5, 2) && self.layout.trees.iter().any(|t| t.unified)
    }

    fn trees_for(&self, wanted: Controllers) -> impl Iterator<Item = &Tree> {
        let wanted = if self.unified_freezes() { wanted.without(Controller::Freezer) } else { wanted };
        self.layout.trees.iter().filter(move |t| t.unified || !t.controllers.and(wanted).is_empty())
    }

    pub(super) fn unified(&self) -> Option<&Tree> {
        self.layout.trees.iter().find(|t| t.unified)
    }

    pub(super) fn tree_of(&self, c: Controller) -> Option<&Tree> {
        if c == Controller::Freezer && self.unified_freezes() {
            return self.unified();
        }
        let own = self.layout.trees.iter().find(|t| t.controllers.has(c));
        own.or_else(|| if c.v2_name().is_none() { self.unified() } else { None })
    }

    /// Words for a controller that is not there.
    pub(super) fn why_missing(&self, c: Controller) -> String {
        let known = self.layout.missing.iter().find(|m| m.controller == c);
        known.map_or_else(|| format!("this kernel has no '{c}' controller"), |m| m.hint.clone())
    }
}

fn not_made(tree: &Tree, wanted: Controllers, path: &str, errno: Errno) -> Vec<Degraded> {
    let lost = tree.controllers.and(wanted);
    let reason = format!("cannot make '{}': {}", tree.mount.join(path).display(), errno.desc());
    lost.iter().map(|c| Degraded { setting: format!("{c} controller"), reason: reason.clone() }).collect()
}

/// Makes the last folder; only when its parent is missing is the path walked from the top.
fn make_path(tree: &Tree, path: &str) -> Result<(), Errno> {
    match make_one(tree, path) {
        Err(Errno::ENOENT) => {}
        done => return done,
    }
    for (end, _) in path.match_indices('/') {
        make_one(tree, path.get(..end).unwrap_or_default())?;
    }
    make_one(tree, path)
}

fn make_one(tree: &Tree, path: &str) -> Result<(), Errno> {
    match mkdirat(&tree.dir, path, Mode::from_bits_truncate(0o755)) {
        Ok(()) if tree.unified => Ok(()),
        Ok(()) => prepare_v1(tree, path),
        Err(Errno::EEXIST) if !tree.unified && tree.controllers.has(Controller::Cpuset) => {
            inherit_cpuset(tree, path)
        }
        Err(Errno::EEXIST) => Ok(()),
        Err(e) => Err(e),
    }
}

/// What v1 wants before the first process may come in.
fn prepare_v1(tree: &Tree, path: &str) -> Result<(), Errno> {
    if tree.controllers.has(Controller::Cpuset) {
        inherit_cpuset(tree, path)?;
    }
    // before 5.11 limits did not reach the groups below unless asked; refused when it is on above, which is as good
    if tree.controllers.has(Controller::Memory) && !path.contains('/') {
        let file = join(path, "memory.use_hierarchy");
        if read_text(&tree.dir, &file).is_ok_and(|t| t.trim() == "0") {
            write_text(&tree.dir, &file, "1").ok();
        }
    }
    Ok(())
}

/// A new cpuset is empty and takes no process: it gets its parent's sets, and hands them to children by itself.
fn inherit_cpuset(tree: &Tree, path: &str) -> Result<(), Errno> {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut inherited = false;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = join(path, file);
        if !read_text(&tree.dir, &own)?.trim().is_empty() {
            continue;
        }
        let value = read_text(&tree.dir, &join(parent, file))?;
        write_text(&tree.dir, &own, value.trim())?;
        inherited = true;
    }
    if inherited {
        // the kernel copies from now on: a child then needs no writes
        write_text(&tree.dir, &join(path, "cgroup.clone_children"), "1").ok();
    }
    Ok(())
}

/// v2: each group above has to switch a controller on for those below.
fn hand_down(
    tree: &Tree,
    path: &str,
    wanted: Controllers,
    degraded: &mut Vec<Degraded>,
) -> Result<(), Error> {
    let here = read_text(&tree.dir, &join(path, "cgroup.controllers")).unwrap_or_default();
    if wanted.minus(Controllers::from_v2_list(&here)).is_empty() {
        return Ok(());
    }
    let mut lost = Controllers::NONE;
    let ends = core::iter::once(0).chain(path.match_indices('/').map(|(i, _)| i));
    for above in ends.map(|end| path.get(..end).unwrap_or_default()) {
        for (controller, errno) in switch_on(tree, above, wanted.minus(lost))? {
            lost = lost.with(controller);
            degraded.push(refused_to_hand_down(tree, above, controller, errno)?);
        }
    }
    check_kind(tree, path)
}

/// Writes what is not on yet; one by one only when the whole is refused.
fn switch_on(tree: &Tree, path: &str, wanted: Controllers) -> Result<Vec<(Controller, Errno)>, Error> {
    let file = join(path, "cgroup.subtree_control");
    let on = Controllers::from_v2_list(&read_text(&tree.dir, &file).unwrap_or_default());
    let words: Vec<(Controller, String)> =
        wanted.minus(on).iter().filter_map(|c| Some((c, format!("+{}", c.v2_name()?)))).collect();
    if words.is_empty() {
        return Ok(Vec::new());
    }
    // with cpu, cpuset and pids the kernel would not say no but make the group threaded, and then nothing fits in
    if !path.is_empty() {
        let processes = processes(tree, path);
        if processes > 0 {
            return Err(Error::Occupied { path: path.to_owned(), processes });
        }
    }
    let whole = words.iter().map(|(_, w)| w.as_str()).collect::<Vec<_>>().join(" ");
    if write_text(&tree.dir, &file, &whole).is_ok() {
        return Ok(Vec::new());
    }
    let one = |(c, word): (Controller, String)| Some((c, write_text(&tree.dir, &file, &word).err()?));
    Ok(words.into_iter().filter_map(one).collect())
}

fn processes(tree: &Tree, path: &str) -> usize {
    read_text(&tree.dir, &join(path, "cgroup.procs")).map_or(0, |t| t.lines().count())
}

fn refused_to_hand_down(tree: &Tree, path: &str, c: Controller, errno: Errno) -> Result<Degraded, Error> {
    let shown = if path.is_empty() { "/" } else { path };
    if errno == Errno::EBUSY {
        return Err(Error::Occupied { path: shown.to_owned(), processes: processes(tree, path) });
    }
    if errno == Errno::EOPNOTSUPP {
        check_kind(tree, path)?;
    }
    let reason = match errno {
        Errno::ENOENT => format!("the group above '{shown}' does not hand '{c}' down"),
        Errno::EACCES | Errno::EPERM | Errno::EROFS => format!(
            "no right to write '{}': have the group delegated (systemd: 'Delegate=yes')",
            tree.mount.join(join(path, "cgroup.subtree_control")).display()
        ),
        other => format!("group '{shown}' does not hand '{c}' down: {}", other.desc()),
    };
    Ok(Degraded { setting: format!("{c} controller"), reason })
}

/// A threaded group, or a plain one below it, takes no processes (cgroups(7), "thread mode").
fn check_kind(tree: &Tree, path: &str) -> Result<(), Error> {
    let kind = read_text(&tree.dir, &join(path, "cgroup.type")).unwrap_or_default();
    match kind.trim() {
        "" | "domain" | "domain threaded" => Ok(()),
        other => Err(Error::Threaded { path: path.to_owned(), kind: other.to_owned() }),
    }
}

impl Group {
    /// Relative path, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True when it exists in some hierarchy.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.all.layout.trees.iter().any(|t| self.is_in(t))
    }

    pub(super) fn is_in(&self, tree: &Tree) -> bool {
        faccessat(&tree.dir, self.path.as_str(), AccessFlags::F_OK, AtFlags::empty()).is_ok()
    }

    /// Folders a process has to write itself into (`<folder>/cgroup.procs`), one a hierarchy.
    #[must_use]
    pub fn join_dirs(&self) -> Vec<PathBuf> {
        let trees = self.all.layout.trees.iter().filter(|t| self.is_in(t));
        trees.map(|t| t.mount.join(&self.path)).collect()
    }

    /// The folder in the v2 hierarchy, for `CLONE_INTO_CGROUP`.
    #[must_use]
    pub fn unified_dir(&self) -> Option<PathBuf> {
        let tree = self.all.unified().filter(|t| self.is_in(t))?;
        Some(tree.mount.join(&self.path))
    }

    /// Names of the groups directly below, in any hierarchy.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn children(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for tree in &self.all.layout.trees {
            names.extend(sub_folders(tree.dir.as_fd(), &self.path).map_err(|errno| Error::Read {
                path: self.path.clone(),
                file: String::new(),
                errno,
            })?);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The group below of this name.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub fn child(&self, name: &str) -> Result<Self, Error> {
        self.all.group(&join(&self.path, name))
    }

    /// Processes of this group alone, each once.
    ///
    /// # Errors
    /// [`Error::Read`]; a missing group holds none.
    pub fn procs(&self) -> Result<Vec<i32>, Error> {
        let mut pids = Vec::new();
        for tree in &self.all.layout.trees {
            match read_text(&tree.dir, &join(&self.path, "cgroup.procs")) {
                Ok(text) => pids.extend(text.lines().filter_map(|l| l.trim().parse::<i32>().ok())),
                Err(Errno::ENOENT | Errno::ENODEV) => {}
                Err(errno) => return Err(self.read_error("cgroup.procs", errno)),
            }
        }
        // 0 stands for processes outside our pid namespace
        pids.retain(|pid| *pid > 0);
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Processes of this group and all below.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn procs_below(&self) -> Result<Vec<i32>, Error> {
        let mut pids = self.procs()?;
        for name in self.children()? {
            pids.extend(self.child(&name)?.procs_below()?);
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Removes the group and all below, children first. A folder that is busy is tried again for `patience`, with
    /// pauses that double from one millisecond: the kernel lets go of a dead process a moment after it is reaped.
    /// A missing group is success.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub fn remove(&self, patience: Duration) -> Result<(), Error> {
        let mut spent = Duration::ZERO;
        let mut pause = Duration::from_millis(1);
        loop {
            let errno = match self.remove_once() {
                Ok(()) => return Ok(()),
                Err(errno) => errno,
            };
            if errno != Errno::EBUSY || spent >= patience {
                return Err(Error::Busy { path: self.path.clone(), errno });
            }
            std::thread::sleep(pause);
            spent += pause;
            pause = pause.saturating_mul(2).min(Duration::from_millis(50));
        }
    }

    /// Goes on after a failure, so that as much as possible is gone; the first failure is told.
    fn remove_once(&self) -> Result<(), Errno> {
        let results = self.all.layout.trees.iter().map(|t| remove_tree(&t.dir, &self.path));
        results.fold(Ok(()), Result::and)
    }

    pub(super) fn read_error(&self, file: &str, errno: Errno) -> Error {
        Error::Read { path: self.path.clone(), file: file.to_owned(), errno }
    }
}

fn sub_folders(dir: impl AsFd, path: &str) -> Result<Vec<String>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir = match Dir::openat(dir, path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::ENOENT | Errno::ENODEV) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if entry.file_type() == Some(Type::Directory) && name != "." && name != ".." {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

fn remove_tree(dir: &OwnedFd, path: &str) -> Result<(), Errno> {
    // the common case first: no children, one call
    match unlinkat(dir, path, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENODEV) => return Ok(()),
        Err(Errno::EBUSY | Errno::ENOTEMPTY) => {}
        Err(e) => return Err(e),
    }
    let mut result = Ok(());
    for name in sub_folders(dir, path)? {
        result = result.and(remove_tree(dir, &join(path, &name)));
    }
    result?;
    match unlinkat(dir, path, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENODEV) => Ok(()),
        // fake trees hold plain files; a kernel folder never answers so once its children are gone
        Err(Errno::ENOTEMPTY) => Err(Errno::EBUSY),
        Err(e) => Err(e),
    }
}
