//! Where the last N lines of a log begin, found by reading it backwards.
//!
//! Streams are looked at apart: a long line of one lies in pieces between lines of the other.

use std::io;

use super::chain::{Chain, Position};
use super::record::{MAX_PREFIX, Prefix, Stream};

const BLOCK: u64 = 64 * 1024;

/// Yields the beginnings of records from the last to the first.
struct Backward<'a> {
    chain: &'a Chain,
    /// end of what was not looked at yet; a record ends here
    end: Position,
    block: Vec<u8>,
    /// offset of `block` in its file
    block_start: u64,
}

impl Backward<'_> {
    /// Makes `block` hold the bytes before `end` (an offset), and gives how many there are.
    fn load(&mut self, end: u64) -> io::Result<usize> {
        let held = self.block_start..self.block_start.saturating_add(self.block.len() as u64);
        if !(end > held.start && end <= held.end) {
            let start = end.saturating_sub(BLOCK);
            let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
            self.block.clear();
            self.block.resize(length, 0);
            let mut done = 0;
            while let Some(free) = self.block.get_mut(done..).filter(|free| !free.is_empty()) {
                let at = Position { file: self.end.file, offset: start.saturating_add(done as u64) };
                match self.chain.read(at, free)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    length => done = done.saturating_add(length),
                }
            }
            self.block_start = start;
        }
        Ok(usize::try_from(end.saturating_sub(self.block_start)).unwrap_or(0))
    }

    /// Beginning of the record before `self.end`; `None`: there is none left in this file.
    fn step(&mut self) -> io::Result<Option<Position>> {
        if self.end.offset == 0 {
            return Ok(None);
        }
        // its own newline does not count
        let mut search_end = self.end.offset.saturating_sub(1);
        let start = loop {
            if search_end == 0 {
                break 0;
            }
            let length = self.load(search_end)?;
            let newline =
                self.block.get(..length).and_then(|bytes| bytes.iter().rposition(|&byte| byte == b'\n'));
            match newline {
                Some(at) => break self.block_start.saturating_add(at as u64).saturating_add(1),
                None => search_end = self.block_start,
            }
        };
        self.end.offset = start;
        Ok(Some(self.end))
    }

    fn next(&mut self) -> io::Result<Option<(Position, Prefix)>> {
        loop {
            let Some(at) = self.step()? else {
                let Some(file) = self.end.file.checked_sub(1).filter(|&file| file >= self.chain.start().file)
                else {
                    return Ok(None);
                };
                self.end = Position { file, offset: self.chain.length(file)? };
                self.block.clear();
                continue;
            };
            let mut front = [0; MAX_PREFIX];
            let length = self.chain.read(at, &mut front)?;
            let line = front.get(..length).unwrap_or_default().split(|&byte| byte == b'\n').next();
            if let Some(prefix) = line.and_then(Prefix::parse) {
                return Ok(Some((at, prefix)));
            }
        }
    }
}

/// Where the last `lines` lines begin, for each stream. Records of a stream before its place are not part of them.
pub(super) fn find(chain: &Chain, lines: u64, only: Option<Stream>) -> io::Result<[Position; 2]> {
    let end = chain.end()?;
    let mut starts = [end, end];
    if lines == 0 {
        return Ok(starts);
    }
    let mut backward = Backward { chain, end, block: Vec::new(), block_start: 0 };
    let mut count = 0_u64;
    // inside a line whose beginning is not found yet
    let mut inside = [false, false];
    while let Some((at, prefix)) = backward.next()? {
        if only.is_some_and(|only| only != prefix.stream) {
            continue;
        }
        let index = prefix.stream.index();
        let ends_a_line = prefix.last || !inside[index];
        if ends_a_line {
            inside[index] = false;
            if count < lines {
                count = count.saturating_add(1);
                inside[index] = true;
            } else if inside == [false, false] {
                break;
            }
        }
        if inside[index] {
            starts[index] = at;
        }
    }
    Ok(starts)
}
