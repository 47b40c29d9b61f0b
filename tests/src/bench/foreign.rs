//! `crun run` of the same container, and `podman kube play` of the same pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use serde_json::{Value, json};

use super::samples::ms;
use super::stamps::{Stamps, now};
use super::{Effort, Samples};
use crate::image;
use crate::proc::{Process, cost};
use crate::trouble::{Doing, Result, Trouble};

const LIMIT: Duration = Duration::from_secs(120);

/// A command that leaves a process behind: it must not hold the ends of our pipes.
fn start(command: &mut Command, errors: &Path) -> Result<()> {
    let file = fs::File::create(errors).doing(errors.display())?;
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status().doing("start")?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(errors).unwrap_or_default();
    Err(Trouble::new(format!("{command:?}: {status}: {}", text.trim())))
}

fn output(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().doing(format_args!("{:?}", command.get_program()))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(Trouble::new(format!("{command:?}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim())))
}

/// CPU time of all children that were waited for, nanoseconds.
fn children_cpu() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).doing("getrusage")?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(u64::try_from(us).unwrap_or(0) * 1000)
}

struct Crun {
    state: PathBuf,
    bundles: PathBuf,
    stamps: Stamps,
    spec: Value,
}

impl Crun {
    fn new(dir: &Path) -> Result<Self> {
        let root = dir.join("root");
        image::stamp_layer()?.unpack(&root)?;
        let template = dir.join("template");
        fs::create_dir_all(&template).doing(template.display())?;
        output(Command::new("crun").arg("spec").current_dir(&template))?;
        let text = fs::read_to_string(template.join("config.json")).doing("config.json")?;
        let mut spec: Value = serde_json::from_str(&text).doing("config.json")?;
        let stamps = Stamps::new(&dir.join("out"))?;
        spec["process"]["terminal"] = json!(false);
        spec["root"] = json!({"path": root, "readonly": false});
        if let Some(mounts) = spec["mounts"].as_array_mut() {
            mounts.push(json!({"destination": "/out", "type": "bind", "source": stamps.dir, "options": ["bind", "rw"]}));
        }
        Ok(Self { state: dir.join("state"), bundles: dir.join("bundles"), stamps, spec })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("crun");
        command.arg("--root").arg(&self.state).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Writes the bundle: not part of what is measured, an engine would have it ready.
    fn prepare(&self, name: &str) -> Result<PathBuf> {
        let bundle = self.bundles.join(name);
        fs::create_dir_all(&bundle).doing(bundle.display())?;
        let mut spec = self.spec.clone();
        spec["process"]["args"] = json!(["/stamp", format!("/out/{name}")]);
        fs::write(bundle.join("config.json"), spec.to_string()).doing("config.json")?;
        Ok(bundle)
    }

    fn run(&self, name: &str, bundle: &Path) -> Command {
        let mut command = self.command();
        command
            .args(["run", "--detach", "--pid-file"])
            .arg(bundle.join("pid"))
            .arg("--bundle")
            .arg(bundle)
            .arg(name);
        command
    }

    fn stop(&self, name: &str, bundle: &Path) -> Result<u64> {
        let pid = fs::read_to_string(bundle.join("pid")).doing("pid")?;
        let process = Process::of(pid.trim().parse().doing("pid")?);
        let began = now()?;
        output(self.command().args(["kill", name, "TERM"]))?;
        if let Some(process) = process {
            process.wait_gone(LIMIT)?;
        }
        output(self.command().args(["delete", "--force", name]))?;
        Ok(now()?.saturating_sub(began))
    }
}

/// # Errors
/// crun is not here or does not work.
pub fn crun(dir: &Path, effort: Effort) -> Result<Value> {
    let crun = Crun::new(dir)?;
    let version =
        output(Command::new("crun").arg("--version"))?.lines().next().unwrap_or_default().to_string();
    let (mut started, mut stop, mut cpu) = (Samples::default(), Samples::default(), 0);
    for round in 0..effort.rounds {
        let name = format!("crun-{}-{round}", std::process::id());
        let bundle = crun.prepare(&name)?;
        let cpu_before = children_cpu()?;
        let began = now()?;
        start(&mut crun.run(&name, &bundle), &bundle.join("errors"))?;
        let first = crun.stamps.wait(std::slice::from_ref(&name), 1, LIMIT)?;
        started.add(first.saturating_sub(began));
        cpu += children_cpu()?.saturating_sub(cpu_before);
        let pid = fs::read_to_string(bundle.join("pid")).doing("pid")?;
        // set-up runs in the process that becomes the program
        cpu += pid.trim().parse().ok().and_then(|pid| cost(pid).ok()).unwrap_or_default().cpu_ns;
        stop.add(crun.stop(&name, &bundle)?);
    }
    let mut at_once = serde_json::Map::new();
    for n in super::ours::counts(effort) {
        at_once.insert(
            n.to_string(),
            json!({"last_started_ms": ms(crun_many(&crun, n)?), "two_at_a_time": true}),
        );
    }
    Ok(json!({
        "version": version, "seccomp": false, "overlay": false, "start": started.json(), "stop": stop.json(),
        "cpu_ms_per_start": ms(cpu / u64::from(effort.rounds.max(1))), "at_once": at_once,
    }))
}

/// Starts `n` containers, two at a time, and returns how long it took to the last first instruction.
fn crun_many(crun: &Crun, n: u32) -> Result<u64> {
    let names: Vec<String> = (0..n).map(|i| format!("crun-{}-{n}-{i}", std::process::id())).collect();
    let mut bundles = Vec::new();
    for name in &names {
        bundles.push((name.clone(), crun.prepare(name)?));
    }
    let began = now()?;
    let queue = std::sync::Mutex::new(bundles.iter());
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, bundle)) = queue.lock().ok().and_then(|mut q| q.next()) {
                    if let (Err(e), Ok(mut failed)) =
                        (start(&mut crun.run(name, bundle), &bundle.join("errors")), failed.lock())
                    {
                        failed.push(e);
                    }
                }
            });
        }
    });
    let last = crun.stamps.wait(&names, 1, LIMIT);
    for (name, bundle) in &bundles {
        crun.stop(name, bundle)?;
    }
    if let Some(e) = failed.into_inner().ok().and_then(|mut f| f.pop()) {
        return Err(e);
    }
    Ok(last?.saturating_sub(began))
}

/// # Errors
/// podman is not here or does not work.
pub fn podman(dir: &Path, effort: Effort) -> Result<Value> {
    let had = podman_groups()?;
    let measured = podman_measured(dir, effort);
    for group in podman_groups()?.iter().filter(|g| !had.contains(g)) {
        _ = fs::remove_dir(group);
    }
    measured
}

fn podman_measured(dir: &Path, effort: Effort) -> Result<Value> {
    let version = output(Command::new("podman").arg("--version"))?.trim().to_string();
    let stamps = Stamps::new(&dir.join("out"))?;
    let root = dir.join("root");
    image::stamp_layer()?.unpack(&root)?;
    // without CAP_SYS_RESOURCE podman's own wishes are refused
    let conf = dir.join("containers.conf");
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).doing("open files")?;
    let (_, tasks) = getrlimit(Resource::RLIMIT_NPROC).doing("processes")?;
    let limits = format!(
        "[containers]
default_ulimits = [\"nofile={files}:{files}\", \"nproc={tasks}:{tasks}\"]
"
    );
    fs::write(&conf, limits).doing(conf.display())?;
    let podman = || {
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", &conf);
        command
            .arg("--root")
            .arg(dir.join("store"))
            .arg("--runroot")
            .arg(dir.join("run"))
            .args(["--cgroup-manager", "cgroupfs"]);
        command
    };
    let archive = dir.join("root.tar");
    output(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg("."))?;
    output(podman().arg("import").arg(&archive).arg(image::STAMP))?;
    let play = |names: &[String]| -> Result<(u64, u64)> {
        let mut text = String::new();
        for name in names {
            text.push_str(&pod_manifest(name, &stamps.dir));
            text.push_str("---\n");
        }
        let file = dir.join("pods.yaml");
        fs::write(&file, text).doing("pods.yaml")?;
        let began = now()?;
        let played = output(podman().args(["kube", "play", "--network", "none"]).arg(&file));
        let last = played.and_then(|_| stamps.wait(names, 1, LIMIT));
        let stopping = now()?;
        output(podman().args(["pod", "rm", "--all", "--force", "--time", "2"]))?;
        Ok((last?.saturating_sub(began), now()?.saturating_sub(stopping)))
    };
    let (mut start, mut stop) = (Samples::default(), Samples::default());
    for round in 0..effort.rounds.min(5) {
        let (up, down) = play(&[format!("podman-{round}")])?;
        start.add(up);
        stop.add(down);
    }
    let mut at_once = serde_json::Map::new();
    // a hundred take most of a minute: only where the full effort is asked for
    for n in super::ours::counts(effort).into_iter().filter(|n| *n <= 10 || effort.idle >= 60) {
        let names: Vec<String> = (0..n).map(|i| format!("podman-{n}-{i}")).collect();
        at_once.insert(n.to_string(), json!({"last_started_ms": ms(play(&names)?.0)}));
    }
    Ok(json!({"version": version, "start": start.json(), "stop": stop.json(), "at_once": at_once}))
}

/// The folders that podman leaves behind on every hierarchy.
fn podman_groups() -> Result<Vec<PathBuf>> {
    let all = crate::cgroup::hierarchies()?;
    Ok(all.into_iter().map(|h| h.mount.join("libpod_parent")).filter(|group| group.exists()).collect())
}

/// The pod that podkeep and podman are given.
#[must_use]
pub fn pod_manifest(name: &str, out: &Path) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: {}\n    imagePullPolicy: IfNotPresent\n    command: [/stamp, /out/{name}]\n    volumeMounts:\n    - {{name: out, mountPath: /out}}\n  volumes:\n  - name: out\n    hostPath: {{path: {}, type: Directory}}\n",
        image::STAMP,
        out.display()
    )
}

/// Ends a container's first process at once, as a crash would.
///
/// # Errors
/// It does not die.
pub fn crash(process: Process) -> Result<()> {
    process.signal(Signal::SIGKILL)
}
