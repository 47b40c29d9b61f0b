//! Namespaces of a pod.

use podkeep::container::setup;
use podkeep::container::spec::{Namespace, SandboxSpec};

use crate::Test;
use crate::world::{MAP, With, World, finish, host, usual};

pub(crate) const TESTS: &[Test] = &[
    ("sandbox_namespaces_are_shared_and_set", namespaces_are_shared_and_set),
    ("sandbox_sysctls", sysctls),
    ("sandbox_of_the_host_makes_nothing", host_makes_nothing),
    ("sandbox_removed_leaves_nothing", removed_leaves_nothing),
    ("sandbox_reaper_reaps_orphans", reaper_reaps_orphans),
    ("sandbox_reaper_is_small_and_powerless", reaper_is_small_and_powerless),
    ("sandbox_user_namespace_with_reaper", user_namespace_with_reaper),
];

fn namespaces_are_shared_and_set() {
    let mut world = World::new();
    world.usual_sandbox();
    let script = "hostname; ifconfig lo | grep -o -e UP -e 'inet addr:[0-9.]*'; for n in net ipc uts; do readlink /proc/self/ns/$n; done";
    let first = world.sh(script);
    assert!(first.starts_with("pod-1\n"), "{first}");
    assert!(first.contains("inet addr:127.0.0.1\nUP\n"), "{first}");
    assert_eq!(world.sh(script), first, "a second container sees the same namespaces");
    let (_, own) = host("readlink /proc/self/ns/net");
    assert!(!first.contains(own.trim()), "the network is not the host's");
}

fn sysctls() {
    let mut world = World::new();
    let mut spec = usual();
    spec.sysctls = vec![
        ("net.ipv4.ip_unprivileged_port_start".into(), "77".into()),
        ("kernel.shm_rmid_forced".into(), "1".into()),
    ];
    world.sandbox(&spec).unwrap();
    let out = world.sh("cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced");
    assert_eq!(out, "77\n1\n");
    let (_, own) = host("cat /proc/sys/net/ipv4/ip_unprivileged_port_start");
    assert_ne!(own, "77\n");
    let mut spec = usual();
    spec.sysctls = vec![("net.no.such".into(), "1".into())];
    let failure = setup::create_sandbox(&spec, &world.run().join("s/two")).unwrap_err();
    assert_eq!(failure.to_string(), "sysctl 'net.no.such': No such file or directory");
}

fn host_makes_nothing() {
    let mut world = World::new();
    let spec = SandboxSpec {
        net: Namespace::Host,
        ipc: Namespace::Host,
        pid: Namespace::Host,
        ..SandboxSpec::default()
    };
    let made = world.sandbox(&spec).unwrap();
    assert!(made.reaper_pid == 0 && made.reaper_pidfd.is_none());
    assert_eq!(std::fs::read_dir(world.sandbox_dir()).unwrap().count(), 0);
    let script = "for n in net ipc uts pid; do readlink /proc/self/ns/$n; done";
    let mut spec = world.spec(script);
    (spec.net, spec.ipc, spec.uts, spec.pid) =
        (Namespace::Host, Namespace::Host, Namespace::Host, Namespace::Host);
    let ran = world.run_spec(&spec).unwrap();
    let (_, own) = host(script);
    assert_eq!(ran.out, own);
}

fn removed_leaves_nothing() {
    let mut world = World::new();
    world.usual_sandbox();
    let dir = world.sandbox_dir();
    let mounts =
        || std::fs::read_to_string("/proc/self/mountinfo").unwrap().matches(dir.to_str().unwrap()).count();
    assert_eq!(mounts(), 3);
    setup::remove_sandbox(&dir).unwrap();
    assert_eq!(mounts(), 0);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    setup::remove_sandbox(&dir).unwrap();
}

fn reaper_reaps_orphans() {
    let mut world = World::new();
    let made = world.sandbox(&usual().with_pid(Namespace::Sandbox)).unwrap();
    assert!(made.reaper_pid > 0);
    // the second shell ends before its child: the child is the reaper's then
    let mut spec = world.spec("cat /proc/1/comm; (sh -c 'sleep 0.05 & echo $!' ) > /tmp/pid; p=$(cat /tmp/pid); grep PPid /proc/$p/status; while test -d /proc/$p; do sleep 0.01; done; echo gone");
    spec.pid = Namespace::Sandbox;
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!(ran.out, "podkeep-reaper\nPPid:\t1\ngone\n");
}

fn reaper_is_small_and_powerless() {
    let mut world = World::new();
    let ballast = vec![7_u8; 4 << 20];
    let made = world.sandbox(&usual().with_pid(Namespace::Sandbox)).unwrap();
    let ballast: Vec<u8> = ballast.into_iter().map(|byte| byte + 1).collect();
    assert_eq!(ballast.len(), 4 << 20);
    let pid = made.reaper_pid;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let of = |name: &str| -> u64 {
        let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    };
    println!("[reaper: PSS {} KiB, private dirty {} KiB]", of("Pss:"), of("Private_Dirty:"));
    assert!(of("Private_Dirty:") <= 64, "{rollup}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["Uid:\t65535\t65535\t65535\t65535", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} in {status}");
    }
    let (_, fds) = host(&format!("ls -l /proc/{pid}/fd | grep -v /dev/null; ls /proc/{pid}/root/"));
    assert_eq!(fds.trim(), "total 0", "nothing open but /dev/null, and an empty root");
}

fn user_namespace_with_reaper() {
    let mut world = World::new();
    let mut spec = usual().with_pid(Namespace::Sandbox);
    spec.user = Some(MAP);
    let made = world.sandbox(&spec).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", made.reaper_pid)).unwrap();
    let id = MAP.host_base + 65535;
    assert!(status.contains(&format!("Uid:\t{id}\t")), "{status}");
    let mut spec = world.spec("id -u; cat /proc/self/uid_map | tr -s ' '; cat /proc/1/comm");
    (spec.user, spec.pid) = (Some(MAP), Namespace::Sandbox);
    let (started, out) = match world.start(&spec) {
        Err(failure) if failure.step.contains("idmapped") => {
            println!("skipped: {failure}");
            return;
        }
        started => started.unwrap(),
    };
    let ran = finish(started, out);
    assert_eq!(ran.out, format!("0\n 0 {} {}\npodkeep-reaper\n", MAP.host_base, MAP.size));
}
