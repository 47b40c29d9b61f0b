//! The manifests people copy from documentation: read, defaulted, judged, written and read again.

use std::path::PathBuf;

use podkeep::source::decode::decode_file;
use podkeep_core::desired::Object;
use podkeep_core::types::Pod;
use podkeep_core::{defaults, validation};

fn shapes() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cases/shp");
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "yaml" || e == "json")).collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    files
}

fn pods(path: &PathBuf) -> Vec<Pod> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let decoded = decode_file(&std::fs::read(path).unwrap(), &name);
    assert!(decoded.errors.is_empty(), "{name}: {:?}", decoded.errors);
    let pods = decoded.objects.into_iter().filter_map(|placed| match placed.object {
        Object::Pod(pod) => Some(*pod),
        _ => None,
    });
    pods.collect()
}

#[test]
fn written_and_read_again_they_are_the_same() {
    for path in shapes() {
        for pod in pods(&path) {
            for filled in [false, true] {
                let mut pod = pod.clone();
                if filled {
                    defaults::pod(&mut pod);
                }
                let text = serde_json::to_string(&pod).unwrap();
                let again: Pod = serde_json::from_str(&text).unwrap();
                assert_eq!(pod, again, "{}", path.display());
                assert_eq!(text, serde_json::to_string(&again).unwrap(), "{}", path.display());
            }
        }
    }
}

#[test]
fn defaults_are_filled_in_once() {
    for path in shapes() {
        for mut pod in pods(&path) {
            defaults::pod(&mut pod);
            let once = pod.clone();
            defaults::pod(&mut pod);
            assert_eq!(once, pod, "{}", path.display());
        }
    }
}

#[test]
fn all_of_them_are_valid() {
    for path in shapes() {
        for mut pod in pods(&path) {
            if pod.metadata.namespace.is_empty() {
                pod.metadata.namespace = "default".into();
            }
            defaults::pod(&mut pod);
            let faults = validation::pod(&pod);
            assert!(faults.is_empty(), "{}: {faults:?}", path.display());
        }
    }
}
