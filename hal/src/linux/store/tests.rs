//! Every way of the damage script, full and read-only folders, and what is set aside.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use super::*;

const OURS: Envelope = Envelope { magic: "state-test", version: 1, oldest: 1 };
const LIMIT: u64 = 4096;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("store-{name}-{}-{unique}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What the reader of a state file does.
fn load(store: &Store, name: &str) -> Result<Option<Vec<u8>>, String> {
    let bytes = store.get(name, LIMIT).map_err(|e| e.to_string())?;
    let Some(bytes) = bytes else { return Ok(None) };
    OURS.open(&bytes).map(|(_, content)| Some(content.to_vec())).map_err(|e| e.to_string())
}

#[test]
fn values_come_back_and_go() {
    let folder = Folder::new("plain");
    let store = Store::open(&folder.0.join("a/b"), true).unwrap();
    assert_eq!(store.get("x", LIMIT).unwrap(), None);
    store.put("x", b"one").unwrap();
    store.put("x", b"two").unwrap();
    store.put("y.json", b"").unwrap();
    assert_eq!(store.get("x", LIMIT).unwrap().as_deref(), Some(b"two".as_slice()));
    assert_eq!(store.list().unwrap(), ["x", "y.json"]);
    assert_eq!(fs::metadata(store.path().join("x")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(store.delete("x").unwrap() && !store.delete("x").unwrap());
    assert_eq!(files(store.path()), ["y.json"]);
    assert!(matches!(
        store.put("y.json", b"12345").and_then(|()| store.get("y.json", 4)),
        Err(StoreError::TooLarge { bytes: 5, limit: 4, .. })
    ));
}

#[test]
fn names_stay_in_the_folder() {
    let folder = Folder::new("names");
    let store = Store::open(&folder.0, false).unwrap();
    let long = "x".repeat(201);
    for name in ["", ".", "..", "../x", "a/b", ".hidden", "a\0b", "a.corrupt.0", &long] {
        assert!(matches!(store.put(name, b"x"), Err(StoreError::Name { .. })), "{name:?}");
    }
    assert!(files(&folder.0).is_empty());
}

/// Each way of C-STA-01 is seen, set aside, and the name is free again.
#[test]
fn every_damage_is_seen_and_set_aside() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/cases/sta/C-STA-01/damage.sh");
    let expected = [
        ("empty", "the file is empty"),
        ("half", "the file is cut off"),
        ("tail", "bytes too many at the end"),
        ("zeros", "the file holds only zeros"),
        ("flip", "the first line is not ours"),
        ("old", "the first line is not ours"),
        ("future", "the first line is not ours"),
        ("dir", "is not a plain file"),
        ("link", "is not a plain file"),
        ("mode", "Permission denied"),
    ];
    for (mode, words) in expected {
        let folder = Folder::new(mode);
        let store = Store::open(&folder.0, true).unwrap();
        store.put("ledger", &OURS.seal(br#"{"version":1,"pods":["a","b"]}"#)).unwrap();
        let status = Command::new("sh").arg(&script).arg(folder.0.join("ledger")).arg(mode).status().unwrap();
        assert!(status.success(), "{mode}");
        let loaded = load(&store, "ledger");
        if mode == "mode" && crate::linux::sys::euid() == 0 {
            assert!(loaded.unwrap().is_some(), "root reads it all the same");
        } else {
            let error = loaded.unwrap_err();
            assert!(error.contains(words), "{mode}: {error}");
        }
        let aside = store.quarantine("ledger").unwrap().unwrap();
        assert!(aside.ends_with("ledger.corrupt.0"), "{mode}");
        assert_eq!(load(&store, "ledger"), Ok(None), "{mode}");
        store.put("ledger", &OURS.seal(b"new")).unwrap();
        assert_eq!(load(&store, "ledger"), Ok(Some(b"new".to_vec())), "{mode}");
        assert_eq!(store.list().unwrap(), ["ledger"], "{mode}");
    }
}

#[test]
fn the_last_two_are_kept() {
    let folder = Folder::new("kept");
    let store = Store::open(&folder.0, false).unwrap();
    for text in ["0", "1", "2", "3"] {
        store.put("x", text.as_bytes()).unwrap();
        store.quarantine("x").unwrap().unwrap();
    }
    assert_eq!(files(&folder.0), ["x.corrupt.2", "x.corrupt.3"]);
    assert_eq!(fs::read_to_string(folder.0.join("x.corrupt.3")).unwrap(), "3");
    assert_eq!(store.quarantine("x").unwrap(), None);
}

#[test]
fn a_folder_in_the_way_is_set_aside_by_writing() {
    let folder = Folder::new("way");
    let store = Store::open(&folder.0, false).unwrap();
    fs::create_dir(folder.0.join("x")).unwrap();
    fs::write(folder.0.join("x/file"), "kept").unwrap();
    symlink("/does/not/exist", folder.0.join("y")).unwrap();
    store.put("x", b"1").unwrap();
    store.put("y", b"2").unwrap();
    assert_eq!(store.get("x", 9).unwrap().as_deref(), Some(b"1".as_slice()));
    assert_eq!(store.get("y", 9).unwrap().as_deref(), Some(b"2".as_slice()));
    assert_eq!(fs::read_to_string(folder.0.join("x.corrupt.0/file")).unwrap(), "kept");
}

#[test]
fn what_an_interrupted_write_left_is_removed() {
    let folder = Folder::new("left");
    fs::write(folder.0.join(".x.1.2.tmp"), "half").unwrap();
    fs::write(folder.0.join("x"), "old").unwrap();
    let store = Store::open(&folder.0, false).unwrap();
    assert_eq!(files(&folder.0), ["x"]);
    assert_eq!(store.get("x", 9).unwrap().as_deref(), Some(b"old".as_slice()));
}

#[test]
fn a_fifo_does_not_hold_the_reader() {
    let folder = Folder::new("fifo");
    let store = Store::open(&folder.0, false).unwrap();
    nix::unistd::mkfifo(&folder.0.join("x"), Mode::from_bits_truncate(0o600)).unwrap();
    assert!(matches!(store.get("x", 9), Err(StoreError::NotAFile { .. })));
}

/// A small tmpfs that is taken away with the test.
struct Mounted(Folder);

impl Drop for Mounted {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0.0, nix::mount::MntFlags::MNT_DETACH).ok();
    }
}

#[test]
fn full_and_read_only_are_told_and_pass() {
    use nix::mount::{MsFlags, mount};
    let folder = Folder::new("full");
    let none: Option<&str> = None;
    if mount(Some("tmpfs"), &folder.0, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).is_err() {
        println!("skipped: cannot mount");
        return;
    }
    let mounted = Mounted(folder);
    let dir = &mounted.0.0;
    let store = Store::open(dir, true).unwrap();
    store.put("x", b"old").unwrap();
    store.recheck().unwrap();
    fs::write(dir.join("fill"), vec![1; 1 << 17]).unwrap_err();
    let error = store.put("x", &[7; 9000]).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }) && error.may_pass(), "{error}");
    assert!(error.to_string().contains("cannot save state: no space"), "{error}");
    assert!(store.recheck().is_err());
    assert_eq!(store.get("x", 9).unwrap().as_deref(), Some(b"old".as_slice()));
    assert_eq!(files(dir), ["fill", "x"], "no temporary file is left");
    fs::remove_file(dir.join("fill")).unwrap();
    store.recheck().unwrap();

    // a second, read-only view of it
    let view = Mounted(Folder::new("view"));
    let dir = &view.0.0;
    mount(Some(&mounted.0.0), dir, none, MsFlags::MS_BIND, none).unwrap();
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, dir, none, flags, none).unwrap();
    let viewed = Store::open(dir, true).unwrap();
    assert_eq!(viewed.get("x", 9).unwrap().as_deref(), Some(b"old".as_slice()), "it can still be read");
    let error = viewed.put("x", b"new").unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }) && error.may_pass(), "{error}");
    assert!(matches!(viewed.quarantine("x"), Err(StoreError::ReadOnly { .. })));
    store.put("x", b"new").unwrap();
}
