//! A node of its own for one test: folders, cgroup, configuration, agent and supervisor.
//!
//! Waiting is by event: `podkeep get pods -w` runs beside the node and wakes the test whenever something changed. A
//! slow look every 250 ms stands in while no agent runs. Every wait has a deadline and, when it passes, says what was
//! seen and shows the end of the agent's log.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::image;
use crate::janitor;
use crate::pods::Pod;
use crate::proc::Process;
use crate::trouble::{Doing, Result, Trouble};

/// The node's name; pods are called `<manifest name>-<this>`.
pub const NODE_NAME: &str = "node1";
/// Long enough for a busy machine with two CPUs: a wait that succeeds never takes it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Why no test node can run here; `None` when one can.
#[must_use]
pub fn cannot_run_here() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root".into());
    }
    if !Path::new("/bin/busybox").exists() {
        return Some("needs a static /bin/busybox (package busybox-static)".into());
    }
    match crate::cgroup::hierarchies() {
        Ok(all) if all.is_empty() => Some("no cgroup hierarchy is mounted".into()),
        Err(e) => Some(e.to_string()),
        Ok(_) => None,
    }
}

/// Where cargo put the programs: beside this one, or one folder up for test programs.
///
/// # Errors
/// This program's own path is unknown.
pub fn target_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().doing("own path")?;
    let dir = exe.parent().ok_or_else(|| Trouble::new("own path has no folder"))?;
    Ok(if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir }.to_path_buf())
}

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Names the program under test, before the first node is made.
pub fn choose_binary(path: PathBuf) {
    _ = CHOSEN.set(path);
}

/// The program under test: the chosen one, `$PODKEEP_BIN`, else the one of this target folder, built first so that it is never stale
/// (cargo builds only the programs of a test's own package by itself).
///
/// # Errors
/// It cannot be built.
pub fn podkeep() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(path) =
                CHOSEN.get().cloned().or_else(|| std::env::var_os("PODKEEP_BIN").map(PathBuf::from))
            {
                return Ok(path);
            }
            let dir = target_dir()?;
            let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            build.args(["build", "-q", "-p", "podkeep", "--bin", "podkeep"]);
            if dir.ends_with("release") {
                build.arg("--release");
            }
            let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().doing("cargo build")?;
            if status.success() {
                Ok(dir.join("podkeep"))
            } else {
                Err(Trouble::new("cargo build -p podkeep failed"))
            }
        })
        .clone()
}

/// What is not as usual about a node.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// lines added to the configuration
    pub config: String,
    /// images that are loaded at the start
    pub images: Vec<&'static str>,
    /// more arguments for `podkeep run`
    pub args: Vec<String>,
    /// variables of the agent's environment
    pub env: Vec<(String, String)>,
    /// the manifests folder is not made
    pub no_manifests_dir: bool,
    /// nothing listens to `get pods -w` beside the node (for measuring)
    pub no_watch: bool,
    /// the node has a mount table of its own, which other tests do not change (for measuring)
    pub own_mounts: bool,
    /// the state folder is a tmpfs of this many bytes
    pub state_size: Option<u64>,
}

const OWN_MOUNTS: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

/// A running node. Dropping it takes everything away.
#[derive(Debug)]
pub struct Node {
    pub root: PathBuf,
    pub manifests: PathBuf,
    pub state: PathBuf,
    pub run: PathBuf,
    pub logs: PathBuf,
    /// name of its cgroup on every hierarchy, with the leading slash
    pub cgroup: String,
    options: NodeOptions,
    agent: Option<Child>,
    watch: Watch,
}

/// `get pods -w` beside the node.
#[derive(Debug, Default)]
struct Watch {
    child: Option<Child>,
    wake: Option<mpsc::Receiver<()>>,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Node {
    /// A node with the busybox image, started and answering.
    ///
    /// # Errors
    /// It cannot be made, or the agent does not answer.
    pub fn start() -> Result<Self> {
        Self::with(NodeOptions { images: vec![image::BUSYBOX], ..NodeOptions::default() })
    }

    /// # Errors
    /// It cannot be made, or the agent does not answer.
    pub fn with(options: NodeOptions) -> Result<Self> {
        let mut node = Self::prepare(options)?;
        node.start_agent()?;
        for name in node.options.images.clone() {
            node.load_image(name)?;
        }
        Ok(node)
    }

    /// Makes the folders and the configuration, and starts nothing.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub fn prepare(options: NodeOptions) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = janitor::test_dir().join(format!("node-{tag}"));
        let cgroup = format!("/{}{tag}", janitor::CGROUP_PREFIX);
        janitor::open_ledger(&root, &cgroup)?;
        let node = Self {
            manifests: root.join("manifests"),
            state: root.join("state"),
            run: root.join("run"),
            logs: root.join("logs"),
            root,
            cgroup,
            options,
            agent: None,
            watch: Watch::default(),
        };
        for dir in [&node.state, &node.run, &node.logs] {
            fs::create_dir_all(dir).doing(dir.display())?;
        }
        if !node.options.no_manifests_dir {
            fs::create_dir_all(&node.manifests).doing(node.manifests.display())?;
        }
        tmpfs(&node.run, 64 << 20)?;
        if let Some(size) = node.options.state_size {
            tmpfs(&node.state, size)?;
        }
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {}\npodLogsDir: {}\ncgroupRoot: {}\n{}",
            node.manifests.display(),
            node.logs.display(),
            node.cgroup,
            node.options.config,
        );
        fs::write(node.root.join("config.yaml"), config).doing("config.yaml")?;
        Ok(node)
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run.join("podkeep.sock")
    }

    /// A file: the first process that comes by the failpoint named in it removes it and dies by SIGKILL.
    #[must_use]
    pub fn failpoint(&self) -> PathBuf {
        self.root.join("failpoint")
    }

    /// Starts `podkeep run` and waits until it answers.
    ///
    /// # Errors
    /// It ends, or does not answer in time.
    pub fn start_agent(&mut self) -> Result<()> {
        self.spawn_agent()?;
        let end = Instant::now() + PATIENCE;
        loop {
            if self.get_pods().is_ok() {
                break;
            }
            if let Some(agent) = self.agent.as_mut()
                && let Ok(Some(status)) = agent.try_wait()
            {
                self.agent = None;
                return Err(Trouble::new(format!(
                    "the agent ended with {status}\n{}",
                    self.agent_log_tail()
                )));
            }
            if Instant::now() > end {
                return Err(Trouble::new(format!("the agent does not answer\n{}", self.agent_log_tail())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Ok(supervisor) = self.supervisor() {
            janitor::note_process(&self.root, supervisor)?;
        }
        if self.options.no_watch { Ok(()) } else { self.start_watch() }
    }

    /// Starts `podkeep run` and waits for nothing.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn_agent(&mut self) -> Result<()> {
        let home = crate::cgroup::make_home(&self.cgroup)?;
        let log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.root.join("agent.log"))
            .doing("agent.log")?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&home)
            .args(self.options.own_mounts.then_some(OWN_MOUNTS).into_iter().flatten())
            .arg(podkeep()?)
            .arg("run")
            .args([OsStr::new("--config"), self.root.join("config.yaml").as_os_str()])
            .args([OsStr::new("--manifests"), self.manifests.as_os_str()])
            .args([OsStr::new("--state-dir"), self.state.as_os_str()])
            .args([OsStr::new("--run-dir"), self.run.as_os_str()])
            .args(["--node-name", NODE_NAME])
            .args(&self.options.args)
            // nothing happens there until a test writes a name into the file
            .env("PODKEEP_FAILPOINT", format!("@{}", self.failpoint().display()))
            .envs(self.options.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().doing("agent.log")?)
            .stderr(log);
        let child = command.spawn().doing("podkeep run")?;
        if let Some(process) = Process::of(child.id().cast_signed()) {
            janitor::note_process(&self.root, process)?;
        }
        self.agent = Some(child);
        Ok(())
    }

    /// # Errors
    /// No agent runs.
    pub fn agent(&self) -> Result<Process> {
        let agent = self.agent.as_ref().ok_or_else(|| Trouble::new("no agent runs"))?;
        Process::of(agent.id().cast_signed()).ok_or_else(|| Trouble::new("the agent has ended"))
    }

    /// Sends the agent a signal and waits for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn stop_agent(&mut self, signal: Signal) -> Result<Option<i32>> {
        let Some(mut agent) = self.agent.take() else { return Ok(None) };
        if let Some(process) = Process::of(agent.id().cast_signed()) {
            process.signal(signal)?;
            process.wait_gone(PATIENCE)?;
        }
        Ok(agent.wait().doing("agent")?.code())
    }

    /// # Errors
    /// It does not die.
    pub fn kill_agent(&mut self) -> Result<()> {
        self.stop_agent(Signal::SIGKILL).map(|_| ())
    }

    /// The supervisor: the process that holds the listening end of its socket.
    ///
    /// # Errors
    /// There is none.
    pub fn supervisor(&self) -> Result<Process> {
        let socket = self.run.join("supervisor.sock");
        let table = fs::read_to_string("/proc/net/unix").doing("/proc/net/unix")?;
        let path = socket.to_string_lossy().into_owned();
        // flag 00010000: it accepts connections
        let line =
            table.lines().find(|l| l.ends_with(&path) && l.split_whitespace().nth(3) == Some("00010000"));
        let inode = line
            .and_then(|l| l.split_whitespace().nth(6))
            .ok_or_else(|| Trouble::new("nobody listens for the agent"))?;
        let wanted = format!("socket:[{inode}]");
        for entry in fs::read_dir("/proc").doing("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            let fds = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
            if fds
                .into_iter()
                .any(|fd| fs::read_link(fd.path()).is_ok_and(|l| l.as_os_str() == wanted.as_str()))
            {
                return Process::of(pid).ok_or_else(|| Trouble::new("the supervisor has ended"));
            }
        }
        Err(Trouble::new("no process has the listening socket"))
    }

    /// # Errors
    /// There is none, or it does not die.
    pub fn kill_supervisor(&self) -> Result<()> {
        let supervisor = self.supervisor()?;
        supervisor.signal(Signal::SIGKILL)?;
        supervisor.wait_gone(PATIENCE)
    }

    /// One command against this node, to its end.
    ///
    /// # Errors
    /// The program cannot be started. A bad exit status is no error here.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        self.command_builder(args)?.stdin(Stdio::null()).output().doing("podkeep")
    }

    /// # Errors
    /// The program was not built.
    pub fn command_builder<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Command> {
        let mut command = Command::new(podkeep()?);
        let mut args = args.into_iter().peekable();
        // the option stands behind the command and before its operands and `--`
        let nested = args.peek().is_some_and(|first| first.as_ref() == "image");
        command
            .args(args.by_ref().take(if nested { 2 } else { 1 }))
            .arg("--socket")
            .arg(self.socket())
            .args(args);
        Ok(command)
    }

    /// Standard output of a command that has to succeed.
    ///
    /// # Errors
    /// It does not; carries both outputs.
    pub fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) -> Result<String> {
        let out = self.command(args)?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() {
            return Ok(text);
        }
        Err(Trouble::new(format!(
            "podkeep {args:?}: {}\n{text}{}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        )))
    }

    /// Makes one of our images and loads it.
    ///
    /// # Errors
    /// Its programs are missing, or it is refused.
    pub fn load_image(&self, name: &str) -> Result<()> {
        let layout = image::make(name, &self.root.join("images"))?;
        self.ok(&[OsStr::new("image"), OsStr::new("load"), layout.as_os_str(), OsStr::new(name)]).map(|_| ())
    }

    /// # Errors
    /// The agent does not answer.
    pub fn get_pods(&self) -> Result<Vec<Pod>> {
        let text = self.ok(&["get", "pods", "-o", "json"])?;
        let answer: Value = serde_json::from_str(&text).doing("get pods -o json")?;
        Ok(Pod::all_of(&answer))
    }

    /// The pod whose manifest calls it so.
    ///
    /// # Errors
    /// The agent does not answer.
    pub fn pod(&self, name: &str) -> Result<Option<Pod>> {
        Ok(find(&self.get_pods()?, name))
    }

    /// Writes a manifest as one step (a file beside it, then a rename).
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn put(&self, file: &str, text: &str) -> Result<()> {
        let hidden = self.manifests.join(format!(".{file}.new"));
        fs::write(&hidden, text).doing(hidden.display())?;
        fs::rename(&hidden, self.manifests.join(file)).doing(file)
    }

    /// Copies a file of the acceptance cases into the manifests folder under its own name.
    ///
    /// # Errors
    /// There is no such file.
    pub fn put_case(&self, case: &str) -> Result<()> {
        let from = case_file(case);
        let name = from.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let text = fs::read(&from).doing(from.display())?;
        let hidden = self.manifests.join(format!(".{name}.new"));
        fs::write(&hidden, text).doing(hidden.display())?;
        fs::rename(&hidden, self.manifests.join(name)).doing(name)
    }

    /// # Errors
    /// There is no such file.
    pub fn remove(&self, file: &str) -> Result<()> {
        fs::remove_file(self.manifests.join(file)).doing(file)
    }

    /// Waits until `look` finds what it wants among all pods.
    ///
    /// # Errors
    /// The deadline passes; says what was seen last.
    pub fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut(&[Pod]) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        let mut last = Err(Trouble::new("nothing seen"));
        loop {
            let now = self.get_pods();
            if let Ok(pods) = &now
                && let Some(found) = look(pods)
            {
                return Ok(found);
            }
            if now.is_ok() || last.is_err() {
                last = now;
            }
            if Instant::now() > end {
                let seen = match last {
                    Ok(pods) => pods.iter().map(summary).collect::<Vec<_>>().join("\n"),
                    Err(e) => e.to_string(),
                };
                return Err(Trouble::new(format!(
                    "waited {limit:?} for: {what}\nseen last:\n{seen}\n{}",
                    self.agent_log_tail()
                )));
            }
            self.pause();
        }
    }

    /// Until something changes, or for a quarter of a second.
    fn pause(&self) {
        let Some(wake) = &self.watch.wake else { return std::thread::sleep(Duration::from_millis(20)) };
        match wake.recv_timeout(Duration::from_millis(250)) {
            Ok(()) => while wake.try_recv().is_ok() {},
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(20)),
        }
    }

    /// # Errors
    /// It is not running in time.
    pub fn wait_running(&self, name: &str) -> Result<Pod> {
        self.wait(&format!("pod '{name}' running"), PATIENCE, |pods| {
            find(pods, name).filter(Pod::all_running)
        })
    }

    /// # Errors
    /// It is still there in time.
    pub fn wait_gone(&self, name: &str) -> Result<()> {
        self.wait(&format!("pod '{name}' gone"), PATIENCE, |pods| find(pods, name).is_none().then_some(()))
    }

    /// # Errors
    /// The phase is not reached in time.
    pub fn wait_phase(&self, name: &str, phase: &str) -> Result<Pod> {
        self.wait(&format!("pod '{name}' in phase {phase}"), PATIENCE, |pods| {
            find(pods, name).filter(|p| p.phase() == phase)
        })
    }

    /// The numbers of the processes in a container, in the host's counting; the first process first.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn container_pids(&self, id: &str) -> Result<Vec<i32>> {
        let record = self.run.join("c").join(id).join("record.json");
        let text = fs::read_to_string(&record).doing(record.display())?;
        let value: Value = serde_json::from_str(&text).doing(record.display())?;
        let first = value.get("pid").or_else(|| value.pointer("/state/pid")).and_then(Value::as_i64);
        let first = first
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or_else(|| Trouble::new(format!("no pid in {text}")))?;
        let mut pids = vec![first];
        let namespace =
            fs::read_link(format!("/proc/{first}/ns/pid")).doing(format_args!("process {first}"))?;
        for entry in fs::read_dir("/proc").doing("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            if pid != first && fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|ns| ns == namespace) {
                pids.push(pid);
            }
        }
        Ok(pids)
    }

    /// The first process of a container of a pod.
    ///
    /// # Errors
    /// It does not run.
    pub fn first_process(&self, pod: &Pod, container: &str) -> Result<Process> {
        let c = pod
            .container(container)
            .ok_or_else(|| Trouble::new(format!("no container '{container}' in {}", summary(pod))))?;
        let pid = self.container_pids(&c.id())?.first().copied().unwrap_or(0);
        Process::of(pid).ok_or_else(|| Trouble::new(format!("container '{container}' has ended")))
    }

    /// What a container wrote, as `podkeep logs` gives it. `name` is the pod's full name.
    ///
    /// # Errors
    /// There is no such log.
    pub fn logs(&self, name: &str, container: &str) -> Result<String> {
        self.ok(&["logs", &full_name(name), "-c", container])
    }

    /// # Errors
    /// The text does not appear in time.
    pub fn wait_log(&self, name: &str, container: &str, wanted: &str) -> Result<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.logs(name, container).unwrap_or_default();
            if text.contains(wanted) {
                return Ok(text);
            }
            if Instant::now() > end {
                let log = self.agent_log_tail();
                return Err(Trouble::new(format!(
                    "'{wanted}' is not in the log of '{name}'/'{container}': '{text}'\n{log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// # Errors
    /// The program cannot be started.
    pub fn exec(&self, name: &str, container: &str, argv: &[&str]) -> Result<Output> {
        let full = full_name(name);
        self.command(["exec", &full, "-c", container, "--"].iter().copied().chain(argv.iter().copied()))
    }

    /// Runs a script of the acceptance cases against this node.
    ///
    /// # Errors
    /// It cannot be run or ends badly.
    pub fn play(&self, case: &str, env: &[(&str, String)]) -> Result<String> {
        let script = case_file(case);
        let mut command = Command::new("sh");
        command
            .arg(&script)
            .env("M", &self.manifests)
            .env("S", &self.state)
            .env("HERE", script.parent().unwrap_or(Path::new("/")));
        if let Ok(agent) = self.agent() {
            command.env("A", agent.pid.to_string());
        }
        command.env("SETTLE", "1").envs(env.iter().map(|(k, v)| (k, v))).stdin(Stdio::null());
        let out = command.output().doing(case)?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if out.status.success() {
            Ok(text)
        } else {
            Err(Trouble::new(format!("{case}: {}\n{text}", out.status)))
        }
    }

    /// Everything that `get pods -w` has shown since the node was started, in order.
    #[must_use]
    pub fn history(&self) -> Vec<Pod> {
        let seen = self.watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().flat_map(Pod::all_of).collect()
    }

    fn start_watch(&mut self) -> Result<()> {
        self.stop_watch();
        let mut command = self.command_builder(["get", "pods", "-w", "-o", "json"])?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().doing("podkeep get pods -w")?;
        let stdout = child.stdout.take().ok_or_else(|| Trouble::new("no output of get pods -w"))?;
        let (tell, wake) = mpsc::channel();
        let seen = Arc::clone(&self.watch.seen);
        std::thread::spawn(move || {
            for value in serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>() {
                let Ok(value) = value else { break };
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(value);
                if tell.send(()).is_err() {
                    break;
                }
            }
        });
        self.watch.child = Some(child);
        self.watch.wake = Some(wake);
        Ok(())
    }

    fn stop_watch(&mut self) {
        if let Some(mut child) = self.watch.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
        self.watch.wake = None;
    }

    /// The last lines the agent wrote.
    #[must_use]
    pub fn agent_log_tail(&self) -> String {
        let text = fs::read(self.root.join("agent.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(25);
        let supervisor = fs::read_to_string(self.run.join("supervisor.log")).unwrap_or_default();
        format!(
            "agent's log:\n{}\nsupervisor's log:\n{supervisor}",
            lines.get(from..).unwrap_or_default().join("\n")
        )
    }

    /// # Errors
    /// It cannot be read.
    pub fn agent_log(&self) -> Result<String> {
        let file = fs::File::open(self.root.join("agent.log")).doing("agent.log")?;
        Ok(BufReader::new(file).lines().map_while(std::result::Result::ok).collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop_watch();
        if let Some(mut agent) = self.agent.take() {
            _ = agent.kill();
            _ = agent.wait();
        }
        if std::env::var_os("PODKEEP_KEEP_NODES").is_some() {
            return eprintln!("kept: {}", self.root.display());
        }
        if let Err(e) = janitor::clear(&self.root) {
            // a second look finds what was being made while the first one took things away
            if let Err(again) = janitor::clear(&self.root) {
                eprintln!("node '{}' was not cleared: {e}; {again}", self.root.display());
            }
        }
        // goes when this was the last node in it
        _ = fs::remove_dir(janitor::test_dir());
    }
}

fn tmpfs(path: &Path, size: u64) -> Result<()> {
    let options = format!("size={size},mode=755");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str())).doing(path.display())
}

/// The name a pod gets from the name in its manifest.
#[must_use]
pub fn full_name(name: &str) -> String {
    format!("{name}-{NODE_NAME}")
}

/// The pod whose manifest calls it `name`, in any namespace.
#[must_use]
pub fn find(pods: &[Pod], name: &str) -> Option<Pod> {
    let full = full_name(name);
    pods.iter().find(|p| p.name() == full).cloned()
}

/// One line on a pod, for messages.
#[must_use]
pub fn summary(pod: &Pod) -> String {
    let containers: Vec<String> = pod
        .containers()
        .iter()
        .map(|c| format!("{} {:?} restarts {}", c.name(), c.state(), c.restarts()))
        .collect();
    format!(
        "{}/{} {} {} [{}]",
        pod.namespace(),
        pod.name(),
        pod.phase(),
        pod.message(),
        containers.join("; ")
    )
}

/// A file of the acceptance cases, by its path below `tests/data/cases`.
#[must_use]
pub fn case_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cases").join(path)
}

/// A manifest with one busybox container `main` that runs a shell script, and more lines for it or for the pod.
#[must_use]
pub fn shell_pod(name: &str, script: &str, more: &str) -> String {
    // two dollar signs are one after the expansion that Kubernetes does
    let script = serde_json::Value::from(script.replace("$$", "$$$$"));
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: main\n    image: {}\n    command: [sh, -c, {script}]\n{more}",
        image::BUSYBOX
    )
}
