//! What is kept of a pod over restarts and power cuts: its definition, its counts, its last exits.
//!
//! One small file a pod. It is advice: when it is damaged or gone, the pod is rebuilt from what the supervisor holds
//! and from the manifest, and only counts are lost.

use std::collections::BTreeMap;

use podkeep_core::lifecycle::pod::{ContainerState, PodRuntime, Stage, Terminated};
use podkeep_core::types::Pod;
use serde::{Deserialize, Serialize};

/// One exit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExitRecord {
    pub container_id: String,
    pub exit_code: i32,
    pub signal: i32,
    pub reason: String,
    pub message: String,
    pub started: i64,
    pub finished: i64,
}

impl From<&Terminated> for ExitRecord {
    fn from(exit: &Terminated) -> Self {
        Self {
            container_id: exit.container_id.clone(),
            exit_code: exit.exit_code,
            signal: exit.signal,
            reason: exit.reason.clone(),
            message: exit.message.clone(),
            started: exit.started_wall,
            finished: exit.finished_wall,
        }
    }
}

impl From<&ExitRecord> for Terminated {
    fn from(exit: &ExitRecord) -> Self {
        Self {
            container_id: exit.container_id.clone(),
            exit_code: exit.exit_code,
            signal: exit.signal,
            reason: exit.reason.clone(),
            message: exit.message.clone(),
            started_wall: exit.started,
            finished_wall: exit.finished,
            // of an earlier boot, or not known: counts as long ago
            finished_boot: 0,
        }
    }
}

/// One container's history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRecord {
    pub starts: u32,
    /// the exit it is in, or the one before the present run
    pub exit: Option<ExitRecord>,
    /// back-off, valid within one boot
    pub delay: u64,
    pub stepped_at: u64,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRecord {
    /// file or address it came from
    pub source: String,
    pub pod: Pod,
    /// boot the times of the back-off belong to
    pub boot_id: String,
    pub start_wall: i64,
    pub sandbox_attempts: u32,
    pub containers: BTreeMap<String, ContainerRecord>,
    /// set when the pod is over: failed, reason, message
    pub done: Option<(bool, String, String)>,
    /// first id of its user namespace, 0: none
    pub user_base: u32,
    /// sandbox in which the init containers are done
    pub initialized_in: Option<String>,
}

impl PodRecord {
    /// What is worth keeping of a pod now.
    #[must_use]
    pub fn of(pod: &Pod, runtime: &PodRuntime, source: &str, boot_id: &str) -> Self {
        let mut bare = pod.clone();
        bare.status = podkeep_core::types::PodStatus::default();
        let containers = runtime
            .containers
            .iter()
            .map(|container| {
                let exit = match &container.state {
                    ContainerState::Exited(exit) => Some(exit),
                    _ => container.last.as_ref(),
                };
                let record = ContainerRecord {
                    starts: container.starts,
                    exit: exit.map(ExitRecord::from),
                    delay: container.backoff.delay,
                    stepped_at: container.backoff.stepped_at,
                };
                (container.shape.name.clone(), record)
            })
            .collect();
        let done = match &runtime.stage {
            Stage::Done { failed, reason, message } => Some((*failed, reason.clone(), message.clone())),
            _ => None,
        };
        Self {
            source: source.to_owned(),
            pod: bare,
            boot_id: boot_id.to_owned(),
            start_wall: runtime.start_wall,
            sandbox_attempts: runtime.sandbox_attempts,
            containers,
            done,
            user_base: 0,
            initialized_in: None,
        }
    }

    /// Puts counts, last exits and the end of the pod into a fresh runtime. Live containers are adopted afterwards.
    pub fn restore(&self, runtime: &mut PodRuntime, boot_id: &str) {
        runtime.start_wall = self.start_wall;
        runtime.sandbox_attempts = self.sandbox_attempts;
        let same_boot = self.boot_id == boot_id && !boot_id.is_empty();
        if !same_boot {
            runtime.start_boot = 0;
        }
        for (name, record) in &self.containers {
            if let Some(exit) = &record.exit {
                runtime.adopt_exited(name, exit.into(), record.starts.saturating_sub(1), false);
            }
            if let Some(container) = runtime.container_mut(name) {
                container.starts = container.starts.max(record.starts);
                if same_boot {
                    container.backoff.delay = record.delay;
                    container.backoff.stepped_at = record.stepped_at;
                }
            }
        }
        if let Some((failed, reason, message)) = &self.done {
            runtime.stage = Stage::Done { failed: *failed, reason: reason.clone(), message: message.clone() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podkeep_core::lifecycle::from_pod::pod_shape;
    use podkeep_core::lifecycle::{BackoffSettings, Now};
    use podkeep_core::types::Container;

    #[test]
    fn counts_and_exits_survive_and_a_finished_pod_stays_finished() {
        let mut pod = Pod::default();
        pod.spec.restart_policy = "Never".into();
        pod.spec.containers.push(Container { name: "a".into(), ..Container::default() });
        let now = Now { boot: 5, wall: 6 };
        let mut runtime = PodRuntime::new(pod_shape(&pod), BackoffSettings::default(), now);
        let exit = Terminated { container_id: "x".into(), exit_code: 3, ..Terminated::default() };
        runtime.adopt_exited("a", exit, 2, true);
        runtime.stage = Stage::Done { failed: true, reason: String::new(), message: String::new() };
        let record = PodRecord::of(&pod, &runtime, "/m/a.yaml", "boot");
        let text = serde_json::to_vec(&record).expect("record is JSON");
        let read: PodRecord = serde_json::from_slice(&text).expect("and back");
        assert_eq!(read, record);
        let mut again = PodRuntime::new(pod_shape(&read.pod), BackoffSettings::default(), now);
        read.restore(&mut again, "other boot");
        assert_eq!(again.stage, runtime.stage);
        let container = again.container("a").expect("a");
        assert_eq!((container.starts, container.exited().map(|exit| exit.exit_code)), (3, Some(3)));
    }
}
