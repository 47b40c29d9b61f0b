//! The supervisor is killed at each of its steps, replaced while it works, and served by bad peers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails says where")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use podkeep::container::spec::{Namespace, ProcessSpec};
use podkeep::supervisor::Spawned;
use podkeep::supervisor::proto::{FailureKind, ReplyBody, RequestBody};
use podkeep_hal::linux::process::Stat;
use support::{
    Client, Place, kill, plain_supervisor, records, sandbox_spec, script, spawn, spawn_with, until,
};

/// A supervisor that dies at `point`.
fn spawn_doomed(place: &Place, point: &str) -> Spawned {
    spawn_with(place, &plain_supervisor(), Some(&format!("{point}:kill")))
}

/// Sends a request and waits for the connection to end.
fn ask_for_death(mut client: Client, mut doomed: Spawned, body: RequestBody) {
    client.send(body, &[]);
    while client.receive().is_some() {}
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(doomed.child.wait().unwrap().signal(), Some(9), "the fail point was not reached");
}

/// The next supervisor says the same as the disk and the kernel; all can be removed, and nothing stays.
fn check_and_clear(place: &Place, allowed: &[&str]) -> String {
    let supervisor = spawn(place);
    let mut client = Client::connect(place);
    let state = client.state("a");
    let seen = match &state {
        None => "gone",
        Some(state) if state.exit.is_none() => {
            assert!(Path::new(&format!("/proc/{}", state.pid)).exists());
            "running"
        }
        Some(state) if state.exit.as_ref().is_some_and(|exit| exit.unknown) => "unknown",
        Some(_) => "exited",
    };
    assert!(allowed.contains(&seen), "{seen}, allowed: {allowed:?}");
    // the agent's next steps work in every case
    if seen == "running" {
        client.ask(RequestBody::Signal { id: "a".into(), signal: 9 });
        assert_eq!(client.exit_of("a").code, 137);
    }
    assert!(matches!(client.ask(RequestBody::Remove { id: "a".into() }), ReplyBody::Done));
    // the end of the first one may have been told before the list was asked for
    client.events.clear();
    client.sandbox("s");
    client.start(script(place, "a", "exit 4"));
    assert_eq!(client.exit_of("a").code, 4);
    assert!(matches!(client.ask(RequestBody::Remove { id: "a".into() }), ReplyBody::Done));
    assert!(matches!(client.ask(RequestBody::RemoveSandbox { id: "s".into() }), ReplyBody::Done));
    for folder in ["c", "s"] {
        assert_eq!(fs::read_dir(place.run_dir().join(folder)).unwrap().count(), 0, "{folder}");
    }
    kill(supervisor);
    seen.to_owned()
}

#[test]
fn death_at_any_step_of_a_start_leaves_what_can_be_adopted() {
    for (point, allowed) in [
        ("start:pipes", &["gone"][..]),
        ("start:cloned", &["gone"]),
        ("start:ready", &["gone"]),
        // the record is there; the child sees that nobody lets it go and ends by itself
        ("start:written", &["unknown", "exited"]),
        ("start:released", &["running"]),
        ("start:executed", &["running"]),
        ("start:recorded", &["running"]),
    ] {
        let place = Place::new("start");
        let doomed = spawn_doomed(&place, point);
        let mut client = Client::connect(&place);
        client.sandbox("s");
        let start = RequestBody::Start { spec: Box::new(script(&place, "a", "sleep 1000")) };
        ask_for_death(client, doomed, start);
        println!("{point}: {}", check_and_clear(&place, allowed));
    }
}

#[test]
fn death_at_any_step_of_an_exit_keeps_what_was_learned() {
    for (point, allowed, lines) in [
        // seen but not written: its new parent takes the status away, unless the kernel keeps it for us
        ("exit:seen", &["unknown", "exited"][..], 0),
        ("exit:written", &["exited"], 0),
        ("exit:drained", &["exited"], 1),
        ("exit:reaped", &["exited"], 1),
    ] {
        let place = Place::new("exit");
        let doomed = spawn_doomed(&place, point);
        let mut client = Client::connect(&place);
        client.sandbox("s");
        let start = RequestBody::Start { spec: Box::new(script(&place, "a", "echo last; exit 6")) };
        ask_for_death(client, doomed, start);
        println!("{point}: {}", check_and_clear(&place, allowed));
        assert!(records(&place.log("a.log")).len() >= lines);
    }
}

#[test]
fn death_with_output_in_the_pipe_loses_none_and_keeps_unfinished_lines() {
    let place = Place::new("output");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    let text = "printf begun; while [ ! -e $0/stop ]; do sleep 0.01; done; echo ' and ended'; exit 0";
    client.start(script(&place, "a", text));
    // the text is in the pipe when the next one starts, and stays there
    client.list();
    kill(supervisor);
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.list();
    kill(supervisor);
    let mut doomed = spawn_doomed(&place, "output:written");
    fs::write(place.path.join("stop"), "").unwrap();
    // killed between the log and the pipe: better twice than never
    assert!(!doomed.child.wait().unwrap().success());
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    if client.state("a").unwrap().exit.is_none() {
        client.exit_of("a");
    }
    let lines = records(&place.log("a.log"));
    assert!(
        !lines.is_empty() && lines.len() <= 2 && lines.iter().all(|line| line == "stdout F begun and ended")
    );
    kill(supervisor);
}

#[test]
fn death_at_any_step_of_a_removal_never_brings_back_another_exit() {
    for (point, allowed) in [("remove:begin", &["exited"][..]), ("remove:half", &["gone"])] {
        let place = Place::new("remove");
        let doomed = spawn_doomed(&place, point);
        let mut client = Client::connect(&place);
        client.sandbox("s");
        client.start(script(&place, "a", "exit 0"));
        assert_eq!(client.exit_of("a").code, 0);
        ask_for_death(client, doomed, RequestBody::Remove { id: "a".into() });
        check_and_clear(&place, allowed);
    }
}

#[test]
fn death_at_any_step_of_a_sandbox_leaves_a_whole_one_or_none() {
    for (point, ready) in [("sandbox:begun", false), ("sandbox:made", false), ("sandbox:recorded", true)] {
        let place = Place::new("sandbox");
        let doomed = spawn_doomed(&place, point);
        let create = RequestBody::CreateSandbox { spec: Box::new(sandbox_spec("s")) };
        ask_for_death(Client::connect(&place), doomed, create);
        let supervisor = spawn(&place);
        let (sandboxes, _) = Client::connect(&place).list();
        assert_eq!(
            sandboxes.iter().map(|sandbox| sandbox.ready).collect::<Vec<_>>(),
            vec![true; usize::from(ready)]
        );
        kill(supervisor);
        check_and_clear(&place, &["gone"]);
    }
    for point in ["sandbox:removing", "sandbox:unpinned"] {
        let place = Place::new("sandbox-gone");
        let doomed = spawn_doomed(&place, point);
        let mut client = Client::connect(&place);
        client.sandbox("s");
        ask_for_death(client, doomed, RequestBody::RemoveSandbox { id: "s".into() });
        check_and_clear(&place, &["gone"]);
    }
}

#[test]
fn sandbox_whose_reaper_ends_is_reported_and_not_ready() {
    let place = Place::new("reaper");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    let mut spec = sandbox_spec("s");
    spec.pid = Namespace::Sandbox;
    let ReplyBody::Sandbox { state } = client.ask(RequestBody::CreateSandbox { spec: Box::new(spec) }) else {
        panic!("no sandbox")
    };
    assert!(state.pid > 0 && state.ready);
    kill(supervisor);
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    assert_eq!(client.list().0, std::slice::from_ref(&state), "adopted with its reaper");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(state.pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(matches!(client.event(), ReplyBody::SandboxEnded { id } if id == "s"));
    assert!(!client.list().0[0].ready);
    assert!(matches!(client.ask(RequestBody::RemoveSandbox { id: "s".into() }), ReplyBody::Done));
    assert!(client.list().0.is_empty());
    kill(supervisor);
}

#[test]
fn handover_keeps_children_output_and_the_connection() {
    let place = Place::new("handover");
    let mut supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    let pid = supervisor.child.id();
    client.sandbox("s");
    let text = "i=0; while [ ! -e $0/stop ]; do i=$((i+1)); printf $i; sleep 0.01; echo; done; exit 5";
    client.start(script(&place, "a", text));
    client.start(script(&place, "done", "exit 3"));
    client.exit_of("done");
    let exec = RequestBody::Exec {
        id: "a".into(),
        exec_id: "e".into(),
        process: Box::new(ProcessSpec {
            args: script(&place, "", "while [ ! -e $0/stop ]; do sleep 0.01; done; exit 8").process.args,
            ..ProcessSpec::default()
        }),
    };
    let null = || OwnedFd::from(fs::File::options().read(true).write(true).open("/dev/null").unwrap());
    assert!(matches!(client.ask_with(exec, &[null(), null(), null()]).0, ReplyBody::ExecStarted { .. }));
    let before = client.list();
    // a program that cannot be executed changes nothing
    let reply = client.ask(RequestBody::Handover { exe: "/no/such/program".into() });
    assert!(matches!(reply, ReplyBody::Failed { failure } if failure.kind == FailureKind::Exec));
    let copy = place.path.join("newer");
    fs::copy(plain_supervisor(), &copy).unwrap();
    for _ in 0..3 {
        // the request behind it must not be lost either
        let first = client.send(RequestBody::Handover { exe: copy.to_str().unwrap().into() }, &[]);
        let second = client.send(RequestBody::List, &[]);
        let Some((reply, _)) = client.receive() else { panic!("the connection ended") };
        assert!(reply.seq == first && matches!(reply.body, ReplyBody::Done), "{reply:?}");
        let Some((reply, _)) = client.receive() else { panic!("the connection ended") };
        assert_eq!(reply.seq, second);
        let ReplyBody::Listed { sandboxes, containers } = reply.body else { panic!("{reply:?}") };
        assert_eq!((sandboxes, containers), before);
        assert_eq!(supervisor.child.id(), pid);
        assert!(supervisor.child.try_wait().unwrap().is_none());
        assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), copy);
    }
    fs::write(place.path.join("stop"), "").unwrap();
    let (mut code, mut exec_code) = (None, None);
    while code.is_none() || exec_code.is_none() {
        match client.event() {
            ReplyBody::Exited { id, exit } if id == "a" => code = Some((exit.code, exit.unknown)),
            ReplyBody::ExecExited { exit, .. } => exec_code = Some(exit.code),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((code, exec_code), (Some((5, false)), Some(8)));
    let lines = records(&place.log("a.log"));
    let expected: Vec<String> = (1..=lines.len()).map(|number| format!("stdout F {number}")).collect();
    assert_eq!(lines, expected, "unfinished lines go over, too");
    kill(supervisor);
}

#[test]
fn two_supervisors_never_serve_one_folder() {
    let place = Place::new("two");
    let supervisor = spawn(&place);
    let mut second = podkeep::supervisor::spawn(&place.run_dir(), &plain_supervisor(), &[]).unwrap();
    let mut word = String::new();
    second.ready.read_to_string(&mut word).unwrap();
    assert_eq!(word, "");
    assert!(second.child.wait().unwrap().success());
    Client::connect(&place).list();
    kill(supervisor);
}

#[test]
fn termination_signals_do_not_end_it_and_programs_do_not_inherit_that() {
    let place = Place::new("signals");
    let mut supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    let state = client.start(script(&place, "a", "sleep 1000"));
    let pid = nix::unistd::Pid::from_raw(supervisor.child.id() as i32);
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1"] {
        nix::sys::signal::kill(pid, format!("SIG{signal}").parse::<nix::sys::signal::Signal>().unwrap())
            .unwrap();
    }
    assert_eq!(client.list().1.len(), 1);
    assert!(supervisor.child.try_wait().unwrap().is_none());
    // (a shell blocks all for a moment while it starts something; 32 and 33 belong to the C library)
    until("neither blocked nor ignored signals", || {
        let status = fs::read_to_string(format!("/proc/{}/status", state.pid)).unwrap();
        ["SigBlk:\t", "SigIgn:\t"].iter().all(|field| {
            let text = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            u64::from_str_radix(text, 16).unwrap() & 0x7fff_ffff == 0
        })
    });
    kill(supervisor);
}

#[test]
fn peer_that_does_not_read_is_dropped_and_nobody_else_waits() {
    let place = Place::new("stuck");
    let supervisor = spawn(&place);
    let mut stuck = Client::connect(&place);
    stuck.sandbox("s");
    let mut long = script(&place, "a", "sleep 1000");
    long.labels = "x".repeat(900 << 10);
    stuck.start(long);
    // nearly a megabyte each, more than socket and queue take
    for _ in 0..12 {
        stuck.send(RequestBody::List, &[]);
    }
    let mut other = Client::connect(&place);
    assert!(matches!(other.ask(RequestBody::Hello { version: 1 }), ReplyBody::Hello { .. }));
    // what was queued was thrown away with the connection
    let mut answers = 0;
    while let Some((reply, _)) = stuck.receive() {
        assert!(matches!(reply.body, ReplyBody::Listed { .. }));
        answers += 1;
        if answers == 12 {
            break;
        }
    }
    assert!(answers < 12, "the queue has no bound");
    kill(supervisor);
}

#[test]
fn rubbish_on_the_socket_harms_only_its_own_connection() {
    let place = Place::new("rubbish");
    let supervisor = spawn(&place);
    let mut good = Client::connect(&place);
    // a frame that no peer may send
    let mut bad = Client::connect(&place);
    bad.socket.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert!(bad.receive().is_none());
    // what is no request, and one of a later version
    let mut bad = Client::connect(&place);
    for (text, kind) in [
        ("{\"seq\":7,\"body\":{\"futureThing\":{\"a\":1}}}", FailureKind::Unsupported),
        ("{\"seq\":7,\"body\":{\"signal\":{\"id\":\"a\"}}}", FailureKind::Invalid),
        ("{\"seq\":7,", FailureKind::Invalid),
        ("[]", FailureKind::Invalid),
    ] {
        bad.socket.write_all(&u32::try_from(text.len()).unwrap().to_le_bytes()).unwrap();
        bad.socket.write_all(text.as_bytes()).unwrap();
        let (reply, _) = bad.receive().unwrap();
        assert!(matches!(reply.body, ReplyBody::Failed { failure } if failure.kind == kind), "{text}");
    }
    assert!(good.list().1.is_empty());
    kill(supervisor);
}

#[test]
fn exec_streams_codes_and_kills_reach_the_right_process() {
    let place = Place::new("exec");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    client.start(script(&place, "a", "sleep 1000"));
    let exec = |exec_id: &str, text: &str| RequestBody::Exec {
        id: "a".into(),
        exec_id: exec_id.into(),
        process: Box::new(ProcessSpec {
            args: script(&place, "", text).process.args,
            ..ProcessSpec::default()
        }),
    };
    let pipes = || {
        let (input, into) = std::io::pipe().unwrap();
        let (from, output) = std::io::pipe().unwrap();
        let errors = output.try_clone().unwrap();
        (into, from, [OwnedFd::from(input), OwnedFd::from(output), OwnedFd::from(errors)])
    };
    // end of input is passed on, and a child in the background does not hold up the report
    let (mut into, mut from, fds) = pipes();
    let (reply, _) = client.ask_with(exec("cat", "sleep 1000 & cat; exit 42"), &fds);
    assert!(matches!(reply, ReplyBody::ExecStarted { pid } if pid > 0));
    drop(fds);
    into.write_all(b"foo").unwrap();
    drop(into);
    let mut word = [0; 3];
    from.read_exact(&mut word).unwrap();
    assert_eq!((&word, client.exit_of("cat").code), (b"foo", 42));
    // SIGKILL ends all that it started
    let (_into, mut from, fds) = pipes();
    client.ask_with(exec("tree", "(sleep 1000; true) & echo $!; wait"), &fds);
    drop(fds);
    let mut text = [0; 32];
    let length = from.read(&mut text).unwrap();
    let background: i32 = String::from_utf8_lossy(&text[..length]).trim().parse().unwrap();
    assert!(Stat::read(background).is_ok());
    assert!(matches!(
        client.ask(RequestBody::SignalExec { exec_id: "tree".into(), signal: 9 }),
        ReplyBody::Done
    ));
    assert_eq!(client.exit_of("tree").code, 137);
    // the pipe ends only when the last of them is gone
    from.read_to_end(&mut Vec::new()).unwrap();
    // without its connection nobody could learn its end
    let mut other = Client::connect(&place);
    let (_into, mut from, fds) = pipes();
    other.ask_with(exec("lost", "echo up; sleep 1000"), &fds);
    drop((fds, other));
    from.read_to_end(&mut Vec::new()).unwrap();
    // what cannot be
    let mut client = Client::connect(&place);
    let kind = |reply: ReplyBody| match reply {
        ReplyBody::Failed { failure } => failure.kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(client.ask(exec("few", "true"))), FailureKind::Invalid);
    assert_eq!(
        kind(client.ask(RequestBody::SignalExec { exec_id: "x".into(), signal: 9 })),
        FailureKind::Missing
    );
    kill(supervisor);
}

#[test]
fn stdin_stays_open_or_ends_with_its_first_session() {
    let place = Place::new("stdin");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    for (id, once) in [("open", false), ("once", true)] {
        let mut spec = script(&place, id, "while read -r line; do echo got $line; done; exit 3");
        spec.stdin = true;
        spec.stdin_once = once;
        client.start(spec);
        let attach = RequestBody::Attach { id: id.into() };
        let (reply, mut fds) = client.ask_with(attach.clone(), &[]);
        assert!(matches!(reply, ReplyBody::Done), "{reply:?}");
        let mut writer = fs::File::from(fds.pop().unwrap());
        writer.write_all(b"one\n").unwrap();
        drop(writer);
        if once {
            assert_eq!(client.exit_of(id).code, 3);
            assert!(matches!(client.ask(attach), ReplyBody::Failed { .. }));
        } else {
            let (_, mut fds) = client.ask_with(attach, &[]);
            fs::File::from(fds.pop().unwrap()).write_all(b"two\n").unwrap();
            until("the second session", || records(&place.log("open.log")).len() == 2);
            assert!(client.state(id).unwrap().exit.is_none());
        }
    }
    assert_eq!(records(&place.log("open.log")), ["stdout F got one", "stdout F got two"]);
    assert_eq!(records(&place.log("once.log")), ["stdout F got one"]);
    kill(supervisor);
}

#[test]
fn quiet_containers_cause_no_wake_up() {
    let place = Place::new("idle");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    for number in 0..10 {
        client.start(script(&place, &format!("c{number}"), "exec sleep 1000"));
    }
    client.list();
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", supervisor.child.id())).unwrap();
        let numbers = status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned);
        numbers.collect::<Vec<_>>()
    };
    let cpu = || fs::read_to_string(format!("/proc/{}/schedstat", supervisor.child.id())).unwrap();
    until("it sleeps", || Stat::read(supervisor.child.id() as i32).unwrap().state == b'S');
    let before = (switches(), cpu());
    // time has to pass: it is what must not be noticed
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((switches(), cpu()), before);
    kill(supervisor);
}
