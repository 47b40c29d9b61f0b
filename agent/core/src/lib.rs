//! Decisions: facts and time come in as arguments, values go out. Nothing here reads a clock, a file or a socket.
#![no_std]
extern crate alloc;

pub mod admission;
pub mod checkpoint;
pub mod config;
pub mod defaults;
pub mod desired;
pub mod eviction;
pub mod expand;
pub mod host_ports;
pub mod identity;
pub mod image;
pub mod lifecycle;
pub mod oom;
pub mod phase;
pub mod probe;
pub mod qos;
pub mod quantity;
pub mod reference;
pub mod resolv;
pub mod resource;
pub mod resources;
pub mod shutdown;
pub mod status;
pub mod topology;
pub mod types;
pub mod validation;
