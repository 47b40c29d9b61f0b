//! The local socket `<run-dir>/podkeep.sock` (0600): what the command line asks of the agent.
//!
//! A frame is a little-endian u32 length and that many bytes of JSON; descriptors ride on its first byte. A connection
//! carries one request and its answers. The agent hands out descriptors and paths and is not in the path of logs and
//! terminals, so a restart of the agent breaks neither a running `logs -f` nor the program behind an `exec`.

pub mod client;
pub mod frame;
pub mod server;

use serde::{Deserialize, Serialize};

/// Which pods are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFilter {
    /// `None`: all namespaces
    pub namespace: Option<String>,
    /// with or without the `-<node>` ending
    pub name: Option<String>,
}

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ApiRequest {
    Version,
    /// `watch`: the answer is followed by one more for every change
    Pods {
        filter: PodFilter,
        watch: bool,
    },
    Events {
        filter: PodFilter,
    },
    /// manifest files and what is wrong with them
    Sources,
    /// where the log of a container is; with `follow` the connection stays open and says when the container has ended
    Log {
        namespace: String,
        pod: String,
        container: Option<String>,
        previous: bool,
        follow: bool,
    },
    /// Descriptors: stdin, stdout, stderr, or none with `tty`
    Exec {
        namespace: String,
        pod: String,
        container: Option<String>,
        command: Vec<String>,
        tty: bool,
        /// rows and columns of the caller's terminal
        #[serde(default)]
        size: Option<(u16, u16)>,
    },
    ImageLoad {
        path: String,
        name: String,
    },
    ImageList,
    ImageRemove {
        name: String,
    },
    ImagePull {
        name: String,
    },
}

/// One manifest file or address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceStatus {
    pub path: String,
    /// the folder or address as a whole, not a file of it
    pub is_source: bool,
    /// full names of the pods that come from it
    pub pods: Vec<String>,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

/// One event of the bounded ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventRecord {
    /// `Normal` or `Warning`
    pub kind: String,
    pub reason: String,
    pub message: String,
    pub namespace: String,
    pub pod: String,
    pub container: Option<String>,
    pub count: u32,
    /// Unix nanoseconds
    pub first: i64,
    pub last: i64,
}

/// One image of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageStatus {
    pub name: String,
    pub id: String,
    pub size: u64,
    pub in_use: bool,
    pub pinned: bool,
    /// what is missing or damaged, empty when all is well
    pub problem: String,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ApiReply {
    Version {
        version: String,
        node: String,
        supervisor: String,
    },
    /// `v1.Pod` objects with their status
    Pods {
        pods: Vec<serde_json::Value>,
    },
    Events {
        events: Vec<EventRecord>,
    },
    Sources {
        sources: Vec<SourceStatus>,
    },
    /// `running`: the container writes to it now
    Log {
        path: String,
        running: bool,
    },
    /// the followed container has ended
    LogEnded,
    ExecStarted,
    ExecEnded {
        code: i32,
    },
    /// the program could not be executed
    ExecFailed {
        code: i32,
        message: String,
    },
    Images {
        images: Vec<ImageStatus>,
    },
    Done {
        message: String,
    },
    Progress {
        message: String,
    },
    Failed {
        message: String,
    },
}
