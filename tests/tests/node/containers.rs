//! What a container finds around it: namespaces, root, process, environment.

use std::fs;
use std::time::{Duration, Instant};

use podkeep_tests::node::{Node, NodeOptions, PATIENCE, find, shell_pod};
use podkeep_tests::pods::State;
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, image, need_root};

use crate::{field, output_of};

const NEVER: &str = "  restartPolicy: Never\n";

#[test]
fn pod_has_namespaces_of_its_own_and_loopback_up() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let script = "for n in net ipc uts mnt pid; do echo $n $(readlink /proc/self/ns/$n); done; echo pid $$; hostname; ip -o link; ping -c1 -W1 127.0.0.1 >/dev/null && echo loopback up";
    let text = output_of(&node, "spaces", &shell_pod("spaces", script, NEVER))?;
    for kind in ["net", "ipc", "uts", "mnt", "pid"] {
        let host = fs::read_link(format!("/proc/self/ns/{kind}")).doing(kind)?;
        let inside = field(&text, &format!("{kind} "));
        ensure!(!inside.is_empty() && inside != host.to_string_lossy(), "own {kind} namespace: {text}");
    }
    ensure!(text.contains("pid 1\n"), "first process is number 1: {text}");
    ensure!(text.contains("spaces-node1\n"), "host name is the pod's name: {text}");
    ensure!(text.contains("loopback up"), "loopback is up: {text}");
    ensure!(
        text.matches("state ").count() <= 1 || !text.contains("eth0"),
        "no interface of the host: {text}"
    );
    Ok(())
}

#[test]
fn containers_of_a_pod_share_network_ipc_and_uts_and_not_pid() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: pair}}\nspec:\n  containers:\n{0}{1}",
        container("a", "for n in net ipc uts pid; do echo $n $(readlink /proc/self/ns/$n); done; sleep 600"),
        container("b", "for n in net ipc uts pid; do echo $n $(readlink /proc/self/ns/$n); done; sleep 600"),
    );
    node.put("pair.yaml", &text)?;
    node.wait_running("pair")?;
    let a = node.wait_log("pair", "a", "pid ")?;
    let b = node.wait_log("pair", "b", "pid ")?;
    for kind in ["net ", "ipc ", "uts "] {
        ensure!(field(&a, kind) == field(&b, kind), "{kind} is shared: {a} {b}");
    }
    ensure!(field(&a, "pid ") != field(&b, "pid "), "pid is not shared: {a} {b}");
    Ok(())
}

fn container(name: &str, script: &str) -> String {
    let script = serde_json::Value::from(script.replace("$$", "$$$$"));
    format!("  - name: {name}\n    image: {}\n    command: [sh, -c, {script}]\n", image::BUSYBOX)
}

#[test]
fn shared_process_namespace_shows_the_other_containers_processes() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: shared}}\nspec:\n  shareProcessNamespace: true\n  containers:\n{0}{1}",
        container("a", "exec sleep 7654"),
        container(
            "b",
            "while ! ps | grep -q '[s]leep 7654'; do sleep 0.05; done; echo seen as $$; sleep 600"
        ),
    );
    node.put("shared.yaml", &text)?;
    let log = node.wait_log("shared", "b", "seen as")?;
    ensure!(!log.contains("seen as 1\n"), "number 1 is the pod's reaper: {log}");
    Ok(())
}

#[test]
fn host_namespaces_are_joined_as_asked() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let more = format!("{NEVER}  hostNetwork: true\n  hostPID: true\n  hostIPC: true\n");
    let script = "for n in net ipc uts pid; do echo $n $(readlink /proc/self/ns/$n); done";
    let text = output_of(&node, "host", &shell_pod("host", script, &more))?;
    for kind in ["net", "ipc", "pid", "uts"] {
        let host = fs::read_link(format!("/proc/self/ns/{kind}")).doing(kind)?;
        ensure!(
            field(&text, &format!("{kind} ")) == host.to_string_lossy(),
            "the host's {kind} namespace: {text}"
        );
    }
    Ok(())
}

#[test]
fn user_namespace_maps_root_to_an_unprivileged_id() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let more = format!("{NEVER}  hostUsers: false\n");
    let text = output_of(
        &node,
        "users",
        &shell_pod("users", "id -u; cat /proc/self/uid_map; touch /mine && ls -ln /mine", &more),
    )?;
    let map: Vec<u64> =
        text.lines().nth(1).unwrap_or_default().split_whitespace().filter_map(|w| w.parse().ok()).collect();
    ensure!(text.starts_with("0\n"), "root inside: {text}");
    ensure!(
        map.first() == Some(&0) && map.get(1).is_some_and(|base| *base >= 65536),
        "mapped to a high id: {text}"
    );
    ensure!(text.contains(" 0        0 "), "owns its files inside: {text}");
    Ok(())
}

#[test]
fn writable_layer_is_the_containers_own_and_gone_after_a_restart() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let script = "ls /mark 2>/dev/null; touch /mark /bin/new; rm /bin/vi; echo wrote; sleep 0.2; exit 3";
    node.put("layer.yaml", &shell_pod("layer", script, "  restartPolicy: OnFailure\n"))?;
    let pod = node.wait("first restart", PATIENCE, |pods| {
        find(pods, "layer").filter(|p| p.container("main").is_some_and(|c| c.restarts() >= 1))
    })?;
    ensure!(
        pod.container("main").and_then(|c| c.exit()).is_some_and(|(code, _)| code == 3),
        "exit code kept: {:?}",
        pod.container("main")
    );
    let log = node.wait_log("layer", "main", "wrote")?;
    ensure!(!log.contains("/mark"), "nothing of the first run is seen in the second: {log}");
    let text = output_of(&node, "other", &shell_pod("other", "ls /bin/new /bin/vi", NEVER)).err();
    // /bin/new is not in the image, /bin/vi still is
    ensure!(text.is_some(), "ls of a missing file fails");
    let log = node.logs("other", "main")?;
    ensure!(
        log.contains("/bin/vi") && log.contains("/bin/new: No such file"),
        "the image is unchanged: {log}"
    );
    Ok(())
}

#[test]
fn command_args_env_and_working_dir_follow_the_rules() -> Result<()> {
    need_root!();
    let node = Node::with(NodeOptions { images: vec![image::BUSYBOX], ..NodeOptions::default() })?;
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: words, labels: {{app: w}}}}\nspec:\n  restartPolicy: Never\n  containers:\n  - name: main\n    image: {}\n    command: [sh, -c, 'pwd; echo \"$0|$1|$2\"; echo $GREETING; echo $POD@$NODE; echo $PATH']\n    args: ['$(WHO)', '$$(WHO)', '$(NOBODY)']\n    workingDir: /usr/bin\n    env:\n    - {{name: WHO, value: world}}\n    - {{name: GREETING, value: 'hello $(WHO)'}}\n    - {{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}\n    - {{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}\n",
        image::BUSYBOX
    );
    let text = output_of(&node, "words", &manifest)?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.first() == Some(&"/usr/bin"), "working folder: {text}");
    ensure!(lines.get(1) == Some(&"world|$(WHO)|$(NOBODY)"), "expansion: {text}");
    ensure!(lines.get(2) == Some(&"hello world"), "earlier variables: {text}");
    ensure!(lines.get(3) == Some(&"words-node1@node1"), "downward: {text}");
    ensure!(lines.get(4).is_some_and(|p| p.contains("/usr/local/sbin")), "the image's PATH: {text}");
    Ok(())
}

#[test]
fn image_entrypoint_and_cmd_are_replaced_as_kubernetes_does() -> Result<()> {
    need_root!();
    let node = Node::with(NodeOptions::default())?;
    let layout = node.root.join("images/entry");
    let run = image::RunConfig {
        entrypoint: vec!["/bin/busybox".into(), "echo".into(), "entry".into()],
        cmd: vec!["cmd".into()],
        ..image::RunConfig::default()
    };
    image::write_layout(&layout, &[image::busybox_layer()?], &run)?;
    node.ok(&["image", "load", &layout.to_string_lossy(), "registry.test/entry:1"])?;
    let pod = |name: &str, more: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  containers:\n  - name: main\n    image: registry.test/entry:1\n{more}"
        )
    };
    ensure!(output_of(&node, "e0", &pod("e0", ""))? == "entry cmd\n", "entry point and cmd");
    ensure!(output_of(&node, "e1", &pod("e1", "    args: [a]\n"))? == "entry a\n", "args replace cmd");
    ensure!(
        output_of(&node, "e2", &pod("e2", "    command: [/bin/echo, c]\n"))? == "c\n",
        "command replaces both"
    );
    ensure!(
        output_of(&node, "e3", &pod("e3", "    command: [/bin/echo, c]\n    args: [a]\n"))? == "c a\n",
        "command and args"
    );
    Ok(())
}

#[test]
fn proc_sys_and_dev_are_as_a_container_expects() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let script = "head -c1 /proc/kcore | wc -c; ls /proc/acpi /sys/firmware 2>/dev/null | grep -v : ; echo x > /proc/sys/kernel/hostname && echo sysctl written; touch /sys/x 2>/dev/null && echo sys written; echo ok > /dev/null && head -c4 /dev/urandom | wc -c; ls -l /dev/fd /dev/ptmx /dev/shm >/dev/null && echo dev fine; df /dev/shm | tail -1; [ -b /dev/vda ] && echo disk seen; true";
    let text = output_of(&node, "dev", &shell_pod("dev", script, NEVER))?;
    ensure!(text.lines().any(|l| l == "0"), "kcore is masked or not there: {text}");
    ensure!(!text.contains("written"), "proc/sys and sys are read-only: {text}");
    ensure!(text.contains("\n4\n") && text.contains("dev fine"), "usual devices: {text}");
    ensure!(!text.contains("disk seen"), "no device of the host: {text}");
    Ok(())
}

#[test]
fn terminal_is_given_where_asked() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = output_of(
        &node,
        "tty",
        &shell_pod(
            "tty",
            "test -t 0 && test -t 1 && echo terminal; test -c /dev/console && echo console; stty -a | head -1",
            &format!("    tty: true\n    stdin: true\n{NEVER}"),
        ),
    )?;
    ensure!(text.contains("terminal") && text.contains("console"), "{text}");
    Ok(())
}

#[test]
fn sysctls_are_set_in_the_pods_namespaces_only() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let before = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").doing("sysctl")?;
    let more = format!(
        "{NEVER}  securityContext: {{sysctls: [{{name: net.ipv4.ip_unprivileged_port_start, value: '80'}}, {{name: kernel.shm_rmid_forced, value: '1'}}]}}\n"
    );
    let text = output_of(
        &node,
        "sysctl",
        &shell_pod(
            "sysctl",
            "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced",
            &more,
        ),
    )?;
    ensure!(text == "80\n1\n", "set inside: {text}");
    ensure!(
        fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").doing("sysctl")? == before,
        "not outside"
    );
    Ok(())
}

#[test]
fn restart_policies_and_exit_codes() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("a.yaml", &shell_pod("never-bad", "exit 42", NEVER))?;
    node.put("b.yaml", &shell_pod("onfail-good", "exit 0", "  restartPolicy: OnFailure\n"))?;
    node.put("c.yaml", &shell_pod("signal", "kill -9 $$ & wait; kill -SEGV $$; sleep 5", NEVER))?;
    node.put("d.yaml", &shell_pod("always", "exit 0", ""))?;
    let pod = node.wait_phase("never-bad", "Failed")?;
    ensure!(
        pod.container("main").and_then(|c| c.exit()) == Some((42, "Error".into())),
        "{:?}",
        pod.container("main")
    );
    let pod = node.wait_phase("onfail-good", "Succeeded")?;
    ensure!(
        pod.container("main").and_then(|c| c.exit()) == Some((0, "Completed".into())),
        "{:?}",
        pod.container("main")
    );
    // restarted once at once, then the back-off of ten seconds holds it
    let pod = node.wait("crash loop", PATIENCE, |pods| {
        find(pods, "always").filter(|p| {
            p.container("main").is_some_and(
                |c| matches!(c.state(), State::Waiting { reason, .. } if reason == "CrashLoopBackOff"),
            )
        })
    })?;
    ensure!(
        pod.container("main").is_some_and(|c| c.restarts() == 1),
        "one restart before the back-off: {:?}",
        pod.container("main")
    );
    Ok(())
}

#[test]
fn first_restart_is_at_once_and_the_second_after_ten_seconds() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let out = node.root.join("out");
    fs::create_dir(&out).doing("out")?;
    let more = format!(
        "    volumeMounts: [{{name: o, mountPath: /o}}]\n  volumes: [{{name: o, hostPath: {{path: {}}}}}]\n",
        out.display()
    );
    node.put("p.yaml", &shell_pod("backoff", "cut -d' ' -f1 /proc/uptime >> /o/t; exit 1", &more))?;
    let end = Instant::now() + Duration::from_secs(60);
    let times: Vec<f64> = loop {
        let text = fs::read_to_string(out.join("t")).unwrap_or_default();
        let times: Vec<f64> = text.lines().filter_map(|w| w.parse().ok()).collect();
        if times.len() >= 3 {
            break times;
        }
        ensure!(Instant::now() < end, "three runs: {times:?}\n{}", node.agent_log_tail());
        std::thread::sleep(Duration::from_millis(50));
    };
    let gap = |n: usize| times.get(n + 1).zip(times.get(n)).map_or(0.0, |(a, b)| a - b);
    ensure!(gap(0) < 5.0, "first restart at once: {times:?}");
    ensure!((9.0..20.0).contains(&gap(1)), "second after ten seconds: {times:?}");
    Ok(())
}

/// All files below a folder.
pub(crate) fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn init_containers_run_in_order_before_the_others() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let init = |name: &str| container(name, &format!("echo {name} >> /s/order"));
    let mount = "    volumeMounts: [{name: s, mountPath: /s}]\n";
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: chain}}\nspec:\n  restartPolicy: Never\n  initContainers:\n{}{mount}{}{mount}  containers:\n{}{mount}  volumes: [{{name: s, emptyDir: {{}}}}]\n",
        init("i1"),
        init("i2"),
        container("main", "cat /s/order"),
    );
    ensure!(output_of(&node, "chain", &manifest)? == "i1\ni2\n", "in order");
    Ok(())
}

#[test]
fn resource_limits_of_the_annotation_are_set() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let plain = shell_pod("limits", "ulimit -n; ulimit -c", "  restartPolicy: Never\n");
    let note = "{name: limits, annotations: {podkeep.dev/rlimits: 'nofile=111:222,core=0'}}";
    let annotated = plain.replacen("{name: limits}", note, 1);
    ensure!(annotated != plain, "no metadata in {plain}");
    let text = output_of(&node, "limits", &annotated)?;
    ensure!(text.lines().eq(["111", "0"]), "{text}");
    Ok(())
}
