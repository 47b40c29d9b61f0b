//! All files of one log in the order they were written, held open: a file that is rotated away and deleted while it is
//! being read is still read to its end.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

use super::files::{self, Suffix};

/// Files held open at the most (half of the usual limit of a process); of more than that the oldest are let go.
const MAX_OPEN: usize = 512;

/// A place in a log: of two places the later one was written later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// counts the files seen by this reader
    pub file: u64,
    pub offset: u64,
}

impl Position {
    pub(super) const END: Self = Self { file: u64::MAX, offset: u64::MAX };
}

struct Link {
    file: File,
    /// device and inode: who it is whatever it is called. Both are taken as long as it is open.
    identity: (u64, u64),
}

/// See the module.
pub(super) struct Chain {
    live: PathBuf,
    /// number of the first of `links`
    first: u64,
    links: VecDeque<Link>,
}

impl Chain {
    /// Opens all files that are there.
    pub(super) fn open(live: &Path) -> io::Result<Self> {
        let mut chain = Self { live: live.to_owned(), first: 0, links: VecDeque::new() };
        chain.discover()?;
        Ok(chain)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    pub(super) fn start(&self) -> Position {
        Position { file: self.first, offset: 0 }
    }

    /// The end of what is written now.
    pub(super) fn end(&self) -> io::Result<Position> {
        match self.links.back() {
            Some(link) => Ok(Position { file: self.newest(), offset: link.file.metadata()?.len() }),
            None => Ok(self.start()),
        }
    }

    fn newest(&self) -> u64 {
        self.first.saturating_add((self.links.len() as u64).saturating_sub(1))
    }

    fn link(&self, file: u64) -> Option<&Link> {
        self.links.get(usize::try_from(file.checked_sub(self.first)?).ok()?)
    }

    /// Reads at a place. 0: the end of that file, which is final if [`has_later`](Self::has_later).
    pub(super) fn read(&self, at: Position, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.link(at.file).map_or(Ok(0), |link| link.file.read_at(bytes, at.offset)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Length of a file as it is now.
    pub(super) fn length(&self, file: u64) -> io::Result<u64> {
        self.link(file).map_or(Ok(0), |link| Ok(link.file.metadata()?.len()))
    }

    /// There are later files: nothing is written to this one any more.
    pub(super) fn has_later(&self, file: u64) -> bool {
        file < self.newest()
    }

    /// Closes files before this one.
    pub(super) fn forget_before(&mut self, file: u64) {
        while self.first < file && self.links.len() > 1 {
            self.links.pop_front();
            self.first = self.first.saturating_add(1);
        }
    }

    /// Looks for files that are later than the newest one known. Cheap when there are none.
    pub(super) fn discover(&mut self) -> io::Result<bool> {
        let known = self.links.back().map(|link| link.identity);
        // opened before the others are listed: if it is rotated meanwhile, it is in the list, and its place is known
        let live = open(&self.live)?;
        if live.is_some() && live.as_ref().map(|link| link.identity) == known {
            return Ok(false);
        }
        let rotated = match files::rotated(&self.live) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut later = Vec::new();
        for suffix in rotated.iter().rev() {
            // deleted since it was listed: so were all before it
            let Some(link) = open_rotated(&self.live, suffix)? else {
                continue;
            };
            if Some(link.identity) == known {
                break;
            }
            later.push(link);
        }
        later.reverse();
        if let Some(live) = live {
            // what comes behind it was rotated after we opened it: next time
            match later.iter().position(|link| link.identity == live.identity) {
                Some(at) => later.truncate(at.saturating_add(1)),
                None => later.push(live),
            }
        }
        let found = !later.is_empty();
        self.links.extend(later);
        while self.links.len() > MAX_OPEN {
            self.links.pop_front();
            self.first = self.first.saturating_add(1);
        }
        Ok(found)
    }
}

fn open(path: &Path) -> io::Result<Option<Link>> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let about = file.metadata()?;
    Ok(about.is_file().then_some(Link { file, identity: (about.dev(), about.ino()) }))
}

/// A rotated file; a packed one (of another node agent) is unpacked into a file without a name.
fn open_rotated(live: &Path, suffix: &Suffix) -> io::Result<Option<Link>> {
    let Some(link) = open(&suffix.path(live))? else {
        return Ok(None);
    };
    if !suffix.packed {
        return Ok(Some(link));
    }
    let folder = live.parent().unwrap_or(Path::new("/"));
    let mut plain = fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(folder)?;
    // what cannot be unpacked ends early, like a file that was cut
    let mut reader = flate2::read::MultiGzDecoder::new(&link.file);
    unpack(&mut reader, &mut plain);
    plain.rewind()?;
    Ok(Some(Link { file: plain, identity: link.identity }))
}

fn unpack(from: &mut impl io::Read, to: &mut File) {
    if let Err(error) = io::copy(from, to) {
        log::warn!("a packed log file is damaged: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text(chain: &Chain, file: u64) -> String {
        let mut bytes = [0; 64];
        let length = chain.read(Position { file, offset: 0 }, &mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn files_are_found_in_the_order_they_were_written_also_packed_and_deleted_ones() {
        let folder = std::env::temp_dir().join(format!("podkeep-chain-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let live = folder.join("0.log");
        assert!(Chain::open(&live).unwrap().is_empty());
        let mut packed = flate2::write::GzEncoder::new(
            File::create(folder.join("0.log.20261130-221300.gz")).unwrap(),
            flate2::Compression::fast(),
        );
        packed.write_all(b"zero").unwrap();
        packed.finish().unwrap();
        fs::write(folder.join("0.log.20261130-221301"), "one").unwrap();
        fs::write(folder.join("0.log.20261130-221301.tmp"), "no").unwrap();
        fs::write(&live, "two").unwrap();
        let mut chain = Chain::open(&live).unwrap();
        assert_eq!((0..3).map(|file| text(&chain, file)).collect::<Vec<_>>(), ["zero", "one", "two"]);
        assert!(!chain.discover().unwrap());
        // twice rotated, and the older ones deleted
        fs::rename(&live, folder.join("0.log.20261130-221302")).unwrap();
        fs::write(&live, "three").unwrap();
        fs::rename(&live, folder.join("0.log.20261130-221302-1")).unwrap();
        fs::remove_file(folder.join("0.log.20261130-221301")).unwrap();
        fs::remove_file(folder.join("0.log.20261130-221300.gz")).unwrap();
        assert!(chain.discover().unwrap());
        assert!(!chain.discover().unwrap(), "the live file is missing for a moment");
        fs::write(&live, "four").unwrap();
        assert!(chain.discover().unwrap());
        let all: Vec<String> = (0..5).map(|file| text(&chain, file)).collect();
        assert_eq!(all, ["zero", "one", "two", "three", "four"]);
        chain.forget_before(3);
        assert_eq!(text(&chain, 3), "three");
        fs::remove_dir_all(folder).unwrap();
    }
}
