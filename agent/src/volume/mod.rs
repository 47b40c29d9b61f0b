//! Volumes: one file a kind.
