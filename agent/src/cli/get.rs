//! `podkeep get pods|events|sources`.

use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::Value;

use super::table::{Table, age};
use super::{Failure, out, socket, text, yaml};
use crate::api::client::{Call, ask};
use crate::api::{ApiReply, ApiRequest, EventRecord, PodFilter, SourceStatus};
use crate::clock;

pub(super) fn filter(matches: &ArgMatches) -> PodFilter {
    PodFilter {
        namespace: text(matches, "namespace").map(str::to_owned),
        name: text(matches, "name").map(str::to_owned),
    }
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let output = text(matches, "output");
    match text(matches, "what").unwrap_or_default() {
        "events" | "ev" => {
            let reply = ask(&socket(matches), &ApiRequest::Events { filter: filter(matches) })?;
            if let ApiReply::Events { events } = reply {
                out::print(&event_table(&events));
            }
        }
        "sources" => {
            if let ApiReply::Sources { sources } = ask(&socket(matches), &ApiRequest::Sources)? {
                out::print(&source_table(&sources));
            }
        }
        _ => return pods(matches, output),
    }
    Ok(ExitCode::SUCCESS)
}

fn pods(matches: &ArgMatches, output: Option<&str>) -> Result<ExitCode, Failure> {
    let watch = matches.get_flag("watch");
    let filter = filter(matches);
    let named = filter.name.clone();
    let request = ApiRequest::Pods { filter, watch };
    let mut call = Call::start(&socket(matches), &request, &[])?;
    let mut first = true;
    while let Some((ApiReply::Pods { pods }, _)) = call.next_reply()? {
        if pods.is_empty() && first && !watch {
            if let Some(name) = named {
                return Err(format!("pod '{name}' not found").into());
            }
            if output.is_none_or(|form| form == "wide") {
                out::error("No resources found");
                return Ok(ExitCode::SUCCESS);
            }
        }
        out::print(&render(&pods, output, named.is_some(), first));
        first = false;
        if !watch {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render(pods: &[Value], output: Option<&str>, single: bool, heads: bool) -> String {
    let document = || match pods {
        [one] if single => one.clone(),
        many => serde_json::json!({"apiVersion": "v1", "kind": "List", "items": many, "metadata": {}}),
    };
    match output {
        Some("json") => serde_json::to_string_pretty(&document()).map(|text| text + "\n").unwrap_or_default(),
        Some("yaml") => yaml::text(&document()),
        form => {
            let text = pod_table(pods, form == Some("wide"));
            if heads {
                text
            } else {
                text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default()
            }
        }
    }
}

/// Text at a JSON pointer, empty where there is none.
pub(super) fn at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Elements at a JSON pointer.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// kubectl's STATUS column: the most telling reason, else the phase.
fn status_word(pod: &Value) -> String {
    let mut word = at(pod, "/status/reason").to_owned();
    if word.is_empty() {
        word = at(pod, "/status/phase").to_owned();
    }
    let inits = list(pod, "/status/initContainerStatuses");
    let sidecar = |name: &str| {
        list(pod, "/spec/initContainers")
            .iter()
            .any(|spec| at(spec, "/name") == name && at(spec, "/restartPolicy") == "Always")
    };
    let mut initializing = false;
    for (nth, status) in inits.iter().enumerate() {
        let code = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
        let started = status.pointer("/started").and_then(Value::as_bool) == Some(true);
        if code == Some(0) || (started && sidecar(at(status, "/name"))) {
            continue;
        }
        let reason = [at(status, "/state/terminated/reason"), at(status, "/state/waiting/reason")]
            .into_iter()
            .find(|reason| !reason.is_empty() && *reason != "PodInitializing");
        word = match (reason, code) {
            (Some(reason), _) => format!("Init:{reason}"),
            (None, Some(code)) => format!("Init:ExitCode:{code}"),
            (None, None) => format!("Init:{nth}/{}", inits.len()),
        };
        initializing = true;
        break;
    }
    if !initializing {
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            let reason = [at(status, "/state/waiting/reason"), at(status, "/state/terminated/reason")]
                .into_iter()
                .find(|reason| !reason.is_empty());
            if let Some(reason) = reason {
                word = reason.to_owned();
            }
        }
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() { "Terminating".to_owned() } else { word }
}

/// The pods as kubectl shows them.
pub(super) fn pod_table(pods: &[Value], wide: bool) -> String {
    let namespaces = pods.iter().any(|pod| at(pod, "/metadata/namespace") != "default");
    let mut heads = vec!["NAME", "READY", "STATUS", "RESTARTS", "AGE"];
    if namespaces {
        heads.insert(0, "NAMESPACE");
    }
    if wide {
        heads.extend(["IP", "NODE", "QOS", "SOURCE"]);
    }
    let mut table = Table::new(&heads);
    let now = clock::now().wall / 1_000_000_000;
    for pod in pods {
        let statuses = list(pod, "/status/containerStatuses");
        let ready =
            statuses.iter().filter(|s| s.pointer("/ready").and_then(Value::as_bool) == Some(true)).count();
        let restarts: i64 = statuses
            .iter()
            .chain(list(pod, "/status/initContainerStatuses"))
            .filter_map(|status| status.pointer("/restartCount").and_then(Value::as_i64))
            .sum();
        let total = list(pod, "/spec/containers").len();
        let mut cells = vec![
            at(pod, "/metadata/name").to_owned(),
            format!("{ready}/{total}"),
            status_word(pod),
            restarts.to_string(),
            clock::parse_rfc3339(at(pod, "/status/startTime"))
                .map_or_else(|| "<unknown>".into(), |start| age(now - start)),
        ];
        if namespaces {
            cells.insert(0, at(pod, "/metadata/namespace").to_owned());
        }
        if wide {
            let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
            cells.push(or_none(at(pod, "/status/podIP")));
            cells.push(or_none(at(pod, "/spec/nodeName")));
            cells.push(or_none(at(pod, "/status/qosClass")));
            cells.push(or_none(at(pod, "/metadata/annotations/podkeep.dev~1source")));
        }
        table.row(cells);
    }
    table.text()
}

/// Events, oldest first.
pub(super) fn event_table(events: &[EventRecord]) -> String {
    let mut table = Table::new(&["LAST SEEN", "TYPE", "REASON", "COUNT", "OBJECT", "MESSAGE"]);
    let now = clock::now().wall;
    for event in events {
        let object = match &event.container {
            Some(container) => format!("pod/{} [{container}]", event.pod),
            None => format!("pod/{}", event.pod),
        };
        table.row(vec![
            age(now.saturating_sub(event.last) / 1_000_000_000),
            event.kind.clone(),
            event.reason.clone(),
            event.count.to_string(),
            object,
            event.message.replace('\n', " "),
        ]);
    }
    if table.is_empty() { "No events\n".to_owned() } else { table.text() }
}

fn source_table(sources: &[SourceStatus]) -> String {
    let mut table = Table::new(&["SOURCE", "PODS", "STATE"]);
    for source in sources {
        let state = if !source.errors.is_empty() {
            "error"
        } else if source.warnings.is_empty() {
            "ok"
        } else {
            "warning"
        };
        table.row(vec![source.path.clone(), source.pods.join(","), state.to_owned()]);
    }
    let mut text = table.text();
    for source in sources {
        for line in &source.errors {
            text.push_str(&format!("error: {line}\n"));
        }
        for line in &source.warnings {
            text.push_str(&format!("warning: {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_word_prefers_the_most_telling_reason() {
        let crash = json!({"status": {"phase": "Running", "containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}, {"state": {"running": {}}}]}});
        assert_eq!(status_word(&crash), "CrashLoopBackOff");
        let init = json!({"status": {"phase": "Pending", "initContainerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "b", "state": {"running": {}}}]}});
        assert_eq!(status_word(&init), "Init:1/2");
        let ending = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}});
        assert_eq!(status_word(&ending), "Terminating");
    }
}
