//! Where manifests come from: folder, file, address; and how their text is read.

pub mod decode;
pub mod fill;
pub mod json;
pub mod node;
pub mod suggest;
pub mod yaml;

mod interim;
pub use interim::{Running, SourceUpdate, hold, start};
