//! The machine: CPUs, memory, cgroups, processes, mounts, durable files. No word here for what runs on it.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod board;
pub mod cpu_set;
pub mod error;
#[cfg(feature = "std")]
pub mod files;
#[cfg(feature = "linux")]
pub mod linux;
pub mod numa_mask;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "std")]
pub mod snapshot;
pub mod topology;
