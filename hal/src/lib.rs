//! The machine: CPUs, memory, cgroups, processes, mounts, durable files. No word here for what runs on it.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(test)]
extern crate std;

pub mod cpu_set;
pub mod error;
#[cfg(feature = "linux")]
pub mod linux;
pub mod numa_mask;
pub mod topology;
