//! Cases C-SRC: their scripts played against a running node. Pods there ignore TERM, so that a replacement takes the
//! 30 s of their grace.

use std::fs;
use std::time::Duration;

use podkeep_tests::node::{Node, NodeOptions, PATIENCE, case_file, find};
use podkeep_tests::pods::Pod;
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, image, need_root};

/// A replaced pod waits for the grace of the old one.
const AFTER_GRACE: Duration = Duration::from_secs(60);

fn id(pod: &Pod) -> String {
    pod.containers().first().map(podkeep_tests::pods::Container::id).unwrap_or_default()
}

/// Container ids that a pod of this name has had, in order.
fn ids(node: &Node, name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for pod in node.history() {
        let one = id(&pod);
        if pod.name() == podkeep_tests::node::full_name(name) && !one.is_empty() && !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

#[test]
fn c_src_01_backup_copy_is_not_read() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    fs::copy(case_file("src/C-SRC-01/web-new.yaml"), node.manifests.join("web.yaml")).doing("web.yaml")?;
    let before = node.wait_running("web")?;
    fs::copy(case_file("src/C-SRC-01/web-old.yaml"), node.manifests.join("web.yaml.backup"))
        .doing("backup")?;
    node.wait_log("web", "main", "new")?;
    node.kill_agent()?;
    node.start_agent()?;
    let after = node.wait_running("web")?;
    ensure!(id(&before) == id(&after), "the same container after a restart of the agent");
    ensure!(node.logs("web", "main")? == "new\n", "the old text never ran");
    Ok(())
}

#[test]
fn c_src_02_editor_save_is_one_clean_restart() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.play("src/C-SRC-02/ops.sh", &[])?;
    node.wait("the new text", AFTER_GRACE, |pods| {
        find(pods, "svc").filter(|p| p.all_running() && p.json.to_string().contains("echo two"))
    })?;
    ensure!(ids(&node, "svc").len() <= 2, "one restart: {:?}", ids(&node, "svc"));
    let sources = node.ok(&["get", "sources"])?;
    ensure!(
        !sources.contains("4913") && !sources.contains("svc.yaml~") && !sources.contains(".swp"),
        "{sources}"
    );
    Ok(())
}

#[test]
fn c_src_03_same_content_never_restarts() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.play("src/C-SRC-03/ops.sh", &[])?;
    let pod = node.wait_running("quiet")?;
    ensure!(ids(&node, "quiet").len() == 1, "one container: {:?}", ids(&node, "quiet"));
    ensure!(pod.container("main").is_some_and(|c| c.restarts() == 0), "no restart");
    Ok(())
}

#[test]
fn c_src_04_slow_write_never_takes_the_pod_away() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    fs::copy(case_file("src/C-SRC-04/two.yaml"), node.manifests.join("two.yaml")).doing("two.yaml")?;
    node.wait_running("two")?;
    node.play("src/C-SRC-04/ops.sh", &[])?;
    node.wait("the new text", AFTER_GRACE, |pods| {
        find(pods, "two").filter(|p| p.all_running() && p.json.to_string().contains("echo v2"))
    })?;
    for pod in node.history().iter().filter(|p| p.name() == podkeep_tests::node::full_name("two")) {
        let containers = pod.json.pointer("/spec/containers").and_then(|c| c.as_array()).map_or(0, Vec::len);
        ensure!(containers == 2, "a pod of the cut text was seen: {}", pod.json);
    }
    Ok(())
}

#[test]
fn c_src_05_link_whose_target_appears_later() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let target = node.root.join("target");
    fs::create_dir(&target).doing("target")?;
    std::os::unix::fs::symlink(target.join("late.yaml"), node.manifests.join("late.yaml")).doing("link")?;
    // the safety scan is the slowest way to notice
    node.wait("answering", PATIENCE, |_| Some(()))?;
    let text = fs::read_to_string(case_file("src/C-SRC-05/late.yaml")).doing("late.yaml")?;
    fs::write(target.join("late.yaml"), &text).doing("late.yaml")?;
    let first = node.wait_running("late")?;
    fs::write(target.join("x"), text.replace("86400", "86401")).doing("x")?;
    fs::rename(target.join("x"), target.join("late.yaml")).doing("rename")?;
    node.wait("updated", AFTER_GRACE, |pods| {
        find(pods, "late").filter(|p| p.all_running() && p.uid() != first.uid())
    })?;
    Ok(())
}

#[test]
fn c_src_06_data_swap_restarts_only_what_changed() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.play("src/C-SRC-06/ops.sh", &[])?;
    node.wait("b changed", AFTER_GRACE, |pods| {
        find(pods, "data-b").filter(|p| p.all_running() && p.json.to_string().contains("4242"))
    })?;
    ensure!(ids(&node, "data-a").len() == 1, "a untouched: {:?}", ids(&node, "data-a"));
    ensure!(node.get_pods()?.len() == 2, "nothing is read twice");
    Ok(())
}

#[test]
fn c_src_07_folder_that_appears_and_is_replaced() -> Result<()> {
    need_root!();
    let node = Node::with(NodeOptions {
        images: vec![image::BUSYBOX],
        no_manifests_dir: true,
        ..NodeOptions::default()
    })?;
    fs::create_dir(&node.manifests).doing("folder")?;
    node.put_case("src/C-SRC-07/x.yaml")?;
    node.wait_running("dir-late")?;
    fs::rename(&node.manifests, node.root.join("gone")).doing("rename")?;
    fs::create_dir(&node.manifests).doing("folder")?;
    node.put_case("src/C-SRC-07/x.yaml")?;
    node.wait("running again", AFTER_GRACE, |pods| find(pods, "dir-late").filter(Pod::all_running))?;
    node.put("late.yaml", &crate::manifests::quick("seen-later", "x"))?;
    node.wait_running("seen-later").map(|_| ())
}

#[test]
fn c_src_08_things_that_are_no_files_hold_up_nothing() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.play("src/C-SRC-08/ops.sh", &[])?;
    node.wait_running("ok-reg")?;
    let sources = node.ok(&["get", "sources"])?;
    ensure!(!sources.contains("inner.yaml"), "folders are not entered: {sources}");
    for bad in ["aaa.yaml", "ccc.yaml", "loop.yaml"] {
        ensure!(sources.contains(bad), "{bad} is named: {sources}");
    }
    Ok(())
}

#[test]
fn c_src_09_hostile_file_names() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.play("src/C-SRC-09/ops.sh", &[])?;
    node.wait_running("dash")?;
    node.wait_running("long-name")?;
    let sources = node.ok(&["get", "sources"])?;
    ensure!(!sources.contains("two\nlines"), "names are escaped: {sources}");
    let log = node.agent_log()?;
    ensure!(!log.contains("panicked"), "{log}");
    Ok(())
}
