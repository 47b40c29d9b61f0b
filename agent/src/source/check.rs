//! `podkeep check`: are these manifests what their author means? Read as the node would, and stricter: a warning is a
//! failure, too.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use podkeep_core::config;
use podkeep_core::desired::{Desired, FileKey, FileReport, Finding, SourceKind, SourceUpdate};
use podkeep_core::host_ports::{conflict, host_ports};

use super::decode::{self, MAX_FILE};
use super::judge::judge;
use super::look::{Look, look};
use super::node::{Node, display_path};
use super::watch::is_manifest_name;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// in the order of the files and lines
    pub findings: Vec<Finding>,
    pub files: usize,
    pub objects: usize,
}

impl Checked {
    /// 0: all is well. 1: something is to be said.
    pub fn exit_status(&self) -> u8 {
        u8::from(!self.findings.is_empty())
    }
}

/// Checks files and folders (the manifests in them) as one set, for a node of this name.
pub fn check(paths: &[PathBuf], node_name: &str) -> Checked {
    let mut checked = Checked::default();
    let judge = judge(node_name);
    let mut files = Vec::new();
    for path in paths {
        match manifests(path) {
            Ok(found) => files.extend(found),
            Err(message) => checked.findings.push(plain(path, message)),
        }
    }
    let mut seen = BTreeSet::new();
    let mut reports = Vec::new();
    for path in files.into_iter().filter(|path| seen.insert(path.clone())) {
        checked.files = checked.files.saturating_add(1);
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(message) => {
                checked.findings.push(plain(&path, message));
                continue;
            }
        };
        let name = display_path(&path);
        if is_configuration(&bytes) {
            checked.findings.extend(configuration(&name, &bytes));
            continue;
        }
        let key = FileKey { source: SourceKind::File, path: path.into_os_string().into_vec() };
        let decoded = decode::decode_judged(&bytes, &name, &mut |object| judge(&key, object));
        checked.objects = checked.objects.saturating_add(decoded.objects.len());
        let objects = decoded.errors.is_empty().then_some(decoded.objects);
        // files of a set have the order they were given in
        let since = i128::try_from(reports.len()).unwrap_or(i128::MAX);
        let (warnings, errors) = (decoded.warnings, decoded.errors);
        reports.push(FileReport { file: key, name, objects, since, warnings, errors });
    }
    checked.findings.extend(together(reports));
    checked
}

/// Whether a file holds settings, not manifests.
fn is_configuration(bytes: &[u8]) -> bool {
    let kinds = [config::KIND, config::node::KIND];
    let documents = decode::parse_lenient(bytes).map(|(documents, _)| documents).unwrap_or_default();
    documents
        .iter()
        .any(|document| document.get("kind").and_then(Node::text).is_some_and(|kind| kinds.contains(&kind)))
}

fn configuration(name: &str, bytes: &[u8]) -> Vec<Finding> {
    match crate::config::from_texts(&[(name, bytes)]) {
        Ok(settings) => settings.warnings,
        Err(error) => error.findings,
    }
}

/// The findings of all files, with those that only show when they are looked at together.
fn together(files: Vec<FileReport>) -> Vec<Finding> {
    let order: Vec<FileKey> = files.iter().map(|file| file.file.clone()).collect();
    let mut desired = Desired::default();
    let source = SourceKind::File;
    desired.apply(SourceUpdate { source, files, removed: Vec::new(), notes: Vec::new(), complete: true });
    let mut findings = Vec::new();
    for status in order.iter().filter_map(|key| desired.status(key)) {
        let mut own = status.errors;
        own.extend(status.warnings);
        own.sort_by_key(|finding| (finding.line, finding.column));
        findings.extend(own);
    }
    let pods: Vec<_> = desired.pods().map(|(key, pod, file)| (key, host_ports(pod), file)).collect();
    for (i, (key, ports, file)) in pods.iter().enumerate() {
        for (other, held, other_file) in pods.iter().take(i) {
            if let Some(port) = conflict(ports, held) {
                let message = format!(
                    "pod {} asks for host port {port}, which pod {} of {other_file} has: they cannot run together",
                    key.full_name(),
                    other.full_name()
                );
                findings.push(Finding { file: file.to_string(), message, ..Finding::default() });
            }
        }
    }
    findings
}

fn plain(path: &Path, message: String) -> Finding {
    Finding { file: display_path(path), message, ..Finding::default() }
}

/// A file itself, whatever its name; of a folder those that the node would read.
fn manifests(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = fs::read_dir(path).map_err(|error| format!("cannot be listed: {error}"))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot be listed: {error}"))?;
        if is_manifest_name(&entry.file_name()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    match look(path, None) {
        Look::Text { bytes, .. } => Ok(bytes),
        Look::Absent => Err("does not exist".to_string()),
        Look::Dangling => Err("is a link to a file that does not exist".to_string()),
        Look::Other(kind) => Err(format!("is {kind}, not a file")),
        Look::Same => Err("cannot be read".to_string()),
        Look::TooLarge { stamp } => {
            Err(format!("{} bytes are more than the {MAX_FILE} a manifest may have", stamp.size))
        }
        Look::Unreadable(error) => Err(format!("cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::testing::Scratch;

    fn case(name: &str) -> PathBuf {
        PathBuf::from(format!("{}/../tests/data/cases/{name}", env!("CARGO_MANIFEST_DIR")))
    }

    fn lines(checked: &Checked) -> Vec<String> {
        checked.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_files_pass_and_unknown_fields_fail() {
        let good = check(&[case("yml/C-YML-02/good.yaml"), case("yml/C-YML-08")], "board");
        assert_eq!((lines(&good), good.exit_status(), good.files, good.objects), (vec![], 0, 4, 2));
        let bad = check(&[case("yml/C-YML-10")], "board");
        assert_eq!(bad.exit_status(), 1);
        assert!(lines(&bad)[0].contains("this field exists at spec.restartPolicy"), "{:?}", lines(&bad));
    }

    #[test]
    fn files_are_looked_at_together() {
        let ports = check(&[case("yml/C-YML-12/pod-a.yaml"), case("yml/C-YML-12/pod-b.yaml")], "board");
        assert_eq!(ports.findings.len(), 1, "{:?}", lines(&ports));
        assert!(
            lines(&ports)[0].contains("host port 18078/TCP, which pod default/port-a-board"),
            "{:?}",
            lines(&ports)
        );
        let names = check(&[case("src/C-SRC-01/web-new.yaml"), case("src/C-SRC-01/web-old.yaml")], "board");
        assert!(
            lines(&names)[0].contains("is defined by") && lines(&names)[0].contains("web-new.yaml already")
        );
    }

    #[test]
    fn settings_are_checked_as_settings() {
        let checked = check(&[case("cfg/C-CFG-01/unknown.yaml"), case("cfg/C-CFG-02/only.yaml")], "board");
        let lines = lines(&checked);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("cpuManagerPolicy: 'static' needs"), "{lines:?}");
        assert!(lines[1].contains("did you mean 'reservedSystemCPUs'?"), "{lines:?}");
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let dir = Scratch::new("check");
        let missing = check(&[dir.path().join("none.yaml"), PathBuf::from("/dev/null")], "board");
        assert_eq!(missing.exit_status(), 1);
        assert!(lines(&missing)[0].ends_with("none.yaml: does not exist"));
        assert!(lines(&missing)[1].ends_with("/dev/null: is a device, not a file"));
    }
}
