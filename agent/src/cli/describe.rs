//! `podkeep describe pod`.

use std::fmt::Write;
use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::Value;

use super::get::{at, event_table, filter, list};
use super::{Failure, out, socket};
use crate::api::client::ask;
use crate::api::{ApiReply, ApiRequest, EventRecord};

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let filter = filter(matches);
    let socket = socket(matches);
    let ApiReply::Pods { pods } = ask(&socket, &ApiRequest::Pods { filter: filter.clone(), watch: false })?
    else {
        return Err("the agent gave an answer to another question".into());
    };
    let events = match ask(&socket, &ApiRequest::Events { filter: filter.clone() })? {
        ApiReply::Events { events } => events,
        _ => Vec::new(),
    };
    if pods.is_empty() {
        return match filter.name {
            Some(name) => Err(format!("pod '{name}' not found").into()),
            None => {
                out::error("No resources found");
                Ok(ExitCode::SUCCESS)
            }
        };
    }
    let texts: Vec<String> = pods.iter().map(|pod| pod_text(pod, &events)).collect();
    out::print(&texts.join("\n\n"));
    Ok(ExitCode::SUCCESS)
}

/// A label column of fixed width, as kubectl's.
fn field(text: &mut String, depth: usize, name: &str, value: &str) {
    let pad = "  ".repeat(depth);
    // writing to a String cannot fail
    writeln!(text, "{pad}{:<width$}{value}", format!("{name}:"), width = 20 - depth.min(8)).ok();
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "<none>" } else { value }
}

fn pod_text(pod: &Value, events: &[EventRecord]) -> String {
    let mut text = String::new();
    let (name, namespace) = (at(pod, "/metadata/name"), at(pod, "/metadata/namespace"));
    field(&mut text, 0, "Name", name);
    field(&mut text, 0, "Namespace", namespace);
    field(&mut text, 0, "UID", at(pod, "/metadata/uid"));
    field(&mut text, 0, "Source", or_none(at(pod, "/metadata/annotations/podkeep.dev~1source")));
    field(&mut text, 0, "Node", at(pod, "/spec/nodeName"));
    field(&mut text, 0, "Start Time", or_none(at(pod, "/status/startTime")));
    map(&mut text, "Labels", pod.pointer("/metadata/labels"));
    map(&mut text, "Annotations", pod.pointer("/metadata/annotations"));
    field(&mut text, 0, "Status", at(pod, "/status/phase"));
    for (label, pointer) in
        [("Reason", "/status/reason"), ("Message", "/status/message"), ("IP", "/status/podIP")]
    {
        if !at(pod, pointer).is_empty() {
            field(&mut text, 0, label, at(pod, pointer));
        }
    }
    field(&mut text, 0, "QoS Class", or_none(at(pod, "/status/qosClass")));
    for (title, specs, statuses) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
    ] {
        let specs = list(pod, specs);
        if !specs.is_empty() {
            text.push_str(title);
            text.push_str(":\n");
            for spec in specs {
                let status =
                    list(pod, statuses).iter().find(|status| at(status, "/name") == at(spec, "/name"));
                container(&mut text, spec, status.unwrap_or(&Value::Null));
            }
        }
    }
    text.push_str("Conditions:\n");
    for condition in list(pod, "/status/conditions") {
        let reason = [at(condition, "/reason"), at(condition, "/message")].join(" ");
        let line = format!("{} {}", at(condition, "/status"), reason.trim());
        field(&mut text, 1, at(condition, "/type"), line.trim());
    }
    let own: Vec<EventRecord> =
        events.iter().filter(|event| event.pod == name && event.namespace == namespace).cloned().collect();
    text.push_str("Events:\n");
    for line in event_table(&own).lines() {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn map(text: &mut String, name: &str, value: Option<&Value>) {
    let entries = value.and_then(Value::as_object);
    match entries {
        Some(entries) if !entries.is_empty() => {
            for (nth, (key, value)) in entries.iter().enumerate() {
                // a long note is the owner's business, not a reader's
                let value: String = value.as_str().unwrap_or_default().chars().take(140).collect();
                field(text, 0, if nth == 0 { name } else { "" }, &format!("{key}={value}"));
            }
        }
        _ => field(text, 0, name, "<none>"),
    }
}

fn state(text: &mut String, label: &str, value: Option<&Value>) {
    let Some(state) = value else { return };
    if let Some(running) = state.get("running") {
        field(text, 2, label, "Running");
        field(text, 3, "Started", at(running, "/startedAt"));
    } else if let Some(ended) = state.get("terminated") {
        field(text, 2, label, "Terminated");
        field(text, 3, "Reason", at(ended, "/reason"));
        if !at(ended, "/message").is_empty() {
            field(text, 3, "Message", at(ended, "/message"));
        }
        field(text, 3, "Exit Code", &ended.get("exitCode").map(Value::to_string).unwrap_or_default());
        if let Some(signal) = ended.get("signal") {
            field(text, 3, "Signal", &signal.to_string());
        }
        field(text, 3, "Started", at(ended, "/startedAt"));
        field(text, 3, "Finished", at(ended, "/finishedAt"));
    } else if let Some(waiting) = state.get("waiting") {
        field(text, 2, label, "Waiting");
        field(text, 3, "Reason", at(waiting, "/reason"));
        if !at(waiting, "/message").is_empty() {
            field(text, 3, "Message", at(waiting, "/message"));
        }
    }
}

fn container(text: &mut String, spec: &Value, status: &Value) {
    text.push_str(&format!("  {}:\n", at(spec, "/name")));
    field(text, 2, "Container ID", or_none(at(status, "/containerID")));
    field(text, 2, "Image", at(spec, "/image"));
    field(text, 2, "Image ID", or_none(at(status, "/imageID")));
    for (label, pointer) in [("Command", "/command"), ("Args", "/args")] {
        let words: Vec<&str> = list(spec, pointer).iter().filter_map(Value::as_str).collect();
        if !words.is_empty() {
            field(text, 2, label, &words.join(" "));
        }
    }
    state(text, "State", status.pointer("/state"));
    state(
        text,
        "Last State",
        status.pointer("/lastState").filter(|last| last.as_object().is_some_and(|o| !o.is_empty())),
    );
    field(
        text,
        2,
        "Ready",
        if status.pointer("/ready").and_then(Value::as_bool) == Some(true) { "True" } else { "False" },
    );
    field(
        text,
        2,
        "Restart Count",
        &status.pointer("/restartCount").map(Value::to_string).unwrap_or_default(),
    );
    for (label, pointer) in [("Limits", "/resources/limits"), ("Requests", "/resources/requests")] {
        if let Some(amounts) = spec.pointer(pointer).and_then(Value::as_object) {
            let words: Vec<String> = amounts
                .iter()
                .map(|(name, amount)| format!("{name}={}", amount.as_str().unwrap_or_default()))
                .collect();
            field(text, 2, label, &words.join(", "));
        }
    }
    let mounts: Vec<String> = list(spec, "/volumeMounts")
        .iter()
        .map(|mount| {
            let mode =
                if mount.pointer("/readOnly").and_then(Value::as_bool) == Some(true) { "ro" } else { "rw" };
            format!("{} from {} ({mode})", at(mount, "/mountPath"), at(mount, "/name"))
        })
        .collect();
    for (nth, mount) in mounts.iter().enumerate() {
        field(text, 2, if nth == 0 { "Mounts" } else { "" }, mount);
    }
}
