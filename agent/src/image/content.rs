//! The small files and blobs of an image on disk: an OCI layout folder, a tar archive, a compressed one.
//!
//! A plain archive is indexed once by its headers and then read in place, in any order. A compressed one
//! cannot be: it is decompressed again from the start whenever something earlier is wanted. Archives are
//! never copied, to memory or disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use super::error::ImageError;
use super::tar_stream::{Kind, Plain, Source, TarStream};

const MEMBER_LIMIT: usize = 65_536;
const BUFFER: usize = 64 * 1024;

/// Content by name.
pub(super) enum Content {
    Folder(PathBuf),
    Archive { file: Arc<File>, members: Members },
    Compressed { path: PathBuf, members: Members, at: u64, stream: Option<Box<dyn Read + Send>> },
}

#[derive(Default)]
pub(super) struct Members {
    /// offset in the archive and size
    files: BTreeMap<String, (u64, u64)>,
    /// old docker-save archives hold a layer once and link to it
    links: BTreeMap<String, String>,
}

impl Content {
    pub(super) fn open(path: &Path) -> Result<Self, ImageError> {
        let meta = std::fs::metadata(path).map_err(|e| ImageError::io("open", path, &e))?;
        if meta.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        if !meta.is_file() {
            return Err(not_an_image(path, "it is neither a folder nor a file"));
        }
        let file = File::open(path).map_err(|e| ImageError::io("open", path, &e))?;
        let mut magic = [0; 4];
        let known = file.read_at(&mut magic, 0).map_err(|e| ImageError::io("read", path, &e))?;
        if matches!(format_of(magic.get(..known).unwrap_or_default()), Format::Plain) {
            let file = Arc::new(file);
            let mut section = Section { file: Arc::clone(&file), at: 0, end: meta.len() };
            let members = Members::read(&mut section).map_err(|e| explain(path, e))?;
            return Ok(Self::Archive { file, members });
        }
        let members = Members::read(&mut Plain(unpack_file(path)?)).map_err(|e| explain(path, e))?;
        Ok(Self::Compressed { path: path.to_owned(), members, at: 0, stream: None })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Folder(root) => root.join(name).is_file(),
            Self::Archive { members, .. } | Self::Compressed { members, .. } => members.find(name).is_some(),
        }
    }

    /// Opens a file; gives its size, too.
    pub(super) fn read(&mut self, name: &str) -> Result<(Box<dyn Read + Send + '_>, u64), ImageError> {
        let missing =
            || ImageError::NotAnImage { path: PathBuf::from(name), why: "it is missing".to_owned() };
        match self {
            Self::Folder(root) => {
                if name.split('/').any(|part| part == "..") || name.starts_with('/') {
                    return Err(missing());
                }
                let path = root.join(name);
                let file = File::open(&path).map_err(|e| ImageError::io("open", &path, &e))?;
                let meta = file.metadata().map_err(|e| ImageError::io("open", &path, &e))?;
                Ok((Box::new(file), meta.len()))
            }
            Self::Archive { file, members } => {
                let (offset, size) = members.find(name).ok_or_else(missing)?;
                let section =
                    Section { file: Arc::clone(file), at: offset, end: offset.saturating_add(size) };
                Ok((Box::new(section), size))
            }
            Self::Compressed { path, members, at, stream } => {
                let (offset, size) = members.find(name).ok_or_else(missing)?;
                if stream.is_none() || *at > offset {
                    *stream = Some(Box::new(unpack_file(path)?));
                    *at = 0;
                }
                let Some(inner) = stream.as_mut() else { return Err(missing()) };
                let mut counted = Counted { inner, at };
                let gap = offset.saturating_sub(*counted.at);
                Plain(&mut counted).skip(gap).map_err(|e| ImageError::io("read", path.as_path(), &e))?;
                Ok((Box::new(counted.take(size)), size))
            }
        }
    }

    /// A whole small file.
    pub(super) fn read_small(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, ImageError> {
        let (reader, size) = self.read(name)?;
        if size > limit {
            return Err(ImageError::TooLarge { what: format!("\"{name}\""), bytes: size, limit });
        }
        let mut text = Vec::new();
        reader.take(limit).read_to_end(&mut text).map_err(|e| ImageError::io("read", name, &e))?;
        Ok(text)
    }
}

pub(super) fn not_an_image(path: &Path, why: &str) -> ImageError {
    ImageError::NotAnImage { path: path.to_owned(), why: why.to_owned() }
}

fn explain(path: &Path, error: ImageError) -> ImageError {
    match error {
        ImageError::BadStream { what, why } => not_an_image(path, &format!("damaged {what}: {why}")),
        other => other,
    }
}

impl Members {
    fn read<R: Source>(source: &mut R) -> Result<Self, ImageError> {
        let mut members = Self::default();
        let mut stream = TarStream::new(BySource(source));
        while let Some(entry) = stream.next_entry()? {
            let Some(name) = clean(&entry.path) else { continue };
            match entry.kind {
                Kind::File if entry.pieces.is_none() => {
                    members.files.insert(name, (entry.offset, entry.size));
                }
                Kind::Symlink => {
                    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let target = String::from_utf8_lossy(&entry.link);
                    if let Some(target) = clean(format!("{folder}/{target}").as_bytes()) {
                        members.links.insert(name, target);
                    }
                }
                Kind::HardLink => {
                    if let Some(target) = clean(&entry.link) {
                        members.links.insert(name, target);
                    }
                }
                _ => {}
            }
            if members.files.len().saturating_add(members.links.len()) > MEMBER_LIMIT {
                return Err(ImageError::TooLarge {
                    what: "the list of files of the archive".to_owned(),
                    bytes: MEMBER_LIMIT as u64,
                    limit: MEMBER_LIMIT as u64,
                });
            }
        }
        Ok(members)
    }

    fn find(&self, name: &str) -> Option<(u64, u64)> {
        let name = clean(name.as_bytes())?;
        let name = self.links.get(&name).unwrap_or(&name);
        self.files.get(name).copied()
    }
}

/// `./a/../b` → `b`; `None`: no UTF-8, so nothing that an image refers to.
fn clean(path: &[u8]) -> Option<String> {
    let parts = super::tree::components(path).ok()?;
    String::from_utf8(parts.join(&b'/')).ok()
}

struct BySource<'a, R>(&'a mut R);

impl<R: Read> Read for BySource<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Source> Source for BySource<'_, R> {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        self.0.skip(count)
    }
}

struct Counted<'a, R> {
    inner: R,
    at: &'a mut u64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        *self.at = self.at.saturating_add(count as u64);
        Ok(count)
    }
}

/// A part of a file, with its own position.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        let count = self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at = self.at.saturating_add(count as u64);
        Ok(count)
    }
}

impl Source for Section {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        let target = self.at.checked_add(count).filter(|target| *target <= self.end);
        self.at = target.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }
}

/// How a stream is compressed, by its first bytes: media types are too often wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Plain,
    Gzip,
    Zstd,
}

pub(super) fn format_of(magic: &[u8]) -> Format {
    match magic {
        [0x1f, 0x8b, ..] => Format::Gzip,
        // a frame, or a skippable frame before it
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
        _ => Format::Plain,
    }
}

/// Decompresses `source`, whose format is known.
pub(super) fn decompress<'a, R: Read + Send + 'a>(
    source: R,
    format: Format,
) -> Result<Box<dyn Read + Send + 'a>, ImageError> {
    match format {
        Format::Plain => Ok(Box::new(source)),
        // several members one after another are one stream (pigz, seekable layers)
        Format::Gzip => Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, source)))),
        #[cfg(feature = "zstd")]
        Format::Zstd => Ok(Box::new(super::zstd::ZstdReader::new(source))),
        #[cfg(not(feature = "zstd"))]
        Format::Zstd => {
            Err(ImageError::Unsupported { what: "zstd, which this build leaves out,".to_owned() })
        }
    }
}

fn unpack_file(path: &Path) -> Result<Box<dyn Read + Send>, ImageError> {
    let file = File::open(path).map_err(|e| ImageError::io("open", path, &e))?;
    let mut magic = [0; 4];
    let known = file.read_at(&mut magic, 0).map_err(|e| ImageError::io("read", path, &e))?;
    let stream = decompress(file, format_of(magic.get(..known).unwrap_or_default()))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER, stream)))
}
