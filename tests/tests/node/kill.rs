//! SIGKILL to the agent, and to the supervisor, at every step of a pod's start and stop. Whatever it left behind, the
//! node converges: the pod runs once, and when it is removed nothing of it is left.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use podkeep_tests::cgroup;
use podkeep_tests::node::{Node, PATIENCE, find};
use podkeep_tests::proc::Process;
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{Pod, ensure, need_root};

use crate::manifests::quick;

/// Where the supervisor can be made to die (`agent/src/supervisor`).
const START_POINTS: [&str; 10] = [
    "sandbox:begun",
    "sandbox:made",
    "sandbox:recorded",
    "start:pipes",
    "start:cloned",
    "start:ready",
    "start:written",
    "start:released",
    "start:executed",
    "start:recorded",
];
const STOP_POINTS: [&str; 8] = [
    "exit:seen",
    "exit:written",
    "exit:drained",
    "exit:reaped",
    "remove:begin",
    "remove:half",
    "sandbox:removing",
    "sandbox:unpinned",
];

/// The pod runs once and answers.
fn runs(node: &Node, name: &str, word: &str) -> Result<Pod> {
    let pod =
        node.wait("running", Duration::from_secs(60), |pods| find(pods, name).filter(Pod::all_running))?;
    node.wait_log(name, "main", word)?;
    for top in node_group(node, &pod)? {
        let inner = fs::read_dir(&top).into_iter().flatten().flatten();
        let busy: Vec<_> =
            inner.map(|e| (e.path(), cgroup::pids(&e.path()))).filter(|(_, pids)| !pids.is_empty()).collect();
        ensure!(busy.len() <= 1, "one container only, but {busy:?}\n{}", node.agent_log_tail());
    }
    Ok(pod)
}

fn node_group(node: &Node, pod: &Pod) -> Result<Vec<std::path::PathBuf>> {
    let group = format!("kubepods/besteffort/pod{}", pod.uid());
    let top = node.cgroup.trim_start_matches('/');
    Ok(cgroup::hierarchies()?
        .into_iter()
        .map(|h| h.mount.join(top).join(&group))
        .filter(|d| d.is_dir())
        .collect())
}

/// Nothing of a removed pod is left: record, sandbox, folder, group, process.
fn nothing_left(node: &Node, pod: &Pod) -> Result<()> {
    node.wait_gone(&pod.name().replace("-node1", ""))?;
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let count = |dir: &str| fs::read_dir(node.run.join(dir)).map(Iterator::count).unwrap_or(0);
        let folder = node.state.join("pods").join(pod.uid()).exists();
        let groups = node_group(node, pod)?;
        if count("c") == 0 && count("s") == 0 && !folder && groups.is_empty() {
            break;
        }
        if std::time::Instant::now() > end {
            return Err(Trouble::new(format!(
                "left: {} containers, {} sandboxes, folder {folder}, groups {groups:?}\n{}",
                count("c"),
                count("s"),
                node.agent_log_tail()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mounts = podkeep_tests::proc::mounts_below(&node.run)?;
    ensure!(mounts.len() == 1, "only the run folder itself is mounted: {mounts:?}");
    Ok(())
}

/// Waits until the armed failpoint has struck; false when nothing came by it.
fn struck(node: &Node, limit: Duration) -> bool {
    let end = std::time::Instant::now() + limit;
    while node.failpoint().exists() {
        if std::time::Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn supervisor_killed_at_every_step_of_a_start() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let mut missed = Vec::new();
    for point in START_POINTS {
        let name = point.replace(':', "-");
        fs::write(node.failpoint(), point).doing("failpoint")?;
        node.put("p.yaml", &quick(&name, &name))?;
        if !struck(&node, Duration::from_secs(10)) {
            fs::remove_file(node.failpoint()).doing("failpoint")?;
            missed.push(point);
        }
        let pod = runs(&node, &name, &name).map_err(|e| Trouble::new(format!("{point}: {e}")))?;
        node.remove("p.yaml")?;
        nothing_left(&node, &pod).map_err(|e| Trouble::new(format!("{point}: {e}")))?;
    }
    ensure!(missed.is_empty(), "never came by {missed:?}");
    Ok(())
}

#[test]
fn supervisor_killed_at_every_step_of_a_stop() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let mut missed = Vec::new();
    for point in STOP_POINTS {
        let name = point.replace(':', "-");
        node.put("p.yaml", &quick(&name, &name))?;
        let pod = runs(&node, &name, &name)?;
        fs::write(node.failpoint(), point).doing("failpoint")?;
        node.remove("p.yaml")?;
        if !struck(&node, Duration::from_secs(10)) {
            fs::remove_file(node.failpoint()).doing("failpoint")?;
            missed.push(point);
        }
        nothing_left(&node, &pod).map_err(|e| Trouble::new(format!("{point}: {e}")))?;
    }
    ensure!(missed.is_empty(), "never came by {missed:?}");
    Ok(())
}

/// Delays that fall before, into and behind a start or stop of some milliseconds.
const DELAYS_MS: [u64; 14] = [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50];

#[test]
fn agent_killed_at_any_moment_of_a_start() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    for delay in DELAYS_MS {
        let name = format!("start{delay}");
        node.put("p.yaml", &quick(&name, &name))?;
        std::thread::sleep(Duration::from_millis(delay));
        node.kill_agent()?;
        node.start_agent()?;
        let told = |e: Trouble| Trouble::new(format!("agent killed after {delay} ms: {e}"));
        let pod = runs(&node, &name, &name).map_err(told)?;
        ensure!(pod.container("main").is_some_and(|c| c.restarts() == 0), "after {delay} ms: started once");
        node.remove("p.yaml")?;
        nothing_left(&node, &pod).map_err(told)?;
    }
    Ok(())
}

#[test]
fn agent_killed_at_any_moment_of_a_stop() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    for delay in DELAYS_MS {
        let name = format!("stop{delay}");
        node.put("p.yaml", &quick(&name, &name))?;
        let pod = runs(&node, &name, &name)?;
        node.remove("p.yaml")?;
        std::thread::sleep(Duration::from_millis(delay));
        node.kill_agent()?;
        node.start_agent()?;
        nothing_left(&node, &pod).map_err(|e| Trouble::new(format!("agent killed after {delay} ms: {e}")))?;
    }
    Ok(())
}

#[test]
fn supervisor_killed_at_any_moment_of_a_start_and_stop() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    for delay in DELAYS_MS {
        let name = format!("sup{delay}");
        let told = |e: Trouble| Trouble::new(format!("supervisor killed after {delay} ms: {e}"));
        node.put("p.yaml", &quick(&name, &name))?;
        std::thread::sleep(Duration::from_millis(delay));
        kill_supervisor(&node)?;
        let pod = runs(&node, &name, &name).map_err(told)?;
        node.remove("p.yaml")?;
        std::thread::sleep(Duration::from_millis(delay));
        kill_supervisor(&node)?;
        nothing_left(&node, &pod).map_err(told)?;
    }
    Ok(())
}

fn kill_supervisor(node: &Node) -> Result<()> {
    let end = std::time::Instant::now() + PATIENCE;
    let supervisor: Process = loop {
        if let Ok(s) = node.supervisor() {
            break s;
        }
        ensure!(std::time::Instant::now() < end, "no supervisor\n{}", node.agent_log_tail());
        std::thread::sleep(Duration::from_millis(2));
    };
    supervisor.signal(Signal::SIGKILL)?;
    supervisor.wait_gone(PATIENCE)
}
