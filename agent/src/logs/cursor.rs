//! Walks over the records of a log, piece by piece, so that no record has to fit into memory.

use std::io;
use std::ops::Range;

use super::chain::{Chain, Position};
use super::record::{MAX_PREFIX, Prefix};

const BUFFER: usize = 32 * 1024;

/// Where inside a record the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// at the first byte of a record
    Start,
    Text {
        prefix: Prefix,
        at: Position,
        fresh: bool,
    },
    /// in a line that is no record
    Rubbish,
}

/// A part of a record's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// where the record begins
    pub at: Position,
    pub prefix: Prefix,
    /// the record's first part
    pub first: bool,
    /// the record's last part
    pub end: bool,
    /// bytes of the text, for [`Cursor::text`]
    range: Range<usize>,
}

/// See the module. Holds no memory before it is first used.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// of the first byte that is not yet taken
    position: Position,
    place: Place,
    buffer: Vec<u8>,
    /// bytes of `buffer` before this are taken
    taken: usize,
}

impl Cursor {
    /// At the beginning of a record.
    pub(super) fn new(position: Position) -> Self {
        Self { position, place: Place::Start, buffer: Vec::new(), taken: 0 }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn text(&self, part: &Part) -> &[u8] {
        self.buffer.get(part.range.clone()).unwrap_or_default()
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    fn take(&mut self, length: usize) -> Range<usize> {
        let start = self.taken;
        self.taken = self.taken.saturating_add(length);
        self.position.offset = self.position.offset.saturating_add(length as u64);
        start..self.taken
    }

    /// Reads more behind what is not taken yet. `false`: there is nothing more in this file now.
    fn fill(&mut self, chain: &Chain) -> io::Result<bool> {
        self.buffer.drain(..self.taken.min(self.buffer.len()));
        self.taken = 0;
        let old = self.buffer.len();
        self.buffer.resize(old.max(BUFFER), 0);
        let from = Position { offset: self.position.offset.saturating_add(old as u64), ..self.position };
        let length = match self.buffer.get_mut(old..) {
            Some(free) if !free.is_empty() => chain.read(from, free),
            _ => Ok(0),
        };
        self.buffer.truncate(old.saturating_add(*length.as_ref().unwrap_or(&0)));
        Ok(length? > 0)
    }

    /// The next part. `None`: nothing more now; a later call goes on when more was written.
    pub(super) fn next(&mut self, chain: &Chain) -> io::Result<Option<Part>> {
        loop {
            let part = match self.place {
                Place::Start => {
                    self.begin();
                    None
                }
                Place::Text { prefix, at, fresh } => self.text_part(prefix, at, fresh),
                Place::Rubbish => {
                    self.skip_rubbish();
                    None
                }
            };
            if part.is_some() {
                return Ok(part);
            }
            // each state either changed or wants more bytes
            if self.wants_more() && !self.fill(chain)? {
                if !chain.has_later(self.position.file) {
                    return Ok(None);
                }
                // written between our last look and the change of files
                if self.fill(chain)? {
                    continue;
                }
                if let Some(part) = self.next_file() {
                    return Ok(Some(part));
                }
            }
        }
    }

    fn wants_more(&self) -> bool {
        match self.place {
            Place::Start => {
                let rest = self.rest();
                rest.len() < MAX_PREFIX && !rest.contains(&b'\n')
            }
            Place::Text { .. } | Place::Rubbish => self.rest().is_empty(),
        }
    }

    fn begin(&mut self) {
        if self.wants_more() {
            return;
        }
        let line = self.rest().split(|&byte| byte == b'\n').next().unwrap_or_default();
        match Prefix::parse(line) {
            Some(prefix) => {
                self.place = Place::Text { prefix, at: self.position, fresh: true };
                self.take(prefix.length);
            }
            None => self.place = Place::Rubbish,
        }
    }

    fn text_part(&mut self, prefix: Prefix, at: Position, fresh: bool) -> Option<Part> {
        let rest = self.rest();
        if rest.is_empty() {
            return None;
        }
        let newline = rest.iter().position(|&byte| byte == b'\n');
        let range = self.take(newline.unwrap_or(rest.len()));
        if newline.is_some() {
            self.take(1);
        }
        self.place = match newline {
            Some(_) => Place::Start,
            None => Place::Text { prefix, at, fresh: false },
        };
        Some(Part { at, prefix, first: fresh, end: newline.is_some(), range })
    }

    fn skip_rubbish(&mut self) {
        match self.rest().iter().position(|&byte| byte == b'\n') {
            Some(length) => {
                self.take(length.saturating_add(1));
                self.place = Place::Start;
            }
            None => {
                self.take(self.rest().len());
            }
        }
    }

    /// Goes to the next file. A record that was cut there ends.
    fn next_file(&mut self) -> Option<Part> {
        self.buffer.clear();
        self.taken = 0;
        self.position = Position { file: self.position.file.saturating_add(1), offset: 0 };
        match core::mem::replace(&mut self.place, Place::Start) {
            Place::Text { prefix, at, fresh } => {
                Some(Part { at, prefix, first: fresh, end: true, range: 0..0 })
            }
            Place::Start | Place::Rubbish => None,
        }
    }
}
