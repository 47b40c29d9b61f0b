//! Output of a container → its log file in the CRI form, rotated before a write would make the file too long.
//!
//! Memory: none for pipes, where an unfinished line simply stays in the pipe; for a terminal one unfinished line of at
//! most [`MAX_TEXT`] bytes, freed as soon as it is finished. When the
//! file cannot be written (full, read-only, gone) the output is dropped and counted, so that the program never
//! blocks on a broken disk; every further chunk tries again. Nothing is compressed and nothing is fsynced: a power cut may
//! cost the last lines, a board's flash would not survive a sync a line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::libc;

use crate::container::spec::LogSpec;
use crate::logs::files::{self, Suffix};
use crate::logs::record::{self, MAX_TEXT, OVERHEAD, Stream};
use crate::logs::timestamp;

/// Records are collected up to about this size and written at once.
const BATCH: usize = 64 * 1024;

/// What the agent should know about a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// 0: works again
    pub errno: i32,
    /// bytes of records dropped so far in this trouble
    pub dropped_bytes: u64,
}

/// The log of one container.
#[derive(Debug)]
pub struct LogWriter {
    spec: LogSpec,
    /// `None`: opened with the next record
    file: Option<File>,
    /// of the live file, as far as we wrote it
    size: u64,
    /// unfinished line of each stream, at most [`MAX_TEXT`] bytes
    carry: [Vec<u8>; 2],
    /// set while records are dropped
    trouble: Option<News>,
    news: Option<News>,
}

impl LogWriter {
    /// Opens (or makes) the live file at once, so that it is there for readers; a failure shows in [`Self::news`].
    #[must_use]
    pub fn open(spec: LogSpec) -> Self {
        let mut log =
            Self { spec, file: None, size: 0, carry: [Vec::new(), Vec::new()], trouble: None, news: None };
        if let Err(error) = log.reopen() {
            log.note(&error, 0);
        }
        log
    }

    /// What changed since the last call: trouble began or ended.
    pub fn news(&mut self) -> Option<News> {
        self.news.take()
    }

    /// The unfinished lines, for a supervisor that hands over to another.
    #[must_use]
    pub fn unfinished(&self) -> [&[u8]; 2] {
        [&self.carry[0], &self.carry[1]]
    }

    /// Puts back what [`Self::unfinished`] gave.
    pub fn resume(&mut self, unfinished: [Vec<u8>; 2]) {
        self.carry = unfinished.map(|mut carry| {
            carry.truncate(MAX_TEXT);
            carry
        });
    }

    /// Takes whole lines, and full pieces of longer ones, from the front of output that stays in its pipe, and gives how
    /// many bytes that were. With `last` an unfinished line is taken, too: nothing more comes.
    pub fn take(
        &mut self,
        stream: Stream,
        chunk: &[u8],
        last: bool,
        now_ns: i64,
        scratch: &mut Vec<u8>,
    ) -> usize {
        let time = timestamp::rfc3339(now_ns);
        let piece = self.piece_size();
        let mut rest = chunk;
        while !rest.is_empty() {
            let line = rest.iter().position(|&byte| byte == b'\n');
            let length = line.unwrap_or(rest.len());
            let (text, ends) = match rest.get(..length) {
                Some(text) if length <= piece && (line.is_some() || last) => (text, true),
                Some(text) if length > piece => (text.get(..piece).unwrap_or(text), false),
                _ => break,
            };
            self.push(&time, stream, ends, text, &[], now_ns, scratch);
            let taken = text.len().saturating_add(usize::from(ends && line.is_some()));
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.flush(scratch);
        chunk.len().saturating_sub(rest.len())
    }

    /// Takes output as it was read and keeps an unfinished line. `scratch` is memory that all logs share; it comes back
    /// empty.
    pub fn write(&mut self, stream: Stream, mut chunk: &[u8], now_ns: i64, scratch: &mut Vec<u8>) {
        let time = timestamp::rfc3339(now_ns);
        let piece = self.piece_size();
        let mut carry = core::mem::take(&mut self.carry[stream.index()]);
        while let Some(length) = chunk.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = chunk.split_at(length);
            let text = self.cut(stream, &mut carry, line, piece, now_ns, scratch);
            self.push(&time, stream, true, &carry, text, now_ns, scratch);
            carry.clear();
            chunk = rest.get(1..).unwrap_or_default();
        }
        let text = self.cut(stream, &mut carry, chunk, piece, now_ns, scratch);
        carry.extend_from_slice(text);
        if carry.is_empty() {
            // a quiet container holds no memory here
            carry = Vec::new();
        }
        self.carry[stream.index()] = carry;
        self.flush(scratch);
    }

    /// Writes what is left of an unfinished line: nothing more comes.
    pub fn finish(&mut self, stream: Stream, now_ns: i64, scratch: &mut Vec<u8>) {
        let carry = core::mem::take(&mut self.carry[stream.index()]);
        if !carry.is_empty() {
            self.push(&timestamp::rfc3339(now_ns), stream, true, &carry, &[], now_ns, scratch);
            self.flush(scratch);
        }
    }

    /// Text of one record at the most: less than usual when even one full record would break `max_size`.
    fn piece_size(&self) -> usize {
        match self.spec.max_size {
            0 => MAX_TEXT,
            size => {
                let room = size.saturating_sub(OVERHEAD as u64).max(1);
                usize::try_from(room).unwrap_or(MAX_TEXT).min(MAX_TEXT)
            }
        }
    }

    /// Emits `P` records while `carry` and `text` together are longer than one piece. What remains (carry and the
    /// returned end of `text`) fits into one, and is empty only if nothing came: no line ends with an empty `F`.
    fn cut<'a>(
        &mut self,
        stream: Stream,
        carry: &mut Vec<u8>,
        mut text: &'a [u8],
        piece: usize,
        now_ns: i64,
        scratch: &mut Vec<u8>,
    ) -> &'a [u8] {
        let time = timestamp::rfc3339(now_ns);
        while carry.len().saturating_add(text.len()) > piece {
            let (old, new) = if carry.len() >= piece {
                // only after a limit was lowered: the carry alone is longer than a piece
                let rest = carry.split_off(piece);
                (core::mem::replace(carry, rest), &[][..])
            } else {
                let (new, rest) = text.split_at(piece.saturating_sub(carry.len()).min(text.len()));
                text = rest;
                (core::mem::take(carry), new)
            };
            self.push(&time, stream, false, &old, new, now_ns, scratch);
        }
        text
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one record and where it goes")]
    fn push(
        &mut self,
        time: &[u8; timestamp::LENGTH],
        stream: Stream,
        last: bool,
        first: &[u8],
        second: &[u8],
        now_ns: i64,
        scratch: &mut Vec<u8>,
    ) {
        let length = OVERHEAD.saturating_add(first.len()).saturating_add(second.len());
        let filled = self.size.saturating_add(scratch.len() as u64);
        if self.spec.max_size > 0 && filled > 0 && filled.saturating_add(length as u64) > self.spec.max_size {
            self.flush(scratch);
            // nothing was written after all: the file is still as short as it was
            if self.size.saturating_add(length as u64) > self.spec.max_size
                && let Err(error) = self.rotate(now_ns)
            {
                self.note(&error, length as u64);
                return;
            }
        } else if scratch.len() >= BATCH {
            self.flush(scratch);
        }
        record::append(scratch, time, stream, last, first, second);
    }

    /// Writes the collected records, or counts them as dropped. `scratch` is empty afterwards.
    fn flush(&mut self, scratch: &mut Vec<u8>) {
        if scratch.is_empty() {
            return;
        }
        let result = match self.file {
            Some(_) => Ok(()),
            None => self.reopen(),
        };
        let (done, result) = match result {
            Ok(()) => self.append(scratch),
            Err(error) => (0, Err(error)),
        };
        match result {
            Ok(()) => {
                if let Some(trouble) = self.trouble.take() {
                    self.news = Some(News { errno: 0, ..trouble });
                }
            }
            Err(error) => self.note(&error, scratch.len().saturating_sub(done) as u64),
        }
        scratch.clear();
    }

    /// Writes whole records only: a record that did not fit wholly is taken back. Gives the bytes that stay.
    fn append(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let Some(file) = self.file.as_mut() else {
            return (0, Err(io::Error::from_raw_os_error(libc::EBADF)));
        };
        let mut done = 0;
        let error = loop {
            let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) else {
                self.size = self.size.saturating_add(done as u64);
                return (done, Ok(()));
            };
            match file.write(rest) {
                Ok(0) => break io::Error::from_raw_os_error(libc::ENOSPC),
                Ok(length) => done = done.saturating_add(length),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        let whole = bytes.get(..done).and_then(|written| written.iter().rposition(|&byte| byte == b'\n'));
        let whole = whole.map_or(0, |at| at.saturating_add(1));
        self.size = self.size.saturating_add(whole as u64);
        if whole < done && file.set_len(self.size).is_err() {
            // the cut record stays; reopening ends its line
            self.file = None;
        }
        (whole, Err(error))
    }

    fn reopen(&mut self) -> io::Result<()> {
        let open = || {
            OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o640)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
                .open(&self.spec.path)
        };
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = self.spec.path.parent() {
                    fs::create_dir_all(folder)?;
                }
                open()?
            }
            other => other?,
        };
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.size = about.len();
        let mut end = [b'\n'];
        if let Some(at) = self.size.checked_sub(1) {
            file.read_exact_at(&mut end, at)?;
        }
        if end != [b'\n'] {
            // a writer was killed inside a record
            file.write_all(b"\n")?;
            self.size = self.size.saturating_add(1);
        }
        self.file = Some(file);
        Ok(())
    }

    /// Moves the live file aside; the next write makes a new one. The oldest files go first, which also makes room.
    fn rotate(&mut self, now_ns: i64) -> io::Result<()> {
        let live = self.spec.path.as_path();
        let rotated = match files::rotated(live) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        // the live file counts, and the one that is about to be moved aside
        let keep = usize::try_from(self.spec.max_files.max(1)).unwrap_or(usize::MAX).saturating_sub(1);
        let room = keep.saturating_sub(1);
        for old in rotated.iter().take(rotated.len().saturating_sub(room)) {
            remove(&old.path(live))?;
        }
        let target = Suffix::after(now_ns, rotated.last()).path(live);
        match fs::rename(live, &target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.file = None;
        self.size = 0;
        if keep == 0 {
            remove(&target)?;
        }
        Ok(())
    }

    /// Remembers trouble; only its beginning is news.
    fn note(&mut self, error: &io::Error, dropped: u64) {
        let before = self.trouble.map_or(0, |trouble| trouble.dropped_bytes);
        let trouble = News {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            dropped_bytes: before.saturating_add(dropped),
        };
        if self.trouble.replace(trouble).is_none() {
            self.news = Some(trouble);
        }
    }
}

fn remove(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
