//! Taking over from a supervisor that was killed, by what it left in the run folder.
//!
//! | found | taken as |
//! | --- | --- |
//! | no readable `record.json` | rubbish of a start or removal that was cut short: cleared away |
//! | `exit.json` | exited, as written |
//! | the process lives (pid, start time, boot) | running; its output flows again, its end is learned by pidfd |
//! | a zombie | exited, with its status where the kernel shows it |
//! | none of these | exited, status unknown |

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use podkeep_hal::linux::sys::wait::Ended;

use super::best_effort;
use super::exits::{unknown_exit, zombie_status};
use super::logs::LogWriter;
use super::record::{self, ContainerRecord, RECORD};
use super::requests::forget_folder;
use super::runtime::Runtime;
use super::sandbox::living;
use super::server::{Container, Phase, Server, Token};
use super::streams;

fn folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort_unstable();
    folders
}

impl<R: Runtime> Server<R> {
    /// Takes over everything in the run folder.
    pub(super) fn adopt(&mut self) {
        for folder in folders(&self.run_dir.join("s")) {
            self.adopt_sandbox(&folder);
        }
        for folder in folders(&self.run_dir.join("c")) {
            self.adopt_container(&folder);
        }
    }

    fn adopt_container(&mut self, folder: &Path) {
        let named = |record: &ContainerRecord| {
            folder.ends_with(&record.state.id) && record::is_safe_id(&record.state.id)
        };
        let record = record::read::<ContainerRecord>(folder, RECORD).ok().flatten().filter(named);
        let Some(record) = record else {
            if let Err(error) = forget_folder(folder) {
                log::warn!("cannot clear '{}': {error}", folder.display());
            }
            return;
        };
        let key = self.new_key();
        let mut container = Container {
            phase: Phase::Exited(unknown_exit()),
            log: record.log.clone().map(LogWriter::open),
            out: [None, None],
            stdin_keeper: None,
            record,
        };
        let mut ended_unseen = false;
        match self.find_process(&container.record, folder, key) {
            Some(phase) => container.phase = phase,
            None => ended_unseen = true,
        }
        if let Phase::Exited(exit) = &container.phase
            && ended_unseen
        {
            best_effort(record::write_exit(folder, exit));
        }
        let running = matches!(container.phase, Phase::Running { .. });
        if !container.record.tty {
            container.out = [streams::STDOUT, streams::STDERR].map(|name| streams::reader(folder, name).ok());
            if running && container.record.stdin && !container.record.stdin_used {
                container.stdin_keeper = streams::stdin_keeper(folder).ok();
            }
        }
        self.insert_container(key, container);
        if !running {
            // pipes lose what is in them with their last user; this takes what a survivor may still hold
            self.drain(key);
        }
    }

    pub(super) fn insert_container(&mut self, key: u32, container: Container<R::Launch>) {
        for (index, out) in container.out.iter().enumerate() {
            if let Some(out) = out {
                best_effort(Self::watch(&self.epoll, out, Token::Output(key, index)));
            }
        }
        self.container_keys.insert(container.record.state.id.clone(), key);
        self.containers.insert(key, container);
        self.log_news(key);
    }

    /// `None`: it ended and nobody saw it.
    fn find_process(&self, record: &ContainerRecord, folder: &Path, key: u32) -> Option<Phase<R::Launch>> {
        if let Ok(Some(exit)) = record::read_exit(folder) {
            return Some(Phase::Exited(exit));
        }
        if record.process.boot_id != self.boot_id {
            return None;
        }
        let (pid, start_ticks) = (record.state.pid, record.process.start_ticks);
        if let Some(pidfd) = living(pid, start_ticks) {
            return self.watch_adopted(pidfd, key).ok();
        }
        let ended = Ended::from_status(zombie_status(pid, start_ticks)?);
        let exit =
            super::proto::Exit { code: ended.code, signal: ended.signal, unknown: false, ..unknown_exit() };
        best_effort(record::write_exit(folder, &exit));
        Some(Phase::Exited(exit))
    }

    fn watch_adopted(&self, pidfd: OwnedFd, key: u32) -> io::Result<Phase<R::Launch>> {
        Self::watch(&self.epoll, &pidfd, Token::AdoptedContainer(key))?;
        Ok(Phase::Running { pidfd, child: false, give_up_at_ns: None })
    }
}
