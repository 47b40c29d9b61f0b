//! Entry points for foreign bytes: whatever comes in, none of them may panic, hang, or take memory without bound. They are
//! driven by `tests/fuzz_smoke.rs` on any toolchain, and by `fuzz/` under libFuzzer.

use std::collections::BTreeSet;

use podkeep::config;
use podkeep::source::decode;
use podkeep::source::judge::judge;
use podkeep::supervisor::proto::{Reply, Request};
use podkeep_core::desired::{Desired, FileKey, FileReport, Object, SourceKind, SourceUpdate};

/// A manifest, read and judged as the node does, and put among what is wanted.
pub fn manifest(bytes: &[u8]) {
    let judge = judge("node");
    let file = FileKey { source: SourceKind::File, path: b"/m/f.yaml".to_vec() };
    let decoded = decode::decode_judged(bytes, "f.yaml", &mut |object: &mut Object| judge(&file, object));
    for finding in decoded.errors.iter().chain(&decoded.warnings) {
        let line = finding.to_string();
        assert!(!line.contains('\n'), "a finding of two lines: {line:?}");
    }
    assert!(decoded.errors.is_empty() || decoded.objects.is_empty(), "objects of a file with errors");
    let again = decode::decode_judged(bytes, "f.yaml", &mut |object: &mut Object| judge(&file, object));
    assert!(decoded == again, "read twice, understood in two ways");
    let report = FileReport {
        file: file.clone(),
        name: "f.yaml".into(),
        objects: decoded.errors.is_empty().then_some(decoded.objects),
        since: 0,
        warnings: decoded.warnings,
        errors: decoded.errors,
    };
    let mut desired = Desired::default();
    let (removed, notes) = (Vec::new(), Vec::new());
    let source = SourceKind::File;
    desired.apply(SourceUpdate { source, files: vec![report], removed, notes, complete: true });
    let names: BTreeSet<String> = desired.pods().map(|(key, ..)| key.full_name()).collect();
    assert_eq!(names.len(), desired.pods().count());
}

/// A configuration file.
pub fn configuration(bytes: &[u8]) {
    if let Err(error) = config::from_texts(&[("config.yaml", bytes)]) {
        assert!(!error.findings.is_empty(), "refused without a reason");
        assert!(error.to_string().lines().count() >= error.findings.len());
    }
}

/// A frame of the link between agent and supervisor, in both directions. What is understood is the same after it was
/// written and read again.
pub fn supervisor_message(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let text = serde_json::to_string(&request).unwrap_or_default();
        let again = serde_json::from_str::<Request>(&text).ok();
        assert_eq!(again.map(|request| format!("{request:?}")), Some(format!("{request:?}")));
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(bytes) {
        let text = serde_json::to_string(&reply).unwrap_or_default();
        let again = serde_json::from_str::<Reply>(&text).ok();
        assert_eq!(again.map(|reply| format!("{reply:?}")), Some(format!("{reply:?}")));
    }
}

/// Numbers that are the same for the same seed (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.next().checked_rem(bound).unwrap_or(0)).unwrap_or(0)
    }
}

/// Pieces that matter to the readers.
const WORDS: [&str; 48] = [
    "\n",
    "  ",
    "\t",
    ": ",
    "- ",
    "-",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "!x ",
    "---\n",
    "...\n",
    "# ",
    "\r\n",
    "~",
    "null",
    "yes",
    "0x1F",
    "1e9",
    "-1",
    "0898",
    "\\u0000",
    "\\ud83d",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "é",
    "%YAML 1.2\n",
    "%TAG ! x\n",
    "kind: ",
    "List\nitems:\n",
    "9223372036854775808",
    "\u{0}",
    "\u{7f}",
    "@",
    "`",
    ":",
];

/// Changes a text a little, mixing in another one.
pub fn mutate(rng: &mut Rng, text: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(text.len().saturating_add(1));
        let end = at.saturating_add(rng.below(24)).min(text.len());
        match rng.below(8) {
            0 => drop(text.drain(at..end)),
            1 | 2 => {
                let word = WORDS.get(rng.below(WORDS.len())).copied().unwrap_or("x");
                text.splice(at..at, word.bytes());
            }
            3 => {
                let word = WORDS.get(rng.below(WORDS.len())).copied().unwrap_or("x");
                text.splice(at..end, word.bytes());
            }
            4 => {
                let byte = u8::try_from(rng.below(256)).unwrap_or(0);
                if let Some(slot) = text.get_mut(at) {
                    *slot = byte;
                }
            }
            5 => {
                let copy: Vec<u8> = text.get(at..end).unwrap_or(&[]).to_vec();
                let times = rng.below(40);
                text.splice(at..at, copy.repeat(times));
            }
            6 => {
                let from = rng.below(other.len().saturating_add(1));
                let to = from.saturating_add(rng.below(200)).min(other.len());
                text.splice(at..at, other.get(from..to).unwrap_or(&[]).iter().copied());
            }
            _ => text.truncate(at),
        }
        text.truncate(64 << 10);
    }
}
