//! What the image tests share: folders that go away, archives built by hand, trees compared file by file.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder, removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("podkeep-image-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Whether a program is there; says so when not.
pub fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root for owners and devices");
    }
    root
}

pub fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A tar archive of any content, checked by nobody.
#[derive(Default)]
pub struct Tar {
    pub bytes: Vec<u8>,
}

/// One header field set.
#[derive(Clone)]
pub struct Entry<'a> {
    pub kind: u8,
    pub name: &'a [u8],
    pub link: &'a [u8],
    pub mode: u32,
    pub uid: u64,
    pub data: &'a [u8],
    pub mtime: u64,
    pub device: (u32, u32),
}

pub const PLAIN: Entry<'static> =
    Entry { kind: b'0', name: b"", link: b"", mode: 0o644, uid: 0, data: b"", mtime: 1000, device: (0, 0) };

impl Tar {
    pub fn add(&mut self, entry: &Entry<'_>) -> &mut Self {
        for (kind, text) in [(b'L', entry.name), (b'K', entry.link)] {
            if text.len() > 100 {
                let long = Entry { kind, name: b"././@LongLink", data: text, ..PLAIN };
                self.add(&long);
            }
        }
        let mut header = tar::Header::new_gnu();
        fn fill(field: &mut [u8], text: &[u8]) {
            let length = text.len().min(field.len());
            field[..length].copy_from_slice(&text[..length]);
        }
        fill(&mut header.as_old_mut().name, entry.name);
        fill(&mut header.as_old_mut().linkname, entry.link);
        header.set_entry_type(tar::EntryType::new(entry.kind));
        header.set_mode(entry.mode);
        header.set_uid(entry.uid);
        header.set_gid(entry.uid);
        header.set_mtime(entry.mtime);
        header.set_size(entry.data.len() as u64);
        header.set_device_major(entry.device.0).unwrap();
        header.set_device_minor(entry.device.1).unwrap();
        self.add_raw(header, entry.data)
    }

    pub fn add_raw(&mut self, mut header: tar::Header, data: &[u8]) -> &mut Self {
        header.set_cksum();
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(&mut self, name: &str, data: &str) -> &mut Self {
        self.add(&Entry { name: name.as_bytes(), data: data.as_bytes(), ..PLAIN })
    }

    pub fn folder(&mut self, name: &str, mode: u32) -> &mut Self {
        self.add(&Entry { kind: b'5', name: name.as_bytes(), mode, ..PLAIN })
    }

    pub fn symlink(&mut self, name: &str, link: &str) -> &mut Self {
        self.add(&Entry { kind: b'2', name: name.as_bytes(), link: link.as_bytes(), mode: 0o777, ..PLAIN })
    }

    pub fn hard_link(&mut self, name: &str, link: &str) -> &mut Self {
        self.add(&Entry { kind: b'1', name: name.as_bytes(), link: link.as_bytes(), ..PLAIN })
    }

    pub fn pax(&mut self, records: &[(&str, &[u8])]) -> &mut Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            text.extend_from_slice(format!("{length} {key}=").as_bytes());
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        self.add(&Entry { kind: b'x', name: b"pax", data: &text, ..PLAIN })
    }

    pub fn end(&mut self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    }
}

/// All that a tree is: one line a path. `times` leaves out what differs between two unpackers by design.
pub fn describe(root: &Path) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    let mut first_names = BTreeMap::new();
    walk(root, root, &mut lines, &mut first_names);
    lines
}

fn walk(
    root: &Path,
    path: &Path,
    lines: &mut BTreeMap<String, String>,
    first_names: &mut BTreeMap<(u64, u64), String>,
) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let name =
        format!("/{}", String::from_utf8_lossy(path.strip_prefix(root).unwrap().as_os_str().as_bytes()));
    let mut line =
        format!("{:o} {}:{} {}.{:09}", meta.mode(), meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec());
    if meta.is_symlink() {
        write!(line, " -> {}", std::fs::read_link(path).unwrap().display()).unwrap();
    } else if meta.is_file() {
        let digest = podkeep::image::Digest::of(&std::fs::read(path).unwrap());
        write!(line, " {} bytes {}", meta.len(), &digest.hex()[..12]).unwrap();
    } else if !meta.is_dir() {
        write!(line, " device {:x}", meta.rdev()).unwrap();
    }
    if meta.is_file() || meta.is_dir() {
        write!(line, " {:?}", xattrs(path)).unwrap();
    }
    if meta.nlink() > 1 && !meta.is_dir() {
        let first = first_names.entry((meta.dev(), meta.ino())).or_insert_with(|| name.clone());
        write!(line, " same as {first}").unwrap();
    }
    lines.insert(name, line);
    if meta.is_dir() {
        let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        for below in names {
            walk(root, &below, lines, first_names);
        }
    }
}

pub fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    use podkeep_hal::linux::sys::fxattr;
    use std::os::fd::AsFd;
    let file = std::fs::File::open(path).unwrap();
    let mut names = vec![0; 4096];
    let Ok(length) = fxattr::list(file.as_fd(), &mut names) else { return Vec::new() };
    let mut found = Vec::new();
    for name in names[..length].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let length = fxattr::get(file.as_fd(), &std::ffi::CString::new(name).unwrap(), &mut value).unwrap();
        found.push((String::from_utf8_lossy(name).into_owned(), value[..length].to_vec()));
    }
    found.retain(|(name, _)| name != "security.selinux");
    found.sort();
    found
}
