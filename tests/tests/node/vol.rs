//! Volumes: cases C-VOL.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use podkeep_tests::node::{Node, case_file, find, shell_pod};
use podkeep_tests::pods::State;
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, need_root};

/// The manifest of a case with `/srv/t` moved into the node's own folder.
fn moved(node: &Node, case: &str) -> Result<String> {
    let text = fs::read_to_string(case_file(case)).doing(case)?;
    Ok(text.replace("/srv/t", &node.root.join("srv").to_string_lossy()))
}

#[test]
fn c_vol_01_host_paths_of_every_type() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let srv = node.root.join("srv");
    fs::create_dir_all(srv.join("dir")).doing("dir")?;
    fs::write(srv.join("file"), "x").doing("file")?;
    let _listener = UnixListener::bind(srv.join("sock")).doing("sock")?;
    node.put("types.yaml", &moved(&node, "vol/C-VOL-01/types.yaml")?)?;
    node.wait_running("path-types")?;
    let log = node.wait_log("path-types", "main", "/m/sock")?;
    ensure!(log.lines().any(|l| l.starts_with("drwxr-xr-x") && l.ends_with("/m/newdir")), "{log}");
    ensure!(log.lines().any(|l| l.starts_with("-rw-r--r--") && l.ends_with("/m/newfile")), "{log}");
    ensure!(
        fs::metadata(srv.join("newfile")).is_ok_and(|m| m.is_file() && m.len() == 0),
        "an empty file was made"
    );
    ensure!(
        fs::metadata(srv.join("newdir")).is_ok_and(|m| m.permissions().mode() & 0o777 == 0o755),
        "a folder was made"
    );
    Ok(())
}

#[test]
fn c_vol_01_absent_path_makes_the_pod_wait_until_it_appears() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    fs::create_dir_all(node.root.join("srv")).doing("srv")?;
    node.put("absent.yaml", &moved(&node, "vol/C-VOL-01/absent.yaml")?)?;
    node.wait("told what is missing", podkeep_tests::node::PATIENCE, |pods| {
        find(pods, "path-absent").filter(|p| {
            p.json.to_string().contains("no-such")
                && !p.all_running()
                && p.json.pointer("/status").is_some_and(|s| s.to_string().contains("no-such"))
        })
    })?;
    ensure!(!node.root.join("srv/no-such").exists(), "nothing is made by guess");
    fs::write(node.root.join("srv/no-such"), "now").doing("file")?;
    node.wait("running once it is there", std::time::Duration::from_secs(150), |pods| {
        find(pods, "path-absent").filter(podkeep_tests::Pod::all_running)
    })?;
    Ok(())
}

#[test]
fn c_vol_01_relative_path_is_refused() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("vol/C-VOL-01/rel.yaml")?;
    crate::yml::wait_source(&node, &["rel.yaml", "hostPath"]).map(|_| ())
}

#[test]
fn c_vol_02_config_map_that_is_not_there() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("vol/C-VOL-02/cm.yaml")?;
    node.put_case("vol/C-VOL-02/cm-optional.yaml")?;
    node.put("healthy.yaml", &crate::manifests::quick("healthy", "x"))?;
    node.wait_running("healthy")?;
    node.wait_running("cm-optional")?;
    let state = node.wait("waits for its ConfigMap", podkeep_tests::node::PATIENCE, |pods| {
        let pod = find(pods, "wants-cm")?;
        match pod.container("main").map(|c| c.state()) {
            Some(State::Waiting { message, .. }) if message.contains("app") => Some(message),
            _ => pod.message().contains("app").then(|| pod.message()),
        }
    })?;
    ensure!(state.to_lowercase().contains("configmap"), "{state}");
    // ConfigMaps of the folder are the node's own (a listed difference from the kubelet): the pod goes on with it
    node.put(
        "app.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {app.yaml: 'rate: 10'}\n",
    )?;
    node.wait("running with it", std::time::Duration::from_secs(150), |pods| {
        find(pods, "wants-cm").filter(podkeep_tests::Pod::all_running)
    })?;
    let out = node.exec("wants-cm", "main", &["cat", "/etc/app.yaml"])?;
    ensure!(out.stdout == b"rate: 10", "{out:?}");
    Ok(())
}

#[test]
fn c_vol_03_memory_volume_has_the_asked_size() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("vol/C-VOL-03/shm.yaml")?;
    let log = node.wait_log("mem-vol", "main", "No space left")?;
    let size = |mount: &str| -> u64 {
        let line = log.lines().find(|l| l.ends_with(mount)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    ensure!(size(" /x") == 8192, "8 MiB: {log}");
    ensure!(size(" /dev/shm") == 32768, "without a limit of its own: the pod's memory: {log}");
    Ok(())
}

#[test]
fn empty_dir_is_kept_over_restarts_and_gone_with_the_pod() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let script = "cat /v/n 2>/dev/null; echo more >> /v/n; sleep 0.2; [ $(wc -l < /v/n) -ge 2 ]";
    let more = "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n  restartPolicy: OnFailure\n";
    node.put("keep.yaml", &shell_pod("keep", script, more))?;
    let pod = node.wait_phase("keep", "Succeeded")?;
    ensure!(node.logs("keep", "main")? == "more\n", "seen by the second run");
    let dir = node.state.join("pods").join(pod.uid());
    ensure!(dir.exists(), "lies in the pod's folder");
    node.remove("keep.yaml")?;
    node.wait_gone("keep")?;
    ensure!(!dir.exists(), "gone with the pod");
    Ok(())
}

#[test]
fn mounts_are_read_only_and_of_sub_paths_as_asked() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let host = node.root.join("host");
    fs::create_dir_all(host.join("sub")).doing("host")?;
    fs::write(host.join("sub/f"), "inside\n").doing("f")?;
    let more = format!(
        "    volumeMounts: [{{name: h, mountPath: /h, readOnly: true}}, {{name: h, mountPath: /s, subPath: sub}}]\n  volumes: [{{name: h, hostPath: {{path: {}}}}}]\n  restartPolicy: Never\n",
        host.display()
    );
    let text = crate::output_of(
        &node,
        "mounts",
        &shell_pod("mounts", "cat /s/f; touch /h/x 2>&1 || true; touch /s/y && echo written", &more),
    )?;
    ensure!(text.contains("inside") && text.contains("Read-only") && text.contains("written"), "{text}");
    ensure!(host.join("sub/y").exists(), "written to the host's folder");
    Ok(())
}
