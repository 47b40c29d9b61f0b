//! Layers unpack to the tree they describe, and nothing they say reaches outside their folder.

mod image_support;

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use image_support::{Entry, Folder, PLAIN, Tar, describe, is_root};
use podkeep::image::ImageError;
use podkeep::image::tar_stream::Plain;
use podkeep::image::unpack::{Unpacked, unpack};
use proptest::prelude::*;

fn unpack_into(tar: &[u8], root: &Path) -> Result<Unpacked, ImageError> {
    std::fs::create_dir_all(root).unwrap();
    let folder: OwnedFd = std::fs::File::open(root).unwrap().into();
    unpack(Plain(tar), folder).map(|(done, _)| done)
}

/// Unpacks beside a folder that must stay as it is.
fn unpack_watched(tar: &[u8]) -> (Folder, Result<Unpacked, ImageError>) {
    let folder = Folder::new("unpack");
    let outside = folder.join("outside");
    std::fs::create_dir_all(outside.join("etc")).unwrap();
    std::fs::write(outside.join("etc/passwd"), "untouched").unwrap();
    std::fs::write(folder.join("passwd"), "untouched").unwrap();
    let before = (describe(&outside), std::fs::read(folder.join("passwd")).unwrap());
    let done = unpack_into(tar, &folder.join("root"));
    assert_eq!(before, (describe(&outside), std::fs::read(folder.join("passwd")).unwrap()));
    let mut names: Vec<_> = std::fs::read_dir(&folder.0)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["outside", "passwd", "root"]);
    (folder, done)
}

fn text(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.join("root").join(name)).unwrap()
}

fn refusal(tar: &mut Tar) -> String {
    unpack_watched(&tar.end()).1.unwrap_err().to_string()
}

#[test]
fn modes_owners_times_and_links_are_kept() {
    if !is_root() {
        return;
    }
    let mut tar = Tar::default();
    tar.folder("./", 0o751).folder("bin/", 0o1777);
    tar.add(&Entry { name: b"bin/su", mode: 0o4755, uid: 70_000, data: b"suid", mtime: 1_234_567, ..PLAIN });
    tar.hard_link("bin/same", "bin/su").symlink("bin/sh", "/bin/su").symlink("bin/dangling", "../../../x");
    tar.add(&Entry { kind: b'3', name: b"null", mode: 0o666, device: (1, 3), ..PLAIN });
    tar.add(&Entry { kind: b'6', name: b"pipe", mode: 0o600, uid: 7, ..PLAIN });
    tar.pax(&[("mtime", b"-1.25"), ("SCHILY.xattr.user.note", b"a\0b"), ("path", "b\u{e4}r".as_bytes())])
        .file("short", "x");
    let (folder, done) = unpack_watched(&tar.end());
    assert_eq!(done.unwrap().bytes, 5);
    let lines = describe(&folder.join("root"));
    assert!(lines["/"].starts_with("40751 0:0 1000."), "{lines:?}");
    assert!(
        lines["/bin"].starts_with("41777 0:0 1000."),
        "folder times survive what is made in it: {lines:?}"
    );
    assert!(lines["/bin/su"].starts_with("104755 70000:70000 1234567.000000000 4 bytes"), "{lines:?}");
    assert!(lines["/bin/su"].ends_with("same as /bin/same"));
    assert!(lines["/bin/sh"].ends_with("-> /bin/su"));
    assert!(lines["/null"].starts_with("20666 0:0") && lines["/null"].ends_with("device 103"));
    assert!(lines["/pipe"].starts_with("10600 7:7 1000."));
    assert!(lines["/b\u{e4}r"].contains(" -2.750000000 1 bytes"), "{lines:?}");
    assert!(lines["/b\u{e4}r"].contains(r#"("user.note", [97, 0, 98])"#), "{lines:?}");
}

#[test]
fn whiteouts_become_what_overlayfs_reads() {
    if !is_root() {
        return;
    }
    let mut tar = Tar::default();
    tar.folder("etc/", 0o755).file("etc/.wh.gone", "").folder("opt/", 0o700).file("opt/.wh..wh..opq", "");
    tar.file("opt/new", "1").file(".wh..wh.plnk", "");
    // about the layers below only, whatever the order
    tar.file("kept", "k")
        .file(".wh.kept", "")
        .file(".wh.again", "")
        .folder("again/", 0o755)
        .file("again/x", "x");
    tar.folder("dir/", 0o755).file("dir/in", "i").file(".wh.dir", "");
    // a folder that comes without its own entry
    tar.file(".wh.implied", "").file("implied/x", "x");
    let (folder, done) = unpack_watched(&tar.end());
    done.unwrap();
    let lines = describe(&folder.join("root"));
    assert!(lines["/etc/gone"].contains("device 0"), "{lines:?}");
    for opaque in ["/opt", "/again", "/dir", "/implied"] {
        assert!(lines[opaque].contains(r#""trusted.overlay.opaque", [121]"#), "{opaque}: {lines:?}");
    }
    assert!(!lines["/etc"].contains("opaque"));
    assert_eq!(
        (text(&folder, "kept"), text(&folder, "dir/in"), text(&folder, "implied/x")),
        ("k".into(), "i".into(), "x".into())
    );
    assert!(!lines.keys().any(|name| name.contains(".wh.")), "{lines:?}");
}

#[test]
fn later_entries_replace_earlier_ones() {
    let mut tar = Tar::default();
    tar.file("a", "old")
        .file("a", "new")
        .folder("d/", 0o755)
        .file("d/x", "1")
        .folder("d/", 0o700)
        .file("e/f/g", "1");
    tar.file("e", "now a file")
        .symlink("l", "a")
        .file("l", "no longer a link")
        .file("h", "1")
        .hard_link("i", "h");
    tar.file("h", "2").hard_link("i", "i");
    let (folder, done) = unpack_watched(&tar.end());
    done.unwrap();
    assert_eq!(text(&folder, "a"), "new");
    assert_eq!(text(&folder, "d/x"), "1", "a folder over a folder merges");
    assert_eq!(std::fs::metadata(folder.join("root/d")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(text(&folder, "e"), "now a file");
    assert_eq!(text(&folder, "l"), "no longer a link");
    assert_eq!(
        (text(&folder, "h"), text(&folder, "i")),
        ("2".into(), "1".into()),
        "never written through a link"
    );
}

#[test]
fn paths_and_links_stay_inside() {
    let mut tar = Tar::default();
    tar.file("/abs", "1").file("../up", "2").file("x/../../../../y", "3");
    tar.symlink("out", "../outside").file("out/etc/passwd", "evil");
    tar.symlink("abs-out", "/outside").file("abs-out/etc/shadow", "evil");
    tar.symlink("dot", ".")
        .file("dot/dot/dot/here", "4")
        .symlink("usr-lib", "usr/lib")
        .file("usr-lib/so", "5");
    let (folder, done) = unpack_watched(&tar.end());
    done.unwrap();
    assert_eq!(
        (text(&folder, "abs"), text(&folder, "up"), text(&folder, "y")),
        ("1".into(), "2".into(), "3".into())
    );
    assert_eq!(text(&folder, "outside/etc/passwd"), "evil");
    assert_eq!(text(&folder, "outside/etc/shadow"), "evil");
    assert_eq!((text(&folder, "here"), text(&folder, "usr/lib/so")), ("4".into(), "5".into()));
}

#[test]
fn what_cannot_be_done_safely_is_refused() {
    assert!(refusal(Tar::default().hard_link("a", "../passwd")).contains("does not hold"));
    assert!(
        refusal(Tar::default().symlink("s", "../outside").hard_link("a", "s/etc/passwd"))
            .contains("does not hold")
    );
    assert!(
        refusal(Tar::default().folder("d/", 0o755).hard_link("a", "d")).contains("hard link to a folder")
    );
    assert!(refusal(Tar::default().hard_link("a", "/")).contains("hard link to the root"));
    assert!(
        refusal(Tar::default().symlink("a", "b").symlink("b", "a").file("a/x", ""))
            .contains("too many symlinks")
    );
    assert!(refusal(Tar::default().file("f", "").file("f/x", "")).contains("a file stands"));
    assert!(refusal(Tar::default().file(".wh..", "")).contains("whiteout"));
    assert!(refusal(Tar::default().file("d/.wh...", "")).contains("whiteout"));
    assert!(refusal(Tar::default().file(".", "")).contains("only a folder"));
    assert!(refusal(Tar::default().add(&Entry { kind: b'Z', name: b"z", ..PLAIN })).contains("type"));
    assert!(refusal(Tar::default().file(&"d/".repeat(300), "x")).contains("inside one another"));
    assert!(refusal(Tar::default().file(&"d".repeat(5000), "x")).contains("too long"));
    assert!(refusal(Tar::default().pax(&[("path", b"a\0b")]).file("x", "x")).contains("NUL"));
    let mut header = tar::Header::new_gnu();
    header.set_size(1 << 62);
    header.as_old_mut().name[0] = b'x';
    assert!(refusal(Tar::default().add_raw(header, b"")).contains("larger than the file system"));
}

#[test]
fn damaged_streams_say_so() {
    let whole = Tar::default().file("a", &"x".repeat(2000)).end();
    for cut in [100, 511, 600, 2000] {
        let error = unpack_watched(&whole[..cut]).1.unwrap_err();
        assert!(matches!(error, ImageError::BadStream { .. }), "{cut}: {error:?}");
    }
    let mut flipped = whole.clone();
    flipped[3] ^= 1;
    assert!(unpack_watched(&flipped).1.unwrap_err().to_string().contains("checksum"));
    let mut long = tar::Header::new_gnu();
    long.set_entry_type(tar::EntryType::GNULongName);
    long.set_size(1 << 40);
    assert!(matches!(
        unpack_watched(&Tar::default().add_raw(long, b"").end()).1,
        Err(ImageError::TooLarge { .. })
    ));
}

#[test]
fn attributes_of_overlayfs_cannot_be_brought_in() {
    let mut tar = Tar::default();
    tar.pax(&[
        ("SCHILY.xattr.trusted.overlay.redirect", b"/../../../etc"),
        ("SCHILY.xattr.trusted.overlay.metacopy", b""),
        ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.security.selinux", b"system_u:object_r:etc_t:s0"),
        ("SCHILY.xattr.user.fine", b"1"),
    ]);
    tar.folder("d/", 0o755);
    let (folder, done) = unpack_watched(&tar.end());
    done.unwrap();
    let names: Vec<_> =
        image_support::xattrs(&folder.join("root/d")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["user.fine"]);
}

#[test]
fn sparse_files_keep_content_and_holes() {
    if !image_support::has("tar") {
        return;
    }
    let folder = Folder::new("sparse");
    let file = std::fs::File::create(folder.join("holes")).unwrap();
    use std::os::unix::fs::FileExt;
    for at in [0u64, 3 << 20, 17 << 20, 18 << 20, 33 << 20, 40 << 20, 50 << 20] {
        file.write_all_at(b"island", at + 7).unwrap();
    }
    file.set_len(1 << 30).unwrap();
    drop(file);
    let expected = std::fs::metadata(folder.join("holes")).unwrap();
    for format in [
        ["--format=gnu", "-S"].as_slice(),
        &["--format=posix", "-S", "--sparse-version=0.0"],
        &["--format=posix", "-S", "--sparse-version=0.1"],
        &["--format=posix", "-S", "--sparse-version=1.0"],
    ] {
        let archive = folder.join("a.tar");
        let root = folder.0.to_str().unwrap().to_owned();
        let mut args = format.to_vec();
        args.extend(["-cf", archive.to_str().unwrap(), "-C", &root, "holes"]);
        image_support::run("tar", &args);
        let tar = std::fs::read(&archive).unwrap();
        assert!(tar.len() < 1 << 20, "{format:?}");
        let out = folder.join(&format!("out{}", format.len() + format.last().unwrap().len()));
        unpack_into(&tar, &out).unwrap();
        let made = std::fs::metadata(out.join("holes")).unwrap();
        assert_eq!(made.len(), expected.len(), "{format:?}");
        assert!(made.blocks() * 512 < 1 << 21, "{format:?}: {} blocks", made.blocks());
        image_support::run(
            "cmp",
            &[folder.join("holes").to_str().unwrap(), out.join("holes").to_str().unwrap()],
        );
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn names_that_are_not_utf8_and_long_names_are_kept() {
    let long = format!("{}/{}", "d".repeat(150), "f".repeat(200));
    let mut tar = Tar::default();
    tar.add(&Entry { name: b"\xff\xfe\n", data: b"1", ..PLAIN })
        .file(&long, "2")
        .symlink("s", &"t/".repeat(200));
    let (folder, done) = unpack_watched(&tar.end());
    done.unwrap();
    use std::os::unix::ffi::OsStrExt;
    let odd = folder.join("root").join(std::ffi::OsStr::from_bytes(b"\xff\xfe\n"));
    assert_eq!(std::fs::read(odd).unwrap(), b"1");
    assert_eq!(text(&folder, &long), "2");
    assert_eq!(std::fs::read_link(folder.join("root/s")).unwrap().as_os_str().len(), 400);
}

fn names() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("a"),
        Just("b"),
        Just("link"),
        Just(".."),
        Just("."),
        Just(""),
        Just(".wh.a"),
        Just(".wh..wh..opq"),
        Just(".wh.."),
        Just("outside"),
        Just("etc"),
        Just("passwd"),
        Just(".wh.link")
    ];
    (any::<bool>(), prop::collection::vec(part, 1..5))
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of entries that know the place: `unpack_watched` checks that nothing outside changed.
    #[test]
    fn no_archive_changes_anything_outside(
        entries in prop::collection::vec((prop::sample::select(b"0125536xL".to_vec()), names(), names()), 1..24)
    ) {
        let mut tar = Tar::default();
        for (kind, name, link) in &entries {
            let data = if matches!(kind, b'0' | b'x' | b'L') { name.as_bytes() } else { b"" };
            tar.add(&Entry { kind: *kind, name: name.as_bytes(), link: link.as_bytes(), data, device: (0, 0), ..PLAIN });
        }
        drop(unpack_watched(&tar.end()));
    }

    /// Any bytes: an answer, never a panic.
    #[test]
    fn any_bytes_get_an_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..3000), fix in any::<bool>()) {
        if fix && bytes.len() >= 512 {
            let mut header = tar::Header::new_old();
            header.as_mut_bytes().copy_from_slice(&bytes[..512]);
            header.set_cksum();
            bytes[..512].copy_from_slice(header.as_bytes());
        }
        drop(unpack_watched(&bytes));
    }
}
