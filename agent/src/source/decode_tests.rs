//! The YML cases of tests/data/cases, and what they leave out.

use super::*;

fn case(name: &str) -> Vec<u8> {
    let path = format!("{}/../tests/data/cases/yml/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn decode_case(name: &str) -> Decoded {
    decode_file(&case(name), name.rsplit('/').next().unwrap())
}

fn pods(decoded: &Decoded) -> Vec<&Pod> {
    assert!(decoded.errors.is_empty(), "{:?}", decoded.errors);
    decoded
        .objects
        .iter()
        .filter_map(|placed| match &placed.object {
            Object::Pod(pod) => Some(pod.as_ref()),
            _ => None,
        })
        .collect()
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// One pod, no complaint.
fn clean(decoded: &Decoded) -> &Pod {
    assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
    let pods = pods(decoded);
    assert_eq!(pods.len(), 1);
    pods[0]
}

#[test]
fn c_yml_01_leading_zero_modes_are_octal() {
    let decoded = decode_case("C-YML-01/octal.yaml");
    let pod = clean(&decoded);
    let downward = pod.spec.volumes[0].downward_api.as_ref().unwrap();
    assert_eq!(downward.default_mode, Some(420));
    assert_eq!(downward.items[0].mode, Some(256));
    assert_eq!(pod.spec.volumes[1].projected.as_ref().unwrap().default_mode, Some(0o755));
    // plain decimal gives the very same
    let text = String::from_utf8(case("C-YML-01/octal.yaml")).unwrap();
    let decimal = text.replace("0644", "420").replace("0400", "256").replace("0755", "0o755");
    assert_eq!(decode_file(decimal.as_bytes(), "octal.yaml"), decoded);
}

#[test]
fn c_yml_02_tab_is_named_with_line_and_column() {
    assert_eq!(clean(&decode_case("C-YML-02/good.yaml")).metadata.name, "tab-web");
    let decoded = decode_case("C-YML-02/tabs.yaml");
    assert_eq!(lines(&decoded.errors), ["tabs.yaml:4:1: a tab is used for indentation (indent with spaces)"]);
}

#[test]
fn c_yml_03_byte_order_mark_and_carriage_returns() {
    let decoded = decode_case("C-YML-03/bom-crlf.yaml");
    let pod = clean(&decoded);
    assert_eq!(pod.spec.containers[0].image, "registry.test/busybox:1");
    let decoded = decode_case("C-YML-03/crlf-script.yaml");
    let pod = clean(&decoded);
    assert_eq!(pod.spec.containers[0].args, ["set -e\nif true\nthen\n  echo fine\nfi\n"]);
    assert_eq!(pod.spec.restart_policy, "Never");
}

#[test]
fn c_yml_04_duplicate_key_names_both_lines() {
    let decoded = decode_case("C-YML-04/dup-env.yaml");
    assert_eq!(
        lines(&decoded.errors),
        [
            "dup-env.yaml:14:7: key 'env' stands twice in one mapping, at line 10 and at line 14 (put both into one, or remove one)"
        ]
    );
    assert!(decoded.objects.is_empty());
}

#[test]
fn c_yml_05_anchors_and_merge_keys() {
    let decoded = decode_case("C-YML-05/anchors.yaml");
    let pods = pods(&decoded);
    let spec = &pods[0].spec;
    assert_eq!(lines(&decoded.warnings), ["anchors.yaml:3:1: x-defaults: unknown field 'x-defaults' in Pod"]);
    assert_eq!(pods[0].metadata.annotations["app"], "anchors");
    assert_eq!(pods[0].metadata.annotations["note"], "merged");
    let limit = |container: usize, name: &str| spec.containers[container].resources.limits[name].to_string();
    assert_eq!((limit(0, "cpu"), limit(0, "memory")), ("50m".into(), "32Mi".into()));
    assert_eq!((limit(1, "cpu"), limit(1, "memory")), ("50m".into(), "64Mi".into()));
    assert_eq!(spec.containers[1].name, "b");
    assert_eq!(spec.containers[1].command, spec.containers[0].command);
}

#[test]
fn c_yml_06_words_that_look_like_numbers_are_refused_by_path() {
    assert_eq!(
        lines(&decode_case("C-YML-06/args-number.yaml").errors),
        [
            "args-number.yaml:13:11: spec.containers[0].args[1]: expected a text, found the number '0898' (quote it: \"0898\")"
        ]
    );
    let errors = lines(&decode_case("C-YML-06/env-words.yaml").errors);
    let refused = [
        ("metadata.labels.enabled", "yes"),
        ("spec.containers[0].env[0].value", "no"),
        ("spec.containers[0].env[1].value", "on"),
        ("spec.containers[0].env[3].value", "1_000"),
        ("spec.containers[0].env[4].value", "0x1F"),
        ("spec.containers[0].env[5].value", "8080"),
        ("spec.containers[0].env[6].value", "~"),
    ];
    assert_eq!(errors.len(), refused.len(), "{errors:#?}");
    for (error, (path, word)) in errors.iter().zip(refused) {
        assert!(error.contains(path) && error.contains(&format!("quote it: \"{word}\"")), "{error}");
    }
    let errors = lines(&decode_case("C-YML-06/anno-number.yaml").errors);
    let paths = [
        "annotations[prometheus.io/port]",
        "annotations[prometheus.io/scrape]",
        "annotations.build",
        "annotations.commit",
        "labels.rack",
    ];
    assert_eq!(errors.len(), paths.len(), "{errors:#?}");
    for (error, path) in errors.iter().zip(paths) {
        assert!(error.contains(path) && error.contains("quote it"), "{error}");
    }
    let errors = lines(&decode_case("C-YML-06/port-string.yaml").errors);
    assert_eq!(
        errors,
        [
            "port-string.yaml:10:31: spec.containers[0].ports[0].containerPort: expected a whole number, found the text '8080' (remove the quotes)"
        ]
    );
}

#[test]
fn c_yml_06_unquoted_times_stay_as_written() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, env: [{name: AT, value: 12:30:45}]}]}\n";
    let decoded = decode_file(text.as_bytes(), "f");
    assert_eq!(clean(&decoded).spec.containers[0].env[0].value.as_str(), "12:30:45");
}

#[test]
fn c_yml_07_all_documents_count() {
    let decoded = decode_case("C-YML-07/multi.yaml");
    assert!(decoded.warnings.is_empty() && decoded.errors.is_empty());
    let found: Vec<(&str, &str, u32, u32)> = decoded
        .objects
        .iter()
        .map(|p| (p.object.kind(), p.object.metadata().name.as_str(), p.document, p.line))
        .collect();
    assert_eq!(
        found,
        [("ConfigMap", "shared-settings", 1, 1), ("Pod", "multi-a", 2, 8), ("Pod", "multi-b", 3, 18)]
    );
}

#[test]
fn c_yml_08_empty_documents_are_no_error() {
    assert_eq!(clean(&decode_case("C-YML-08/empties.yaml")).metadata.name, "empties");
    for name in ["C-YML-08/only-comments.yaml", "C-YML-08/zero.yaml"] {
        assert_eq!(decode_case(name), Decoded::default(), "{name}");
    }
}

#[test]
fn c_yml_09_other_kinds_get_one_clear_line() {
    for (name, kind) in [("daemonset", "DaemonSet"), ("deployment", "Deployment")] {
        let decoded = decode_case(&format!("C-YML-09/{name}.yaml"));
        let line = format!(
            "{name}.yaml:2:7: kind: kind {kind} of group apps is not a Pod, ConfigMap or Secret and is left out"
        );
        assert_eq!(lines(&decoded.errors), [line]);
        assert!(decoded.warnings.is_empty());
    }
    assert_eq!(clean(&decode_case("C-YML-09/healthy.yaml")).metadata.name, "healthy-neighbour");
    // beside a pod it is a warning
    let text = [case("C-YML-09/deployment.yaml"), b"---\n".to_vec(), case("C-YML-09/healthy.yaml")].concat();
    let decoded = decode_file(&text, "both.yaml");
    assert_eq!((pods(&decoded).len(), decoded.warnings.len()), (1, 1));
}

#[test]
fn c_yml_10_misplaced_field_says_where_it_belongs() {
    let decoded = decode_case("C-YML-10/misplaced.yaml");
    assert_eq!(pods(&decoded).len(), 1);
    assert_eq!(
        lines(&decoded.warnings),
        [
            "misplaced.yaml:5:3: metadata.restartPolicy: unknown field 'restartPolicy' in ObjectMeta (this field exists at spec.restartPolicy)"
        ]
    );
}

#[test]
fn c_yml_11_small_and_odd_quantities_are_read_exactly() {
    let decoded = decode_case("C-YML-11/mem-milli-legal.yaml");
    let resources = &clean(&decoded).spec.containers[0].resources;
    assert_eq!(resources.limits["memory"], "128974848".parse().unwrap());
    assert_eq!(resources.requests["memory"], "15000000".parse().unwrap());
    assert_eq!(resources.requests["cpu"], "100m".parse().unwrap());
}

#[test]
fn c_yml_13_binary_and_oversized_texts_are_refused_in_one_line() {
    let decoded = decode_case("C-YML-13/blob.yaml");
    assert_eq!(lines(&decoded.errors), ["blob.yaml:1:1: not a text file: control byte 0x00"]);
    let huge = vec![b'#'; usize::try_from(MAX_FILE).unwrap() + 1];
    assert_eq!(
        lines(&decode_file(&huge, "huge.yaml").errors),
        ["huge.yaml: 10485761 bytes are more than the 10485760 a manifest may have"]
    );
    let decoded = decode_case("C-YML-13/big-note.yaml");
    assert!(clean(&decoded).metadata.annotations["example.test/blob"].len() > 90_000);
    assert_eq!(
        lines(&decode_file(b"a: b\nc: \xff\n", "l.yaml").errors),
        ["l.yaml:2:4: not UTF-8 text: byte 0xff (save the file as UTF-8)"]
    );
}

#[test]
fn json_is_read_strictly_with_positions() {
    let text = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\ud83d\ude00"},
 "spec": {"containers": [{"name": 1}]}}"#;
    assert_eq!(
        lines(&decode_file(text.as_bytes(), "f.json").errors),
        ["f.json:2:35: spec.containers[0].name: expected a text, found the number '1' (quote it: \"1\")"]
    );
    let decoded = decode_file(b"{apiVersion: v1}", "f.yaml");
    assert!(decoded.errors[0].hint.contains("JSON"), "{:?}", decoded.errors);
}

#[test]
fn lists_give_their_items() {
    let text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- kind: Pod\n  apiVersion: v1\n  metadata: {name: b}\n  spec: {x: 1}\n";
    let decoded = decode_file(text.as_bytes(), "l");
    assert_eq!(pods(&decoded).len(), 2);
    assert_eq!(lines(&decoded.warnings), ["l:8:10: items[1].spec.x: unknown field 'x' in PodSpec"]);
    let text = text.replace("PodList", "List");
    let decoded = decode_file(text.as_bytes(), "l");
    assert!(
        decoded.errors[0].to_string().starts_with("l:4:3: items[0]: apiVersion and kind is missing"),
        "{:?}",
        decoded.errors
    );
    assert!(decoded.objects.is_empty());
}

#[test]
fn envelope_faults_are_named() {
    for (text, message) in [
        ("kind: Pod\n", "f:1:1: apiVersion is missing"),
        ("apiVersion: v1\n", "f:1:1: kind is missing"),
        ("just text\n", "f:1:1: expected a mapping with apiVersion and kind"),
        (
            "apiVersion: apps/v1\nkind: Pod\n",
            "f:1:13: apiVersion: kind Pod exists in apiVersion v1, not in 'apps/v1'",
        ),
        (
            "apiVersion: v1\nkind: Pdo\n",
            "f:2:7: kind: kind Pdo of group core is not a Pod, ConfigMap or Secret and is left out (did you mean 'Pod'?)",
        ),
    ] {
        let decoded = decode_file(text.as_bytes(), "f");
        assert!(decoded.errors[0].to_string().starts_with(message), "{:?}", lines(&decoded.errors));
    }
}

#[test]
fn judge_gets_places() {
    let text = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: x\n";
    let decoded = decode_judged(text.as_bytes(), "f", &mut |object| {
        assert_eq!(object.metadata().name, "a");
        vec![Complaint { path: "spec.containers[0].image".into(), message: "no".into(), hint: String::new() }]
    });
    assert_eq!(lines(&decoded.errors), ["f:8:5: spec.containers[0].image: no"]);
}

#[test]
fn secret_values_never_show() {
    let text =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: 4711}\ndata: {b: '!hunter2'}\n";
    let shown = lines(&decode_file(text.as_bytes(), "s").errors).join("\n");
    assert!(shown.contains("stringData.a") && shown.contains("data.b"), "{shown}");
    assert!(!shown.contains("4711") && !shown.contains("hunter2"), "{shown}");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        decode_file(&bytes, "f");
    }

    #[test]
    fn any_change_of_a_manifest_is_read_or_refused(at in 0usize..700, cut in 0usize..40, put in "[ -~\n\t]{0,6}") {
        let mut text = String::from_utf8(case("C-YML-05/anchors.yaml")).unwrap();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &put);
        let start = std::time::Instant::now();
        decode_file(text.as_bytes(), "f");
        proptest::prop_assert!(start.elapsed() < std::time::Duration::from_secs(1));
    }
}
