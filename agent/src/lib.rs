//! podkeep, the node agent: moves facts in and actions out; decisions live in `podkeep-core`.

pub mod api;
pub mod board;
pub mod cli;
pub mod clock;
pub mod config;
pub mod container;
pub mod demo;
pub mod image;
pub mod logging;
pub mod logs;
pub mod node;
pub mod offload;
pub mod signals;
pub mod source;
pub mod supervisor;
pub mod volume;
