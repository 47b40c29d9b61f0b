//! The rules that are ours, and the words of messages. The API server's rules are in the vectors.
use super::*;
use alloc::string::{String, ToString};

fn faults(spec: &str) -> Vec<String> {
    let text = alloc::format!(r#"{{"metadata":{{"name":"p","namespace":"default"}},"spec":{{{spec}}}}}"#);
    let mut object: Pod = serde_json::from_str(&text).unwrap();
    crate::defaults::pod(&mut object);
    pod(&object).iter().map(ToString::to_string).collect()
}

#[test]
fn memory_under_one_byte_is_not_what_was_meant() {
    let spec = r#""containers":[{"name":"c","image":"i","resources":{"limits":{"memory":"400m"}}}]"#;
    let faults = faults(spec);
    assert_eq!(faults.len(), 1, "{faults:?}");
    let text = &faults[0];
    assert!(
        text.starts_with("spec.containers[0].resources.limits[memory]: Invalid value: \"400m\""),
        "{text}"
    );
    assert!(text.contains("did you mean 400M or 400Mi"), "{text}");
}

#[test]
fn memory_in_thousandths_that_is_more_than_a_byte_is_legal() {
    let spec = r#""containers":[{"name":"c","image":"i","resources":{"limits":{"memory":"128974848000m"}}}]"#;
    assert_eq!(faults(spec), Vec::<String>::new());
}

#[test]
fn one_host_port_twice_names_both_containers() {
    let port = r#""ports":[{"containerPort":80,"hostPort":8080}]"#;
    let regular = alloc::format!(
        r#""containers":[{{"name":"a","image":"i",{port}}},{{"name":"b","image":"i",{port}}}]"#
    );
    let sidecar = alloc::format!(
        r#""containers":[{{"name":"a","image":"i",{port}}}],"initContainers":[{{"name":"b","image":"i","restartPolicy":"Always",{port}}}]"#
    );
    let ending = alloc::format!(
        r#""containers":[{{"name":"a","image":"i",{port}}}],"initContainers":[{{"name":"b","image":"i",{port}}}]"#
    );
    for spec in [regular, sidecar] {
        let faults = faults(&spec);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("'a' and 'b' ask for the same host port"), "{faults:?}");
    }
    assert_eq!(faults(&ending), Vec::<String>::new());
}

#[test]
fn messages_have_the_words_of_the_api_server() {
    let faults =
        faults(r#""restartPolicy":"Sometimes","containers":[{"name":"","image":"i"}],"hostname":"A""#);
    assert_eq!(faults[0], "spec.containers[0].name: Required value");
    assert!(
        faults[1].starts_with(
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\""
        )
    );
    assert!(faults[2].starts_with("spec.hostname: Invalid value: \"A\": a lowercase RFC 1123 label"));
}

#[test]
fn a_long_value_is_cut_and_control_characters_are_escaped() {
    let long = alloc::format!("\\u0007{}", "x".repeat(5000));
    let faults = faults(&alloc::format!(r#""containers":[{{"name":"{long}","image":"i"}}]"#));
    assert!(
        faults[0].len() < 500 && faults[0].contains("\\u{7}x") && faults[0].contains("\"..."),
        "{}",
        faults[0]
    );
}

#[test]
fn config_maps_and_secrets_are_judged_by_their_keys() {
    let map: ConfigMap = serde_json::from_str(
        r#"{"metadata":{"name":"c","namespace":"default"},"data":{"a/b":"x","k":"v"},"binaryData":{"k":"Zg=="}}"#,
    )
    .unwrap();
    let faults: Vec<String> = config_map(&map).iter().map(ToString::to_string).collect();
    assert!(faults[0].starts_with("data[a/b]: Invalid value"), "{faults:?}");
    assert!(faults[1].starts_with("data[k]: Invalid value"), "{faults:?}");
    let object: Secret = serde_json::from_str(r#"{"metadata":{"name":"S","namespace":"d"}}"#).unwrap();
    assert_eq!(secret(&object).len(), 1);
}

/// Path and kind of the only fault.
fn fault(spec: &str) -> (String, &'static str) {
    let text = alloc::format!(r#"{{"metadata":{{"name":"p","namespace":"default"}},"spec":{{{spec}}}}}"#);
    let mut object: Pod = serde_json::from_str(&text).unwrap();
    crate::defaults::pod(&mut object);
    let errors = pod(&object);
    assert_eq!(errors.len(), 1, "{spec}: {errors:?}");
    (errors[0].field.clone(), errors[0].kind.name())
}

#[test]
fn faults_stand_where_the_api_server_puts_them() {
    let with = |extra: &str| alloc::format!(r#""containers":[{{"name":"c","image":"i"}}],{extra}"#);
    let container = |extra: &str| alloc::format!(r#""containers":[{{"name":"c","image":"i",{extra}}}]"#);
    for (spec, path, kind) in [
        (with(r#""os":{"name":"plan9"}"#), "spec.os", "NotSupported"),
        (with(r#""os":{"name":""}"#), "spec.os.name", "Required"),
        (with(r#""os":{"name":"windows"},"hostPID":true"#), "spec.hostPID", "Forbidden"),
        (
            with(r#""os":{"name":"windows"},"securityContext":{"runAsUser":1}"#),
            "spec.securityContext.runAsUser",
            "Forbidden",
        ),
        (with(r#""overhead":{"foo":"1"}"#), "spec.overhead.limits[foo]", "Invalid"),
        (
            with(r#""volumes":[{"name":"v","iscsi":{"targetPortal":"t","iqn":"iqn.2001-04.com","lun":0}}]"#),
            "spec.volumes[0].iscsi.iqn",
            "Invalid",
        ),
        (
            with(
                r#""volumes":[{"name":"v","projected":{"sources":[{"configMap":{"name":"a","items":[{"key":"k","path":"x"}]}},
                {"secret":{"name":"b","items":[{"key":"k","path":"x"}]}}]}}]"#,
            ),
            "spec.volumes[0].projected",
            "Invalid",
        ),
        (
            with(
                r#""topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"},
                {"maxSkew":2,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}]"#,
            ),
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
            "Duplicate",
        ),
        (
            container(r#""resources":{"claims":[{"name":"x"}]}"#),
            "spec.containers[0].resources.claims[0]",
            "NotFound",
        ),
        (
            container(r#""resources":{"limits":{"hugepages-2Mi":"2Mi"}}"#),
            "spec.containers[0].resources",
            "Forbidden",
        ),
        (
            container(r#""volumeDevices":[{"name":"d","devicePath":"/dev/x"}]"#),
            "spec.containers[0].volumeDevices[0].name",
            "NotFound",
        ),
    ] {
        let found = fault(&spec);
        assert_eq!((found.0.as_str(), found.1), (path, kind), "{spec}");
    }
}
