//! The bare start (`tests/bench/floor.c`).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::samples::ms;
use super::stamps::Stamps;
use super::{Effort, Samples};
use crate::image;
use crate::trouble::{Doing, Result, Trouble};

/// # Errors
/// There is no C compiler, or the program fails.
pub fn measure(dir: &Path, effort: Effort) -> Result<Value> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/floor.c");
    let program = dir.join("floor");
    let built =
        Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(source).status().doing("cc")?;
    if !built.success() {
        return Err(Trouble::new("floor.c cannot be compiled"));
    }
    let root = dir.join("root");
    image::stamp_layer()?.unpack(&root)?;
    let single = run(&program, dir, &root, "single", effort.rounds, 1)?;
    let mut at_once = serde_json::Map::new();
    for n in super::ours::counts(effort) {
        let many = run(&program, dir, &root, &format!("many{n}"), 1, n)?;
        at_once.insert(n.to_string(), json!({"last_started_ms": many.all.map(ms)}));
    }
    Ok(json!({
        "start": single.start.json(), "stop": single.stop.json(),
        "cpu_ms_per_start": ms(single.cpu / u64::from(effort.rounds.max(1))), "at_once": at_once,
    }))
}

struct Run {
    start: Samples,
    stop: Samples,
    cpu: u64,
    /// first request to last first instruction
    all: Option<u64>,
}

fn run(program: &Path, dir: &Path, root: &Path, tag: &str, rounds: u32, at_once: u32) -> Result<Run> {
    let work = dir.join(tag);
    fs::create_dir_all(&work).doing(work.display())?;
    let stamps = Stamps::new(&dir.join(format!("{tag}-out")))?;
    let mut command = Command::new(program);
    command.args([rounds.to_string(), at_once.to_string()]).args([root, &work, &stamps.dir]);
    let out = command.output().doing("floor")?;
    if !out.status.success() {
        return Err(Trouble::new(String::from_utf8_lossy(&out.stderr).into_owned()));
    }
    let mut run = Run { start: Samples::default(), stop: Samples::default(), cpu: 0, all: None };
    let (mut first, mut last) = (u64::MAX, 0);
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        match words.first().copied() {
            Some("start") => {
                let began =
                    stamps.read(words.get(2).copied().unwrap_or_default()).first().copied().unwrap_or(0);
                run.start.add(began.saturating_sub(number(1)));
                (first, last) = (first.min(number(1)), last.max(began));
            }
            Some("stop") => run.stop.add(number(1)),
            Some("cpu") => run.cpu = number(1),
            _ => {}
        }
    }
    run.all = last.checked_sub(first);
    Ok(run)
}
