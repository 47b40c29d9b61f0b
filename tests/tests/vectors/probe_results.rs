//! `probe_results.json`: requests, results, thresholds, when probes run, flags of containers, grace periods.

use podkeep_core::probe::request::{self, Answer, HttpRequest, REDIRECTS_MAX, Use};
use podkeep_core::probe::{self, ATTEMPTS, Counter, ExecEnd, Kind, Outcome, Verdict as Says};
use podkeep_core::types::{Container, Pod, Probe};
use serde_json::{Value, json};

use super::verdict::{Verdict, equal, read, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    match text(input, "op") {
        "httpRequest" => http_request(input, expected).into(),
        "httpResult" => http_result(input, expected).into(),
        "execResult" => exec_result(input, expected).into(),
        "tcpResult" => {
            let accepted = matches!(text(input, "connect"), "accepted" | "reset-after-accept");
            outcome(probe::tcp(accepted), expected).into()
        }
        "grpcResult" => outcome(probe::grpc(input["status"].as_str()), expected).into(),
        "threshold" => threshold(input, expected).into(),
        "gate" => gate(input, expected).into(),
        "containerFlags" => flags(input, expected).into(),
        "defaults" => defaults(input, expected).into(),
        "stopTimeout" => stop(input, expected).into(),
        _ => unknown(&input["op"]),
    }
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Failure => "failure",
        Outcome::Error => "error",
    }
}

fn says(verdict: Says) -> &'static str {
    match verdict {
        Says::Success => "success",
        Says::Failure => "failure",
        Says::Unknown => "unknown",
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "liveness" => Ok(Kind::Liveness),
        "readiness" => Ok(Kind::Readiness),
        "startup" => Ok(Kind::Startup),
        other => Err(format!("no probe {other}")),
    }
}

fn outcome(found: Outcome, expected: &Value) -> Result<(), String> {
    equal("outcome", name(found), text(expected, "probeOutcome"))
}

fn http_request(input: &Value, expected: &Value) -> Result<(), String> {
    let probe: Probe = read(&json!({"httpGet": input["httpGet"]}))?;
    let container: Container = read(&input["container"])?;
    let action = probe.http_get.ok_or("no action")?;
    let sender = if input["use"] == "lifecycle" { Use::Lifecycle } else { Use::Probe };
    let made = request::build(&action, &container, text(input, "podIP"), sender, "<major>.<minor>");
    match (made, expected["error"] == true) {
        (Ok(found), true) => Err(format!("made {found:?}")),
        (Err(_), true) => Ok(()),
        (Err(error), false) => Err(error.to_string()),
        (Ok(found), false) => same_request(&found, expected),
    }
}

fn same_request(found: &HttpRequest, expected: &Value) -> Result<(), String> {
    equal("method", "GET", text(expected, "method"))?;
    equal("url", found.url().as_str(), text(expected, "url"))?;
    equal("host header", found.host_header.as_deref(), expected["hostHeaderOverride"].as_str())?;
    let headers: serde_json::Map<String, Value> =
        found.headers.iter().map(|(name, values)| (name.clone(), json!(values))).collect();
    equal("headers", Value::Object(headers), expected["headers"].clone())
}

/// Plays the server of the case: `/ok` answers 200, any other path repeats the first answer.
fn http_result(input: &Value, expected: &Value) -> Result<(), String> {
    let status =
        |value: &Value| value["status"].as_u64().and_then(|s| u16::try_from(s).ok()).ok_or("no status");
    let host = "10.0.0.7";
    let (mut answer, mut followed) = (status(input)?, 0);
    let mut location = input["location"].as_str();
    let (raw, found) = loop {
        // places of the cases are paths, so of the same host
        match request::judge(answer, location.map(|_| host), host, followed) {
            Answer::Follow => {
                followed += 1;
                if location == Some("/ok") {
                    (answer, location) = (200, None);
                }
            }
            Answer::Done(outcome) => break (name(outcome), outcome),
            Answer::Warning => break ("warning", Outcome::Success),
        }
        assert!(followed <= REDIRECTS_MAX);
    };
    equal("raw result", raw, text(expected, "rawResult"))?;
    outcome(found, expected)
}

fn exec_result(input: &Value, expected: &Value) -> Result<(), String> {
    let end = if input["runtimeError"].is_string() {
        ExecEnd::NotRun
    } else if input["timedOut"] == true {
        ExecEnd::TimedOut
    } else {
        let code = input["exitCode"].as_i64().and_then(|c| i32::try_from(c).ok());
        ExecEnd::Exit(code.ok_or("no exit code")?)
    };
    outcome(probe::exec(end), expected)?;
    if let Some(wanted) = expected["attemptsBeforeGivingUp"].as_u64() {
        equal("attempts", u64::from(ATTEMPTS), wanted)?;
    }
    if let Some(wanted) = expected["thresholdCountersChanged"].as_bool() {
        let mut counter = Counter::new(Kind::Liveness, &Probe::default());
        let before = counter.clone();
        counter.record(probe::exec(end));
        equal("counters changed", counter != before, wanted)?;
    }
    Ok(())
}

fn threshold(input: &Value, expected: &Value) -> Result<(), String> {
    let number = |key: &str| input[key].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(1);
    let (success_threshold, failure_threshold) = (number("successThreshold"), number("failureThreshold"));
    let probe = Probe { success_threshold, failure_threshold, ..Default::default() };
    let mut counter = Counter::new(kind(text(input, "probe"))?, &probe);
    let (mut published, mut probed) = (Vec::new(), Vec::new());
    for tick in input["ticks"].as_array().into_iter().flatten() {
        let result = match tick.as_str() {
            Some("success") => Some(Outcome::Success),
            Some("failure") => Some(Outcome::Failure),
            Some("error") => Some(Outcome::Error),
            Some("newContainer") => None,
            _ => return Err(format!("no tick {tick}")),
        };
        match result {
            Some(result) => {
                probed.push(Value::Bool(!counter.is_held()));
                counter.record(result);
            }
            None => {
                probed.push(Value::Bool(false));
                counter.new_container();
            }
        }
        published.push(Value::from(says(counter.published())));
    }
    equal("published", Value::Array(published), expected["published"].clone())?;
    equal("probed", Value::Array(probed), expected["probed"].clone())?;
    equal("restart", Value::Bool(counter.wants_restart()), expected["restartRequested"].clone())?;
    equal("held", Value::Bool(counter.is_held()), expected["stoppedUntilNewContainer"].clone())
}

fn gate(input: &Value, expected: &Value) -> Result<(), String> {
    let kind = kind(text(input, "probe"))?;
    let flag = |key: &str| input[key] == true;
    let delay = input["initialDelaySeconds"].as_i64().and_then(|d| i32::try_from(d).ok()).unwrap_or(0);
    let since = (input["secondsSinceContainerStart"].as_f64().unwrap_or(0.0) * 1e9) as u64;
    let found = probe::runs(kind, flag("containerRunning"), flag("started"), delay, since);
    equal("runs", Some(found), expected["runsProbe"].as_bool())?;
    if let Some(wanted) = expected["published"].as_str() {
        let mut counter = Counter::new(kind, &Probe::default());
        if !flag("containerRunning") {
            counter.not_running();
        }
        equal("published", says(counter.published()), wanted)?;
    }
    Ok(())
}

fn flags(input: &Value, expected: &Value) -> Result<(), String> {
    let verdict = |key: &str, kind: Kind| match input[key].as_str() {
        None => Ok(None),
        Some("success") => Ok(Some(Says::Success)),
        Some("failure") => Ok(Some(Says::Failure)),
        Some("unknown") => Ok(Some(Says::Unknown)),
        Some("none-yet") => Ok(Some(kind.initial())),
        Some(other) => Err(format!("no result {other}")),
    };
    if input["initContainer"] == true {
        let code = input["terminatedExitCode"].as_i64().and_then(|c| i32::try_from(c).ok());
        return equal("ready", Some(probe::init_ready(code)), expected["ready"].as_bool());
    }
    let found = probe::flags(
        input["running"] == true,
        verdict("startupProbe", Kind::Startup)?,
        verdict("readinessProbe", Kind::Readiness)?,
    );
    let wanted = (expected["started"].as_bool(), expected["ready"].as_bool());
    equal("started, ready", (Some(found.0), Some(found.1)), wanted)
}

fn defaults(input: &Value, expected: &Value) -> Result<(), String> {
    let container = json!({"name": "c", "image": "i:1", "livenessProbe": input["probe"]});
    let mut pod: Pod = read(&json!({"spec": {"containers": [container]}}))?;
    podkeep_core::defaults::pod(&mut pod);
    let found = serde_json::to_value(&pod).map_err(|error| error.to_string())?;
    equal("probe", found["spec"]["containers"][0]["livenessProbe"].clone(), expected["probe"].clone())
}

fn stop(input: &Value, expected: &Value) -> Result<(), String> {
    let own = input["podTerminationGracePeriodSeconds"].as_i64().ok_or("no grace period")?;
    let by_probe = matches!(text(input, "reason"), "livenessProbe" | "startupProbe");
    let found = probe::stop_seconds(
        own,
        input["deletionGracePeriodSeconds"].as_i64(),
        input["probeTerminationGracePeriodSeconds"].as_i64().filter(|_| by_probe),
        input["gracePeriodOverride"].as_i64(),
    );
    equal("seconds", Some(found), expected["stopContainerTimeoutSeconds"].as_i64())
}
