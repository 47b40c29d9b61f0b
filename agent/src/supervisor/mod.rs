//! The one parent of all containers of the node: spawns, reaps, keeps output and exits. It never parses a manifest.
pub mod proto;
