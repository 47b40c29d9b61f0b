//! Container logs on disk: the form of a record, the files of a log, and reading them back.

pub mod files;
pub mod record;
pub mod timestamp;
