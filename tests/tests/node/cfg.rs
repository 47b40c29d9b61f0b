//! Cases C-CFG: the configuration file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use podkeep_tests::node::{Node, NodeOptions, case_file, podkeep};
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, image, need_root};

/// What `podkeep run` says of a configuration that it refuses. It ends before it touches the node.
fn refused(node: &Node, text: &str) -> Result<String> {
    let file = node.root.join("bad.yaml");
    fs::write(&file, text).doing("bad.yaml")?;
    let mut command = Command::new("timeout");
    command.args(["20"]).arg(podkeep()?).args(["run", "--config"]).arg(&file);
    command
        .arg("--state-dir")
        .arg(&node.state)
        .arg("--run-dir")
        .arg(&node.run)
        .arg("--manifests")
        .arg(&node.manifests);
    let out = command.output().doing("podkeep run")?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(
        !out.status.success() && out.status.code() != Some(124),
        "was not refused: {} {said}",
        out.status
    );
    Ok(said)
}

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

#[test]
fn c_cfg_01_wrong_settings_are_refused_by_name() -> Result<()> {
    need_root!();
    let node = Node::prepare(NodeOptions::default())?;
    let text = |file: &str| fs::read_to_string(case_file(&format!("cfg/C-CFG-01/{file}"))).doing(file);
    let said = refused(&node, &text("unknown.yaml")?)?;
    ensure!(
        said.contains("reservedCpus") && said.contains("reservedSystemCPUs") && said.contains('5'),
        "key, nearest name, line: {said}"
    );
    let said = refused(&node, &format!("{HEAD}{}", text("range.yaml")?))?;
    ensure!(said.contains("maxPods"), "out of range by path: {said}");
    let said = refused(&node, &format!("{HEAD}{}", text("cpuset.yaml")?))?;
    ensure!(said.contains("reservedSystemCPUs"), "unreadable by path: {said}");
    Ok(())
}

#[test]
fn c_cfg_02_runs_with_nothing_but_the_manifest_path() -> Result<()> {
    need_root!();
    let mut node = Node::prepare(NodeOptions::default())?;
    let text = fs::read_to_string(case_file("cfg/C-CFG-02/only.yaml")).doing("only.yaml")?;
    let text = text.replace("/etc/pods.d", &node.manifests.to_string_lossy());
    // its own cgroup root, so that the test does not share the machine's, is all that is added
    fs::write(
        node.root.join("config.yaml"),
        format!("{text}cgroupRoot: {}\npodLogsDir: {}\n", node.cgroup, node.logs.display()),
    )
    .doing("config")?;
    node.start_agent()?;
    node.load_image(image::BUSYBOX)?;
    node.put("web.yaml", &crate::manifests::quick("web", "x"))?;
    node.wait_running("web")?;
    let mode = fs::metadata(node.socket()).doing("socket")?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "socket mode {mode:o}");
    Ok(())
}

#[test]
fn sample_configurations_of_the_project_are_accepted() -> Result<()> {
    for name in ["node.yaml", "node.minimal.yaml"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name);
        let settings = podkeep::config::load(Some(&path), None).doing(name)?;
        ensure!(!format!("{settings:?}").is_empty(), "{name} was read");
    }
    Ok(())
}

#[test]
fn sample_manifests_of_the_project_pass_the_check() -> Result<()> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/manifests");
    let out = Command::new(podkeep()?).arg("check").arg(&dir).output().doing("check")?;
    ensure!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}
