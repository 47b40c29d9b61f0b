//! A load that is killed at any moment leaves a store that is right, and memory does not grow with a layer.
//! The work runs in a child: this program again, with one test and its order in the environment.

mod image_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use image_support::{Entry, Folder, PLAIN, Tar, describe};
use podkeep::image::load::load;
use podkeep::image::pack::{PackOrder, PackSource, pack};
use podkeep::image::{Digest, Progress, Store};
use podkeep_core::image::Platform;

const ORDER: &str = "PODKEEP_TEST_LOAD";

fn amd64() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: String::new() }
}

fn store(state: &Path) -> Store {
    Store::open_for(state, amd64()).unwrap()
}

/// Not a test of its own: what the child does. Prints a line a step, and its peak memory at the end.
#[test]
fn child_loads() {
    let Ok(order) = std::env::var(ORDER) else {
        println!("skipped: only run by the tests beside it");
        return;
    };
    let (state, path) = order.split_once('\n').unwrap();
    let progress =
        Progress::with_listener(Box::new(|step| eprintln!("step {} {}", step.layers_done, step.bytes)));
    load(&store(Path::new(state)), Path::new(path), Some("demo"), &progress).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    eprintln!("peak {}", peak.trim().strip_suffix(" kB").unwrap());
}

fn start_child(state: &Path, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_loads", "--nocapture"])
        .env(ORDER, format!("{}\n{}", state.display(), path.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Three layers, as `docker save` wrote them, each of some size and with many small files.
fn three_layers(folder: &Folder) -> PathBuf {
    let mut tar = Tar::default();
    let mut diff_ids = Vec::new();
    for number in 0..3 {
        let mut layer = Tar::default();
        layer.folder(&format!("dir{number}/"), 0o750);
        let big = vec![b'a' + number; 900_000];
        layer.add(&Entry { name: format!("big{number}").as_bytes(), data: &big, ..PLAIN });
        for file in 0..150 {
            layer.file(&format!("dir{number}/sub{}/{file}", file % 7), &format!("{number} {file}"));
        }
        let layer = layer.end();
        diff_ids.push(format!("\"{}\"", Digest::of(&layer)));
        tar.add(&Entry { name: format!("{number}.tar").as_bytes(), data: &layer, ..PLAIN });
    }
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["/x"]}},"rootfs":{{"diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    );
    let file = format!("{}.json", Digest::of(config.as_bytes()).hex());
    tar.file(&file, &config);
    let manifest = format!(r#"[{{"Config":"{file}","Layers":["0.tar","1.tar","2.tar"]}}]"#);
    tar.file("manifest.json", &manifest);
    std::fs::write(folder.join("image.tar"), tar.end()).unwrap();
    folder.join("image.tar")
}

fn layer_trees(store: &Store) -> BTreeMap<String, BTreeMap<String, String>> {
    let entries = std::fs::read_dir(store.root().join("layers")).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|path| path.is_dir());
    folders.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), describe(&path))).collect()
}

#[test]
fn killed_at_any_moment_the_store_is_right() {
    let folder = Folder::new("kill");
    let image = three_layers(&folder);
    let whole = store(&folder.join("whole"));
    load(&whole, &image, Some("demo"), &Progress::default()).unwrap();
    let expected = layer_trees(&whole);
    assert_eq!(expected.len(), 3);
    let mut outcomes = BTreeMap::new();
    for round in 0..14u32 {
        let state = folder.join(&format!("state{round}"));
        let mut child = start_child(&state, &image);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        // after so many steps, and a little later each time: between two steps lies all the rest
        let steps = lines.by_ref().filter(|line| line.starts_with("step")).take(1 + round as usize).count();
        std::thread::sleep(Duration::from_micros(u64::from(round % 5) * 700));
        child.kill().unwrap();
        child.wait().unwrap();

        let after = store(&state);
        assert_eq!(std::fs::read_dir(after.root().join("tmp")).unwrap().count(), 0, "after {steps} steps");
        for (name, tree) in layer_trees(&after) {
            assert_eq!(tree, expected[&name], "after {steps} steps: a layer that is there is whole");
        }
        let found = after.get("demo").unwrap().is_some();
        *outcomes.entry((layer_trees(&after).len(), found)).or_insert(0) += 1;
        load(&after, &image, Some("demo"), &Progress::default()).unwrap();
        assert_eq!(layer_trees(&after), expected);
        assert!(after.get("demo").unwrap().is_some());
    }
    println!("layers there, image there → how often: {outcomes:?}");
    assert!(outcomes.len() >= 2, "the kills all met the same moment: {outcomes:?}");
}

#[test]
fn memory_does_not_grow_with_the_layer() {
    let folder = Folder::new("memory");
    let peak = |megabytes: u64| -> u64 {
        let source = folder.join(&format!("source{megabytes}"));
        std::fs::create_dir(&source).unwrap();
        let mut file = std::fs::File::create(source.join("big")).unwrap();
        std::io::copy(&mut std::io::repeat(b'x').take(megabytes << 20), &mut file).unwrap();
        let archive = folder.join(&format!("{megabytes}.tar"));
        let order = PackOrder {
            sources: vec![PackSource::parse(source.to_str().unwrap())],
            platform: amd64(),
            ..PackOrder::default()
        };
        pack(&order, &archive).unwrap();
        let child =
            start_child(&folder.join(&format!("state{megabytes}")), &archive).wait_with_output().unwrap();
        let text = String::from_utf8(child.stderr).unwrap();
        assert!(child.status.success(), "{text}");
        text.lines().find_map(|line| line.strip_prefix("peak ")).unwrap().trim().parse().unwrap()
    };
    let (small, large) = (peak(1), peak(96));
    println!("peak of the whole test program: 1 MiB layer {small} kB, 96 MiB layer {large} kB");
    assert!(large < small + 2048, "{small} kB, {large} kB");
}
