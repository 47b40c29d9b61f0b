//! Real files and, as root, real mounts.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};

use podkeep_core::desired::Object;
use podkeep_core::types::{Bytes, ConfigMap, ResourceList, Secret};

use super::*;
use crate::source::decode;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A state folder that goes away with the test, mounts first.
struct Node {
    dir: PathBuf,
    maps: Vec<ConfigMap>,
    secrets: Vec<Secret>,
}

impl Objects for Node {
    fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        self.maps.iter().find(|m| m.metadata.name == name)
    }
    fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.iter().find(|s| s.metadata.name == name)
    }
    fn file_key(&self, _: &str, _: &str, _: &str) -> Option<String> {
        None
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        teardown(&self.dir).unwrap();
    }
}

const ALLOCATABLE: u64 = 64 << 20;

impl Node {
    fn new() -> Self {
        let name = format!("volume-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self { dir: dir.canonicalize().unwrap(), maps: Vec::new(), secrets: Vec::new() }
    }

    fn pod_dir(&self) -> PathBuf {
        self.dir.join("pods/uid-1")
    }

    fn prepare(&self, pod: &Pod) -> Result<Vec<PreparedVolume>, VolumeError> {
        let allocatable = ResourceList::from([("cpu".to_owned(), "2".parse().unwrap())]);
        let facts = Facts { pod, host_ips: &[], pod_ips: &[], allocatable: &allocatable };
        let pod_dir = self.pod_dir();
        let ctx =
            Context { facts: &facts, objects: self, pod_dir: &pod_dir, allocatable_memory: ALLOCATABLE };
        prepare(&ctx)
    }

    /// The volumes of a pod with these `volumes:` (flow style), and `extra` lines of its spec.
    fn volumes(&self, volumes: &str, extra: &str) -> Result<Vec<PathBuf>, VolumeError> {
        let prepared = self.prepare(&pod(volumes, extra))?;
        Ok(prepared.into_iter().map(|v| path(&v)).collect())
    }

    fn host_path(&self, below: &str, kind: &str) -> Result<PathBuf, VolumeError> {
        let volume =
            format!("[{{name: v, hostPath: {{path: {}, type: '{kind}'}}}}]", self.dir.join(below).display());
        self.volumes(&volume, "").map(|mut v| v.remove(0))
    }
}

fn path(volume: &PreparedVolume) -> PathBuf {
    match &volume.source {
        VolumeSource::Path(path) => path.clone(),
        VolumeSource::Image { .. } => unreachable!(),
    }
}

fn pod(volumes: &str, extra: &str) -> Pod {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: ns, uid: uid-1, labels: {{b: '2', a: 'x\"y'}}}}\n\
         spec:\n  containers: [{{name: main, image: i, resources: {{limits: {{memory: 32Mi, cpu: 250m}}}}}}]\n\
         {extra}  volumes: {volumes}\n"
    );
    read(text.as_bytes())
}

fn read(text: &[u8]) -> Pod {
    let mut decoded = decode::decode_file(text, "test.yaml");
    assert!(decoded.errors.is_empty(), "{:?}", decoded.errors);
    match decoded.objects.remove(0).object {
        Object::Pod(pod) => *pod,
        other => panic!("{other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn is_root() -> bool {
    let root = podkeep_hal::linux::sys::euid() == 0;
    if !root {
        println!("skipped: needs root");
    }
    root
}

#[test]
fn host_paths_of_every_type() {
    let node = Node::new();
    fs::create_dir(node.dir.join("dir")).unwrap();
    fs::write(node.dir.join("file"), "x").unwrap();
    symlink("file", node.dir.join("link")).unwrap();
    let _socket = UnixListener::bind(node.dir.join("sock")).unwrap();
    for (below, kind) in [
        ("dir", "Directory"),
        ("dir", "DirectoryOrCreate"),
        ("file", "File"),
        ("link", "File"),
        ("file", "FileOrCreate"),
        ("sock", "Socket"),
        ("dir", ""),
        ("sock", ""),
    ] {
        assert_eq!(node.host_path(below, kind).unwrap(), node.dir.join(below), "{below} {kind}");
    }
    for (below, kind, found) in [
        ("dir", "File", "a folder"),
        ("dir", "FileOrCreate", "a folder"),
        ("file", "Directory", "a file"),
        ("file", "DirectoryOrCreate", "a file"),
        ("file", "Socket", "a file"),
        ("sock", "CharDevice", "a socket"),
        ("sock", "BlockDevice", "a socket"),
    ] {
        let error = node.host_path(below, kind).unwrap_err();
        assert!(error.to_string().contains(&format!("is {found}, wanted is ")), "{error}");
        assert_eq!(error.reason(), "FailedMount");
    }
    let null = "[{name: v, hostPath: {path: /dev/null, type: CharDevice}}]";
    assert_eq!(node.volumes(null, "").unwrap(), [Path::new("/dev/null")]);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn absent_host_paths_are_waited_for_or_made() {
    let node = Node::new();
    for kind in ["Directory", "File", "Socket", "CharDevice", "BlockDevice", ""] {
        let error = node.host_path("a/b/c", kind).unwrap_err();
        assert!(matches!(error, VolumeError::Absent { .. }), "{error}");
        assert_eq!(error.retry_on(), Some(&node.dir.join("a")), "{kind}");
        assert!(!node.dir.join("a").exists(), "nothing is made by guess");
    }
    // the name to watch comes nearer as the path does
    fs::create_dir(node.dir.join("a")).unwrap();
    assert_eq!(node.host_path("a/b/c", "File").unwrap_err().retry_on(), Some(&node.dir.join("a/b")));
    assert!(node.host_path("a/b/c", "FileOrCreate").is_err(), "its folder is not made");

    let made = node.host_path("new/folder", "DirectoryOrCreate").unwrap();
    assert!(made.is_dir() && mode(&made) == 0o755);
    let made = node.host_path("new/file", "FileOrCreate").unwrap();
    assert!(made.is_file() && mode(&made) == 0o644 && fs::read(&made).unwrap().is_empty());
    // it appears, and the pod goes on
    fs::create_dir_all(node.dir.join("a/b")).unwrap();
    fs::write(node.dir.join("a/b/c"), "").unwrap();
    assert!(node.host_path("a/b/c", "File").is_ok());
    assert!(matches!(node.host_path("a", "Folder"), Err(VolumeError::Value { .. })));
}

#[test]
fn host_paths_that_climb_are_refused() {
    let node = Node::new();
    for path in ["srv/../../etc", "srv", "/srv/../etc", "/.."] {
        let error = node.volumes(&format!("[{{name: v, hostPath: {{path: {path}}}}}]"), "").unwrap_err();
        assert!(matches!(error, VolumeError::HostPath { .. }), "{path}: {error}");
    }
}

#[test]
fn empty_folders_on_disk() {
    let node = Node::new();
    let volumes = "[{name: a, emptyDir: {}}, {name: b, emptyDir: {sizeLimit: 1Gi}}]";
    let made = node.volumes(volumes, "").unwrap();
    assert_eq!(made[0], node.pod_dir().join("volumes/kubernetes.io~empty-dir/a"));
    assert_eq!(mode(&made[1]), 0o777);
    // kept over restarts, and whatever its users did to it
    fs::write(made[0].join("file"), "kept").unwrap();
    fs::set_permissions(&made[0], fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(node.volumes(volumes, "").unwrap(), made);
    assert_eq!(mode(&made[0]), 0o700);
    assert_eq!(fs::read_to_string(made[0].join("file")).unwrap(), "kept");
}

#[test]
fn fs_group_owns_what_is_made() {
    if !is_root() {
        return;
    }
    let mut node = Node::new();
    let mut map = ConfigMap::default();
    map.metadata.name = "m".into();
    map.data.insert("sub.txt".into(), "text".into());
    node.maps.push(map);
    let group = "  securityContext: {fsGroup: 4242}\n";
    let volumes = "[{name: a, emptyDir: {}}, {name: c, configMap: {name: m, defaultMode: 256, items: [{key: sub.txt, path: d/f}]}}]";
    let made = node.volumes(volumes, group).unwrap();
    let meta = fs::metadata(&made[0]).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (4242, 0o2777));
    let meta = fs::metadata(&made[1]).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (4242, 0o2755));
    let meta = fs::metadata(made[1].join("d/f")).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (4242, 0o440), "owner only becomes owner and group");
    let meta = fs::metadata(made[1].join("d")).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (4242, 0o2755));
    let inode = fs::metadata(made[1].join("d/f")).unwrap().ino();
    node.volumes(volumes, group).unwrap();
    assert_eq!(fs::metadata(made[1].join("d/f")).unwrap().ino(), inode, "nothing new, nothing written");
}

/// Bytes of the file system and its type, from the kernel.
fn mounted(path: &Path) -> (u64, bool) {
    let stat = nix::sys::statfs::statfs(path).unwrap();
    let tmpfs = stat.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC;
    (stat.blocks() * u64::try_from(stat.block_size()).unwrap(), tmpfs)
}

/// C-VOL-03.
#[test]
fn memory_volumes_have_the_asked_size() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/cases/vol/C-VOL-03/shm.yaml");
    let pod = read(&fs::read(case).unwrap());
    let made = match node.prepare(&pod) {
        Err(VolumeError::System { step: "mount", errno, .. }) => {
            println!("skipped: cannot mount ({errno})");
            return;
        }
        made => made.unwrap(),
    };
    assert_eq!(mounted(&path(&made[0])), (8 << 20, true));
    assert_eq!(mounted(&path(&made[1])), (32 << 20, true), "the pod's memory limit");
    assert_eq!(mode(&path(&made[0])), 0o777);
    let error = fs::write(path(&made[0]).join("f"), vec![1; 10 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    fs::write(path(&made[0]).join("f"), "kept").unwrap();
    assert_eq!(node.prepare(&pod).unwrap(), made);
    assert_eq!(fs::read(path(&made[0]).join("f")).unwrap(), b"kept", "not mounted a second time");

    let free = read(b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"q\"},\"spec\":{\"containers\":\
        [{\"name\":\"m\",\"image\":\"i\"}],\"volumes\":[{\"name\":\"n\",\"emptyDir\":{\"medium\":\"Memory\"}}]}}");
    let made = node.prepare(&free).unwrap();
    assert_eq!(mounted(&path(&made[0])), (ALLOCATABLE, true), "what the node can give");
    teardown(&node.pod_dir()).unwrap();
    assert!(!node.pod_dir().exists());
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!text.contains(node.dir.to_str().unwrap()));
}

#[test]
fn huge_pages_need_one_size() {
    let node = Node::new();
    let bad = |medium: &str| {
        node.volumes(&format!("[{{name: v, emptyDir: {{medium: {medium}}}}}]"), "").unwrap_err()
    };
    assert!(matches!(bad("HugePages"), VolumeError::HugePageSize { .. }));
    assert!(matches!(bad("HugePages-x"), VolumeError::Value { .. }));
    assert!(matches!(bad("memory"), VolumeError::Value { .. }));
    if !is_root() {
        return;
    }
    match node.volumes("[{name: v, emptyDir: {medium: HugePages-2Mi}}]", "") {
        Ok(made) => assert_eq!(nix::sys::statfs::statfs(&made[0]).unwrap().block_size(), 2 << 20),
        Err(VolumeError::System { errno, .. }) => println!("skipped: no huge pages here ({errno})"),
        Err(e) => panic!("{e}"),
    }
}

fn content(dir: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !name.starts_with("..") && entry.path().is_file() {
            files.push((name, fs::read_to_string(entry.path()).unwrap()));
        }
    }
    files.sort();
    files
}

fn texts(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn config_maps_become_files_and_change_at_once() {
    let mut node = Node::new();
    let mut map = ConfigMap::default();
    map.metadata.name = "m".into();
    map.data.insert("a".into(), "1".into());
    map.data.insert("b.conf".into(), "2".into());
    map.binary_data.insert("bin".into(), Bytes(b"3".to_vec()));
    node.maps.push(map);
    let volumes = "[{name: c, configMap: {name: m}}]";
    let dir = node.volumes(volumes, "").unwrap().remove(0);
    assert_eq!(content(&dir), texts(&[("a", "1"), ("b.conf", "2"), ("bin", "3")]));
    assert_eq!(mode(&dir.join("a")), 0o644);
    assert_eq!(fs::read_link(dir.join("a")).unwrap(), Path::new("..data/a"));
    let first = fs::read_link(dir.join("..data")).unwrap();
    node.volumes(volumes, "").unwrap();
    assert_eq!(fs::read_link(dir.join("..data")).unwrap(), first, "nothing new, nothing written");

    // an open set stays whole while the next one comes
    let open = dir.join(&first);
    node.maps[0].data.remove("b.conf");
    node.maps[0].data.insert("a".into(), "11".into());
    node.maps[0].data.insert("c".into(), "4".into());
    node.volumes(volumes, "").unwrap();
    assert_eq!(content(&dir), texts(&[("a", "11"), ("bin", "3"), ("c", "4")]));
    assert!(dir.join("b.conf").symlink_metadata().is_err(), "its link went, too");
    assert!(!open.exists());
    let sets = fs::read_dir(&dir).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(sets, 2, "the set and the link to it");
}

#[test]
fn what_a_crash_left_is_swept_and_damage_is_repaired() {
    let mut node = Node::new();
    let mut map = ConfigMap::default();
    map.metadata.name = "m".into();
    map.data.insert("a".into(), "1".into());
    node.maps.push(map);
    let volumes = "[{name: c, configMap: {name: m}}]";
    let dir = node.volumes(volumes, "").unwrap().remove(0);
    fs::create_dir(dir.join("..left")).unwrap();
    symlink("..left", dir.join("..data_tmp")).unwrap();
    let set = dir.join(fs::read_link(dir.join("..data")).unwrap());
    fs::write(set.join("a"), "").unwrap();
    fs::remove_file(dir.join("a")).unwrap();
    node.volumes(volumes, "").unwrap();
    assert_eq!(content(&dir), texts(&[("a", "1")]));
    assert!(!dir.join("..left").exists());
}

#[test]
fn items_modes_and_missing_keys() {
    let mut node = Node::new();
    let mut map = ConfigMap::default();
    map.metadata.name = "m".into();
    map.data.insert("key".into(), "text".into());
    node.maps.push(map);
    let volume = |rest: &str| format!("[{{name: c, configMap: {{name: m, {rest}}}}}]");
    let items = volume("defaultMode: 256, items: [{key: key, path: x/y, mode: 416}, {key: key, path: z}]");
    let dir = node.volumes(&items, "").unwrap().remove(0);
    assert_eq!((mode(&dir.join("x/y")), mode(&dir.join("z"))), (0o640, 0o400));
    assert!(!dir.join("key").exists());

    let missing = "items: [{key: nix, path: x}]";
    assert!(matches!(node.volumes(&volume(missing), ""), Err(VolumeError::NoKey { .. })));
    assert!(node.volumes(&volume(&format!("optional: true, {missing}")), "").is_ok());
    for path in ["../x", "..x", "/x", "a/../../x", ""] {
        let bad = volume(&format!("items: [{{key: key, path: '{path}'}}]"));
        assert!(matches!(node.volumes(&bad, ""), Err(VolumeError::FileName { .. })), "{path}");
    }
    let other = "[{name: o, configMap: {name: other}}]";
    let error = node.volumes(other, "").unwrap_err();
    assert_eq!(error.to_string(), "volume 'o': ConfigMap 'other' is not known on this node");
    let optional = other.replace("other}", "other, optional: true}");
    let dir = node.volumes(&optional, "").unwrap().remove(0);
    assert!(content(&dir).is_empty() && dir.is_dir());
}

#[test]
fn secrets_and_fields_live_in_memory() {
    if !is_root() {
        return;
    }
    let mut node = Node::new();
    let mut secret = Secret::default();
    secret.metadata.name = "s".into();
    secret.data.insert("key".into(), Bytes(b"old".to_vec()));
    secret.string_data.insert("key".into(), "hidden".into());
    node.secrets.push(secret);
    let volumes = "[{name: s, secret: {secretName: s, defaultMode: 256}}, {name: d, downwardAPI: {items: [\
        {path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: main, \
        resource: limits.cpu, divisor: 1m}}]}}, {name: p, projected: {sources: [{secret: {name: s}}, \
        {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}, \
        {configMap: {name: none, optional: true}}]}}]";
    let made = match node.volumes(volumes, "") {
        Err(VolumeError::System { step: "mount", errno, .. }) => {
            println!("skipped: cannot mount ({errno})");
            return;
        }
        made => made.unwrap(),
    };
    assert_eq!(content(&made[0]), texts(&[("key", "hidden")]));
    assert_eq!(mode(&made[0].join("key")), 0o400);
    assert_eq!(content(&made[1]), texts(&[("cpu", "250"), ("labels", "a=\"x\\\"y\"\nb=\"2\"")]));
    assert_eq!(content(&made[2]), texts(&[("key", "hidden"), ("name", "p")]));
    assert!(made.iter().all(|dir| mounted(dir).1));
}

#[test]
fn other_kinds() {
    let node = Node::new();
    let image =
        node.prepare(&pod("[{name: i, image: {reference: 'registry.test/data:1', pullPolicy: Never}}]", ""));
    let source =
        VolumeSource::Image { reference: "registry.test/data:1".into(), pull_policy: "Never".into() };
    assert_eq!(image.unwrap()[0], PreparedVolume { name: "i".into(), source, read_only: true });
    let mut claim = pod("[{name: some, emptyDir: {}}]", "");
    claim.spec.volumes[0].empty_dir = None;
    assert_eq!(node.prepare(&claim).unwrap_err().reason(), "VolumeNotSupported");
    claim.spec.volumes[0].name = "../x".into();
    assert!(matches!(node.prepare(&claim), Err(VolumeError::Name { .. })));
}

#[test]
fn image_volumes_show_the_layers_and_run_nothing() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let layers = [node.dir.join("low"), node.dir.join("high")];
    for layer in &layers {
        fs::create_dir(layer).unwrap();
        fs::write(layer.join("both"), layer.file_name().unwrap().as_encoded_bytes()).unwrap();
    }
    fs::copy("/bin/true", layers[0].join("true")).unwrap();
    for (name, layers, both) in [("two", &layers[..], "high"), ("one", &layers[..1], "low")] {
        let dir = match mount_image(&node.pod_dir(), name, layers) {
            Err(VolumeError::System { step: "mount", errno, .. }) => {
                println!("skipped: no overlayfs ({errno})");
                return;
            }
            made => made.unwrap(),
        };
        assert_eq!(fs::read_to_string(dir.join("both")).unwrap(), both);
        let error = fs::write(dir.join("new"), "").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let error = std::process::Command::new(dir.join("true")).status().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(mount_image(&node.pod_dir(), name, layers).unwrap(), dir, "not mounted twice");
    }
    teardown(&node.pod_dir()).unwrap();
    assert!(layers[0].join("true").exists());
}

#[test]
fn two_writers_of_one_volume_do_not_harm_each_other() {
    let mut node = Node::new();
    let mut map = ConfigMap::default();
    map.metadata.name = "m".into();
    node.maps.push(map);
    let write = |node: &Node| node.volumes("[{name: c, configMap: {name: m}}]", "").unwrap().remove(0);
    for round in 0..20 {
        node.maps[0].data.insert("round".into(), round.to_string());
        let node = &node;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(move || write(node))).collect();
            threads.into_iter().for_each(|t| drop(t.join().unwrap()));
        });
        assert_eq!(content(&write(node)), texts(&[("round", &round.to_string())]));
    }
}
