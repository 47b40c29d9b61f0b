//! The Linux side: everything that talks to the kernel.

pub mod cgroups;
mod facts;
pub mod inventory;
pub mod process;
pub mod store;
pub mod tree;

// The one place in the workspace where unsafe code may stand.
#[expect(unsafe_code, reason = "system calls live here and nowhere else, one kind a file")]
pub mod sys;
