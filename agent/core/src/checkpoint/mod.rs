//! The kubelet's own state files, so that a node can be moved here and back without losing an allocation:
//! `cpu_manager_state`, `memory_manager_state` and `kubelet_internal_checkpoint`.
//!
//! Their checksum is no checksum of the file: it is taken over a text form of the object in the kubelet's memory
//! ([`dump`]). Newer versions wrap the state as a text with a plain checksum. Key case is ignored on reading, and a
//! stored checksum of zero passes unchecked.

pub mod cpu;
pub mod device;
mod dump;
mod json;
pub mod memory;

use alloc::string::String;
use core::fmt;

use podkeep_hal::cpu_set::CpuListError;

/// Versions of a state file that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The plain form every kubelet reads (CPU version 2, memory version 1).
    Plain,
    /// The newest form, which also holds what pods own as a whole (CPU version 4, memory version 3).
    Envelope,
}

/// Why a state file was not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointError {
    /// The file ends too early.
    Truncated,
    /// The text is no JSON.
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// A value is of another kind than expected.
    Kind {
        /// The key.
        key: String,
        /// What is expected there.
        expected: &'static str,
    },
    /// The checksum does not fit the content.
    Corrupt {
        /// Checksum in the file.
        stored: u32,
        /// Checksum of the content.
        actual: u32,
    },
    /// The file was written under another policy.
    Policy {
        /// Text the kubelet's manager puts before its messages.
        prefix: &'static str,
        /// The policy configured.
        configured: String,
        /// The policy in the file.
        stored: String,
    },
    /// The shared pool is no CPU list.
    DefaultSet {
        /// Its text.
        text: String,
        /// What is wrong.
        error: CpuListError,
    },
    /// The CPUs of a container are no CPU list.
    ContainerSet {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// Its text.
        text: String,
        /// What is wrong.
        error: CpuListError,
    },
    /// A fault inside a wrapped state: there is no falling back to an older form.
    Envelope {
        /// Version of the wrapping form.
        version: u8,
        /// The fault, and whether the wrapped text could not be read at all.
        inner: alloc::boxed::Box<CheckpointError>,
        /// Whose state, if the wrapped text could not be read at all.
        unreadable: Option<&'static str>,
    },
}

impl CheckpointError {
    /// The message without "could not restore state from checkpoint".
    fn reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("unexpected end of JSON input"),
            Self::Json { line, column } => write!(f, "invalid JSON at line {line}, column {column}"),
            Self::Kind { key, expected } => write!(f, "\"{key}\" is not {expected}"),
            Self::Corrupt { stored, actual } => {
                write!(
                    f,
                    "checkpoint is corrupted: the file says checksum {stored}, its content has {actual}"
                )
            }
            Self::Policy { prefix, configured, stored } => write!(
                f,
                "{prefix}configured policy \"{configured}\" differs from state checkpoint policy \"{stored}\""
            ),
            Self::DefaultSet { text, error } => {
                write!(f, "could not parse default cpu set \"{text}\": {error}")
            }
            Self::ContainerSet { pod, container, text, error } => write!(
                f,
                "could not parse cpuset \"{text}\" for container \"{container}\" in pod \"{pod}\": {error}"
            ),
            Self::Envelope { version, inner, unreadable } => {
                write!(f, "could not load v{version} checkpoint: ")?;
                if let Some(manager) = unreadable {
                    write!(f, "failed to deserialize {manager} manager checkpoint data: ")?;
                }
                inner.reason(f)
            }
        }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("could not restore state from checkpoint: ")?;
        self.reason(f)
    }
}

impl core::error::Error for CheckpointError {}
