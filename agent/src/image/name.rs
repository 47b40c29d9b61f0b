//! Image names as people write them, made whole.
//!
//! The rule, the same for loading, manifests and the command line:
//! - `REGISTRY/REPOSITORY[:TAG][@DIGEST]`; the first part is a registry if it holds a `.` or a `:`, is
//!   `localhost`, or has an upper-case letter. Else the registry is `docker.io`, and a repository without a
//!   slash is one of `library/`.
//! - Neither tag nor digest: tag `latest`. A digest wins over a tag.
//! - So `demo` is `docker.io/library/demo:latest`, wherever it is written. An image that came in under
//!   `localhost/demo:latest` (podman's name of a local build) is found by `demo`, too, as long as nothing
//!   else has the name.

use std::fmt;

use super::digest::Digest;
use super::error::ImageError;

const NAME_LIMIT: usize = 255;

/// A name with all parts present.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    pub registry: String,
    pub repository: String,
    /// `None` only together with a digest
    pub tag: Option<String>,
    pub digest: Option<Digest>,
    /// written without registry
    pub is_short: bool,
}

impl ImageName {
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let invalid = |why: &str| ImageError::InvalidName { name: text.to_owned(), why: why.to_owned() };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(Digest::parse(digest)?)),
            None => (text, None),
        };
        let slash = rest.rfind('/').map_or(0, |at| at + 1);
        let last = rest.get(slash..).unwrap_or_default();
        let (path, tag) = match last.find(':') {
            Some(colon) => {
                let at = slash + colon;
                (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).map(str::to_owned))
            }
            None => (rest, None),
        };
        if path.is_empty() {
            return Err(invalid("the repository is missing"));
        }
        if tag.as_ref().is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid(
                "a tag has 1 to 128 letters, digits, '_', '.', '-' and begins with none of the last two",
            ));
        }
        let (registry, repository, is_short) = match path.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first.to_owned(), rest.to_owned(), false),
            Some(_) => ("docker.io".to_owned(), path.to_owned(), true),
            None => ("docker.io".to_owned(), format!("library/{path}"), true),
        };
        let (registry, repository) = match registry.as_str() {
            "index.docker.io" => ("docker.io".to_owned(), repository),
            "docker.io" if !repository.contains('/') => (registry, format!("library/{repository}")),
            _ => (registry, repository),
        };
        if repository.len() > NAME_LIMIT {
            return Err(invalid("a repository has at most 255 characters"));
        }
        if !repository.split('/').all(is_component) {
            return Err(invalid(
                "a repository has lower-case letters, digits, and '.', '_', '__' or '-' between them",
            ));
        }
        if !is_host(&registry) {
            return Err(invalid("the registry is not a host name with an optional port"));
        }
        let tag = if tag.is_none() && digest.is_none() { Some("latest".to_owned()) } else { tag };
        Ok(Self { registry, repository, tag, digest, is_short })
    }

    /// The same under `localhost/`, where podman puts local builds.
    #[must_use]
    pub fn local_alias(&self) -> Option<Self> {
        if !self.is_short {
            return None;
        }
        let repository = self.repository.strip_prefix("library/").unwrap_or(&self.repository);
        Some(Self {
            registry: "localhost".to_owned(),
            repository: repository.to_owned(),
            is_short: false,
            ..self.clone()
        })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match (&self.digest, &self.tag) {
            (Some(digest), _) => write!(f, "@{digest}"),
            (None, Some(tag)) => write!(f, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|b| b.is_ascii_uppercase())
}

/// `name.example:5000`, `[::1]:5000`.
fn is_host(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let label = |label: &str| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    port.is_none_or(|port| port.parse::<u16>().is_ok()) && (is_address || host.split('.').all(label))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

/// `[a-z0-9]+` joined by one `.`, one or two `_`, or any number of `-`.
fn is_component(part: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends =
        bytes.first().is_some_and(|b| alphanumeric(*b)) && bytes.last().is_some_and(|b| alphanumeric(*b));
    let separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends && separators.into_iter().all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_get_all_parts() {
        let whole = |text: &str| ImageName::parse(text).unwrap().to_string();
        assert_eq!(whole("demo"), "docker.io/library/demo:latest");
        assert_eq!(whole("docker.io/demo"), "docker.io/library/demo:latest");
        assert_eq!(whole("me/demo:1.2"), "docker.io/me/demo:1.2");
        assert_eq!(whole("localhost/demo"), "localhost/demo:latest");
        assert_eq!(whole("localhost:5000/a/b:x"), "localhost:5000/a/b:x");
        assert_eq!(whole("quay.io/a/b"), "quay.io/a/b:latest");
        assert_eq!(whole("[::1]:5000/a"), "[::1]:5000/a:latest");
        let pinned = format!("quay.io/a/b@{}", Digest::of(b""));
        assert_eq!(whole(&pinned), pinned);
        assert_eq!(whole(&pinned.replace('@', ":tag@")), pinned);
        assert_eq!(
            ImageName::parse("a/demo").unwrap().local_alias().unwrap().to_string(),
            "localhost/a/demo:latest"
        );
        assert_eq!(
            ImageName::parse("demo").unwrap().local_alias().unwrap().to_string(),
            "localhost/demo:latest"
        );
        assert_eq!(ImageName::parse("quay.io/demo").unwrap().local_alias(), None);
    }

    #[test]
    fn bad_names_are_refused() {
        for bad in [
            "",
            ":",
            "a:",
            "Demo",
            "a//b",
            "../etc",
            "a b",
            "a:b:c",
            "demo@sha256:12",
            "a:-x",
            "-a",
            "a.",
            "a___b",
            "a..b",
            "/a",
            "a/",
            "quay.io/",
        ] {
            let error = ImageName::parse(bad).expect_err(bad);
            assert_eq!(error.reason().as_str(), "InvalidImageName", "{bad}");
        }
    }
}
