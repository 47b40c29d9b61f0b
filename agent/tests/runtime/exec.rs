//! Processes that join a running container, and the supervisor's own program.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

use podkeep::container::setup::{self, Started, Stdio};
use podkeep::container::spec::{Namespace, ProcessSpec};
use podkeep::supervisor::proto::{Failure, FailureKind};

use crate::Test;
use crate::process::Group;
use crate::world::{MAP, Ran, World, finish, piped, stop, usual, wait};

pub(crate) const TESTS: &[Test] = &[
    ("exec_joins_all_namespaces", joins_all_namespaces),
    ("exec_has_its_own_identity", has_its_own_identity),
    ("exec_in_user_namespace", in_user_namespace),
    ("exec_in_shared_pid_namespace", in_shared_pid_namespace),
    ("exec_joins_the_cgroups", joins_the_cgroups),
    ("exec_terminal", terminal),
    ("exec_not_found_and_ended_target", not_found_and_ended_target),
    ("exec_never_leaves_through_the_working_folder", never_leaves_through_the_working_folder),
    ("exec_is_not_dumpable_before_its_program", is_not_dumpable_before_its_program),
    ("exec_own_program_cannot_be_written", own_program_cannot_be_written),
];

fn exec(target: &Started, process: &ProcessSpec) -> Result<Ran, Failure> {
    let (read, stdio) = piped();
    let started = setup::exec(process, target.pid, target.pidfd.as_fd(), &[], stdio)?;
    Ok(finish(started, read))
}

fn script(world: &World, script: &str) -> ProcessSpec {
    world.spec(script).process
}

const NAMESPACES: &str = "for n in mnt net ipc uts pid cgroup user; do readlink /proc/PID/ns/$n; done";

fn joins_all_namespaces() {
    let mut world = World::new();
    world.usual_sandbox();
    let mut spec = world.spec("echo mark > /mark; sleep 1000; true");
    spec.cgroup_ns = Namespace::Container;
    let (target, _out) = world.start(&spec).unwrap();
    let own = exec(&target, &script(&world, &NAMESPACES.replace("PID", "self"))).unwrap().out;
    let (_, theirs) = crate::world::host(&NAMESPACES.replace("PID", &target.pid.to_string()));
    assert_eq!(own, theirs);
    let ran = exec(
        &target,
        &script(&world, "until test -e /mark; do :; done; cat /mark; hostname; cat /proc/1/comm; exit 3"),
    )
    .unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (3, "mark\npod-1\nsh\n"));
    // we are where we were
    let (_, pid_ns) = crate::world::host("readlink /proc/self/ns/pid");
    assert_eq!(fs::read_link("/proc/self/ns/pid_for_children").unwrap().to_str().unwrap(), pid_ns.trim());
    stop(&target);
}

fn has_its_own_identity() {
    let mut world = World::new();
    world.usual_sandbox();
    let (target, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    let mut process = script(
        &world,
        "id -u; id -G; umask; pwd; grep -E 'CapBnd|NoNew' /proc/self/status; ls /proc/self/fd",
    );
    (process.uid, process.gid, process.groups) = (1000, 1000, vec![7]);
    process.capabilities.bounding = 1;
    process.no_new_privileges = true;
    process.umask = Some(0o27);
    process.cwd = "/tmp".into();
    let ran = exec(&target, &process).unwrap();
    assert_eq!(ran.out, "1000\n1000 7\n0027\n/tmp\nCapBnd:\t0000000000000001\nNoNewPrivs:\t1\n0\n1\n2\n3\n");
    stop(&target);
}

fn in_user_namespace() {
    let mut world = World::new();
    let mut sandbox = usual();
    sandbox.user = Some(MAP);
    world.sandbox(&sandbox).unwrap();
    let mut spec = world.spec("sleep 1000");
    spec.user = Some(MAP);
    let (target, _out) = match world.start(&spec) {
        Err(failure) if failure.step.contains("idmapped") => {
            println!("skipped: {failure}");
            return;
        }
        started => started.unwrap(),
    };
    let ran = exec(
        &target,
        &script(
            &world,
            "id -u; touch /new; stat -c %u /new; cat /proc/self/uid_map | tr -s ' '; kill -0 1 && echo may",
        ),
    )
    .unwrap();
    assert_eq!(ran.out, format!("0\n0\n 0 {} {}\nmay\n", MAP.host_base, MAP.size));
    let mut process = script(&world, "stat -L -c %u /dev/stdout");
    process.uid = 1000;
    assert_eq!(exec(&target, &process).unwrap().out, "1000\n");
    stop(&target);
}

fn in_shared_pid_namespace() {
    let mut world = World::new();
    let mut sandbox = usual();
    sandbox.pid = Namespace::Sandbox;
    world.sandbox(&sandbox).unwrap();
    let mut spec = world.spec("sleep 1000");
    spec.pid = Namespace::Sandbox;
    let (target, _out) = world.start(&spec).unwrap();
    let ran = exec(&target, &script(&world, "cat /proc/1/comm; ls /proc/1/root/ || echo refused")).unwrap();
    assert!(ran.out.starts_with("podkeep-reaper\n") && ran.out.ends_with("refused\n"), "{}", ran.out);
    stop(&target);
}

fn joins_the_cgroups() {
    let mut world = World::new();
    world.usual_sandbox();
    let names = ["pids", "memory", "unified", ""];
    let groups: Vec<Group> = names.iter().filter_map(|name| Group::new(&world, name)).collect();
    if groups.is_empty() {
        println!("skipped: no cgroup can be made here");
        return;
    }
    let mut spec = world.spec("sleep 1000");
    spec.cgroups = groups.iter().map(|group| group.0.clone()).collect();
    let (target, _out) = world.start(&spec).unwrap();
    let (_read, stdio) = piped();
    let process = script(&world, "sleep 1000");
    let session = setup::exec(&process, target.pid, target.pidfd.as_fd(), &spec.cgroups, stdio).unwrap();
    for group in &groups {
        let procs = fs::read_to_string(group.0.join("cgroup.procs")).unwrap();
        let mut procs: Vec<i32> = procs.lines().map(|line| line.parse().unwrap()).collect();
        procs.sort_unstable();
        let mut expected = [target.pid, session.pid];
        expected.sort_unstable();
        assert_eq!(procs, expected, "{:?}", group.0);
    }
    stop(&session);
    stop(&target);
}

fn terminal() {
    let mut world = World::new();
    world.usual_sandbox();
    let (target, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    let mut process = script(&world, "tty; echo own > /dev/tty");
    process.tty = true;
    let session = setup::exec(&process, target.pid, target.pidfd.as_fd(), &[], Stdio::Tty).unwrap();
    let mut master = fs::File::from(session.pty_master.as_ref().unwrap().try_clone().unwrap());
    assert_eq!(wait(&session), 0);
    let mut buffer = [0; 256];
    let mut seen = Vec::new();
    while let Ok(size) = std::io::Read::read(&mut master, &mut buffer) {
        seen.extend_from_slice(&buffer[..size]);
    }
    assert_eq!(String::from_utf8(seen).unwrap().replace('\r', ""), "/dev/pts/0\nown\n");
    stop(&target);
}

fn not_found_and_ended_target() {
    let mut world = World::new();
    world.usual_sandbox();
    let (target, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    let mut process = script(&world, "");
    process.args = vec!["no-such".into()];
    let failure = exec(&target, &process).unwrap_err();
    assert_eq!(
        (failure.kind, failure.to_string().as_str()),
        (FailureKind::Exec, "exec 'no-such': No such file or directory")
    );
    stop(&target);
    let failure = exec(&target, &script(&world, "true")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Missing, "{failure}");
}

/// CVE-2024-21626: a working folder that is a descriptor of the host's.
fn never_leaves_through_the_working_folder() {
    let mut world = World::new();
    world.usual_sandbox();
    let _leak = fs::File::open("/").unwrap();
    let (target, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    for number in 3..20 {
        let mut process = script(&world, "ls");
        process.cwd = format!("/proc/self/fd/{number}");
        let failure = exec(&target, &process).unwrap_err();
        assert_eq!(failure.step, "cwd", "{failure}");
        let mut spec = world.spec("ls");
        spec.process.cwd = process.cwd;
        let failure = world.run_spec(&spec).unwrap_err();
        assert_eq!(failure.step, "cwd", "{failure}");
    }
    stop(&target);
}

fn is_not_dumpable_before_its_program() {
    let mut world = World::new();
    world.usual_sandbox();
    let (target, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    let (read, stdio) = piped();
    let process = script(&world, "true");
    let mut starting =
        setup::begin_exec(&process, target.pid, target.pidfd.as_fd(), &[] as &[PathBuf], stdio).unwrap();
    let mut fds = [nix::poll::PollFd::new(starting.channel(), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
    starting.advance().unwrap();
    // a program of the container sees it, and may not look into it
    let inside = exec(&target, &script(&world, "for p in /proc/[0-9]*; do readlink $p/exe > /dev/null || grep -q . $p/stat && echo $(cut -d' ' -f2 $p/stat) $(readlink $p/exe || echo hidden); done | grep runtime")).unwrap();
    assert!(inside.out.starts_with("(runtime") && inside.out.ends_with(" hidden\n"), "{}", inside.out);
    assert_eq!(inside.out.lines().count(), 1);
    let status = fs::read_dir(format!("/proc/{}/fd", starting.pid())).unwrap().count();
    assert!(status <= 8, "{status} descriptors are open in the child");
    drop(starting);
    drop(read);
    stop(&target);
}

/// CVE-2019-5736: what a container could do with /proc/PID/exe once the program is no longer busy.
fn own_program_cannot_be_written() {
    let world = World::new();
    let own = world.dir.join("program");
    fs::copy(std::env::current_exe().unwrap(), &own).unwrap();
    let size = fs::metadata(&own).unwrap().len();
    let output = Command::new(&own).env("PODKEEP_TEST_REEXEC", "1").output().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    // without mount_setattr it is a sealed copy
    let refusal =
        if crate::old_kernel::is_old() { "Operation not permitted" } else { "Read-only file system" };
    assert!(seen.starts_with("note=None\n") && seen.contains(refusal), "{seen}");
    assert_eq!(fs::metadata(&own).unwrap().len(), size);
    if crate::old_kernel::is_old() {
        return;
    }
    // the same attempt on the program as it was started writes
    let output = Command::new(&own).env("PODKEEP_TEST_REEXEC", "plain").output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(fs::metadata(&own).unwrap().len(), size + 2);
}
