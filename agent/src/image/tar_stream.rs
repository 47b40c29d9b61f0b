//! Reads a tar stream entry by entry with a bounded memory, whatever the archive claims.
//!
//! Field layouts come from the `tar` crate; the walk is our own because its reader takes long names and
//! extension records into memory at the size the archive states, and knows no PAX sparse files.
//! Understood: v7, ustar, PAX (`x`, `g`), GNU long names (`L`, `K`), GNU sparse in its four forms.

use std::io::{self, Read};

use tar::Header;

use super::error::ImageError;

/// Long names and extension records of one entry, bytes.
const EXTENSION_LIMIT: u64 = 1024 * 1024;
/// Pieces of one sparse file.
const SPARSE_LIMIT: usize = 16 * 1024;
const BLOCK: u64 = 512;

/// What an entry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Folder,
    Fifo,
    /// a type byte nobody defined
    Other(u8),
}

/// One entry, extension records applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// target of a link
    pub link: Vec<u8>,
    /// permission bits, 0..=0o7777
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// seconds and nanoseconds since 1970
    pub mtime: (i64, u32),
    /// bytes of the file once written, holes included
    pub size: u64,
    /// where the entry's stored bytes begin in the stream
    pub offset: u64,
    pub major: u64,
    pub minor: u64,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// `(offset, length)` of the stored pieces of a sparse file, ascending
    pub pieces: Option<Vec<(u64, u64)>>,
}

/// A reader that can pass over bytes more cheaply than by reading them.
pub trait Source: Read {
    /// Passes over `count` bytes. Fewer left: an error, now or at the next read.
    fn skip(&mut self, count: u64) -> io::Result<()> {
        let mut buffer = [0; 8192];
        let mut left = count;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match self.read(buffer.get_mut(..want).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(passed) => left = left.saturating_sub(passed as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A reader without a shortcut.
pub struct Plain<R>(pub R);

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Source for Plain<R> {}

/// PAX records that matter here.
#[derive(Clone, Debug, Default)]
struct Records {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: SparseRecords,
}

#[derive(Clone, Debug, Default)]
struct SparseRecords {
    name: Option<Vec<u8>>,
    real_size: Option<u64>,
    /// versions 0.0 and 0.1
    pieces: Vec<(u64, u64)>,
    half: Option<u64>,
    /// version 1.0: the map stands before the data
    map_in_data: bool,
    seen: bool,
}

/// The stream. After [`TarStream::next_entry`] gave an entry, reading gives its stored bytes.
pub struct TarStream<R> {
    source: R,
    /// bytes taken from the source
    position: u64,
    /// stored bytes of the current entry not yet read
    remaining: u64,
    padding: u64,
    globals: Records,
    ended: bool,
}

fn bad(why: &str) -> ImageError {
    ImageError::BadStream { what: "tar stream", why: why.to_owned() }
}

fn failed(error: &io::Error) -> ImageError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => bad("it ends in the middle"),
        _ => ImageError::io("read the tar stream", "", error),
    }
}

impl<R: Source> TarStream<R> {
    pub fn new(source: R) -> Self {
        Self { source, position: 0, remaining: 0, padding: 0, globals: Records::default(), ended: false }
    }

    pub fn into_inner(self) -> R {
        self.source
    }

    /// The next entry; `None` at the end of the archive.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut records = self.globals.clone();
        let mut long_name = None;
        let mut long_link = None;
        loop {
            self.finish_entry()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let old = header.as_old();
            let stored = number(&old.size)?;
            match header.as_bytes()[156] {
                b'x' => records.read(&self.extension(stored)?)?,
                b'g' => {
                    let text = self.extension(stored)?;
                    self.globals.read(&text)?;
                    records = self.globals.clone();
                }
                b'L' => long_name = Some(until_nul(&self.extension(stored)?).to_vec()),
                b'K' => long_link = Some(until_nul(&self.extension(stored)?).to_vec()),
                // the label of a volume names nothing
                b'V' => self.begin_data(stored),
                kind => return self.entry(&header, kind, stored, records, long_name, long_link).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: u8,
        stored: u64,
        records: Records,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Entry, ImageError> {
        let old = header.as_old();
        let path = records.path.or(long_name).unwrap_or_else(|| short_name(header));
        let mut entry = Entry {
            kind: kind_of(kind, &path),
            path,
            link: records.link.or(long_link).unwrap_or_else(|| until_nul(&old.linkname).to_vec()),
            mode: u32::try_from(number(&old.mode)? & 0o7777).unwrap_or(0),
            uid: records.uid.map_or_else(|| number(&old.uid), Ok)?,
            gid: records.gid.map_or_else(|| number(&old.gid), Ok)?,
            mtime: records.mtime.map_or_else(|| signed(&old.mtime).map(|s| (s, 0)), Ok)?,
            size: records.size.unwrap_or(stored),
            offset: self.position,
            major: 0,
            minor: 0,
            xattrs: records.xattrs,
            pieces: None,
        };
        let numbers = header
            .as_ustar()
            .map(|ustar| (&ustar.dev_major, &ustar.dev_minor))
            .or_else(|| header.as_gnu().map(|gnu| (&gnu.dev_major, &gnu.dev_minor)));
        if let Some((major, minor)) = numbers
            && matches!(entry.kind, Kind::CharDevice | Kind::BlockDevice)
        {
            (entry.major, entry.minor) = (number(major)?, number(minor)?);
        }
        if entry.kind != Kind::File {
            // what is no file has no data, whatever its header says (a PAX hard link is the one
            // exception that exists on paper; nobody writes it)
            if !matches!(entry.kind, Kind::Other(_)) {
                entry.size = 0;
            }
            self.begin_data(entry.size);
            return Ok(entry);
        }
        self.begin_data(entry.size);
        if kind == b'S' {
            self.gnu_sparse(header, &mut entry)?;
        } else if records.sparse.seen {
            self.pax_sparse(records.sparse, &mut entry)?;
        }
        if let Some(pieces) = &entry.pieces {
            check_pieces(pieces, entry.size, self.remaining)?;
        }
        Ok(entry)
    }

    fn begin_data(&mut self, stored: u64) {
        self.remaining = stored;
        self.padding = padding(stored);
    }

    /// Passes over what is left of the current entry.
    fn finish_entry(&mut self) -> Result<(), ImageError> {
        let rest = self.remaining.checked_add(self.padding).ok_or_else(|| bad("an entry is too long"))?;
        if rest > 0 {
            self.source.skip(rest).map_err(|e| failed(&e))?;
            self.position = self.position.saturating_add(rest);
        }
        (self.remaining, self.padding) = (0, 0);
        Ok(())
    }

    /// The next header; `None` at the end. One zero block ends it too: some writers leave out the second.
    fn header(&mut self) -> Result<Option<Header>, ImageError> {
        if self.ended {
            return Ok(None);
        }
        let mut header = Header::new_old();
        let filled = self.fill(header.as_mut_bytes())?;
        if filled == 0 || header.as_bytes().iter().all(|byte| *byte == 0) {
            self.ended = true;
            return Ok(None);
        }
        if filled < header.as_bytes().len() {
            return Err(bad("it ends in the middle of a header"));
        }
        check_sum(&header)?;
        Ok(Some(header))
    }

    /// Reads until `buffer` is full or the source ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, ImageError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        self.position = self.position.saturating_add(filled as u64);
        Ok(filled)
    }

    fn extension(&mut self, stored: u64) -> Result<Vec<u8>, ImageError> {
        if stored > EXTENSION_LIMIT {
            return Err(ImageError::TooLarge {
                what: "an extension record of a tar entry".to_owned(),
                bytes: stored,
                limit: EXTENSION_LIMIT,
            });
        }
        self.begin_data(stored);
        let mut text = Vec::new();
        self.read_to_end(&mut text).map_err(|e| failed(&e))?;
        if text.len() as u64 != stored {
            return Err(bad("it ends in an extension record"));
        }
        Ok(text)
    }

    /// The map of the old GNU form: in the header, continued in blocks before the data.
    fn gnu_sparse(&mut self, header: &Header, entry: &mut Entry) -> Result<(), ImageError> {
        let gnu = header.as_gnu().ok_or_else(|| bad("a sparse entry without GNU header"))?;
        entry.size = number(&gnu.realsize)?;
        let mut pieces = Vec::new();
        let mut add = |offset: &[u8], length: &[u8]| -> Result<(), ImageError> {
            let length_value = number(length)?;
            if offset[0] != 0 && length_value > 0 {
                push_piece(&mut pieces, number(offset)?, length_value)?;
            }
            Ok(())
        };
        for piece in &gnu.sparse {
            add(&piece.offset, &piece.numbytes)?;
        }
        let mut more = gnu.isextended[0] == 1;
        while more {
            // these blocks stand between header and data and are not counted in the stored size
            let mut block = [0; 512];
            if self.fill(&mut block)? < block.len() {
                return Err(bad("it ends in the map of a sparse file"));
            }
            for piece in block[..504].chunks_exact(24) {
                add(&piece[..12], &piece[12..])?;
            }
            more = block[504] == 1;
        }
        entry.offset = self.position;
        entry.pieces = Some(pieces);
        Ok(())
    }

    fn pax_sparse(&mut self, records: SparseRecords, entry: &mut Entry) -> Result<(), ImageError> {
        if let Some(name) = records.name {
            entry.path = name;
        }
        let mut pieces = Vec::new();
        if records.map_in_data {
            let count = self.map_number()?;
            for _ in 0..count {
                let offset = self.map_number()?;
                let length = self.map_number()?;
                push_piece(&mut pieces, offset, length)?;
            }
            // the map is filled up to a whole block
            let used = entry.size.saturating_sub(self.remaining);
            let fill = padding(used);
            io::copy(&mut self.by_ref().take(fill), &mut io::sink()).map_err(|e| failed(&e))?;
        } else {
            for (offset, length) in records.pieces {
                push_piece(&mut pieces, offset, length)?;
            }
        }
        entry.offset = self.position;
        entry.size = records.real_size.ok_or_else(|| bad("a sparse file without its size"))?;
        entry.pieces = Some(pieces);
        Ok(())
    }

    /// A decimal number ended by a new line, of the map of a PAX 1.0 sparse file.
    fn map_number(&mut self) -> Result<u64, ImageError> {
        let mut value: u64 = 0;
        let mut byte = [0];
        loop {
            self.read_exact(&mut byte).map_err(|e| failed(&e))?;
            match byte[0] {
                b'\n' => return Ok(value),
                digit @ b'0'..=b'9' => value = append_digit(value, digit)?,
                _ => return Err(bad("the map of a sparse file is not a number")),
            }
        }
    }
}

impl<R: Read> Read for TarStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        let Some(part) = buffer.get_mut(..most).filter(|part| !part.is_empty()) else { return Ok(0) };
        let count = self.source.read(part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining = self.remaining.saturating_sub(count as u64);
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }
}

fn padding(stored: u64) -> u64 {
    BLOCK.wrapping_sub(stored % BLOCK) % BLOCK
}

fn push_piece(pieces: &mut Vec<(u64, u64)>, offset: u64, length: u64) -> Result<(), ImageError> {
    if pieces.len() >= SPARSE_LIMIT {
        return Err(bad("a sparse file has too many pieces"));
    }
    pieces.push((offset, length));
    Ok(())
}

/// Pieces ascend without overlap, end within the file, and are all stored.
fn check_pieces(pieces: &[(u64, u64)], size: u64, stored: u64) -> Result<(), ImageError> {
    let mut end = 0u64;
    let mut sum = 0u64;
    for (offset, length) in pieces {
        let stop = offset.checked_add(*length).filter(|stop| *stop <= size);
        let Some(stop) = stop.filter(|_| *offset >= end) else {
            return Err(bad("the pieces of a sparse file overlap or leave it"));
        };
        end = stop;
        sum = sum.saturating_add(*length);
    }
    if sum > stored { Err(bad("a sparse file has fewer bytes than its map")) } else { Ok(()) }
}

fn check_sum(header: &Header) -> Result<(), ImageError> {
    let stated = number(&header.as_old().cksum)?;
    let field = 148..156;
    let bytes = || header.as_bytes().iter().enumerate();
    let unsigned: u64 = bytes().map(|(i, b)| if field.contains(&i) { 32 } else { u64::from(*b) }).sum();
    // very old writers summed signed bytes
    let signed: i64 =
        bytes().map(|(i, b)| if field.contains(&i) { 32 } else { i64::from(i8::from_ne_bytes([*b])) }).sum();
    if stated == unsigned || i64::try_from(stated) == Ok(signed) {
        Ok(())
    } else {
        Err(bad("a header has a wrong checksum"))
    }
}

fn kind_of(kind: u8, path: &[u8]) -> Kind {
    match kind {
        // before POSIX a folder was a file with a slash
        0 | b'0' if path.ends_with(b"/") => Kind::Folder,
        0 | b'0' | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' | b'D' => Kind::Folder,
        b'6' => Kind::Fifo,
        other => Kind::Other(other),
    }
}

fn short_name(header: &Header) -> Vec<u8> {
    let name = until_nul(&header.as_old().name);
    match header.as_ustar().map(|ustar| until_nul(&ustar.prefix)) {
        Some(prefix) if !prefix.is_empty() => [prefix, b"/", name].concat(),
        _ => name.to_vec(),
    }
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal text, or base 256 where the first bit is set (GNU).
fn number(field: &[u8]) -> Result<u64, ImageError> {
    u64::try_from(signed(field)?).map_err(|_| bad("a negative number in a header"))
}

fn signed(field: &[u8]) -> Result<i64, ImageError> {
    let too_large = || bad("a number in a header is too large");
    let Some(first) = field.first() else { return Ok(0) };
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        let start = if negative { -1 } else { i128::from(first & 0x3f) };
        let mut value: i128 = if negative { !0x7f | i128::from(first & 0x7f) } else { start };
        for byte in field.iter().skip(1) {
            value = value
                .checked_mul(256)
                .and_then(|v| v.checked_add(i128::from(*byte)))
                .ok_or_else(too_large)?;
        }
        return i64::try_from(value).map_err(|_| too_large());
    }
    let mut value: i64 = 0;
    let digits = field.iter().skip_while(|byte| matches!(byte, b' ' | 0));
    for digit in digits.take_while(|byte| !matches!(byte, b' ' | 0)) {
        let digit = match digit {
            b'0'..=b'7' => i64::from(digit - b'0'),
            _ => return Err(bad("a number in a header is not octal")),
        };
        value = value.checked_mul(8).and_then(|v| v.checked_add(digit)).ok_or_else(too_large)?;
    }
    Ok(value)
}

fn append_digit(value: u64, digit: u8) -> Result<u64, ImageError> {
    value
        .checked_mul(10)
        .and_then(|v| v.checked_add(u64::from(digit.wrapping_sub(b'0'))))
        .ok_or_else(|| bad("a number is too large"))
}

fn decimal(text: &[u8]) -> Result<u64, ImageError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(bad("a PAX record is not a number"));
    }
    text.iter().try_fold(0, |value, digit| append_digit(value, *digit))
}

/// `-12.345` → seconds rounded down, nanoseconds.
fn pax_time(text: &[u8]) -> Result<(i64, u32), ImageError> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = decimal(parts.next().unwrap_or_default())?;
    let seconds = i64::try_from(whole).map_err(|_| bad("a time is too large"))?;
    let fraction = parts.next().unwrap_or_default();
    let mut nanos: u32 = 0;
    for place in 0..9 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Err(bad("a time is not a number"));
        }
        nanos = nanos.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    }
    Ok(match (negative, nanos) {
        (false, nanos) => (seconds, nanos),
        (true, 0) => (seconds.saturating_neg(), 0),
        (true, nanos) => (seconds.saturating_neg().saturating_sub(1), 1_000_000_000 - nanos),
    })
}

impl Records {
    /// Reads `<length> <key>=<value>\n` records; an empty value takes a record back.
    fn read(&mut self, mut text: &[u8]) -> Result<(), ImageError> {
        let malformed = || bad("a PAX record is malformed");
        while !text.is_empty() {
            let space = text.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
            let length = decimal(text.get(..space).unwrap_or_default())?;
            let length = usize::try_from(length).map_err(|_| malformed())?;
            let record = text.get(space + 1..length).ok_or_else(malformed)?;
            let record = record.strip_suffix(b"\n").ok_or_else(malformed)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
            let (key, value) = record.split_at(equals);
            self.set(key, value.get(1..).unwrap_or_default())?;
            text = text.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        let given = !value.is_empty();
        match key {
            b"path" => self.path = given.then(|| value.to_vec()),
            b"linkpath" => self.link = given.then(|| value.to_vec()),
            b"size" => self.size = given.then(|| decimal(value)).transpose()?,
            b"uid" => self.uid = given.then(|| decimal(value)).transpose()?,
            b"gid" => self.gid = given.then(|| decimal(value)).transpose()?,
            b"mtime" => self.mtime = given.then(|| pax_time(value)).transpose()?,
            _ if key.starts_with(b"GNU.sparse.") => self.sparse.set(key, value)?,
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.retain(|(old, _)| old != name);
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

impl SparseRecords {
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        self.seen = true;
        match key {
            b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.real_size = Some(decimal(value)?),
            b"GNU.sparse.major" => self.map_in_data = value != b"0",
            b"GNU.sparse.offset" => self.half = Some(decimal(value)?),
            b"GNU.sparse.numbytes" => {
                let offset = self.half.take().ok_or_else(|| bad("a sparse piece without offset"))?;
                push_piece(&mut self.pieces, offset, decimal(value)?)?;
            }
            b"GNU.sparse.map" => {
                let numbers: Vec<u64> =
                    value.split(|byte| *byte == b',').map(decimal).collect::<Result<_, _>>()?;
                for pair in numbers.chunks(2) {
                    let [offset, length] = pair else { return Err(bad("a sparse map has an odd end")) };
                    push_piece(&mut self.pieces, *offset, *length)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
