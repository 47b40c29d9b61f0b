//! The manifests people copy from documentation: read, defaulted, judged, written and read again.

use std::path::PathBuf;

use podkeep::source::decode::decode_file;
use podkeep_core::desired::Object;
use podkeep_core::identity::{self, Served, Source};
use podkeep_core::phase::{self, Phase};
use podkeep_core::types::Pod;
use podkeep_core::{defaults, oom, qos, resources, validation};
use serde_json::{Value, json};

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

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Changes something somewhere: a scalar to another one, an entry away, an element twice.
fn spoil(value: &mut Value, dice: &mut Dice) {
    let scalars = [
        json!(null),
        json!(""),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!(true),
        json!([]),
        json!({}),
        json!("\u{0}\u{7f}\u{1f600}"),
        json!("9223372036854775807Ei"),
        json!("-1e30"),
        json!("$(A)$$(B"),
        json!("../../etc"),
        json!("a".repeat(300)),
    ];
    match value {
        Value::Object(map) if !map.is_empty() && dice.roll(8) > 0 => {
            let at = dice.roll(map.len());
            let key = map.keys().nth(at).unwrap().clone();
            match dice.roll(12) {
                0 => drop(map.remove(&key)),
                _ => spoil(map.get_mut(&key).unwrap(), dice),
            }
        }
        Value::Array(list) if !list.is_empty() && dice.roll(8) > 0 => {
            let at = dice.roll(list.len());
            match dice.roll(12) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => spoil(&mut list[at], dice),
            }
        }
        other => *other = scalars[dice.roll(scalars.len())].clone(),
    }
}

#[test]
fn no_manifest_makes_the_rules_panic() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let whole: Vec<Value> =
        shapes().iter().flat_map(pods).map(|pod| serde_json::to_value(&pod).unwrap()).collect();
    let (mut read, mut valid) = (0, 0);
    for round in 0..4000 {
        let mut value = whole[round % whole.len()].clone();
        for _ in 0..=dice.roll(3) {
            spoil(&mut value, &mut dice);
        }
        let Ok(mut pod) = serde_json::from_value::<Pod>(value) else { continue };
        read += 1;
        valid += usize::from(
            identity::static_pod(pod.clone(), "node1", Source::File("/m/a.yaml"), Served::LOCAL).is_ok(),
        );
        defaults::pod(&mut pod);
        let _ = qos::class(&pod);
        let _ = (resources::pod_requests(&pod), resources::pod_limits(&pod));
        let _ = resources::pod_cgroup(&pod, 100_000, true);
        for c in &pod.spec.containers {
            assert!((-999..=1000).contains(&oom::score_adj(&pod, &c.name, 1 << 30)));
        }
        let _ = phase::conditions(&pod, &pod.status, Phase::Running);
        let text = serde_json::to_string(&pod).unwrap();
        assert_eq!(serde_json::from_str::<Pod>(&text).unwrap(), pod);
    }
    // neither is the change too small nor are all of them refused at once
    assert!(read > 500 && valid > 50 && valid < read, "{read} read, {valid} valid");
}

/// All faults of a pod of a case file, in words.
fn faults(case: &str) -> Vec<String> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data/cases")).join(case);
    let judged = pods(&path).into_iter().map(|pod| {
        match identity::static_pod(pod, "node1", Source::File(case), Served::LOCAL) {
            Ok(_) => Vec::new(),
            Err(identity::IdentityError::Invalid(errors)) => errors.iter().map(ToString::to_string).collect(),
            Err(other) => vec![other.to_string()],
        }
    });
    judged.flatten().collect()
}

#[test]
fn memory_in_thousandths_is_told_with_what_was_meant() {
    let found = faults("yml/C-YML-11/mem-milli.yaml");
    assert!(found.iter().any(|text| text.contains("400M or 400Mi")), "{found:?}");
    assert!(faults("yml/C-YML-11/mem-milli-legal.yaml").is_empty());
}

#[test]
fn one_host_port_for_two_containers_is_told_with_both_names() {
    let found = faults("yml/C-YML-12/same-pod.yaml");
    assert!(found.len() == 1 && found[0].contains("ask for the same host port"), "{found:?}");
    for one in ["yml/C-YML-12/pod-a.yaml", "yml/C-YML-12/pod-b.yaml"] {
        assert!(faults(one).is_empty(), "{one}");
    }
}
