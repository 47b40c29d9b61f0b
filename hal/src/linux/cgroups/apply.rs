//! Puts limits in force: writes only what is asked, reads it back, and tells what is not in force.

use nix::errno::Errno;

use super::controller::Controller;
use super::error::{Degraded, Error};
use super::files::{join, write_read};
use super::group::Group;
use super::layout::Tree;
use super::limits::{Limits, Step, Write, plan};

impl Group {
    /// Each setting is written, read back and compared. A controller, file or right that is missing is told in the
    /// answer; the caller decides whether that is good enough.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel does not take a value (no such CPU, less memory than is in use, ...).
    pub fn limits(&self, limits: &Limits) -> Result<Vec<Degraded>, Error> {
        let version = |c: Controller| self.all.tree_of(c).map(|t| t.unified);
        let mut degraded = Vec::new();
        let steps = plan(limits, page_size(), version);
        let mut waiting: Option<&Write> = None;
        for step in &steps {
            match step {
                Step::Impossible { setting, controller, reason } => {
                    let reason = controller.map_or_else(|| (*reason).to_owned(), |c| self.all.why_missing(c));
                    degraded.push(Degraded { setting: (*setting).to_owned(), reason });
                }
                Step::Write(w) => {
                    if w.swap_with_next && self.is_refused(w, &mut degraded)? {
                        waiting = Some(w);
                        continue;
                    } else if !w.swap_with_next {
                        self.write_one(w, &mut degraded)?;
                    }
                    if let Some(first) = waiting.take() {
                        self.write_one(first, &mut degraded)?;
                    }
                }
            }
        }
        Ok(degraded)
    }

    /// Writes; true when the kernel said that the value does not fit the other one of a pair.
    fn is_refused(&self, w: &Write, degraded: &mut Vec<Degraded>) -> Result<bool, Error> {
        match self.write_one(w, degraded) {
            Err(Error::Refused { errno: Errno::EINVAL | Errno::EBUSY, .. }) => Ok(true),
            Err(e) => Err(e),
            Ok(()) => Ok(false),
        }
    }

    fn write_one(&self, w: &Write, degraded: &mut Vec<Degraded>) -> Result<(), Error> {
        let tree = w.controller.map_or_else(|| self.all.unified(), |c| self.all.tree_of(c));
        let mut lose = |reason: String| degraded.push(Degraded { setting: w.setting.to_owned(), reason });
        let Some(tree) = tree else {
            lose("there is no v2 hierarchy".to_owned());
            return Ok(());
        };
        if w.file.contains('/') {
            return Err(self.refused(w, Errno::EINVAL));
        }
        match write_read(&tree.dir, &join(&self.path, &w.file), &w.value) {
            Ok(Some(read)) if !w.expect.agrees(&w.value, &read) => {
                lose(format!("'{}' was written to '{}' but it shows '{read}'", w.value, w.file));
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(Errno::ENOENT) if w.optional => Ok(()),
            Err(errno) => match self.why_not(tree, w, errno) {
                Some(reason) => {
                    lose(reason);
                    Ok(())
                }
                None => Err(self.refused(w, errno)),
            },
        }
    }

    fn refused(&self, w: &Write, errno: Errno) -> Error {
        Error::Refused { path: self.path.clone(), file: w.file.clone(), value: w.value.clone(), errno }
    }

    /// Words for a lack the caller may live with; `None` for a value that is wrong.
    fn why_not(&self, tree: &Tree, w: &Write, errno: Errno) -> Option<String> {
        let shown = tree.mount.join(join(&self.path, &w.file));
        let shown = shown.display();
        match errno {
            Errno::ENOENT => Some(format!("the kernel has no file '{shown}'")),
            Errno::EACCES | Errno::EPERM => Some(format!("no right to write '{shown}'")),
            Errno::EROFS => Some(format!("'{shown}' is mounted read-only")),
            Errno::EOPNOTSUPP => Some(format!("the kernel does not support '{shown}' here")),
            _ => None,
        }
    }
}

/// Bytes of a memory page; the kernel rounds amounts of memory down to it.
pub(super) fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|s| u64::try_from(s).ok()).unwrap_or(4096)
}
