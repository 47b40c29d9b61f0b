//! Stories of one pod, told with a clock that moves when told to, and random ones that must keep the rules.
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn shape(kinds: &[(&str, ContainerKind)], policy: RestartPolicy) -> PodShape {
    PodShape {
        restart_policy: policy,
        containers: kinds
            .iter()
            .map(|(name, kind)| ContainerShape {
                name: (*name).into(),
                image: "i:1".into(),
                kind: *kind,
                restart_policy: None,
                rules: Vec::new(),
            })
            .collect(),
        grace_seconds: 30,
        active_deadline_seconds: None,
    }
}

/// A runtime that answers at once and remembers what it was asked.
struct World {
    pod: PodRuntime,
    now: Now,
    log: Vec<String>,
    live: BTreeMap<String, String>,
    wake: Option<u64>,
    serial: u32,
}

impl World {
    fn new(shape: PodShape) -> Self {
        let now = Now { boot: 1_000 * SECOND, wall: 5 };
        let pod = PodRuntime::new(shape, BackoffSettings::default(), now);
        let mut world = Self { pod, now, log: Vec::new(), live: BTreeMap::new(), wake: None, serial: 0 };
        world.turn();
        world
    }

    fn turn(&mut self) {
        loop {
            let plan = self.pod.plan(self.now);
            self.wake = plan.wake_at;
            if plan.actions.is_empty() {
                return;
            }
            for action in plan.actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::PrepareVolumes => self.pod.apply(Event::VolumesReady, self.now),
            Action::CreateSandbox { attempt } => {
                self.log.push(format!("sandbox {attempt}"));
                self.pod.apply(Event::SandboxReady { id: format!("s{attempt}") }, self.now);
            }
            Action::StartContainer { name, attempt } => {
                assert!(!self.live.contains_key(&name), "second start of {name}");
                self.serial += 1;
                let id = format!("{name}-{}", self.serial);
                self.log.push(format!("start {name} {attempt}"));
                self.live.insert(name.clone(), id.clone());
                let at = self.now;
                let event = Event::Started {
                    name,
                    id,
                    pid: 7,
                    attempt,
                    image_id: String::new(),
                    degraded: Vec::new(),
                    at,
                };
                self.pod.apply(event, self.now);
            }
            Action::Signal { name, .. } => self.log.push(format!("term {name}")),
            Action::Kill { name, .. } => {
                self.log.push(format!("kill {name}"));
                self.exit(&name, 137);
            }
            Action::RemoveContainer { .. } => {}
            Action::RemoveSandbox => {
                assert!(self.live.is_empty(), "sandbox removed under running containers");
                self.log.push("unsandbox".to_string());
                self.pod.apply(Event::SandboxGone, self.now);
            }
            Action::CleanUp => {
                self.log.push("clean".to_string());
                self.pod.apply(Event::CleanedUp, self.now);
            }
        }
    }

    fn exit(&mut self, name: &str, code: i32) {
        let Some(id) = self.live.remove(name) else { return };
        let exit = Terminated {
            container_id: id,
            exit_code: code,
            finished_boot: self.now.boot,
            ..Terminated::default()
        };
        self.pod.apply(Event::Exited { name: name.into(), exit }, self.now);
    }

    fn ends(&mut self, name: &str, code: i32) {
        self.exit(name, code);
        self.turn();
    }

    fn wait_for_wake(&mut self) -> u64 {
        let at = self.wake.expect("something to wait for");
        let waited = at - self.now.boot;
        self.now.boot = at;
        self.turn();
        waited / SECOND
    }

    fn take_log(&mut self) -> Vec<String> {
        core::mem::take(&mut self.log)
    }
}

#[test]
fn init_containers_run_in_order_then_sidecar_then_mains_together() {
    use ContainerKind::{Init, Main, Sidecar};
    let mut world = World::new(shape(
        &[("i1", Init), ("side", Sidecar), ("i2", Init), ("a", Main), ("b", Main)],
        RestartPolicy::Always,
    ));
    assert_eq!(world.take_log(), ["sandbox 0", "start i1 0"]);
    world.ends("i1", 0);
    assert_eq!(world.take_log(), ["start side 0", "start i2 0"]);
    world.ends("i2", 0);
    assert_eq!(world.take_log(), ["start a 0", "start b 0"]);
    // only the crashed one starts again
    world.ends("a", 1);
    assert_eq!(world.take_log(), ["start a 1"]);
}

#[test]
fn crash_loop_waits_with_growing_delays_and_first_restart_is_immediate() {
    let mut world = World::new(shape(&[("a", ContainerKind::Main)], RestartPolicy::Always));
    world.take_log();
    world.ends("a", 1);
    assert_eq!(world.take_log(), ["start a 1"]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        world.ends("a", 1);
        assert!(world.take_log().is_empty());
        waits.push(world.wait_for_wake());
        assert_eq!(world.take_log().len(), 1);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300]);
    assert_eq!(world.pod.container("a").map(ContainerRuntime::restarts), Some(7));
}

#[test]
fn removal_terminates_kills_at_the_deadline_and_leaves_nothing() {
    let mut world = World::new(shape(&[("a", ContainerKind::Main)], RestartPolicy::Always));
    world.take_log();
    world.pod.remove(world.now, None);
    world.turn();
    assert_eq!(world.take_log(), ["term a"]);
    assert_eq!(world.wait_for_wake(), 30);
    assert_eq!(world.take_log(), ["kill a", "unsandbox", "clean"]);
    assert_eq!(world.pod.stage, Stage::Gone);
}

#[test]
fn sidecars_stop_last_and_in_reverse_order() {
    use ContainerKind::{Main, Sidecar};
    let mut world =
        World::new(shape(&[("s1", Sidecar), ("s2", Sidecar), ("a", Main)], RestartPolicy::Always));
    world.take_log();
    world.pod.remove(world.now, None);
    world.turn();
    assert_eq!(world.take_log(), ["term a"]);
    world.ends("a", 0);
    assert_eq!(world.take_log(), ["term s2"]);
    world.ends("s2", 0);
    assert_eq!(world.take_log(), ["term s1"]);
    world.ends("s1", 0);
    assert_eq!(world.take_log(), ["unsandbox", "clean"]);
}

#[test]
fn never_policy_finishes_and_is_not_run_again() {
    let mut world = World::new(shape(&[("a", ContainerKind::Main)], RestartPolicy::Never));
    world.take_log();
    world.ends("a", 3);
    assert_eq!(world.take_log(), ["unsandbox"]);
    assert!(matches!(world.pod.stage, Stage::Done { failed: true, .. }));
    world.turn();
    assert!(world.take_log().is_empty());
    world.pod.remove(world.now, None);
    world.turn();
    assert_eq!(world.take_log(), ["clean"]);
}

#[test]
fn failed_init_under_never_fails_the_pod_before_any_main_starts() {
    use ContainerKind::{Init, Main};
    let mut world = World::new(shape(&[("i", Init), ("a", Main)], RestartPolicy::Never));
    world.ends("i", 1);
    assert_eq!(world.take_log(), ["sandbox 0", "start i 0", "unsandbox"]);
    assert!(matches!(world.pod.stage, Stage::Done { failed: true, .. }));
}

#[test]
fn sidecars_are_stopped_when_all_mains_are_over() {
    use ContainerKind::{Main, Sidecar};
    let mut world = World::new(shape(&[("s", Sidecar), ("a", Main)], RestartPolicy::OnFailure));
    world.take_log();
    world.ends("a", 0);
    assert_eq!(world.take_log(), ["term s"]);
    world.ends("s", 143);
    assert_eq!(world.take_log(), ["unsandbox"]);
    assert!(matches!(world.pod.stage, Stage::Done { failed: false, .. }));
}

#[test]
fn an_exit_that_overtakes_its_start_is_not_lost() {
    let now = Now { boot: SECOND, wall: 1 };
    let mut pod = PodRuntime::new(
        shape(&[("a", ContainerKind::Main)], RestartPolicy::Never),
        BackoffSettings::default(),
        now,
    );
    pod.plan(now);
    pod.apply(Event::VolumesReady, now);
    pod.plan(now);
    pod.apply(Event::SandboxReady { id: "s".into() }, now);
    assert_eq!(pod.plan(now).actions, [Action::StartContainer { name: "a".into(), attempt: 0 }]);
    let exit = Terminated { container_id: "x".into(), exit_code: 5, ..Terminated::default() };
    pod.apply(Event::Exited { name: "a".into(), exit }, now);
    let started = Event::Started {
        name: "a".into(),
        id: "x".into(),
        pid: 1,
        attempt: 0,
        image_id: String::new(),
        degraded: Vec::new(),
        at: now,
    };
    pod.apply(started, now);
    assert_eq!(pod.container("a").and_then(ContainerRuntime::exited).map(|exit| exit.exit_code), Some(5));
}

#[test]
fn a_blocked_start_keeps_its_attempt_number() {
    let now = Now { boot: SECOND, wall: 1 };
    let mut pod = PodRuntime::new(
        shape(&[("a", ContainerKind::Main)], RestartPolicy::Always),
        BackoffSettings::default(),
        now,
    );
    pod.volumes = Step::Ready;
    pod.sandbox = Sandbox::Ready { id: "s".into() };
    let start = [Action::StartContainer { name: "a".into(), attempt: 0 }];
    assert_eq!(pod.plan(now).actions, start);
    let retry_at = now.boot + RETRY;
    let blocked = Event::StartBlocked {
        name: "a".into(),
        reason: "ErrImageNeverPull".into(),
        message: String::new(),
        retry_at,
    };
    pod.apply(blocked, now);
    let plan = pod.plan(now);
    assert_eq!((plan.actions.len(), plan.wake_at), (0, Some(retry_at)));
    assert_eq!(pod.plan(Now { boot: retry_at, wall: 1 }).actions, start);
}

#[test]
fn a_changed_image_restarts_only_its_container_without_back_off() {
    use ContainerKind::Main;
    let mut world = World::new(shape(&[("a", Main), ("b", Main)], RestartPolicy::Always));
    world.take_log();
    let mut changed = world.pod.shape.clone();
    changed.containers[0].image = "i:2".into();
    world.pod.update(changed, world.now);
    world.turn();
    assert_eq!(world.take_log(), ["term a"]);
    world.ends("a", 0);
    assert_eq!(world.take_log(), ["start a 1"]);
}

#[test]
fn active_deadline_fails_the_pod() {
    let mut deadline = shape(&[("a", ContainerKind::Main)], RestartPolicy::Always);
    deadline.active_deadline_seconds = Some(60);
    let mut world = World::new(deadline);
    world.take_log();
    assert_eq!(world.wait_for_wake(), 60);
    assert_eq!(world.take_log(), ["term a"]);
    world.ends("a", 0);
    assert_eq!(world.take_log(), ["unsandbox"]);
    assert!(
        matches!(&world.pod.stage, Stage::Done { failed: true, reason, .. } if reason == "DeadlineExceeded")
    );
}

#[test]
fn a_second_removal_only_shortens_the_grace() {
    let mut world = World::new(shape(&[("a", ContainerKind::Main)], RestartPolicy::Always));
    world.pod.remove(world.now, Some(5));
    world.turn();
    world.pod.remove(world.now, Some(100));
    world.turn();
    assert_eq!(world.wait_for_wake(), 5);
    assert_eq!(world.pod.stage, Stage::Gone);
}

#[test]
fn restart_all_containers_keeps_sandbox_and_runs_inits_again() {
    use ContainerKind::{Init, Main};
    let mut all = shape(&[("i", Init), ("a", Main), ("b", Main)], RestartPolicy::Never);
    all.containers[1].restart_policy = Some(RestartPolicy::Never);
    all.containers[1].rules = alloc::vec![crate::lifecycle::RestartRule {
        action: crate::lifecycle::RuleAction::RestartAllContainers,
        negated: false,
        exit_codes: alloc::vec![42],
    }];
    let mut world = World::new(all);
    world.ends("i", 0);
    world.take_log();
    world.ends("a", 42);
    assert_eq!(world.take_log(), ["term b"]);
    world.ends("b", 143);
    assert_eq!(world.take_log(), ["start i 1"]);
    world.ends("i", 0);
    assert_eq!(world.take_log(), ["start a 1", "start b 1"]);
}

#[derive(Clone, Debug)]
enum Chance {
    Exit(u8, i32),
    Wait,
    Remove,
    Lose,
}

proptest! {
    /// Whatever happens, no container is started twice, the sandbox never goes before its containers (both asserted in
    /// `World`), and a removed pod ends with nothing left.
    #[test]
    fn any_story_ends_clean(
        kinds in prop::collection::vec(0..3_u8, 1..5),
        policy in 0..3_u8,
        story in prop::collection::vec(
            prop_oneof![
                (0..5_u8, prop_oneof![Just(0), Just(1), Just(42)]).prop_map(|(who, code)| Chance::Exit(who, code)),
                Just(Chance::Wait),
                Just(Chance::Lose),
                Just(Chance::Remove),
            ],
            0..40,
        ),
    ) {
        let names: Vec<String> = (0..kinds.len()).map(|n| format!("c{n}")).collect();
        let mut list: Vec<(&str, ContainerKind)> = names
            .iter()
            .zip(&kinds)
            .map(|(name, kind)| (name.as_str(), [ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::Main][usize::from(*kind)]))
            .collect();
        list.sort_by_key(|(_, kind)| *kind == ContainerKind::Main);
        let policy = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never][usize::from(policy)];
        let mut world = World::new(shape(&list, policy));
        for chance in story {
            match chance {
                Chance::Exit(who, code) => {
                    let name = format!("c{who}");
                    world.ends(&name, code);
                }
                Chance::Wait => if let Some(at) = world.wake {
                    world.now.boot = world.now.boot.max(at);
                    world.turn();
                },
                Chance::Lose => if world.live.is_empty() {
                    world.pod.sandbox_lost();
                    world.turn();
                },
                Chance::Remove => {
                    world.pod.remove(world.now, None);
                    world.turn();
                }
            }
        }
        world.pod.remove(world.now, None);
        world.turn();
        for _ in 0..8 {
            if let Some(at) = world.wake {
                world.now.boot = world.now.boot.max(at);
                world.turn();
            }
        }
        prop_assert_eq!(&world.pod.stage, &Stage::Gone);
        prop_assert!(world.live.is_empty());
    }
}
