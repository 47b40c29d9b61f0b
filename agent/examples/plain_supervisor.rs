//! The supervisor over plain processes of the host instead of containers: everything but namespaces and mounts can be
//! tested with it, without privileges. Used by `tests/supervisor_*.rs`.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use nix::sys::signal::{SigSet, SigmaskHow};
use podkeep::container::setup::{Progress, SandboxMade, Started, Stdio};
use podkeep::container::spec::{ContainerSpec, Namespace, ProcessSpec, SandboxSpec};
use podkeep::supervisor::proto::{Failure, FailureKind};
use podkeep::supervisor::runtime::{Launch, Runtime};
use podkeep_hal::linux::sys::pidfd;

/// A shell that waits for a line on its standard input, then becomes the program. When the supervisor dies first, the
/// input ends and so does the shell.
struct PlainLaunch {
    child: Option<Child>,
    gate: PipeWriter,
    /// always readable: there is always something to do next
    channel: PipeReader,
    released: bool,
}

impl Drop for PlainLaunch {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

fn failure(step: &str, error: &io::Error) -> Failure {
    Failure {
        kind: FailureKind::System,
        step: step.into(),
        what: String::new(),
        errno: error.raw_os_error().unwrap_or(5),
    }
}

impl Launch for PlainLaunch {
    fn pid(&self) -> i32 {
        self.child.as_ref().map_or(0, |child| i32::try_from(child.id()).unwrap_or(0))
    }

    fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn advance(&mut self) -> Result<Progress, Failure> {
        if !self.released {
            return Ok(Progress::Ready);
        }
        let pid = self.pid();
        let pidfd = pidfd::open(pid).map_err(|errno| failure("pidfd", &errno.into()))?;
        self.child = None;
        Ok(Progress::Executed(Started { pid, pidfd, degraded: Vec::new(), pty_master: None }))
    }

    fn go(&mut self) -> Result<(), Failure> {
        self.released = true;
        self.gate.write_all(b"go\n").map_err(|error| failure("go", &error))
    }
}

struct Plain;

fn launch(process: &ProcessSpec, stdio: Stdio) -> Result<PlainLaunch, Failure> {
    let (Some(program), Stdio::Fds { stdin, stdout, stderr }) = (process.args.first(), stdio) else {
        return Err(Failure { kind: FailureKind::Invalid, ..Failure::default() });
    };
    if program.starts_with("/no/") {
        return Err(Failure {
            kind: FailureKind::Exec,
            step: "exec".into(),
            what: program.clone(),
            errno: 2,
        });
    }
    let begin = || -> io::Result<PlainLaunch> {
        // a copy without close-on-exec, which the shell finds by its number
        let inherited = stdin.as_ref().map(nix::unistd::dup).transpose()?;
        let input = match &inherited {
            Some(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()),
            None => "/dev/null".to_owned(),
        };
        let (gate_reader, gate) = io::pipe()?;
        let (channel, mut always) = io::pipe()?;
        always.write_all(b"x")?;
        // a blocked mask would be inherited by the program
        let mask = SigSet::empty().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let child = Command::new("/bin/sh")
            .args(["-c", "read -r go && exec \"$@\" < \"$0\""])
            .arg(input)
            .args(&process.args)
            .process_group(0)
            .stdin(gate_reader)
            .stdout(stdout)
            .stderr(stderr)
            .spawn();
        mask.thread_set_mask()?;
        let child = child?;
        Ok(PlainLaunch { child: Some(child), gate, channel, released: false })
    };
    begin().map_err(|error| failure("spawn", &error))
}

impl Runtime for Plain {
    type Launch = PlainLaunch;

    fn prepare(&mut self, _run_dir: &Path) -> Result<(), Failure> {
        Ok(())
    }

    fn release(&mut self, _run_dir: &Path) -> Result<(), Failure> {
        Ok(())
    }

    fn create_sandbox(&mut self, spec: &SandboxSpec, _dir: &Path) -> Result<SandboxMade, Failure> {
        if spec.pid != Namespace::Sandbox {
            return Ok(SandboxMade::default());
        }
        let reaper = Command::new("sleep").arg("100000").spawn().map_err(|error| failure("spawn", &error))?;
        let pid = i32::try_from(reaper.id()).unwrap_or(0);
        let pidfd: OwnedFd = pidfd::open(pid).map_err(|errno| failure("pidfd", &errno.into()))?;
        Ok(SandboxMade { reaper_pid: pid, reaper_pidfd: Some(pidfd), degraded: Vec::new() })
    }

    fn remove_sandbox(&mut self, _dir: &Path) -> Result<(), Failure> {
        Ok(())
    }

    fn begin(&mut self, spec: &ContainerSpec, _sandbox: &Path, stdio: Stdio) -> Result<PlainLaunch, Failure> {
        launch(&spec.process, stdio)
    }

    fn begin_exec(
        &mut self,
        process: &ProcessSpec,
        _target: i32,
        _pidfd: BorrowedFd<'_>,
        _cgroups: &[PathBuf],
        stdio: Stdio,
    ) -> Result<PlainLaunch, Failure> {
        launch(process, stdio)
    }
}

fn main() -> ExitCode {
    let Some(run_dir) = std::env::args_os().nth(3) else {
        return ExitCode::FAILURE;
    };
    podkeep::supervisor::serve(Path::new(&run_dir), Plain)
}
