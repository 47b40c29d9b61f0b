//! Throws damaged input at everything that reads foreign text: manifests, configuration, supervisor and API frames,
//! log records. `podkeep-fuzz [--seconds N] [--seed N] [--case FILE TARGET]`.
//!
//! A coverage-guided fuzzer needs a nightly compiler; this one needs none: it takes the project's own samples apart and
//! puts them together wrongly, the same way for the same seed. A panic or an input that takes longer than a second is a
//! failure; the input is kept in `target/fuzz/` and can be played again with `--case`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use podkeep::supervisor::wire::FrameBuffer;

/// No input of the size used here may take longer; a slow machine gets its share.
const LIMIT: Duration = Duration::from_secs(5);
const LONGEST: usize = 64 * 1024;

struct Target {
    name: &'static str,
    run: fn(&[u8]),
    corpus: &'static [&'static str],
}

const TARGETS: [Target; 4] = [
    Target { name: "manifest", run: manifest, corpus: &["tests/data/cases", "configs/manifests"] },
    Target {
        name: "config",
        run: config,
        corpus: &["configs", "tests/data/cases/cfg", "tests/data/cases/shd"],
    },
    Target { name: "frames", run: frames, corpus: &[] },
    Target { name: "log", run: log_record, corpus: &[] },
];

fn manifest(bytes: &[u8]) {
    let decoded = podkeep::source::decode::decode_file(bytes, "fuzz.yaml");
    for finding in decoded.errors.iter().chain(&decoded.warnings) {
        let shown = finding.to_string();
        assert!(!shown.contains('\n') && !shown.contains('\0'), "a finding is one clean line: {shown:?}");
    }
    for placed in decoded.objects {
        if let podkeep_core::desired::Object::Pod(pod) = placed.object {
            let source = podkeep_core::identity::Source::File("fuzz.yaml");
            let served = podkeep_core::identity::Served::LOCAL;
            // refused or taken, both are fine
            drop(podkeep_core::identity::static_pod(*pod, "node", source, served));
        }
    }
}

fn config(bytes: &[u8]) {
    drop(podkeep::config::from_texts(&[("fuzz.yaml", bytes)]));
}

fn frames(bytes: &[u8]) {
    let mut buffer = FrameBuffer::default();
    for piece in bytes.chunks(97) {
        buffer.push(piece);
        while let Ok(Some(frame)) = buffer.next_frame() {
            drop(serde_json::from_slice::<podkeep::supervisor::proto::Request>(&frame));
            drop(serde_json::from_slice::<podkeep::supervisor::proto::Reply>(&frame));
            drop(serde_json::from_slice::<podkeep::api::ApiRequest>(&frame));
        }
    }
    drop(serde_json::from_slice::<podkeep::supervisor::proto::Request>(bytes));
    drop(serde_json::from_slice::<podkeep::api::ApiReply>(bytes));
}

fn log_record(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let text = podkeep::logs::record::Prefix::parse(line).map(|prefix| prefix.time_ns);
        assert!(text.is_none() || line.len() > 20, "a record has at least a time");
    }
}

/// A small generator of numbers (xorshift): the same seed, the same run, on every machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }
}

const PIECES: [&[u8]; 24] = [
    b"\0",
    b"\xff\xfe",
    b"\t",
    b"- ",
    b": ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"|\n",
    b">\n",
    b"&a ",
    b"*a",
    b"<<: ",
    b"---\n",
    b"...\n",
    b"\r\n",
    b"# ",
    b"99999999999999999999",
    b"null",
    b"!!binary ",
    b"\xe2\x80\xa8",
];

fn mutate(chance: &mut Chance, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = chance.pick(corpus).cloned().unwrap_or_default();
    for _ in 0..=chance.below(8) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(7) {
            0 => {
                let end = (at + chance.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (chance.next() % 8);
                }
            }
            2 | 3 => {
                let piece = chance.pick(&PIECES).copied().unwrap_or_default();
                bytes.splice(at..at, piece.iter().copied());
            }
            4 => {
                let other = chance.pick(corpus).cloned().unwrap_or_default();
                let from = chance.below(other.len() + 1);
                let to = (from + chance.below(300)).min(other.len());
                bytes.splice(at..at, other.get(from..to).unwrap_or_default().iter().copied());
            }
            5 => {
                let piece = chance.pick(&PIECES).copied().unwrap_or_default();
                let many = piece.repeat(chance.below(2_000));
                bytes.splice(at..at, many);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

fn read_corpus(folders: &[&str]) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()));
        } else if path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|e| ending == *e))
            && let Ok(bytes) = std::fs::read(&path)
        {
            found.push(bytes);
        }
    }
    // the order of a folder is the file system's, the seed's run must not be
    found.sort();
    found
}

fn builtin(name: &str) -> Vec<Vec<u8>> {
    let frame = |text: &str| {
        let mut bytes = u32::try_from(text.len()).unwrap_or(0).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    match name {
        "frames" => vec![
            frame(r#"{"seq":1,"body":{"hello":{"version":1}}}"#),
            frame(r#"{"seq":2,"body":"list"}"#),
            frame(
                r#"{"seq":3,"body":{"start":{"spec":{"id":"x","root":{"layers":["/a"]},"process":{"args":["a"]}}}}}"#,
            ),
            frame(r#"{"seq":0,"body":{"exited":{"id":"x","exit":{"code":3}}}}"#),
        ],
        "log" => vec![
            b"2026-11-30T23:17:34.402944689Z stdout F line 1\n2026-11-30T23:17:34.4Z stderr P x\n".to_vec(),
        ],
        _ => vec![Vec::new()],
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after =
        |name: &str| arguments.iter().position(|word| word == name).and_then(|at| arguments.get(at + 1));
    if let [word, file, target] = arguments.as_slice()
        && word == "--case"
    {
        let bytes = std::fs::read(file).unwrap_or_default();
        TARGETS.iter().filter(|known| known.name == target).for_each(|known| (known.run)(&bytes));
        return ExitCode::SUCCESS;
    }
    let seconds: u64 = after("--seconds").and_then(|word| word.parse().ok()).unwrap_or(20);
    let seed: u64 = after("--seed").and_then(|word| word.parse().ok()).unwrap_or(0x5eed_0f_90d5);
    let mut failed = 0;
    for target in &TARGETS {
        failed += usize::from(!fuzz(target, Duration::from_secs(seconds) / 4, seed));
    }
    println!("fuzz: {} targets, {failed} failed (seed {seed})", TARGETS.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fuzz(target: &Target, time: Duration, seed: u64) -> bool {
    let mut corpus = read_corpus(target.corpus);
    corpus.extend(builtin(target.name));
    let mut chance = Chance(seed | 1);
    let end = Instant::now() + time;
    let mut runs = 0_u64;
    while Instant::now() < end {
        let input = mutate(&mut chance, &corpus);
        let begun = Instant::now();
        let run = target.run;
        let copy = input.clone();
        let broken = std::panic::catch_unwind(move || run(&copy)).is_err();
        runs += 1;
        if broken || begun.elapsed() > LIMIT {
            let folder = Path::new("target/fuzz");
            let path = folder.join(format!("{}-{runs}", target.name));
            let kept = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &input));
            println!(
                "fuzz {}: input {runs} {} ({} bytes, kept: {}, {:?})",
                target.name,
                if broken { "panics" } else { "takes too long" },
                input.len(),
                path.display(),
                kept.is_ok()
            );
            return false;
        }
    }
    println!("fuzz {}: {runs} inputs from {} samples, all read or refused", target.name, corpus.len());
    runs > 0
}
