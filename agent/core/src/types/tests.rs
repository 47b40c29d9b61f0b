//! The rules that hold for every type: identity, null, kinds, unknown and repeated keys.
use super::*;
use alloc::string::{String, ToString};

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","creationTimestamp":"2026-01-02T03:04:05Z",
  "labels":{"b":"2","a":"1"},"managedFields":[{"manager":"kubectl","fieldsV1":{"f:metadata":{"f:labels":{".":{}}}}}]},
  "spec":{"hostNetwork":true,"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"c","defaultMode":420}}],
  "containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":0.5,"memory":"64Mi"}},
  "livenessProbe":{"httpGet":{"port":"http"}},"readinessProbe":{"tcpSocket":{"port":80}},
  "env":[{"name":"A"},{"name":"B","value":null}],"securityContext":{"runAsUser":0,"privileged":false}}],
  "overhead":{"cpu":"10m"},"terminationGracePeriodSeconds":0},
  "status":{"containerStatuses":[{"name":"c","state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}}}]}}"#;

fn pod(text: &str) -> Result<Pod, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

#[test]
fn read_write_read_is_the_identity() {
    let first = pod(POD).unwrap();
    let text = serde_json::to_string(&first).unwrap();
    let again = pod(&text).unwrap();
    assert_eq!(first, again);
    assert_eq!(text, serde_json::to_string(&again).unwrap());
}

#[test]
fn written_like_the_api_server_writes() {
    let text = serde_json::to_string(&pod(POD).unwrap()).unwrap();
    for part in [
        r#""resources":{"limits":{"cpu":"500m","memory":"64Mi"}}"#,
        r#"{"name":"v","emptyDir":{}}"#,
        r#""terminationGracePeriodSeconds":0"#,
        r#""securityContext":{"privileged":false,"runAsUser":0}"#,
        r#""livenessProbe":{"httpGet":{"port":"http"}}"#,
        r#""readinessProbe":{"tcpSocket":{"port":80}}"#,
        r#""env":[{"name":"A"},{"name":"B"}]"#,
        r#""lastState":{},"ready":false,"restartCount":0,"image":"","imageID":"""#,
        r#""labels":{"a":"1","b":"2"}"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("null") && !text.contains("initContainers"), "{text}");
}

#[test]
fn null_is_absent() {
    let text = r#"{"metadata":null,"spec":{"containers":[{"name":"c","command":null,"securityContext":null,
        "resources":{"limits":null},"livenessProbe":null,"tty":null}],"volumes":null,"restartPolicy":null}}"#;
    let with_nulls = pod(text).unwrap();
    assert_eq!(with_nulls, pod(r#"{"spec":{"containers":[{"name":"c"}]}}"#).unwrap());
}

#[test]
fn kinds_are_not_mixed() {
    for (spec, part) in [
        (r#"{"priority":"5"}"#, r#"string "5", expected a whole number"#),
        (r#"{"priority":1.0}"#, "expected a whole number"),
        (r#"{"priority":4000000000}"#, "expected a number of 32 bits"),
        (r#"{"hostname":5}"#, "integer `5`, expected a text"),
        (r#"{"hostname":true}"#, "boolean `true`, expected a text"),
        (r#"{"hostNetwork":"true"}"#, r#"string "true", expected true or false"#),
        (r#"{"containers":{}}"#, "expected a list"),
        (r#"{"securityContext":[]}"#, "expected a map with the fields of PodSecurityContext"),
        (r#"{"nodeSelector":{"a":1}}"#, "expected a text"),
        (r#"{"overhead":{"cpu":true}}"#, "expected a quantity"),
        (r#"{"overhead":{"memory":"64MB"}}"#, "'64MB' is not a quantity"),
        (r#"{"hostname":"a","hostname":"b"}"#, "duplicate field `hostname`"),
        (r#"{"nodeSelector":{"a":"1","a":"2"}}"#, "the key 'a' is given twice"),
    ] {
        let error = pod(&alloc::format!(r#"{{"spec":{spec}}}"#)).unwrap_err();
        assert!(error.contains(part), "{spec}: {error}");
    }
}

#[test]
fn unknown_fields_are_passed_over() {
    let text = r#"{"spec":{"containers":[{"name":"c","imagee":{"x":[1,{"y":null}]}}],"foo":1}}"#;
    assert_eq!(pod(text).unwrap(), pod(r#"{"spec":{"containers":[{"name":"c"}]}}"#).unwrap());
}

#[test]
fn no_struct_names_a_field_twice_and_every_position_answers() {
    fn check(object: &dyn Object, depth: usize) {
        let shape = object.shape();
        assert_eq!(shape.fields.len(), shape.always.len());
        for (index, name) in shape.fields.iter().enumerate() {
            assert_eq!(shape.fields.iter().filter(|f| *f == name).count(), 1, "{}.{name}", shape.name);
            assert!(object.at(index).is_some(), "{}.{name}", shape.name);
        }
        assert!(object.at(shape.fields.len()).is_none() && shape.fields.len() <= 256 && depth < 32);
    }
    fn walk(field: &mut dyn object::Field, depth: usize) {
        match field.edit() {
            object::Edit::Opt(o) => walk(o.fill(), depth),
            object::Edit::List(l) => walk(l.push().unwrap(), depth),
            object::Edit::Object(o) => {
                check(o, depth);
                for index in 0..o.shape().fields.len() {
                    walk(o.at_mut(index).unwrap(), depth + 1);
                }
            }
            _ => {}
        }
    }
    let mut full = Pod::default();
    walk(&mut full, 0);
    assert!(full.spec.volumes[0].scale_io.as_ref().is_some_and(|s| s.secret_ref.is_some()));
    walk(&mut ConfigMap::default(), 0);
    walk(&mut Secret::default(), 0);
    // and the full pod survives a round trip
    let text = serde_json::to_string(&full).unwrap();
    assert_eq!(serde_json::to_string(&pod(&text).unwrap()).unwrap(), text);
}
