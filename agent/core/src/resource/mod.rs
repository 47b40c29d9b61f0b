//! CPU, memory and device managers.

pub mod cpu_spread;
pub mod cpu_take;
pub mod layout;
pub mod options;
