//! Validation on create, with field paths, as the API server's.
pub mod names;
pub mod volumes;
