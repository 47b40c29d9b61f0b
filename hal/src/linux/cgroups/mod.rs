//! Control groups on v1, v2 and hybrid.
//!
//! [`Cgroups::open`] finds the hierarchies, [`Cgroups::create`] makes a [`Group`] in all that are wanted, and
//! [`Group::limits`] puts limits in force and reads them back. What this kernel cannot do is told as [`Degraded`], so that
//! the caller decides whether to go on. In a hybrid set-up every group is made in the v2 hierarchy as well: it holds no
//! controllers there, but it kills (`cgroup.kill`), freezes and tells when it is empty.

mod apply;
mod controller;
mod devices;
mod error;
mod files;
mod group;
mod kill;
mod layout;
mod limits;
mod usage;
mod watch;

pub use controller::{Controller, Controllers};
pub use devices::{Access, DeviceKind, DevicePolicy, DeviceRule};
pub use error::{Degraded, Error};
pub use group::{Cgroups, Group};
pub use layout::{Flavour, MissingController};
pub use limits::{Limits, UNLIMITED, WeightRule, page_size_name};
pub use usage::Usage;
pub use watch::{Happened, Watcher};

#[cfg(test)]
mod tests;
