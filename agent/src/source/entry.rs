//! One file of a folder: what was read of it last, what is in force, what was told.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use podkeep_core::desired::{FileKey, FileReport, Finding};

use super::Judge;
use super::decode;
use super::look::{Look, Stamp, look};
use super::node::display_path;
use super::settle::{Settle, Shown};

/// What is known of one file.
#[derive(Default)]
pub struct Entry {
    pub settle: Settle,
    pub stamp: Option<Stamp>,
    /// of the text that was told last
    digest: Option<u64>,
    /// it has objects in force
    pub precious: bool,
    /// it was told of
    pub told: bool,
    /// a bad state that is told only if it lasts
    held_back: Option<FileReport>,
    /// findings told last, so that nothing is told twice
    findings: Vec<Finding>,
}

/// What a look at a file comes to.
pub enum Examined {
    Nothing,
    Report(FileReport),
    Gone,
}

impl Entry {
    /// Looks at the file at `path`, which is known as `key`.
    pub fn examine(
        &mut self,
        path: &Path,
        key: &FileKey,
        judge: &Judge,
        quiet: Duration,
        now: Instant,
    ) -> Examined {
        let found = look(path, self.stamp.as_ref());
        let name = display_path(Path::new(OsStr::from_bytes(&key.path)));
        let blank = FileReport {
            file: key.clone(),
            name: name.clone(),
            objects: None,
            since: 0,
            warnings: Vec::new(),
            errors: Vec::new(),
        };
        let finding = |message: String| Finding { file: name.clone(), message, ..Finding::default() };
        let (shown, report) = match found {
            Look::Absent => {
                let tell = self.settle.looked(Shown::Absent, self.precious, now, quiet);
                return if tell { Examined::Gone } else { Examined::Nothing };
            }
            Look::Same => return self.unchanged(now, quiet),
            Look::Text { bytes, stamp } => {
                self.stamp = Some(stamp);
                let digest = digest(&bytes);
                if self.digest == Some(digest) {
                    return self.unchanged(now, quiet);
                }
                self.digest = Some(digest);
                self.read(&bytes, FileReport { since: stamp.changed, ..blank }, judge)
            }
            Look::TooLarge { stamp } => {
                self.stamp = Some(stamp);
                self.digest = None;
                let message = format!(
                    "{} bytes are more than the {} a manifest may have",
                    stamp.size,
                    decode::MAX_FILE
                );
                (Shown::Bad, FileReport { errors: vec![finding(message)], ..blank })
            }
            Look::Other(kind) => {
                self.forget();
                let note = finding(format!("is {kind}, not a file, and is left out"));
                (Shown::Good, FileReport { objects: Some(Vec::new()), warnings: vec![note], ..blank })
            }
            Look::Dangling => {
                self.forget();
                let note = finding("is a link to a file that does not exist (yet)".to_string());
                (Shown::Absent, FileReport { objects: Some(Vec::new()), warnings: vec![note], ..blank })
            }
            Look::Unreadable(error) => {
                self.forget();
                (
                    Shown::Bad,
                    FileReport { errors: vec![finding(format!("cannot be read: {error}"))], ..blank },
                )
            }
        };
        if self.settle.looked(shown, self.precious, now, quiet) {
            return self.tell(report);
        }
        self.held_back = Some(report);
        Examined::Nothing
    }

    /// The text is the one that was read last: what was held back of it has lasted, and is told.
    fn unchanged(&mut self, now: Instant, quiet: Duration) -> Examined {
        let held_back = self.held_back.take();
        let shown = if held_back.is_some() { Shown::Bad } else { Shown::Good };
        if self.settle.looked(shown, self.precious, now, quiet) {
            return held_back.map_or(Examined::Nothing, |report| self.tell(report));
        }
        self.held_back = held_back;
        Examined::Nothing
    }

    fn forget(&mut self) {
        self.stamp = None;
        self.digest = None;
    }

    /// Text to report.
    fn read(&self, bytes: &[u8], mut report: FileReport, judge: &Judge) -> (Shown, FileReport) {
        let is_empty = bytes.iter().all(u8::is_ascii_whitespace);
        if is_empty && self.precious {
            report.warnings.push(Finding {
                file: report.name.clone(),
                message: "the file is empty; what it held before stays in force".to_string(),
                hint: "delete the file to stop its pods".to_string(),
                ..Finding::default()
            });
            return (Shown::Bad, report);
        }
        let key = report.file.clone();
        let decoded = decode::decode_judged(bytes, &report.name, &mut |object| judge(&key, object));
        report.warnings = decoded.warnings;
        report.errors = decoded.errors;
        if !report.errors.is_empty() {
            return (Shown::Bad, report);
        }
        report.objects = Some(decoded.objects);
        (if is_empty { Shown::Bad } else { Shown::Good }, report)
    }

    /// Hands a report out, unless it says what was said already.
    fn tell(&mut self, report: FileReport) -> Examined {
        self.held_back = None;
        let findings: Vec<Finding> = report.warnings.iter().chain(&report.errors).cloned().collect();
        let same = self.told && findings == self.findings;
        let holds = report.objects.as_ref().map(|objects| !objects.is_empty());
        let changes_nothing = match holds {
            Some(true) => false,
            // nothing was in force and nothing is
            Some(false) => !self.precious,
            None => true,
        };
        if changes_nothing && (same || (findings.is_empty() && !self.told)) {
            return Examined::Nothing;
        }
        self.findings = findings;
        self.told = true;
        self.precious = holds.unwrap_or(self.precious);
        Examined::Report(report)
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
