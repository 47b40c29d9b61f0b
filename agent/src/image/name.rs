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

use podkeep_core::reference::Reference;

use super::digest::Digest;
use super::error::ImageError;

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
        let invalid = |why: String| ImageError::InvalidName { name: text.to_owned(), why };
        let parsed = Reference::parse(text).map_err(|error| invalid(error.to_string()))?;
        let first = text.split('/').next().unwrap_or_default();
        let is_short = first != parsed.registry && first != "index.docker.io" || !text.contains('/');
        let tag = parsed.tag_or_latest().map(str::to_owned);
        let digest = parsed.digest.as_deref().map(Digest::parse).transpose()?;
        Ok(Self { registry: parsed.registry, repository: parsed.repository, tag, digest, is_short })
    }

    /// Whether both mean one image, however they were written.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let parts =
            |name: &Self| (name.registry.clone(), name.repository.clone(), name.tag.clone(), name.digest);
        parts(self) == parts(other)
    }

    /// Whether `stated`, as an archive has it, is this image: also under podman's name for local builds.
    #[must_use]
    pub fn is_stated_as(&self, stated: &Self) -> bool {
        self.is_same(stated) || self.local_alias().is_some_and(|alias| alias.is_same(stated))
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
