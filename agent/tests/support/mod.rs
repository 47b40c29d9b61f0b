//! A supervisor of plain processes for one test, and the simplest possible client. All that a test leaves behind is
//! killed and deleted when it ends, also when it fails.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use podkeep::container::spec::{ContainerSpec, LogSpec, Namespace, ProcessSpec, SandboxSpec};
use podkeep::supervisor::proto::{
    ContainerState, Exit, Reply, ReplyBody, Request, RequestBody, SandboxState, VERSION,
};
use podkeep::supervisor::wire::{self, FrameBuffer};
use podkeep_hal::linux::process::Stat;
use podkeep_hal::linux::sys::{pidfd, scm};

/// Longest wait for anything; a test that reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A folder of its own for one test.
pub struct Place {
    pub path: PathBuf,
}

impl Place {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pk-{}-{number}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path.join("run")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.path.join("logs").join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.run_dir().exists() {
            // everything that was started here carries the folder's name in its environment or arguments
            kill_all_of(&self.path);
        }
        let _gone = fs::remove_dir_all(&self.path);
    }
}

/// Ends the processes that records and command lines below `place` name: the test's own and nobody else's.
fn kill_all_of(place: &Path) {
    let needle = place.as_os_str().as_encoded_bytes();
    for _ in 0..3 {
        for pid in podkeep_hal::linux::process::all().unwrap_or_default() {
            let ours = ["cmdline", "environ"].iter().any(|file| {
                fs::read(format!("/proc/{pid}/{file}"))
                    .is_ok_and(|text| text.windows(needle.len()).any(|part| part == needle))
            });
            if ours
                && pid != std::process::id() as i32
                && let Ok(fd) = pidfd::open(pid)
            {
                let _dead = pidfd::send_signal(fd.as_fd(), 9);
            }
        }
    }
    for entry in fs::read_dir(place.join("run/c")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path().join("record.json")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        kill_recorded(&record);
    }
}

/// Kills the process that a record of a container or sandbox names, if it is still that one.
pub fn kill_recorded(record: &serde_json::Value) {
    let pid = record["state"]["pid"].as_i64().unwrap_or(0) as i32;
    let start = record["process"]["startTicks"].as_u64();
    if let Ok(fd) = pidfd::open(pid)
        && Stat::read(pid).ok().map(|stat| stat.start_ticks) == start
    {
        let _dead = pidfd::send_signal(fd.as_fd(), 9);
    }
}

/// Path of the example program beside the test program. `cargo test` builds it, `cargo test --test ...` does not.
pub fn plain_supervisor() -> PathBuf {
    static BUILT: std::sync::Once = std::sync::Once::new();
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/plain_supervisor");
    BUILT.call_once(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["build", "--quiet", "--package", "podkeep", "--example", "plain_supervisor"];
        let mut build = std::process::Command::new(cargo);
        build.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
        // what cargo tells a test would make build scripts of dependencies run again, here and in the next build outside
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let fronts = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
            if fronts.iter().any(|front| name.starts_with(front)) {
                build.env_remove(name);
            }
        }
        let built = build.status();
        assert!(built.is_ok_and(|status| status.success()) || path.exists());
    });
    path
}

/// Starts a supervisor and waits until it serves.
pub fn spawn(place: &Place) -> podkeep::supervisor::Spawned {
    spawn_with(place, &plain_supervisor(), None)
}

/// The same with another program, and with a step at which it dies.
pub fn spawn_with(place: &Place, exe: &Path, failpoint: Option<&str>) -> podkeep::supervisor::Spawned {
    // the environment of this process belongs to all its tests, so the variable is set by a wrapper
    let wrapper = place.path.join("wrapper");
    let exe = match failpoint {
        None => exe,
        Some(point) => {
            let text = format!("#!/bin/sh\nPODKEEP_FAILPOINT={point} exec {} \"$@\"\n", exe.display());
            fs::write(&wrapper, text).unwrap();
            fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            &wrapper
        }
    };
    let mut spawned = podkeep::supervisor::spawn(&place.run_dir(), exe, &[]).unwrap();
    let mut word = String::new();
    spawned.ready.read_to_string(&mut word).unwrap();
    assert_eq!(
        word,
        "ready\n",
        "{}",
        fs::read_to_string(place.run_dir().join("supervisor.log")).unwrap_or_default()
    );
    spawned
}

/// Kills a supervisor the hard way and takes its status.
pub fn kill(mut spawned: podkeep::supervisor::Spawned) {
    spawned.child.kill().unwrap();
    spawned.child.wait().unwrap();
}

/// One connection, blocking.
pub struct Client {
    pub socket: UnixStream,
    buffer: FrameBuffer,
    fds: VecDeque<OwnedFd>,
    pub events: VecDeque<ReplyBody>,
    seq: u64,
}

impl Client {
    pub fn connect(place: &Place) -> Self {
        let socket = UnixStream::connect(place.run_dir().join(podkeep::supervisor::SOCKET)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self {
            socket,
            buffer: FrameBuffer::default(),
            fds: VecDeque::new(),
            events: VecDeque::new(),
            seq: 0,
        };
        let hello = client.ask(RequestBody::Hello { version: VERSION });
        assert!(matches!(hello, ReplyBody::Hello { version: VERSION, .. }), "{hello:?}");
        client
    }

    pub fn send(&mut self, body: RequestBody, fds: &[OwnedFd]) -> u64 {
        self.seq += 1;
        let request = Request { seq: self.seq, fds: fds.len() as u8, body };
        let bytes = wire::encode(&request).unwrap();
        let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[][..] } else { &rights[..] };
        let parts = [std::io::IoSlice::new(&bytes)];
        let sent =
            sendmsg::<()>(self.socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
        self.socket.write_all(&bytes[sent..]).unwrap();
        self.seq
    }

    /// `None` at the end of the connection.
    pub fn receive(&mut self) -> Option<(Reply, Vec<OwnedFd>)> {
        loop {
            if let Some(frame) = self.buffer.next_frame().unwrap() {
                let reply: Reply = serde_json::from_slice(&frame).unwrap();
                let fds = self.fds.drain(..usize::from(reply.fds)).collect();
                return Some((reply, fds));
            }
            let mut bytes = [0; 4096];
            match scm::receive(self.socket.as_fd(), &mut bytes) {
                Ok((0, _)) | Err(nix::errno::Errno::ECONNRESET) => return None,
                Ok((length, fds)) => {
                    self.fds.extend(fds);
                    self.buffer.push(&bytes[..length]);
                }
                Err(errno) => panic!("no answer: {errno}"),
            }
        }
    }

    pub fn ask_with(&mut self, body: RequestBody, fds: &[OwnedFd]) -> (ReplyBody, Vec<OwnedFd>) {
        let seq = self.send(body, fds);
        loop {
            let (reply, fds) = self.receive().expect("the supervisor ended");
            if reply.seq == seq {
                return (reply.body, fds);
            }
            assert_eq!(reply.seq, 0);
            self.events.push_back(reply.body);
        }
    }

    pub fn ask(&mut self, body: RequestBody) -> ReplyBody {
        self.ask_with(body, &[]).0
    }

    pub fn event(&mut self) -> ReplyBody {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        let (reply, _) = self.receive().expect("the supervisor ended");
        assert_eq!(reply.seq, 0, "{reply:?}");
        reply.body
    }

    /// Waits for the exit of `wanted`, dropping other events.
    pub fn exit_of(&mut self, wanted: &str) -> Exit {
        loop {
            match self.event() {
                ReplyBody::Exited { id, exit } if id == wanted => return exit,
                ReplyBody::ExecExited { exec_id, exit } if exec_id == wanted => return exit,
                _ => {}
            }
        }
    }

    pub fn list(&mut self) -> (Vec<SandboxState>, Vec<ContainerState>) {
        match self.ask(RequestBody::List) {
            ReplyBody::Listed { sandboxes, containers } => (sandboxes, containers),
            other => panic!("{other:?}"),
        }
    }

    pub fn state(&mut self, id: &str) -> Option<ContainerState> {
        self.list().1.into_iter().find(|state| state.id == id)
    }

    pub fn sandbox(&mut self, id: &str) -> SandboxState {
        match self.ask(RequestBody::CreateSandbox { spec: Box::new(sandbox_spec(id)) }) {
            ReplyBody::Sandbox { state } => state,
            other => panic!("{other:?}"),
        }
    }

    pub fn start(&mut self, spec: ContainerSpec) -> ContainerState {
        match self.ask(RequestBody::Start { spec: Box::new(spec) }) {
            ReplyBody::Container { state } => *state,
            other => panic!("{other:?}"),
        }
    }
}

pub fn sandbox_spec(id: &str) -> SandboxSpec {
    SandboxSpec {
        id: id.into(),
        labels: "sandbox labels".into(),
        hostname: Some("pod".into()),
        pid: Namespace::Container,
        ..SandboxSpec::default()
    }
}

/// A container of sandbox `s` that runs a shell script, with its log at `<place>/logs/<id>.log`.
pub fn script(place: &Place, id: &str, script: &str) -> ContainerSpec {
    let folder = place.path.to_str().unwrap();
    ContainerSpec {
        id: id.into(),
        sandbox_id: "s".into(),
        labels: format!("labels of \"{id}\""),
        process: ProcessSpec {
            // the folder's name marks the process and all that it starts as this test's
            args: ["/usr/bin/env", &format!("PODKEEP_TEST={folder}"), "/bin/sh", "-c", script, folder]
                .map(String::from)
                .to_vec(),
            ..ProcessSpec::default()
        },
        log: Some(LogSpec { path: place.log(&format!("{id}.log")), max_size: 10 << 20, max_files: 5 }),
        ..ContainerSpec::default()
    }
}

/// Texts of the records of a log file, with stream and tag: `stdout F hello`.
pub fn records(path: &Path) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with(b"\n"));
    String::from_utf8_lossy(&text).lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

/// Looks again and again until `done` holds: for facts that no event tells of (a file's content).
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
