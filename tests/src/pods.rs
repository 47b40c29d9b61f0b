//! A pod as `podkeep get pods -o json` shows it: a `v1.Pod`, read without knowing our own types.

use serde_json::Value;

/// One `v1.Pod`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub json: Value,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Waiting {
        reason: String,
        message: String,
    },
    Running,
    Terminated {
        exit_code: i64,
        signal: i64,
        reason: String,
        message: String,
    },
    /// no word of it yet
    Unknown,
}

/// One entry of `containerStatuses` or `initContainerStatuses`.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub json: Value,
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string()
}

impl Pod {
    /// The pods in an answer: a list, or one pod.
    #[must_use]
    pub fn all_of(answer: &Value) -> Vec<Pod> {
        // a watch event carries its pod as `object`
        let answer = answer.get("object").unwrap_or(answer);
        match answer.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().map(|json| Pod { json: json.clone() }).collect(),
            None if answer.get("metadata").is_some() => vec![Pod { json: answer.clone() }],
            None => Vec::new(),
        }
    }

    /// With the node's name behind it, as static pods are called.
    #[must_use]
    pub fn name(&self) -> String {
        text(&self.json, "/metadata/name")
    }

    #[must_use]
    pub fn namespace(&self) -> String {
        text(&self.json, "/metadata/namespace")
    }

    #[must_use]
    pub fn uid(&self) -> String {
        text(&self.json, "/metadata/uid")
    }

    #[must_use]
    pub fn phase(&self) -> String {
        text(&self.json, "/status/phase")
    }

    #[must_use]
    pub fn reason(&self) -> String {
        text(&self.json, "/status/reason")
    }

    #[must_use]
    pub fn message(&self) -> String {
        text(&self.json, "/status/message")
    }

    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<bool> {
        let all = self.json.pointer("/status/conditions")?.as_array()?;
        let one = all.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?;
        Some(one.get("status").and_then(Value::as_str) == Some("True"))
    }

    /// Ordinary, init and ephemeral containers, whichever has this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<Container> {
        self.containers().into_iter().find(|c| c.name() == name)
    }

    #[must_use]
    pub fn containers(&self) -> Vec<Container> {
        ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"]
            .iter()
            .filter_map(|list| self.json.pointer(list)?.as_array())
            .flatten()
            .map(|json| Container { json: json.clone() })
            .collect()
    }

    /// Every container of the spec (not the init containers) is running.
    #[must_use]
    pub fn all_running(&self) -> bool {
        let wanted = self.json.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
        let running = self.json.pointer("/status/containerStatuses").and_then(Value::as_array);
        let running =
            running.map_or(0, |all| all.iter().filter(|c| c.pointer("/state/running").is_some()).count());
        wanted > 0 && running == wanted
    }
}

impl Container {
    #[must_use]
    pub fn name(&self) -> String {
        text(&self.json, "/name")
    }

    /// Without the `podkeep://` before it.
    #[must_use]
    pub fn id(&self) -> String {
        let id = text(&self.json, "/containerID");
        id.rsplit('/').next().unwrap_or_default().to_string()
    }

    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.json.get("restartCount").and_then(Value::as_u64).unwrap_or(0)
    }

    #[must_use]
    pub fn ready(&self) -> bool {
        self.json.get("ready").and_then(Value::as_bool).unwrap_or(false)
    }

    #[must_use]
    pub fn state(&self) -> State {
        state(self.json.get("state"))
    }

    #[must_use]
    pub fn last_state(&self) -> State {
        state(self.json.get("lastState"))
    }

    #[must_use]
    pub fn running(&self) -> bool {
        self.state() == State::Running
    }

    /// Exit code and reason, of this or, while it runs again or waits, of the last run.
    #[must_use]
    pub fn exit(&self) -> Option<(i64, String)> {
        [self.state(), self.last_state()].into_iter().find_map(|s| match s {
            State::Terminated { exit_code, reason, .. } => Some((exit_code, reason)),
            _ => None,
        })
    }
}

fn state(value: Option<&Value>) -> State {
    let Some(value) = value else { return State::Unknown };
    if value.get("running").is_some() {
        return State::Running;
    }
    if let Some(w) = value.get("waiting") {
        return State::Waiting { reason: text(w, "/reason"), message: text(w, "/message") };
    }
    if let Some(t) = value.get("terminated") {
        let number = |key| t.get(key).and_then(Value::as_i64).unwrap_or(0);
        return State::Terminated {
            exit_code: number("exitCode"),
            signal: number("signal"),
            reason: text(t, "/reason"),
            message: text(t, "/message"),
        };
    }
    State::Unknown
}
