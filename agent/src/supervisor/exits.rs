//! Output and ends of processes.
//!
//! The end of a child is first only looked at, then written down, then reaped: whenever the supervisor is killed in
//! between, the next one finds either the written exit or a dead process.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, tee};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use podkeep_hal::linux::process::Stat;
use podkeep_hal::linux::sys::pidfd;
use podkeep_hal::linux::sys::wait::{self, Child, Ended};

use super::best_effort;
use super::clock;
use super::failpoint;
use super::logs::LogWriter;
use super::proto::{Exit, ReplyBody};
use super::record;
use super::runtime::Runtime;
use super::server::{Container, ExecPhase, Owner, Phase, READ, Server, Token};
use crate::logs::record::Stream;

/// Steps of output taken after a program's end at the most, so that a process it left behind cannot hold up the report.
const MAX_DRAIN: usize = 128;
/// How long a process that is not our child may stay a zombie before its status is given up: its new parent reaps
/// within milliseconds, or never.
const REAPED_WITHIN_NS: u64 = 1_000_000_000;

/// Steps of one output before others have their turn; it then waits in the backlog.
const TURN: usize = 8;

/// What became of one step.
#[derive(PartialEq, Eq)]
enum Step {
    /// there may be more at once
    More,
    /// the kernel tells when there is more
    Waiting,
    /// nobody can write there any more
    End,
}

fn stream(index: usize) -> Stream {
    if index == 0 { Stream::Stdout } else { Stream::Stderr }
}

/// Of a process whose status nobody knows.
pub(super) fn unknown_exit() -> Exit {
    Exit {
        code: 137,
        signal: 0,
        unknown: true,
        finished_at_ns: clock::unix_ns(),
        finished_boot_ns: clock::boot_ns(),
    }
}

fn exit(ended: Option<Ended>) -> Exit {
    match ended {
        Some(ended) => Exit { code: ended.code, signal: ended.signal, unknown: false, ..unknown_exit() },
        None => unknown_exit(),
    }
}

impl<R: Runtime> Server<R> {
    /// Takes all children that have ended.
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, how))) = wait::ended(Child::Any, true) {
            match self.owners.get(&pid).copied() {
                Some(Owner::Container(key)) => {
                    if self.is_launching(key) {
                        // the launch reaps its own child; its last word says whether the program was executed
                        self.advance_container(key);
                        if self.is_launching(key) {
                            return;
                        }
                    } else {
                        self.container_ended(key, Some(how));
                        self.forget_child(pid);
                    }
                }
                Some(Owner::Exec(key)) => {
                    if self.is_exec_launching(key) {
                        self.advance_exec(key);
                        if self.is_exec_launching(key) {
                            return;
                        }
                    } else {
                        self.exec_ended(key, how);
                        self.forget_child(pid);
                    }
                }
                Some(Owner::Reaper(key)) => {
                    self.reaper_ended(key);
                    self.forget_child(pid);
                }
                // an orphan that came to us
                None => self.forget_child(pid),
            }
        }
    }

    fn forget_child(&mut self, pid: i32) {
        self.owners.remove(&pid);
        best_effort(wait::ended(Child::Pid(pid), false));
    }

    fn is_launching(&self, key: u32) -> bool {
        matches!(self.containers.get(&key), Some(Container { phase: Phase::Starting { .. }, .. }))
    }

    fn is_exec_launching(&self, key: u32) -> bool {
        self.execs.get(&key).is_some_and(|exec| matches!(exec.phase, ExecPhase::Starting { .. }))
    }

    /// A container's first process has ended; `None`: nobody knows how.
    pub(super) fn container_ended(&mut self, key: u32, how: Option<Ended>) {
        let run_dir = self.run_dir.join("c");
        let Some(container) = self.containers.get_mut(&key) else {
            return;
        };
        let Phase::Running { pidfd, child, .. } = &container.phase else {
            return;
        };
        let (pid, child) = (container.record.state.pid, *child);
        if !child {
            Self::unwatch(&self.epoll, pidfd.as_fd());
        }
        let exit = exit(how);
        failpoint::hit("exit:seen");
        // a full run folder costs the record, not the report
        best_effort(record::write_exit(&run_dir.join(&container.record.state.id), &exit));
        failpoint::hit("exit:written");
        container.phase = Phase::Exited(exit.clone());
        container.stdin_keeper = None;
        let id = container.record.state.id.clone();
        self.drain(key);
        failpoint::hit("exit:drained");
        if child {
            self.forget_child(pid);
        }
        failpoint::hit("exit:reaped");
        self.publish(ReplyBody::Exited { id, exit });
    }

    fn exec_ended(&mut self, key: u32, how: Ended) {
        if let Some(exec) = self.execs.remove(&key) {
            self.publish(ReplyBody::ExecExited { exec_id: exec.id, exit: exit(Some(how)) });
        }
    }

    pub(super) fn reaper_ended(&mut self, key: u32) {
        let Some(sandbox) = self.sandboxes.get_mut(&key) else {
            return;
        };
        if let Some(pidfd) = sandbox.pidfd.take() {
            Self::unwatch(&self.epoll, pidfd.as_fd());
        }
        sandbox.record.state.ready = false;
        let id = sandbox.record.state.id.clone();
        self.publish(ReplyBody::SandboxEnded { id });
    }

    /// A process that is not our child has ended, or (`EPOLLHUP`) was reaped by its parent.
    pub(super) fn adopted_container_ended(&mut self, key: u32, flags: EpollFlags) {
        let Some(container) = self.containers.get_mut(&key) else {
            return;
        };
        let Phase::Running { pidfd, child: false, give_up_at_ns } = &mut container.phase else {
            return;
        };
        let status = match zombie_status(container.record.state.pid, container.record.process.start_ticks) {
            Some(status) => Ok(Some(status)),
            None => pidfd::wait_status(pidfd.as_fd()),
        };
        match status {
            Ok(Some(status)) => self.container_ended(key, Some(Ended::from_status(status))),
            // dead but not reaped, and its status is not shown to us: the kernel tells once it is reaped
            Ok(None) if !flags.contains(EpollFlags::EPOLLHUP) => {
                let mut event = EpollEvent::new(EpollFlags::empty(), Token::AdoptedContainer(key).word());
                best_effort(self.epoll.modify(pidfd.as_fd(), &mut event));
                *give_up_at_ns = Some(clock::boot_ns().saturating_add(REAPED_WITHIN_NS));
                self.giving_up = true;
            }
            Ok(None) | Err(_) => self.container_ended(key, None),
        }
    }

    /// Output is there, or an end of it. The kernel tells only of changes (`EPOLLET`), because an unfinished line stays in
    /// its pipe; so all that can be taken is taken now, or put on the backlog.
    pub(super) fn output(&mut self, key: u32, index: usize, flags: EpollFlags) {
        let last = flags.contains(EpollFlags::EPOLLHUP);
        let mut turn = 0;
        loop {
            match self.take_output(key, index, false) {
                Step::More if last || turn < TURN => turn = turn.saturating_add(1),
                Step::More => {
                    self.backlog.push((key, index));
                    break;
                }
                Step::Waiting if !last => break,
                Step::Waiting | Step::End => {
                    self.close_output(key, index);
                    break;
                }
            }
        }
        self.log_news(key);
    }

    /// One step: looks at what is in the pipe, writes it to the log, and only then takes it out. A supervisor that is
    /// killed in between loses nothing; the worst is that the next one writes the same few lines again.
    fn take_output(&mut self, key: u32, index: usize, last: bool) -> Step {
        let Some(container) = self.containers.get_mut(&key) else {
            return Step::End;
        };
        let Some(Some(out)) = container.out.get(index) else {
            return Step::End;
        };
        if container.record.tty {
            return read_terminal(out, container.log.as_mut(), &mut self.read_buffer, &mut self.write_buffer);
        }
        let seen = match tee(out, &self.peek.1, READ, SpliceFFlags::SPLICE_F_NONBLOCK) {
            Ok(0) => return Step::End,
            Ok(seen) => seen,
            Err(Errno::EAGAIN) => return Step::Waiting,
            Err(Errno::EINTR) => return Step::More,
            Err(_) => return Step::End,
        };
        if !take_out(&self.peek.0, self.read_buffer.get_mut(..seen)) {
            return Step::End;
        }
        let bytes = self.read_buffer.get(..seen).unwrap_or_default();
        let taken = match &mut container.log {
            Some(log) => log.take(stream(index), bytes, last, clock::unix_ns(), &mut self.write_buffer),
            None => seen,
        };
        if taken == 0 {
            return Step::Waiting;
        }
        failpoint::hit("output:written");
        // the program itself may take back what it wrote: then there is less, which is its own affair
        take_out(out, self.read_buffer.get_mut(..taken));
        Step::More
    }

    /// Goes on with outputs that had more than their turn.
    pub(super) fn work_off(&mut self) {
        for (key, index) in core::mem::take(&mut self.backlog) {
            self.output(key, index, EpollFlags::empty());
        }
    }

    /// Takes the output that is there now, and ends unfinished lines. Pipes that someone else still holds stay open.
    pub(super) fn drain(&mut self, key: u32) {
        for index in 0..2 {
            let mut steps = 0;
            let step = loop {
                match self.take_output(key, index, false) {
                    Step::More if steps < MAX_DRAIN => steps = steps.saturating_add(1),
                    other => break other,
                }
            };
            match step {
                Step::End => self.close_output(key, index),
                Step::Waiting => self.end_line(key, index),
                Step::More => self.backlog.push((key, index)),
            }
        }
        self.log_news(key);
    }

    /// Writes an unfinished line, whether it is still in the pipe or in memory.
    fn end_line(&mut self, key: u32, index: usize) {
        self.take_output(key, index, true);
        if let Some(log) = self.containers.get_mut(&key).and_then(|container| container.log.as_mut()) {
            log.finish(stream(index), clock::unix_ns(), &mut self.write_buffer);
        }
    }

    fn close_output(&mut self, key: u32, index: usize) {
        self.end_line(key, index);
        let out = self.containers.get_mut(&key).and_then(|container| container.out.get_mut(index)?.take());
        if let Some(out) = out {
            Self::unwatch(&self.epoll, out.as_fd());
        }
    }

    pub(super) fn close_outputs(&mut self, key: u32) {
        for index in 0..2 {
            self.close_output(key, index);
        }
    }

    pub(super) fn log_news(&mut self, key: u32) {
        let Some(container) = self.containers.get_mut(&key) else {
            return;
        };
        if let Some(news) = container.log.as_mut().and_then(LogWriter::news) {
            let id = container.record.state.id.clone();
            self.publish(ReplyBody::LogTrouble { id, errno: news.errno, dropped_bytes: news.dropped_bytes });
        }
    }
}

/// Takes `bytes` out of a pipe that holds at least as many. `false`: it held fewer.
fn take_out(pipe: &OwnedFd, bytes: Option<&mut [u8]>) -> bool {
    let mut rest = bytes.unwrap_or_default();
    while !rest.is_empty() {
        match nix::unistd::read(pipe, rest) {
            Ok(0) => return false,
            Ok(length) => rest = rest.get_mut(length..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// A terminal cannot be looked into: what is read is gone from it, and unfinished lines are kept in memory.
fn read_terminal(
    pty: &OwnedFd,
    log: Option<&mut LogWriter>,
    bytes: &mut [u8],
    scratch: &mut Vec<u8>,
) -> Step {
    match nix::unistd::read(pty, bytes) {
        // EIO: nobody holds its other end
        Ok(0) | Err(Errno::EIO) => Step::End,
        Ok(length) => {
            if let (Some(log), Some(bytes)) = (log, bytes.get(..length)) {
                log.write(Stream::Stdout, bytes, clock::unix_ns(), scratch);
            }
            Step::More
        }
        Err(Errno::EINTR) => Step::More,
        Err(Errno::EAGAIN) => Step::Waiting,
        Err(_) => Step::End,
    }
}

/// The wait status of a zombie, shown to root while it is not reaped. Works on kernels that cannot ask by pidfd.
pub(super) fn zombie_status(pid: i32, start_ticks: u64) -> Option<i32> {
    let stat = Stat::read(pid).ok()?;
    (stat.state == b'Z' && stat.start_ticks == start_ticks).then_some(stat.wait_status)
}
