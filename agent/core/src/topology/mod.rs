//! Topology manager: hints, merge, policies.

pub mod distance;
pub mod hint;
pub mod masks;
pub mod merge;
pub mod policy;

pub use hint::{Hint, Offer, Offers};
