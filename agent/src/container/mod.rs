//! One container: what it is made of ([`spec`]) and how the supervisor's child makes it ([`setup`]).

pub mod build;
pub mod caps;
mod cgroup;
mod cgroup_mounts;
mod child;
mod dev;
mod identity;
mod layer_copy;
mod mask;
mod mounts;
mod own_program;
mod program;
mod report;
mod resolve;
pub mod rlimits;
mod root;
mod sandbox;
pub mod seccomp;
mod settle;
pub mod setup;
pub mod spec;
mod terminal;
