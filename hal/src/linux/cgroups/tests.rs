//! On trees of files, and on this machine's kernel where that is possible.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder of files that goes away with the test.
struct Fake(PathBuf);

impl Fake {
    fn new() -> Self {
        let name = format!("cgroup-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// `path = content` lines, `;` is a line break.
    fn unpack(&self, snapshot: &str) {
        for line in snapshot.lines().filter(|l| !l.starts_with('#')) {
            if let Some((path, content)) = line.split_once(" = ") {
                self.put(path, &(content.replace("; ", "\n") + "\n"));
            }
        }
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.0.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn case(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/cases/cgr").join(name);
    fs::read_to_string(dir).unwrap()
}

#[test]
fn memory_controller_off_on_v2_names_the_word_on_the_command_line() {
    let fake = Fake::new();
    fake.unpack(&case("C-CGR-01/v2.txt"));
    let all = Cgroups::open(&fake.0).unwrap();
    assert_eq!(all.flavour(), Flavour::V2);
    let memory = all.missing().iter().find(|m| m.controller == Controller::Memory).unwrap();
    assert!(memory.hint.contains("'cgroup_disable=memory'"), "{}", memory.hint);
    assert!(memory.hint.contains("root=PARTUUID=0000-02"), "the real command line: {}", memory.hint);
    assert!(!all.available().has(Controller::Memory) && all.available().has(Controller::Cpu));

    // with a limit it degrades, without it nothing is said
    fake.put("sys/fs/cgroup/a/cgroup.procs", "");
    let (group, _) = all.create("a", Controllers::usual()).unwrap();
    assert_eq!(group.limits(&Limits::default()).unwrap(), []);
    let lost = group.limits(&Limits { memory_max: Some(1 << 25), ..Limits::default() }).unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].setting, "memory limit");
    assert!(lost[0].reason.contains("cgroup_disable=memory"), "{}", lost[0].reason);
}

#[test]
fn memory_controller_off_on_v1_is_seen_from_the_mounts() {
    let fake = Fake::new();
    fake.unpack(&case("C-CGR-01/v1.txt"));
    for dir in ["cpuset", "cpu,cpuacct", "devices", "unified"] {
        fs::create_dir_all(fake.0.join("sys/fs/cgroup").join(dir)).unwrap();
    }
    let all = Cgroups::open(&fake.0).unwrap();
    assert_eq!(all.flavour(), Flavour::Hybrid);
    assert!(all.missing().iter().any(|m| m.controller == Controller::Memory));
    assert!(all.available().has(Controller::CpuAccounting));

    fake.put("proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t39\t0\n");
    fake.put("proc/cmdline", "console=tty1 quiet\n");
    let all = Cgroups::open(&fake.0).unwrap();
    let memory = all.missing().iter().find(|m| m.controller == Controller::Memory).unwrap();
    assert!(memory.hint.contains("add 'cgroup_enable=memory'"), "{}", memory.hint);
    assert!(memory.hint.contains("console=tty1 quiet"), "{}", memory.hint);
}

#[test]
fn without_bandwidth_control_only_a_cpu_limit_degrades() {
    let fake = Fake::new();
    fake.unpack(&case("C-CGR-02/cg.txt"));
    let all = Cgroups::open(&fake.0).unwrap();
    let (group, _) = all.create("x", Controllers::usual()).unwrap();
    let shares = Limits { cpu_shares: Some(1024), weight_rule: WeightRule::Linear, ..Limits::default() };
    assert_eq!(group.limits(&shares).unwrap(), []);
    assert_eq!(fake.get("sys/fs/cgroup/x/cpu.weight"), "39");

    let half =
        Limits { cpu_quota_us: Some(50_000), cpu_period_us: Some(100_000), cpu_shares: Some(512), ..shares };
    let lost = group.limits(&half).unwrap();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].setting, "cpu limit");
    assert!(lost[0].reason.contains("cpu.max"), "{}", lost[0].reason);
    assert_eq!(fake.get("sys/fs/cgroup/x/cpu.weight"), "20", "shares are still set");
}

/// A v2 tree as the kernel would make it: every group with its files.
fn v2_tree(fake: &Fake, groups: &[&str]) {
    fake.put("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    fake.put("proc/sys/kernel/osrelease", "6.1.0-18-arm64\n");
    fake.put(
        "proc/cgroups",
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t39\t1\ncpu\t0\t39\t1\n",
    );
    fake.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    fake.put("sys/fs/cgroup/cgroup.subtree_control", "");
    for group in groups {
        let put = |file: &str, text: &str| fake.put(&format!("sys/fs/cgroup/{group}/{file}"), text);
        put("cgroup.controllers", "");
        put("cgroup.subtree_control", "");
        put("cgroup.type", "domain\n");
        put("cgroup.procs", "");
    }
}

#[test]
fn controllers_are_handed_down_the_whole_path() {
    let fake = Fake::new();
    v2_tree(&fake, &["a", "a/b", "a/b/c"]);
    let all = Cgroups::open(&fake.0).unwrap();
    let (_, lost) = all.create("a/b/c", Controllers::of(&[Controller::Cpu, Controller::Memory])).unwrap();
    assert_eq!(lost, []);
    for above in ["", "a/", "a/b/"] {
        let words = fake.get(&format!("sys/fs/cgroup/{above}cgroup.subtree_control"));
        assert_eq!(words, "+cpu +memory", "{above}");
    }
    assert_eq!(fake.get("sys/fs/cgroup/a/b/c/cgroup.subtree_control"), "", "the leaf keeps its processes");
}

#[test]
fn a_threaded_group_is_refused() {
    let fake = Fake::new();
    v2_tree(&fake, &["a", "a/b"]);
    fake.put("sys/fs/cgroup/a/b/cgroup.type", "domain invalid\n");
    let all = Cgroups::open(&fake.0).unwrap();
    let wanted = Controllers::of(&[Controller::Memory]);
    let error = all.create("a/b", wanted).err().unwrap();
    assert_eq!(error, Error::Threaded { path: "a/b".into(), kind: "domain invalid".into() });
}

#[test]
fn a_group_with_processes_hands_nothing_down() {
    let fake = Fake::new();
    v2_tree(&fake, &["a", "a/b"]);
    fake.put("sys/fs/cgroup/a/cgroup.procs", "7\n9\n");
    let all = Cgroups::open(&fake.0).unwrap();
    let error = all.create("a/b", Controllers::of(&[Controller::Cpuset])).err().unwrap();
    assert_eq!(error, Error::Occupied { path: "a".into(), processes: 2 });
    assert_eq!(fake.get("sys/fs/cgroup/a/cgroup.subtree_control"), "", "and is not made threaded");
}

#[test]
fn a_missing_switch_file_is_told_with_the_group() {
    let fake = Fake::new();
    v2_tree(&fake, &["a", "a/b"]);
    fs::remove_file(fake.0.join("sys/fs/cgroup/a/cgroup.subtree_control")).unwrap();
    let all = Cgroups::open(&fake.0).unwrap();
    let (_, lost) = all.create("a/b", Controllers::of(&[Controller::Pids])).unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].setting, "pids controller");
    assert!(lost[0].reason.contains("'a'"), "{}", lost[0].reason);
}

#[test]
fn usage_and_out_of_memory_are_read_on_v2() {
    let fake = Fake::new();
    v2_tree(&fake, &["a"]);
    let put = |file: &str, text: &str| fake.put(&format!("sys/fs/cgroup/a/{file}"), text);
    put("cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_throttled 1\nthrottled_usec 7\n");
    put("memory.current", "10485760\n");
    put("memory.stat", "anon 4096\nfile 8192\ninactive_file 485760\npgfault 12\npgmajfault 3\n");
    put("pids.current", "4\n");
    put("memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n");
    put("cgroup.events", "populated 1\nfrozen 0\n");
    let group = Cgroups::open(&fake.0).unwrap().group("a").unwrap();
    let expected = Usage {
        cpu_ns: Some(1_500_000),
        cpu_throttled_ns: Some(7000),
        memory_bytes: Some(10_485_760),
        working_set_bytes: Some(10_000_000),
        rss_bytes: Some(4096),
        page_faults: Some(12),
        major_page_faults: Some(3),
        pids: Some(4),
    };
    assert_eq!(group.usage().unwrap(), expected);
    assert_eq!(group.oom_kills().unwrap(), Some(1));
    assert!(group.populated().unwrap());
    put("cgroup.events", "populated 0\nfrozen 0\n");
    assert!(!group.populated().unwrap());
}

#[test]
fn paths_that_leave_the_tree_are_refused() {
    let fake = Fake::new();
    v2_tree(&fake, &[]);
    let all = Cgroups::open(&fake.0).unwrap();
    for path in ["", "/a", "a/../b", "..", "a//b", "a/", "./a", "a\0b"] {
        assert!(matches!(all.group(path), Err(Error::Path { .. })), "{path:?}");
    }
    symlink("/", fake.0.join("sys/fs/cgroup/out")).unwrap();
    assert!(all.group("out").is_ok(), "the kernel makes no links in its trees");
}

#[test]
fn nothing_mounted_is_an_error_with_a_way_out() {
    let fake = Fake::new();
    let error = Cgroups::open(&fake.0).err().unwrap();
    assert_eq!(error, Error::NoHierarchy);
    assert!(error.to_string().contains("mount -t cgroup2"));
}

// ---- this machine's kernel

/// A group of our own below a name nobody else has; removed with everything in it.
struct Real {
    all: Cgroups,
    top: Group,
    /// root folder of [`Real::v1_only`], behind which the paths to join lie
    _root: Option<Fake>,
}

impl Real {
    /// `None` where the test cannot run.
    fn new() -> Option<Self> {
        if crate::linux::sys::euid() != 0 {
            println!("skipped: needs root");
            return None;
        }
        Self::at(Path::new("/"))
    }

    /// The machine's v1 hierarchies as if there were no v2 one beside them.
    fn v1_only() -> Option<Self> {
        if crate::linux::sys::euid() != 0 {
            println!("skipped: needs root");
            return None;
        }
        let fake = Fake::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let v1: Vec<&str> = mounts.lines().filter(|l| l.contains(" - cgroup ")).collect();
        if v1.is_empty() {
            println!("skipped: no v1 hierarchies");
            return None;
        }
        fake.put("proc/self/mountinfo", &v1.join("\n"));
        fs::create_dir_all(fake.0.join("sys/fs")).unwrap();
        symlink("/sys/fs/cgroup", fake.0.join("sys/fs/cgroup")).unwrap();
        let mut real = Self::at(&fake.0)?;
        assert_eq!(real.all.flavour(), Flavour::V1);
        real._root = Some(fake);
        Some(real)
    }

    fn at(root: &Path) -> Option<Self> {
        let Ok(all) = Cgroups::open(root) else {
            println!("skipped: no control groups here");
            return None;
        };
        let name = format!("cgt-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        match all.create(&name, Controllers::usual()) {
            Ok((top, lost)) => {
                println!("{:?}, lost: {lost:?}", all.flavour());
                Some(Self { all, top, _root: None })
            }
            Err(e) => {
                println!("skipped: {e}");
                None
            }
        }
    }

    fn group(&self, name: &str) -> Group {
        self.all.create(&format!("{}/{name}", self.top.path()), Controllers::usual()).unwrap().0
    }

    fn has(&self, c: Controller) -> bool {
        let has = self.all.available().has(c);
        if !has {
            println!("skipped: no {c} controller");
        }
        has
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.top.kill(Duration::from_secs(10)).ok();
        self.top.remove(Duration::from_secs(5)).unwrap();
    }
}

/// A shell that joins the group first and then goes on with the script.
fn run_in(group: &Group, script: &str) -> Child {
    let joins: Vec<String> =
        group.join_dirs().iter().map(|d| format!("echo $$ > {}/cgroup.procs", d.display())).collect();
    let script = format!("{} || exit 99; {script}", joins.join(" && "));
    Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the shell says that it is in.
fn wait_ready(child: &mut Child) {
    use std::io::Read;
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
}

/// The kernel tells through a work queue, a moment after the fact.
fn wait_readable(watcher: &Watcher) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    poll(&mut [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)], PollTimeout::from(10_000_u16)).unwrap();
}

#[test]
fn real_limits_are_in_force() {
    Real::new().inspect(limits_are_in_force);
}

#[test]
fn real_v1_limits_are_in_force() {
    Real::v1_only().inspect(limits_are_in_force);
}

fn limits_are_in_force(real: &Real) {
    let group = real.group("a/b");
    let limits = Limits {
        cpu_shares: Some(512),
        cpu_quota_us: Some(20_000),
        cpu_period_us: Some(100_000),
        cpuset_cpus: Some("0".into()),
        cpuset_mems: Some("0".into()),
        memory_max: Some((16 << 20) + 5),
        memory_swap_max: Some(0),
        pids_max: Some(7),
        hugetlb: if real.has(Controller::HugeTlb) { vec![(2 << 20, 0)] } else { vec![] },
        ..Limits::default()
    };
    assert_eq!(group.limits(&limits).unwrap(), []);
    assert_eq!(group.memory_max().unwrap(), Some(16 << 20));
    assert_eq!(group.effective_cpus().unwrap().as_deref(), Some("0"));
    // raise and lower again: the pairs have to move in the right order
    let more = Limits { memory_max: Some(64 << 20), memory_swap_max: Some(1 << 20), ..Limits::default() };
    assert_eq!(group.limits(&more).unwrap(), []);
    let less = Limits { memory_max: Some(8 << 20), memory_swap_max: Some(0), ..Limits::default() };
    assert_eq!(group.limits(&less).unwrap(), []);
    let none = Limits {
        memory_max: Some(UNLIMITED),
        memory_swap_max: Some(UNLIMITED),
        pids_max: Some(UNLIMITED),
        cpu_quota_us: Some(UNLIMITED),
        cpu_period_us: Some(50_000),
        ..Limits::default()
    };
    assert_eq!(group.limits(&none).unwrap(), []);
    assert_eq!(group.memory_max().unwrap(), None);

    let wrong = Limits { cpuset_cpus: Some("4000".into()), ..Limits::default() };
    assert!(matches!(group.limits(&wrong), Err(Error::Refused { .. })));
}

#[test]
fn real_group_is_killed_with_its_forks() {
    Real::new().inspect(group_is_killed_with_its_forks);
}

#[test]
fn real_v1_group_is_killed_with_its_forks() {
    Real::v1_only().inspect(group_is_killed_with_its_forks);
}

fn group_is_killed_with_its_forks(real: &Real) {
    let group = real.group("k");
    // v2 takes no processes where controllers are handed down, so they live in the leaves
    let one = real.group("k/one");
    let below = real.group("k/below");
    let mut child = run_in(&one, "sleep 1000 & sleep 1000 & echo; wait");
    let mut other = run_in(&below, "echo; sleep 1000");
    wait_ready(&mut child);
    wait_ready(&mut other);
    assert!(group.populated().unwrap());
    assert_eq!(group.procs().unwrap(), [0i32; 0]);
    assert!(one.procs().unwrap().len() >= 3);
    assert!(group.procs_below().unwrap().len() >= 4);
    assert!(group.usage().unwrap().pids.is_none_or(|n| n >= 4));
    assert_eq!(group.children().unwrap(), ["below", "one"]);
    assert!(matches!(group.remove(Duration::ZERO), Err(Error::Busy { .. })));

    let mut watcher = Watcher::new().unwrap();
    let watches = watcher.watch_empty(&group, 7).is_ok();
    let killer = {
        let group = group.clone();
        std::thread::spawn(move || group.kill(Duration::from_secs(20)))
    };
    // ours to reap, or they stay
    child.wait().unwrap();
    other.wait().unwrap();
    killer.join().unwrap().unwrap();
    assert!(!group.populated().unwrap());
    if watches {
        wait_readable(&watcher);
        assert_eq!(watcher.drain(), [(7, Happened::Population)]);
    }
    group.remove(Duration::from_secs(5)).unwrap();
    assert!(!group.exists());
    group.remove(Duration::ZERO).unwrap();
}

#[test]
fn real_out_of_memory_is_counted_and_told() {
    Real::new().inspect(out_of_memory_is_counted_and_told);
}

#[test]
fn real_v1_out_of_memory_is_counted_and_told() {
    Real::v1_only().inspect(out_of_memory_is_counted_and_told);
}

fn out_of_memory_is_counted_and_told(real: &Real) {
    if !real.has(Controller::Memory) {
        return;
    }
    let group = real.group("o");
    let limits = Limits { memory_max: Some(8 << 20), memory_swap_max: Some(0), ..Limits::default() };
    assert_eq!(group.limits(&limits).unwrap(), []);
    assert_eq!(group.oom_kills().unwrap(), Some(0));
    let mut watcher = Watcher::new().unwrap();
    watcher.watch_oom(&group, 3).unwrap();
    // a shell variable that doubles until there is no more
    let mut child = run_in(&group, "x=0123456789abcdef; while :; do x=$x$x; done");
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    wait_readable(&watcher);
    assert_eq!(watcher.drain(), [(3, Happened::Memory)]);
    assert!(group.oom_kills().unwrap() >= Some(1));
    watcher.forget(3);
}

#[test]
fn real_frozen_group_goes_on_after_the_thaw() {
    Real::new().inspect(frozen_group_goes_on_after_the_thaw);
}

#[test]
fn real_v1_frozen_group_goes_on_after_the_thaw() {
    Real::v1_only().inspect(frozen_group_goes_on_after_the_thaw);
}

fn frozen_group_goes_on_after_the_thaw(real: &Real) {
    let group = real.group("f");
    let mut child = run_in(&group, "echo; read x; exit 3");
    wait_ready(&mut child);
    if !group.freeze(true).unwrap() {
        println!("skipped: cannot freeze");
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    }
    assert!(child.try_wait().unwrap().is_none());
    assert!(group.freeze(false).unwrap());
    group.kill_now().unwrap();
    child.wait().unwrap();
}

/// What a shell in the group can open.
fn opens(group: &Group, device: &str) -> bool {
    run_in(group, &format!("exec 3<> {device}")).wait().unwrap().success()
}

#[test]
fn real_no_internal_processes() {
    let Some(real) = Real::new() else { return };
    let Some(tree) = real.all.unified() else {
        println!("skipped: no v2 hierarchy");
        return;
    };
    let Some(own) = tree.controllers.iter().next() else {
        println!("skipped: no controller in the v2 hierarchy");
        return;
    };
    // nothing is handed down to it, so it takes processes
    let (group, _) = real.all.create(&format!("{}/full", real.top.path()), Controllers::NONE).unwrap();
    let mut child = run_in(&group, "echo; read x");
    wait_ready(&mut child);
    let error = real.all.create(&format!("{}/below", group.path()), Controllers::of(&[own])).err().unwrap();
    assert_eq!(error, Error::Occupied { path: group.path().to_owned(), processes: 1 });
    group.kill_now().unwrap();
    child.wait().unwrap();
}

#[test]
fn real_device_rules_hold_and_are_exchanged() {
    let Some(real) = Real::new() else { return };
    // the same on v2 alone where there is a v2 hierarchy: all.devices picks the hierarchy of the controller
    let group = real.group("d");
    let full = DeviceRule { kind: DeviceKind::Char, major: Some(1), minor: Some(7), access: Access::ALL };
    let no_full: Vec<DeviceRule> = match DevicePolicy::usual(&[]) {
        DevicePolicy::Only(rules) => rules.into_iter().filter(|r| *r != full).collect(),
        DevicePolicy::All => unreachable!(),
    };
    assert!(opens(&group, "/dev/full"));
    assert_eq!(group.devices(&DevicePolicy::Only(no_full.clone())).unwrap(), []);
    assert!(opens(&group, "/dev/null") && !opens(&group, "/dev/full"));
    assert_eq!(group.devices(&DevicePolicy::usual(&[])).unwrap(), []);
    assert!(opens(&group, "/dev/full") && opens(&group, "/dev/zero"));
    assert_eq!(group.devices(&DevicePolicy::All).unwrap(), []);
    assert!(opens(&group, "/dev/full"));
}

#[test]
fn real_device_program_holds_and_is_exchanged() {
    let Some(real) = Real::new() else { return };
    // in a hybrid set-up the v2 hierarchy takes programs, too: what v1 allows is then cut by them
    let Some(tree) = real.all.unified() else {
        println!("skipped: no v2 hierarchy");
        return;
    };
    let group = real.group("p");
    let null = DeviceRule { kind: DeviceKind::Char, major: Some(1), minor: Some(3), access: Access::ALL };
    let full = DeviceRule { minor: Some(7), access: Access { mknod: false, ..Access::ALL }, ..null };
    let read_full = DeviceRule { access: Access { read: true, write: false, mknod: false }, ..full };
    if let Err((step, errno)) = group.devices_v2(tree, &DevicePolicy::Only(vec![null])) {
        println!("skipped: no device programs ({step}: {errno})");
        return;
    }
    assert!(opens(&group, "/dev/null") && !opens(&group, "/dev/full"));
    group.devices_v2(tree, &DevicePolicy::Only(vec![null, read_full])).unwrap();
    assert!(!opens(&group, "/dev/full"), "reading alone is allowed");
    assert!(run_in(&group, "exec 3< /dev/full").wait().unwrap().success());
    group.devices_v2(tree, &DevicePolicy::Only(vec![full])).unwrap();
    assert!(opens(&group, "/dev/full") && !opens(&group, "/dev/null"));
    group.devices_v2(tree, &DevicePolicy::All).unwrap();
    assert!(opens(&group, "/dev/full") && opens(&group, "/dev/null") && opens(&group, "/dev/zero"));
}
