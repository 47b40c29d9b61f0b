//! A machine in memory that has the same events as a real one: for tests.

pub mod machine;
