//! Images from layouts and archives, of our own and of other tools, come into the store whole or not at all.

mod image_support;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image_support::{Folder, Tar, describe, has, is_root, run};
use podkeep::image::load::load;
use podkeep::image::pack::{PackOrder, PackSource, pack};
use podkeep::image::{Digest, ImageConfig, ImageError, Origin, Progress, Store};
use podkeep_core::image::Platform;
use podkeep_hal::linux::sys::fxattr;

fn amd64() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: String::new() }
}

fn store(folder: &Folder) -> Store {
    Store::open_for(&folder.join("state"), amd64()).unwrap()
}

fn order(source: &Path) -> PackOrder {
    PackOrder {
        sources: vec![PackSource::parse(source.to_str().unwrap())],
        config: ImageConfig {
            entrypoint: vec!["/bin/hello".into()],
            cmd: vec!["world".into()],
            env: vec!["A=1".into()],
            working_dir: "/data".into(),
            user: "65534:100".into(),
            ..ImageConfig::default()
        },
        platform: amd64(),
        ..PackOrder::default()
    }
}

/// A folder with one of everything.
fn source(folder: &Folder) -> PathBuf {
    let root = folder.join("source");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::create_dir_all(root.join("data/deep/er")).unwrap();
    std::fs::write(root.join("bin/hello"), "#!/bin/sh\necho hello\n").unwrap();
    std::fs::hard_link(root.join("bin/hello"), root.join("bin/hallo")).unwrap();
    std::os::unix::fs::symlink("hello", root.join("bin/hi")).unwrap();
    std::fs::write(root.join("data/deep/er/big"), vec![7; 300_000]).unwrap();
    root
}

fn pack_one(folder: &Folder, out: &str) -> PathBuf {
    let out = folder.join(out);
    pack(&order(&source(folder)), &out).unwrap();
    out
}

fn load_as(store: &Store, path: &Path, name: &str) -> Result<Vec<String>, ImageError> {
    load(store, path, Some(name), &Progress::default())
}

fn layers_in(store: &Store) -> Vec<String> {
    let entries = std::fs::read_dir(store.root().join("layers")).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".json"));
    names
}

fn is_tidy(store: &Store) -> bool {
    std::fs::read_dir(store.root().join("tmp")).unwrap().next().is_none()
}

#[test]
fn packed_image_is_found_by_any_way_of_writing_its_name() {
    let folder = Folder::new("load");
    let archive = pack_one(&folder, "demo.tar");
    let store = store(&folder);
    assert_eq!(load_as(&store, &archive, "demo").unwrap(), ["docker.io/library/demo:latest"]);
    let image = store.get("demo").unwrap().unwrap();
    for name in [
        "demo:latest",
        "docker.io/demo",
        "docker.io/library/demo:latest",
        &image.id.to_string(),
        &image.id.hex(),
    ] {
        assert_eq!(store.get(name).unwrap().unwrap().id, image.id, "{name}");
    }
    let by_digest = format!("quay.io/any/where@{}", image.manifest.unwrap());
    assert_eq!(store.get(&by_digest).unwrap().unwrap().id, image.id);
    assert_eq!(store.get("demo:other").unwrap(), None);
    assert_eq!(image.config.entrypoint, ["/bin/hello"]);
    assert_eq!((image.config.user.as_str(), image.config.working_dir.as_str()), ("65534:100", "/data"));
    assert_eq!(image.size, 300_000 + 21);
    assert_eq!(std::fs::read(image.layers[0].join("bin/hallo")).unwrap(), b"#!/bin/sh\necho hello\n");
    assert!(is_tidy(&store));
}

#[test]
fn local_build_is_found_by_its_short_name() {
    let folder = Folder::new("local");
    let archive = pack_one(&folder, "demo.tar");
    let store = store(&folder);
    load_as(&store, &archive, "localhost/demo:v1").unwrap();
    assert_eq!(store.get("demo:v1").unwrap().unwrap().name, "localhost/demo:v1");
    assert_eq!(store.get("quay.io/demo:v1").unwrap(), None);
    assert_eq!(store.remove("demo:v1", &BTreeSet::new()).unwrap(), ["localhost/demo:v1"]);
}

#[test]
fn packing_gives_the_same_bytes_each_time() {
    let folder = Folder::new("again");
    let first = std::fs::read(pack_one(&folder, "a.tar")).unwrap();
    let source = folder.join("source");
    std::fs::rename(&source, folder.join("old")).unwrap();
    assert_eq!(first, std::fs::read(pack_one(&folder, "b.tar")).unwrap());
}

#[test]
fn folder_archive_and_compressed_archive_are_the_same_image() {
    let folder = Folder::new("forms");
    let archive = pack_one(&folder, "demo.tar");
    std::fs::create_dir(folder.join("layout")).unwrap();
    let layout = folder.join("layout");
    pack(&order(&folder.join("source")), &layout).unwrap();
    run("sh", &["-c", &format!("gzip -k {}", archive.display())]);
    let store = store(&folder);
    let mut ids = BTreeSet::new();
    for (path, name) in [(archive, "a"), (layout, "b"), (folder.join("demo.tar.gz"), "c")] {
        load_as(&store, &path, name).unwrap();
        ids.insert(store.get(name).unwrap().unwrap().id);
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(layers_in(&store).len(), 1, "the layer is there once");
}

/// All four forms of skopeo, podman's own and the outer compression.
#[test]
fn archives_of_other_tools_load() {
    if !has("skopeo") {
        return;
    }
    let folder = Folder::new("foreign");
    let layout = folder.join("layout");
    std::fs::create_dir(&layout).unwrap();
    pack(&PackOrder { name: Some("demo:v1".into()), ..order(&source(&folder)) }, &layout).unwrap();
    let from = format!("oci:{}:v1", layout.display());
    let store = store(&folder);
    let expected =
        load_as(&store, &layout, "expected").map(|_| store.get("expected").unwrap().unwrap()).unwrap();
    for (form, path) in [("docker-archive", "d.tar"), ("oci-archive", "o.tar"), ("oci", "o")] {
        let path = folder.join(path);
        let to = match form {
            "oci" => format!("oci:{}:v2", path.display()),
            _ => format!("{form}:{}:docker.io/library/demo:v2", path.display()),
        };
        run("skopeo", &["copy", "-q", &from, &to]);
        load_as(&store, &path, form).unwrap();
        let image = store.get(form).unwrap().unwrap();
        assert_eq!(image.config, expected.config, "{form}");
        assert_eq!(image.layers, expected.layers, "{form}");
    }
    assert_eq!(
        load(&store, &folder.join("d.tar"), None, &Progress::default()).unwrap(),
        ["docker.io/library/demo:v2"]
    );
    run("gzip", &["-k", folder.join("d.tar").to_str().unwrap()]);
    load_as(&store, &folder.join("d.tar.gz"), "dgz").unwrap();
    assert_eq!(store.get("dgz").unwrap().unwrap().layers, expected.layers);
}

/// Layers in zstd, as skopeo makes them, and an archive compressed as a whole.
#[cfg(feature = "zstd")]
#[test]
fn zstd_layers_load() {
    if !has("skopeo") || !has("zstd") {
        return;
    }
    let folder = Folder::new("zstd");
    let plain = folder.join("plain");
    std::fs::create_dir(&plain).unwrap();
    pack(&PackOrder { name: Some("demo:v1".into()), ..order(&source(&folder)) }, &plain).unwrap();
    let store = store(&folder);
    load_as(&store, &plain, "expected").unwrap();
    let expected = store.get("expected").unwrap().unwrap();
    let other = Store::open_for(&folder.join("other"), amd64()).unwrap();
    for format in ["zstd", "zstd:chunked"] {
        let to = folder.join(&format.replace(':', "-"));
        let (from, target) = (format!("oci:{}:v1", plain.display()), format!("oci:{}:v1", to.display()));
        run("skopeo", &["copy", "-q", "--dest-compress-format", format, &from, &target]);
        let blobs = std::fs::read_dir(to.join("blobs/sha256")).unwrap();
        let starts: Vec<Vec<u8>> =
            blobs.map(|b| std::fs::read(b.unwrap().path()).unwrap()[..4].to_vec()).collect();
        assert!(starts.iter().any(|start| start == b"\x28\xb5\x2f\xfd"), "{format} made no zstd layer");
        load_as(&other, &to, "z").unwrap();
        let image = other.get("z").unwrap().unwrap();
        assert_eq!(describe(&image.layers[0]), describe(&expected.layers[0]));
        other.remove("z", &BTreeSet::new()).unwrap();
    }
    let archive = folder.join("whole.tar");
    pack(&order(&folder.join("source")), &archive).unwrap();
    run("zstd", &["-q", archive.to_str().unwrap()]);
    load_as(&other, &folder.join("whole.tar.zst"), "w").unwrap();
}

/// The oldest form, layers twice through a link, made by hand as `docker save` did it.
#[test]
fn old_docker_save_archive_with_linked_layers_loads() {
    let folder = Folder::new("oldsave");
    let layer = Tar::default().file("hello", "world").end();
    let diff = Digest::of(&layer);
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["/hello"]}},"rootfs":{{"type":"layers","diff_ids":["{diff}","{diff}"]}}}}"#
    );
    let id = Digest::of(config.as_bytes());
    let manifest = format!(
        r#"[{{"Config":"{}.json","RepoTags":["demo:old"],"Layers":["one/layer.tar","two/layer.tar"]}}]"#,
        id.hex()
    );
    let mut tar = Tar::default();
    tar.add(&image_support::Entry { name: b"one/layer.tar", data: &layer, ..image_support::PLAIN });
    tar.symlink("two/layer.tar", "../one/layer.tar")
        .file(&format!("{}.json", id.hex()), &config)
        .file("manifest.json", &manifest);
    std::fs::write(folder.join("old.tar"), tar.end()).unwrap();
    let store = store(&folder);
    assert_eq!(
        load(&store, &folder.join("old.tar"), None, &Progress::default()).unwrap(),
        ["docker.io/library/demo:old"]
    );
    let image = store.get("demo:old").unwrap().unwrap();
    assert_eq!((image.id, image.layers.len()), (id, 1), "overlayfs takes no folder twice");
    assert_eq!(std::fs::read(image.layers[0].join("hello")).unwrap(), b"world");
}

#[test]
fn one_of_several_images_is_chosen_by_its_name() {
    let folder = Folder::new("several");
    let layer = Tar::default().file("x", "").end();
    let mut tar = Tar::default();
    tar.add(&image_support::Entry { name: b"layer.tar", data: &layer, ..image_support::PLAIN });
    let mut items = Vec::new();
    for (tag, cmd) in [("docker.io/library/one:v1", "1"), ("localhost/two:latest", "2")] {
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["{cmd}"]}},"rootfs":{{"diff_ids":["{}"]}}}}"#,
            Digest::of(&layer)
        );
        let file = format!("{}.json", Digest::of(config.as_bytes()).hex());
        tar.file(&file, &config);
        items.push(format!(r#"{{"Config":"{file}","RepoTags":["{tag}"],"Layers":["layer.tar"]}}"#));
    }
    tar.file("manifest.json", &format!("[{}]", items.join(",")));
    std::fs::write(folder.join("two.tar"), tar.end()).unwrap();
    let store = store(&folder);
    for (name, cmd) in [("one:v1", "1"), ("two", "2"), ("localhost/two", "2")] {
        load_as(&store, &folder.join("two.tar"), name).unwrap();
        assert_eq!(store.get(name).unwrap().unwrap().config.cmd, [cmd], "{name}");
    }
    for name in [None, Some("three")] {
        let error = load(&store, &folder.join("two.tar"), name, &Progress::default()).unwrap_err();
        assert!(matches!(&error, ImageError::Ambiguous { names, .. } if names.len() == 2), "{error:?}");
    }
}

/// The same layers through umoci give the same tree, file by file.
#[test]
fn tree_is_the_one_umoci_unpacks() {
    if !is_root() || !has("umoci") || !has("skopeo") {
        return;
    }
    let folder = Folder::new("umoci");
    let layout = folder.join("layout");
    let layout_text = layout.to_str().unwrap().to_owned();
    run("umoci", &["init", "--layout", &layout_text]);
    let image = format!("{layout_text}:v1");
    run("umoci", &["new", "--image", &image]);
    let rich = folder.join("rich.tar");
    let script = r"
        set -e; mkdir -p $1/t && cd $1/t && umask 022
        mkdir -p usr/bin usr/lib var/empty tmp && chmod 1777 tmp && chmod 700 var/empty
        echo a > usr/bin/a; chmod 4755 usr/bin/a; ln usr/bin/a usr/bin/b; ln -s ../bin/a usr/lib/link; ln -s usr/lib lib
        mknod usr/null c 1 3; mkfifo usr/pipe; chown -R 12:34 usr/lib; chown -h 5:6 lib; truncate -s 5000000 usr/lib/sparse
        head -c 200000 /dev/urandom > var/random
        find . -exec touch -h -d @1000000000.5 {} +";
    run("sh", &["-c", script, "sh", folder.0.to_str().unwrap()]);
    let file = std::fs::File::open(folder.join("t/usr/bin/a")).unwrap();
    let ping = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    fxattr::set(file.as_fd(), c"user.note", b"hello").unwrap();
    fxattr::set(file.as_fd(), c"security.capability", &ping).unwrap();
    let (tree, tar) = (folder.join("t"), rich.to_str().unwrap());
    let options = [
        "--format=posix",
        "--xattrs",
        "--xattrs-include=*",
        "--numeric-owner",
        "-cf",
        tar,
        "-C",
        tree.to_str().unwrap(),
        ".",
    ];
    run("tar", &options);
    run("umoci", &["raw", "add-layer", "--image", &image, rich.to_str().unwrap()]);
    let bundle = folder.join("bundle");
    run("umoci", &["unpack", "--image", &image, bundle.to_str().unwrap()]);
    let store = store(&folder);
    load_as(&store, &layout, "rich").unwrap();
    let record = store.get("rich").unwrap().unwrap();
    assert_eq!(record.layers.len(), 1);
    let (ours, theirs) = (describe(&record.layers[0]), describe(&bundle.join("rootfs")));
    assert!(ours.len() >= 15 && ours["/usr/bin/a"].contains("security.capability"), "{ours:?}");
    for (path, line) in &theirs {
        assert_eq!(ours.get(path), Some(line), "{path}");
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn platform_decides_and_a_foreign_one_is_refused() {
    let folder = Folder::new("platform");
    let layout = folder.join("layout");
    std::fs::create_dir(&layout).unwrap();
    let source = source(&folder);
    let mut indexes = Vec::new();
    for (architecture, variant) in [("arm", "v6"), ("arm", "v7"), ("amd64", "")] {
        let mut order = order(&source);
        order.platform.architecture = architecture.into();
        order.platform.variant = variant.into();
        order.config.cmd = vec![format!("{architecture}{variant}")];
        pack(&order, &layout).unwrap();
        let index: serde_json::Value =
            serde_json::from_slice(&std::fs::read(layout.join("index.json")).unwrap()).unwrap();
        indexes.push(index["manifests"][0].clone());
    }
    let index = serde_json::json!({"schemaVersion": 2, "manifests": indexes});
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
    for (architecture, variant, cmd) in
        [("arm", "v7", "armv7"), ("arm", "v6", "armv6"), ("amd64", "", "amd64"), ("arm64", "v8", "armv7")]
    {
        let platform =
            Platform { os: "linux".into(), architecture: architecture.into(), variant: variant.into() };
        let store = Store::open_for(&folder.join(&format!("{architecture}{variant}")), platform).unwrap();
        load_as(&store, &layout, "multi").unwrap();
        assert_eq!(store.get("multi").unwrap().unwrap().config.cmd, [cmd]);
    }
    let riscv = Platform { os: "linux".into(), architecture: "riscv64".into(), variant: String::new() };
    let store = Store::open_for(&folder.join("riscv"), riscv).unwrap();
    let error = load_as(&store, &layout, "multi").unwrap_err();
    assert!(error.to_string().contains("no image for linux/riscv64; offered are linux/arm/v6"), "{error}");
}

#[test]
fn damage_anywhere_leaves_no_image() {
    let folder = Folder::new("damage");
    let layout = folder.join("layout");
    std::fs::create_dir(&layout).unwrap();
    pack(&order(&source(&folder)), &layout).unwrap();
    let store = store(&folder);
    for blob in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x20;
        for bad in [flipped, whole[..whole.len() - 1].to_vec(), Vec::new()] {
            std::fs::write(&path, bad).unwrap();
            let error = load_as(&store, &layout, "demo").unwrap_err();
            assert!(matches!(error, ImageError::DigestMismatch { .. }), "{}: {error:?}", path.display());
            assert_eq!(store.get("demo").unwrap(), None);
            assert!(is_tidy(&store) && layers_in(&store).is_empty());
        }
        std::fs::write(&path, whole).unwrap();
    }
    load_as(&store, &layout, "demo").unwrap();
}

#[test]
fn leftovers_are_dropped_and_damaged_index_files_are_set_aside() {
    let folder = Folder::new("leftover");
    let archive = pack_one(&folder, "demo.tar");
    let first = store(&folder);
    load_as(&first, &archive, "one").unwrap();
    load_as(&first, &archive, "two").unwrap();
    // as a power cut in the middle of a layer and of a small file leaves it
    let half = first.root().join("tmp").join(Digest::of(b"half").file_name());
    std::fs::create_dir_all(half.join("root/etc")).unwrap();
    std::fs::write(half.join("root/etc/passwd"), "half").unwrap();
    std::fs::write(first.root().join("names/.tmp-1-1"), "{").unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(first.root().join("names")).unwrap().map(|e| e.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some());
    names.sort();
    let victim = std::fs::read_to_string(&names[0]).unwrap();
    std::fs::write(&names[0], "garbage").unwrap();
    let (lost, kept) = if victim.contains("/one:") { ("one", "two") } else { ("two", "one") };

    let second = store(&folder);
    assert!(is_tidy(&second));
    assert!(!second.root().join("names/.tmp-1-1").exists());
    assert_eq!(second.get(lost).unwrap(), None);
    assert!(second.get(kept).unwrap().is_some());
    assert_eq!(std::fs::read_dir(second.root().join("bad")).unwrap().count(), 1);
    load_as(&second, &archive, lost).unwrap();
    assert!(second.get(lost).unwrap().is_some());
}

#[test]
fn removing_keeps_what_others_use() {
    let folder = Folder::new("remove");
    let archive = pack_one(&folder, "demo.tar");
    let other = folder.join("other.tar");
    pack(&PackOrder { config: ImageConfig::default(), ..order(&folder.join("source")) }, &other).unwrap();
    let store = store(&folder);
    load_as(&store, &archive, "a").unwrap();
    load_as(&store, &archive, "a2").unwrap();
    load_as(&store, &other, "b").unwrap();
    let image = store.get("a").unwrap().unwrap();
    assert_eq!(store.list().unwrap().iter().map(|i| i.names.len()).collect::<Vec<_>>(), [2, 1]);
    let in_use: BTreeSet<String> = [image.id.to_string()].into();
    store.remove("a", &in_use).unwrap();
    assert_eq!(store.remove("a2", &in_use).unwrap_err(), ImageError::InUse { name: "a2".into() });
    store.remove("a2", &BTreeSet::new()).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(layers_in(&store).len(), 1, "b has the same layer");
    assert!(matches!(store.remove("a", &BTreeSet::new()), Err(ImageError::NotFound { .. })));
    store.remove(&store.get("b").unwrap().unwrap().id.to_string(), &BTreeSet::new()).unwrap();
    assert!(layers_in(&store).is_empty() && store.list().unwrap().is_empty());
    for folder in ["configs", "manifests", "names", "layers"] {
        assert_eq!(std::fs::read_dir(store.root().join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn two_loads_at_once_unpack_a_layer_once() {
    let folder = Folder::new("parallel");
    let archive = pack_one(&folder, "demo.tar");
    let store = store(&folder);
    let bytes: Vec<u64> = std::thread::scope(|scope| {
        let work = |name: &'static str| {
            let (store, archive) = (store.clone(), archive.clone());
            scope.spawn(move || {
                let progress = Progress::default();
                load(&store, &archive, Some(name), &progress).unwrap();
                progress.step().bytes
            })
        };
        let workers = ["a", "b", "c", "d"].map(work);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(bytes.iter().filter(|bytes| **bytes > 0).count(), 1, "{bytes:?}");
    for name in ["a", "b", "c", "d"] {
        assert!(store.get(name).unwrap().is_some());
    }
    assert!(is_tidy(&store));
}

#[test]
fn cancelled_load_leaves_nothing() {
    let folder = Folder::new("cancel");
    let archive = pack_one(&folder, "demo.tar");
    let store = store(&folder);
    let progress = Arc::new(Progress::default());
    progress.cancel();
    assert_eq!(load(&store, &archive, Some("a"), &progress), Err(ImageError::Cancelled));
    assert!(is_tidy(&store) && layers_in(&store).is_empty());
}

#[test]
fn full_disk_is_a_typed_answer_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("full");
    let source = source(&folder);
    // 24 MiB that do not compress
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    let mut big = std::fs::File::create(source.join("big")).unwrap();
    std::io::copy(&mut std::io::Read::take(&mut random, 24 << 20), &mut big).unwrap();
    let archive = folder.join("big.tar");
    pack(&order(&source), &archive).unwrap();
    let disk = folder.join("disk");
    std::fs::create_dir(&disk).unwrap();
    for size in ["size=16m", "size=28m"] {
        nix::mount::mount(Some("tmpfs"), &disk, Some("tmpfs"), nix::mount::MsFlags::empty(), Some(size))
            .unwrap();
        let outcome = std::panic::catch_unwind(|| {
            let store = Store::open_for(&disk, amd64()).unwrap();
            let error = load_as(&store, &archive, "big").unwrap_err();
            assert!(matches!(error, ImageError::NoSpace { .. }), "{size}: {error:?}");
            assert!(is_tidy(&store) && layers_in(&store).is_empty());
        });
        nix::mount::umount(&disk).unwrap();
        outcome.unwrap();
    }
}

#[test]
fn wrong_files_are_explained() {
    let folder = Folder::new("wrong");
    let store = store(&folder);
    let explain = |path: &Path| load_as(&store, path, "x").unwrap_err().to_string();
    std::fs::write(folder.join("text"), "hello".repeat(200)).unwrap();
    assert!(explain(&folder.join("text")).contains("is not an image"), "{}", explain(&folder.join("text")));
    std::fs::write(folder.join("empty"), "").unwrap();
    assert!(explain(&folder.join("empty")).contains("neither index.json nor manifest.json"));
    assert!(
        explain(&folder.join("missing")).contains("No such file"),
        "{}",
        explain(&folder.join("missing"))
    );
    std::fs::create_dir(folder.join("dir")).unwrap();
    assert!(explain(&folder.join("dir")).contains("neither index.json"));
    std::fs::write(folder.join("dir/index.json"), "{\n  \"manifests\": [}").unwrap();
    assert!(
        explain(&folder.join("dir")).starts_with("index.json: line 2, column 17"),
        "{}",
        explain(&folder.join("dir"))
    );
    nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert!(explain(&folder.join("pipe")).contains("neither a folder nor a file"));
}

#[test]
fn pinned_mark_and_origin_are_listed() {
    let folder = Folder::new("pin");
    let archive = pack_one(&folder, "demo.tar");
    let store = store(&folder);
    load_as(&store, &archive, "a").unwrap();
    store.set_pinned("a", true).unwrap();
    load_as(&store, &archive, "a").unwrap();
    let list = store.list().unwrap();
    assert!(list[0].pinned && list[0].source == Origin::Loaded && list[0].problem.is_empty());
    assert_eq!(list[0].created.as_deref(), Some("1970-01-01T00:00:00Z"));
    assert!(store.set_pinned("nobody", true).is_err());
}
