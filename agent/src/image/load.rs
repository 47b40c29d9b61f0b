//! Brings images into the store: from layouts and archives on disk. One layer at a time, streamed from
//! where it is to where it stays, its digests computed on the way.

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use super::content::{Content, Format, decompress, format_of};
use super::digest::{Digest, Hashing};
use super::error::{ImageError, free_bytes};
use super::name::ImageName;
use super::pick::{Picked, PickedLayer, pick};
use super::progress::Progress;
use super::store::{LayerSlot, Origin, Store};
use super::tar_stream::Plain;
use super::unpack::{Unpacked, unpack};

/// Zeros that writers add after the end of an archive; more is an attack.
const TRAILER_LIMIT: u64 = 64 * 1024 * 1024;

/// Loads one image of `path`. Without `name` it gets the names that the archive states.
/// Gives the names under which it can be found now.
pub fn load(
    store: &Store,
    path: &Path,
    name: Option<&str>,
    progress: &Progress,
) -> Result<Vec<String>, ImageError> {
    load_from(store, path, name, Origin::Loaded, progress)
}

pub(super) fn load_from(
    store: &Store,
    path: &Path,
    name: Option<&str>,
    origin: Origin,
    progress: &Progress,
) -> Result<Vec<String>, ImageError> {
    let mut content = Content::open(path)?;
    let picked = pick(&mut content, path, name, store.platform())?;
    let names = names_for(path, name, &picked)?;
    let _adding = store.begin_adding()?;
    add_layers(store, &picked.layers, progress, |layer, slot| {
        let (stored, _) = content.read(&layer.file)?;
        unpack_layer(progress.watch(stored), layer, slot)
    })?;
    let manifest = picked.manifest.as_ref().map(|(digest, text)| (digest, text.as_slice()));
    for name in &names {
        store.commit_image(name, (&picked.config_digest, &picked.config_text), manifest, origin)?;
    }
    Ok(names.iter().map(ToString::to_string).collect())
}

/// The layouts and archives that `path` stands for: itself, or what a plain folder holds, in order.
pub(super) fn sources_in(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() || path.join("index.json").exists() || path.join("manifest.json").exists() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end))
            || path.join("index.json").exists()
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_archive).collect();
    found.sort();
    found
}

/// Whether a layout or archive states this name.
pub(super) fn holds(path: &Path, name: &ImageName) -> Result<bool, ImageError> {
    let mut content = Content::open(path)?;
    Ok(super::pick::stated_names(&mut content)?.iter().any(|stated| {
        // a layout's bare tag would fit any repository
        stated.contains(['/', ':']) && ImageName::parse(stated).is_ok_and(|stated| name.is_stated_as(&stated))
    }))
}

fn names_for(path: &Path, name: Option<&str>, picked: &Picked) -> Result<Vec<ImageName>, ImageError> {
    if let Some(name) = name {
        return Ok(vec![ImageName::parse(name)?]);
    }
    // a layout mostly states a tag alone, which names nothing
    let stated = picked.names.iter().filter(|name| name.contains(['/', ':']));
    let names: Vec<ImageName> = stated.filter_map(|name| ImageName::parse(name).ok()).collect();
    if names.is_empty() {
        let why = format!("\"{}\" states no name, so one must be given", path.display());
        return Err(ImageError::InvalidName { name: String::new(), why });
    }
    Ok(names)
}

/// Unpacks each layer that is missing, by `fetch`, and makes it visible.
pub(super) fn add_layers(
    store: &Store,
    layers: &[PickedLayer],
    progress: &Progress,
    mut fetch: impl FnMut(&PickedLayer, &LayerSlot) -> Result<Unpacked, ImageError>,
) -> Result<(), ImageError> {
    let missing: u64 =
        layers.iter().filter(|layer| !store.has_layer(&layer.diff_id)).map(|layer| layer.size).sum();
    progress.update(|step| {
        step.layers = layers.len();
        step.bytes_total = missing;
    });
    for layer in layers {
        progress.check()?;
        if let Some(slot) = store.layer_slot(&layer.diff_id)? {
            match check_space(store, layer).and_then(|()| fetch(layer, &slot)) {
                Ok(done) => store.commit_layer(slot, done.bytes, done.entries)?,
                Err(error) => {
                    slot.abandon();
                    progress.check()?;
                    return Err(error);
                }
            }
        }
        progress.update(|step| step.layers_done = step.layers_done.saturating_add(1));
    }
    Ok(())
}

/// A layer takes at least the bytes it has packed.
fn check_space(store: &Store, layer: &PickedLayer) -> Result<(), ImageError> {
    let free = free_bytes(store.root()).unwrap_or(u64::MAX);
    if layer.size > free {
        return Err(ImageError::NoSpace { path: store.root().to_owned(), needed: layer.size, free });
    }
    Ok(())
}

/// Unpacks the stored bytes of one layer; both its digests must be right in the end.
pub(super) fn unpack_layer<R: Read + Send>(
    mut stored: R,
    layer: &PickedLayer,
    slot: &LayerSlot,
) -> Result<Unpacked, ImageError> {
    let mut magic = [0; 4];
    let known = read_start(&mut stored, &mut magic)?;
    let magic = magic.get(..known).unwrap_or_default();
    let format = format_of(magic);
    let stored = Cursor::new(magic.to_vec()).chain(stored);
    let done = match (format, layer.digest) {
        // not compressed: the two digests are one
        (Format::Plain, digest) => {
            if digest.is_some_and(|digest| digest != layer.diff_id) {
                let found = layer.diff_id.to_string();
                let expected = digest.map(|digest| digest.to_string()).unwrap_or_default();
                return Err(ImageError::DigestMismatch { what: "layer", expected, found });
            }
            unpack_tar(stored, layer, slot)?
        }
        (format, None) => unpack_tar(decompress(stored, format)?, layer, slot)?,
        (format, Some(digest)) => {
            let mut hashing = Hashing::new(stored);
            let unpacked = unpack_tar(decompress(&mut hashing, format)?, layer, slot);
            // a stream that broke off is told by its digest, if it can still be read
            let rest = drain(&mut hashing);
            match (&unpacked, rest) {
                (Ok(_) | Err(ImageError::BadStream { .. } | ImageError::DigestMismatch { .. }), Ok(())) => {
                    check("layer", &digest, &hashing.digest())?;
                }
                (Ok(_), Err(error)) => return Err(error),
                (Err(_), _) => {}
            }
            unpacked?
        }
    };
    Ok(done)
}

fn unpack_tar<R: Read + Send>(tar: R, layer: &PickedLayer, slot: &LayerSlot) -> Result<Unpacked, ImageError> {
    let mut hashing = Hashing::new(tar);
    let root = slot.make_root()?;
    let (done, _) = unpack(Plain(&mut hashing), root)?;
    drain(&mut hashing)?;
    check("content of layer", &layer.diff_id, &hashing.digest())?;
    if done.skipped_devices > 0 {
        log::warn!(
            "image layer {}: {} device nodes left out, this process may not make them",
            layer.diff_id,
            done.skipped_devices
        );
    }
    Ok(done)
}

fn check(what: &'static str, expected: &Digest, found: &Digest) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    Err(ImageError::DigestMismatch { what, expected: expected.to_string(), found: found.to_string() })
}

fn read_start(reader: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ImageError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ImageError::io("read the layer", "", &error)),
        }
    }
    Ok(filled)
}

/// Reads what follows the archive, so that the digest covers it.
fn drain(reader: &mut impl Read) -> Result<(), ImageError> {
    let rest = io::copy(&mut reader.take(TRAILER_LIMIT), &mut io::sink());
    let rest = rest.map_err(|e| ImageError::BadStream { what: "layer", why: e.to_string() })?;
    if rest == TRAILER_LIMIT {
        return Err(ImageError::BadStream { what: "layer", why: "much data after its end".to_owned() });
    }
    Ok(())
}
