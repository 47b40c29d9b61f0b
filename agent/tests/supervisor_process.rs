//! The supervisor as a real process over plain programs: starts, exits, output, adoption, handover.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails says where")]

mod support;

use std::fs;

use podkeep::supervisor::proto::{FailureKind, ReplyBody, RequestBody};
use support::{Client, Place, kill, records, script, spawn, until};

#[test]
fn exit_codes_and_signals_are_reported_as_they_are() {
    let place = Place::new("codes");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    for (id, text, code, signal) in [
        ("zero", "exit 0", 0, 0),
        ("forty-two", "exit 42", 42, 0),
        ("top", "exit 255", 255, 0),
        ("kill", "kill -9 $$", 137, 9),
        ("term", "kill -15 $$", 143, 15),
        ("rt", "kill -40 $$", 168, 40),
    ] {
        let state = client.start(script(&place, id, text));
        assert_eq!((state.id.as_str(), state.exit.is_none()), (id, true));
        assert!(state.pid > 0 && state.started_at_ns > 0 && state.started_boot_ns > 0);
        let exit = client.exit_of(id);
        assert_eq!((exit.code, exit.signal, exit.unknown), (code, signal, false), "{id}");
        assert!(exit.finished_boot_ns >= state.started_boot_ns);
        assert_eq!(client.state(id).unwrap().exit, Some(exit));
    }
    kill(supervisor);
}

#[test]
fn output_reaches_the_log_whole_and_the_end_without_newline_is_kept() {
    let place = Place::new("output");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    client.start(script(&place, "a", "echo one; echo two >&2; printf last-ten-b"));
    client.exit_of("a");
    let mut seen = records(&place.log("a.log"));
    seen.sort();
    assert_eq!(seen, ["stderr F two", "stdout F last-ten-b", "stdout F one"]);
    kill(supervisor);
}

#[test]
fn requests_are_idempotent_and_refused_with_a_kind() {
    let place = Place::new("again");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    let kind = |reply: ReplyBody| match reply {
        ReplyBody::Failed { failure } => failure.kind,
        other => panic!("{other:?}"),
    };
    let start = |spec| RequestBody::Start { spec: Box::new(spec) };
    assert_eq!(kind(client.ask(start(script(&place, "a", "sleep 1000")))), FailureKind::Missing);
    let first = client.sandbox("s");
    assert_eq!(client.sandbox("s"), first);
    let state = client.start(script(&place, "a", "sleep 1000"));
    assert_eq!(client.start(script(&place, "a", "sleep 1000")), state);
    assert_eq!(kind(client.ask(start(script(&place, "a", "sleep 1001")))), FailureKind::Conflict);
    assert_eq!(kind(client.ask(start(script(&place, "../a", "true")))), FailureKind::Invalid);
    assert_eq!(kind(client.ask(RequestBody::Remove { id: "a".into() })), FailureKind::Conflict);
    assert_eq!(kind(client.ask(RequestBody::RemoveSandbox { id: "s".into() })), FailureKind::Conflict);
    assert_eq!(kind(client.ask(RequestBody::Quit)), FailureKind::Conflict);
    assert_eq!(kind(client.ask(RequestBody::Signal { id: "b".into(), signal: 9 })), FailureKind::Missing);
    assert_eq!(kind(client.ask(RequestBody::Attach { id: "a".into() })), FailureKind::Conflict);
    let mut missing = script(&place, "c", "");
    missing.process.args = vec!["/no/such".into()];
    assert_eq!(kind(client.ask(start(missing))), FailureKind::Exec);
    assert_eq!(client.list().1.len(), 1, "a start that failed leaves nothing");
    assert!(matches!(client.ask(RequestBody::Signal { id: "a".into(), signal: 15 }), ReplyBody::Done));
    assert_eq!(client.exit_of("a").code, 143);
    for _ in 0..2 {
        assert!(matches!(client.ask(RequestBody::Remove { id: "a".into() }), ReplyBody::Done));
        assert!(matches!(client.ask(RequestBody::RemoveSandbox { id: "s".into() }), ReplyBody::Done));
    }
    assert_eq!(fs::read_dir(place.run_dir().join("c")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(place.run_dir().join("s")).unwrap().count(), 0);
    assert!(matches!(client.ask(RequestBody::Quit), ReplyBody::Done));
    let mut supervisor = supervisor;
    assert!(supervisor.child.wait().unwrap().success());
}

#[test]
fn killed_supervisor_is_followed_by_one_that_knows_everything() {
    let place = Place::new("adopt");
    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    client.sandbox("s");
    let done = client.start(script(&place, "done", "exit 3"));
    client.exit_of("done");
    // counts on while nobody reads, and reports a broken pipe as its own end
    let text = "trap 'exit 9' PIPE; i=0; while [ ! -e $0/stop ]; do i=$((i+1)); echo $i || exit 8; sleep 0.01; done; exit 7";
    let count = client.start(script(&place, "count", text));
    let lost = client.start(script(&place, "lost", "sleep 1000"));
    until("some lines", || records(&place.log("count.log")).len() > 5);
    kill(supervisor);
    // ends while nobody is there; its new parent takes its status away
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(lost.pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    until("the process is gone", || !std::path::Path::new(&format!("/proc/{}", lost.pid)).exists());

    let supervisor = spawn(&place);
    let mut client = Client::connect(&place);
    let (sandboxes, containers) = client.list();
    assert_eq!(sandboxes.len(), 1);
    assert!(sandboxes[0].ready);
    let of = |id: &str| containers.iter().find(|state| state.id == id).unwrap();
    assert_eq!(of("count"), &count, "same pid, same times, still running");
    assert_eq!(of("done").exit.as_ref().map(|exit| (exit.code, exit.unknown)), Some((3, false)));
    assert_eq!(of("done").pid, done.pid);
    assert_eq!(of("lost").exit.as_ref().map(|exit| (exit.code, exit.unknown)), Some((137, true)));
    let before = records(&place.log("count.log")).len();
    until("output goes on", || records(&place.log("count.log")).len() > before + 5);
    fs::write(place.path.join("stop"), "").unwrap();
    let exit = client.exit_of("count");
    assert_eq!((exit.code, exit.unknown), (7, false), "by pidfd, although it is not our child");
    let lines = records(&place.log("count.log"));
    let expected: Vec<String> = (1..=lines.len()).map(|number| format!("stdout F {number}")).collect();
    assert_eq!(lines, expected, "every line once and in order");
    kill(supervisor);
}
