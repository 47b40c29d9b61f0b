//! No shim, no pause: agent and supervisor can be killed at any moment, and no container, exit code or log byte is lost.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use podkeep_tests::node::{Node, NodeOptions, PATIENCE, find, shell_pod};
use podkeep_tests::proc::{Cost, Process, cost};
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{Pod, ensure, image, need_root};

/// Counts without a pause; `until` ends it with code 7.
fn counting(name: &str, until: u32) -> String {
    let script = format!(
        "i=0; while [ $i -lt {until} ]; do echo $i; i=$((i+1)); [ $((i%50)) = 0 ] && sleep 0.02; done; exit 7"
    );
    shell_pod(name, &script, "  restartPolicy: Never\n")
}

fn check_count(node: &Node, name: &str, until: u32) -> Result<()> {
    let log = node.logs(name, "main")?;
    let lines: Vec<&str> = log.lines().collect();
    for (line, number) in lines.iter().zip(0u32..) {
        ensure!(*line == number.to_string(), "line {number} of '{name}' is '{line}'");
    }
    ensure!(u32::try_from(lines.len()).is_ok_and(|n| n == until), "{} of {until} lines", lines.len());
    Ok(())
}

#[test]
fn no_process_stands_between_supervisor_and_container() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("p.yaml", &shell_pod("lone", "sleep 600", ""))?;
    let pod = node.wait_running("lone")?;
    let process = node.first_process(&pod, "main")?;
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).doing("status")?;
    let parent: i32 = crate::field(&status, "PPid:").parse().doing("PPid")?;
    ensure!(parent == node.supervisor()?.pid, "the supervisor is its parent, not {parent}");
    ensure!(node.supervisor()?.pid != node.agent()?.pid, "agent and supervisor are two");
    Ok(())
}

#[test]
fn exit_code_and_log_of_a_container_that_ends_while_no_agent_runs() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    node.put("p.yaml", &counting("alone", 3000))?;
    let pod = node.wait_running("alone")?;
    let process = node.first_process(&pod, "main")?;
    node.kill_agent()?;
    process.wait_gone(PATIENCE)?;
    node.start_agent()?;
    let pod = node.wait_phase("alone", "Failed")?;
    ensure!(
        pod.container("main").and_then(|c| c.exit()).is_some_and(|(code, _)| code == 7),
        "exit code 7: {:?}",
        pod.container("main")
    );
    check_count(&node, "alone", 3000)
}

#[test]
fn killed_supervisor_is_replaced_and_the_container_goes_on() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("p.yaml", &counting("orphan", 8000))?;
    let pod = node.wait_running("orphan")?;
    let process = node.first_process(&pod, "main")?;
    let first = node.supervisor()?;
    first.signal(Signal::SIGKILL)?;
    first.wait_gone(PATIENCE)?;
    let end = std::time::Instant::now() + PATIENCE;
    let second = loop {
        if let Ok(s) = node.supervisor() {
            break s;
        }
        ensure!(std::time::Instant::now() < end, "no new supervisor\n{}", node.agent_log_tail());
        std::thread::sleep(Duration::from_millis(5));
    };
    ensure!(second != first && process.alive(), "another supervisor, the same container");
    let pod = node.wait_phase("orphan", "Failed")?;
    let exit = pod.container("main").and_then(|c| c.exit());
    // an orphan's status can be read from its pidfd since Linux 6.15; before that it is honestly unknown (137)
    ensure!(
        exit.as_ref().is_some_and(|(code, _)| *code == if kernel_at_least(6, 15) { 7 } else { 137 }),
        "{exit:?}"
    );
    check_count(&node, "orphan", 8000)
}

pub(crate) fn kernel_at_least(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map(|p| p.trim().parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}

#[test]
fn both_killed_at_once_are_replaced_and_everything_is_adopted() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    for n in 0..3 {
        node.put(&format!("p{n}.yaml"), &shell_pod(&format!("keep{n}"), "echo up; sleep 600", ""))?;
    }
    let mut before: Vec<(Pod, Process)> = Vec::new();
    for n in 0..3 {
        let pod = node.wait_running(&format!("keep{n}"))?;
        let process = node.first_process(&pod, "main")?;
        before.push((pod, process));
    }
    let supervisor = node.supervisor()?;
    node.agent()?.signal(Signal::SIGSTOP)?;
    supervisor.signal(Signal::SIGKILL)?;
    node.kill_agent()?;
    supervisor.wait_gone(PATIENCE)?;
    ensure!(before.iter().all(|(_, p)| p.alive()), "no container notices");
    node.start_agent()?;
    for (n, (pod, process)) in before.iter().enumerate() {
        let now = node.wait_running(&format!("keep{n}"))?;
        ensure!(
            now.container("main").map(|c| c.id()) == pod.container("main").map(|c| c.id()) && process.alive(),
            "adopted"
        );
        let out = node.exec(&format!("keep{n}"), "main", &["echo", "exec works"])?;
        ensure!(out.stdout == b"exec works\n", "{out:?}");
    }
    Ok(())
}

#[test]
fn container_cannot_overwrite_the_program_that_runs_it() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put(
        "p.yaml",
        &shell_pod("evil", "sleep 600", "    securityContext: {privileged: true}\n  hostPID: true\n"),
    )?;
    node.wait_running("evil")?;
    let program = podkeep_tests::node::podkeep()?;
    let before = fs::metadata(&program).doing("program")?.len();
    let script = format!("(echo x > /proc/{}/exe) 2>&1; echo tried", node.supervisor()?.pid);
    let out = node.exec("evil", "main", &["sh", "-c", &script])?;
    ensure!(String::from_utf8_lossy(&out.stdout).contains("tried"), "{out:?}");
    ensure!(
        fs::metadata(&program).doing("program")?.len() == before && node.get_pods().is_ok(),
        "the program is as it was"
    );
    Ok(())
}

#[test]
fn idle_node_does_not_wake_up() -> Result<()> {
    need_root!();
    // the listing that stands in for lost file events is not what is measured
    let config = "fileCheckFrequency: 10m\n".to_string();
    let node = Node::with(NodeOptions {
        no_watch: true,
        own_mounts: true,
        config,
        images: vec![image::BUSYBOX],
        ..NodeOptions::default()
    })?;
    for n in 0..3 {
        node.put(&format!("p{n}.yaml"), &shell_pod(&format!("idle{n}"), "exec sleep 600", ""))?;
    }
    for n in 0..3 {
        node.wait("running", PATIENCE, |pods| find(pods, &format!("idle{n}")).filter(Pod::all_running))?;
    }
    let (agent, supervisor) = (node.agent()?.pid, node.supervisor()?.pid);
    let both = || -> Result<(Cost, Cost)> { Ok((cost(agent)?, cost(supervisor)?)) };
    // what the starts left to do is done when nobody has woken up for a second
    let end = std::time::Instant::now() + PATIENCE;
    let before = loop {
        let one = both()?;
        std::thread::sleep(Duration::from_secs(1));
        let two = both()?;
        if (one.0.voluntary, one.1.voluntary) == (two.0.voluntary, two.1.voluntary) {
            break two;
        }
        ensure!(std::time::Instant::now() < end, "never quiet: {one:?} {two:?}\n{}", node.agent_log_tail());
    };
    // what wakes periodically does so in every window; on a busy machine single ones may see a page come from the disk
    let mut before = before;
    let mut seen = Vec::new();
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(5));
        let after = both()?;
        let woke = (after.0.voluntary - before.0.voluntary, after.1.voluntary - before.1.voluntary);
        if woke == (0, 0) {
            return Ok(());
        }
        seen.push(woke);
        before = after;
    }
    ensure!(seen.is_empty(), "woke up in each of six windows of five seconds: {seen:?}");
    Ok(())
}
