//! What the supervisor keeps on disk of each container and sandbox, so that another one can go on where it ended.
//!
//! ```text
//! <run-dir>/c/<container>/record.json   before the program may run, again when it runs
//! <run-dir>/c/<container>/exit.json     before the dead process is reaped; fixed shape, no heap
//! <run-dir>/s/<sandbox>/record.json     before the namespaces are made, again when they are
//! ```
//! Each is written whole or not at all (temporary file, rename). Nothing is fsynced: the records outlive the supervisor,
//! not the boot; the boot id in them tells.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::proto::{ContainerState, Exit, SandboxState};
use crate::container::spec::LogSpec;

/// Name of a record below a container's or sandbox's folder.
pub(super) const RECORD: &str = "record.json";
/// Name of the exit record below a container's folder.
pub(super) const EXIT: &str = "exit.json";

/// A longer record is not one of ours (labels are the only part without a natural bound).
const MAX_RECORD: u64 = 1 << 20;
/// Room for an exit record: five names and five numbers.
const MAX_EXIT: usize = 256;

/// A process of one boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProcessIdentity {
    /// of `/proc/<pid>/stat`, in clock ticks
    pub start_ticks: u64,
    pub boot_id: String,
}

/// One container. Fields have defaults: another version of the supervisor may have written it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerRecord {
    /// `exit` is never set here: see [`EXIT`]
    pub state: ContainerState,
    pub process: ProcessIdentity,
    /// SHA-256 of the order: the same id with another order is refused
    pub digest: String,
    pub log: Option<LogSpec>,
    /// for processes executed later
    pub cgroups: Vec<PathBuf>,
    pub tty: bool,
    pub stdin: bool,
    /// stdin is to be closed after its first session
    pub stdin_once: bool,
    /// that session was given out
    pub stdin_used: bool,
}

impl ContainerRecord {
    /// Its set-up is done, and it was told to execute its program.
    pub(super) fn is_released(&self) -> bool {
        self.state.started_boot_ns != 0
    }
}

/// One sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SandboxRecord {
    pub state: SandboxState,
    /// of the reaper, where there is one
    pub process: ProcessIdentity,
    /// false: it was being made when the supervisor ended
    pub complete: bool,
}

/// Writes `value` whole or not at all.
///
/// # Errors
/// what the file system says; `EFBIG` for one that would not be read again
pub(super) fn write(folder: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    if text.len() as u64 > MAX_RECORD {
        return Err(io::Error::from_raw_os_error(nix::libc::EFBIG));
    }
    put(folder, name, &text)
}

/// Writes an exit record whole or not at all; needs no heap for its text, so that it works when memory is short.
///
/// # Errors
/// what the file system says
pub(super) fn write_exit(folder: &Path, exit: &Exit) -> io::Result<()> {
    let text: heapless::Vec<u8, MAX_EXIT> =
        serde_json_core::to_vec(exit).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    put(folder, EXIT, &text)
}

/// Reads a record. `None`: there is none.
///
/// # Errors
/// `InvalidData` when it is no record
pub(super) fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    match get(folder, name, MAX_RECORD)? {
        Some(text) => Ok(Some(serde_json::from_slice(&text)?)),
        None => Ok(None),
    }
}

/// Reads an exit record. `None`: there is none.
///
/// # Errors
/// `InvalidData` when it is no record
pub(super) fn read_exit(folder: &Path) -> io::Result<Option<Exit>> {
    match get(folder, EXIT, MAX_EXIT as u64)? {
        Some(text) => match serde_json_core::from_slice(&text) {
            Ok((exit, _)) => Ok(Some(exit)),
            Err(_) => Err(io::Error::from(io::ErrorKind::InvalidData)),
        },
        None => Ok(None),
    }
}

fn put(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!(".{name}.tmp"));
    fs::write(&temporary, text)?;
    fs::rename(&temporary, folder.join(name))
}

fn get(folder: &Path, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    Ok(Some(text))
}

/// Ids name folders, so only such ids are taken.
#[must_use]
pub(super) fn is_safe_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("podkeep-record-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn records_come_back_and_the_largest_exit_fits() {
        let folder = folder("back");
        let record =
            ContainerRecord { digest: "d\"\\\n\u{1F600}".into(), tty: true, ..ContainerRecord::default() };
        write(&folder, RECORD, &record).unwrap();
        assert_eq!(read(&folder, RECORD).unwrap(), Some(record));
        let exit = Exit {
            code: i32::MIN,
            signal: i32::MIN,
            unknown: false,
            finished_at_ns: i64::MIN,
            finished_boot_ns: u64::MAX,
        };
        write_exit(&folder, &exit).unwrap();
        assert_eq!(read_exit(&folder).unwrap(), Some(exit));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn missing_cut_and_oversized_records_are_told_apart() {
        let folder = folder("bad");
        assert_eq!(read::<ContainerRecord>(&folder, RECORD).unwrap(), None);
        assert_eq!(read_exit(&folder).unwrap(), None);
        fs::write(folder.join(EXIT), "{\"code\":1").unwrap();
        fs::write(folder.join(RECORD), vec![b' '; 1 << 21]).unwrap();
        assert!(read_exit(&folder).is_err());
        let labels = "x".repeat(1 << 20);
        let state = ContainerState { labels, ..ContainerState::default() };
        let long = ContainerRecord { state, ..ContainerRecord::default() };
        assert!(write(&folder, "long.json", &long).is_err(), "what cannot be read is not written");
        assert!(read::<ContainerRecord>(&folder, RECORD).is_err());
        // a later version may add fields
        fs::write(folder.join(EXIT), "{\"code\":7,\"later\":[1,{\"a\":\"b\"}]}").unwrap();
        assert_eq!(read_exit(&folder).unwrap().map(|exit| exit.code), Some(7));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn ids_that_leave_the_folder_are_refused() {
        for id in ["", ".", "..", "a/b", ".a", "a b", "a\0"] {
            assert!(!is_safe_id(id), "{id:?}");
        }
        assert!(is_safe_id("0f-A_z.9"));
        assert!(!is_safe_id(&"a".repeat(129)));
    }
}
