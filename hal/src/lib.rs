//! The machine: CPUs, memory, cgroups, processes, mounts, durable files. No word here for what runs on it.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "linux")]
pub mod linux;
