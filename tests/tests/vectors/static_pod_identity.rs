//! `static_pod_identity.json`: from the text of a manifest to the pod of a node, or why not.

use podkeep::source::decode::decode_file;
use podkeep_core::desired::Object;
use podkeep_core::identity::{self, IdentityError, Served, Source};
use podkeep_core::types::{Pod, Toleration};
use serde_json::Value;

use super::verdict::{Rule, Verdict, equal, text, unknown};

static SERVED: Rule = Rule {
    name: "config-maps-and-secrets-are-served",
    reason: "ConfigMaps and Secrets come from manifests of the node, so pods may refer to them",
};
static LISTS: Rule = Rule {
    name: "lists-and-documents-in-a-file",
    reason: "a file may hold a List and several documents; nothing of it is dropped silently",
};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    if input["a"].is_object() && input["b"].is_object() {
        return uids(input, expected).into();
    }
    match (input["source"].as_str(), input["as"].as_str()) {
        (Some("file" | "http"), None) => single(input, expected),
        (Some("http"), Some("list")) => list(input, expected).into(),
        _ => unknown(input),
    }
}

fn source(input: &Value) -> Source<'_> {
    match text(input, "source") {
        "http" => Source::Http(text(input, "url")),
        _ => Source::File(text(input, "path")),
    }
}

/// The pods a text holds, and whether it was read at all. ConfigMaps and Secrets are no pods.
fn pods(manifest: &Value) -> Option<Vec<Pod>> {
    let text = manifest.as_str().map_or_else(|| manifest.to_string(), str::to_owned);
    let decoded = decode_file(text.as_bytes(), "manifest");
    let pods = decoded.objects.into_iter().filter_map(|placed| match placed.object {
        Object::Pod(pod) => Some(*pod),
        _ => None,
    });
    let pods: Vec<Pod> = pods.collect();
    (decoded.errors.is_empty() && !pods.is_empty()).then_some(pods)
}

fn made(pod: Pod, input: &Value, served: Served) -> Result<Pod, IdentityError> {
    identity::static_pod(pod, text(input, "nodeName"), source(input), served)
}

fn is_list(manifest: &Value) -> bool {
    let parsed = manifest.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    parsed.is_some_and(|value| value["kind"] == "List")
}

fn single(input: &Value, expected: &Value) -> Verdict {
    let Some(accepted) = expected["accepted"].as_bool() else { return unknown(expected) };
    let found = pods(&input["manifest"]);
    if expected["decoded"] == false {
        return match found {
            None => Verdict::Pass,
            // our answer: the pods of the list
            Some(pods) if is_list(&input["manifest"]) && input["source"] == "file" => {
                match pods
                    .into_iter()
                    .map(|pod| made(pod, input, Served::LOCAL))
                    .collect::<Result<Vec<_>, _>>()
                {
                    Ok(pods) if pods.iter().all(|p| p.metadata.uid.len() == 32) => Verdict::Differs(&LISTS),
                    other => Verdict::Fail(format!("the list was not taken: {other:?}")),
                }
            }
            Some(pods) => Verdict::Fail(format!("decoded {} pods", pods.len())),
        };
    }
    let Some(mut pods) = found else { return Verdict::Fail("not decoded".into()) };
    // the kubelet takes the first document alone
    let several = pods.len() > 1;
    let pod = pods.remove(0);
    let kubelet = made(pod.clone(), input, Served::NONE);
    if accepted {
        return match kubelet.map_err(|error| error.to_string()).and_then(|pod| identity_of(&pod, expected)) {
            Ok(()) if several => Verdict::Differs(&LISTS),
            right => right.into(),
        };
    }
    refused(pod, &kubelet, input, expected)
}

fn refused(pod: Pod, kubelet: &Result<Pod, IdentityError>, input: &Value, expected: &Value) -> Verdict {
    let wanted = expected["rejectedReference"].as_str();
    let right = match (kubelet, wanted) {
        (Err(IdentityError::Reference { resource }), Some(wanted)) => equal("reference", *resource, wanted),
        (Err(_), None) => Ok(()),
        (found, _) => Err(format!("found {:?}", found.as_ref().map(|p| &p.metadata.name))),
    };
    if let Err(why) = right {
        return Verdict::Fail(why);
    }
    // what the kubelet refuses for a ConfigMap or Secret is taken by a node that serves them
    if !matches!(wanted, Some("configmaps" | "secrets")) {
        return Verdict::Pass;
    }
    match made(pod, input, Served::LOCAL) {
        Ok(pod) if pod.metadata.uid.len() == 32 => Verdict::Differs(&SERVED),
        other => Verdict::Fail(format!("not taken by a node that serves it: {other:?}")),
    }
}

fn identity_of(pod: &Pod, expected: &Value) -> Result<(), String> {
    for (key, found) in [
        ("name", &pod.metadata.name),
        ("namespace", &pod.metadata.namespace),
        ("nodeName", &pod.spec.node_name),
        ("phase", &pod.status.phase),
        ("uid", &pod.metadata.uid),
    ] {
        if let Some(wanted) = expected[key].as_str() {
            equal(key, found.as_str(), wanted)?;
        }
    }
    let mut annotations = pod.metadata.annotations.clone();
    let hash = annotations.remove(identity::CONFIG_HASH);
    if let Some(wanted) = expected["configHashEqualsUid"].as_bool() {
        equal("config.hash", hash.as_ref() == Some(&pod.metadata.uid), wanted)?;
    }
    if expected["annotations"].is_object() {
        equal("annotations", serde_json::to_value(&annotations).unwrap(), expected["annotations"].clone())?;
    }
    if expected["tolerations"].is_array() {
        let key = |t: &Toleration| serde_json::to_string(t).unwrap();
        let mut found: Vec<String> = pod.spec.tolerations.iter().map(key).collect();
        let spec = serde_json::json!({"spec": {"tolerations": expected["tolerations"]}});
        let wanted: Pod = super::verdict::read(&spec)?;
        let mut wanted: Vec<String> = wanted.spec.tolerations.iter().map(key).collect();
        found.sort();
        wanted.sort();
        equal("tolerations", found, wanted)?;
    }
    match expected["uidPattern"].as_str() {
        None => Ok(()),
        Some("^[0-9a-f]{32}$") => {
            let hex = pod.metadata.uid.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            equal("uid of 32 hex digits", hex && pod.metadata.uid.len() == 32, true)
        }
        Some(other) => Err(format!("the pattern {other} is not known here")),
    }
}

fn list(input: &Value, expected: &Value) -> Result<(), String> {
    let Some(accepted) = expected["accepted"].as_bool() else { return Err("no answer is expected".into()) };
    let manifest = input["manifest"].as_str().map_or_else(|| input["manifest"].to_string(), str::to_owned);
    let decoded = decode_file(manifest.as_bytes(), "answer");
    let pods = decoded.objects.into_iter().map(|placed| match placed.object {
        Object::Pod(pod) => made(*pod, input, Served::NONE).map_err(|error| error.to_string()),
        other => Err(format!("a {} in a list of pods", other.kind())),
    });
    let pods: Result<Vec<Pod>, String> = pods.collect();
    let failed = decoded.errors.first().map(ToString::to_string).or_else(|| pods.as_ref().err().cloned());
    match (failed, pods) {
        (Some(_), _) if !accepted => Ok(()),
        (Some(why), _) => Err(why),
        (None, Ok(_)) if !accepted => Err("accepted".into()),
        (None, pods) => {
            let names: Vec<Value> = pods?.into_iter().map(|p| p.metadata.name.into()).collect();
            equal("names", Value::Array(names), expected["names"].clone())
        }
    }
}

fn uids(input: &Value, expected: &Value) -> Result<(), String> {
    let uid = |side: &str| {
        let input = &input[side];
        let pod = pods(&input["manifest"]).and_then(|mut pods| pods.pop()).ok_or("not decoded")?;
        made(pod, input, Served::LOCAL).map(|pod| pod.metadata.uid).map_err(|error| error.to_string())
    };
    let wanted = expected["sameUid"].as_bool().ok_or("no relation is expected")?;
    equal("same uid", uid("a")? == uid("b")?, wanted)
}
