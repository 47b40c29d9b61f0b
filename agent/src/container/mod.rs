//! One container: what it is made of ([`spec`]) and how the supervisor's child makes it.
pub mod spec;
