//! Cases C-YML, as far as they need a running node.

use std::time::{Duration, Instant};

use podkeep_tests::node::{Node, PATIENCE};
use podkeep_tests::proc::pss_kib;
use podkeep_tests::trouble::Result;
use podkeep_tests::{ensure, need_root};

/// Waits until the table of sources shows all words on one line.
pub(crate) fn wait_source(node: &Node, words: &[&str]) -> Result<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = node.ok(&["get", "sources"])?;
        // a long message may be broken into several lines: the words count wherever they are in the table
        if words.iter().all(|w| text.contains(w)) {
            return Ok(text);
        }
        ensure!(Instant::now() < end, "{words:?} in: {text}\n{}", node.agent_log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn c_yml_01_leading_zero_modes_are_octal() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-01/octal.yaml")?;
    let log = node.wait_log("modes-a", "main", "name")?;
    ensure!(log.contains("-r--------") && log.contains("-rw-r--r--"), "{log}");
    let mode = node.exec("modes-a", "main", &["stat", "-Lc", "%a", "/proj/run.sh"])?;
    ensure!(String::from_utf8_lossy(&mode.stdout).trim() == "755", "{mode:?}");
    Ok(())
}

#[test]
fn c_yml_02_tab_is_refused_by_name_and_place_and_the_pod_runs_on() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = |n: &str| {
        std::fs::read_to_string(podkeep_tests::node::case_file(&format!("yml/C-YML-02/{n}")))
            .unwrap_or_default()
    };
    node.put("web.yaml", &text("good.yaml"))?;
    let before = node.wait_running("tab-web")?;
    node.put("web.yaml", &text("tabs.yaml"))?;
    wait_source(&node, &["web.yaml", "4:1", "tab"])?;
    let now = node.wait_running("tab-web")?;
    ensure!(now.container("main") == before.container("main"), "untouched");
    Ok(())
}

#[test]
fn c_yml_03_byte_order_mark_and_crlf() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-03/bom-crlf.yaml")?;
    node.put_case("yml/C-YML-03/crlf-script.yaml")?;
    node.wait_running("bom-crlf")?;
    node.wait_phase("crlf-script", "Succeeded")?;
    ensure!(node.logs("crlf-script", "main")? == "fine\n", "the script has no carriage returns");
    Ok(())
}

#[test]
fn c_yml_04_same_key_twice_names_both_lines() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-04/dup-env.yaml")?;
    wait_source(&node, &["dup-env.yaml", "env", "10", "14"]).map(|_| ())
}

#[test]
fn c_yml_05_anchors_and_merge_keys() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-05/anchors.yaml")?;
    let pod = node.wait_running("anchors")?;
    let limit = |i: usize, what: &str| {
        pod.json.pointer(&format!("/spec/containers/{i}/resources/limits/{what}")).and_then(|v| v.as_str())
    };
    ensure!(
        limit(0, "memory") == Some("32Mi") && limit(1, "memory") == Some("64Mi"),
        "local keys win: {}",
        pod.json
    );
    ensure!(limit(1, "cpu") == Some("50m"), "merged");
    Ok(())
}

#[test]
fn c_yml_06_words_that_look_like_numbers_or_booleans() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-06/anno-number.yaml")?;
    node.put_case("yml/C-YML-06/port-string.yaml")?;
    wait_source(&node, &["anno-number.yaml", "annotations", "port-string.yaml", "containerPort"])?;
    Ok(())
}

#[test]
fn c_yml_07_several_documents_in_one_file() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-07/multi.yaml")?;
    node.wait_running("multi-a")?;
    node.wait_running("multi-b").map(|_| ())
}

#[test]
fn c_yml_08_empty_documents_are_no_error() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    for file in ["empties.yaml", "only-comments.yaml", "zero.yaml"] {
        node.put_case(&format!("yml/C-YML-08/{file}"))?;
    }
    node.wait_running("empties")?;
    let log = node.agent_log()?.to_lowercase();
    ensure!(!log.contains("error") || !log.contains("zero.yaml"), "{log}");
    Ok(())
}

#[test]
fn c_yml_09_other_kinds_are_named_and_the_neighbour_runs() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    for file in ["deployment.yaml", "daemonset.yaml", "healthy.yaml"] {
        node.put_case(&format!("yml/C-YML-09/{file}"))?;
    }
    node.wait_running("healthy-neighbour")?;
    let text = wait_source(&node, &["Deployment", "DaemonSet"])?;
    ensure!(!text.contains("replicas"), "no content: {text}");
    Ok(())
}

#[test]
fn c_yml_10_stray_field_is_named_with_its_right_place() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-10/misplaced.yaml")?;
    wait_source(&node, &["metadata.restartPolicy", "spec"]).map(|_| ())
}

#[test]
fn c_yml_11_memory_in_thousandths_of_a_byte() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-11/mem-milli.yaml")?;
    node.put_case("yml/C-YML-11/mem-milli-legal.yaml")?;
    wait_source(&node, &["mem-milli.yaml", "400M"])?;
    node.wait_running("mem-milli-legal")?;
    ensure!(
        node.pod("mem-milli")?.is_none_or(|p| p.containers().iter().all(|c| c.id().is_empty())),
        "no container was made"
    );
    Ok(())
}

#[test]
fn c_yml_12_host_port_twice_in_one_pod_is_refused() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-12/same-pod.yaml")?;
    wait_source(&node, &["same-pod.yaml", "18077"]).map(|_| ())
}

#[test]
fn c_yml_12_host_port_of_two_pods_makes_the_second_wait() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("yml/C-YML-12/pod-a.yaml")?;
    node.wait_running("port-a")?;
    node.put_case("yml/C-YML-12/pod-b.yaml")?;
    node.wait("port-b told to wait", PATIENCE, |pods| {
        let pod = podkeep_tests::node::find(pods, "port-b")?;
        (format!("{}", pod.json).contains("port-a") && !pod.all_running()).then_some(())
    })?;
    node.remove("pod-a.yaml")?;
    node.wait("port-b running", Duration::from_secs(60), |pods| {
        podkeep_tests::node::find(pods, "port-b").filter(|p| p.all_running())
    })?;
    Ok(())
}

#[test]
fn c_yml_13_binary_and_oversized_files_cost_one_line_each() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let before = pss_kib(node.agent()?.pid)?;
    node.put_case("yml/C-YML-13/blob.yaml")?;
    node.put_case("yml/C-YML-13/big-note.yaml")?;
    let huge = std::fs::File::create(node.manifests.join("huge.yaml"));
    ensure!(huge.is_ok_and(|f| f.set_len(64 << 20).is_ok()), "huge.yaml made");
    node.wait_running("big-note")?;
    wait_source(&node, &["blob.yaml", "huge.yaml"])?;
    let log = node.agent_log()?;
    let longest = log.lines().map(str::len).max().unwrap_or(0);
    ensure!(longest < 2000, "no content in the log: a line of {longest} bytes");
    ensure!(log.bytes().all(|b| b == b'\n' || b == b'\t' || b >= 0x20), "no control bytes in the log");
    let after = pss_kib(node.agent()?.pid)?;
    ensure!(after < before + 8 * 1024, "memory {before} KiB before, {after} KiB after");
    Ok(())
}
