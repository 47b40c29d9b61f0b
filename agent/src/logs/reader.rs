//! Lines of a log: pieces joined, streams never mixed inside a line, in bounded memory.
//!
//! The walk goes over all records in order. When it meets the first piece of a long line, a second cursor runs ahead and
//! brings the other pieces of that line, whatever lies between them; the walk then goes on behind the first piece, and
//! leaves out what was brought already. A line of any length costs two buffers.

use std::io;
use std::path::{Path, PathBuf};

use super::chain::{Chain, Position};
use super::cursor::{Cursor, Part};
use super::record::Stream;
use super::{LogsError, Options, errno, tail, timestamp};

/// Output given at once, about.
const CHUNK: usize = 64 * 1024;

/// How far [`Reader::read`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// there is more
    More,
    /// that is all at this moment
    AtEnd,
    /// that is all that was asked for (`limit_bytes`)
    Done,
}

/// Reads one log.
pub struct Reader {
    path: PathBuf,
    options: Options,
    chain: Chain,
    walk: Cursor,
    /// brings the rest of this stream's line
    ahead: Option<(Stream, Cursor)>,
    /// records of each stream before its place were given already, or are not wanted
    given: [Position; 2],
    /// the line of this stream began before `since`
    skipping: [bool; 2],
    /// bytes that may still be given
    left: Option<u64>,
}

impl Reader {
    /// Opens all files of the log whose live file is `path`. With `follow` there may be none yet.
    ///
    /// # Errors
    /// `Missing`, or what the file system says
    pub fn open(path: &Path, options: Options) -> Result<Self, LogsError> {
        let failed = |error: io::Error| LogsError::Read { path: path.to_owned(), errno: errno(&error) };
        let chain = Chain::open(path).map_err(failed)?;
        if chain.is_empty() && !options.follow {
            return Err(LogsError::Missing { path: path.to_owned() });
        }
        let mut given = [Position::default(); 2];
        let mut start = chain.start();
        if let Some(lines) = options.tail {
            given = tail::find(&chain, lines, options.stream).map_err(failed)?;
            start = given[0].min(given[1]);
        }
        if let Some(only) = options.stream {
            given[1_usize.saturating_sub(only.index())] = Position::END;
        }
        let left = options.limit_bytes;
        let walk = Cursor::new(start);
        Ok(Self {
            path: path.to_owned(),
            options,
            chain,
            walk,
            ahead: None,
            given,
            skipping: [false; 2],
            left,
        })
    }

    /// The end of a line was not written yet, and the other stream waits for it.
    ///
    /// # Errors
    /// what the file system says
    pub fn holds_back(&self) -> Result<bool, LogsError> {
        let Some((stream, _)) = &self.ahead else {
            return Ok(false);
        };
        let mut look = self.walk.clone();
        loop {
            match look.next(&self.chain) {
                Ok(Some(part)) if part.prefix.stream == *stream => {}
                Ok(Some(part)) if part.at < self.given[part.prefix.stream.index()] => {}
                Ok(other) => return Ok(other.is_some()),
                Err(error) => return Err(LogsError::Read { path: self.path.clone(), errno: errno(&error) }),
            }
        }
    }

    /// Looks for files that came since, and holds them open.
    ///
    /// # Errors
    /// what the file system says
    pub fn discover(&mut self) -> Result<bool, LogsError> {
        self.chain
            .discover()
            .map_err(|error| LogsError::Read { path: self.path.clone(), errno: errno(&error) })
    }

    /// Appends about 64 KiB of output at the most.
    ///
    /// # Errors
    /// what the file system says
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<Progress, LogsError> {
        let start = out.len();
        let result = self.read_chunk(out);
        let mut progress =
            result.map_err(|error| LogsError::Read { path: self.path.clone(), errno: errno(&error) })?;
        if let Some(left) = &mut self.left {
            let length = out.len().saturating_sub(start);
            let kept = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
            out.truncate(start.saturating_add(kept));
            *left = left.saturating_sub(kept as u64);
            if *left == 0 {
                progress = Progress::Done;
            }
        }
        self.chain.forget_before(self.walk.position().file);
        Ok(progress)
    }

    fn read_chunk(&mut self, out: &mut Vec<u8>) -> io::Result<Progress> {
        let start = out.len();
        while out.len().saturating_sub(start) < CHUNK {
            let more = match self.ahead.take() {
                Some((stream, cursor)) => self.run_ahead(stream, cursor, out)?,
                None => self.step(out)?,
            };
            if !more {
                return Ok(Progress::AtEnd);
            }
        }
        Ok(Progress::More)
    }

    /// One step of the walk.
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let Some(part) = self.walk.next(&self.chain)? else {
            return Ok(false);
        };
        let stream = part.prefix.stream;
        let index = stream.index();
        if part.at < self.given[index] {
            return Ok(true);
        }
        if part.first && !self.skipping[index] {
            self.skipping[index] = self.options.since_ns.is_some_and(|since| part.prefix.time_ns < since);
        }
        if self.skipping[index] {
            if part.end && part.prefix.last {
                self.skipping[index] = false;
            }
            return Ok(true);
        }
        if part.first && self.options.timestamps {
            out.extend_from_slice(&timestamp::rfc3339(part.prefix.time_ns));
            out.push(b' ');
        }
        out.extend_from_slice(self.walk.text(&part));
        if part.end {
            if part.prefix.last {
                out.push(b'\n');
            } else {
                self.ahead = Some((stream, Cursor::new(self.walk.position())));
            }
        }
        Ok(true)
    }

    /// Brings more of the line of `stream`.
    fn run_ahead(&mut self, stream: Stream, mut cursor: Cursor, out: &mut Vec<u8>) -> io::Result<bool> {
        let part: Option<Part> = cursor.next(&self.chain)?;
        let mut ends = false;
        if let Some(part) = part.as_ref().filter(|part| part.prefix.stream == stream) {
            out.extend_from_slice(cursor.text(part));
            ends = part.end && part.prefix.last;
        }
        if ends {
            out.push(b'\n');
            self.given[stream.index()] = cursor.position();
        } else {
            self.ahead = Some((stream, cursor));
        }
        Ok(part.is_some())
    }

    /// Ends a line whose end was not written, so that the other stream can go on. `false`: there was none.
    pub fn break_line(&mut self, out: &mut Vec<u8>) -> bool {
        let Some((stream, cursor)) = self.ahead.take() else {
            return false;
        };
        self.given[stream.index()] = cursor.position();
        if self.left != Some(0) {
            out.push(b'\n');
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        true
    }
}
