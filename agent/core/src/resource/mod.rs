//! CPU, memory and device managers; [`ledger`] is their common face.

pub mod cpu;
pub mod cpu_hints;
pub mod cpu_pod;
pub mod cpu_spread;
pub mod cpu_state;
pub mod cpu_take;
pub mod device;
pub mod device_select;
pub mod grant;
pub mod layout;
pub mod ledger;
pub mod memory;
pub mod memory_state;
pub mod options;
pub mod pod;
pub mod request;
pub mod restore;
pub mod settings;
