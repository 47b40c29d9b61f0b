//! Shared pieces of the whole-system tests: a node of its own for each test, images, and their removal.
//!
//! A test makes a [`node::Node`], drops manifests into its folder and waits for what it expects to see. Everything a
//! node brings into the world is written down first ([`janitor`]), so that it can be taken away again even when the
//! test program was killed.

pub mod bench;
pub mod cgroup;
pub mod fuzz;
pub mod image;
pub mod janitor;
pub mod node;
pub mod pods;
pub mod proc;
pub mod trouble;

pub use node::{Node, NodeOptions};
pub use pods::Pod;
pub use trouble::{Result, Trouble};

/// Says that a test cannot run here, in the form that `tests/run` counts, and ends it.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        println!("skipped: {}", format_args!($($why)*));
        return Ok(());
    }};
}

/// Ends a test as skipped unless it runs as root on a machine where containers can be started.
#[macro_export]
macro_rules! need_root {
    () => {
        if let Some(why) = $crate::node::cannot_run_here() {
            $crate::skip!("{why}");
        }
    };
}

/// Like `assert!`, for functions that return [`Result`]: the message carries the values.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err($crate::Trouble::new(format!("{} ({})", format_args!($($why)*), stringify!($condition))));
        }
    };
}
