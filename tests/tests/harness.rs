//! The harness itself: what a node made is taken away, also when its test program was killed before it could.

use std::fs;
use std::process::Command;

use podkeep_tests::node::{Node, NodeOptions};
use podkeep_tests::proc::{Process, mounts_below};
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{cgroup, ensure, janitor, need_root};

/// A process that has put itself in the node's cgroup, in a session of its own.
fn stray(node: &Node) -> Result<Process> {
    let home = cgroup::make_home(&node.cgroup)?;
    let script = format!("echo $$ > {}/cgroup.procs; echo in; exec sleep 600", home.display());
    let mut child = Command::new("setsid")
        .args(["sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .doing("setsid")?;
    let mut said = [0; 3];
    let stdout = child.stdout.as_mut().ok_or_else(|| Trouble::new("no output"))?;
    std::io::Read::read_exact(stdout, &mut said).doing("sleep")?;
    let process = cgroup::pids(&home).first().copied().and_then(Process::of);
    // reaped here, or it would stay as a zombie of this test
    std::thread::spawn(move || child.wait());
    process.ok_or_else(|| Trouble::new("the process is not in the cgroup"))
}

#[test]
fn dropped_node_leaves_no_process_mount_cgroup_or_file() -> Result<()> {
    need_root!();
    let node = Node::prepare(NodeOptions { state_size: Some(1 << 20), ..NodeOptions::default() })?;
    let (root, group) = (node.root.clone(), node.cgroup.clone());
    let process = stray(&node)?;
    ensure!(mounts_below(&root)?.len() == 2, "run and state are mounted");
    drop(node);
    ensure!(!process.alive(), "process {} is gone", process.pid);
    ensure!(mounts_below(&root)?.is_empty(), "nothing is mounted");
    ensure!(!root.exists(), "no file is left");
    for h in cgroup::hierarchies()? {
        ensure!(!h.mount.join(group.trim_start_matches('/')).exists(), "no group in {}", h.mount.display());
    }
    Ok(())
}

#[test]
fn node_of_a_dead_test_program_is_swept_and_a_living_one_is_not() -> Result<()> {
    need_root!();
    let node = Node::prepare(NodeOptions::default())?;
    let living = Node::prepare(NodeOptions::default())?;
    let process = stray(&node)?;
    let (root, dir) = (node.root.clone(), janitor::test_dir());
    let _as_if_killed = std::mem::ManuallyDrop::new(node);
    // the owner is a process that cannot be there any more
    fs::write(root.join("owner"), "1 1\n").doing("owner")?;
    let (_, troubles) = janitor::sweep(&dir, false);
    ensure!(troubles.is_empty(), "swept without trouble: {troubles:?}");
    ensure!(!root.exists() && !process.alive(), "the dead program's node is gone");
    ensure!(living.root.exists(), "the living one's is kept");
    Ok(())
}

#[test]
fn folder_that_is_no_node_is_never_cleared() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("podkeep-not-a-node-{}", std::process::id()));
    fs::create_dir_all(&dir).doing("temp folder")?;
    let refused = janitor::clear(&dir);
    ensure!(refused.is_err() && dir.exists(), "refused and kept: {refused:?}");
    fs::remove_dir(&dir).doing("temp folder")
}
