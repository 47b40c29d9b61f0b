//! Makes an image of files and folders: an OCI layout folder or archive, the same bytes each time.
//!
//! Entries are sorted, belong to root, and carry one time (`SOURCE_DATE_EPOCH`, else 1970). What the
//! sources hold is taken as it is: modes, symlinks, hard links, devices; sockets are left out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use podkeep_core::image::Platform;
use tar::{Builder, EntryType, Header};

use super::digest::{Digest, Hashing};
use super::error::ImageError;
use super::name::ImageName;
use super::oci::{
    self, CONTAINERD_NAME, ConfigFile, Descriptor, DescriptorPlatform, ImageConfig, Manifest, REF_NAME,
    RootFs,
};

/// What goes into the image and what runs.
#[derive(Clone, Debug, Default)]
pub struct PackOrder {
    pub sources: Vec<PackSource>,
    /// symlinks to add: path in the image, target
    pub links: Vec<(String, String)>,
    pub config: ImageConfig,
    /// written into the layout, so that `image load` needs no name
    pub name: Option<String>,
    /// seconds since 1970 of all entries and the image
    pub epoch: u64,
    pub platform: Platform,
}

/// A file or folder of this machine and its place in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackSource {
    pub host: PathBuf,
    /// absolute; a folder's content goes below it, a file gets this name
    pub target: PathBuf,
}

impl PackSource {
    /// `DIR`: its content becomes the root. `FILE`: `/FILE`'s name. `SRC:/TARGET`: goes there.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let whole = Path::new(text);
        if !whole.exists()
            && let Some((host, target)) = text.rsplit_once(":/")
        {
            return Self { host: host.into(), target: Path::new("/").join(target) };
        }
        let root = Path::new("/");
        let target =
            if whole.is_dir() { root.into() } else { root.join(whole.file_name().unwrap_or_default()) };
        Self { host: whole.into(), target }
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// the image's id
    pub config: Digest,
    pub manifest: Digest,
    /// bytes of the compressed layer
    pub layer_bytes: u64,
}

/// `SOURCE_DATE_EPOCH` of the environment, else 0.
#[must_use]
pub fn epoch_of_environment() -> u64 {
    std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

enum Node {
    /// made for what stands below
    Folder,
    Link(PathBuf),
    Host(PathBuf, Metadata),
}

type Nodes = BTreeMap<Vec<u8>, Node>;

/// Packs into `out`: a layout folder if it is one or ends with a slash, else an archive file.
pub fn pack(order: &PackOrder, out: &Path) -> Result<Packed, ImageError> {
    let nodes = gather(order)?;
    let as_folder = out.is_dir() || out.as_os_str().as_bytes().ends_with(b"/");
    let parent = if as_folder {
        out
    } else {
        out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    };
    fs::create_dir_all(parent).map_err(|e| ImageError::io("make the folder", parent, &e))?;
    let layer_path = parent.join(format!(".pack-{}", std::process::id()));
    let packed = pack_with(order, &nodes, &layer_path, out, as_folder);
    if let Err(error) = fs::remove_file(&layer_path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(ImageError::io("remove", &layer_path, &error));
    }
    packed
}

fn pack_with(
    order: &PackOrder,
    nodes: &Nodes,
    layer_path: &Path,
    out: &Path,
    as_folder: bool,
) -> Result<Packed, ImageError> {
    let (layer, diff_id, layer_bytes) = write_layer(order, nodes, layer_path)?;
    let config = ConfigFile {
        created: Some(rfc3339(order.epoch)),
        architecture: order.platform.architecture.clone(),
        variant: order.platform.variant.clone(),
        os: order.platform.os.clone(),
        config: order.config.clone(),
        rootfs: RootFs { kind: "layers".to_owned(), diff_ids: vec![diff_id.to_string()] },
    };
    let config = json(&config)?;
    let layer_descriptor = descriptor(&format!("{}+gzip", oci::OCI_LAYER), layer, layer_bytes);
    let manifest = json(&Manifest {
        schema_version: 2,
        media_type: oci::OCI_MANIFEST.to_owned(),
        config: Some(descriptor(oci::OCI_CONFIG, Digest::of(&config), config.len() as u64)),
        layers: vec![layer_descriptor],
        manifests: Vec::new(),
    })?;
    let index = json(&index(order, &manifest)?)?;
    let blob = |digest: Digest| format!("blobs/sha256/{}", digest.hex());
    let mut small = vec![
        (blob(Digest::of(&config)), config.as_slice()),
        (blob(Digest::of(&manifest)), manifest.as_slice()),
        ("index.json".to_owned(), index.as_slice()),
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.as_slice()),
    ];
    small.sort();
    let big = (blob(layer), layer_path, layer_bytes);
    if as_folder { write_folder(out, &small, &big) } else { write_archive(out, &small, &big, order.epoch) }?;
    Ok(Packed { config: Digest::of(&config), manifest: Digest::of(&manifest), layer_bytes })
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, ImageError> {
    serde_json::to_vec(value).map_err(|e| ImageError::json("image", &e))
}

fn descriptor(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: digest.to_string(),
        size,
        ..Descriptor::default()
    }
}

fn index(order: &PackOrder, manifest: &[u8]) -> Result<Manifest, ImageError> {
    let mut entry = descriptor(oci::OCI_MANIFEST, Digest::of(manifest), manifest.len() as u64);
    entry.platform = Some(DescriptorPlatform {
        architecture: order.platform.architecture.clone(),
        os: order.platform.os.clone(),
        variant: order.platform.variant.clone(),
    });
    if let Some(name) = &order.name {
        let name = ImageName::parse(name)?;
        entry.annotations.insert(CONTAINERD_NAME.to_owned(), name.to_string());
        entry.annotations.insert(REF_NAME.to_owned(), name.tag.unwrap_or_else(|| "latest".to_owned()));
    }
    Ok(Manifest {
        schema_version: 2,
        media_type: oci::OCI_INDEX.to_owned(),
        manifests: vec![entry],
        ..Manifest::default()
    })
}

fn gather(order: &PackOrder) -> Result<Nodes, ImageError> {
    let mut nodes = Nodes::new();
    for source in &order.sources {
        let target = inside(&source.target)?;
        let meta =
            fs::symlink_metadata(&source.host).map_err(|e| ImageError::io("open", &source.host, &e))?;
        // a symlink named by hand means what it points to
        let meta = if meta.is_symlink() {
            fs::metadata(&source.host).map_err(|e| ImageError::io("open", &source.host, &e))?
        } else {
            meta
        };
        add_parents(&mut nodes, &target);
        add(&mut nodes, target, &source.host, meta)?;
    }
    for (path, target) in &order.links {
        let path = inside(Path::new(path))?;
        add_parents(&mut nodes, &path);
        nodes.insert(path, Node::Link(target.into()));
    }
    nodes.remove(b"".as_slice());
    Ok(nodes)
}

fn inside(target: &Path) -> Result<Vec<u8>, ImageError> {
    Ok(super::tree::components(target.as_os_str().as_bytes())?.join(&b'/'))
}

fn add_parents(nodes: &mut Nodes, path: &[u8]) {
    for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        if let Some(parent) = path.get(..at) {
            nodes.entry(parent.to_vec()).or_insert(Node::Folder);
        }
    }
}

fn add(nodes: &mut Nodes, target: Vec<u8>, host: &Path, meta: Metadata) -> Result<(), ImageError> {
    if meta.file_type().is_socket() {
        return Ok(());
    }
    let is_folder = meta.is_dir();
    nodes.insert(target.clone(), Node::Host(host.to_owned(), meta));
    if !is_folder {
        return Ok(());
    }
    for entry in fs::read_dir(host).map_err(|e| ImageError::io("read the folder", host, &e))? {
        let entry = entry.map_err(|e| ImageError::io("read the folder", host, &e))?;
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).map_err(|e| ImageError::io("open", &path, &e))?;
        let name = entry.file_name();
        let below = if target.is_empty() {
            name.as_bytes().to_vec()
        } else {
            [target.as_slice(), name.as_bytes()].join(&b'/')
        };
        add(nodes, below, &path, meta)?;
    }
    Ok(())
}

/// Writes the compressed layer; gives its digest, the digest of the archive in it, and its size.
fn write_layer(order: &PackOrder, nodes: &Nodes, path: &Path) -> Result<(Digest, Digest, u64), ImageError> {
    let failed = |e: io::Error| ImageError::io("write", path, &e);
    let stored = Hashing::new(io::BufWriter::with_capacity(64 * 1024, File::create(path).map_err(failed)?));
    let tar = Hashing::new(GzEncoder::new(stored, Compression::default()));
    let mut builder = Builder::new(tar);
    let mut seen = BTreeMap::new();
    for (name, node) in nodes {
        append(&mut builder, order, name, node, &mut seen)?;
    }
    let tar = builder.into_inner().map_err(failed)?;
    let diff_id = tar.digest();
    let mut stored = tar.into_inner().finish().map_err(failed)?;
    stored.flush().map_err(failed)?;
    let (digest, bytes) = (stored.digest(), stored.passed());
    let file = stored.into_inner().into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok((digest, diff_id, bytes))
}

fn append<W: Write>(
    builder: &mut Builder<W>,
    order: &PackOrder,
    name: &[u8],
    node: &Node,
    seen: &mut BTreeMap<(u64, u64), Vec<u8>>,
) -> Result<(), ImageError> {
    let path = Path::new(OsStr::from_bytes(name));
    let failed = |e: io::Error| ImageError::io("pack", path, &e);
    let mut header = Header::new_gnu();
    header.set_mtime(order.epoch);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    let (host, meta) = match node {
        Node::Folder => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o755);
            return builder.append_data(&mut header, path, io::empty()).map_err(failed);
        }
        Node::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            return builder.append_link(&mut header, path, target).map_err(failed);
        }
        Node::Host(host, meta) => (host, meta),
    };
    header.set_mode(meta.mode() & 0o7777);
    let kind = meta.file_type();
    if kind.is_file() && meta.nlink() > 1 {
        if let Some(first) = seen.get(&(meta.dev(), meta.ino())) {
            header.set_entry_type(EntryType::Link);
            return builder
                .append_link(&mut header, path, Path::new(OsStr::from_bytes(first)))
                .map_err(failed);
        }
        seen.insert((meta.dev(), meta.ino()), name.to_vec());
    }
    if kind.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        let target = fs::read_link(host).map_err(|e| ImageError::io("read the link", host, &e))?;
        return builder.append_link(&mut header, path, target).map_err(failed);
    }
    if kind.is_file() {
        header.set_entry_type(EntryType::Regular);
        header.set_size(meta.len());
        let file = File::open(host).map_err(|e| ImageError::io("open", host, &e))?;
        let exact = Exact { inner: file, left: meta.len() };
        return builder.append_data(&mut header, path, exact).map_err(failed);
    }
    header.set_entry_type(match () {
        () if kind.is_dir() => EntryType::Directory,
        () if kind.is_fifo() => EntryType::Fifo,
        () if kind.is_block_device() => EntryType::Block,
        () => EntryType::Char,
    });
    if kind.is_block_device() || kind.is_char_device() {
        let major = u32::try_from(nix::sys::stat::major(meta.rdev())).unwrap_or(0);
        let minor = u32::try_from(nix::sys::stat::minor(meta.rdev())).unwrap_or(0);
        header.set_device_major(major).and_then(|()| header.set_device_minor(minor)).map_err(failed)?;
    }
    builder.append_data(&mut header, path, io::empty()).map_err(failed)
}

/// Gives the number of bytes the header promised, or an error: the file may change while it is read.
struct Exact<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(part) = buffer.get_mut(..most).filter(|part| !part.is_empty()) else { return Ok(0) };
        let count = self.inner.read(part)?;
        if count == 0 {
            return Err(io::Error::other("the file became shorter while it was packed"));
        }
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

fn write_folder(out: &Path, small: &[(String, &[u8])], big: &(String, &Path, u64)) -> Result<(), ImageError> {
    let blobs = out.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|e| ImageError::io("make the folder", &blobs, &e))?;
    let layer = out.join(&big.0);
    fs::rename(big.1, &layer).map_err(|e| ImageError::io("write", &layer, &e))?;
    for (name, content) in small {
        let path = out.join(name);
        fs::write(&path, content).map_err(|e| ImageError::io("write", &path, &e))?;
    }
    Ok(())
}

fn write_archive(
    out: &Path,
    small: &[(String, &[u8])],
    big: &(String, &Path, u64),
    epoch: u64,
) -> Result<(), ImageError> {
    let failed = |e: io::Error| ImageError::io("write", out, &e);
    // beside the target and renamed, so that a half-written archive never has the name
    let temporary = out.with_extension(format!("tmp-{}", std::process::id()));
    let write = || -> Result<(), io::Error> {
        let mut builder = Builder::new(io::BufWriter::with_capacity(64 * 1024, File::create(&temporary)?));
        let header = |size: u64| {
            let mut header = Header::new_gnu();
            header.set_mtime(epoch);
            header.set_mode(0o644);
            header.set_size(size);
            header
        };
        for (name, content) in small.iter().filter(|(name, _)| !name.starts_with("blobs/")) {
            builder.append_data(&mut header(content.len() as u64), name, *content)?;
        }
        for (name, content) in small.iter().filter(|(name, _)| name.starts_with("blobs/")) {
            builder.append_data(&mut header(content.len() as u64), name, *content)?;
        }
        builder.append_data(&mut header(big.2), &big.0, File::open(big.1)?)?;
        let file = builder.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&temporary, out)
    };
    let written = write().map_err(failed);
    if written.is_err() && temporary.exists() {
        fs::remove_file(&temporary).map_err(failed)?;
    }
    written
}

/// Seconds since 1970 as RFC 3339 in UTC.
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // days since 0000-03-01, in eras of 400 years (proleptic Gregorian calendar)
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_796_083_199), "2026-11-30T23:59:59Z");
    }

    #[test]
    fn sources_say_where_they_go() {
        let source = |text| PackSource::parse(text).target;
        assert_eq!(source("/proc"), Path::new("/"));
        assert_eq!(source("/proc/version"), Path::new("/version"));
        assert_eq!(source("/proc/version:/etc/v"), Path::new("/etc/v"));
        assert_eq!(PackSource::parse("/proc/version:/etc/v").host, Path::new("/proc/version"));
    }
}
