//! Credentials of registries: Docker's `config.json` and Kubernetes' image pull secrets, and the challenge
//! of a registry that wants them.
//!
//! Which entry counts: as in the kubelet's keyring. The key is a host with globs a label, an optional port
//! and an optional path prefix; the longest match is tried first. (Backwards by their text.)

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::error::ImageError;
use super::name::ImageName;

/// What proves who we are.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    Basic {
        username: String,
        password: String,
    },
    /// exchanged for an access token at the token server
    Identity(String),
    /// sent to the registry as it is
    Bearer(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // secrets never reach a log
        f.write_str(match self {
            Self::Basic { .. } => "Basic(..)",
            Self::Identity(_) => "Identity(..)",
            Self::Bearer(_) => "Bearer(..)",
        })
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// All known credentials, by the pattern they are for.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// the secret or file it is of
    origin: String,
    pattern: String,
    credential: Credential,
}

impl Keyring {
    /// Adds a `config.json` (`kubernetes.io/dockerconfigjson`) or the older `.dockercfg` form. `what` names
    /// the secret or file in errors. Entries without usable content are left out.
    pub fn add(&mut self, what: &str, text: &[u8]) -> Result<(), ImageError> {
        let value: serde_json::Value = super::oci::parse(what, text)?;
        let parsed = if value.get("auths").is_some() {
            DockerConfig::deserialize(&value).map(|config| config.auths)
        } else {
            // `.dockercfg` is the map itself; a config.json without auths has other keys
            let entries = value.as_object().into_iter().flatten();
            let entries = entries.filter(|(_, entry)| entry.get("auth").or(entry.get("username")).is_some());
            entries.map(|(key, entry)| Ok((key.clone(), AuthEntry::deserialize(entry)?))).collect()
        };
        let entries = parsed.map_err(|error| ImageError::json(what, &error))?;
        for (pattern, entry) in entries {
            match credential(entry) {
                Some(credential) => {
                    self.entries.push(Entry { origin: what.to_owned(), pattern, credential });
                }
                None => log::warn!("{what}: the entry for \"{pattern}\" has no usable credentials"),
            }
        }
        Ok(())
    }

    /// Adds one entry.
    pub fn push(&mut self, pattern: &str, credential: Credential) {
        self.entries.push(Entry { origin: String::new(), pattern: pattern.to_owned(), credential });
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// Credentials to try for `name`, the best match first, none twice.
    #[must_use]
    pub fn find(&self, name: &ImageName) -> Vec<Credential> {
        let mut found: Vec<Credential> = Vec::new();
        for (_, credential) in self.matching(name) {
            if !found.contains(credential) {
                found.push(credential.clone());
            }
        }
        found
    }

    /// Origin and credential of the entries for `name`, the best match first.
    pub(super) fn matching(&self, name: &ImageName) -> impl Iterator<Item = (&str, &Credential)> {
        let mut fits: Vec<(&str, &Entry)> =
            self.entries.iter().filter_map(|entry| Some((matching(&entry.pattern, name)?, entry))).collect();
        // backwards by text, as in the kubelet: a longer path before a shorter one, a host before a glob; and stable:
        // what was added first wins among equals
        fits.sort_by_key(|(pattern, _)| std::cmp::Reverse(*pattern));
        fits.into_iter().map(|(_, entry)| (entry.origin.as_str(), &entry.credential))
    }
}

fn credential(entry: AuthEntry) -> Option<Credential> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    if let Some(token) = given(entry.registrytoken) {
        return Some(Credential::Bearer(token));
    }
    if let Some(token) = given(entry.identitytoken) {
        return Some(Credential::Identity(token));
    }
    if let (Some(username), Some(password)) = (given(entry.username), given(entry.password)) {
        return Some(Credential::Basic { username, password });
    }
    let decoded = STANDARD.decode(given(entry.auth)?.trim()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (username, password) = decoded.trim_end_matches('\0').split_once(':')?;
    Some(Credential::Basic { username: username.to_owned(), password: password.to_owned() })
}

/// Whether `name` falls under a pattern: globs a host label, an optional port, an optional path prefix.
#[must_use]
pub fn matches(pattern: &str, name: &ImageName) -> bool {
    matching(pattern, name).is_some()
}

/// The pattern without its decoration, if `name` falls under it.
fn matching<'a>(pattern: &'a str, name: &ImageName) -> Option<&'a str> {
    let bare =
        pattern.strip_prefix("https://").or_else(|| pattern.strip_prefix("http://")).unwrap_or(pattern);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    // the key of Docker Hub is the address of its first version
    let bare = bare.strip_suffix("/v1").or_else(|| bare.strip_suffix("/v2")).unwrap_or(bare);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let host = if matches!(host, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { host };
    let path_fits = path.is_empty() || name.repository.starts_with(path);
    (host_matches(host, &name.registry) && path_fits).then_some(bare)
}

fn host_matches(pattern: &str, host: &str) -> bool {
    let (pattern, pattern_port) = split_port(pattern);
    let (host, port) = split_port(host);
    if pattern_port.is_some() && pattern_port != port {
        return false;
    }
    let (pattern, host): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern.len() == host.len() && pattern.iter().zip(&host).all(|(glob, label)| glob_matches(glob, label))
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host, None),
    }
}

/// `*` stands for any text.
fn glob_matches(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| rest.get(at..).is_some_and(|rest| glob_matches(after, rest)))
        }),
    }
}

/// What a registry asks for in `WWW-Authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer { realm: String, service: String, scope: String },
}

impl Challenge {
    /// Reads one header; several challenges may stand in it, and of those known Bearer is preferred.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let mut found = None;
        let mut rest = header;
        while let Some((scheme, parameters, after)) = next_challenge(rest) {
            rest = after;
            if scheme.eq_ignore_ascii_case("bearer") {
                let get = |key: &str| parameters.get(key).cloned().unwrap_or_default();
                let realm = parameters.get("realm")?.clone();
                return Some(Self::Bearer { realm, service: get("service"), scope: get("scope") });
            }
            if scheme.eq_ignore_ascii_case("basic") {
                found = Some(Self::Basic);
            }
        }
        found
    }
}

type Parameters = BTreeMap<String, String>;

/// `Scheme key="value", key=value, NextScheme …` → scheme, parameters, what follows.
fn next_challenge(text: &str) -> Option<(&str, Parameters, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
    let (scheme, mut rest) = text.split_at(end);
    if scheme.is_empty() {
        return None;
    }
    let mut parameters = Parameters::new();
    loop {
        let trimmed = rest.trim_start_matches([' ', ',', '\t']);
        let key_end = trimmed.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
        let Some((key, value)) = key_end.and_then(|at| trimmed.split_at_checked(at)) else { break };
        let Some(value) = value.trim_start().strip_prefix('=').map(str::trim_start) else { break };
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted),
            None => {
                let end = value.find([',', ' ', '\t']).unwrap_or(value.len());
                let (word, after) = value.split_at(end);
                (word.to_owned(), after)
            }
        };
        parameters.insert(key.to_ascii_lowercase(), value);
        rest = after;
    }
    Some((scheme, parameters, rest))
}

/// Up to the closing quote, escapes undone.
fn quoted_text(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn basic(username: &str, password: &str) -> Credential {
        Credential::Basic { username: username.into(), password: password.into() }
    }

    #[test]
    fn longest_match_is_tried_first() {
        let text = br#"{"auths":{
            "https://index.docker.io/v1/": {"auth":"aHViOnNlY3JldDp4"},
            "*.example.com": {"username":"star","password":"1"},
            "r.example.com": {"username":"host","password":"2"},
            "r.example.com/team": {"username":"team","password":"3"},
            "r.example.com:5000": {"identitytoken":"idt"},
            "bad": {"auth":"%%"}
        }, "credsStore": "x"}"#;
        let mut ring = Keyring::default();
        ring.add("config.json", text).unwrap();
        let find = |name: &str| ring.find(&ImageName::parse(name).unwrap());
        assert_eq!(find("busybox"), [basic("hub", "secret:x")]);
        assert_eq!(
            find("r.example.com/team/app"),
            [basic("team", "3"), basic("host", "2"), basic("star", "1")]
        );
        assert_eq!(find("r.example.com/other"), [basic("host", "2"), basic("star", "1")]);
        assert_eq!(find("r.example.com:5000/x").first(), Some(&Credential::Identity("idt".into())));
        assert_eq!(find("a.b.example.com/x"), []);
        assert_eq!(find("example.com/x"), []);
        assert!(!format!("{ring:?}").contains("secret"));
    }

    #[test]
    fn old_form_is_read_and_garbage_named() {
        let mut ring = Keyring::default();
        ring.add("old", br#"{"quay.io":{"auth":"YTpi"}}"#).unwrap();
        assert_eq!(ring.find(&ImageName::parse("quay.io/x").unwrap()), [basic("a", "b")]);
        assert!(ring.add("secret \"x\"", b"{").unwrap_err().to_string().starts_with("secret \"x\": line 1"));
        ring.add("empty", br#"{"credHelpers":{"a":"b"}}"#).unwrap();
    }

    #[test]
    fn challenges_of_real_registries_are_read() {
        let bearer = |realm: &str, service: &str, scope: &str| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.into(), scope: scope.into() })
        };
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        assert_eq!(
            Challenge::parse(header),
            bearer("https://auth.docker.io/token", "registry.docker.io", "repository:a/b:pull,push")
        );
        assert_eq!(Challenge::parse("Basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("basic"), Some(Challenge::Basic));
        assert_eq!(
            Challenge::parse("Basic realm=\"x, y\", Bearer realm=z , service = s"),
            bearer("z", "s", "")
        );
        assert_eq!(Challenge::parse("Negotiate, Basic realm=\"\\\"\""), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Bearer service=\"x\""), None);
        assert_eq!(Challenge::parse(""), None);
    }

    proptest! {
        #[test]
        fn any_header_gets_an_answer(header in ".*", odd in "([Bb]earer|realm|=|\"|\\\\|,| |x)*") {
            let _ = (Challenge::parse(&header), Challenge::parse(&odd));
        }
    }
}
