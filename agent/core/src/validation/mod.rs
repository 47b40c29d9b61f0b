//! Validation on create, with field paths, as the API server's.
