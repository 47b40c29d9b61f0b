//! The program: as whom it runs, with what rights, limits and streams.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use podkeep::container::setup::{self, Progress, Stdio};
use podkeep::container::spec::{ContainerSpec, Rlimit};
use podkeep::supervisor::proto::FailureKind;

use crate::Test;
use crate::world::{DEFAULT_CAPS, MAP, World, finish, host, piped, stop, usual, wait};

pub(crate) const TESTS: &[Test] = &[
    ("process_exit_code_streams_and_environment", exit_code_streams_and_environment),
    ("process_runs_as_user_without_capabilities", runs_as_user_without_capabilities),
    ("process_ambient_capabilities_reach_a_user", ambient_capabilities_reach_a_user),
    ("process_user_0_has_exactly_its_capabilities", root_has_exactly_its_capabilities),
    ("process_unknown_capabilities_are_reported", unknown_capabilities_are_reported),
    ("process_seccomp_with_and_without_privileges", seccomp_with_and_without_privileges),
    ("process_broken_seccomp_is_refused", broken_seccomp_is_refused),
    ("process_limits_and_oom_score", limits_and_oom_score),
    ("process_labels_without_module_degrade", labels_without_module_degrade),
    ("process_not_found", not_found),
    ("process_cwd_and_home", cwd_and_home),
    ("process_terminal", terminal),
    ("process_stdin_and_stream_owner", stdin_and_stream_owner),
    ("process_signals_are_reset_and_nothing_is_inherited", signals_are_reset_and_nothing_is_inherited),
    ("process_waits_for_the_record", waits_for_the_record),
    ("process_abandoned_start_leaves_nothing", abandoned_start_leaves_nothing),
    ("process_joins_cgroups", joins_cgroups),
    ("process_missing_cgroup_fails_by_name", missing_cgroup_fails_by_name),
    ("process_user_namespace", user_namespace),
    ("process_dies_with_the_supervisor_before_exec", dies_with_the_supervisor_before_exec),
];

/// CAP_NET_BIND_SERVICE
const BIND: u64 = 1 << 10;

fn world() -> World {
    let mut world = World::new();
    world.usual_sandbox();
    world
}

fn exit_code_streams_and_environment() {
    let world = world();
    let mut spec = world.spec("echo out; echo err >&2; echo $A; exit 7");
    spec.process.env.push("A=b c".into());
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (7, "out\nerr\nb c\n"));
    let ran = world.run_spec(&world.spec("kill -9 $$")).unwrap();
    // the first process of a pid namespace cannot be killed from within
    assert_eq!(ran.code, 0);
    let (started, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    assert_eq!(stop(&started), 137);
    let mut spec = world.spec("");
    spec.process.env.push("A=\0".into());
    let failure = world.run_spec(&spec).unwrap_err();
    assert_eq!((failure.kind, failure.step.as_str()), (FailureKind::Invalid, "environment"));
}

fn status(world: &World, spec: &ContainerSpec, names: &str) -> String {
    let ran = world.run_spec(spec).unwrap();
    assert_eq!(ran.code, 0, "{names}: {}", ran.out);
    ran.out
}

fn runs_as_user_without_capabilities() {
    let world = world();
    let mut spec = world
        .spec("id -u; id -g; id -G; grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNew|Groups' /proc/self/status; umask");
    spec.process.uid = 1000;
    spec.process.gid = 2000;
    spec.process.groups = vec![3000, 4000];
    spec.process.no_new_privileges = true;
    spec.process.umask = Some(0o077);
    let out = status(&world, &spec, "user");
    let none = "0000000000000000";
    let expected = format!(
        "1000\n2000\n2000 3000 4000\nGroups:\t3000 4000 \nCapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{DEFAULT_CAPS:016x}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n0077\n"
    );
    assert_eq!(out, expected);
}

fn ambient_capabilities_reach_a_user() {
    let world = world();
    let mut spec = world.spec("grep -E 'Cap(Prm|Eff|Amb)' /proc/self/status");
    spec.process.uid = 1000;
    spec.process.capabilities.inheritable = BIND;
    spec.process.capabilities.ambient = BIND;
    let out = status(&world, &spec, "ambient");
    assert_eq!(out, format!("CapPrm:\t{BIND:016x}\nCapEff:\t{BIND:016x}\nCapAmb:\t{BIND:016x}\n"));
}

fn root_has_exactly_its_capabilities() {
    let world = world();
    let mut spec =
        world.spec("grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status; grep Seccomp: /proc/self/status");
    let sets = &mut spec.process.capabilities;
    (sets.bounding, sets.permitted, sets.effective) = (BIND | 1, BIND | 1, BIND | 1);
    let out = status(&world, &spec, "root");
    let (none, own) = ("0000000000000000", format!("{:016x}", BIND | 1));
    let expected = format!(
        "CapInh:\t{none}\nCapPrm:\t{own}\nCapEff:\t{own}\nCapBnd:\t{own}\nCapAmb:\t{none}\nSeccomp:\t0\n"
    );
    assert_eq!(out, expected);
}

fn unknown_capabilities_are_reported() {
    let world = world();
    let (_, own) = host("grep CapPrm /proc/self/status | cut -f2");
    let own = u64::from_str_radix(own.trim(), 16).unwrap();
    let all = (1_u64 << 41) - 1;
    let mut spec = world.spec("true");
    let sets = &mut spec.process.capabilities;
    (sets.bounding, sets.permitted, sets.effective) = (u64::MAX, u64::MAX, u64::MAX);
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!(ran.code, 0);
    if own & all == all {
        assert_eq!(ran.degraded, Vec::<String>::new());
    } else {
        let expected = format!("capabilities {:#x} are not to be had on this node", all & !own);
        assert_eq!(ran.degraded, [expected]);
    }
}

/// Classic BPF: the system calls `numbers` answer with `errno`, all others are allowed.
pub(crate) fn filter(numbers: &[u32], errno: i32) -> Vec<u8> {
    let instruction = |code: u16, jt: u8, jf: u8, k: u32| {
        let mut bytes = code.to_ne_bytes().to_vec();
        bytes.extend([jt, jf]);
        bytes.extend(k.to_ne_bytes());
        bytes
    };
    let mut program = instruction(0x20, 0, 0, 0); // load the number
    for number in numbers {
        program.extend(instruction(0x15, 0, 1, *number)); // equal?
        program.extend(instruction(0x06, 0, 0, 0x0005_0000 | u32::try_from(errno).unwrap()));
    }
    program.extend(instruction(0x06, 0, 0, 0x7fff_0000)); // allow
    program
}

fn seccomp_with_and_without_privileges() {
    let world = world();
    let file = world.dir.join("filter.bpf");
    fs::write(&file, filter(&[u32::try_from(nix::libc::SYS_mkdirat).unwrap()], 1)).unwrap();
    let old = world.dir.join("old.bpf");
    #[cfg(target_arch = "x86_64")]
    fs::write(&old, filter(&[u32::try_from(nix::libc::SYS_mkdir).unwrap()], 1)).unwrap();
    #[cfg(not(target_arch = "x86_64"))]
    fs::copy(&file, &old).map(drop).unwrap();
    for no_new_privileges in [false, true] {
        let mut spec = world.spec("mkdir /tmp/x && echo made; grep -E 'Seccomp:|CapEff' /proc/self/status");
        spec.process.seccomp = Some(old.clone());
        spec.process.no_new_privileges = no_new_privileges;
        let ran = world.run_spec(&spec).unwrap();
        let caps = format!("CapEff:\t{DEFAULT_CAPS:016x}\nSeccomp:\t2\n");
        assert!(ran.out.contains("Operation not permitted") && ran.out.ends_with(&caps), "{}", ran.out);
        // as a user, too
        spec.process.uid = 1000;
        spec.root.upper.set_extension("user");
        let ran = world.run_spec(&spec).unwrap();
        assert!(ran.out.ends_with("CapEff:\t0000000000000000\nSeccomp:\t2\n"), "{}", ran.out);
    }
}

fn broken_seccomp_is_refused() {
    let world = world();
    let file = world.dir.join("broken.bpf");
    for bytes in [vec![], vec![1, 2, 3], vec![0xff; 16]] {
        fs::write(&file, &bytes).unwrap();
        let mut spec = world.spec("echo ran");
        spec.process.seccomp = Some(file.clone());
        let failure = world.run_spec(&spec).unwrap_err();
        assert_eq!((failure.kind, failure.step.as_str()), (FailureKind::Invalid, "seccomp"), "{bytes:?}");
    }
    let mut spec = world.spec("echo ran");
    spec.process.seccomp = Some(world.dir.join("absent.bpf"));
    assert_eq!(world.run_spec(&spec).unwrap_err().errno, nix::libc::ENOENT);
}

fn limits_and_oom_score() {
    let world = world();
    let mut spec = world.spec("ulimit -n; ulimit -Hn; cat /proc/self/oom_score_adj");
    spec.process.rlimits = vec![Rlimit { resource: nix::libc::RLIMIT_NOFILE, soft: 77, hard: 99 }];
    spec.process.oom_score_adj = Some(500);
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!((ran.out.as_str(), ran.degraded.len()), ("77\n99\n500\n", 0));
    let (_, own) = host("grep CapEff /proc/self/status | cut -f2");
    let can = u64::from_str_radix(own.trim(), 16).unwrap() >> 24 & 1 == 1;
    spec.process.oom_score_adj = Some(-900);
    spec.process.rlimits.clear();
    spec.root.upper.set_extension("again");
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!(ran.code, 0);
    if can {
        assert!(ran.out.ends_with("-900\n"));
    } else {
        assert!(ran.degraded[0].starts_with("oom_score_adj -900 was refused: "), "{:?}", ran.degraded);
    }
}

fn labels_without_module_degrade() {
    let world = world();
    let mut spec = world.spec("true");
    spec.process.apparmor = Some("podkeep-default".into());
    spec.process.selinux = Some("system_u:system_r:container_t:s0".into());
    if std::path::Path::new("/sys/module/apparmor").exists()
        || std::path::Path::new("/sys/fs/selinux/enforce").exists()
    {
        println!("skipped: this kernel has a security module that knows labels");
        return;
    }
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!(ran.degraded.len(), 2);
    assert!(ran.degraded[0].contains("no AppArmor") && ran.degraded[1].contains("SELinux is off"));
}

fn not_found() {
    let world = world();
    let fails = |args: &[&str]| {
        let mut spec = world.spec("");
        spec.process.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let failure = world.run_spec(&spec).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Exec, "{failure}");
        failure.to_string()
    };
    assert_eq!(fails(&["no-such"]), "exec 'no-such': No such file or directory");
    assert_eq!(fails(&["/no/such"]), "exec '/no/such': No such file or directory");
    assert_eq!(fails(&["/etc/plain"]), "exec '/etc/plain': Permission denied");
    assert_eq!(fails(&["/etc"]), "exec '/etc': Permission denied");
    assert_eq!(fails(&[]), "exec: No such file or directory");
    fs::write(world.layer().join("bin/no-interpreter"), "#!/no/such\n").unwrap();
    fs::write(world.layer().join("bin/no-format"), "\u{1}\u{2}").unwrap();
    for name in ["no-interpreter", "no-format"] {
        let path = world.layer().join("bin").join(name);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    assert_eq!(fails(&["no-interpreter"]), "exec '/bin/no-interpreter': No such file or directory");
    assert_eq!(fails(&["no-format"]), "exec '/bin/no-format': Exec format error");
    // found by the program's own PATH, not by ours
    let mut spec = world.spec("");
    spec.process.args = vec!["tool".into()];
    spec.process.env = vec!["PATH=/none:/opt".into()];
    fs::create_dir(world.layer().join("opt")).unwrap();
    fs::copy("/bin/busybox", world.layer().join("opt/tool")).unwrap();
    assert!(world.run_spec(&spec).unwrap().out.contains("applet not found"));
}

fn cwd_and_home() {
    let world = world();
    let mut spec = world.spec("pwd; stat -c %a .; echo $HOME");
    spec.process.cwd = "/made/when/missing".into();
    spec.process.uid = 1000;
    assert_eq!(world.run_spec(&spec).unwrap().out, "/made/when/missing\n755\n/home/me\n");
    let mut spec = world.spec("echo $HOME; pwd");
    spec.process.uid = 4711;
    spec.process.cwd = String::new();
    assert_eq!(world.run_spec(&spec).unwrap().out, "/\n/\n");
    let mut spec = world.spec("");
    spec.process.cwd = "/etc/plain/x".into();
    let failure = world.run_spec(&spec).unwrap_err();
    assert_eq!(failure.to_string(), "cwd '/etc/plain/x': Not a directory");
}

fn terminal() {
    let world = world();
    let mut spec = world.spec("tty; stat -c '%u %g %a' /dev/pts/0; test -c /dev/console && echo console; echo hi > /dev/tty; read line; echo got $line");
    spec.process.tty = true;
    spec.process.uid = 1000;
    let started = setup::start(&spec, &world.sandbox_dir(), Stdio::Tty, |_| Ok(())).unwrap();
    let mut master = fs::File::from(started.pty_master.as_ref().unwrap().try_clone().unwrap());
    master.write_all(b"there\n").unwrap();
    assert_eq!(wait(&started), 0);
    let mut seen = Vec::new();
    // the other end is gone: EIO after the last byte
    let mut buffer = [0; 512];
    while let Ok(size) = master.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..size]);
    }
    let seen = String::from_utf8(seen).unwrap().replace('\r', "");
    for expected in ["/dev/pts/0\n", "1000 5 620\n", "console\n", "hi\n", "got there\n"] {
        assert!(seen.contains(expected), "{expected:?} in {seen}");
    }
}

fn stdin_and_stream_owner() {
    let world = world();
    let (read, stdio) = piped();
    let Stdio::Fds { stdout, stderr, .. } = stdio else { panic!() };
    let (input, mut feed) =
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map(|(r, w)| (r, fs::File::from(w))).unwrap();
    feed.write_all(b"from outside").unwrap();
    drop(feed);
    let mut spec = world.spec("cat; echo; stat -L -c %u /dev/stdout; echo again > /dev/stdout");
    spec.process.uid = 1000;
    let stdio = Stdio::Fds { stdin: Some(input), stdout, stderr };
    let started = setup::start(&spec, &world.sandbox_dir(), stdio, |_| Ok(())).unwrap();
    assert_eq!(finish(started, read).out, "from outside\n1000\nagain\n");
    // without stdin: /dev/null
    assert_eq!(world.sh("cat; echo $?"), "0\n");
}

fn signals_are_reset_and_nothing_is_inherited() {
    let world = world();
    let _leak =
        nix::fcntl::open("/etc/passwd", nix::fcntl::OFlag::O_RDONLY, nix::sys::stat::Mode::empty()).unwrap();
    let mut ignored = nix::sys::signal::SigSet::empty();
    ignored.add(nix::sys::signal::Signal::SIGUSR1);
    ignored.thread_block().unwrap();
    let run = |args: &[&str]| {
        let mut spec = world.spec("");
        spec.process.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        world.run_spec(&spec).unwrap().out
    };
    let signals = run(&["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]);
    let descriptors = run(&["ls", "/proc/self/fd"]);
    ignored.thread_unblock().unwrap();
    assert_eq!(signals, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    // 3 is the folder being read
    assert_eq!(descriptors, "0\n1\n2\n3\n");
}

fn waits_for_the_record() {
    let world = world();
    let (read, stdio) = piped();
    let mut starting = setup::begin(&world.spec("echo ran"), &world.sandbox_dir(), stdio).unwrap();
    let mut ready = false;
    let started = loop {
        let mut fds = [nix::poll::PollFd::new(starting.channel(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
        match starting.advance().unwrap() {
            Progress::Pending => {}
            Progress::Ready => {
                ready = true;
                // the program does not run: nothing is written, the child is still ours
                let mut fds = [nix::poll::PollFd::new(read.as_fd(), nix::poll::PollFlags::POLLIN)];
                let timeout = nix::poll::PollTimeout::from(50_u8);
                assert_eq!(nix::poll::poll(&mut fds, timeout).unwrap(), 0);
                let exe = fs::read_link(format!("/proc/{}/exe", starting.pid())).unwrap();
                assert_eq!(exe, std::env::current_exe().unwrap());
                starting.go().unwrap();
                assert!(starting.go().is_err());
            }
            Progress::Executed(started) => break started,
        }
    };
    assert!(ready);
    assert_eq!(finish(started, read).out, "ran\n");
}

fn abandoned_start_leaves_nothing() {
    let world = world();
    let (read, stdio) = piped();
    let starting = setup::begin(&world.spec("echo ran"), &world.sandbox_dir(), stdio).unwrap();
    let pid = starting.pid();
    drop(starting);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    let mut text = String::new();
    fs::File::from(read).read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
    // a record that cannot be written ends the start
    let (_read, stdio) = piped();
    let mut pid = 0;
    let failure = setup::start(&world.spec("echo ran"), &world.sandbox_dir(), stdio, |starting| {
        pid = starting.pid();
        Err(podkeep::supervisor::proto::Failure { step: "record".into(), ..Default::default() })
    });
    assert_eq!(failure.unwrap_err().step, "record");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

/// A cgroup of the test that goes with it.
pub(crate) struct Group(pub(crate) std::path::PathBuf);

impl Group {
    pub(crate) fn new(world: &World, hierarchy: &str) -> Option<Self> {
        let top = std::path::Path::new("/sys/fs/cgroup").join(hierarchy);
        let group = top.join(world.dir.file_name().unwrap());
        (top.join("cgroup.procs").exists() && fs::create_dir(&group).is_ok()).then(|| Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

fn joins_cgroups() {
    let world = world();
    let groups: Vec<Group> =
        ["pids", "memory", "unified", ""].iter().filter_map(|name| Group::new(&world, name)).collect();
    if groups.is_empty() {
        println!("skipped: no cgroup can be made here");
        return;
    }
    let mut spec = world.spec("read line; true");
    spec.cgroups = groups.iter().map(|group| group.0.clone()).collect();
    let (input, feed) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let (_read, stdio) = piped();
    let Stdio::Fds { stdout, stderr, .. } = stdio else { panic!() };
    let stdio = Stdio::Fds { stdin: Some(input), stdout, stderr };
    let started = setup::start(&spec, &world.sandbox_dir(), stdio, |_| Ok(())).unwrap();
    for group in &groups {
        let procs = fs::read_to_string(group.0.join("cgroup.procs")).unwrap();
        assert_eq!(procs, format!("{}\n", started.pid), "{:?}", group.0);
    }
    drop(feed);
    assert_eq!(wait(&started), 0);
    // its own cgroup namespace begins at its groups
    let mut spec = world.spec("grep -v -E ':/$' /proc/self/cgroup | cut -d: -f2");
    spec.cgroups = groups.iter().map(|group| group.0.clone()).collect();
    spec.cgroup_ns = podkeep::container::spec::Namespace::Container;
    let ran = world.run_spec(&spec).unwrap();
    assert!(!ran.out.contains("pids") && !ran.out.contains("memory\n"), "{}", ran.out);
}

fn missing_cgroup_fails_by_name() {
    let world = world();
    let mut spec = world.spec("true");
    spec.cgroups = vec!["/sys/fs/cgroup/no-such-group".into()];
    let failure = world.run_spec(&spec).unwrap_err();
    assert_eq!(failure.to_string(), "cgroup '/sys/fs/cgroup/no-such-group': No such file or directory");
}

fn user_namespace() {
    let mut world = World::new();
    let mut sandbox = usual();
    sandbox.user = Some(MAP);
    world.sandbox(&sandbox).unwrap();
    let volume = world.dir.join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("from-host"), "").unwrap();
    let mut spec = world.spec(
        "id -u; cat /proc/self/uid_map | tr -s ' '; stat -c '%u %g' /bin/sh /dev/null /etc /volume/from-host /dev/shm; touch /new /volume/new; stat -c %u /new /volume/new; echo x > /dev/null; hostname other && hostname; mount -t tmpfs none /tmp || echo no mount",
    );
    spec.user = Some(MAP);
    let sets = &mut spec.process.capabilities;
    let all = DEFAULT_CAPS | 1 << 21;
    (sets.bounding, sets.permitted, sets.effective) = (all, all, all);
    spec.mounts.push(crate::world::bind(&volume, "/volume"));
    spec.mounts.push(crate::world::kind(
        "/dev/shm",
        podkeep::container::spec::MountKind::Tmpfs { size: 0, mode: 0o1777 },
    ));
    let ran = match world.run_spec(&spec) {
        Err(failure) if failure.step.contains("idmapped") => {
            println!("skipped: {failure}");
            return;
        }
        ran => ran.unwrap(),
    };
    let owners = "0 0\n".repeat(5);
    let expected = format!("0\n 0 {} {}\n{owners}0\n0\nother\n", MAP.host_base, MAP.size);
    assert!(ran.out.starts_with(&expected), "{}", ran.out);
    assert!(ran.out.ends_with("no mount\n"), "{}", ran.out);
    let owner = |path: &std::path::Path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).unwrap());
    // what it makes in its own layer is its own; what it makes in a volume is seen as its id inside
    assert_eq!(owner(&spec.root.upper.join("new")), MAP.host_base);
    assert_eq!(owner(&volume.join("new")), 0);
}

/// The parent is a clone of this process that dies between the clone and the go.
fn dies_with_the_supervisor_before_exec() {
    let world = world();
    let (read, stdio) = piped();
    let spec = world.spec("echo ran");
    let (told, tell) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let keep = [crate::world::number(&tell)].into_iter().chain(match &stdio {
        Stdio::Fds { stdout, stderr, .. } => vec![crate::world::number(stdout), crate::world::number(stderr)],
        Stdio::Tty => vec![],
    });
    let keep: Vec<i32> = keep.collect();
    let mut stdio = Some(stdio);
    let parent = podkeep_hal::linux::sys::clone::clone_process(0, None, &keep, || {
        let mut starting = setup::begin(&spec, &world.sandbox_dir(), stdio.take().unwrap()).unwrap();
        let mut fds = [nix::poll::PollFd::new(starting.channel(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
        assert!(matches!(starting.advance(), Ok(Progress::Ready)));
        nix::unistd::write(&tell, &starting.pid().to_ne_bytes()).unwrap();
        // _exit: nothing is dropped, as with SIGKILL
        0
    })
    .unwrap();
    drop(stdio);
    drop(tell);
    let mut pid = [0; 4];
    fs::File::from(told).read_exact(&mut pid).unwrap();
    waitid(Id::PIDFd(parent.pidfd.as_fd()), WaitPidFlag::WEXITED).unwrap();
    // the end of the output: the child is gone, and wrote nothing
    let mut text = String::new();
    fs::File::from(read).read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
    let pid = i32::from_ne_bytes(pid);
    let gone = (0..200).any(|_| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        std::thread::sleep(Duration::from_millis(if state.is_empty() { 0 } else { 5 }));
        state.is_empty() || state.contains(" Z ")
    });
    assert!(gone);
}
