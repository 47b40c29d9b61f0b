//! Volumes as containers see them, on a node of their own.

use std::fs;
use std::path::Path;

use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{Node, NodeOptions, ensure, image, need_root, proc::mounts_below};

fn output(node: &Node, pod: &str, script: &str) -> Result<String> {
    let out = node.exec(pod, "main", &["sh", "-c", script])?;
    Ok(format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}

fn pod(name: &str, volumes: &str, mounts: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: demo}}}}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: {}\n    \
         command: [sh, -c, 'sleep 86400']\n    resources: {{limits: {{memory: 32Mi}}}}\n    \
         volumeMounts: {mounts}\n  volumes: {volumes}\n",
        image::BUSYBOX
    )
}

#[test]
fn every_kind_is_seen_inside() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let map = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{a.conf: '{value}', b: two}}\n"
        )
    };
    node.put("map.yaml", &map("one"))?;
    node.put(
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: hidden}\n",
    )?;
    let volumes = format!(
        "[{{name: disk, emptyDir: {{}}}}, {{name: mem, emptyDir: {{medium: Memory, sizeLimit: 8Mi}}}}, \
         {{name: map, configMap: {{name: m}}}}, {{name: sec, secret: {{secretName: s, defaultMode: 0400}}}}, \
         {{name: api, downwardAPI: {{items: [{{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}]}}}}, \
         {{name: img, image: {{reference: {}, pullPolicy: Never}}}}]",
        image::BUSYBOX
    );
    let mounts = "[{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}, {name: map, mountPath: /map}, \
         {name: sec, mountPath: /sec}, {name: api, mountPath: /api}, {name: img, mountPath: /img}]";
    node.put("p.yaml", &pod("vols", &volumes, mounts))?;
    let running = node.wait_running("vols")?;
    let see = |script: &str| output(&node, "vols", script);
    ensure!(see("echo x > /disk/f && cat /disk/f && stat -c %a /disk")? == "x\n777\n", "disk");
    let size = see("df -k /mem | tail -1 | awk '{print $2}'")?;
    ensure!(size.trim() == "8192", "memory volume has {size}");
    ensure!(see("cat /map/a.conf /map/b")? == "onetwo", "config map: {}", see("ls -la /map; cat /map/*")?);
    ensure!(see("cat /sec/key; stat -L -c %a /sec/key")? == "hidden400\n", "secret");
    ensure!(see("cat /api/labels")?.contains("app=\"demo\""), "fields");
    ensure!(see("echo x > /map/new")?.contains("Read-only"), "content is read-only");
    ensure!(see("ls /img/bin/sh")? == "/img/bin/sh\n", "image");
    ensure!(
        see("/img/bin/sh -c true")?.contains("Permission denied"),
        "nothing is executed from an image volume"
    );

    // live: the container goes on and sees the new set
    node.put("map.yaml", &map("new"))?;
    ensure!(see("until grep -q new /map/a.conf; do sleep 0.1; done; echo seen")? == "seen\n", "live update");
    let after = node.pod("vols")?.and_then(|p| p.container("main")).map(|c| c.id());
    ensure!(after == running.container("main").map(|c| c.id()), "the container was not restarted");

    node.remove("p.yaml")?;
    node.wait_gone("vols")?;
    let pods = node.state.join("pods");
    ensure!(mounts_below(&pods)?.is_empty(), "its mounts are gone");
    let left = fs::read_dir(&pods).doing("pods")?.count();
    ensure!(left == 0, "{left} folders are left");
    Ok(())
}

/// C-VOL-01: waits with a reason, goes on when it appears.
#[test]
fn an_absent_host_path_is_waited_for() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let path = node.root.join("host/file");
    let volume = format!("[{{name: v, hostPath: {{path: {}, type: File}}}}]", path.display());
    node.put("p.yaml", &pod("absent", &volume, "[{name: v, mountPath: /v}]"))?;
    let waiting = node.wait("a reason for waiting", podkeep_tests::node::PATIENCE, |pods| {
        let pod = pods.iter().find(|p| p.name().starts_with("absent"))?;
        let text = pod.json.to_string();
        text.contains("waiting for a file").then_some(text)
    })?;
    ensure!(waiting.contains("host/file"), "the path is named");
    fs::create_dir_all(node.root.join("host")).doing("host")?;
    fs::write(&path, "here").doing("file")?;
    node.wait_running("absent")?;
    ensure!(output(&node, "absent", "cat /v")? == "here", "it is the file");
    Ok(())
}

/// C-STA-04: the folder of a pod that is long gone, with something mounted in it.
#[test]
fn a_left_over_folder_goes_and_the_data_behind_it_stays() -> Result<()> {
    need_root!();
    let mut node = Node::prepare(NodeOptions::default())?;
    let precious = node.root.join("precious");
    let old = node.state.join("pods/00000000-dead-4000-8000-000000000000");
    let point = old.join("volumes/host~data");
    for dir in [&precious, &point] {
        fs::create_dir_all(dir).doing("folders")?;
    }
    fs::write(precious.join("file"), "keep").doing("file")?;
    let none: Option<&Path> = None;
    nix::mount::mount(Some(&precious), &point, none, nix::mount::MsFlags::MS_BIND, none).doing("mount")?;
    node.start_agent()?;
    // a pod that runs afterwards shows that the sources have spoken; the sweep began before it was started
    node.load_image(image::BUSYBOX)?;
    node.put("p.yaml", &pod("after", "[]", "[]"))?;
    node.wait_running("after")?;
    let pods = node.state.join("pods");
    node.wait("the old folder gone", podkeep_tests::node::PATIENCE, |_| {
        let names = fs::read_dir(&pods).ok()?.flatten().map(|e| e.file_name());
        (!names.into_iter().any(|n| n.to_string_lossy().contains("dead"))).then_some(())
    })?;
    ensure!(fs::read_to_string(precious.join("file")).doing("file")? == "keep", "the data is there");
    ensure!(mounts_below(&old)?.is_empty(), "nothing is mounted any more");
    Ok(())
}
