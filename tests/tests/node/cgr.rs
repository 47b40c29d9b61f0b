//! Cgroups as the kubelet lays them out, and cases C-CGR.

use std::fs;
use std::path::PathBuf;

use podkeep_tests::node::{Node, PATIENCE, find, shell_pod};
use podkeep_tests::pods::Pod;
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{cgroup, ensure, need_root, skip};

use crate::output_of;

/// The value of a control file below the node's root, e.g. of `kubepods/burstable/pod…`.
fn value(node: &Node, controller: &str, below: &str, v1: &str, v2: &str) -> Result<Option<String>> {
    let Some(top) = cgroup::folder(controller, &node.cgroup)? else { return Ok(None) };
    let dir: PathBuf = top.join(below);
    let file = if dir.join(v2).exists() { dir.join(v2) } else { dir.join(v1) };
    fs::read_to_string(&file).doing(file.display()).map(|text| Some(text.trim().to_string()))
}

fn group_of(pod: &Pod, class: &str) -> String {
    format!("kubepods{class}/pod{}", pod.uid())
}

const LIMITS: &str =
    "    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}\n";

#[test]
fn tree_names_and_values_are_the_kubelets() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("a.yaml", &shell_pod("burst", "sleep 600", LIMITS))?;
    node.put("b.yaml", &shell_pod("best", "sleep 600", ""))?;
    node.put(
        "c.yaml",
        &shell_pod("sure", "sleep 600", "    resources: {limits: {cpu: 250m, memory: 32Mi}}\n"),
    )?;
    let (burst, best, sure) =
        (node.wait_running("burst")?, node.wait_running("best")?, node.wait_running("sure")?);
    for (pod, class) in [(&burst, "/burstable"), (&best, "/besteffort"), (&sure, "")] {
        let process = node.first_process(pod, "main")?;
        let own = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).doing("cgroup")?;
        let wanted = format!("{}/{}/", node.cgroup, group_of(pod, class));
        ensure!(own.contains(&wanted), "{wanted} in {own}");
    }
    // cgroup of the pod: the sum of its containers
    let memory =
        value(&node, "memory", &group_of(&burst, "/burstable"), "memory.limit_in_bytes", "memory.max")?;
    if let Some(memory) = memory {
        ensure!(memory == (64 << 20).to_string(), "memory limit of the pod: {memory}");
    }
    if let Some(quota) = value(&node, "cpu", &group_of(&burst, "/burstable"), "cpu.cfs_quota_us", "cpu.max")?
    {
        ensure!(quota == "50000" || quota == "50000 100000", "quota: {quota}");
    }
    if let Some(shares) = value(&node, "cpu", &group_of(&burst, "/burstable"), "cpu.shares", "cpu.weight")? {
        ensure!(["102", "4", "17"].contains(&shares.as_str()), "shares of 100m: {shares}");
    }
    if let Some(shares) = value(&node, "cpu", &group_of(&best, "/besteffort"), "cpu.shares", "cpu.weight")? {
        ensure!(["2", "1"].contains(&shares.as_str()), "the least for best effort: {shares}");
    }
    let score = |pod: &Pod| -> Result<i64> {
        let process = node.first_process(pod, "main")?;
        fs::read_to_string(format!("/proc/{}/oom_score_adj", process.pid))
            .doing("oom_score_adj")?
            .trim()
            .parse()
            .doing("oom_score_adj")
    };
    ensure!(score(&best)? == 1000, "best effort goes first");
    ensure!((2..1000).contains(&score(&burst)?), "burstable in between: {}", score(&burst)?);
    // without CAP_SYS_RESOURCE a negative value is refused by the kernel and said so
    let sure_score = score(&sure)?;
    ensure!(
        sure_score == -997 || sure.json.to_string().contains("oom_score_adj"),
        "guaranteed: {sure_score}, or told: {}",
        sure.json
    );
    Ok(())
}

#[test]
fn pids_are_limited_as_configured() -> Result<()> {
    need_root!();
    if cgroup::folder("pids", "x")?.is_none() {
        skip!("no pids controller");
    }
    let node = Node::with(podkeep_tests::NodeOptions {
        config: "podPidsLimit: 40\n".into(),
        images: vec![podkeep_tests::image::BUSYBOX],
        ..podkeep_tests::NodeOptions::default()
    })?;
    node.put("p.yaml", &shell_pod("pids", "sleep 600", ""))?;
    let pod = node.wait_running("pids")?;
    let limit = value(&node, "pids", &group_of(&pod, "/besteffort"), "pids.max", "pids.max")?;
    ensure!(limit.as_deref() == Some("40"), "{limit:?}");
    Ok(())
}

fn need_memory() -> Result<bool> {
    Ok(cgroup::folder("memory", "x")?.is_some())
}

#[test]
fn c_cgr_03_out_of_memory_is_told_from_being_killed() -> Result<()> {
    need_root!();
    if !need_memory()? {
        skip!("no memory controller");
    }
    let node = Node::start()?;
    for file in ["oom.yaml", "child.yaml", "self.yaml", "kill.yaml"] {
        node.put_case(&format!("cgr/C-CGR-03/{file}"))?;
    }
    let exit = |pod: &Pod| pod.container("main").and_then(|c| c.exit());
    let oom = node.wait_phase("oom", "Failed")?;
    ensure!(exit(&oom) == Some((137, "OOMKilled".into())), "{:?}", exit(&oom));
    let own = node.wait_phase("self-137", "Failed")?;
    ensure!(exit(&own) == Some((137, "Error".into())), "{:?}", exit(&own));
    node.wait_running("just-killed")?;
    let child = node.wait("child killed", PATIENCE, |pods| find(pods, "oom-child"))?;
    if child.container("main").is_some_and(|c| c.running()) {
        let log = node.wait_log("oom-child", "main", "child 137")?;
        ensure!(!log.is_empty(), "main goes on");
    }
    node.remove("kill.yaml")?;
    node.wait_gone("just-killed")?;
    let killed =
        node.history().into_iter().rev().find(|p| p.name() == "just-killed-node1" && exit(p).is_some());
    let killed = killed.ok_or_else(|| Trouble::new("the end of 'just-killed' was never shown"))?;
    ensure!(
        exit(&killed).is_some_and(|(code, reason)| code == 137 && reason != "OOMKilled"),
        "{:?}",
        exit(&killed)
    );
    Ok(())
}

#[test]
fn c_cgr_05_real_time_needs_the_capability() -> Result<()> {
    need_root!();
    let tools = std::process::Command::new("/bin/busybox").arg("--list").output().doing("busybox")?;
    if !String::from_utf8_lossy(&tools.stdout).lines().any(|tool| tool == "chrt") {
        skip!("this busybox has no chrt");
    }
    let node = Node::start()?;
    node.put_case("cgr/C-CGR-05/nocap.yaml")?;
    node.wait_phase("fifo-nocap", "Failed")?;
    let log = node.logs("fifo-nocap", "main")?;
    ensure!(log.to_lowercase().contains("not permitted"), "{log}");
    // with it the call works where the kernel lets groups run in real time at all
    let rt = cgroup::folder("cpu", "")?.is_some_and(|top| top.join("cpu.rt_runtime_us").exists());
    node.put_case("cgr/C-CGR-05/rt.yaml")?;
    if rt {
        node.wait("told why, or running", PATIENCE, |pods| {
            find(pods, "fifo").filter(|p| p.json.to_string().contains("rt_runtime") || p.all_running())
        })?;
    } else {
        node.wait_running("fifo")?;
        let log = node.wait_log("fifo", "main", "SCHED_FIFO")?;
        ensure!(log.contains("50"), "{log}");
    }
    Ok(())
}

#[test]
fn device_access_is_limited_to_the_usual_ones() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let more = "    securityContext: {capabilities: {add: [MKNOD]}}\n  restartPolicy: Never\n";
    // the node can be made, but the group's rules keep it shut (major 1 minor 1 is /dev/mem)
    let script = "mknod /tmp/mem c 1 1 && head -c1 /tmp/mem >/dev/null 2>/tmp/e || cat /tmp/e; echo x > /dev/null && echo null ok";
    let text = output_of(&node, "devices", &shell_pod("devices", script, more))?;
    ensure!(text.contains("not permitted") && text.contains("null ok"), "{text}");
    Ok(())
}
