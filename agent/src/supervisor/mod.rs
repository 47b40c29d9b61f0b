//! The one parent of all containers of the node: spawns, reaps, keeps output and exits. It never parses a manifest.
//!
//! A process of its own (`podkeep supervisor --run-dir DIR`), so that containers live on while the agent is restarted,
//! upgraded or killed. It is killable, too: all it knows is in the run folder, and the next one adopts what runs
//! ([`adopt`]); its program can be replaced without letting go of anything ([`handover`]).
//!
//! One thread, one epoll, no periodic wake-up. It ends only when it is told [`Quit`](proto::RequestBody::Quit).

mod adopt;
mod clock;
mod exits;
mod failpoint;
mod handover;
pub mod link;
pub mod logs;
mod peer;
pub mod proto;
mod record;
mod requests;
pub mod runtime;
mod sandbox;
mod server;
mod spawn;
mod start;
mod streams;
pub mod wire;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

pub use spawn::{SOCKET, Spawned, spawn};

use runtime::{Embedded, Runtime};
use server::Server;

/// For steps whose failure changes nothing that is done next; each caller says why.
fn best_effort<T, E>(_: Result<T, E>) {}

/// Lines of its own log at the most: the file lies in memory and nobody rotates it.
const MAX_LINES: u32 = 1000;

/// Writes to standard error, which is the supervisor's log file.
struct Stderr {
    lines: AtomicU32,
}

impl log::Log for Stderr {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.lines.fetch_add(1, Ordering::Relaxed) < MAX_LINES {
            eprintln!("{} supervisor: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

static LOG: Stderr = Stderr { lines: AtomicU32::new(0) };

/// The supervisor of `run_dir`, an absolute path; returns when it was told to quit, or at once when another one serves
/// this folder.
#[must_use]
pub fn main(run_dir: &Path) -> ExitCode {
    let note = crate::container::setup::reexec_readonly();
    if log::set_logger(&LOG).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    if let Some(note) = note {
        log::warn!("{note}");
    }
    serve(run_dir, Embedded)
}

/// [`main`] with another runtime.
#[must_use]
pub fn serve<R: Runtime>(run_dir: &Path, runtime: R) -> ExitCode {
    match try_serve(run_dir, runtime) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("cannot serve '{}': {error}", run_dir.display());
            ExitCode::FAILURE
        }
    }
}

fn try_serve<R: Runtime>(run_dir: &Path, mut runtime: R) -> io::Result<()> {
    // before anything is opened: numbers of descriptors came with us
    let mut server = if let Some(received) = handover::receive()? {
        spawn::detach();
        received.resume(run_dir, runtime)?
    } else {
        spawn::detach();
        let Some(lock) = spawn::take_lock(run_dir)? else {
            log::warn!("'{}' is served already", run_dir.display());
            return Ok(());
        };
        runtime.prepare(run_dir).map_err(|failure| io::Error::other(failure.to_string()))?;
        let mut server = Server::new(run_dir, runtime, lock, spawn::listen(run_dir)?)?;
        server.adopt();
        spawn::announce()?;
        server
    };
    server.run()?;
    server.leave();
    Ok(())
}
