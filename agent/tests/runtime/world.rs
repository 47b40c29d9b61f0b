//! A temporary node: a private run folder, a busybox layer, sandboxes and containers that vanish with it.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use podkeep::container::setup::{self, SandboxMade, Started, Stdio};
use podkeep::container::spec::{
    CapabilitySets, ContainerSpec, IdMap, MountKind, MountSpec, Namespace, ProcessSpec, Propagation,
    RootSpec, SandboxSpec,
};
use podkeep::supervisor::proto::Failure;
use podkeep_hal::linux::sys::pidfd;

const BUSYBOX: &str = "/bin/busybox";

/// What containerd gives an ordinary container.
pub(crate) const DEFAULT_CAPS: u64 = 0xa804_25fb;

/// The user namespace of tests that have one.
pub(crate) const MAP: IdMap = IdMap { host_base: 1_310_720, size: 65536 };

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Why nothing can be tested here.
pub(crate) fn impossible() -> Option<String> {
    if podkeep_hal::linux::sys::euid() != 0 {
        return Some("not root".into());
    }
    if !Path::new(BUSYBOX).exists() {
        return Some(format!("no {BUSYBOX}"));
    }
    None
}

/// A copy of this program that runs itself from a read-only mount, and then turns into a shell that holds the program
/// open and tries to write to it.
pub(crate) fn reexecuted() -> bool {
    let Some(how) = std::env::var_os("PODKEEP_TEST_REEXEC") else { return false };
    if how != "plain" {
        println!("note={:?}", setup::reexec_readonly());
    }
    let flags = nix::fcntl::OFlag::O_RDONLY;
    let held = nix::fcntl::open("/proc/self/exe", flags, nix::sys::stat::Mode::empty()).unwrap();
    let script = format!("echo x >> /proc/self/fd/{}", held.as_raw_fd());
    let error = std::process::Command::new(BUSYBOX).args(["sh", "-c", &script]).exec();
    panic!("{error}");
}

pub(crate) struct World {
    pub(crate) dir: PathBuf,
    reaper: Option<OwnedFd>,
}

/// One finished program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) degraded: Vec<String>,
}

impl World {
    pub(crate) fn new() -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("podkeep-runtime-{}-{count}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let world = Self { dir, reaper: None };
        setup::prepare_run_dir(&world.run()).unwrap();
        world.busybox_layer();
        world
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub(crate) fn sandbox_dir(&self) -> PathBuf {
        self.run().join("s/one")
    }

    pub(crate) fn layer(&self) -> PathBuf {
        self.dir.join("layer")
    }

    fn busybox_layer(&self) {
        let layer = self.layer();
        for folder in ["bin", "etc", "tmp", "proc", "sys", "root"] {
            fs::create_dir_all(layer.join(folder)).unwrap();
        }
        fs::copy(BUSYBOX, layer.join("bin/busybox")).unwrap();
        for applet in [
            "sh", "cat", "ls", "id", "hostname", "ifconfig", "sysctl", "mount", "umount", "touch", "stat",
            "sleep", "readlink", "echo", "ps", "tty", "env", "pwd", "kill", "mkdir", "ulimit", "grep",
            "head", "test", "rm", "cut", "tr", "wc", "ln", "mknod", "stty",
        ] {
            symlink("busybox", layer.join("bin").join(applet)).unwrap();
        }
        fs::write(
            layer.join("etc/passwd"),
            "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000:me:/home/me:/bin/sh\n",
        )
        .unwrap();
        fs::write(layer.join("etc/plain"), "not a program").unwrap();
    }

    pub(crate) fn sandbox(&mut self, spec: &SandboxSpec) -> Result<SandboxMade, Failure> {
        let mut made = setup::create_sandbox(spec, &self.sandbox_dir())?;
        if let Some(fd) = &made.reaper_pidfd {
            self.reaper = Some(fd.try_clone().unwrap());
        }
        made.degraded.sort();
        Ok(made)
    }

    /// The usual sandbox: own net, ipc and uts.
    pub(crate) fn usual_sandbox(&mut self) {
        let made = self.sandbox(&usual()).unwrap();
        assert_eq!(made.reaper_pid, 0);
    }

    pub(crate) fn spec(&self, script: &str) -> ContainerSpec {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let attempt = self.dir.join(format!("attempt-{count}"));
        fs::create_dir_all(&attempt).unwrap();
        let all = CapabilitySets {
            bounding: DEFAULT_CAPS,
            permitted: DEFAULT_CAPS,
            effective: DEFAULT_CAPS,
            ..CapabilitySets::default()
        };
        ContainerSpec {
            id: format!("{count}"),
            root: RootSpec {
                layers: vec![self.layer()],
                upper: attempt.join("upper"),
                work: attempt.join("work"),
                ..RootSpec::default()
            },
            mounts: vec![kind("/proc", MountKind::Proc), readonly(kind("/sys", MountKind::Sysfs))],
            process: ProcessSpec {
                args: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
                env: vec!["PATH=/bin".into()],
                cwd: "/".into(),
                capabilities: all,
                ..ProcessSpec::default()
            },
            pid: Namespace::Container,
            ..ContainerSpec::default()
        }
    }

    /// Starts and waits for the end of the output.
    pub(crate) fn run_spec(&self, spec: &ContainerSpec) -> Result<Ran, Failure> {
        let (started, out) = self.start(spec)?;
        Ok(finish(started, out))
    }

    /// Starts with stdout and stderr in one pipe.
    pub(crate) fn start(&self, spec: &ContainerSpec) -> Result<(Started, OwnedFd), Failure> {
        let (read, stdio) = piped();
        let started = setup::start(spec, &self.sandbox_dir(), stdio, |_| Ok(()))?;
        Ok((started, read))
    }

    /// Output of a script in an otherwise usual container.
    pub(crate) fn sh(&self, script: &str) -> String {
        let ran = self.run_spec(&self.spec(script)).unwrap();
        assert_eq!(ran.degraded, Vec::<String>::new());
        ran.out
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(fd) = &self.reaper {
            pidfd::send_signal(fd.as_fd(), 9).unwrap();
            waitid(Id::PIDFd(fd.as_fd()), WaitPidFlag::WEXITED).unwrap();
        }
        setup::remove_sandbox(&self.sandbox_dir()).unwrap();
        setup::release_run_dir(&self.run()).unwrap();
        fs::remove_dir_all(&self.dir).unwrap();
    }
}

pub(crate) fn usual() -> SandboxSpec {
    SandboxSpec { id: "one".into(), hostname: Some("pod-1".into()), ..SandboxSpec::default() }
        .with_pid(Namespace::Container)
}

/// Shorthand, so that tests read as a list of differences.
pub(crate) trait With {
    fn with_pid(self, pid: Namespace) -> Self;
}

impl With for SandboxSpec {
    fn with_pid(mut self, pid: Namespace) -> Self {
        self.pid = pid;
        self
    }
}

pub(crate) fn kind(target: &str, kind: MountKind) -> MountSpec {
    MountSpec { target: target.into(), kind, readonly: false, nosuid: true, nodev: true, noexec: true }
}

pub(crate) fn bind(source: &Path, target: &str) -> MountSpec {
    let kind = MountKind::Bind {
        source: source.to_owned(),
        sub_path: None,
        create_sub_path: false,
        propagation: Propagation::Private,
        recursive_readonly: false,
    };
    MountSpec { target: target.into(), kind, readonly: false, nosuid: false, nodev: false, noexec: false }
}

pub(crate) fn readonly(mut mount: MountSpec) -> MountSpec {
    mount.readonly = true;
    mount
}

/// Read end and streams of a pipe that takes stdout and stderr.
pub(crate) fn piped() -> (OwnedFd, Stdio) {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let stderr = write.try_clone().unwrap();
    (read, Stdio::Fds { stdin: None, stdout: write, stderr })
}

pub(crate) fn finish(started: Started, out: OwnedFd) -> Ran {
    let mut text = String::new();
    fs::File::from(out).read_to_string(&mut text).unwrap();
    let code = wait(&started);
    Ran { code, out: text, degraded: started.degraded }
}

/// Exit code, 128 + signal for signals.
pub(crate) fn wait(started: &Started) -> i32 {
    match waitid(Id::PIDFd(started.pidfd.as_fd()), WaitPidFlag::WEXITED).unwrap() {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn stop(started: &Started) -> i32 {
    pidfd::send_signal(started.pidfd.as_fd(), 9).unwrap();
    wait(started)
}

/// Status of the host's `sh -c`, output and all.
pub(crate) fn host(script: &str) -> (i32, String) {
    let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap());
    (code, String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

/// A fd's number, for scripts of the host.
pub(crate) fn number(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}
