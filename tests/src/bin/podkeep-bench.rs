//! Measures podkeep and what it is compared with, and prints one JSON document.
//!
//!     cargo run --release -p podkeep-tests --bin podkeep-bench [-- OPTIONS]
//!
//! `--rounds N` single starts (20), `--most N` pods at once at the most (100), `--idle SECONDS` (60), `--only LIST` of
//! floor,crun,podman,podkeep, `--binary FILE` the podkeep to measure (else `$PODKEEP_BIN`, else the release build),
//! `--quick` for `--rounds 5 --most 10 --idle 5`. Needs root. A part that cannot run here is `null`, with the reason
//! under `notes`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use podkeep_tests::bench::{Effort, floor, foreign, ours};
use podkeep_tests::trouble::{Doing, Result, Trouble};
use podkeep_tests::{cgroup, janitor, node};
use serde_json::{Map, Value, json};

const PARTS: [&str; 4] = ["floor", "crun", "podman", "podkeep"];

struct Options {
    effort: Effort,
    only: Vec<String>,
    /// already in a mount namespace of its own
    inner: bool,
    raw: Vec<String>,
}

fn options() -> Result<Options> {
    let raw: Vec<String> = std::env::args().skip(1).collect();
    let mut o = Options {
        effort: Effort { rounds: 20, most: 100, idle: 60 },
        only: Vec::new(),
        inner: false,
        raw: raw.clone(),
    };
    let mut args = raw.into_iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            args.next()
                .and_then(|v| v.parse().ok())
                .ok_or_else(|| Trouble::new(format!("{arg} needs a number")))
        };
        match arg.as_str() {
            "--rounds" => o.effort.rounds = number()?,
            "--most" => o.effort.most = number()?,
            "--idle" => o.effort.idle = number()?,
            "--quick" => o.effort = Effort { rounds: 5, most: 10, idle: 5 },
            "--only" => o.only = args.next().unwrap_or_default().split(',').map(str::to_string).collect(),
            "--binary" => node::choose_binary(args.next().unwrap_or_default().into()),
            "--inner" => o.inner = true,
            _ => return Err(Trouble::new(format!("unknown option '{arg}'"))),
        }
    }
    if let Some(bad) = o.only.iter().find(|part| !PARTS.contains(&part.as_str())) {
        return Err(Trouble::new(format!("unknown part '{bad}'; there are {PARTS:?}")));
    }
    Ok(o)
}

fn main() -> ExitCode {
    match run() {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("podkeep-bench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Value> {
    let o = options()?;
    if let Some(why) = node::cannot_run_here() {
        return Err(Trouble::new(why));
    }
    // a folder of our own on the file system that images and writable layers would lie on
    let dir = janitor::test_dir().join(format!("bench-{}", std::process::id()));
    fs::create_dir_all(&dir).doing(dir.display())?;
    let report = measure(&o, &dir);
    if let Err(e) = fs::remove_dir_all(&dir) {
        eprintln!("podkeep-bench: {}: {e}", dir.display());
    }
    _ = fs::remove_dir(janitor::test_dir());
    report
}

fn measure(o: &Options, dir: &Path) -> Result<Value> {
    let mut report = Map::new();
    let mut notes = Map::new();
    if !o.inner {
        report.insert("machine".into(), machine());
    }
    for part in PARTS {
        if !o.only.is_empty() && !o.only.iter().any(|p| p == part) {
            continue;
        }
        eprintln!("podkeep-bench: {part} ...");
        let here = dir.join(part);
        fs::create_dir_all(&here).doing(here.display())?;
        let measured = match part {
            "floor" => floor::measure(&here, o.effort),
            "crun" | "podman" if !o.inner && hybrid()? => in_plain_v1(o, part),
            "crun" => foreign::crun(&here, o.effort),
            "podman" => foreign::podman(&here, o.effort),
            _ => ours::measure(&here, o.effort),
        };
        match measured {
            Ok(value) => _ = report.insert(part.into(), value),
            Err(e) => {
                report.insert(part.into(), Value::Null);
                notes.insert(part.into(), e.to_string().into());
            }
        }
    }
    if !o.inner {
        report.insert("stripped_bytes".into(), stripped_size());
        let ratios = ratios(&report);
        report.insert("ratios".into(), ratios);
        report.insert("notes".into(), notes.into());
    } else if let Some((_, why)) = notes.into_iter().next() {
        return Err(Trouble::new(why.as_str().unwrap_or_default()));
    }
    Ok(report.into())
}

/// v1 hierarchies with a v2 one beside them: crun 1.8 refuses to work there.
fn hybrid() -> Result<bool> {
    let all = cgroup::hierarchies()?;
    Ok(all.iter().any(|h| h.v2) && all.iter().any(|h| !h.v2))
}

/// Runs one part in a mount namespace that does not have the v2 hierarchy.
fn in_plain_v1(o: &Options, part: &str) -> Result<Value> {
    let v2 =
        cgroup::hierarchies()?.into_iter().find(|h| h.v2).ok_or_else(|| Trouble::new("no v2 hierarchy"))?;
    let exe = std::env::current_exe().doing("own path")?;
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "umount \"$0\" && exec \"$@\""])
        .arg(v2.mount)
        .arg(exe)
        .args(&o.raw)
        .args(["--only", part, "--inner"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .doing("unshare")?;
    if !out.status.success() {
        return Err(Trouble::new(String::from_utf8_lossy(&out.stderr).trim().to_string()));
    }
    let report: Value = serde_json::from_slice(&out.stdout).doing(part)?;
    let mut value = report.get(part).cloned().unwrap_or(Value::Null);
    value["without_v2_hierarchy"] = json!(true);
    Ok(value)
}

fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map(|l| l.trim_start_matches([' ', '\t', ':']).to_string());
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model,
        "load_at_start": read("/proc/loadavg").split(' ').next().unwrap_or_default(),
        "cgroups": if hybrid().unwrap_or(false) { "hybrid" } else if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { "v2" } else { "v1" },
    })
}

/// The static musl binary if `cross/build` made one here, else nothing: a debug or glibc build says nothing of the size.
fn stripped_size() -> Value {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(target).join("release/podkeep");
    fs::metadata(path).map_or(Value::Null, |m| m.len().into())
}

/// podkeep divided by the others; below 1 is better.
fn ratios(report: &Map<String, Value>) -> Value {
    let get = |pointer: &str| Value::from(report.clone()).pointer(pointer).and_then(Value::as_f64);
    let divide = |a: &str, b: &str| match (get(a), get(b)) {
        (Some(a), Some(b)) if b > 0.0 => json!((a / b * 1000.0).round() / 1000.0),
        _ => Value::Null,
    };
    let mut all = Map::new();
    for other in ["floor", "crun", "podman"] {
        all.insert(
            format!("to_{other}"),
            json!({
                "start": divide("/podkeep/start/median_ms", &format!("/{other}/start/median_ms")),
                "crash_to_restarted": divide("/podkeep/crash_to_restarted/median_ms", &format!("/{other}/start/median_ms")),
                "stop": divide("/podkeep/stop/median_ms", &format!("/{other}/stop/median_ms")),
                "cpu_per_start": divide("/podkeep/cpu_ms_per_start", &format!("/{other}/cpu_ms_per_start")),
                "10_at_once": divide("/podkeep/at_once/10/last_started_ms", &format!("/{other}/at_once/10/last_started_ms")),
                "100_at_once": divide("/podkeep/at_once/100/last_started_ms", &format!("/{other}/at_once/100/last_started_ms")),
            }),
        );
    }
    all.into()
}
