//! Image names: registry, repository, tag, digest, and their defaults. Grammar: distribution `reference`.
use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;

/// The registry of a name without one.
pub const DEFAULT_REGISTRY: &str = "docker.io";
/// The tag of a name without tag and digest.
pub const DEFAULT_TAG: &str = "latest";
/// The longest repository with its registry, in bytes.
const NAME_MAX: usize = 255;
/// The longest tag, in bytes.
const TAG_MAX: usize = 128;

/// A name of an image, normalised: `nginx` is `docker.io/library/nginx`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Host and port of the registry.
    pub registry: String,
    /// Path of the image there.
    pub repository: String,
    /// The tag, if one is given.
    pub tag: Option<String>,
    /// The digest, `algorithm:hex`, if one is given.
    pub digest: Option<String>,
}

/// Why a text is not the name of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceError {
    /// No text.
    Empty,
    /// Upper case in the repository.
    UpperCase {
        /// The whole text.
        text: String,
    },
    /// A part does not follow the grammar.
    Invalid {
        /// The whole text.
        text: String,
        /// Which part.
        part: &'static str,
    },
    /// Registry and repository have more than 255 characters.
    TooLong {
        /// The whole text.
        text: String,
    },
    /// 64 hex digits, which could be an image id.
    LooksLikeId {
        /// The whole text.
        text: String,
    },
}

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReferenceError::Empty => f.write_str("the image name is empty"),
            ReferenceError::UpperCase { text } => {
                write!(f, "image name '{text}' is not valid: the repository must be in lower case")
            }
            ReferenceError::Invalid { text, part } => write!(
                f,
                "image name '{text}' is not valid: the {part} is wrong; write registry/repository:tag or registry/repository@sha256:hex"
            ),
            ReferenceError::TooLong { text } => {
                write!(f, "image name '{text}' is not valid: more than {NAME_MAX} characters")
            }
            ReferenceError::LooksLikeId { text } => {
                write!(f, "image name '{text}' is not valid: it is an image id; write the repository")
            }
        }
    }
}

impl core::error::Error for ReferenceError {}

fn is_lower_alnum(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Runs of lower-case letters and digits, joined by `.`, `_`, `__` or any number of `-`.
fn is_path_component(text: &str) -> bool {
    if !text.starts_with(is_lower_alnum) || !text.ends_with(is_lower_alnum) {
        return false;
    }
    text.split(is_lower_alnum)
        .all(|gap| matches!(gap, "" | "." | "_" | "__") || gap.bytes().all(|b| b == b'-'))
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let valid = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            match (valid, rest.strip_prefix(':')) {
                (false, _) => return false,
                (true, Some(port)) => (None, Some(port)),
                (true, None) if rest.is_empty() => (None, None),
                (true, None) => return false,
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let component = |c: &str| {
        let alnum = |c: char| c.is_ascii_alphanumeric();
        c.starts_with(alnum) && c.ends_with(alnum) && c.chars().all(|c| alnum(c) || c == '-')
    };
    host.is_none_or(|h| h.split('.').all(component))
        && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(word) && text.len() <= TAG_MAX && text.chars().all(|c| word(c) || c == '.' || c == '-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let component = |c: &str| {
        c.starts_with(|c: char| c.is_ascii_alphabetic()) && c.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let wanted = match algorithm {
        "sha256" => Some(64),
        "sha384" => Some(96),
        "sha512" => Some(128),
        _ => None,
    };
    algorithm.split(['+', '.', '-', '_']).all(component)
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
        && match wanted {
            Some(len) => hex.len() == len && !hex.bytes().any(|b| b.is_ascii_uppercase()),
            None => hex.len() >= 32,
        }
}

impl Reference {
    /// Reads and normalises the name of an image.
    pub fn parse(text: &str) -> Result<Reference, ReferenceError> {
        let invalid = |part| ReferenceError::Invalid { text: text.into(), part };
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f')) {
            return Err(ReferenceError::LooksLikeId { text: text.into() });
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) if is_digest(digest) => (rest, Some(digest)),
            Some(_) => return Err(invalid("digest")),
            None => (text, None),
        };
        // a colon behind the last slash starts the tag; one before it belongs to a port
        let slash = rest.rfind('/').map_or(0, |at| at.saturating_add(1));
        let (name, tag) = match rest.get(slash..).and_then(|last| last.split_once(':')) {
            Some((_, tag)) => {
                let end = rest.len().saturating_sub(tag.len()).saturating_sub(1);
                (rest.get(..end).unwrap_or(rest), Some(tag))
            }
            None => (rest, None),
        };
        if tag.is_some_and(|t| !is_tag(t)) {
            return Err(invalid("tag"));
        }
        let (registry, path) = match name.split_once('/') {
            // a registry has a dot or a port, is localhost, or has what a repository cannot have
            Some((first, rest))
                if first.contains(['.', ':'])
                    || first == "localhost"
                    || first.bytes().any(|b| b.is_ascii_uppercase()) =>
            {
                (first, rest)
            }
            _ => (DEFAULT_REGISTRY, name),
        };
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        if !is_domain(registry) {
            return Err(invalid("registry"));
        }
        if path.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ReferenceError::UpperCase { text: text.into() });
        }
        if !path.split('/').all(is_path_component) {
            return Err(invalid("repository"));
        }
        let repository = match registry == DEFAULT_REGISTRY && !path.contains('/') {
            true => format!("library/{path}"),
            false => path.into(),
        };
        if registry.len().saturating_add(repository.len()) >= NAME_MAX {
            return Err(ReferenceError::TooLong { text: text.into() });
        }
        Ok(Reference {
            registry: registry.into(),
            repository,
            tag: tag.map(ToString::to_string),
            digest: digest.map(ToString::to_string),
        })
    }

    /// The tag, `latest` if there is neither tag nor digest, none if there is only a digest.
    pub fn tag_or_latest(&self) -> Option<&str> {
        match (&self.tag, &self.digest) {
            (Some(tag), _) => Some(tag),
            (None, Some(_)) => None,
            (None, None) => Some(DEFAULT_TAG),
        }
    }

    /// Registry and repository, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

/// The normalised name with its tag and digest; the tag `latest` is written out if there is nothing else.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = self.tag_or_latest() {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_are_normalised() {
        let digest = format!("sha256:{HEX}");
        for (text, wanted) in [
            ("nginx", "docker.io/library/nginx:latest".to_string()),
            ("nginx:1.27", "docker.io/library/nginx:1.27".into()),
            ("user/app", "docker.io/user/app:latest".into()),
            ("localhost/app", "localhost/app:latest".into()),
            ("localhost:5000/a/b:x", "localhost:5000/a/b:x".into()),
            ("index.docker.io/a", "docker.io/library/a:latest".into()),
            ("[::1]:5000/a", "[::1]:5000/a:latest".into()),
            ("UPPER/app", "UPPER/app:latest".into()),
            ("x/a__b.c---d", "docker.io/x/a__b.c---d:latest".into()),
            (&format!("app@{digest}"), format!("docker.io/library/app@{digest}")),
            (&format!("app:1@{digest}"), format!("docker.io/library/app:1@{digest}")),
        ] {
            assert_eq!(Reference::parse(text).map(|r| r.to_string()), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        for text in [
            "",
            " nginx",
            "nginx ",
            "App",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:b:c",
            "a@sha256:12",
            "a:-x",
            "-a",
            "a___b",
            HEX,
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_normalised_name_stays_as_it_is() {
        let once = Reference::parse("user/app:1").unwrap().to_string();
        assert_eq!(Reference::parse(&once).unwrap().to_string(), once);
    }
}
