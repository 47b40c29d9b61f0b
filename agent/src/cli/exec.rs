//! `podkeep exec`: the program gets pipes (or a terminal of the container's own), never our own descriptors: a container
//! must not be able to type into the operator's shell (TIOCSTI).

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use clap::ArgMatches;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::pipe2;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::{Failure, out, socket, text};
use crate::api::client::Call;
use crate::api::{ApiReply, ApiRequest};

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let tty = matches.get_flag("tty");
    let stdin = matches.get_flag("stdin");
    if tty && !std::io::stdin().is_terminal() {
        return Err("-t needs a terminal on standard input (leave it out to pipe)".into());
    }
    let request = ApiRequest::Exec {
        namespace: text(matches, "namespace").unwrap_or("default").to_owned(),
        pod: text(matches, "pod").unwrap_or_default().to_owned(),
        container: text(matches, "container").map(str::to_owned),
        command: matches.get_many::<String>("command").unwrap_or_default().cloned().collect(),
        tty,
        size: tty
            .then(|| tcgetwinsize(std::io::stdin()).ok())
            .flatten()
            .map(|size| (size.ws_row, size.ws_col)),
    };
    let code = if tty {
        with_terminal(&socket(matches), &request)?
    } else {
        with_pipes(&socket(matches), &request, stdin)?
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(255)))
}

/// One direction: from a descriptor to a descriptor; `from` is dropped at its end, and so is `to`.
struct Flow {
    from: Option<OwnedFd>,
    to: Option<OwnedFd>,
}

impl Flow {
    fn new(from: OwnedFd, to: OwnedFd) -> Self {
        Self { from: Some(from), to: Some(to) }
    }

    fn idle() -> Self {
        Self { from: None, to: None }
    }

    /// Moves what is there. False at the end.
    fn move_some(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let (Some(from), Some(to)) = (&self.from, &self.to) else { return false };
        let count = nix::unistd::read(from, &mut buffer).unwrap_or(0);
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match nix::unistd::write(to, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => {
                    *self = Self::idle();
                    return false;
                }
            }
        }
        if count == 0 {
            *self = Self::idle();
        }
        count > 0
    }
}

fn with_pipes(socket: &std::path::Path, request: &ApiRequest, stdin: bool) -> Result<i32, Failure> {
    let flags = nix::fcntl::OFlag::O_CLOEXEC;
    let (in_read, in_write) = pipe2(flags)?;
    let (out_read, out_write) = pipe2(flags)?;
    let (err_read, err_write) = pipe2(flags)?;
    let mut call = Call::start(socket, request, &[in_read.as_fd(), out_write.as_fd(), err_write.as_fd()])?;
    drop((in_read, out_write, err_write));
    if let (ApiReply::ExecFailed { code, message }, _) = call.answer()? {
        out::error(&format!("podkeep: {message}"));
        return Ok(code);
    }
    let mut flows = [
        Flow::new(out_read, std::io::stdout().as_fd().try_clone_to_owned()?),
        Flow::new(err_read, std::io::stderr().as_fd().try_clone_to_owned()?),
        if stdin {
            Flow::new(std::io::stdin().as_fd().try_clone_to_owned()?, in_write)
        } else {
            Flow::idle()
        },
    ];
    pump(&mut call, &mut flows, None)
}

/// Moves bytes until the agent says that the program has ended, then what is left in the pipes: a child that it left
/// in the background may hold them open for ever.
fn pump(call: &mut Call, flows: &mut [Flow], resize: Option<(&SignalFd, &OwnedFd)>) -> Result<i32, Failure> {
    let code = loop {
        let mut fds = vec![PollFd::new(call.stream().as_fd(), PollFlags::POLLIN)];
        if let Some((signals, _)) = resize {
            fds.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        }
        let fixed = fds.len();
        let open: Vec<usize> =
            (0..flows.len()).filter(|nth| flows.get(*nth).is_some_and(|flow| flow.from.is_some())).collect();
        for nth in &open {
            if let Some(from) = flows.get(*nth).and_then(|flow| flow.from.as_ref()) {
                fds.push(PollFd::new(from.as_fd(), PollFlags::POLLIN));
            }
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let hot: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        drop(fds);
        if let Some((signals, master)) = resize
            && hot.get(1) == Some(&true)
        {
            signals.read_signal()?;
            copy_size(master);
        }
        for (position, nth) in open.iter().enumerate() {
            if hot.get(fixed + position) == Some(&true)
                && let Some(flow) = flows.get_mut(*nth)
            {
                flow.move_some();
            }
        }
        if hot.first() == Some(&true)
            && let ApiReply::ExecEnded { code } = call.answer()?.0
        {
            break code;
        }
    };
    for flow in flows.iter_mut().take(2) {
        drain(flow)?;
    }
    Ok(code)
}

/// What is already there, without waiting for more.
fn drain(flow: &mut Flow) -> Result<(), Failure> {
    while let Some(from) = &flow.from {
        let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO)? == 0 {
            break;
        }
        if !flow.move_some() {
            break;
        }
    }
    Ok(())
}

/// Puts the terminal back as it was, whatever happens.
struct RawMode {
    before: Termios,
}

impl RawMode {
    fn enter() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // nothing can be done when the terminal itself is gone
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

fn copy_size(master: &OwnedFd) {
    if let Ok(size) = tcgetwinsize(std::io::stdin()) {
        tcsetwinsize(master, size).ok();
    }
}

fn with_terminal(socket: &std::path::Path, request: &ApiRequest) -> Result<i32, Failure> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGWINCH);
    set.thread_block()?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
    let mut call = Call::start(socket, request, &[])?;
    let (reply, mut fds) = call.answer()?;
    if let ApiReply::ExecFailed { code, message } = reply {
        out::error(&format!("podkeep: {message}"));
        return Ok(code);
    }
    let master = fds.pop().ok_or("the agent sent no terminal")?;
    copy_size(&master);
    let mode = RawMode::enter()?;
    let mut flows = [
        Flow::new(master.try_clone()?, std::io::stdout().as_fd().try_clone_to_owned()?),
        Flow::idle(),
        Flow::new(std::io::stdin().as_fd().try_clone_to_owned()?, master.try_clone()?),
    ];
    let code = pump(&mut call, &mut flows, Some((&signals, &master)));
    drop(mode);
    std::io::stdout().flush().ok();
    code.inspect_err(|_| out::error("\r"))
}
