//! Speaks to one registry (OCI distribution specification 1.1) for one repository.
//!
//! Every request has deadlines, a small answer has a limit, and a blob is a reader that asks again with
//! `Range` where the connection broke. Credentials go to the registry itself and to the token server it
//! names, encrypted unless the registry is not; never to where it redirects.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use ureq::http::Response;
use ureq::{Agent, Body, BodyReader};

use super::access::VerifyPolicy;
use super::auth::{Challenge, Credential};
use super::digest::Digest;
use super::error::ImageError;
use super::oci;
use super::progress::Progress;
use super::provider::Providers;

/// Everything a manifest request accepts.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
const CONNECT: Duration = Duration::from_secs(10);
/// To the first byte of an answer, and between two reads of a body: a stalled transfer ends.
const SILENCE: Duration = Duration::from_secs(30);
/// Attempts in a row without a byte of progress.
const ATTEMPTS: u32 = 6;
/// The longest a registry may tell us to wait within one pull.
const RETRY_AFTER_MAX: u64 = 60;
/// Token answers and error texts.
const SMALL_LIMIT: u64 = 1024 * 1024;

/// The `registries` section of the configuration.
#[derive(Clone, Debug, Default)]
pub struct RegistrySettings {
    /// by registry as written in names: `docker.io`, `r.example.com:5000`
    pub registries: BTreeMap<String, RegistryEntry>,
    /// registries in which a name without one is looked for, in this order; empty: it is not pulled
    pub short_names: Vec<String>,
    /// Docker's `config.json` of the node
    pub docker_config: Option<PathBuf>,
    /// programs that give credentials
    pub providers: Arc<Providers>,
    pub verify: VerifyPolicy,
}

/// How one registry is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryEntry {
    /// tried before the registry, in this order: `https://HOST[:PORT]`, `http://…` where that is wanted, or
    /// `HOST[:PORT]`
    pub mirrors: Vec<String>,
    /// not encrypted; without this only loopback addresses are reached so
    pub plain_http: bool,
    /// certificates (PEM) trusted instead of the system's
    pub ca_file: Option<PathBuf>,
}

/// An address to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// with scheme, without slash at the end
    pub(super) base: String,
    /// what credentials are looked up by
    pub(super) host: String,
    ca_file: Option<PathBuf>,
    /// of a mirror: the registry it stands for
    mirror_of: Option<String>,
}

impl From<&podkeep_core::config::NodeConfiguration> for RegistrySettings {
    fn from(config: &podkeep_core::config::NodeConfiguration) -> Self {
        let path = |text: &String| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
        let entry = |registry: &podkeep_core::config::node::RegistryConfig| RegistryEntry {
            mirrors: registry.mirrors.clone(),
            plain_http: registry.plain_http,
            ca_file: path(&registry.ca_file),
        };
        Self {
            registries: config.registries.iter().map(|one| (one.name.clone(), entry(one))).collect(),
            short_names: config.short_names.clone(),
            docker_config: path(&config.docker_config_file),
            // a fault there costs credentials, not the node
            providers: Providers::read(config)
                .map_err(|faults| {
                    faults.iter().for_each(|fault| log::error!("credential providers: {fault}"))
                })
                .map(Arc::new)
                .unwrap_or_default(),
            verify: VerifyPolicy::default(),
        }
    }
}

impl RegistrySettings {
    /// Mirrors first, the registry last.
    pub(super) fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let entry = self.registries.get(registry).cloned().unwrap_or_default();
        let mut endpoints: Vec<Endpoint> =
            entry.mirrors.iter().map(|mirror| self.endpoint(mirror, Some(registry))).collect();
        endpoints.push(self.endpoint(registry, None));
        endpoints
    }

    fn endpoint(&self, address: &str, mirror_of: Option<&str>) -> Endpoint {
        let address = address.trim_end_matches('/');
        let (scheme, host) = match address.split_once("://") {
            Some((scheme, host)) => (Some(scheme), host),
            None => (None, address),
        };
        let entry = self.registries.get(host).cloned().unwrap_or_default();
        let plain = match scheme {
            Some(scheme) => scheme == "http",
            None => entry.plain_http || (is_loopback(host) && entry.ca_file.is_none()),
        };
        // the name everybody uses is not the machine that answers
        let machine = if host == "docker.io" { "registry-1.docker.io" } else { host };
        Endpoint {
            base: format!("{}://{machine}", if plain { "http" } else { "https" }),
            host: host.to_owned(),
            ca_file: entry.ca_file,
            mirror_of: mirror_of.map(str::to_owned),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    name == "localhost"
        || name == "[::1]"
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// One repository at one address, as one user.
pub(super) struct Session<'a> {
    agent: Agent,
    endpoint: Endpoint,
    repository: String,
    credential: Option<Credential>,
    authorization: Option<String>,
    progress: &'a Progress,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorAnswer {
    errors: Vec<ErrorItem>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorItem {
    code: String,
    message: String,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        endpoint: Endpoint,
        repository: &str,
        credential: Option<Credential>,
        progress: &'a Progress,
    ) -> Result<Self, ImageError> {
        let agent = agent_for(&endpoint)?;
        let authorization = match &credential {
            Some(Credential::Bearer(token)) => Some(format!("Bearer {token}")),
            _ => None,
        };
        Ok(Self { agent, endpoint, repository: repository.to_owned(), credential, authorization, progress })
    }

    /// A manifest or index by tag or digest; its bytes and their digest.
    pub(super) fn manifest(&mut self, reference: &str) -> Result<(Vec<u8>, Digest), ImageError> {
        let text = self.small(&format!("manifests/{reference}"), oci::MANIFEST_LIMIT)?;
        let digest = Digest::of(&text);
        Ok((text, digest))
    }

    /// A small blob, verified.
    pub(super) fn small_blob(&mut self, digest: &Digest, limit: u64) -> Result<Vec<u8>, ImageError> {
        let text = self.small(&format!("blobs/{digest}"), limit)?;
        super::pick::check_digest("config", digest, &text)?;
        Ok(text)
    }

    /// A blob of `size` bytes as a reader; see [`Blob`].
    pub(super) fn blob(&mut self, digest: &Digest, size: u64) -> Blob<'_, 'a> {
        Blob {
            path: format!("blobs/{digest}"),
            size,
            at: 0,
            body: None,
            failures: 0,
            error: None,
            session: self,
        }
    }

    /// Whether the registry has asked for credentials and got some.
    pub(super) fn is_authorized(&self) -> bool {
        self.authorization.is_some() && self.credential.is_some()
    }

    fn small(&mut self, path: &str, limit: u64) -> Result<Vec<u8>, ImageError> {
        let mut failures = 0;
        loop {
            let answer = self.get(path, 0).and_then(|response| self.read_small(response, limit));
            match answer {
                Err(error) if error.is_transient() => {
                    failures += 1;
                    self.wait_after(failures, error)?;
                }
                other => return other,
            }
        }
    }

    fn read_small(&self, response: Response<Body>, limit: u64) -> Result<Vec<u8>, ImageError> {
        let what = || format!("an answer of registry \"{}\"", self.endpoint.host);
        let mut text = Vec::new();
        let mut reader = response.into_body().into_reader().take(limit.saturating_add(1));
        reader.read_to_end(&mut text).map_err(|e| self.unreachable(e.to_string()))?;
        if text.len() as u64 > limit {
            return Err(ImageError::TooLarge { what: what(), bytes: text.len() as u64, limit });
        }
        Ok(text)
    }

    /// Pauses before another attempt, or gives up with `error`.
    fn wait_after(&self, failures: u32, error: ImageError) -> Result<(), ImageError> {
        self.progress.check()?;
        let wait = match &error {
            ImageError::RateLimited { retry_after: Some(seconds), .. } if *seconds > RETRY_AFTER_MAX => None,
            ImageError::RateLimited { retry_after: Some(seconds), .. } => Some(Duration::from_secs(*seconds)),
            // 0.25, 0.5, 1, 2, 4 seconds
            _ => Some(Duration::from_millis(125).saturating_mul(1 << failures.min(6))),
        };
        match wait {
            Some(wait) if failures < ATTEMPTS => {
                log::info!("{error}; trying again in {} ms", wait.as_millis());
                self.progress.pause(wait)
            }
            _ => Err(error),
        }
    }

    /// One request with what authorization it takes.
    fn get(&mut self, path: &str, from: u64) -> Result<Response<Body>, ImageError> {
        let mut renewed = false;
        loop {
            self.progress.check()?;
            let response = self.send(path, from)?;
            let status = response.status().as_u16();
            if status == 401 && !renewed {
                renewed = true;
                // the first time, or an access token that has expired
                if self.authorize(&response)? {
                    continue;
                }
            }
            return if response.status().is_success() { Ok(response) } else { Err(self.refusal(response)) };
        }
    }

    fn send(&self, path: &str, from: u64) -> Result<Response<Body>, ImageError> {
        let namespace = self.endpoint.mirror_of.as_ref().map(|of| format!("?ns={of}")).unwrap_or_default();
        let url = format!("{}/v2/{}/{path}{namespace}", self.endpoint.base, self.repository);
        let mut request = self.agent.get(&url).header("Accept", ACCEPT);
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|error| self.explain(&error))
    }

    /// Answers the challenge of a 401; `false`: there is nothing to answer with.
    fn authorize(&mut self, response: &Response<Body>) -> Result<bool, ImageError> {
        let headers = response.headers().get_all("www-authenticate");
        let mut challenges = headers.iter().filter_map(|header| Challenge::parse(header.to_str().ok()?));
        let before = self.authorization.take();
        self.authorization = match (challenges.next(), &self.credential) {
            (Some(Challenge::Basic), Some(Credential::Basic { username, password })) => {
                Some(basic(username, password))
            }
            (Some(Challenge::Bearer { realm, service, scope }), credential) => {
                if matches!(credential, Some(Credential::Bearer(_))) {
                    return Ok(false);
                }
                let token = self.token(&realm, &service, &scope)?;
                Some(format!("Bearer {token}"))
            }
            _ => return Ok(false),
        };
        Ok(self.authorization != before)
    }

    fn token(&self, realm: &str, service: &str, scope: &str) -> Result<String, ImageError> {
        let wrong =
            |why: &str| ImageError::Protocol { host: self.endpoint.host.clone(), why: why.to_owned() };
        // a password may not go unencrypted to where a registry sends us, unless all of it is so
        let plain_registry = self.endpoint.base.starts_with("http://");
        let is_safe = realm.starts_with("https://") || (plain_registry && realm.starts_with("http://"));
        if !is_safe {
            return Err(wrong("its token server has no https address"));
        }
        let scope =
            if scope.is_empty() { format!("repository:{}:pull", self.repository) } else { scope.to_owned() };
        let answer = match &self.credential {
            Some(Credential::Identity(token)) => self.agent.post(realm).send_form([
                ("grant_type", "refresh_token"),
                ("service", service),
                ("client_id", "podkeep"),
                ("scope", scope.as_str()),
                ("refresh_token", token.as_str()),
            ]),
            credential => {
                let mut request = self.agent.get(realm).query("service", service);
                for scope in scope.split(' ') {
                    request = request.query("scope", scope);
                }
                if let Some(Credential::Basic { username, password }) = credential {
                    request = request.header("Authorization", basic(username, password));
                }
                request.call()
            }
        };
        let answer = answer.map_err(|error| self.explain(&error))?;
        if !answer.status().is_success() {
            return Err(self.refusal(answer));
        }
        let text = self.read_small(answer, SMALL_LIMIT)?;
        let answer: TokenAnswer = oci::parse("token of the registry", &text)?;
        answer
            .token
            .or(answer.access_token)
            .filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| wrong("its token server gives no token"))
    }

    /// The typed error of an answer that is none.
    fn refusal(&self, response: Response<Body>) -> ImageError {
        let status = response.status().as_u16();
        let retry_after =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let host = self.endpoint.host.clone();
        let name = format!("{host}/{}", self.repository);
        let why = self.read_small(response, SMALL_LIMIT).map(|text| error_text(&text)).unwrap_or_default();
        match status {
            401 | 403 => ImageError::Denied { name, status, why },
            404 => ImageError::NotInRegistry { name },
            429 => ImageError::RateLimited { host, retry_after },
            408 | 500..=599 => ImageError::Unreachable { host, why: format!("status {status} {why}") },
            _ => ImageError::Protocol { host, why: format!("status {status} {why}") },
        }
    }

    fn unreachable(&self, why: String) -> ImageError {
        ImageError::Unreachable { host: self.endpoint.host.clone(), why }
    }

    fn explain(&self, error: &ureq::Error) -> ImageError {
        let host = self.endpoint.host.clone();
        match error {
            ureq::Error::Timeout(_) => self.unreachable("no answer in time".to_owned()),
            ureq::Error::HostNotFound => {
                self.unreachable("its name is not known; see /etc/resolv.conf".to_owned())
            }
            ureq::Error::RequireHttpsOnly(_) => ImageError::Protocol {
                host,
                why: "it redirects to an address that is not encrypted".to_owned(),
            },
            other => {
                let why = other.to_string();
                match tls_fault(other, &why) {
                    Some(why) => ImageError::Tls { host, why },
                    None => self.unreachable(why),
                }
            }
        }
    }
}

/// What a certificate or handshake failure means for the person who reads it.
fn tls_fault(error: &ureq::Error, why: &str) -> Option<String> {
    let detail = format!("{error:?}");
    if !detail.contains("InvalidCertificate") && !detail.contains("Tls(") && !detail.contains("Rustls(") {
        let encrypted = ["AlertReceived", "InvalidMessage", "PeerIncompatible", "PeerMisbehaved"];
        return encrypted.iter().any(|word| detail.contains(word)).then(|| why.to_owned());
    }
    if detail.contains("NotValidYet") {
        return Some(
            "the clock of this machine is before the beginning of the certificate's validity; set the clock"
                .to_owned(),
        );
    }
    if detail.contains("UnknownIssuer") {
        return Some("its certificate is of an unknown authority; set registries.<name>.caFile".to_owned());
    }
    Some(why.to_owned())
}

/// The messages of a registry's error answer, without control characters.
fn error_text(text: &[u8]) -> String {
    let parsed: ErrorAnswer = serde_json::from_slice(text).unwrap_or_default();
    let items = parsed.errors.iter().take(3).map(|item| format!("{} {}", item.code, item.message));
    let joined = items.collect::<Vec<_>>().join(", ");
    joined.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

fn agent_for(endpoint: &Endpoint) -> Result<Agent, ImageError> {
    let encrypted = endpoint.base.starts_with("https://");
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(encrypted)
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .max_idle_connections(2)
        .user_agent(concat!("podkeep/", env!("CARGO_PKG_VERSION")));
    if is_loopback(&endpoint.host) {
        config = config.proxy(None);
    }
    if encrypted {
        config = super::tls::configure(config, endpoint.ca_file.as_deref())?;
    }
    Ok(config.build().new_agent())
}

/// A blob on its way. A broken connection is taken up again where it broke; what cannot be mended is kept
/// in `error`, since a reader can only say that it failed.
pub(super) struct Blob<'s, 'a> {
    session: &'s mut Session<'a>,
    path: String,
    size: u64,
    at: u64,
    body: Option<BodyReader<'static>>,
    failures: u32,
    pub(super) error: Option<ImageError>,
}

impl Blob<'_, '_> {
    fn open(&mut self) -> Result<BodyReader<'static>, ImageError> {
        let response = self.session.get(&self.path, self.at)?;
        let resumed = response.status().as_u16() == 206;
        let starts_right = response
            .headers()
            .get("content-range")
            .and_then(|range| range.to_str().ok()?.strip_prefix("bytes ")?.split('-').next()?.parse().ok())
            .is_some_and(|start: u64| start == self.at);
        let mut body = response.into_body().into_reader();
        if resumed && !starts_right {
            let why = "it gives another part of a layer than asked for".to_owned();
            return Err(ImageError::Protocol { host: self.session.endpoint.host.clone(), why });
        }
        if !resumed && self.at > 0 {
            // a server without ranges: what we have is read once more and dropped
            let skipped = io::copy(&mut body.by_ref().take(self.at), &mut io::sink());
            if skipped.as_ref().ok() != Some(&self.at) {
                return Err(self.session.unreachable("the connection broke".to_owned()));
            }
        }
        Ok(body)
    }

    fn advance(&mut self, buffer: &mut [u8]) -> Result<usize, ImageError> {
        loop {
            let left = usize::try_from(self.size.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let most = left.min(buffer.len());
            let Some(part) = buffer.get_mut(..most).filter(|part| !part.is_empty()) else { return Ok(0) };
            let read = match self.body.as_mut() {
                Some(body) => match body.read(part) {
                    Ok(0) => Err(self.session.unreachable("the connection ended too early".to_owned())),
                    Ok(count) => Ok(count),
                    Err(error) => Err(self.session.unreachable(error.to_string())),
                },
                None => match self.open() {
                    Ok(body) => {
                        self.body = Some(body);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match read {
                Ok(count) => {
                    self.at = self.at.saturating_add(count as u64);
                    self.failures = 0;
                    return Ok(count);
                }
                Err(error) => {
                    self.body = None;
                    if !error.is_transient() {
                        return Err(error);
                    }
                    self.failures = self.failures.saturating_add(1);
                    self.session.wait_after(self.failures, error)?;
                }
            }
        }
    }
}

impl Read for Blob<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.advance(buffer).map_err(|error| {
            let text = error.to_string();
            self.error = Some(error);
            io::Error::other(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_what_is_configured_goes_unencrypted() {
        let mut settings = RegistrySettings::default();
        let base =
            |settings: &RegistrySettings, name: &str| settings.endpoints(name).pop().map(|e| e.base).unwrap();
        assert_eq!(base(&settings, "docker.io"), "https://registry-1.docker.io");
        assert_eq!(base(&settings, "r.example.com:5000"), "https://r.example.com:5000");
        for local in ["localhost:5000", "localhost", "127.0.0.1:5000", "127.8.9.1", "[::1]:5000"] {
            assert_eq!(base(&settings, local), format!("http://{local}"));
        }
        for other in ["localhost.example.com", "128.0.0.1", "127.0.0.1.example.com"] {
            assert!(base(&settings, other).starts_with("https://"), "{other}");
        }
        settings
            .registries
            .insert("lan:5000".into(), RegistryEntry { plain_http: true, ..RegistryEntry::default() });
        assert_eq!(base(&settings, "lan:5000"), "http://lan:5000");
    }

    #[test]
    fn mirrors_come_first_and_keep_their_scheme() {
        let mut settings = RegistrySettings::default();
        let mirrors = vec!["http://cache:5000/".to_owned(), "mirror.example.com".to_owned()];
        settings.registries.insert("docker.io".into(), RegistryEntry { mirrors, ..RegistryEntry::default() });
        let bases: Vec<_> = settings.endpoints("docker.io").into_iter().map(|e| e.base).collect();
        assert_eq!(
            bases,
            ["http://cache:5000", "https://mirror.example.com", "https://registry-1.docker.io"]
        );
    }

    #[test]
    fn error_texts_of_registries_are_short_and_clean() {
        let text = br#"{"errors":[{"code":"DENIED","message":"no\u001b[31m access"}]}"#;
        assert_eq!(error_text(text), "DENIED no[31m access");
        assert_eq!(error_text(b"<html>"), "");
    }
}
