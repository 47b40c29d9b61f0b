//! The root file system: overlay, copy, read-only, devices.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use podkeep::container::spec::{DeviceSpec, MountKind};

use crate::Test;
use crate::world::{MAP, World, bind, host, kind, usual};

pub(crate) const TESTS: &[Test] = &[
    ("root_is_an_overlay_and_lower_layers_stay", is_an_overlay_and_lower_layers_stay),
    ("root_many_layers_with_long_names", many_layers_with_long_names),
    ("root_readonly", readonly_root),
    ("root_copy_shows_what_the_overlay_shows", copy_shows_what_the_overlay_shows),
    ("root_copy_in_user_namespace", copy_in_user_namespace),
    ("root_without_layers_fails", without_layers_fails),
    ("root_nothing_of_the_host_is_left", nothing_of_the_host_is_left),
    ("root_host_never_sees_the_mounts", host_never_sees_the_mounts),
    ("root_devices", devices),
    ("root_host_devices", host_devices),
    ("root_own_dev_is_kept", own_dev_is_kept),
    ("root_dev_link_stays_inside", dev_link_stays_inside),
];

fn world() -> World {
    let mut world = World::new();
    world.usual_sandbox();
    world
}

fn is_an_overlay_and_lower_layers_stay() {
    let world = world();
    let upper_layer = world.dir.join("second");
    fs::create_dir_all(upper_layer.join("etc")).unwrap();
    fs::write(upper_layer.join("etc/plain"), "second").unwrap();
    fs::set_permissions(&upper_layer, fs::Permissions::from_mode(0o711)).unwrap();
    let mut spec = world.spec("cat /etc/plain; echo; stat -c %a /; echo new > /etc/plain; rm /etc/passwd; ls /etc; grep ' / / ' /proc/self/mountinfo | cut -d' ' -f6,9");
    spec.root.layers.push(upper_layer.clone());
    let ran = world.run_spec(&spec).unwrap();
    assert_eq!(ran.out, "second\n711\nplain\nrw,relatime overlay\n");
    assert_eq!(fs::read_to_string(upper_layer.join("etc/plain")).unwrap(), "second");
    assert!(world.layer().join("etc/passwd").exists());
    assert_eq!(fs::read_to_string(spec.root.upper.join("etc/plain")).unwrap(), "new\n");
}

/// More than one page of names, names of more than 255 bytes.
fn many_layers_with_long_names() {
    let world = world();
    let mut spec = world.spec("cat /last; ls / | grep -c layer-");
    let deep = world.dir.join("d".repeat(200)).join("e".repeat(100));
    for index in 0..80 {
        let layer = deep.join(format!("{index:0>64}"));
        fs::create_dir_all(&layer).unwrap();
        fs::write(layer.join("last"), format!("{index}\n")).unwrap();
        fs::write(layer.join(format!("layer-{index}")), "").unwrap();
        spec.root.layers.push(layer);
    }
    assert_eq!(world.run_spec(&spec).unwrap().out, "79\n80\n");
}

fn readonly_root() {
    let world = world();
    let mut spec = world.spec("touch /x 2>&1; touch /volume/x /dev/x /dev/shm/x && echo written; grep ' / / ' /proc/self/mountinfo | cut -d' ' -f6");
    spec.root.readonly = true;
    let volume = world.dir.join("volume");
    fs::create_dir(&volume).unwrap();
    spec.mounts.push(bind(&volume, "/volume"));
    spec.mounts.push(kind("/dev/shm", MountKind::Tmpfs { size: 65536, mode: 0o1777 }));
    let out = world.run_spec(&spec).unwrap().out;
    assert_eq!(out, "touch: /x: Read-only file system\nwritten\nro,relatime\n");
}

/// Two layers with everything an overlay does: whiteout, opaque folder, replaced kinds, hard links, attributes.
fn awkward_layers(world: &World) -> Vec<PathBuf> {
    let (first, second) = (world.dir.join("first"), world.dir.join("second"));
    let script = format!(
        "set -e; mkdir -p {a} {b}; cd {a}; mkdir gone kept opaque turned; echo 1 > gone/file; echo 1 > kept/file; echo 1 > opaque/old; \
         echo 1 > plain; echo 1 > turned/file; echo 1 > into-folder; ln kept/file kept/twin; ln -s /etc/passwd link; mkfifo pipe; \
         mknod node c 1 5; chown 12:34 plain; chmod 4755 plain; touch -d '2001-02-03 04:05:06' plain; \
         cd {b}; mknod gone c 0 0; mkdir kept opaque into-folder; echo 2 > kept/second; echo 2 > opaque/new; echo 2 > turned; echo 2 > into-folder/file",
        a = first.display(),
        b = second.display()
    );
    let (code, out) = host(&script);
    assert_eq!(code, 0, "{out}");
    let c = |text: &str| std::ffi::CString::new(text).unwrap();
    let set = |path: PathBuf, name: &str, value: &[u8]| {
        podkeep_hal::linux::sys::xattr::set(&c(path.to_str().unwrap()), &c(name), value).unwrap();
    };
    set(second.join("opaque"), "trusted.overlay.opaque", b"y");
    set(first.join("plain"), "user.origin", b"first");
    vec![first, second]
}

fn copy_shows_what_the_overlay_shows() {
    let world = world();
    let script = "cd /; find . -xdev ! -path './proc*' ! -path './sys*' ! -path './dev*' -exec stat -c '%n %F %a %u %g %h %t %T %N' {} + | grep -v '^./bin' | sort; stat -c %Y plain; cat kept/second kept/twin plain turned into-folder/file";
    symlink("busybox", world.layer().join("bin/find")).unwrap();
    symlink("busybox", world.layer().join("bin/sort")).unwrap();
    let layers = awkward_layers(&world);
    let run = |copy: bool| {
        let mut spec = world.spec(script);
        spec.root.layers.extend(layers.clone());
        spec.root.copy = copy;
        let ran = world.run_spec(&spec).unwrap();
        assert_eq!(ran.code, 0, "{}", ran.out);
        (ran.out, spec)
    };
    let (overlaid, _) = run(false);
    let (copied, spec) = run(true);
    // an overlay counts the links of folders its own way
    let plain = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| match line.split_once(" directory ") {
                Some((name, rest)) => {
                    let fields: Vec<&str> = rest.split(' ').collect();
                    format!("{name} directory {} {} {}", fields[0], fields[1], fields[2])
                }
                None => line.to_owned(),
            })
            .collect()
    };
    assert_eq!(plain(&copied), plain(&overlaid));
    assert!(copied.contains("./kept/twin") && !copied.contains("./opaque/old") && !copied.contains("./gone"));
    let file = std::ffi::CString::new(spec.root.upper.join("plain").to_str().unwrap()).unwrap();
    assert_eq!(podkeep_hal::linux::sys::xattr::get(&file, c"user.origin").unwrap(), b"first");
}

fn copy_in_user_namespace() {
    let mut world = World::new();
    let mut sandbox = usual();
    sandbox.user = Some(MAP);
    world.sandbox(&sandbox).unwrap();
    let mut spec = world.spec("stat -c %u /bin/sh /etc/plain /; touch /new && stat -c %u /new");
    spec.user = Some(MAP);
    spec.root.copy = true;
    let ran = match world.run_spec(&spec) {
        Err(failure) if failure.step.contains("idmapped") => {
            println!("skipped: {failure}");
            return;
        }
        ran => ran.unwrap(),
    };
    assert_eq!(ran.out, "0\n0\n0\n0\n");
    assert_eq!(fs::metadata(spec.root.upper.join("etc/plain")).unwrap().uid(), MAP.host_base);
}

fn without_layers_fails() {
    let world = world();
    let mut spec = world.spec("true");
    spec.root.layers.clear();
    assert_eq!(world.run_spec(&spec).unwrap_err().to_string(), "root 'no layers': Invalid argument");
    spec.root.layers = vec![world.dir.join("no-such-layer")];
    let failure = world.run_spec(&spec).unwrap_err();
    assert!(failure.what.contains("no-such-layer") && failure.errno == nix::libc::ENOENT, "{failure}");
}

fn nothing_of_the_host_is_left() {
    let world = world();
    let out =
        world.sh("cut -d' ' -f5 /proc/self/mountinfo; ls -A /; cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l");
    assert!(!out.contains(world.dir.to_str().unwrap()), "{out}");
    assert!(
        out.starts_with("/\n/dev\n/dev/pts\n/proc\n/sys\nbin\ndev\netc\nproc\nroot\nsys\ntmp\nsh\n"),
        "{out}"
    );
    // the shell, ls (and cat is gone): a pid namespace of its own
    assert!(out.trim().lines().last().unwrap().trim().parse::<u32>().unwrap() <= 3, "{out}");
}

fn host_never_sees_the_mounts() {
    let world = world();
    let mounts = || {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        all.lines().filter(|line| line.contains(world.dir.to_str().unwrap())).count()
    };
    let before = mounts();
    let (started, _out) = world.start(&world.spec("sleep 1000")).unwrap();
    assert_eq!(mounts(), before);
    crate::world::stop(&started);
    assert_eq!(mounts(), before);
}

fn devices() {
    let world = world();
    let mut spec = world.spec("stat -c '%n %F %t:%T %a %u %g' /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/own /dev/deep/er/fifo; readlink /dev/ptmx; readlink /dev/fd; readlink /dev/stdin; readlink /dev/stdout; readlink /dev/stderr; test -e /dev/shm || echo no shm; head -c 3 /dev/zero | wc -c; echo x > /dev/null && echo null; ls -ld /dev/pts/ptmx | cut -c1-10");
    let device = |path: &str, kind, minor| DeviceSpec {
        path: path.into(),
        kind,
        major: 1,
        minor,
        mode: 0o640,
        uid: 5,
        gid: 6,
    };
    spec.devices = vec![device("/dev/own", 'c', 3), device("/dev/deep/er/fifo", 'p', 0)];
    let out = world.run_spec(&spec).unwrap().out;
    let node = |name: &str, numbers: &str| format!("/dev/{name} character special file {numbers} 666 0 0\n");
    let expected = [
        node("null", "1:3"),
        node("zero", "1:5"),
        node("full", "1:7"),
        node("random", "1:8"),
        node("urandom", "1:9"),
        node("tty", "5:0"),
        "/dev/own character special file 1:3 640 5 6\n/dev/deep/er/fifo fifo 0:0 640 5 6\n".into(),
        "pts/ptmx\n/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\nno shm\n3\nnull\ncrw-rw-rw-\n".into(),
    ];
    assert_eq!(out, expected.concat());
    spec.devices = vec![device("/dev/odd", 'x', 3)];
    assert_eq!(world.run_spec(&spec).unwrap_err().to_string(), "device '/dev/odd': Invalid argument");
}

fn host_devices() {
    let world = world();
    let mut spec = world.spec("cd /dev; ls -A | grep -v -e '^pts$' -e '^fd$' -e ptmx -e shm -e mqueue -e '^std' -e '^core$' -e console; stat -c '%t:%T' null");
    spec.host_devices = true;
    let out = world.run_spec(&spec).unwrap().out;
    let count = fs::read_dir("/dev").unwrap().flatten().filter(|entry| {
        let kind = entry.file_type().unwrap();
        let name = entry.file_name();
        !kind.is_symlink()
            && !kind.is_file()
            && !["pts", "fd", "ptmx", "shm", "mqueue", "core", "console", "hugepages"]
                .iter()
                .any(|own| name == *own)
    });
    let names: Vec<String> = count.map(|entry| entry.file_name().into_string().unwrap()).collect();
    for name in
        names.iter().filter(|name| fs::metadata(format!("/dev/{name}")).is_ok_and(|meta| !meta.is_dir()))
    {
        assert!(out.lines().any(|line| line == name), "{name} in {out}");
    }
    assert!(out.ends_with("1:3\n"));
}

/// A bind mount on /dev is taken as it is.
fn own_dev_is_kept() {
    let world = world();
    let dev = world.dir.join("dev");
    fs::create_dir(&dev).unwrap();
    fs::write(dev.join("mine"), "").unwrap();
    let mut spec = world.spec("ls /dev");
    spec.mounts.push(bind(&dev, "/dev"));
    assert_eq!(world.run_spec(&spec).unwrap().out, "mine\n");
    let mut spec = world.spec("ls /dev | wc -l");
    spec.mounts.push(kind("/dev", MountKind::Tmpfs { size: 65536, mode: 0o755 }));
    assert_eq!(world.run_spec(&spec).unwrap().out.trim(), "12");
}

fn dev_link_stays_inside() {
    let world = world();
    let outside = world.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, world.layer().join("dev")).unwrap();
    let ran = world.run_spec(&world.spec("ls /dev/ | wc -l")).unwrap();
    assert_eq!(ran.out.trim(), "12");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}
