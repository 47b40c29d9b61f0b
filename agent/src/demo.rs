//! `podkeep demo`: the main job on a machine that has nothing but this program. The image is packed out of the program
//! itself, two pods run from it, and everything is taken away at the end.

use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use crate::api::client::{Call, ask};
use crate::api::{ApiReply, ApiRequest, PodFilter};
use crate::cli::{Failure, out};
use crate::image::pack::{PackOrder, PackSource};
use crate::image::store::host_platform;
use crate::image::{ImageConfig, ImageStore, Progress};
use crate::supervisor::link::{Link, Options};
use crate::supervisor::proto::RequestBody;

const IMAGE: &str = "podkeep.local/demo:1";

const HELLO: &str = "apiVersion: v1
kind: Pod
metadata:
  name: hello
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: podkeep.local/demo:1
    args: [demo-app]
    env:
    - {name: GREETING, value: hello from a static pod}
";

const LIMITED: &str = "apiVersion: v1
kind: Pod
metadata:
  name: limited
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 1000}
  containers:
  - name: main
    image: podkeep.local/demo:1
    args: [demo-app]
    env:
    - {name: GREETING, value: 'read-only root, uid 1000, 32Mi and a tenth of a CPU'}
    resources:
      limits: {cpu: 100m, memory: 32Mi}
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false}
";

/// What the demo's containers run: a line every few seconds, so that there is a log to look at.
#[must_use]
pub fn app() -> ExitCode {
    let greeting = std::env::var_os("GREETING").unwrap_or_default();
    let mut stdout = std::io::stdout();
    let mut count = 0_u64;
    loop {
        count += 1;
        let line = format!("{} (line {count}, process {})\n", greeting.to_string_lossy(), std::process::id());
        if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return ExitCode::FAILURE;
        }
        std::thread::sleep(Duration::from_secs(5));
    }
}

/// Takes the node away again, however the demo ends.
struct Stage {
    dir: PathBuf,
    keep: bool,
    agent: Option<Child>,
}

impl Stage {
    fn socket(&self) -> PathBuf {
        self.dir.join("run/podkeep.sock")
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        std::fs::write(self.dir.join("manifests").join(name), text)
    }

    fn pods(&self) -> Vec<serde_json::Value> {
        let request = ApiRequest::Pods { filter: PodFilter::default(), watch: false };
        match ask(&self.socket(), &request) {
            Ok(ApiReply::Pods { pods }) => pods,
            _ => Vec::new(),
        }
    }

    fn close(&mut self) {
        for name in ["hello.yaml", "limited.yaml"] {
            std::fs::remove_file(self.dir.join("manifests").join(name)).ok();
        }
        // pods go first, then the agent, then the supervisor that has nothing left to hold
        let request = ApiRequest::Pods { filter: PodFilter::default(), watch: true };
        if let Ok(mut call) = Call::start(&self.socket(), &request, &[]) {
            call.stream().set_read_timeout(Some(Duration::from_secs(1))).ok();
            for _ in 0..40 {
                if self.pods().is_empty() {
                    break;
                }
                // a change, or the second is over
                drop(call.next_reply());
            }
        }
        if let Some(mut agent) = self.agent.take() {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(agent.id()).unwrap_or_default());
            nix::sys::signal::kill(pid, Signal::SIGTERM).ok();
            agent.wait().ok();
        }
        quit_supervisor(&self.dir.join("run"));
        crate::node::files::remove_cgroup_root(&cgroup_root(&self.dir));
        let run_dir = self.dir.join("run");
        if let Err(failure) = crate::container::setup::release_run_dir(&run_dir) {
            out::error(&format!("'{}' stays mounted: {failure}", run_dir.display()));
        }
        if !self.keep {
            crate::volume::remove_tree(&self.dir);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.close();
    }
}

/// The supervisor ends when it has nothing left to hold.
fn quit_supervisor(run_dir: &Path) {
    if !run_dir.join(crate::supervisor::SOCKET).exists() {
        return;
    }
    let options = Options {
        run_dir: run_dir.to_owned(),
        exe: "/nonexistent".into(),
        cgroups: Vec::new(),
        timeout: Duration::from_secs(5),
    };
    let executor = smol::LocalExecutor::new();
    let (link, _events) = Link::open(options, |driver| executor.spawn(driver).detach());
    let asked = smol::block_on(executor.run(link.request(RequestBody::Quit, Vec::new())));
    if let Err(error) = asked {
        out::error(&format!("the supervisor goes on: {error}"));
    }
}

fn cgroup_root(dir: &Path) -> String {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("podkeep-demo-{}", name.trim_start_matches('.'))
}

fn config(dir: &Path) -> String {
    let show = |name: &str| dir.join(name).display().to_string();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {}\npodLogsDir: {}\ncgroupRoot: /{}\n",
        show("manifests"),
        show("logs"),
        cgroup_root(dir)
    )
}

/// Runs until Ctrl-C (or until the first pods run, where standard input is not a terminal and `PODKEEP_DEMO_ONCE` is
/// set: for checks).
pub fn run(dir: Option<PathBuf>) -> Result<ExitCode, Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err("containers need root: run it as root, or with sudo".into());
    }
    let keep = dir.is_some();
    let dir =
        dir.unwrap_or_else(|| std::env::temp_dir().join(format!("podkeep-demo-{}", std::process::id())));
    for name in ["manifests", "state", "run", "logs"] {
        std::fs::create_dir_all(dir.join(name))?;
    }
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block()?;
    let signals = SignalFd::new(&set)?;
    let mut stage = Stage { dir: std::path::absolute(&dir)?, keep, agent: None };
    let exe = std::env::current_exe()?;
    say("packing an image out of this program …");
    pack(&stage.dir, &exe)?;
    std::fs::write(stage.dir.join("node.yaml"), config(&stage.dir))?;
    stage.write("hello.yaml", HELLO)?;
    stage.write("limited.yaml", LIMITED)?;
    say("starting the agent …");
    stage.agent = Some(start_agent(&stage.dir, &exe)?);
    wait_until_running(&mut stage)?;
    out::print(&crate::cli::pod_table(&stage.pods()));
    let (program, socket) = (exe.display(), stage.socket());
    say(&format!(
        "two pods run. In another shell:\n  {program} get pods --socket {socket}\n  {program} logs -f hello --socket {socket}\n  {program} exec --socket {socket} hello -- /podkeep version\nDrop, edit or remove manifests in {manifests} and watch:\n  {program} get pods -w --socket {socket}\nCtrl-C ends it and takes everything away.",
        socket = socket.display(),
        manifests = stage.dir.join("manifests").display(),
    ));
    if std::env::var_os("PODKEEP_DEMO_ONCE").is_none() {
        signals.read_signal()?;
    }
    say("stopping …");
    drop(stage);
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) {
    out::print(&format!("{text}\n"));
}

fn pack(dir: &Path, exe: &Path) -> Result<(), Failure> {
    let archive = dir.join("demo.tar");
    let order = PackOrder {
        sources: vec![PackSource { host: exe.to_owned(), target: "/podkeep".into() }],
        config: ImageConfig { entrypoint: vec!["/podkeep".into()], ..ImageConfig::default() },
        platform: host_platform(),
        ..PackOrder::default()
    };
    crate::image::pack::pack(&order, &archive)?;
    let store = smol::block_on(ImageStore::open(&dir.join("state")))?;
    smol::block_on(store.load(archive, Some(IMAGE.to_owned()), Arc::new(Progress::default())))?;
    Ok(())
}

fn start_agent(dir: &Path, exe: &Path) -> std::io::Result<Child> {
    let log = std::fs::File::create(dir.join("agent.log"))?;
    let mut command = Command::new(exe);
    command
        .arg("run")
        .arg("--config")
        .arg(dir.join("node.yaml"))
        .arg("--state-dir")
        .arg(dir.join("state"))
        .arg("--run-dir")
        .arg(dir.join("run"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // Ctrl-C is ours; the agent is told in its turn
        .process_group(0);
    command.spawn()
}

fn wait_until_running(stage: &mut Stage) -> Result<(), Failure> {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while std::time::Instant::now() < deadline {
        let running = stage
            .pods()
            .iter()
            .filter(|pod| pod.pointer("/status/phase").and_then(|phase| phase.as_str()) == Some("Running"))
            .count();
        if running == 2 {
            return Ok(());
        }
        if let Some(agent) = &mut stage.agent
            && let Some(status) = agent.try_wait()?
        {
            let log = std::fs::read_to_string(stage.dir.join("agent.log")).unwrap_or_default();
            return Err(format!("the agent ended ({status}):\n{log}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = std::fs::read_to_string(stage.dir.join("agent.log")).unwrap_or_default();
    Err(format!("the pods do not run after 30 s; the agent says:\n{log}").into())
}
