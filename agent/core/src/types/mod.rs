//! The v1 API types: Pod, ConfigMap, Secret, lists. Every field of the public API is known by name, also those the
//! node does not act on, so that "unknown" and "known but not supported here" are told apart.
//!
//! Optional structs are boxed: most are absent, and a volume has thirty of them. Texts with a fixed set of values
//! stay texts, so that validation can say what was written; the values are constants in [`value`].
pub mod affinity;
pub mod container;
pub mod meta;
pub mod object;
pub mod pod;
pub mod scalar;
pub mod status;
pub mod value;
pub mod volume;
pub mod wire;

pub use container::*;
pub use meta::*;
pub use object::{Object, Shape};
pub use pod::*;
pub use scalar::{Bytes, Dropped, IntOrString, Time};
pub use status::*;
pub use volume::*;

pub use crate::quantity::Quantity;

/// Amounts by the name of their resource.
pub type ResourceList = alloc::collections::BTreeMap<alloc::string::String, Quantity>;
/// Texts by name: labels, annotations, data.
pub type StringMap = alloc::collections::BTreeMap<alloc::string::String, alloc::string::String>;

#[cfg(test)]
mod tests;
