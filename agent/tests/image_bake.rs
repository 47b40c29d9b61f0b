//! Images of a firmware partition are used in place, and loaded from layouts and archives when first wanted.

mod image_support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image_support::{Folder, describe, has, is_root, run};
use podkeep::image::bake::bake;
use podkeep::image::load::load;
use podkeep::image::pack::{PackOrder, PackSource, pack};
use podkeep::image::{ImageConfig, ImageError, ImageStore, Keyring, Origin, Progress, Store};
use podkeep_core::image::{Platform, PullPolicy};

fn amd64() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: String::new() }
}

fn archive(folder: &Folder, name: &str, content: &str) -> PathBuf {
    let source = folder.join(&format!("source-{name}"));
    std::fs::create_dir_all(source.join("etc")).unwrap();
    std::fs::write(source.join("etc/what"), content).unwrap();
    std::os::unix::fs::symlink("what", source.join("etc/link")).unwrap();
    let out = folder.join(&format!("{name}.tar"));
    let order = PackOrder {
        sources: vec![PackSource::parse(source.to_str().unwrap())],
        config: ImageConfig { cmd: vec![format!("/{name}")], ..ImageConfig::default() },
        name: Some(name.into()),
        platform: amd64(),
        ..PackOrder::default()
    };
    pack(&order, &out).unwrap();
    out
}

fn bake_two(folder: &Folder, out: &str) -> PathBuf {
    let out = folder.join(out);
    let sources =
        [(archive(folder, "a", "1"), None), (archive(folder, "b", "2"), Some("quay.io/x/b:v2".to_owned()))];
    let names = bake(&out, &sources, amd64(), &Progress::default()).unwrap();
    assert_eq!(names, ["docker.io/library/a:latest", "quay.io/x/b:v2"]);
    out
}

fn check_in_place(store: &Store, baked: &Path) {
    let image = store.get("a").unwrap().unwrap();
    assert!(image.layers[0].starts_with(baked), "{:?}", image.layers);
    assert!(image.pinned);
    assert_eq!(std::fs::read(image.layers[0].join("etc/what")).unwrap(), b"1");
    assert_eq!(store.verify(&image).unwrap(), 1);
    let list = store.list().unwrap();
    assert_eq!(
        list.iter().map(|i| (i.source, i.pinned, i.size)).collect::<Vec<_>>(),
        [(Origin::Baked, true, 1); 2]
    );
    assert_eq!(store.remove("a", &BTreeSet::new()), Err(ImageError::Baked { name: "a".into() }));
}

#[test]
fn baked_folder_is_used_in_place_and_pinned() {
    let folder = Folder::new("bake");
    let baked = bake_two(&folder, "baked");
    let before = describe(&baked);
    let store = Store::open_for(&folder.join("state"), amd64()).unwrap().with_baked(&baked).unwrap();
    check_in_place(&store, &baked);
    // its layers serve other images, too
    load(&store, &folder.join("a.tar"), Some("mine"), &Progress::default()).unwrap();
    let mine = store.get("mine").unwrap().unwrap();
    assert!(mine.layers[0].starts_with(&baked));
    // a name of the store wins, and removing it uncovers the baked one
    load(&store, &folder.join("b.tar"), Some("a"), &Progress::default()).unwrap();
    assert_eq!(store.get("a").unwrap().unwrap().config.cmd, ["/b"]);
    store.remove("a", &BTreeSet::new()).unwrap();
    check_in_place_again(&store, &baked);
    assert_eq!(before, describe(&baked), "nothing was written there");
}

fn check_in_place_again(store: &Store, baked: &Path) {
    assert!(store.get("a").unwrap().unwrap().layers[0].starts_with(baked));
}

#[test]
fn baking_twice_gives_the_same_tree() {
    let folder = Folder::new("twice");
    let first = bake_two(&folder, "one");
    for name in ["source-a", "source-b"] {
        std::fs::remove_dir_all(folder.join(name)).unwrap();
    }
    let second = bake_two(&folder, "two");
    let content = |root: &Path| {
        let mut lines = describe(root);
        // the folders of the store itself carry the time of the baking
        lines.retain(|path, _| path.contains("/layers/sha256-") || path.ends_with(".json"));
        lines
            .values_mut()
            .for_each(|line| *line = line.split(' ').filter(|word| !word.contains('.')).collect());
        lines
    };
    assert_eq!(content(&first), content(&second));
    let again = bake(&first, &[], amd64(), &Progress::default());
    assert!(matches!(again, Err(ImageError::Corrupt { .. })), "{again:?}");
}

#[test]
fn damaged_partition_is_found() {
    let folder = Folder::new("rot");
    let baked = bake_two(&folder, "baked");
    let store = Store::open_for(&folder.join("state"), amd64()).unwrap().with_baked(&baked).unwrap();
    let image = store.get("a").unwrap().unwrap();
    std::fs::write(image.layers[0].join("etc/what"), "X").unwrap();
    assert!(matches!(store.verify(&image), Err(ImageError::DigestMismatch { .. })));
    std::fs::remove_dir_all(&image.layers[0]).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
    let opened = Store::open_for(&folder.join("state"), amd64()).unwrap().with_baked(&baked);
    assert!(opened.unwrap_err().to_string().contains("is incomplete"));
    assert!(store.clone().with_baked(&folder.join("nowhere")).is_err());
}

/// A real squashfs, mounted read-only: needs the tool, root and a loop device.
#[test]
fn baked_folder_on_squashfs() {
    if !is_root() || !has("mksquashfs") || !Path::new("/dev/loop-control").exists() {
        println!("skipped: needs root, mksquashfs and loop devices");
        return;
    }
    let folder = Folder::new("squash");
    let baked = bake_two(&folder, "baked");
    let (image, target) = (folder.join("fs.img"), folder.join("mnt"));
    run("mksquashfs", &[baked.to_str().unwrap(), image.to_str().unwrap(), "-quiet", "-no-progress"]);
    std::fs::create_dir(&target).unwrap();
    let mounted =
        std::process::Command::new("mount").args(["-o", "loop,ro"]).args([&image, &target]).status().unwrap();
    if !mounted.success() {
        println!("skipped: this kernel mounts no squashfs");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let store = Store::open_for(&folder.join("state"), amd64()).unwrap().with_baked(&target).unwrap();
        check_in_place(&store, &target);
    });
    run("umount", &[target.to_str().unwrap()]);
    outcome.unwrap();
}

#[test]
fn archives_of_the_firmware_are_loaded_when_first_wanted() {
    let folder = Folder::new("preload");
    let paths = [archive(&folder, "a", "1"), archive(&folder, "b", "2"), folder.join("broken.tar")];
    std::fs::write(&paths[2], "rubbish".repeat(100)).unwrap();
    // one by its path, the others by their folder; a folder that is not there hurts nobody
    let inner = folder.join("images");
    std::fs::create_dir(&inner).unwrap();
    for path in &paths[1..] {
        std::fs::rename(path, inner.join(path.file_name().unwrap())).unwrap();
    }
    let store = Store::open_for(&folder.join("state"), amd64()).unwrap();
    let images = ImageStore::from(store).with_preloads(&[folder.join("none"), paths[0].clone(), inner]);
    smol::block_on(async {
        let ensure = |name: &'static str| {
            let images = images.clone();
            async move { images.ensure(name, PullPolicy::Never, &Keyring::default(), Arc::default()).await }
        };
        assert!(images.list().await.unwrap().is_empty());
        assert_eq!(ensure("b").await.unwrap().config.cmd, ["/b"]);
        assert_eq!(images.list().await.unwrap().len(), 1);
        assert!(matches!(ensure("c").await, Err(ImageError::NotFound { .. })));
    });
}
