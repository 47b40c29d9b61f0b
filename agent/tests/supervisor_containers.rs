//! The supervisor with real containers: needs root and a static busybox.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails says where")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use podkeep::container::setup;
use podkeep::container::spec::{
    CapabilitySets, ContainerSpec, LogSpec, MountKind, MountSpec, Namespace, ProcessSpec, RootSpec,
};
use podkeep::logs::Options;
use podkeep::supervisor::Spawned;
use podkeep::supervisor::proto::{FailureKind, ReplyBody, RequestBody};
use support::{Client, Place, kill, records, sandbox_spec, spawn_with, until};

const BUSYBOX: &str = "/bin/busybox";

/// A place with a root file system; takes its containers away when it goes.
struct Node {
    place: Place,
}

impl Drop for Node {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.place.run_dir().join("c")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path().join("record.json")).unwrap_or_default();
            let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            support::kill_recorded(&record);
        }
        for entry in fs::read_dir(self.place.run_dir().join("s")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path().join("record.json")).unwrap_or_default();
            support::kill_recorded(&serde_json::from_str(&text).unwrap_or_default());
            let _gone = setup::remove_sandbox(&entry.path());
        }
        let _gone = setup::release_run_dir(&self.place.run_dir());
    }
}

impl Node {
    /// `None`, with the reason printed: cannot be tested here.
    fn new(name: &str) -> Option<Self> {
        if podkeep_hal::linux::sys::euid() != 0 || !Path::new(BUSYBOX).exists() {
            println!("skipped: needs root and {BUSYBOX}");
            return None;
        }
        let node = Self { place: Place::new(name) };
        let layer = node.layer();
        for folder in ["bin", "tmp", "proc", "dev"] {
            fs::create_dir_all(layer.join(folder)).unwrap();
        }
        fs::copy(BUSYBOX, layer.join("bin/busybox")).unwrap();
        for applet in ["sh", "cat", "sleep", "echo", "id", "kill", "tty", "printf", "head", "tr"] {
            symlink("busybox", layer.join("bin").join(applet)).unwrap();
        }
        Some(node)
    }

    fn layer(&self) -> PathBuf {
        self.place.path.join("layer")
    }

    fn spawn(&self) -> Spawned {
        spawn_with(&self.place, Path::new(env!("CARGO_BIN_EXE_podkeep")), None)
    }

    fn spec(&self, id: &str, script: &str) -> ContainerSpec {
        let attempt = self.place.path.join("attempts").join(id);
        fs::create_dir_all(&attempt).unwrap();
        let caps = 0xa804_25fb;
        let capabilities =
            CapabilitySets { bounding: caps, permitted: caps, effective: caps, ..CapabilitySets::default() };
        let proc = MountSpec {
            target: "/proc".into(),
            kind: MountKind::Proc,
            readonly: false,
            nosuid: true,
            nodev: true,
            noexec: true,
        };
        ContainerSpec {
            id: id.into(),
            sandbox_id: "s".into(),
            root: RootSpec {
                layers: vec![self.layer()],
                upper: attempt.join("upper"),
                work: attempt.join("work"),
                ..RootSpec::default()
            },
            mounts: vec![proc],
            process: ProcessSpec { capabilities, ..process(script) },
            pid: Namespace::Container,
            log: Some(LogSpec { path: self.log(id), max_size: 10 << 20, max_files: 3 }),
            ..ContainerSpec::default()
        }
    }

    fn log(&self, id: &str) -> PathBuf {
        self.place.log(&format!("{id}.log"))
    }
}

fn process(script: &str) -> ProcessSpec {
    ProcessSpec {
        args: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        env: vec!["PATH=/bin".into()],
        cwd: "/".into(),
        ..ProcessSpec::default()
    }
}

/// Value in KiB of a line of /proc/<pid>/smaps_rollup. The anonymous part does not depend on how the program was built.
fn pss_anon_kib(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn container_runs_logs_and_ends_with_its_code() {
    let Some(node) = Node::new("real") else { return };
    let supervisor = node.spawn();
    let mut client = Client::connect(&node.place);
    client.sandbox("s");
    let mut spec =
        node.spec("a", "echo out; echo err >&2; echo again > /dev/stdout; id -u; printf end; exit 42");
    spec.process.uid = 1000;
    spec.process.gid = 1000;
    let state = client.start(spec);
    assert!(state.degraded.is_empty(), "{:?}", state.degraded);
    let exit = client.exit_of("a");
    assert_eq!((exit.code, exit.signal, exit.unknown), (42, 0, false));
    let mut seen = records(&node.log("a"));
    seen.sort();
    assert_eq!(seen, ["stderr F err", "stdout F 1000", "stdout F again", "stdout F end", "stdout F out"]);
    // failures of a start name their step and leave nothing
    let mut spec = node.spec("b", "");
    spec.process.args = vec!["/no/such/program".into()];
    match client.ask(RequestBody::Start { spec: Box::new(spec) }) {
        ReplyBody::Failed { failure } => assert_eq!(failure.kind, FailureKind::Exec, "{failure}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.list().1.len(), 1);
    // protection of the supervisor is not inherited
    client.start(node.spec("c", "cat /proc/self/oom_score_adj; exec sleep 1000"));
    until("a score", || !records(&node.log("c")).is_empty());
    assert_eq!(records(&node.log("c")), ["stdout F 0"]);
    client.ask(RequestBody::Signal { id: "c".into(), signal: 9 });
    assert_eq!(client.exit_of("c").code, 137);
    for id in ["a", "c"] {
        assert!(matches!(client.ask(RequestBody::Remove { id: id.into() }), ReplyBody::Done));
    }
    assert!(matches!(client.ask(RequestBody::RemoveSandbox { id: "s".into() }), ReplyBody::Done));
    assert!(matches!(client.ask(RequestBody::Quit), ReplyBody::Done));
    let mut supervisor = supervisor;
    assert!(supervisor.child.wait().unwrap().success());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(node.place.path.to_str().unwrap()), "no mount is left");
}

#[test]
fn killed_supervisor_costs_containers_nothing() {
    let Some(node) = Node::new("real-kill") else { return };
    let supervisor = node.spawn();
    let mut client = Client::connect(&node.place);
    let mut sandbox = sandbox_spec("s");
    sandbox.pid = Namespace::Sandbox;
    client.ask(RequestBody::CreateSandbox { spec: Box::new(sandbox) });
    let text = "trap 'exit 9' PIPE; trap 'exit 7' TERM; i=0; while :; do i=$((i+1)); echo $i || exit 8; sleep 0.01; done";
    let count = client.start(node.spec("count", text));
    let mut shared = node.spec("shared", "exec sleep 1000");
    shared.pid = Namespace::Sandbox;
    client.start(shared);
    // one that fills its pipe while nobody reads it
    client.start(
        node.spec("busy", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo $i; done; exec sleep 1000"),
    );
    kill(supervisor);
    for _ in 0..2 {
        kill(node.spawn());
    }
    let supervisor = node.spawn();
    let mut client = Client::connect(&node.place);
    let (sandboxes, containers) = client.list();
    assert!(sandboxes[0].ready && sandboxes[0].pid > 0);
    assert_eq!(containers.iter().filter(|state| state.exit.is_none()).count(), 3);
    assert_eq!(client.state("count"), Some(count));
    until("all of the busy one", || records(&node.log("busy")).len() == 30_000);
    let expected: Vec<String> = (1..=30_000).map(|number| format!("stdout F {number}")).collect();
    assert!(records(&node.log("busy")) == expected, "every line once and in order");
    client.ask(RequestBody::Signal { id: "count".into(), signal: 15 });
    let exit = client.exit_of("count");
    assert_eq!((exit.code, exit.unknown), (7, false));
    // exec into a container that was adopted
    let null =
        || std::os::fd::OwnedFd::from(fs::File::options().read(true).write(true).open("/dev/null").unwrap());
    let exec =
        RequestBody::Exec { id: "busy".into(), exec_id: "e".into(), process: Box::new(process("exit 5")) };
    let (reply, _) = client.ask_with(exec, &[null(), null(), null()]);
    assert!(matches!(reply, ReplyBody::ExecStarted { .. }), "{reply:?}");
    assert_eq!(client.exit_of("e").code, 5);
    // the reaper's death ends all of its pod
    assert!(
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(sandboxes[0].pid), nix::sys::signal::SIGKILL)
            .is_ok()
    );
    let (mut ended, mut sandbox_ended) = (false, false);
    while !(ended && sandbox_ended) {
        match client.event() {
            ReplyBody::Exited { id, exit } => {
                assert_eq!((id.as_str(), exit.code), ("shared", 137));
                ended = true;
            }
            ReplyBody::SandboxEnded { .. } => sandbox_ended = true,
            other => panic!("{other:?}"),
        }
    }
    kill(supervisor);
}

#[test]
fn c_log_02_long_line_and_text_without_newline_come_back_from_a_container() {
    let Some(node) = Node::new("c-log-02") else { return };
    let supervisor = node.spawn();
    let mut client = Client::connect(&node.place);
    client.sandbox("s");
    let text = "(head -c 102400 /dev/zero | tr '\\0' x; echo END) & \
        (for i in 1 2 3; do echo err$i >&2; sleep 0.01; done); wait; printf last-ten-b";
    client.start(node.spec("main", text));
    assert_eq!(client.exit_of("main").code, 0);
    let mut out = Vec::new();
    let ended = std::future::ready(());
    smol::block_on(podkeep::logs::copy(
        &node.log("main"),
        Options { follow: true, ..Options::default() },
        ended,
        &mut out,
    ))
    .unwrap();
    let out = String::from_utf8(out).unwrap();
    let mut lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.pop(), Some("last-ten-b"));
    lines.sort_unstable();
    assert_eq!(lines, ["err1", "err2", "err3", &("x".repeat(102_400) + "END")]);
    kill(supervisor);
}

#[test]
fn c_log_03_exec_ends_with_its_process_and_not_with_its_output() {
    let Some(node) = Node::new("c-log-03") else { return };
    let supervisor = node.spawn();
    let mut client = Client::connect(&node.place);
    client.sandbox("s");
    client.start(node.spec("main", "exec sleep 86400"));
    for (exec_id, text, input, output, code) in [
        ("background", "sleep 1000 & echo done", "", "done\n", 0),
        ("cat", "cat", "foo\n", "foo\n", 0),
        ("code", "exit 42", "", "", 42),
        ("killed", "kill -9 $$", "", "", 137),
    ] {
        let (stdin, mut into) = std::io::pipe().unwrap();
        let (mut from, stdout) = std::io::pipe().unwrap();
        let fds = [stdin.into(), stdout.try_clone().unwrap().into(), stdout.into()];
        let exec = RequestBody::Exec {
            id: "main".into(),
            exec_id: exec_id.into(),
            process: Box::new(process(text)),
        };
        let (reply, _) = client.ask_with(exec, &fds);
        assert!(matches!(reply, ReplyBody::ExecStarted { .. }), "{reply:?}");
        drop(fds);
        into.write_all(input.as_bytes()).unwrap();
        drop(into);
        assert_eq!(client.exit_of(exec_id).code, code, "{exec_id}");
        let mut seen = vec![0; output.len()];
        from.read_exact(&mut seen).unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), output);
    }
    let null =
        || std::os::fd::OwnedFd::from(fs::File::options().read(true).write(true).open("/dev/null").unwrap());
    let mut missing = process("");
    missing.args = vec!["/no/such".into()];
    let exec = RequestBody::Exec { id: "main".into(), exec_id: "x".into(), process: Box::new(missing) };
    match client.ask_with(exec, &[null(), null(), null()]).0 {
        ReplyBody::Failed { failure } => assert_eq!(failure.kind, FailureKind::Exec, "{failure}"),
        other => panic!("{other:?}"),
    }
    kill(supervisor);
}

#[test]
fn handover_runs_from_a_readonly_copy_again_and_keeps_terminals() {
    let Some(node) = Node::new("real-handover") else { return };
    let supervisor = node.spawn();
    let pid = supervisor.child.id();
    let mut client = Client::connect(&node.place);
    client.sandbox("s");
    let mut spec = node.spec("t", "tty; read -r line; echo got $line; exit 3");
    spec.process.tty = true;
    client.start(spec);
    until("the terminal's name", || !records(&node.log("t")).is_empty());
    let is_readonly = || {
        let flags = nix::sys::statvfs::statvfs(format!("/proc/{pid}/exe").as_str()).unwrap().flags();
        flags.contains(nix::sys::statvfs::FsFlags::ST_RDONLY)
    };
    assert!(is_readonly());
    let exe = node.place.path.join("newer");
    fs::copy(env!("CARGO_BIN_EXE_podkeep"), &exe).unwrap();
    let reply = client.ask(RequestBody::Handover { exe: exe.to_str().unwrap().into() });
    assert!(matches!(reply, ReplyBody::Done), "{reply:?}");
    assert!(is_readonly());
    let (reply, mut fds) = client.ask_with(RequestBody::Attach { id: "t".into() }, &[]);
    assert!(matches!(reply, ReplyBody::Done), "{reply:?}");
    fs::File::from(fds.pop().unwrap()).write_all(b"hello\n").unwrap();
    let exit = client.exit_of("t");
    assert_eq!((exit.code, exit.unknown), (3, false));
    let seen = records(&node.log("t"));
    assert!(seen.contains(&"stdout F got hello".to_owned()), "{seen:?}");
    // a terminal for an exec
    client.start(node.spec("u", "exec sleep 1000"));
    let mut terminal = process("tty; exit 6");
    terminal.tty = true;
    let exec = RequestBody::Exec { id: "u".into(), exec_id: "e".into(), process: Box::new(terminal) };
    let (reply, mut fds) = client.ask_with(exec, &[]);
    assert!(matches!(reply, ReplyBody::ExecStarted { .. }), "{reply:?}");
    assert_eq!(client.exit_of("e").code, 6);
    let mut text = [0; 64];
    let length = fs::File::from(fds.pop().unwrap()).read(&mut text).unwrap();
    assert!(text[..length].starts_with(b"/dev/pts/"), "{:?}", String::from_utf8_lossy(&text[..length]));
    kill(supervisor);
}

#[test]
fn memory_of_the_supervisor_hardly_grows_with_its_containers() {
    let Some(node) = Node::new("real-memory") else { return };
    let supervisor = node.spawn();
    let pid = supervisor.child.id() as i32;
    let mut client = Client::connect(&node.place);
    client.sandbox("s");
    client.start(node.spec("first", "exec sleep 1000"));
    let before = pss_anon_kib(pid);
    let begin = std::time::Instant::now();
    for number in 0..20 {
        client.start(node.spec(&format!("c{number}"), "echo up; exec sleep 1000"));
    }
    let each = begin.elapsed() / 20;
    client.list();
    let after = pss_anon_kib(pid);
    println!(
        "anonymous memory of the supervisor: {before} KiB, with 20 containers more {after} KiB; a start took {each:?}"
    );
    assert!(before <= 1024, "{before} KiB");
    assert!(after.saturating_sub(before) / 20 <= 20, "{before} KiB, then {after} KiB");
    kill(supervisor);
}
