//! Image names: registry, repository, tag, digest, and their defaults.
