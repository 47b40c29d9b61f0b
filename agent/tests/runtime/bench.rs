//! What a start costs, beside `crun run` of the same root, program and namespaces. Run with `--ignored bench`.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{UsageWho, getrusage};
use podkeep::container::setup;
use podkeep::container::spec::{MountKind, Namespace};

use crate::Test;
use crate::world::{World, finish, host, kind, piped, readonly, stop};

pub(crate) const TESTS: &[Test] =
    &[("bench_start_beside_crun", start_beside_crun), ("bench_sandbox", sandbox), ("bench_exec", exec)];

const ROUNDS: u32 = 60;

/// CPU time of all children that were waited for.
fn cpu() -> Duration {
    let usage = |who| {
        let usage = getrusage(who).unwrap();
        let part = |time: nix::sys::time::TimeVal| {
            Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap())
        };
        part(usage.user_time()) + part(usage.system_time())
    };
    usage(UsageWho::RUSAGE_CHILDREN) + usage(UsageWho::RUSAGE_SELF)
}

struct Cost {
    walls: Vec<Duration>,
    cpu: Duration,
}

impl Cost {
    fn of(mut run: impl FnMut()) -> Self {
        let mut walls = Vec::new();
        let before = cpu();
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            run();
            walls.push(begin.elapsed());
        }
        walls.sort();
        Self { walls, cpu: (cpu() - before) / ROUNDS }
    }

    fn median(&self) -> Duration {
        self.walls[self.walls.len() / 2]
    }

    fn print(&self, name: &str) {
        println!("  {name}: wall min {:?}, median {:?}; cpu {:?}", self.walls[0], self.median(), self.cpu);
    }
}

fn ratio(ours: Duration, theirs: Duration) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64()
}

fn start_beside_crun() {
    let mut world = World::new();
    world.usual_sandbox();
    let cgroups = own_cgroups(&world);
    let mut specs: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let mut spec = world.spec("");
            spec.process.args = vec!["/bin/busybox".into(), "true".into()];
            spec.cgroups.clone_from(&cgroups);
            spec.masked_paths =
                ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"]
                    .map(str::to_owned)
                    .to_vec();
            spec.readonly_paths =
                ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"].map(str::to_owned).to_vec();
            spec.mounts = vec![
                kind("/proc", MountKind::Proc),
                kind("/dev/pts", MountKind::Devpts),
                kind("/dev/shm", MountKind::Tmpfs { size: 64 << 20, mode: 0o1777 }),
                kind("/dev/mqueue", MountKind::Mqueue),
                readonly(kind("/sys", MountKind::Sysfs)),
                readonly(kind("/sys/fs/cgroup", MountKind::Cgroup)),
            ];
            spec.cgroup_ns = Namespace::Container;
            spec
        })
        .collect();
    println!();
    let ours = Cost::of(|| {
        let (started, out) = world.start(&specs.pop().unwrap()).unwrap();
        assert_eq!(finish(started, out).code, 0);
    });
    ours.print("podkeep, start to end of the program");
    for cgroup in &cgroups {
        fs::remove_dir(cgroup).unwrap();
    }
    let home = fs::File::open("/proc/self/ns/mnt").unwrap();
    hide_unified();
    let theirs = crun(&world);
    setns(home, CloneFlags::CLONE_NEWNS).unwrap();
    let Some(theirs) = theirs else { return };
    theirs.print("crun run");
    println!(
        "  ratio: wall {:.2}, cpu {:.2}",
        ratio(ours.median(), theirs.median()),
        ratio(ours.cpu, theirs.cpu)
    );
    assert!(ours.median() < theirs.median(), "slower than crun");
    assert!(ours.cpu < theirs.cpu, "more CPU than crun");
}

/// One group a v1 hierarchy where they are, or one on v2.
fn own_cgroups(world: &World) -> Vec<std::path::PathBuf> {
    let name = world.dir.file_name().unwrap();
    let mut made = Vec::new();
    for hierarchy in ["cpu", "memory", "pids", "devices", "freezer", "cpuset", "blkio", ""] {
        let top = Path::new("/sys/fs/cgroup").join(hierarchy);
        let is_group = top.join("cgroup.procs").exists() && (!hierarchy.is_empty() || made.is_empty());
        if is_group && fs::create_dir(top.join(name)).is_ok() {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(text) = fs::read_to_string(top.join(file)) {
                    let _given = fs::write(top.join(name).join(file), text);
                }
            }
            made.push(top.join(name));
        }
    }
    made
}

/// crun refuses a v1 host that has a v2 tree beside it: it gets a view of the host without.
fn hide_unified() {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let _there = umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH);
}

/// The same root, program and namespaces.
fn crun(world: &World) -> Option<Cost> {
    if !Path::new("/usr/bin/crun").exists() {
        println!("  skipped: no crun to compare with");
        return None;
    }
    let bundle = world.dir.join("bundle");
    fs::create_dir_all(&bundle).unwrap();
    let (code, out) =
        host(&format!("cd {} && crun spec && cp -a {} rootfs", bundle.display(), world.layer().display()));
    assert_eq!(code, 0, "{out}");
    let config = fs::read_to_string(bundle.join("config.json")).unwrap();
    let config = config
        .replace("\"terminal\": true", "\"terminal\": false")
        .replace("\"sh\"", "\"/bin/busybox\", \"true\"");
    fs::write(bundle.join("config.json"), config).unwrap();
    let name = format!("bench-{}", std::process::id());
    let run = || {
        Command::new("crun")
            .args(["run", "--bundle"])
            .arg(&bundle)
            .arg(&name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .unwrap()
    };
    let first = run();
    if !first.status.success() {
        println!("  skipped: crun says {}", String::from_utf8_lossy(&first.stderr).trim());
        return None;
    }
    Some(Cost::of(|| assert!(run().status.success())))
}

fn sandbox() {
    let mut world = World::new();
    println!();
    let cost = Cost::of(|| {
        world.usual_sandbox();
        setup::remove_sandbox(&world.sandbox_dir()).unwrap();
    });
    cost.print("sandbox of net, ipc and uts, made and removed");
}

/// What an exec probe costs.
fn exec() {
    let mut world = World::new();
    world.usual_sandbox();
    let (target, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    let mut process = world.spec("").process;
    process.args = vec!["/bin/busybox".into(), "true".into()];
    println!();
    let cost = Cost::of(|| {
        let (read, stdio) = piped();
        let started = setup::exec(&process, target.pid, target.pidfd.as_fd(), &[], stdio).unwrap();
        assert_eq!(finish(started, read).code, 0);
    });
    cost.print("exec, start to end of the program");
    stop(&target);
}
