//! Cases C-LIF: identity and lifecycle.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use podkeep_tests::node::{Node, PATIENCE, case_file, find};
use podkeep_tests::pods::{Pod, State};
use podkeep_tests::proc::Process;
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{cgroup, ensure, need_root};

const AFTER_GRACE: Duration = Duration::from_secs(60);

fn id(pod: &Pod) -> String {
    pod.containers().first().map(podkeep_tests::pods::Container::id).unwrap_or_default()
}

fn text(case: &str) -> Result<String> {
    fs::read_to_string(case_file(case)).doing(case)
}

#[test]
fn c_lif_01_removed_and_put_back_with_a_fixed_uid() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let hold = node.root.join("f.hold");
    let file = node.manifests.join("f.yaml");
    node.put_case("lif/C-LIF-01/f.yaml")?;
    node.wait_running("fixed")?;
    for gap in [100, 1000, 5000] {
        fs::rename(&file, &hold).doing("away")?;
        std::thread::sleep(Duration::from_millis(gap));
        fs::rename(&hold, &file).doing("back")?;
        // the stop takes its grace of two seconds; then there is exactly one running container
        let wait = |pods: &[Pod]| find(pods, "fixed").filter(Pod::all_running);
        node.wait("running again", PATIENCE, wait)?;
        let records = fs::read_dir(node.run.join("c")).doing("c")?.count();
        std::thread::sleep(Duration::from_secs(3));
        node.wait("still running", PATIENCE, wait)?;
        ensure!(records <= 2, "at most the old and the new container: {records}");
    }
    Ok(())
}

#[test]
fn c_lif_02_update_waits_for_the_old_pod_to_finish() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("h.yaml", &text("lif/C-LIF-02/v1.yaml")?)?;
    let old = node.wait_running("handover")?;
    node.wait_log("handover", "main", "v1")?;
    let process = node.first_process(&old, "main")?;
    let log = node.logs.join(format!("default_handover-node1_{}", old.uid())).join("main/0.log");
    node.put("h.yaml", &text("lif/C-LIF-02/v2.yaml")?)?;
    let began = std::time::Instant::now();
    process.wait_gone(Duration::from_secs(20))?;
    let took = began.elapsed();
    ensure!(
        (Duration::from_secs(7)..Duration::from_secs(15)).contains(&took),
        "the old one had its eight seconds: {took:?}"
    );
    let ended = std::time::Instant::now();
    let new = node.wait("the new pod", PATIENCE, |pods| {
        find(pods, "handover").filter(|p| p.uid() != old.uid() && p.all_running())
    })?;
    ensure!(
        ended.elapsed() < Duration::from_secs(2),
        "within two seconds of the old end: {:?}",
        ended.elapsed()
    );
    ensure!(new.uid() != old.uid(), "another pod");
    ensure!(
        fs::read_to_string(&log).is_ok_and(|t| t.contains("bye")) || !log.exists(),
        "the old one ended by itself"
    );
    Ok(())
}

#[test]
fn c_lif_03_only_the_newest_of_several_edits_starts() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let word = |w: &str| text("lif/C-LIF-03/t.yaml").map(|t| t.replace("WORD", w));
    node.put("t.yaml", &word("a")?)?;
    node.wait_running("edits")?;
    node.wait_log("edits", "main", "a")?;
    for w in ["b", "c"] {
        node.put("t.yaml", &word(w)?)?;
        std::thread::sleep(Duration::from_millis(700));
    }
    node.remove("t.yaml")?;
    std::thread::sleep(Duration::from_millis(700));
    node.put("t.yaml", &word("d")?)?;
    let running = |w: &'static str| {
        move |pods: &[Pod]| {
            find(pods, "edits")
                .filter(|p| p.all_running() && p.json.to_string().contains(&format!("echo {w};")))
        }
    };
    let d = node.wait("d runs", AFTER_GRACE, running("d"))?;
    // back and forth while it stops: d again
    node.put("t.yaml", &word("b")?)?;
    std::thread::sleep(Duration::from_millis(700));
    node.put("t.yaml", &word("d")?)?;
    std::thread::sleep(Duration::from_secs(1));
    node.wait("d runs again", AFTER_GRACE, running("d"))?;
    ensure!(!d.uid().is_empty(), "d has a uid");
    for file in crate::containers::walk(&node.logs) {
        let log = fs::read_to_string(&file).doing(file.display())?;
        ensure!(!log.lines().any(|l| l.ends_with(" b") || l.ends_with(" c")), "b and c never ran: {log}");
    }
    Ok(())
}

#[test]
fn c_lif_04_manifest_changed_while_the_agent_was_down() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    node.put("pair.yaml", &text("lif/C-LIF-04/v1.yaml")?)?;
    node.put("gone.yaml", &text("lif/C-LIF-04/gone.yaml")?)?;
    let old = node.wait_running("pair")?;
    let old = node.first_process(&old, "main")?;
    let gone = node.first_process(&node.wait_running("gone")?, "main")?;
    node.kill_agent()?;
    ensure!(old.alive() && gone.alive(), "containers do not notice");
    node.put("pair.yaml", &text("lif/C-LIF-04/v2.yaml")?)?;
    node.remove("gone.yaml")?;
    node.start_agent()?;
    node.wait("the new text", AFTER_GRACE, |pods| {
        find(pods, "pair").filter(|p| p.all_running() && p.json.to_string().contains("sleep 777"))
    })?;
    old.wait_gone(PATIENCE)?;
    gone.wait_gone(AFTER_GRACE)?;
    ensure!(node.pod("gone")?.is_none(), "the removed one is not shown");
    Ok(())
}

#[test]
fn c_lif_05_restarted_agent_adopts_what_runs() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    node.put_case("lif/C-LIF-05/p.yaml")?;
    let before = node.wait_running("adopt")?;
    let process = node.first_process(&before, "main")?;
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
        node.stop_agent(signal)?;
        node.start_agent()?;
        let now = node.wait_running("adopt")?;
        ensure!(id(&now) == id(&before) && process.alive(), "same container, same process");
        ensure!(now.container("main").is_some_and(|c| c.restarts() == 0), "count unchanged");
    }
    // numbers without a gap: nothing written while no agent ran is missing
    let log = node.wait_log("adopt", "main", "\n3\n")?;
    for (line, number) in log.lines().zip(0u32..) {
        ensure!(line == number.to_string(), "line {number} is '{line}'");
    }
    process.signal(Signal::SIGKILL)?;
    let now = node.wait("restarted", PATIENCE, |pods| {
        find(pods, "adopt").filter(|p| p.container("main").is_some_and(|c| c.restarts() == 1))
    })?;
    ensure!(
        now.container("main").and_then(|c| c.exit()).is_some_and(|(code, _)| code == 137),
        "exit code of an adopted one"
    );
    Ok(())
}

#[test]
fn c_lif_06_removed_while_its_image_is_missing_starts_nothing() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("lif/C-LIF-06/slow.yaml")?;
    node.wait("waiting for its image", PATIENCE, |pods| {
        find(pods, "slow-pull").filter(|p| p.container("main").is_some_and(|c| matches!(c.state(), State::Waiting { reason, .. } if reason.contains("Image") || reason.contains("Pull"))))
    })?;
    node.remove("slow.yaml")?;
    node.wait_gone("slow-pull")?;
    node.put_case("lif/C-LIF-06/slow.yaml")?;
    let layout = podkeep_tests::image::make(podkeep_tests::image::BUSYBOX, &node.root.join("images"))?;
    node.ok(&["image", "load", &layout.to_string_lossy(), "registry.test/slow-busybox:1"])?;
    node.wait("running once it is there", AFTER_GRACE, |pods| {
        find(pods, "slow-pull").filter(Pod::all_running)
    })?;
    Ok(())
}

#[test]
fn c_lif_07_container_that_cannot_start_leaves_nothing() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("lif/C-LIF-07/noentry.yaml")?;
    let pod = node.wait("told why", PATIENCE, |pods| {
        find(pods, "noentry").filter(|p| {
            p.json.to_string().contains("/does/not/exist\\\"")
                || p.json.to_string().contains("'/does/not/exist'")
        })
    })?;
    let uid = pod.uid();
    node.remove("noentry.yaml")?;
    node.wait_gone("noentry")?;
    ensure!(!node.state.join("pods").join(&uid).exists(), "no folder of the pod");
    let containers = fs::read_dir(node.run.join("c")).map(Iterator::count).unwrap_or(0);
    let sandboxes = fs::read_dir(node.run.join("s")).map(Iterator::count).unwrap_or(0);
    ensure!(containers == 0 && sandboxes == 0, "{containers} containers, {sandboxes} sandboxes left");
    for h in cgroup::hierarchies()? {
        let group =
            h.mount.join(node.cgroup.trim_start_matches('/')).join(format!("kubepods/besteffort/pod{uid}"));
        ensure!(!group.exists(), "no group {}", group.display());
    }
    Ok(())
}

/// The agent ends on TERM within two seconds and stops no pod (C-SHD-03 without the shutdown of a machine).
#[test]
fn term_hup_and_int_never_stop_a_pod() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    node.put("p.yaml", &crate::manifests::quick("stays", "x"))?;
    let pod = node.wait_running("stays")?;
    let process: Process = node.first_process(&pod, "main")?;
    node.agent()?.signal(Signal::SIGHUP)?;
    node.wait_running("stays")?;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let began = std::time::Instant::now();
        node.stop_agent(signal)?;
        ensure!(began.elapsed() < Duration::from_secs(2), "ends within two seconds of {signal}");
        ensure!(process.alive(), "{signal} to the agent stops no pod");
        node.start_agent()?;
    }
    let now = node.wait_running("stays")?;
    if id(&now) == id(&pod) { Ok(()) } else { Err(Trouble::new("another container")) }
}
