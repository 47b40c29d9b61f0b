//! Where manifests come from: folder, file, address; and how their text is read.

use podkeep_core::desired::{FileKey, Object};

pub mod check;
pub mod decode;
pub mod dir;
pub mod entry;
pub mod fill;
pub mod http;
pub mod json;
pub mod judge;
pub mod look;
pub mod node;
pub mod settle;
pub mod suggest;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod yaml;

/// Makes a decoded object the node's own (identity, defaults) and says what is wrong with it.
pub type Judge = dyn Fn(&FileKey, &mut Object) -> Vec<decode::Complaint> + Send + Sync;
