//! What podkeep costs, beside a bare start, `crun` and `podman` on the same machine in the same minutes.
//!
//! The container is the same everywhere: a static program that writes the time of its first instruction to a file on a
//! bound folder and waits for SIGTERM. All times are `CLOCK_BOOTTIME`, from the moment before the request to the first
//! instruction; CPU is everything that any process spent for a start.

pub mod floor;
pub mod foreign;
pub mod ours;
pub mod samples;
pub mod stamps;

pub use samples::Samples;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// single starts
    pub rounds: u32,
    /// pods at once, the largest number
    pub most: u32,
    /// seconds of the idle measurement
    pub idle: u32,
}
