//! Beginning a supervisor's life: the agent's side (start it so that it outlives us) and its own first steps.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::best_effort;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};

/// Name of the socket below the run folder.
pub const SOCKET: &str = "supervisor.sock";
const LOCK: &str = "supervisor.lock";
const LOG: &str = "supervisor.log";

/// A log file longer than this begins anew with the next supervisor.
const MAX_LOG: u64 = 64 * 1024;
/// Open files at the most: five a container, and programs that loop over all possible numbers still start quickly.
const MAX_OPEN: u64 = 65_536;

/// A supervisor that is coming up.
#[derive(Debug)]
pub struct Spawned {
    /// to be reaped when it ends while we live
    pub child: Child,
    /// `ready\n` and the end when it serves; only the end when it could not, or when another one serves already
    pub ready: PipeReader,
}

/// Starts `exe supervisor --run-dir <run_dir>`, so that it survives us: in a session of its own, and in the cgroup
/// folders given (one a hierarchy; none: it stays in ours). Its words go to `<run-dir>/supervisor.log`.
///
/// # Errors
/// when the program cannot be executed or the run folder cannot be made
pub fn spawn(run_dir: &Path, exe: &Path, cgroups: &[PathBuf]) -> io::Result<Spawned> {
    make_private(run_dir)?;
    let path = run_dir.join(LOG);
    let long = fs::metadata(&path).is_ok_and(|about| about.len() > MAX_LOG);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    if long {
        log.set_len(0)?;
    }
    let (ready, ready_writer) = io::pipe()?;
    let mut command = Command::new(exe);
    command.args(["supervisor".as_ref(), "--run-dir".as_ref(), run_dir.as_os_str()]);
    command.current_dir("/").env_clear();
    for name in ["PATH", "PODKEEP_FAILPOINT"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let child = command.stdin(Stdio::null()).stdout(ready_writer).stderr(log).spawn()?;
    for cgroup in cgroups {
        // nothing runs below it yet, so nothing is left behind; without the move it only dies with our service
        if let Err(error) = fs::write(cgroup.join("cgroup.procs"), child.id().to_string()) {
            log::warn!("cannot move the supervisor into '{}': {error}", cgroup.display());
        }
    }
    Ok(Spawned { child, ready })
}

fn make_private(run_dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(run_dir)?;
    fs::set_permissions(run_dir, fs::Permissions::from_mode(0o700))
}

/// Takes the run folder. `None`: another supervisor serves it.
pub(super) fn take_lock(run_dir: &Path) -> io::Result<Option<OwnedFd>> {
    make_private(run_dir)?;
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(run_dir.join(LOCK))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            // the lock belongs to the open file: it ends with the last descriptor of it. Unwrapping would unlock.
            let kept = lock.try_clone()?;
            let _stays_open = core::mem::ManuallyDrop::new(lock);
            Ok(Some(kept.into()))
        }
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Opens the socket; the lock is held, so an old one belongs to nobody.
pub(super) fn listen(run_dir: &Path) -> io::Result<OwnedFd> {
    let path = run_dir.join(SOCKET);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let old = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(&path);
    umask(old);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    for name in ["c", "s"] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(run_dir.join(name))?;
    }
    Ok(listener.into())
}

/// Leaves the terminal, the folder and the limits of whoever started us. Each step may be denied; none is needed to serve.
pub(super) fn detach() {
    // fails only if we lead a group already, as after a handover
    best_effort(nix::unistd::setsid());
    best_effort(nix::unistd::chdir("/"));
    umask(Mode::from_bits_truncate(0o022));
    if let Err(errno) = nix::sys::prctl::set_child_subreaper(true) {
        log::warn!("orphans will not be seen: {errno}");
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-999") {
        log::warn!("not protected from the out-of-memory killer: {error}");
    }
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = hard.min(MAX_OPEN);
        if soft < wanted {
            best_effort(setrlimit(Resource::RLIMIT_NOFILE, wanted, hard));
        }
    }
}

/// Tells whoever started us that the socket is open, and lets go of the pipe.
pub(super) fn announce() -> io::Result<()> {
    let mut out = io::stdout();
    // nobody may be listening any more
    best_effort(out.write_all(b"ready\n").and_then(|()| out.flush()));
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    Ok(())
}
