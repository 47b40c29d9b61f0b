//! The agent's link to a real supervisor over plain programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails says where")]

mod support;

use std::time::Duration;

use podkeep::supervisor::link::{Link, LinkError, LinkEvent, Options};
use podkeep::supervisor::proto::{FailureKind, ReplyBody, RequestBody};
use smol::channel::Receiver;
use support::{PATIENCE, Place, plain_supervisor, records, sandbox_spec, script, until};

fn open(place: &Place, executor: &smol::LocalExecutor<'_>) -> (Link, Receiver<LinkEvent>) {
    let options =
        Options { run_dir: place.run_dir(), exe: plain_supervisor(), cgroups: Vec::new(), timeout: PATIENCE };
    Link::open(options, |driver| executor.spawn(driver).detach())
}

fn run(test: impl AsyncFnOnce(&smol::LocalExecutor<'_>)) {
    let executor = smol::LocalExecutor::new();
    let end = async {
        smol::Timer::after(PATIENCE * 3).await;
        panic!("the test takes too long");
    };
    smol::block_on(executor.run(smol::future::or(test(&executor), end)));
}

async fn up(events: &Receiver<LinkEvent>) -> (i32, Vec<podkeep::supervisor::proto::ContainerState>) {
    loop {
        match events.recv().await.unwrap() {
            LinkEvent::Up { pid, containers, .. } => return (pid, containers),
            LinkEvent::Down { .. } | LinkEvent::Event(_) => {}
        }
    }
}

async fn exited(events: &Receiver<LinkEvent>, wanted: &str) -> i32 {
    loop {
        if let LinkEvent::Event(ReplyBody::Exited { id, exit }) = events.recv().await.unwrap()
            && id == wanted
        {
            return exit.code;
        }
    }
}

fn start(place: &Place, id: &str, text: &str) -> RequestBody {
    RequestBody::Start { spec: Box::new(script(place, id, text)) }
}

#[test]
fn link_starts_the_supervisor_and_again_when_it_is_killed() {
    let place = Place::new("link");
    run(async |executor| {
        let (link, events) = open(&place, executor);
        let (first, containers) = up(&events).await;
        assert!(containers.is_empty());
        link.request(RequestBody::CreateSandbox { spec: Box::new(sandbox_spec("s")) }, vec![]).await.unwrap();
        let text = "i=0; while [ ! -e $0/stop ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 5";
        let (state, _) = link.request(start(&place, "a", text), vec![]).await.unwrap();
        let ReplyBody::Container { state } = state else { panic!("{state:?}") };
        for _ in 0..3 {
            let (pid, _) = (first, ());
            let pid = match link.request(RequestBody::Hello { version: 1 }, vec![]).await.unwrap().0 {
                ReplyBody::Hello { pid, .. } => pid,
                other => panic!("{pid}: {other:?}"),
            };
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
            let (next, containers) = up(&events).await;
            assert_ne!(next, pid);
            assert_eq!(containers, [*state.clone()]);
        }
        std::fs::write(place.path.join("stop"), "").unwrap();
        assert_eq!(exited(&events, "a").await, 5);
        let lines = records(&place.log("a.log"));
        let expected: Vec<String> = (1..=lines.len()).map(|number| format!("stdout F {number}")).collect();
        assert_eq!(lines, expected);
    });
}

#[test]
fn agent_that_comes_back_finds_everything_and_misses_no_output() {
    let place = Place::new("back");
    run(async |executor| {
        let (link, events) = open(&place, executor);
        let (pid, _) = up(&events).await;
        link.request(RequestBody::CreateSandbox { spec: Box::new(sandbox_spec("s")) }, vec![]).await.unwrap();
        link.request(
            start(&place, "a", "echo one; while [ ! -e $0/stop ]; do sleep 0.01; done; echo two"),
            vec![],
        )
        .await
        .unwrap();
        drop((link, events));
        std::fs::write(place.path.join("stop"), "").unwrap();
        until("the end while no agent is there", || records(&place.log("a.log")).len() == 2);
        let (link, events) = open(&place, executor);
        let (same, containers) = up(&events).await;
        assert_eq!(same, pid);
        let code = match &containers[0].exit {
            Some(exit) => exit.code,
            None => exited(&events, "a").await,
        };
        assert_eq!(code, 0);
        assert_eq!(records(&place.log("a.log")), ["stdout F one", "stdout F two"]);
        link.request(RequestBody::Quit, vec![]).await.unwrap();
        assert_eq!(link.request(RequestBody::List, vec![]).await.unwrap_err(), LinkError::Closed);
    });
}

#[test]
fn refusals_and_timeouts_are_told_apart() {
    let place = Place::new("refuse");
    run(async |executor| {
        let (link, events) = open(&place, executor);
        up(&events).await;
        match link.request(start(&place, "a", "true"), vec![]).await {
            Err(LinkError::Refused(failure)) => assert_eq!(failure.kind, FailureKind::Missing),
            other => panic!("{other:?}"),
        }
        let mut long = script(&place, "b", "true");
        long.labels = "x".repeat(5 << 20);
        let long = RequestBody::Start { spec: Box::new(long) };
        assert_eq!(link.request(long, vec![]).await.unwrap_err(), LinkError::TooLong);
        // a supervisor that cannot be started
        let options = Options {
            run_dir: place.path.join("other"),
            exe: "/no/such/program".into(),
            cgroups: vec![],
            timeout: Duration::from_millis(100),
        };
        let (link, events) = Link::open(options, |driver| executor.spawn(driver).detach());
        assert!(matches!(events.recv().await, Ok(LinkEvent::Down { .. })));
        assert_eq!(link.request(RequestBody::List, vec![]).await.unwrap_err(), LinkError::Timeout);
    });
}
