//! What becomes of a decoded object on this node: identity, defaults, validation.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use podkeep_core::defaults;
use podkeep_core::desired::{FileKey, Object, SourceKind};
use podkeep_core::identity::{self, CONFIG_SOURCE, IdentityError, Served, Source};
use podkeep_core::validation::{self, FieldError};

use super::Judge;
use super::decode::Complaint;
use super::node::display_path;

/// A file or address as messages show it.
pub fn shown_path(file: &FileKey) -> String {
    display_path(Path::new(OsStr::from_bytes(&file.path)))
}

/// The judge of a node of this name.
pub fn judge(node_name: &str) -> Arc<Judge> {
    let node_name = node_name.to_owned();
    Arc::new(move |file: &FileKey, object: &mut Object| match object {
        Object::Pod(pod) => {
            let path = shown_path(file);
            let source = match file.source {
                SourceKind::File => Source::File(&path),
                SourceKind::Http => Source::Http(&path),
            };
            match identity::static_pod(std::mem::take(&mut **pod), &node_name, source, Served::LOCAL) {
                Ok(made) => {
                    **pod = made;
                    // the time of first sight is added where the pod is shown: it counts for no comparison
                    pod.metadata.annotations.insert(CONFIG_SOURCE.into(), source.name().into());
                    Vec::new()
                }
                Err(error) => identity_complaints(error),
            }
        }
        Object::ConfigMap(map) => {
            default_namespace(&mut map.metadata.namespace);
            complaints(validation::config_map(map))
        }
        Object::Secret(secret) => {
            default_namespace(&mut secret.metadata.namespace);
            defaults::secret(secret);
            complaints(validation::secret(secret))
        }
    })
}

fn default_namespace(namespace: &mut String) {
    if namespace.is_empty() {
        namespace.push_str("default");
    }
}

fn identity_complaints(error: IdentityError) -> Vec<Complaint> {
    match error {
        IdentityError::NoName => vec![Complaint {
            path: "metadata.name".into(),
            message: "a static pod needs a name".into(),
            hint: "generateName does not help: nobody would know the name".into(),
        }],
        IdentityError::Invalid(errors) => complaints(errors),
        reference @ IdentityError::Reference { .. } => vec![Complaint {
            path: "spec".into(),
            message: reference.to_string(),
            hint: "they live in an API server, which this node does not have".into(),
        }],
    }
}

fn complaints(errors: Vec<FieldError>) -> Vec<Complaint> {
    let complaint = |error: FieldError| {
        let message = error.message();
        Complaint { path: error.field, message, hint: String::new() }
    };
    errors.into_iter().map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::decode::{Decoded, decode_judged};

    fn judged(case: &str) -> Decoded {
        let path = format!("{}/../tests/data/cases/{case}", env!("CARGO_MANIFEST_DIR"));
        let name = case.rsplit('/').next().unwrap();
        let judge = judge("board");
        let key = FileKey { source: SourceKind::File, path: name.into() };
        decode_judged(&std::fs::read(path).unwrap(), name, &mut |object| judge(&key, object))
    }

    #[test]
    fn c_yml_11_memory_in_thousandths_of_a_byte_is_refused_at_its_place() {
        let decoded = judged("yml/C-YML-11/mem-milli.yaml");
        assert_eq!(decoded.errors.len(), 1, "{:?}", decoded.errors);
        let error = decoded.errors[0].to_string();
        assert!(
            error.starts_with("mem-milli.yaml:11:18: spec.containers[0].resources.limits[memory]"),
            "{error}"
        );
        assert!(error.contains("400Mi"), "{error}");
        assert_eq!(judged("yml/C-YML-11/mem-milli-legal.yaml").errors, []);
    }

    #[test]
    fn c_yml_12_same_host_port_in_one_pod_names_both_containers() {
        let decoded = judged("yml/C-YML-12/same-pod.yaml");
        assert_eq!(decoded.errors.len(), 1, "{:?}", decoded.errors);
        let error = decoded.errors[0].to_string();
        assert!(error.starts_with("same-pod.yaml:13:37:"), "{error}");
        assert!(error.contains("spec.containers[1].ports[0].hostPort") && error.contains("18077"), "{error}");
    }

    #[test]
    fn pods_get_their_identity() {
        let decoded = judged("yml/C-YML-02/good.yaml");
        let Object::Pod(pod) = &decoded.objects[0].object else { panic!() };
        assert_eq!(
            (pod.metadata.name.as_str(), pod.metadata.namespace.as_str()),
            ("tab-web-board", "default")
        );
        assert_eq!(pod.metadata.uid.len(), 32);
        assert_eq!(pod.spec.containers[0].image_pull_policy, "IfNotPresent");
    }

    #[test]
    fn c_src_03_order_and_comments_do_not_change_the_identity() {
        let uid = |case: &str| {
            let path = format!("{}/../tests/data/cases/src/C-SRC-03/{case}", env!("CARGO_MANIFEST_DIR"));
            let key = FileKey { source: SourceKind::File, path: b"/m/p.yaml".to_vec() };
            let judge = judge("board");
            let decoded =
                decode_judged(&std::fs::read(path).unwrap(), "p", &mut |object| judge(&key, object));
            decoded.objects[0].object.metadata().uid.clone()
        };
        assert_eq!(uid("p.yaml"), uid("p-reordered.yaml"));
    }

    #[test]
    fn every_manifest_shape_is_understood_or_refused_by_path() {
        let folder = format!("{}/../tests/data/cases/shp", env!("CARGO_MANIFEST_DIR"));
        let mut pods = 0;
        for entry in walk(Path::new(&folder)) {
            let name = entry.to_string_lossy().into_owned();
            let key = FileKey { source: SourceKind::File, path: name.clone().into() };
            let judge = judge("board");
            let decoded =
                decode_judged(&std::fs::read(&entry).unwrap(), &name, &mut |object| judge(&key, object));
            let shown: Vec<String> =
                decoded.errors.iter().chain(&decoded.warnings).map(ToString::to_string).collect();
            assert!(decoded.errors.iter().all(|error| error.line > 0), "{shown:#?}");
            println!("{name}: {} objects {shown:#?}", decoded.objects.len());
            pods += decoded.objects.len();
        }
        assert!(pods > 10, "{pods}");
    }

    fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(walk(&path));
            } else if path.extension().is_some_and(|e| e == "yaml" || e == "json") {
                found.push(path);
            }
        }
        found.sort();
        found
    }
}
