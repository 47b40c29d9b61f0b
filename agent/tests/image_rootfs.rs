//! Files of an image are seen as overlayfs shows them, and users resolved as the kubelet's runtimes do.

mod image_support;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use image_support::{Folder, Tar, is_root};
use podkeep::image::rootfs::read_file;
use podkeep::image::tar_stream::Plain;
use podkeep::image::unpack::unpack;
use podkeep::image::{ImageError, resolve_user};

fn layers(folder: &Folder, tars: &mut [Tar]) -> Vec<PathBuf> {
    tars.iter_mut()
        .enumerate()
        .map(|(number, tar)| {
            let root = folder.join(&number.to_string());
            std::fs::create_dir(&root).unwrap();
            let fd: OwnedFd = std::fs::File::open(&root).unwrap().into();
            unpack(Plain(tar.end().as_slice()), fd).unwrap();
            root
        })
        .collect()
}

/// Three layers with all the ways of hiding.
fn three(folder: &Folder) -> Vec<PathBuf> {
    let mut tars = [Tar::default(), Tar::default(), Tar::default()];
    tars[0].file("etc/passwd", "low").file("etc/gone", "low").file("opt/a", "low").file("opt/b", "low");
    tars[0].file("file", "low").file("dir/x", "low").symlink("link", "etc/passwd").symlink("abs", "/link");
    tars[0].symlink("up", "../../../etc/passwd").symlink("loop", "loop").file("swap/in", "low");
    tars[1].file("etc/.wh.gone", "").file("opt/.wh..wh..opq", "").file("opt/a", "mid").file(".wh.file", "");
    tars[1].file("dir", "now a file").file(".wh.swap", "").symlink("etc2", "etc");
    tars[2].file("etc/passwd", "top").file("file/below", "top").file("etc/own", "top");
    layers(folder, &mut tars)
}

#[test]
fn files_are_seen_through_layers_as_by_overlayfs() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("rootfs");
    let layers = three(&folder);
    let seen = |path: &str| {
        read_file(&layers, path, 1000).unwrap().map(|content| String::from_utf8(content).unwrap())
    };
    let expected = [
        ("/etc/passwd", Some("top")),
        ("etc/gone", None),
        ("/opt/a", Some("mid")),
        ("/opt/b", None),
        ("/file", None),
        ("/file/below", Some("top")),
        ("/dir", Some("now a file")),
        ("/dir/x", None),
        ("/link", Some("top")),
        ("/abs", Some("top")),
        ("/up", Some("top")),
        ("/etc2/own", Some("top")),
        ("/etc", None),
        ("/swap/in", None),
        ("/etc/passwd/x", None),
        ("/../etc/own", Some("top")),
    ];
    for (path, content) in expected {
        assert_eq!(seen(path).as_deref(), content, "{path}");
    }
    assert!(matches!(read_file(&layers, "/loop", 1000), Err(ImageError::BadEntry { .. })));
    assert!(matches!(read_file(&layers, "/etc/own", 2), Err(ImageError::TooLarge { .. })));

    // and the kernel agrees, where it has overlayfs
    let target = folder.join("merged");
    std::fs::create_dir(&target).unwrap();
    let lower: Vec<_> = layers.iter().rev().map(|layer| layer.to_str().unwrap()).collect();
    let options = format!("lowerdir={}", lower.join(":"));
    let flags = nix::mount::MsFlags::MS_RDONLY;
    if nix::mount::mount(Some("overlay"), &target, Some("overlay"), flags, Some(options.as_str())).is_err() {
        println!("skipped: this kernel or place has no overlayfs");
        return;
    }
    let by_kernel: Vec<_> = expected
        .iter()
        .filter(|(path, _)| !matches!(*path, "/abs" | "/up" | "/../etc/own"))
        .map(|(path, _)| (*path, std::fs::read_to_string(target.join(path.trim_start_matches('/'))).ok()))
        .collect();
    nix::mount::umount(&target).unwrap();
    for (path, content) in by_kernel {
        assert_eq!(seen(path), content, "{path}");
    }
}

#[test]
fn users_are_resolved_as_the_kubelet_does() {
    let folder = Folder::new("user");
    let mut tar = Tar::default();
    tar.file(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\n# comment\nbroken\nweb:x:33:44:w:/srv/web:/bin/false\n",
    );
    tar.file("etc/group", "root:x:0:\nwww:x:44:\nvideo:x:50:other,web\naudio:x:29:web\n");
    let layers = layers(&folder, &mut [tar]);
    let resolve = |user: &str, uid, gid| resolve_user(&layers, user, uid, gid).unwrap();

    let web = resolve("web", None, None);
    assert_eq!(
        (web.uid, web.gid, web.image_groups.as_slice(), web.home.as_str()),
        (33, 44, &[29, 50][..], "/srv/web")
    );
    assert!(web.by_name);
    let by_number = resolve("33:1000", None, None);
    assert_eq!(
        (by_number.uid, by_number.gid, by_number.by_name),
        (33, 44, false),
        "the image's group does not count"
    );
    assert_eq!(by_number.image_groups, [29, 50]);
    let unknown = resolve("999:999", None, None);
    assert_eq!((unknown.uid, unknown.gid, unknown.home.as_str(), unknown.name), (999, 0, "/", None));
    let root = resolve("", None, Some(7));
    assert_eq!((root.uid, root.gid, root.home.as_str()), (0, 7, "/root"));
    let manifest = resolve("web", Some(1000), Some(2000));
    assert_eq!((manifest.uid, manifest.gid, manifest.by_name), (1000, 2000, false));
    let error = resolve_user(&layers, "nobody", None, None).unwrap_err();
    assert_eq!(error, ImageError::NoUser { user: "nobody".into() });
    // no passwd at all: numbers still work
    assert_eq!(resolve_user(&[], "5", None, None).unwrap().uid, 5);
}
