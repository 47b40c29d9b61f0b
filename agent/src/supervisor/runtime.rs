//! What the supervisor needs of the code that makes containers; implemented by [`Embedded`], and by a plain process
//! starter in tests, which needs no privileges.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use super::proto::Failure;
use crate::container::setup::{self, Progress, SandboxMade, Stdio};
use crate::container::spec::{ContainerSpec, ProcessSpec, SandboxSpec};

/// A child on its way to its program. Dropping it before it is `Executed` kills and reaps the child.
pub trait Launch {
    /// In the supervisor's pid namespace.
    fn pid(&self) -> i32;
    /// Readable when [`advance`](Self::advance) has something to do.
    fn channel(&self) -> BorrowedFd<'_>;
    /// Takes the child's news without blocking. After an error the child is gone and reaped.
    ///
    /// # Errors
    /// the step of the start that failed
    fn advance(&mut self) -> Result<Progress, Failure>;
    /// Lets the child execute its program; called once, after `Ready`.
    ///
    /// # Errors
    /// when the child is gone
    fn go(&mut self) -> Result<(), Failure>;
}

/// Makes sandboxes and processes. See the functions of the same names in [`setup`] for the contracts.
#[expect(clippy::missing_errors_doc, reason = "all give the step that failed")]
pub trait Runtime {
    type Launch: Launch;

    fn prepare(&mut self, run_dir: &Path) -> Result<(), Failure>;
    fn release(&mut self, run_dir: &Path) -> Result<(), Failure>;
    fn create_sandbox(&mut self, spec: &SandboxSpec, dir: &Path) -> Result<SandboxMade, Failure>;
    fn remove_sandbox(&mut self, dir: &Path) -> Result<(), Failure>;
    fn begin(&mut self, spec: &ContainerSpec, sandbox: &Path, stdio: Stdio) -> Result<Self::Launch, Failure>;
    fn begin_exec(
        &mut self,
        process: &ProcessSpec,
        target: i32,
        pidfd: BorrowedFd<'_>,
        cgroups: &[PathBuf],
        stdio: Stdio,
    ) -> Result<Self::Launch, Failure>;
}

/// The runtime inside this program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl Launch for setup::Starting {
    fn pid(&self) -> i32 {
        Self::pid(self)
    }

    fn channel(&self) -> BorrowedFd<'_> {
        Self::channel(self)
    }

    fn advance(&mut self) -> Result<Progress, Failure> {
        Self::advance(self)
    }

    fn go(&mut self) -> Result<(), Failure> {
        Self::go(self)
    }
}

impl Runtime for Embedded {
    type Launch = setup::Starting;

    fn prepare(&mut self, run_dir: &Path) -> Result<(), Failure> {
        setup::prepare_run_dir(run_dir)
    }

    fn release(&mut self, run_dir: &Path) -> Result<(), Failure> {
        setup::release_run_dir(run_dir)
    }

    fn create_sandbox(&mut self, spec: &SandboxSpec, dir: &Path) -> Result<SandboxMade, Failure> {
        setup::create_sandbox(spec, dir)
    }

    fn remove_sandbox(&mut self, dir: &Path) -> Result<(), Failure> {
        setup::remove_sandbox(dir)
    }

    fn begin(&mut self, spec: &ContainerSpec, sandbox: &Path, stdio: Stdio) -> Result<Self::Launch, Failure> {
        setup::begin(spec, sandbox, stdio)
    }

    fn begin_exec(
        &mut self,
        process: &ProcessSpec,
        target: i32,
        pidfd: BorrowedFd<'_>,
        cgroups: &[PathBuf],
        stdio: Stdio,
    ) -> Result<Self::Launch, Failure> {
        setup::begin_exec(process, target, pidfd, cgroups, stdio)
    }
}
