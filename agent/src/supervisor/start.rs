//! Starting containers and processes in them. A start never blocks the loop: the child sets itself up and its channel is
//! one more thing the loop waits for.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::libc;
use podkeep_hal::linux::process::Stat;
use podkeep_hal::linux::sys::pidfd;
use sha2::{Digest, Sha256};

use super::best_effort;
use super::clock;
use super::failpoint;
use super::logs::LogWriter;
use super::proto::{ContainerState, Exit, Failure, FailureKind, ReplyBody};
use super::record::{self, ContainerRecord, ProcessIdentity, RECORD};
use super::requests::{conflict, forget_folder, missing};
use super::runtime::{Launch, Runtime};
use super::server::{Container, Exec, ExecPhase, Owner, Phase, Server, Token, Waiting};
use super::streams;
use crate::container::setup::{Progress, Started, Stdio};
use crate::container::spec::{ContainerSpec, ProcessSpec};

/// Of an order, in hex.
fn digest(spec: &ContainerSpec) -> String {
    let text = serde_json::to_vec(spec).unwrap_or_default();
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(&text) {
        for half in [byte >> 4, byte & 15] {
            hex.extend(char::from_digit(u32::from(half), 16));
        }
    }
    hex
}

/// Programs do not inherit the supervisor's protection from the out-of-memory killer.
fn leave_protection(process: &mut ProcessSpec) {
    process.oom_score_adj.get_or_insert(0);
}

fn system(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::system(step, &path.to_string_lossy(), &error)
}

impl<R: Runtime> Server<R> {
    pub(super) fn start(&mut self, waiting: Waiting, spec: &mut ContainerSpec) {
        let digest = digest(spec);
        leave_protection(&mut spec.process);
        let key = self.container_keys.get(&spec.id).copied();
        if let Some(container) = key.and_then(|key| self.containers.get_mut(&key)) {
            if container.record.digest != digest {
                return self.refuse(waiting, conflict("start with another order", &spec.id));
            }
            if let Phase::Starting { waiting: all, .. } = &mut container.phase {
                all.push(waiting);
                return;
            }
            if let Some(state) = Self::state(container) {
                self.answer(waiting, ReplyBody::Container { state: Box::new(state) }, Vec::new());
            }
            return;
        }
        if let Err(failure) = self.begin_container(waiting, spec, digest) {
            best_effort(forget_folder(&self.container_folder(&spec.id)));
            self.refuse(waiting, failure);
        }
    }

    fn begin_container(
        &mut self,
        waiting: Waiting,
        spec: &ContainerSpec,
        digest: String,
    ) -> Result<(), Failure> {
        if !record::is_safe_id(&spec.id) || !record::is_safe_id(&spec.sandbox_id) {
            return Err(Failure::new(FailureKind::Invalid, "id", &spec.id, 0));
        }
        match self.sandboxes.values().find(|sandbox| sandbox.record.state.id == spec.sandbox_id) {
            None => return Err(missing("sandbox", &spec.sandbox_id)),
            Some(sandbox) if !sandbox.record.state.ready => {
                return Err(conflict("sandbox ended", &spec.sandbox_id));
            }
            Some(_) => {}
        }
        let folder = self.container_folder(&spec.id);
        // left by a supervisor that died before the record was written
        forget_folder(&folder).map_err(system("remove", &folder))?;
        fs::create_dir_all(&folder).map_err(system("make folder", &folder))?;
        let (stdio, out, stdin_keeper) = if spec.process.tty {
            (Stdio::Tty, [None, None], None)
        } else {
            let pipes = streams::create(&folder, spec).map_err(system("make pipes", &folder))?;
            let stdio = Stdio::Fds { stdin: pipes.stdin, stdout: pipes.stdout, stderr: pipes.stderr };
            (stdio, pipes.out.map(Some), pipes.stdin_keeper)
        };
        failpoint::hit("start:pipes");
        let launch = self.runtime.begin(spec, &self.sandbox_folder(&spec.sandbox_id), stdio)?;
        failpoint::hit("start:cloned");
        let key = self.new_key();
        Self::watch(&self.epoll, launch.channel(), Token::ContainerLaunch(key))
            .map_err(|errno| Failure::new(FailureKind::System, "watch", &spec.id, errno as i32))?;
        let state = ContainerState {
            id: spec.id.clone(),
            sandbox_id: spec.sandbox_id.clone(),
            labels: spec.labels.clone(),
            pid: launch.pid(),
            ..ContainerState::default()
        };
        let record = ContainerRecord {
            state,
            digest,
            log: spec.log.clone(),
            cgroups: spec.cgroups.clone(),
            tty: spec.process.tty,
            stdin: spec.stdin,
            stdin_once: spec.stdin_once,
            ..ContainerRecord::default()
        };
        self.owners.insert(launch.pid(), Owner::Container(key));
        self.container_keys.insert(spec.id.clone(), key);
        let phase = Phase::Starting { launch, waiting: vec![waiting] };
        self.containers.insert(key, Container { record, phase, log: None, out, stdin_keeper });
        Ok(())
    }

    /// The child of a container has news.
    pub(super) fn advance_container(&mut self, key: u32) {
        let run_dir = self.run_dir.join("c");
        let Some(Container { record, phase: Phase::Starting { launch, .. }, .. }) =
            self.containers.get_mut(&key)
        else {
            return;
        };
        let folder = run_dir.join(&record.state.id);
        let result = match launch.advance() {
            Ok(Progress::Pending) => return,
            Ok(Progress::Ready) => {
                release(launch, record, &folder, &self.boot_id).map(|()| failpoint::hit("start:released"))
            }
            Ok(Progress::Executed(started)) => return self.container_runs(key, started, &folder),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = result {
            self.start_failed(key, &failure);
        }
    }

    fn container_runs(&mut self, key: u32, started: Started, folder: &Path) {
        let Some(container) = self.containers.get_mut(&key) else {
            return;
        };
        failpoint::hit("start:executed");
        let phase = Phase::Running { pidfd: started.pidfd, child: true, give_up_at_ns: None };
        let Phase::Starting { launch, waiting } = core::mem::replace(&mut container.phase, phase) else {
            return;
        };
        Self::unwatch(&self.epoll, launch.channel());
        drop(launch);
        container.record.state.degraded = started.degraded;
        if let Some(pty) = started.pty_master
            && streams::set_nonblocking(&pty).is_ok()
        {
            container.out[0] = Some(pty);
        }
        // a failure only loses `degraded`: the record of before names the process already
        best_effort(record::write(folder, RECORD, &container.record));
        failpoint::hit("start:recorded");
        container.log = container.record.log.clone().map(LogWriter::open);
        for (index, out) in container.out.iter().enumerate() {
            if let Some(out) = out {
                best_effort(Self::watch(&self.epoll, out, Token::Output(key, index)));
            }
        }
        let state = Self::state(container);
        self.log_news(key);
        for waiting in waiting {
            if let Some(state) = state.clone() {
                self.answer(waiting, ReplyBody::Container { state: Box::new(state) }, Vec::new());
            }
        }
        // it may have ended before its start was learned
        self.reap_again = true;
    }

    /// Nothing of the container remains, and everyone who waits is told.
    pub(super) fn start_failed(&mut self, key: u32, failure: &Failure) {
        let Some(container) = self.containers.remove(&key) else {
            return;
        };
        self.container_keys.remove(&container.record.state.id);
        self.owners.remove(&container.record.state.pid);
        best_effort(forget_folder(&self.container_folder(&container.record.state.id)));
        if let Phase::Starting { launch, waiting } = container.phase {
            Self::unwatch(&self.epoll, launch.channel());
            drop(launch);
            if waiting.is_empty() && container.record.is_released() {
                // an agent may have seen it in `List`; the code is the one of programs that cannot be executed
                let exit = Exit {
                    code: 128,
                    finished_at_ns: clock::unix_ns(),
                    finished_boot_ns: clock::boot_ns(),
                    ..Exit::default()
                };
                self.publish(ReplyBody::Exited { id: container.record.state.id.clone(), exit });
            }
            for waiting in waiting {
                self.refuse(waiting, failure.clone());
            }
        }
        self.reap_again = true;
    }

    /// The agent that ordered these starts is gone, and the next one must not order them again beside the first. A start
    /// whose program was not let go is called off, as if it had never been ordered; one whose program runs, or will in
    /// an instant, is there: it is in `List`.
    pub(super) fn leave_starts_of(&mut self, peer: u32) {
        let mut off = Vec::new();
        for (&key, container) in &mut self.containers {
            if let Phase::Starting { waiting, .. } = &mut container.phase {
                waiting.retain(|one| one.peer != peer);
                if waiting.is_empty() && !container.record.is_released() {
                    off.push(key);
                }
            }
        }
        for key in off {
            self.start_failed(key, &conflict("start called off", ""));
        }
    }

    pub(super) fn exec(
        &mut self,
        waiting: Waiting,
        id: &str,
        exec_id: String,
        process: &mut ProcessSpec,
        fds: Vec<OwnedFd>,
    ) {
        leave_protection(process);
        if let Err(failure) = self.begin_exec(waiting, id, exec_id, process, fds) {
            self.refuse(waiting, failure);
        }
    }

    fn begin_exec(
        &mut self,
        waiting: Waiting,
        id: &str,
        exec_id: String,
        process: &ProcessSpec,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Failure> {
        if self.execs.values().any(|exec| exec.id == exec_id) {
            return Err(conflict("exec id in use", &exec_id));
        }
        let key = self.container_keys.get(id).copied();
        let Some(container) = key.and_then(|key| self.containers.get(&key)) else {
            return Err(missing("exec", id));
        };
        let Phase::Running { pidfd, .. } = &container.phase else {
            return Err(conflict("exec while not running", id));
        };
        let stdio = match (process.tty, <[OwnedFd; 3]>::try_from(fds)) {
            (true, _) => Stdio::Tty,
            (false, Ok([stdin, stdout, stderr])) => Stdio::Fds { stdin: Some(stdin), stdout, stderr },
            (false, Err(fds)) => {
                let count = format!("{} descriptors, 3 needed", fds.len());
                return Err(Failure::new(FailureKind::Invalid, "exec", &count, 0));
            }
        };
        let pid = container.record.state.pid;
        let launch =
            self.runtime.begin_exec(process, pid, pidfd.as_fd(), &container.record.cgroups, stdio)?;
        let key = self.new_key();
        Self::watch(&self.epoll, launch.channel(), Token::ExecLaunch(key))
            .map_err(|errno| Failure::new(FailureKind::System, "watch", &exec_id, errno as i32))?;
        let pid = launch.pid();
        self.owners.insert(pid, Owner::Exec(key));
        let phase = ExecPhase::Starting { launch, seq: waiting.seq };
        self.execs.insert(key, Exec { id: exec_id, pid, peer: waiting.peer, phase });
        Ok(())
    }

    /// The child of an exec has news.
    pub(super) fn advance_exec(&mut self, key: u32) {
        let Some(exec) = self.execs.get_mut(&key) else {
            return;
        };
        let ExecPhase::Starting { launch, seq } = &mut exec.phase else {
            return;
        };
        let waiting = Waiting { peer: exec.peer, seq: *seq };
        let result = match launch.advance() {
            Ok(Progress::Pending) => return,
            Ok(Progress::Ready) => launch.go().map(|()| None),
            Ok(Progress::Executed(started)) => Ok(Some(started)),
            Err(failure) => Err(failure),
        };
        match result {
            Ok(None) => {}
            Ok(Some(started)) => {
                let old = core::mem::replace(&mut exec.phase, ExecPhase::Running { pidfd: started.pidfd });
                if let ExecPhase::Starting { launch, .. } = old {
                    Self::unwatch(&self.epoll, launch.channel());
                }
                let body = ReplyBody::ExecStarted { pid: exec.pid };
                self.answer(waiting, body, started.pty_master.into_iter().collect());
                self.reap_again = true;
            }
            Err(failure) => {
                self.forget_exec(key);
                self.refuse(waiting, failure);
            }
        }
    }

    fn forget_exec(&mut self, key: u32) {
        if let Some(exec) = self.execs.remove(&key) {
            self.owners.remove(&exec.pid);
            if let ExecPhase::Starting { launch, .. } = exec.phase {
                Self::unwatch(&self.epoll, launch.channel());
            }
        }
        self.reap_again = true;
    }

    pub(super) fn signal_exec(&mut self, exec_id: &str, signal: i32) -> Result<(), Failure> {
        let Some((&key, exec)) = self.execs.iter().find(|(_, exec)| exec.id == exec_id) else {
            return Err(missing("signal exec", exec_id));
        };
        match &exec.phase {
            ExecPhase::Running { .. } if signal == libc::SIGKILL => kill_tree(exec.pid),
            ExecPhase::Running { pidfd } => match pidfd::send_signal(pidfd.as_fd(), signal) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(errno) => {
                    return Err(Failure::new(FailureKind::System, "signal exec", exec_id, errno as i32));
                }
            },
            ExecPhase::Starting { seq, .. } if signal == libc::SIGKILL => {
                let waiting = Waiting { peer: exec.peer, seq: *seq };
                self.forget_exec(key);
                self.refuse(waiting, conflict("exec called off", exec_id));
            }
            ExecPhase::Starting { .. } => return Err(conflict("signal while starting", exec_id)),
        }
        Ok(())
    }

    /// Nobody is left who could hear the end of these.
    pub(super) fn end_execs_of(&mut self, peer: u32) {
        let keys: Vec<u32> =
            self.execs.iter().filter(|(_, exec)| exec.peer == peer).map(|(&key, _)| key).collect();
        for key in keys {
            match self.execs.get(&key) {
                Some(Exec { phase: ExecPhase::Running { .. }, pid, .. }) => kill_tree(*pid),
                _ => self.forget_exec(key),
            }
        }
    }
}

/// Writes the record that names the child, then lets it execute its program.
fn release<L: Launch>(
    launch: &mut L,
    record: &mut ContainerRecord,
    folder: &Path,
    boot_id: &str,
) -> Result<(), Failure> {
    let pid = launch.pid();
    let stat = Stat::read(pid).map_err(|error| Failure::system("read stat of", &pid.to_string(), &error))?;
    record.process = ProcessIdentity { start_ticks: stat.start_ticks, boot_id: boot_id.to_owned() };
    record.state.pid = pid;
    record.state.started_at_ns = clock::unix_ns();
    record.state.started_boot_ns = clock::boot_ns();
    failpoint::hit("start:ready");
    record::write(folder, RECORD, record).map_err(system("write record in", folder))?;
    failpoint::hit("start:written");
    launch.go()
}

/// Kills a process and all that it started, as far as the parent links and its session tell. They are stopped first, so
/// that none can start another one behind our back; each is named by pidfd and looked at again before it is touched, so
/// that a pid that was taken anew meanwhile is not hit.
fn kill_tree(root: i32) {
    let mut doomed: BTreeMap<i32, OwnedFd> = BTreeMap::new();
    // what is stopped cannot fork: every round but the last finds a new one, and there are at most as many as pids
    loop {
        let before = doomed.len();
        stop_new(root, &mut doomed);
        if doomed.len() == before {
            break;
        }
    }
    for pidfd in doomed.values() {
        best_effort(pidfd::send_signal(pidfd.as_fd(), libc::SIGKILL));
    }
}

/// One round of [`kill_tree`]: stops what belongs to the tree and is not stopped yet.
fn stop_new(root: i32, doomed: &mut BTreeMap<i32, OwnedFd>) {
    let pids = podkeep_hal::linux::process::all().unwrap_or_default();
    let stats: BTreeMap<i32, Stat> =
        pids.into_iter().filter_map(|pid| Some((pid, Stat::read(pid).ok()?))).collect();
    for (&pid, stat) in &stats {
        // the pid of a parent that is not reaped is its own, so links are true
        let mut ancestor = Some(pid);
        let mut depth = 0;
        let belongs = loop {
            match ancestor {
                Some(found) if found == root || doomed.contains_key(&found) => break true,
                Some(found) if depth < stats.len() => ancestor = stats.get(&found).map(|stat| stat.parent),
                _ => break stat.session == root,
            }
            depth = depth.saturating_add(1);
        };
        if !belongs || doomed.contains_key(&pid) {
            continue;
        }
        let Ok(pidfd) = pidfd::open(pid) else {
            continue;
        };
        if Stat::read(pid).is_ok_and(|now| now.start_ticks == stat.start_ticks) {
            best_effort(pidfd::send_signal(pidfd.as_fd(), libc::SIGSTOP));
            doomed.insert(pid, pidfd);
        }
    }
}
