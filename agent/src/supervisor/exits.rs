//! Output and ends of processes.
//!
//! The end of a child is first only looked at, then written down, then reaped: whenever the supervisor is killed in
//! between, the next one finds either the written exit or a dead process.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use podkeep_hal::linux::process::Stat;
use podkeep_hal::linux::sys::pidfd;
use podkeep_hal::linux::sys::wait::{self, Child, Ended};

use super::best_effort;
use super::clock;
use super::failpoint;
use super::proto::{Exit, ReplyBody};
use super::record;
use super::runtime::Runtime;
use super::server::{Container, ExecPhase, Owner, Phase, Server, Token};
use crate::logs::record::Stream;

/// Output taken after a program's end at the most, so that a process it left behind cannot hold up the report.
const MAX_DRAIN: usize = 4 << 20;
/// How long a process that is not our child may stay a zombie before its status is given up: its new parent reaps
/// within milliseconds, or never.
const REAPED_WITHIN_NS: u64 = 1_000_000_000;

/// What became of one read.
enum Read {
    Some(usize),
    Nothing,
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

    /// Output is there, or an end of it.
    pub(super) fn output(&mut self, key: u32, index: usize) {
        match self.read_output(key, index) {
            Read::Some(_) | Read::Nothing => {}
            Read::End => self.close_output(key, index),
        }
        self.log_news(key);
    }

    fn read_output(&mut self, key: u32, index: usize) -> Read {
        let Some(container) = self.containers.get_mut(&key) else {
            return Read::End;
        };
        let Some(Some(out)) = container.out.get(index) else {
            return Read::End;
        };
        match nix::unistd::read(out, &mut self.read_buffer) {
            Ok(0) => Read::End,
            Ok(length) => {
                if let (Some(log), Some(bytes)) = (&mut container.log, self.read_buffer.get(..length)) {
                    log.write(stream(index), bytes, clock::unix_ns(), &mut self.write_buffer);
                }
                Read::Some(length)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Read::Nothing,
            // a pty says EIO when nobody holds its other end
            Err(_) => Read::End,
        }
    }

    /// Takes the output that is there now, and ends unfinished lines. Pipes that someone else still holds stay open.
    pub(super) fn drain(&mut self, key: u32) {
        for index in 0..2 {
            let mut taken = 0_usize;
            while taken < MAX_DRAIN {
                match self.read_output(key, index) {
                    Read::Some(length) => taken = taken.saturating_add(length),
                    Read::Nothing => break,
                    Read::End => {
                        self.close_output(key, index);
                        break;
                    }
                }
            }
            if let Some(log) = self.containers.get_mut(&key).and_then(|container| container.log.as_mut()) {
                log.finish(stream(index), clock::unix_ns(), &mut self.write_buffer);
            }
        }
        self.log_news(key);
    }

    fn close_output(&mut self, key: u32, index: usize) {
        let Some(container) = self.containers.get_mut(&key) else {
            return;
        };
        if let Some(out) = container.out.get_mut(index).and_then(Option::take) {
            Self::unwatch(&self.epoll, out.as_fd());
            if let Some(log) = &mut container.log {
                log.finish(stream(index), clock::unix_ns(), &mut self.write_buffer);
            }
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
        if let Some(news) = container.log.as_mut().and_then(super::logs::LogWriter::news) {
            let id = container.record.state.id.clone();
            self.publish(ReplyBody::LogTrouble { id, errno: news.errno, dropped_bytes: news.dropped_bytes });
        }
    }
}

/// The wait status of a zombie, shown to root while it is not reaped. Works on kernels that cannot ask by pidfd.
pub(super) fn zombie_status(pid: i32, start_ticks: u64) -> Option<i32> {
    let stat = Stat::read(pid).ok()?;
    (stat.state == b'Z' && stat.start_ticks == start_ticks).then_some(stat.wait_status)
}
