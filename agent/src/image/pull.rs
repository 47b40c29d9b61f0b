//! Pulls an image from a registry into the store: manifest, config, then each missing layer straight from the
//! connection into its folder. Nothing is kept on the way, so memory and disk do not depend on the size.
//!
//! An interrupted pull leaves whole layers only; the next one takes them as they are.

use super::access::note_pull;
use super::auth::{Credential, Keyring};
use super::digest::Digest;
use super::error::ImageError;
use super::load::{add_layers, unpack_layer};
use super::name::ImageName;
use super::oci::{self, ConfigFile, Manifest};
use super::pick::{check_digest, choose_offered, layers_of};
use super::progress::Progress;
use super::registry::{Endpoint, RegistrySettings, Session};
use super::store::{Origin, Store};

/// An index in an index in an index: enough.
const INDEX_DEPTH: u32 = 4;

/// Pulls `name`; `secrets` are the pod's. The image is then found by `name`.
pub fn pull(
    store: &Store,
    settings: &RegistrySettings,
    name: &str,
    secrets: &Keyring,
    progress: &Progress,
) -> Result<(), ImageError> {
    let wanted = ImageName::parse(name)?;
    let mut of_node = Keyring::default();
    if let Some(path) = &settings.docker_config {
        match std::fs::read(path) {
            Ok(text) => of_node.add(&path.display().to_string(), &text)?,
            // as Docker: without the file there are no credentials
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ImageError::io("read", path, &error)),
        }
    }
    let mut last = None;
    for source in sources(settings, &wanted)? {
        for endpoint in settings.endpoints(&source.registry) {
            let mut of_node = of_node.clone();
            let asked = ImageName { registry: endpoint.host.clone(), ..source.clone() };
            of_node.extend(settings.providers.credentials(&asked));
            match pull_from(store, &endpoint, &source, &wanted, (secrets, &of_node), progress) {
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    log::info!("image \"{wanted}\" from {}: {error}", endpoint.base);
                    // the registry itself is the last one, and its word counts
                    last = Some(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }
    Err(last.unwrap_or(ImageError::NotInRegistry { name: wanted.to_string() }))
}

/// Errors that another address cannot mend.
fn is_final(error: &ImageError) -> bool {
    matches!(
        error,
        ImageError::Cancelled
            | ImageError::NoSpace { .. }
            | ImageError::Io { .. }
            | ImageError::Platform { .. }
    )
}

/// The names to ask for: one, but for a short name with search registries.
fn sources(settings: &RegistrySettings, wanted: &ImageName) -> Result<Vec<ImageName>, ImageError> {
    if !wanted.is_short {
        return Ok(vec![wanted.clone()]);
    }
    if settings.short_names.is_empty() {
        let why = format!(
            "\"{}\" names no registry and is not pulled; write \"{wanted}\" or set registries.shortNames",
            wanted.repository
        );
        return Err(ImageError::InvalidName { name: wanted.to_string(), why });
    }
    let bare = wanted.repository.strip_prefix("library/").unwrap_or(&wanted.repository);
    let of = |registry: &String| ImageName {
        registry: registry.clone(),
        repository: if registry == "docker.io" { wanted.repository.clone() } else { bare.to_owned() },
        ..wanted.clone()
    };
    Ok(settings.short_names.iter().map(of).collect())
}

fn pull_from(
    store: &Store,
    endpoint: &Endpoint,
    source: &ImageName,
    wanted: &ImageName,
    (secrets, of_node): (&Keyring, &Keyring),
    progress: &Progress,
) -> Result<(), ImageError> {
    let key = ImageName { registry: endpoint.host.clone(), ..source.clone() };
    let mut keyring = secrets.clone();
    keyring.extend(of_node.clone());
    let mut credentials: Vec<Option<Credential>> = keyring.find(&key).into_iter().map(Some).collect();
    if credentials.is_empty() {
        credentials.push(None);
    }
    let mut last = None;
    for credential in credentials {
        let mut session = Session::new(endpoint.clone(), &source.repository, credential.clone(), progress)?;
        match pull_as(store, &mut session, source, wanted, progress) {
            Err(error @ ImageError::Denied { .. }) => last = Some(error),
            Err(error) => return Err(error),
            Ok(image) => {
                let used =
                    credential.filter(|used| session.is_authorized() && !of_node.find(&key).contains(used));
                let of_secret = |used: &Credential| {
                    let mut entries = secrets.matching(&key);
                    entries.find(|(_, one)| *one == used).map(|(origin, _)| origin.to_owned())
                };
                let origin = used.as_ref().and_then(of_secret).unwrap_or_default();
                return note_pull(store, &image, wanted, used.as_ref().map(|used| (origin.as_str(), used)));
            }
        }
    }
    Err(last.unwrap_or(ImageError::Denied { name: wanted.to_string(), status: 401, why: String::new() }))
}

fn pull_as(
    store: &Store,
    session: &mut Session<'_>,
    source: &ImageName,
    wanted: &ImageName,
    progress: &Progress,
) -> Result<Digest, ImageError> {
    let reference = match (&source.digest, &source.tag) {
        (Some(digest), _) => digest.to_string(),
        (None, tag) => tag.clone().unwrap_or_else(|| "latest".to_owned()),
    };
    let (top_text, top) = session.manifest(&reference).map_err(|error| name_it(error, wanted))?;
    if let Some(digest) = &source.digest {
        check_digest("manifest", digest, &top_text)?;
    }
    let manifest = choose_manifest(store, session, &top_text)?;
    let config = manifest.config.as_ref().ok_or_else(|| ImageError::Unsupported {
        what: format!("\"{wanted}\", whose manifest names no config (schema 1, or no image),"),
    })?;
    let config_digest = config.digest()?;
    let config_text = session.small_blob(&config_digest, oci::CONFIG_LIMIT)?;
    let config: ConfigFile = oci::parse("image config", &config_text)?;
    if store.platform().rank(&config.platform()).is_none() {
        let offered = vec![config.platform().to_string()];
        return Err(ImageError::Platform { wanted: store.platform().to_string(), offered });
    }
    let layers = layers_of(&manifest, &config)?;
    let _adding = store.begin_adding()?;
    add_layers(store, &layers, progress, |layer, slot| {
        // layers_of gives every layer its digest
        let digest = layer.digest.unwrap_or(layer.diff_id);
        let mut blob = session.blob(&digest, layer.size);
        let unpacked = unpack_layer(progress.watch(&mut blob), layer, slot);
        // the reader knows better why it failed than who read
        match blob.error.take() {
            Some(error) => Err(error),
            None => unpacked,
        }
    })?;
    store.commit_image(wanted, (&config_digest, &config_text), Some((&top, &top_text)), Origin::Pulled)?;
    Ok(config_digest)
}

/// The registry knows the repository, the person the name.
fn name_it(error: ImageError, wanted: &ImageName) -> ImageError {
    match error {
        ImageError::NotInRegistry { .. } => ImageError::NotInRegistry { name: wanted.to_string() },
        other => other,
    }
}

/// Follows indexes down to the manifest of this platform.
fn choose_manifest(store: &Store, session: &mut Session<'_>, top: &[u8]) -> Result<Manifest, ImageError> {
    let mut manifest: Manifest = oci::parse("image manifest", top)?;
    for _ in 0..INDEX_DEPTH {
        if manifest.manifests.is_empty() {
            return Ok(manifest);
        }
        let digest: Digest = choose_offered(&manifest.manifests, store.platform())?.digest()?;
        let (text, _) = session.manifest(&digest.to_string())?;
        check_digest("manifest", &digest, &text)?;
        manifest = oci::parse("image manifest", &text)?;
    }
    Err(ImageError::Unsupported { what: "an index nested so deeply".to_owned() })
}
