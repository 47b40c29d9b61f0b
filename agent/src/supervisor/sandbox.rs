//! Sandboxes: pinned namespaces, and the reaper of a shared pid namespace.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use podkeep_hal::linux::process::{self, Stat};
use podkeep_hal::linux::sys::pidfd;

use super::best_effort;
use super::clock;
use super::failpoint;
use super::proto::{Failure, FailureKind, SandboxState};
use super::record::{self, ProcessIdentity, RECORD, SandboxRecord};
use super::requests::{conflict, forget_folder};
use super::runtime::Runtime;
use super::server::{Owner, Phase, Sandbox, Server, Token};
use crate::container::spec::SandboxSpec;

impl<R: Runtime> Server<R> {
    pub(super) fn create_sandbox(&mut self, spec: &SandboxSpec) -> Result<SandboxState, Failure> {
        if !record::is_safe_id(&spec.id) {
            return Err(Failure::new(FailureKind::Invalid, "id", &spec.id, 0));
        }
        if let Some(sandbox) = self.sandboxes.values().find(|sandbox| sandbox.record.state.id == spec.id) {
            return Ok(sandbox.record.state.clone());
        }
        let folder = self.sandbox_folder(&spec.id);
        let system =
            |error: io::Error| Failure::system("make sandbox folder", &folder.to_string_lossy(), &error);
        fs::create_dir_all(&folder).map_err(system)?;
        let state = SandboxState {
            id: spec.id.clone(),
            labels: spec.labels.clone(),
            created_at_ns: clock::unix_ns(),
            ..SandboxState::default()
        };
        let mut record = SandboxRecord { state, ..SandboxRecord::default() };
        record.process.boot_id.clone_from(&self.boot_id);
        record::write(&folder, RECORD, &record).map_err(system)?;
        failpoint::hit("sandbox:begun");
        let made = match self.runtime.create_sandbox(spec, &folder) {
            Ok(made) => made,
            Err(failure) => {
                best_effort(forget_folder(&folder));
                return Err(failure);
            }
        };
        failpoint::hit("sandbox:made");
        record.state.pid = made.reaper_pid;
        record.state.ready = true;
        record.state.degraded = made.degraded;
        record.complete = true;
        if made.reaper_pid != 0 {
            let start_ticks = Stat::read(made.reaper_pid).map(|stat| stat.start_ticks).unwrap_or(0);
            record.process = ProcessIdentity { start_ticks, boot_id: self.boot_id.clone() };
        }
        if let Err(error) = record::write(&folder, RECORD, &record) {
            // without the record the next supervisor could not know it
            if let Some(pidfd) = &made.reaper_pidfd {
                best_effort(pidfd::send_signal(pidfd.as_fd(), libc::SIGKILL));
            }
            best_effort(self.runtime.remove_sandbox(&folder));
            best_effort(forget_folder(&folder));
            return Err(system(error));
        }
        failpoint::hit("sandbox:recorded");
        let state = record.state.clone();
        let key = self.new_key();
        if made.reaper_pid != 0 {
            self.owners.insert(made.reaper_pid, Owner::Reaper(key));
            self.reap_again = true;
        }
        self.sandboxes.insert(key, Sandbox { record, pidfd: made.reaper_pidfd });
        Ok(state)
    }

    pub(super) fn remove_sandbox(&mut self, id: &str) -> Result<(), Failure> {
        let Some(key) =
            self.sandboxes.iter().find(|(_, each)| each.record.state.id == id).map(|(&key, _)| key)
        else {
            return Ok(());
        };
        let in_use = self.containers.values().find(|container| {
            container.record.state.sandbox_id == id && !matches!(container.phase, Phase::Exited(_))
        });
        if let Some(container) = in_use {
            return Err(conflict("sandbox in use by", &container.record.state.id));
        }
        failpoint::hit("sandbox:removing");
        if let Some(pidfd) = self.sandboxes.get(&key).and_then(|sandbox| sandbox.pidfd.as_ref()) {
            kill(pidfd, id)?;
        }
        let folder = self.sandbox_folder(id);
        self.runtime.remove_sandbox(&folder)?;
        failpoint::hit("sandbox:unpinned");
        forget_folder(&folder)
            .map_err(|error| Failure::system("remove", &folder.to_string_lossy(), &error))?;
        // the reaper's end is taken by whoever reaps it: nothing is to be told any more
        if let Some(sandbox) = self.sandboxes.remove(&key) {
            self.owners.remove(&sandbox.record.state.pid);
            if let Some(pidfd) = sandbox.pidfd {
                Self::unwatch(&self.epoll, pidfd.as_fd());
            }
        }
        self.reap_again = true;
        Ok(())
    }

    /// Takes over a sandbox of an earlier supervisor, or clears away what is left of one.
    pub(super) fn adopt_sandbox(&mut self, folder: &Path) {
        let record = record::read::<SandboxRecord>(folder, RECORD).ok().flatten();
        let this_boot = record.as_ref().is_some_and(|record| record.process.boot_id == self.boot_id);
        let Some(mut record) = record.filter(|record| record.complete && this_boot) else {
            if this_boot {
                kill_reaper_of(&folder.join("pid"));
            }
            best_effort(self.runtime.remove_sandbox(folder));
            best_effort(forget_folder(folder));
            return;
        };
        let key = self.new_key();
        let mut pidfd = None;
        if record.state.pid != 0 {
            pidfd = living(record.state.pid, record.process.start_ticks);
            match &pidfd {
                Some(pidfd) => best_effort(Self::watch(&self.epoll, pidfd, Token::AdoptedReaper(key))),
                None => record.state.ready = false,
            }
        }
        self.sandboxes.insert(key, Sandbox { record, pidfd });
    }
}

/// A pidfd of exactly that process, unless it is dead.
pub(super) fn living(pid: i32, start_ticks: u64) -> Option<OwnedFd> {
    let pidfd = pidfd::open(pid).ok()?;
    // looked at after the descriptor was opened: no other process can slip in between
    let stat = Stat::read(pid).ok()?;
    (stat.start_ticks == start_ticks && !matches!(stat.state, b'Z' | b'X')).then_some(pidfd)
}

fn kill(pidfd: &OwnedFd, id: &str) -> Result<(), Failure> {
    match pidfd::send_signal(pidfd.as_fd(), libc::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Failure::new(FailureKind::System, "kill sandbox", id, errno as i32)),
    }
}

/// A supervisor died between making a reaper and writing down its pid: it is the first process of the pinned namespace.
fn kill_reaper_of(pin: &Path) {
    let (Ok(namespace), Ok(pids)) = (fs::metadata(pin), process::all()) else {
        return;
    };
    for pid in pids {
        let Ok(pidfd) = pidfd::open(pid) else {
            continue;
        };
        let same = fs::metadata(format!("/proc/{pid}/ns/pid")).is_ok_and(|of_process| {
            of_process.dev() == namespace.dev() && of_process.ino() == namespace.ino()
        });
        if same {
            best_effort(pidfd::send_signal(pidfd.as_fd(), libc::SIGKILL));
        }
    }
}
