//! Mounts: kinds, flags, propagation, sub paths, masks, and attempts to lead them out of the root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podkeep::container::spec::{MountKind, MountSpec, Namespace, Propagation};

use crate::Test;
use crate::world::{World, bind, finish, kind, readonly, stop};

pub(crate) const TESTS: &[Test] = &[
    ("files_every_kind_of_mount", every_kind_of_mount),
    ("files_flags_and_readonly", flags_and_readonly),
    ("files_recursive_readonly", recursive_readonly),
    ("files_targets_are_made", targets_are_made),
    ("files_target_links_stay_inside", target_links_stay_inside),
    ("files_sub_path", sub_path),
    ("files_sub_path_cannot_leave", sub_path_cannot_leave),
    ("files_masked_and_protected", masked_and_protected),
    ("files_mask_through_a_link", mask_through_a_link),
    ("files_propagation", propagation),
    ("files_propagation_on_a_private_mount", propagation_on_a_private_mount),
    ("files_missing_source_fails_by_name", missing_source_fails_by_name),
    ("files_order_is_kept", order_is_kept),
    ("files_cgroup_view", cgroup_view),
];

fn world() -> World {
    let mut world = World::new();
    world.usual_sandbox();
    world
}

fn with_bind(
    mut mount: MountSpec,
    change: impl FnOnce(&mut Option<String>, &mut bool, &mut Propagation, &mut bool),
) -> MountSpec {
    if let MountKind::Bind { sub_path, create_sub_path, propagation, recursive_readonly, .. } =
        &mut mount.kind
    {
        change(sub_path, create_sub_path, propagation, recursive_readonly);
    }
    mount
}

fn sub(mount: MountSpec, path: &str, create: bool) -> MountSpec {
    with_bind(mount, |sub_path, create_sub_path, _, _| {
        *sub_path = Some(path.into());
        *create_sub_path = create;
    })
}

fn every_kind_of_mount() {
    let world = world();
    let mut spec = world
        .spec("grep -v -e ' / / ' /proc/self/mountinfo | cut -d' ' -f5- | tr -s ' '; stat -c %a /dev/shm");
    spec.mounts = vec![
        kind("/proc", MountKind::Proc),
        kind("/dev/pts", MountKind::Devpts),
        kind("/dev/shm", MountKind::Tmpfs { size: 1 << 20, mode: 0o1777 }),
        kind("/dev/mqueue", MountKind::Mqueue),
        readonly(kind("/sys", MountKind::Sysfs)),
    ];
    let out = world.run_spec(&spec).unwrap().out;
    for expected in [
        "/proc rw,nosuid,nodev,noexec,relatime - proc ",
        "/dev/pts rw,nosuid,nodev,noexec,relatime - devpts none rw,gid=5,mode=620,ptmxmode=666",
        "/dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs none rw,size=1024k",
        "/dev/mqueue rw,nosuid,nodev,noexec,relatime - mqueue ",
        "/sys ro,nosuid,nodev,noexec,relatime - sysfs ",
    ] {
        assert!(out.contains(expected), "{expected} in {out}");
    }
    assert!(out.ends_with("1777\n"), "{out}");
    // no line says shared or master
    assert!(!out.contains("shared:") && !out.contains("master:"), "{out}");
}

fn volume(world: &World, name: &str) -> std::path::PathBuf {
    let volume = world.dir.join(name);
    fs::create_dir_all(volume.join("sub/er")).unwrap();
    fs::write(volume.join("file"), "in the volume\n").unwrap();
    volume
}

fn flags_and_readonly() {
    let world = world();
    let volume = volume(&world, "volume");
    let mut spec = world.spec("touch /ro/x; touch /rw/x && echo written; cat /file; grep -e /ro -e /rw /proc/self/mountinfo | cut -d' ' -f5,6");
    let mut rw = bind(&volume, "/rw");
    (rw.nosuid, rw.nodev, rw.noexec) = (true, true, true);
    spec.mounts.extend([readonly(bind(&volume, "/ro")), rw, readonly(bind(&volume.join("file"), "/file"))]);
    let out = world.run_spec(&spec).unwrap().out;
    assert_eq!(
        out,
        "touch: /ro/x: Read-only file system\nwritten\nin the volume\n/ro ro,relatime\n/rw rw,nosuid,nodev,noexec,relatime\n"
    );
    assert!(volume.join("x").exists());
}

/// A mount of the host that goes with the test.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(at: &Path) -> Self {
        mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

fn recursive_readonly() {
    if crate::old_kernel::is_old() {
        println!("skipped: recursive read-only needs mount_setattr");
        return;
    }
    let world = world();
    let volume = volume(&world, "volume");
    let _below = Mounted::tmpfs(&volume.join("sub"));
    let mut spec =
        world.spec("touch /plain/x; touch /plain/sub/x && echo below; touch /all/x; touch /all/sub/x");
    spec.mounts.push(readonly(bind(&volume, "/plain")));
    spec.mounts.push(with_bind(readonly(bind(&volume, "/all")), |_, _, _, recursive| *recursive = true));
    let out = world.run_spec(&spec).unwrap().out;
    assert_eq!(
        out,
        "touch: /plain/x: Read-only file system\nbelow\ntouch: /all/x: Read-only file system\ntouch: /all/sub/x: Read-only file system\n"
    );
}

fn targets_are_made() {
    let world = world();
    let volume = volume(&world, "volume");
    let mut spec = world.spec("cat /new/deep/name /volume/inner/f; stat -c '%F %a' /new/deep /other/folder");
    spec.mounts.extend([
        bind(&volume.join("file"), "/new/deep/name"),
        bind(&volume, "/volume"),
        bind(&volume.join("file"), "/volume/inner/f"),
        bind(&volume, "/other/folder"),
    ]);
    let out = world.run_spec(&spec).unwrap().out;
    assert_eq!(out, "in the volume\nin the volume\ndirectory 755\ndirectory 755\n");
    // a target in a volume is made there
    assert!(volume.join("inner/f").is_file());
    let mut spec = world.spec("true");
    spec.mounts.push(bind(&volume, "/etc/plain"));
    assert_eq!(world.run_spec(&spec).unwrap_err().to_string(), "mount '/etc/plain': Not a directory");
    let mut spec = world.spec("true");
    spec.mounts.push(bind(&volume.join("file"), "/etc"));
    assert_eq!(world.run_spec(&spec).unwrap_err().to_string(), "mount '/etc': Is a directory");
}

fn target_links_stay_inside() {
    let world = world();
    let outside = world.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    let volume = volume(&world, "volume");
    let layer = world.layer();
    symlink(&outside, layer.join("absolute")).unwrap();
    symlink("../../../../../../../..".to_owned() + outside.to_str().unwrap(), layer.join("relative"))
        .unwrap();
    // a volume of the pod may hold links made by an earlier container
    symlink(&outside, volume.join("trap")).unwrap();
    symlink("/proc/self/root/..", layer.join("magic")).unwrap();
    let mut spec = world.spec(&format!("cat {0}/a/file {0}/b/file; ls {0}", outside.display()));
    spec.mounts.extend([
        bind(&volume, "/absolute/a"),
        bind(&volume, "/relative/b"),
        bind(&volume, "/volume"),
        bind(&volume, "/volume/trap/c"),
    ]);
    let out = world.run_spec(&spec).unwrap().out;
    assert_eq!(out, "in the volume\nin the volume\na\nb\nc\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing was made outside");
    let mut spec = world.spec("true");
    spec.mounts.push(bind(&volume, "/magic/x"));
    // followed as text inside, or refused: never through the kernel's shortcut
    let _either = world.run_spec(&spec);
    assert!(!Path::new("/x").exists());
}

fn sub_path() {
    let world = world();
    let volume = volume(&world, "volume");
    fs::write(volume.join("sub/er/deep"), "deep\n").unwrap();
    symlink("sub/er", volume.join("link")).unwrap();
    let mut spec = world.spec("cat /one /two/deep /three/deep; ls -A /four");
    spec.mounts.extend([
        sub(bind(&volume, "/one"), "file", false),
        sub(bind(&volume, "/two"), "sub/er", false),
        sub(bind(&volume, "/three"), "link", false),
        sub(bind(&volume, "/four"), "made/here", true),
    ]);
    assert_eq!(world.run_spec(&spec).unwrap().out, "in the volume\ndeep\ndeep\n");
    assert!(volume.join("made/here").is_dir());
    let mut spec = world.spec("true");
    spec.mounts.push(sub(bind(&volume, "/x"), "absent", false));
    assert_eq!(world.run_spec(&spec).unwrap_err().to_string(), "subPath 'absent': No such file or directory");
}

fn sub_path_cannot_leave() {
    let world = world();
    let volume = volume(&world, "volume");
    fs::write(world.dir.join("secret"), "secret").unwrap();
    symlink("/etc", volume.join("absolute")).unwrap();
    symlink("../secret", volume.join("relative")).unwrap();
    symlink("..", volume.join("up")).unwrap();
    for path in [
        "absolute",
        "absolute/passwd",
        "relative",
        "up",
        "../secret",
        "sub/../../secret",
        "/etc/passwd",
        "up/made",
    ] {
        for create in [false, true] {
            let mut spec = world.spec("cat /x; ls /x");
            spec.mounts.push(sub(bind(&volume, "/x"), path, create));
            let failure = world.run_spec(&spec).unwrap_err();
            assert_eq!(
                (failure.step.as_str(), failure.errno),
                ("subPath", nix::libc::EXDEV),
                "{path} {create}"
            );
        }
    }
    assert!(!world.dir.join("made").exists());
}

fn masked_and_protected() {
    let world = world();
    let mut spec = world.spec("cat /proc/keys /etc/plain; ls -A /sys/firmware /etc/folder; touch /etc/folder/x; echo x > /etc/plain; echo 1 > /proc/sys/vm/swappiness; touch /tmp/kept/x; touch /tmp/x && echo tmp; grep -c -e '/proc/keys ' -e /proc/sys /proc/self/mountinfo");
    fs::create_dir_all(world.layer().join("etc/folder")).unwrap();
    fs::write(world.layer().join("etc/folder/secret"), "").unwrap();
    fs::create_dir_all(world.layer().join("tmp/kept")).unwrap();
    spec.masked_paths =
        ["/proc/keys", "/etc/plain", "/etc/folder", "/sys/firmware", "/no/such"].map(str::to_owned).to_vec();
    spec.readonly_paths = ["/proc/sys", "/tmp/kept", "/no/such"].map(str::to_owned).to_vec();
    let out = world.run_spec(&spec).unwrap().out;
    assert!(!out.contains("not a program") && !out.contains("secret"), "{out}");
    assert!(out.contains("touch: /etc/folder/x: Read-only file system\n"), "{out}");
    assert!(out.contains("can't create /proc/sys/vm/swappiness: Read-only file system\n"), "{out}");
    assert!(out.contains("touch: /tmp/kept/x: Read-only file system\ntmp\n"), "{out}");
    assert!(out.ends_with("2\n"), "{out}");
}

/// An image's own link in the place of /dev/null or of a masked path leads nowhere else.
fn mask_through_a_link() {
    let world = world();
    let outside = world.dir.join("outside");
    fs::write(&outside, "still here\n").unwrap();
    symlink(&outside, world.layer().join("etc/masked")).unwrap();
    let mut spec = world.spec("stat -L -c %F /etc/masked; echo $?");
    spec.masked_paths = vec!["/etc/masked".into()];
    assert!(world.run_spec(&spec).unwrap().out.ends_with("1\n"));
    assert_eq!(fs::read_to_string(&outside).unwrap(), "still here\n");
}

fn propagation() {
    let world = world();
    let shared = world.dir.join("shared");
    fs::create_dir_all(&shared).unwrap();
    let _shared = Mounted::tmpfs(&shared);
    mount(None::<&str>, &shared, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
    for name in ["late", "back", "quiet"] {
        fs::create_dir(shared.join(name)).unwrap();
    }
    let with = |target: &str, to: Propagation| {
        with_bind(bind(&shared, target), |_, _, propagation, _| *propagation = to)
    };
    let mut spec = world.spec(
        "echo ready; until test -e /slave/late/mark; do sleep 0.01; done; ls /private/late; mount -t tmpfs none /shared/back && touch /shared/back/mark; mount -t tmpfs none /slave/quiet; grep -o -e '/private rw,relatime.*tmpfs' -e '/slave rw,relatime master' -e '/shared rw,relatime shared' /proc/self/mountinfo | cut -d' ' -f1-3; echo done; sleep 1000",
    );
    let sets = &mut spec.process.capabilities;
    let all = crate::world::DEFAULT_CAPS | 1 << 21;
    (sets.bounding, sets.permitted, sets.effective) = (all, all, all);
    spec.mounts.extend([
        with("/private", Propagation::Private),
        with("/slave", Propagation::Slave),
        with("/shared", Propagation::Shared),
    ]);
    let (started, out) = world.start(&spec).unwrap();
    let mut out = std::io::BufReader::new(fs::File::from(out));
    let mut until = |word: &str| {
        let mut text = String::new();
        while !text.ends_with(word) {
            assert!(std::io::BufRead::read_line(&mut out, &mut text).unwrap() > 0, "{text}");
        }
        text
    };
    until("ready\n");
    let late = Mounted::tmpfs(&shared.join("late"));
    fs::write(shared.join("late/mark"), "").unwrap();
    let seen = until("done\n");
    let mut lines: Vec<&str> = seen.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["/private rw,relatime -", "/shared rw,relatime shared", "/slave rw,relatime master", "done"]
    );
    assert!(shared.join("back/mark").exists(), "Bidirectional reaches the host");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(shared.join("quiet").to_str().unwrap()), "HostToContainer does not");
    umount2(&shared.join("back"), MntFlags::MNT_DETACH).unwrap();
    drop(late);
    stop(&started);
}

fn propagation_on_a_private_mount() {
    let world = world();
    let private = world.dir.join("private");
    fs::create_dir_all(&private).unwrap();
    let _private = Mounted::tmpfs(&private);
    mount(None::<&str>, &private, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    let with = |to: Propagation| with_bind(bind(&private, "/x"), |_, _, propagation, _| *propagation = to);
    let mut spec = world.spec("true");
    spec.mounts.push(with(Propagation::Slave));
    let ran = world.run_spec(&spec).unwrap();
    assert!(ran.degraded.len() == 1 && ran.degraded[0].contains("private mount"), "{:?}", ran.degraded);
    let mut spec = world.spec("true");
    spec.mounts.push(with(Propagation::Shared));
    let failure = world.run_spec(&spec).unwrap_err();
    assert!(failure.step.contains("needs a shared mount"), "{failure}");
}

fn missing_source_fails_by_name() {
    let world = world();
    let mut spec = world.spec("true");
    let source = world.dir.join("absent");
    spec.mounts.push(bind(&source, "/x"));
    let failure = world.run_spec(&spec).unwrap_err();
    assert_eq!(failure.to_string(), format!("mount '{}': No such file or directory", source.display()));
}

fn order_is_kept() {
    let world = world();
    let (outer, inner) = (volume(&world, "outer"), volume(&world, "inner"));
    fs::write(inner.join("which"), "inner\n").unwrap();
    let mut spec = world.spec("cat /a/sub/which; ls /b");
    spec.mounts.extend([
        bind(&outer, "/a"),
        bind(&inner, "/a/sub"),
        bind(&inner, "/b/c"),
        bind(&outer, "/b"),
    ]);
    assert_eq!(world.run_spec(&spec).unwrap().out, "inner\nfile\nsub\n");
}

fn cgroup_view() {
    let world = world();
    let mut spec =
        world.spec("ls /sys/fs/cgroup; touch /sys/fs/cgroup/x; grep -c cgroup /proc/self/mountinfo");
    spec.mounts.push(readonly(kind("/sys/fs/cgroup", MountKind::Cgroup)));
    spec.cgroup_ns = Namespace::Container;
    let (started, out) = world.start(&spec).unwrap();
    let ran = finish(started, out);
    assert_eq!(ran.degraded, Vec::<String>::new());
    assert!(ran.out.contains("Read-only file system"), "{}", ran.out);
    let hierarchies = fs::read_to_string("/proc/self/cgroup").unwrap().lines().count();
    let mounted: usize = ran.out.trim().lines().last().unwrap().parse().unwrap();
    assert!(mounted >= hierarchies, "{}", ran.out);
    let mut spec = world.spec("ls /sys/fs/cgroup");
    spec.mounts.push(readonly(kind("/sys/fs/cgroup", MountKind::Cgroup)));
    spec.cgroup_ns = Namespace::Host;
    let (_, own) = crate::world::host("busybox ls /sys/fs/cgroup");
    assert_eq!(world.run_spec(&spec).unwrap().out, own);
}
