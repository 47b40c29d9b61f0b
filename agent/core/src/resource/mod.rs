//! CPU, memory and device managers.

pub mod cpu;
pub mod cpu_hints;
pub mod cpu_pod;
pub mod cpu_spread;
pub mod cpu_state;
pub mod cpu_take;
pub mod device;
pub mod device_select;
pub mod layout;
pub mod memory;
pub mod memory_state;
pub mod options;
pub mod request;
