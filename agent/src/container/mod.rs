//! One container: what it is made of ([`spec`]) and how the supervisor's child makes it ([`setup`]).
pub mod setup;
pub mod spec;
