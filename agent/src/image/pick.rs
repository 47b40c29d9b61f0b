//! Finds the image of this machine in a layout or archive.

use podkeep_core::image::Platform;

use super::content::{Content, not_an_image};
use super::digest::Digest;
use super::error::ImageError;
use super::oci::{self, CONTAINERD_NAME, ConfigFile, Descriptor, DockerImage, Manifest, REF_NAME};

/// An index in an index in an index: enough.
const INDEX_DEPTH: u32 = 4;

/// One image, its content still where it was.
pub(super) struct Picked {
    pub(super) manifest: Option<(Digest, Vec<u8>)>,
    pub(super) config_digest: Digest,
    pub(super) config_text: Vec<u8>,
    /// lowest first
    pub(super) layers: Vec<PickedLayer>,
    /// names the archive itself states
    pub(super) names: Vec<String>,
}

pub(super) struct PickedLayer {
    /// name of the file in the archive
    pub(super) file: String,
    /// digest of the stored bytes, where stated
    pub(super) digest: Option<Digest>,
    pub(super) size: u64,
    pub(super) diff_id: Digest,
}

/// Picks by platform and, where there are several images, by `wanted`.
pub(super) fn pick(
    content: &mut Content,
    path: &std::path::Path,
    wanted: Option<&str>,
    platform: &Platform,
) -> Result<Picked, ImageError> {
    if content.has("index.json") {
        return pick_layout(content, path, wanted, platform);
    }
    if content.has("manifest.json") {
        return pick_docker(content, path, wanted, platform);
    }
    Err(not_an_image(path, "it holds neither index.json nor manifest.json"))
}

/// All names that an archive states.
pub(super) fn stated_names(content: &mut Content) -> Result<Vec<String>, ImageError> {
    if content.has("index.json") {
        let text = content.read_small("index.json", oci::MANIFEST_LIMIT)?;
        let index: Manifest = oci::parse("index.json", &text)?;
        return Ok(index.manifests.iter().flat_map(names_of).map(str::to_owned).collect());
    }
    let text = content.read_small("manifest.json", oci::MANIFEST_LIMIT)?;
    let images: Vec<DockerImage> = oci::parse("manifest.json", &text)?;
    Ok(images.into_iter().flat_map(|image| image.repo_tags).collect())
}

fn pick_layout(
    content: &mut Content,
    path: &std::path::Path,
    wanted: Option<&str>,
    platform: &Platform,
) -> Result<Picked, ImageError> {
    let text = content.read_small("index.json", oci::MANIFEST_LIMIT)?;
    let index: Manifest = oci::parse("index.json", &text)?;
    let mut named = index.manifests;
    if let Some(wanted) = wanted {
        let fits = |d: &Descriptor| names_of(d).any(|name| is_same_name(name, wanted));
        if named.iter().any(fits) {
            named.retain(fits);
        }
    }
    let mut names: Vec<String> = named.iter().flat_map(names_of).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    let offers = expand(content, named, 0)?;
    let offer = choose(&offers, platform, content)?;
    let rivals: Vec<_> =
        offers.iter().filter(|o| o.platform == offer.platform && o.digest != offer.digest).collect();
    // two images of one platform: the archive cannot say which is meant
    if !rivals.is_empty() && names.len() > 1 {
        return Err(ImageError::Ambiguous { path: path.to_owned(), names });
    }
    let offer = offer.clone();
    let digest = offer.digest()?;
    let text = read_blob(content, &digest, oci::MANIFEST_LIMIT, "manifest")?;
    let manifest: Manifest = oci::parse("image manifest", &text)?;
    let config =
        manifest.config.as_ref().ok_or_else(|| not_an_image(path, "its manifest names no config"))?;
    let config_digest = config.digest()?;
    let config_text = read_blob(content, &config_digest, oci::CONFIG_LIMIT, "config")?;
    let config: ConfigFile = oci::parse("image config", &config_text)?;
    let layers = layers_of(&manifest, &config)?;
    let names = names_of(&offer).map(str::to_owned).collect();
    Ok(Picked { manifest: Some((digest, text)), config_digest, config_text, layers, names })
}

/// The layers of a manifest, each with its diff id of the config.
pub(super) fn layers_of(manifest: &Manifest, config: &ConfigFile) -> Result<Vec<PickedLayer>, ImageError> {
    let diff_ids = config.diff_ids()?;
    check_count(manifest.layers.len(), diff_ids.len())?;
    let pairs = manifest.layers.iter().zip(diff_ids);
    pairs
        .map(|(layer, diff_id)| {
            let digest = layer.digest()?;
            if layer.media_type.contains("encrypted") {
                return Err(ImageError::Unsupported { what: "an encrypted layer".to_owned() });
            }
            Ok(PickedLayer { file: blob_path(&digest), digest: Some(digest), size: layer.size, diff_id })
        })
        .collect()
}

fn check_count(layers: usize, diff_ids: usize) -> Result<(), ImageError> {
    if layers == diff_ids {
        return Ok(());
    }
    let why = format!("its manifest has {layers} layers, its config {diff_ids}");
    Err(ImageError::BadStream { what: "image", why })
}

fn names_of(descriptor: &Descriptor) -> impl Iterator<Item = &str> {
    [CONTAINERD_NAME, REF_NAME]
        .into_iter()
        .filter_map(|key| descriptor.annotations.get(key).map(String::as_str))
}

/// A whole name, or the tag alone as layouts mostly have it.
fn is_same_name(stated: &str, wanted: &str) -> bool {
    let whole = |text: &str| super::name::ImageName::parse(text).ok();
    let Some(wanted) = whole(wanted) else { return stated == wanted };
    wanted.tag.as_deref() == Some(stated) || whole(stated).is_some_and(|stated| wanted.is_stated_as(&stated))
}

/// All manifests of nested indexes.
fn expand(content: &mut Content, found: Vec<Descriptor>, depth: u32) -> Result<Vec<Descriptor>, ImageError> {
    let mut offers = Vec::new();
    for descriptor in found {
        if !descriptor.is_index() {
            if descriptor.is_image() {
                offers.push(descriptor);
            }
            continue;
        }
        if depth >= INDEX_DEPTH {
            return Err(ImageError::Unsupported { what: "an index nested so deeply".to_owned() });
        }
        let digest = descriptor.digest()?;
        let text = read_blob(content, &digest, oci::MANIFEST_LIMIT, "index")?;
        let index: Manifest = oci::parse("image index", &text)?;
        let below = index.manifests.into_iter().map(|mut below| {
            // the name stands at the top, the platform below
            for (key, value) in &descriptor.annotations {
                below.annotations.entry(key.clone()).or_insert_with(|| value.clone());
            }
            below
        });
        offers.extend(expand(content, below.collect(), depth + 1)?);
    }
    Ok(offers)
}

/// The offer that fits this machine best; the first of equals.
fn choose<'a>(
    offers: &'a [Descriptor],
    platform: &Platform,
    content: &mut Content,
) -> Result<&'a Descriptor, ImageError> {
    let mut best: Option<(u32, &Descriptor)> = None;
    let mut seen = Vec::new();
    for offer in offers {
        let offered = match &offer.platform {
            Some(platform) => platform.to_platform(),
            // a layout made by hand has no platform in its index; the config has
            None => platform_of_config(content, offer).unwrap_or_default(),
        };
        seen.push(offered.to_string());
        if let Some(rank) = platform.rank(&offered)
            && best.is_none_or(|(least, _)| rank < least)
        {
            best = Some((rank, offer));
        }
    }
    best.map(|(_, offer)| offer).ok_or(ImageError::Platform { wanted: platform.to_string(), offered: seen })
}

/// As [`choose`], for the manifests of a registry's index.
pub(super) fn choose_offered<'a>(
    offers: &'a [Descriptor],
    platform: &Platform,
) -> Result<&'a Descriptor, ImageError> {
    let offered =
        |offer: &Descriptor| offer.platform.as_ref().map_or_else(Platform::default, |p| p.to_platform());
    let images = offers.iter().filter(|offer| offer.is_image() || offer.is_index());
    let ranked = images.filter_map(|offer| platform.rank(&offered(offer)).map(|rank| (rank, offer)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, offer)| offer).ok_or_else(|| ImageError::Platform {
        wanted: platform.to_string(),
        offered: offers.iter().map(|offer| offered(offer).to_string()).collect(),
    })
}

fn platform_of_config(content: &mut Content, offer: &Descriptor) -> Result<Platform, ImageError> {
    let text = read_blob(content, &offer.digest()?, oci::MANIFEST_LIMIT, "manifest")?;
    let manifest: Manifest = oci::parse("image manifest", &text)?;
    let config = manifest.config.unwrap_or_default().digest()?;
    let text = read_blob(content, &config, oci::CONFIG_LIMIT, "config")?;
    Ok(oci::parse::<ConfigFile>("image config", &text)?.platform())
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn read_blob(
    content: &mut Content,
    digest: &Digest,
    limit: u64,
    what: &'static str,
) -> Result<Vec<u8>, ImageError> {
    let text = content.read_small(&blob_path(digest), limit)?;
    check_digest(what, digest, &text)?;
    Ok(text)
}

pub(super) fn check_digest(what: &'static str, digest: &Digest, text: &[u8]) -> Result<(), ImageError> {
    let found = Digest::of(text);
    if found == *digest {
        return Ok(());
    }
    Err(ImageError::DigestMismatch { what, expected: digest.to_string(), found: found.to_string() })
}

fn pick_docker(
    content: &mut Content,
    path: &std::path::Path,
    wanted: Option<&str>,
    platform: &Platform,
) -> Result<Picked, ImageError> {
    let text = content.read_small("manifest.json", oci::MANIFEST_LIMIT)?;
    let mut images: Vec<DockerImage> = oci::parse("manifest.json", &text)?;
    if let Some(wanted) = wanted {
        let fits = |image: &DockerImage| image.repo_tags.iter().any(|name| is_same_name(name, wanted));
        if images.iter().any(fits) {
            images.retain(fits);
        }
    }
    if images.len() > 1 {
        let names = images.into_iter().flat_map(|image| image.repo_tags).collect();
        return Err(ImageError::Ambiguous { path: path.to_owned(), names });
    }
    let image = images.pop().ok_or_else(|| not_an_image(path, "its manifest.json is empty"))?;
    let config_text = content.read_small(&image.config, oci::CONFIG_LIMIT)?;
    let config_digest = Digest::of(&config_text);
    // the file is named after its digest: <hex>.json or blobs/sha256/<hex>
    let stated = image.config.rsplit('/').next().unwrap_or_default();
    if let Some(stated) = Digest::from_hex(stated.strip_suffix(".json").unwrap_or(stated)) {
        check_digest("config", &stated, &config_text)?;
    }
    let config: ConfigFile = oci::parse("image config", &config_text)?;
    if platform.rank(&config.platform()).is_none() {
        let offered = vec![config.platform().to_string()];
        return Err(ImageError::Platform { wanted: platform.to_string(), offered });
    }
    let diff_ids = config.diff_ids()?;
    check_count(image.layers.len(), diff_ids.len())?;
    let mut layers = Vec::new();
    for (file, diff_id) in image.layers.into_iter().zip(diff_ids) {
        let size = content.read(&file)?.1;
        layers.push(PickedLayer { file, digest: None, size, diff_id });
    }
    Ok(Picked { manifest: None, config_digest, config_text, layers, names: image.repo_tags })
}
