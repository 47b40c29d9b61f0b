//! `waitid`: who ended, and how. The standard wrappers lose the status of a real-time signal; this one does not.

use nix::errno::Errno;
use nix::libc;

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// 0-255; 128 + signal when a signal ended it
    pub code: i32,
    /// 0 when it ended by itself
    pub signal: i32,
}

impl Ended {
    /// From the form that `wait(2)`, `/proc/<pid>/stat` and pidfds use.
    #[must_use]
    pub const fn from_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self { code: (status >> 8) & 0xff, signal: 0 },
            signal => Self { code: 128_i32.saturating_add(signal), signal },
        }
    }
}

/// Who is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    Any,
    Pid(i32),
}

/// The next ended child without waiting. With `keep` it stays a zombie, so that its pid stays taken and the next
/// call names it again. `None`: none has ended (or there is no such child).
///
/// # Errors
/// never in practice; what `waitid(2)` says
pub fn ended(child: Child, keep: bool) -> Result<Option<(i32, Ended)>, Errno> {
    let (kind, id) = match child {
        Child::Any => (libc::P_ALL, 0),
        Child::Pid(pid) => (libc::P_PID, libc::id_t::try_from(pid).map_err(|_| Errno::EINVAL)?),
    };
    let flags = libc::WEXITED | libc::WNOHANG | if keep { libc::WNOWAIT } else { 0 };
    // SAFETY: siginfo_t is plain integers and padding, for which all zeroes are a value.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: `info` outlives the call, which only writes to it.
    let done = unsafe { libc::waitid(kind, id, &raw mut info, flags) };
    match Errno::result(done) {
        Err(Errno::ECHILD) => return Ok(None),
        other => other?,
    };
    // SAFETY: waitid fills the SIGCHLD part of the union, or leaves our zeroes.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let how = match info.si_code {
        libc::CLD_EXITED => Ended { code: status & 0xff, signal: 0 },
        _ => Ended { code: 128_i32.saturating_add(status), signal: status },
    };
    Ok(Some((pid, how)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn end_of(script: &str) -> Option<Ended> {
        let child =
            Command::new("sh").args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().ok()?;
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = super::super::pidfd::open(pid).unwrap();
        let mut wait =
            [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&pidfd), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut wait, nix::poll::PollTimeout::NONE).unwrap();
        let kept = ended(Child::Pid(pid), true).unwrap().unwrap();
        assert_eq!(ended(Child::Pid(pid), false).unwrap(), Some(kept));
        assert_eq!(ended(Child::Pid(pid), false).unwrap(), None);
        Some(kept.1)
    }

    #[test]
    fn codes_and_signals_come_through_whole() {
        for (script, code, signal) in [
            ("exit 0", 0, 0),
            ("exit 1", 1, 0),
            ("exit 255", 255, 0),
            ("kill -9 $$", 137, 9),
            ("kill -15 $$", 143, 15),
            // a real-time signal: the wrapper of the library cannot name it
            ("kill -40 $$", 168, 40),
        ] {
            let Some(how) = end_of(script) else {
                println!("skipped: no shell");
                return;
            };
            assert_eq!(how, Ended { code, signal }, "{script}");
        }
    }

    #[test]
    fn status_words_are_read_like_wait_does() {
        assert_eq!(Ended::from_status(0), Ended { code: 0, signal: 0 });
        assert_eq!(Ended::from_status(42 << 8), Ended { code: 42, signal: 0 });
        assert_eq!(Ended::from_status(9), Ended { code: 137, signal: 9 });
        assert_eq!(Ended::from_status(11 | 0x80), Ended { code: 139, signal: 11 });
    }
}
