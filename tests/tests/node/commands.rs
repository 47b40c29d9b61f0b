//! The command line against a running node, and what foreign clients make of its answers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use podkeep_tests::node::{Node, NodeOptions, full_name, shell_pod};
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{ensure, image, need_root, skip};

use crate::manifests::quick;

#[test]
fn get_pods_prints_kubectls_tables() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("web.yaml", &quick("web", "x"))?;
    node.wait_running("web")?;
    let table = node.ok(&["get", "pods"])?;
    let words = |line: Option<&str>| {
        line.unwrap_or_default().split_whitespace().map(str::to_string).collect::<Vec<_>>()
    };
    let head = words(table.lines().next());
    ensure!(
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE"].iter().all(|h| head.iter().any(|w| w == h)),
        "{table}"
    );
    let row = words(table.lines().find(|l| l.contains("web-node1")));
    ensure!(row.iter().any(|w| w == "1/1") && row.iter().any(|w| w == "Running"), "{table}");
    let wide = node.ok(&["get", "pods", "-o", "wide"])?;
    ensure!(wide.contains("IP") && wide.contains("NODE") && wide.contains("node1"), "{wide}");
    let yaml = node.ok(&["get", "pod", &full_name("web"), "-o", "yaml"])?;
    ensure!(yaml.contains("kind: Pod") && yaml.contains("phase: Running"), "{yaml}");
    Ok(())
}

#[test]
fn json_is_a_pod_that_a_foreign_client_reads() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("web.yaml", &quick("web", "x"))?;
    let pod = node.wait_running("web")?;
    for (pointer, wanted) in [
        ("/apiVersion", "v1"),
        ("/kind", "Pod"),
        ("/status/phase", "Running"),
        ("/status/qosClass", "BestEffort"),
        ("/spec/restartPolicy", "Always"),
    ] {
        ensure!(
            pod.json.pointer(pointer).and_then(|v| v.as_str()) == Some(wanted),
            "{pointer}: {}",
            pod.json
        );
    }
    for condition in ["Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        ensure!(pod.condition(condition) == Some(true), "condition {condition}: {}", pod.json);
    }
    ensure!(
        pod.json
            .pointer("/status/containerStatuses/0/containerID")
            .and_then(|v| v.as_str())
            .is_some_and(|id| id.contains("://")),
        "{}",
        pod.json
    );
    // the models of Kubernetes' own Python client refuse what is no v1.Pod
    let found = Command::new("python3").args(["-c", "import kubernetes"]).output();
    if !found.is_ok_and(|o| o.status.success()) {
        skip!("python3 has no module 'kubernetes'; the fields were checked here");
    }
    let script = "import json,sys\nfrom kubernetes.client import ApiClient\nclass R:\n  def __init__(s,d): s.data=d\np=ApiClient().deserialize(R(sys.stdin.read()),'V1Pod')\nprint(p.metadata.name,p.status.phase,p.status.container_statuses[0].state.running.started_at.year)";
    let mut python = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .doing("python3")?;
    python
        .stdin
        .take()
        .ok_or_else(|| Trouble::new("no stdin"))?
        .write_all(pod.json.to_string().as_bytes())
        .doing("python3")?;
    let out = python.wait_with_output().doing("python3")?;
    ensure!(
        out.status.success() && String::from_utf8_lossy(&out.stdout).starts_with("web-node1 Running 20"),
        "{out:?}"
    );
    Ok(())
}

#[test]
fn watch_shows_every_change_without_being_asked() -> Result<()> {
    need_root!();
    let node =
        Node::with(NodeOptions { no_watch: true, images: vec![image::BUSYBOX], ..NodeOptions::default() })?;
    let mut watch = node
        .command_builder(["get", "pods", "-w"])?
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .doing("get pods -w")?;
    let stdout = watch.stdout.take().ok_or_else(|| Trouble::new("no output"))?;
    node.put("w.yaml", &quick("w", "x"))?;
    let mut seen = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.doing("get pods -w")?;
        seen.push_str(&line);
        seen.push('\n');
        if line.contains("w-node1") && line.contains("Running") {
            break;
        }
    }
    watch.kill().doing("kill")?;
    watch.wait().doing("wait")?;
    ensure!(seen.contains("w-node1") && seen.contains("Running"), "{seen}");
    Ok(())
}

#[test]
fn describe_tells_of_events_and_reasons() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("web.yaml", &quick("web", "x"))?;
    node.put(
        "missing.yaml",
        &shell_pod("missing", "true", "").replace(image::BUSYBOX, "registry.test/nowhere:1"),
    )?;
    node.wait_running("web")?;
    let text = node.ok(&["describe", "pod", &full_name("web")])?;
    for word in ["Name:", "web-node1", "Containers:", "main", "Running", "Events:"] {
        ensure!(text.contains(word), "{word} in {text}");
    }
    node.wait("image missing", podkeep_tests::node::PATIENCE, |pods| {
        podkeep_tests::node::find(pods, "missing")
            .filter(|p| p.json.to_string().contains("Image") && p.phase() == "Pending")
    })?;
    let text = node.ok(&["describe", "pod", &full_name("missing")])?;
    ensure!(text.contains("registry.test/nowhere:1"), "{text}");
    Ok(())
}

#[test]
fn exec_gives_a_terminal_and_keeps_its_size() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("web.yaml", &quick("web", "x"))?;
    node.wait_running("web")?;
    // `script` gives the command line a terminal of its own
    if !Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success()) {
        skip!("no program 'script' (package bsdutils)");
    }
    let podkeep = podkeep_tests::node::podkeep()?;
    let command = format!(
        "stty rows 33 cols 77; {} exec --socket {} -it {} -- sh -c 'test -t 0 && stty size; exit 9'",
        podkeep.display(),
        node.socket().display(),
        full_name("web")
    );
    let out = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        // an input that ends makes `script` end before it has copied all
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            let input = child.stdin.take();
            let out = child.wait_with_output();
            drop(input);
            out
        })
        .doing("script")?;
    let text = String::from_utf8_lossy(&out.stdout);
    ensure!(text.contains("33 77"), "{text}");
    ensure!(out.status.code() == Some(9), "{out:?}");
    Ok(())
}

#[test]
fn exec_runs_as_the_container_does() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put(
        "web.yaml",
        &shell_pod(
            "web",
            "sleep 600",
            "    securityContext: {runAsUser: 1000}\n    env: [{name: A, value: b}]\n    workingDir: /tmp\n",
        ),
    )?;
    let pod = node.wait_running("web")?;
    let out = node.exec(
        "web",
        "main",
        &[
            "sh",
            "-c",
            "id -u; echo $A; pwd; readlink /proc/self/ns/net; readlink /proc/1/ns/net; cat /proc/self/cgroup",
        ],
    )?;
    let text = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<&str> = text.lines().collect();
    ensure!(
        lines.first() == Some(&"1000") && lines.get(1) == Some(&"b") && lines.get(2) == Some(&"/tmp"),
        "{text}"
    );
    ensure!(lines.get(3).is_some() && lines.get(3) == lines.get(4), "same network: {text}");
    ensure!(!pod.uid().is_empty() && out.status.success(), "{out:?}");
    Ok(())
}

#[test]
fn images_are_loaded_listed_and_removed() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let list = node.ok(&["image", "ls"])?;
    ensure!(list.contains("registry.test/busybox"), "{list}");
    node.put("web.yaml", &quick("web", "x"))?;
    node.wait_running("web")?;
    let out = node.command(["image", "rm", image::BUSYBOX])?;
    ensure!(!out.status.success(), "an image in use is kept: {out:?}");
    node.remove("web.yaml")?;
    node.wait_gone("web")?;
    node.ok(&["image", "rm", image::BUSYBOX])?;
    ensure!(!node.ok(&["image", "ls"])?.contains("registry.test/busybox"), "removed");
    Ok(())
}

#[test]
fn packed_image_is_the_same_twice_and_runs() -> Result<()> {
    need_root!();
    let node = Node::with(NodeOptions::default())?;
    let podkeep = podkeep_tests::node::podkeep()?;
    let pack = |out: &std::path::Path| -> Result<Vec<u8>> {
        let done = Command::new(&podkeep)
            .args([
                "image",
                "pack",
                "/bin/busybox:/bin/busybox",
                "--entrypoint",
                "/bin/busybox",
                "--cmd",
                "echo",
                "--cmd",
                "packed",
                "--out",
            ])
            .arg(out)
            .output()
            .doing("image pack")?;
        ensure!(done.status.success(), "{done:?}");
        fs::read(out).doing("packed")
    };
    let (a, b) = (node.root.join("a.tar"), node.root.join("b.tar"));
    ensure!(pack(&a)? == pack(&b)?, "the same bytes each time");
    node.ok(&["image", "load", &a.to_string_lossy(), "registry.test/packed:1"])?;
    let text = crate::output_of(
        &node,
        "packed",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: packed}\nspec:\n  restartPolicy: Never\n  containers: [{name: main, image: 'registry.test/packed:1'}]\n",
    )?;
    ensure!(text == "packed\n", "{text}");
    // a foreign tool reads it, too
    if Command::new("skopeo").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let out = Command::new("skopeo")
            .arg("inspect")
            .arg(format!("oci-archive:{}", a.display()))
            .output()
            .doing("skopeo")?;
        ensure!(out.status.success(), "{out:?}");
    } else {
        skip!("no skopeo; packed image was run, not inspected");
    }
    Ok(())
}

#[test]
fn docker_archives_are_loaded() -> Result<()> {
    need_root!();
    if !Command::new("skopeo").arg("--version").output().is_ok_and(|o| o.status.success()) {
        skip!("no skopeo to make a docker archive");
    }
    let node = Node::with(NodeOptions::default())?;
    let layout = image::make(image::BUSYBOX, &node.root.join("images"))?;
    let archive = node.root.join("docker.tar");
    let policy = node.root.join("policy.json");
    fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).doing("policy")?;
    let out = Command::new("skopeo")
        .arg("--policy")
        .arg(&policy)
        .arg("copy")
        .arg(format!("oci:{}", layout.display()))
        .arg(format!("docker-archive:{}:x:1", archive.display()))
        .output()
        .doing("skopeo")?;
    ensure!(out.status.success(), "{out:?}");
    node.ok(&["image", "load", &archive.to_string_lossy(), image::BUSYBOX])?;
    let zipped = Command::new("gzip").arg("-k").arg(&archive).status().doing("gzip")?;
    ensure!(zipped.success(), "gzip");
    node.ok(&["image", "load", &format!("{}.gz", archive.display()), "registry.test/zipped:1"])?;
    let text = crate::output_of(
        &node,
        "zipped",
        &shell_pod("zipped", "echo fine", "  restartPolicy: Never\n")
            .replace(image::BUSYBOX, "registry.test/zipped:1"),
    )?;
    ensure!(text == "fine\n", "{text}");
    Ok(())
}

#[test]
fn socket_is_the_owners_alone_and_its_absence_is_explained() -> Result<()> {
    need_root!();
    let mut node = Node::start()?;
    let mode = fs::metadata(node.socket()).doing("socket")?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o}");
    let version = node.ok(&["version"])?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    node.kill_agent()?;
    let out = node.command(["get", "pods"])?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success() && said.contains("podkeep.sock"), "{said}");
    Ok(())
}

#[test]
fn log_lines_name_pod_and_container_and_can_be_json() -> Result<()> {
    need_root!();
    let node = Node::with(NodeOptions {
        args: vec!["--log-format".into(), "json".into()],
        images: vec![image::BUSYBOX],
        ..NodeOptions::default()
    })?;
    node.put("web.yaml", &quick("web", "x"))?;
    node.wait_running("web")?;
    let log = node.agent_log()?;
    let mut named = false;
    for line in log.lines() {
        let value: serde_json::Value = serde_json::from_str(line).doing(line)?;
        named |= value.to_string().contains("web-node1");
    }
    ensure!(named, "{log}");
    Ok(())
}

#[test]
fn demo_runs_offline_and_leaves_nothing() -> Result<()> {
    need_root!();
    let dir = podkeep_tests::janitor::test_dir().join(format!("demo-{}", std::process::id()));
    let mut demo = Command::new(podkeep_tests::node::podkeep()?)
        .args(["demo", "--dir"])
        .arg(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .doing("demo")?;
    let stdout = demo.stdout.take().ok_or_else(|| Trouble::new("no output"))?;
    let mut seen = String::new();
    let mut up = false;
    for line in BufReader::new(stdout).lines() {
        let line = line.doing("demo")?;
        seen.push_str(&line);
        seen.push('\n');
        if seen.matches("Running").count() >= 2 {
            up = true;
            break;
        }
    }
    let process = podkeep_tests::proc::Process::of(demo.id().cast_signed());
    if let Some(process) = process {
        process.signal(nix::sys::signal::Signal::SIGINT)?;
    }
    let status = demo.wait().doing("demo")?;
    let mut errors = String::new();
    if let Some(mut stderr) = demo.stderr.take() {
        stderr.read_to_string(&mut errors).doing("demo")?;
    }
    ensure!(up, "two pods running: {status} {seen}{errors}");
    let left = podkeep_tests::proc::mounts_below(&dir)?;
    ensure!(left.is_empty(), "nothing is mounted: {left:?}");
    Ok(())
}
