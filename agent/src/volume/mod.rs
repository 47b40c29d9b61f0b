//! Volumes: one file a kind.

mod interim;
pub use interim::{prepare_for, remove_tree, teardown};
