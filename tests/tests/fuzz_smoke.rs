//! Foreign bytes for some seconds: the corpus of all test data, changed at random, the same for the same seed.
//! `PODKEEP_FUZZ_SECONDS` (default 10, shared by the targets) and `PODKEEP_FUZZ_SEED` steer it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use podkeep_tests::fuzz::{self, Rng};

/// No input of at most 64 KiB may take longer, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)) {
            found.push(path);
        }
    }
}

fn corpus(endings: &[&str]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/cases")), endings, &mut found);
    found.sort();
    let texts = found.iter().map(|path| std::fs::read(path).unwrap());
    texts.filter(|text| text.len() < 64 << 10).collect()
}

/// Runs a target on the corpus itself and on changes of it. A panic names the input by seed and turn, and prints it.
fn drive(name: &str, corpus: &[Vec<u8>], target: fn(&[u8])) {
    let seconds = number("PODKEEP_FUZZ_SECONDS", 10);
    let seed = number("PODKEEP_FUZZ_SEED", 1);
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut turns = 0u64;
    let mut slowest = Duration::ZERO;
    let mut run = |text: &[u8], turn: u64| {
        let start = Instant::now();
        let result = std::panic::catch_unwind(|| target(text));
        let took = start.elapsed();
        slowest = slowest.max(took);
        if result.is_err() || took > PATIENCE {
            let path = std::env::temp_dir().join(format!("podkeep-fuzz-{name}-{seed}-{turn}"));
            std::fs::write(&path, text).ok();
            panic!(
                "{name}: seed {seed}, turn {turn}, {took:?}, input in {}: {:?}",
                path.display(),
                String::from_utf8_lossy(text)
            );
        }
    };
    for text in corpus {
        run(text, 0);
    }
    let end = Instant::now() + Duration::from_millis(seconds * 1000 / 3);
    while Instant::now() < end {
        turns += 1;
        let mut text = corpus[rng.below(corpus.len())].clone();
        let other = &corpus[rng.below(corpus.len())];
        fuzz::mutate(&mut rng, &mut text, other);
        run(&text, turns);
    }
    println!("{name}: {turns} inputs, the slowest took {slowest:?}");
    assert!(turns > 0, "no input was tried");
}

#[test]
fn manifests() {
    drive("manifest", &corpus(&["yaml", "json"]), fuzz::manifest);
}

#[test]
fn configurations() {
    let mut texts: Vec<Vec<u8>> = corpus(&["yaml"]).into_iter().filter(|text| text.len() < 2000).collect();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/data/vectors/kubelet_config_validation.json");
    let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    texts.extend(cases.iter().map(|case| case["input"]["config"].to_string().into_bytes()));
    let node =
        "apiVersion: podkeep.dev/v1alpha1\nkind: NodeConfiguration\nsettlePeriod: 1s\nlogs: {rate: 1Mi}\n";
    texts.push(node.into());
    drive("configuration", &texts, fuzz::configuration);
}

#[test]
fn supervisor_messages() {
    use podkeep::supervisor::proto::{Failure, Reply, ReplyBody, Request, RequestBody};
    let requests = [
        RequestBody::Hello { version: 1 },
        RequestBody::List,
        RequestBody::CreateSandbox { spec: Box::default() },
        RequestBody::Start { spec: Box::default() },
        RequestBody::Exec { id: "a".into(), exec_id: "b".into(), process: Box::default() },
        RequestBody::Signal { id: "a".into(), signal: 15 },
    ];
    let replies = [
        ReplyBody::Done,
        ReplyBody::Listed { sandboxes: vec![Default::default()], containers: vec![Default::default()] },
        ReplyBody::Failed { failure: Failure::default() },
        ReplyBody::Exited { id: "a".into(), exit: Default::default() },
    ];
    let texts =
        requests.into_iter().map(|body| serde_json::to_vec(&Request { seq: 7, fds: 0, body }).unwrap());
    let texts = texts
        .chain(replies.into_iter().map(|body| serde_json::to_vec(&Reply { seq: 7, fds: 0, body }).unwrap()));
    drive("supervisor_message", &texts.collect::<Vec<_>>(), fuzz::supervisor_message);
}
