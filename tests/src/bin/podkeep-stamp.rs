//! `stamp FILE`: appends the time (`CLOCK_BOOTTIME`, nanoseconds) of its first instruction to FILE and waits for SIGTERM.
//! The program that benchmarks start, the same for every program they compare. With `stamp FILE --exit` it ends at once.

use std::io::Write;

use nix::sys::signal::{SigSet, Signal};
use nix::time::{ClockId, clock_gettime};

fn main() -> std::io::Result<()> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    let mut args = std::env::args_os().skip(1);
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.thread_block()?;
    if let Some(path) = args.next() {
        // one write: several of these append to one file
        let line = format!("{}\n", i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec()));
        std::fs::OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())?;
    }
    if args.next().is_none() {
        ends.wait()?;
    }
    Ok(())
}
