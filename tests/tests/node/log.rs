//! Container logs in the CRI form, their rotation, `podkeep logs`, and cases C-LOG.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use podkeep_tests::node::{Node, NodeOptions, full_name, shell_pod};
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{ensure, image, need_root};

use crate::output_of;

#[test]
fn log_file_is_where_and_what_the_cri_says() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = output_of(
        &node,
        "cri",
        &shell_pod("cri", "echo out; echo err >&2; printf tail", "  restartPolicy: Never\n"),
    )?;
    // two streams are two pipes: each keeps its own order
    let (out, tail) = (text.find("out\n"), text.find("tail"));
    ensure!(out.is_some() && out < tail && text.contains("err\n"), "{text:?}");
    let pod = node.pod("cri")?.ok_or_else(|| Trouble::new("no pod"))?;
    let file = node.logs.join(format!("default_cri-node1_{}", pod.uid())).join("main/0.log");
    let raw = fs::read_to_string(&file).doing(file.display())?;
    for line in raw.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [time, stream, tag, _] = words.as_slice() else { return Err(Trouble::new(format!("'{line}'"))) };
        ensure!(time.len() >= 20 && time.contains('T'), "time: {line}");
        ensure!(matches!(*stream, "stdout" | "stderr") && matches!(*tag, "F" | "P"), "{line}");
    }
    ensure!(raw.contains(" stderr F err") && raw.contains(" stdout F out"), "{raw}");
    ensure!(
        raw.contains(" stdout P tail") || raw.contains(" stdout F tail"),
        "text without line end is kept: {raw}"
    );
    Ok(())
}

#[test]
fn c_log_01_following_loses_nothing_over_rotations() -> Result<()> {
    need_root!();
    let config = "containerLogMaxSize: 20Ki\ncontainerLogMaxFiles: 3\n".to_string();
    let node = Node::with(NodeOptions { config, images: vec![image::BUSYBOX], ..NodeOptions::default() })?;
    let script = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); [ $((i%200)) = 0 ] && sleep 0.02; done; echo end";
    node.put(
        "p.yaml",
        &shell_pod("count", &format!("sleep 1; {script}; sleep 1"), "  restartPolicy: Never\n"),
    )?;
    node.wait_running("count")?;
    let full = full_name("count");
    let mut follow = node
        .command_builder(["logs", "-f", &full])?
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .doing("logs -f")?;
    let stdout = follow.stdout.take().ok_or_else(|| Trouble::new("no output"))?;
    let mut expected = 0u32;
    for line in BufReader::new(stdout).lines() {
        let line = line.doing("logs -f")?;
        if line == "end" {
            break;
        }
        ensure!(line == expected.to_string(), "expected {expected}, got '{line}'");
        expected += 1;
    }
    ensure!(expected == 20000, "all numbers: {expected}");
    ensure!(follow.wait().doing("logs -f")?.success(), "ends when the container ends");
    let pod = node.wait_phase("count", "Succeeded")?;
    let dir = node.logs.join(format!("default_count-node1_{}", pod.uid())).join("main");
    let files: Vec<_> = fs::read_dir(&dir).doing("logs")?.flatten().collect();
    ensure!(files.len() <= 3, "{} files", files.len());
    for file in &files {
        let size = file.metadata().doing("size")?.len();
        ensure!(size <= 20 * 1024, "{:?} has {size} bytes", file.file_name());
    }
    let tail = node.ok(&["logs", "--tail", "500", &full])?;
    ensure!(
        tail.lines().count() == 500 && tail.ends_with("19999\nend\n"),
        "tail looks into rotated files: {} lines",
        tail.lines().count()
    );
    Ok(())
}

#[test]
fn c_log_02_long_lines_and_text_without_line_end() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("log/C-LOG-02/p.yaml")?;
    let pod = node.wait_phase("log-long", "Succeeded")?;
    let text = node.logs("log-long", "main")?;
    let long = text.lines().find(|l| l.starts_with('x')).unwrap_or_default();
    ensure!(long.len() == 102_400 + 3 && long.ends_with("END"), "the line is whole: {} bytes", long.len());
    ensure!(
        text.trim_end().ends_with("last-ten-b"),
        "the last bytes are there: {:?}",
        text.get(text.len().saturating_sub(20)..)
    );
    let raw = fs::read_to_string(
        node.logs.join(format!("default_log-long-node1_{}", pod.uid())).join("main/0.log"),
    )
    .doing("log")?;
    ensure!(raw.contains(" stdout P x") && raw.contains(" stdout F "), "pieces are marked");
    Ok(())
}

#[test]
fn logs_takes_previous_tail_since_and_timestamps() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put(
        "p.yaml",
        &shell_pod(
            "twice",
            "echo run $(cut -d. -f1 /proc/uptime); sleep 1.1; exit 1",
            "  restartPolicy: OnFailure\n",
        ),
    )?;
    node.wait("restarted", podkeep_tests::node::PATIENCE, |pods| {
        podkeep_tests::node::find(pods, "twice")
            .filter(|p| p.container("main").is_some_and(|c| c.restarts() == 1))
    })?;
    let now = node.wait_log("twice", "main", "run")?;
    let full = full_name("twice");
    let before = node.ok(&["logs", "--previous", &full])?;
    ensure!(before.starts_with("run ") && before != now, "the run before: {before} {now}");
    let stamped = node.ok(&["logs", "--timestamps", &full])?;
    ensure!(stamped.split(' ').next().is_some_and(|t| t.contains('T')), "{stamped}");
    ensure!(node.ok(&["logs", "--tail", "0", &full])?.is_empty(), "tail 0");
    ensure!(node.ok(&["logs", "--since", "1h", &full])? == now, "since an hour");
    Ok(())
}

#[test]
fn c_log_03_exec_ends_with_its_process_and_gives_its_code() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put_case("log/C-LOG-03/p.yaml")?;
    node.wait_running("exec-here")?;
    let began = Instant::now();
    let out = node.exec("exec-here", "main", &["sh", "-c", "sleep 1000 & echo done"])?;
    ensure!(out.status.code() == Some(0) && out.stdout == b"done\n", "{out:?}");
    ensure!(began.elapsed() < Duration::from_secs(4), "does not wait for the child: {:?}", began.elapsed());
    let full = full_name("exec-here");
    let mut cat = node
        .command_builder(["exec", "-i", &full, "--", "cat"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .doing("exec -i")?;
    cat.stdin.take().ok_or_else(|| Trouble::new("no stdin"))?.write_all(b"foo\n").doing("stdin")?;
    let out = cat.wait_with_output().doing("exec -i")?;
    ensure!(out.stdout == b"foo\n" && out.status.success(), "{out:?}");
    for (command, code) in [("exit 42", 42), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let out = node.exec("exec-here", "main", &["sh", "-c", command])?;
        ensure!(out.status.code() == Some(code), "{command}: {out:?}");
    }
    let out = node.exec("exec-here", "main", &["/no/such"])?;
    ensure!(
        out.status.code() == Some(127) && String::from_utf8_lossy(&out.stderr).contains("/no/such"),
        "{out:?}"
    );
    Ok(())
}
