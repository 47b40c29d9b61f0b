//! Cases C-STA: state files and power loss.

use std::fs;
use std::process::Command;

use podkeep_tests::node::{Node, NodeOptions, PATIENCE, case_file, find};
use podkeep_tests::pods::{Container, Pod};
use podkeep_tests::proc::mounts_below;
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, image, need_root};

fn ids(pods: &[Pod]) -> Vec<String> {
    let mut all: Vec<String> = pods.iter().flat_map(Pod::containers).map(|c: Container| c.id()).collect();
    all.sort();
    all
}

#[test]
fn c_sta_01_damaged_state_files_never_stop_the_agent_or_a_pod() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    let text = fs::read_to_string(case_file("sta/C-STA-01/p.yaml")).doing("p.yaml")?;
    for n in 0..2 {
        node.put(&format!("{n}.yaml"), &text.replace("state-N", &format!("state-{n}")))?;
    }
    for n in 0..2 {
        node.wait_running(&format!("state-{n}"))?;
    }
    let before = ids(&node.get_pods()?);
    for mode in ["empty", "half", "tail", "zeros", "flip", "old", "future", "dir", "link"] {
        node.kill_agent()?;
        let state = node.state.join("state");
        for file in crate::containers::walk(&state) {
            let script = case_file("sta/C-STA-01/damage.sh");
            let done = Command::new("sh").arg(script).arg(&file).arg(mode).status().doing("damage.sh")?;
            ensure!(done.success(), "{mode} applied to {}", file.display());
        }
        node.start_agent().map_err(|e| podkeep_tests::Trouble::new(format!("after '{mode}': {e}")))?;
        for n in 0..2 {
            node.wait_running(&format!("state-{n}"))?;
        }
        let now = ids(&node.get_pods()?);
        ensure!(now == before, "'{mode}': no pod was restarted: {before:?} {now:?}");
    }
    Ok(())
}

#[test]
fn c_sta_02_full_state_folder_hurts_no_running_pod() -> Result<()> {
    need_root!();
    let mut node = Node::with(NodeOptions {
        state_size: Some(16 << 20),
        images: vec![image::BUSYBOX],
        ..NodeOptions::default()
    })?;
    node.put_case("sta/C-STA-02/p.yaml")?;
    let before = node.wait_running("full-a")?;
    let fill = node.state.join("fill");
    // until it is full
    let full = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k"])
        .arg(format!("of={}", fill.display()))
        .output()
        .doing("dd")?;
    ensure!(!full.status.success(), "the folder is full");
    node.kill_agent()?;
    node.start_agent()?;
    let text = fs::read_to_string(case_file("sta/C-STA-02/p.yaml")).doing("p.yaml")?;
    node.put("b.yaml", &text.replace("full-a", "full-b"))?;
    let now = node.wait_running("full-a")?;
    ensure!(ids(&[now]) == ids(std::slice::from_ref(&before)), "untouched");
    fs::remove_file(&fill).doing("fill")?;
    node.wait("the second pod runs without help", std::time::Duration::from_secs(150), |pods| {
        find(pods, "full-b").filter(Pod::all_running)
    })?;
    let now = node.wait_running("full-a")?;
    ensure!(ids(&[now]) == ids(&[before]), "never restarted");
    Ok(())
}

#[test]
fn c_sta_04_mount_in_a_left_over_folder_keeps_its_data() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    node.kill_agent()?;
    let precious = node.root.join("precious");
    let dead = node.state.join("pods/00000000-dead-4000-8000-000000000000/volumes/host~data");
    fs::create_dir_all(&dead).doing("dead")?;
    fs::create_dir_all(&precious).doing("precious")?;
    fs::write(precious.join("file"), "keep").doing("file")?;
    let done = Command::new("mount").arg("--bind").arg(&precious).arg(&dead).status().doing("mount")?;
    ensure!(done.success(), "mounted");
    node.start_agent()?;
    node.put("p.yaml", &crate::manifests::quick("alive", "x"))?;
    node.wait_running("alive")?;
    node.wait("the folder is cleaned", PATIENCE, |_| {
        let mounted =
            mounts_below(&node.state.join("pods")).is_ok_and(|m| m.iter().any(|p| p.contains("dead")));
        (!mounted).then_some(())
    })?;
    ensure!(
        fs::read_to_string(precious.join("file")).is_ok_and(|t| t == "keep"),
        "the data behind the mount is there"
    );
    Ok(())
}

#[test]
fn c_sta_03_clock_steps_hurt_no_crash_loop() -> Result<()> {
    need_root!();
    if std::env::var_os("PODKEEP_THROWAWAY").is_none() {
        podkeep_tests::skip!("sets the machine's clock (only with PODKEEP_THROWAWAY=1)");
    }
    let node = Node::start()?;
    node.put_case("sta/C-STA-03/p.yaml")?;
    let restarts = |pods: &[Pod]| {
        find(pods, "clock-crash").and_then(|p| p.container("main")).map_or(0, |c| c.restarts())
    };
    node.wait("first restart", PATIENCE, |pods| (restarts(pods) >= 1).then_some(()))?;
    for round in 0..20 {
        let step = if round % 2 == 0 { "+10 minutes" } else { "-10 minutes" };
        ensure!(Command::new("date").args(["-s", step]).status().is_ok_and(|s| s.success()), "clock set");
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    node.wait("restarts go on", std::time::Duration::from_secs(60), |pods| {
        (restarts(pods) >= 3).then_some(())
    })
}
