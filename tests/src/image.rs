//! Images for tests, made here from static programs as OCI layout folders: no registry, no network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::trouble::{Doing, Result, Trouble};

/// A small image with a shell and the usual tools.
pub const BUSYBOX: &str = "registry.test/busybox:1";
/// The same and a small HTTP server that answers by the variable `ROUTES`.
pub const HTTPD: &str = "registry.test/httpd:1";
/// One program that writes down the time of its first instruction.
pub const STAMP: &str = "registry.test/stamp:1";

/// What an image says of how it is run.
#[derive(Clone, Debug, Default)]
pub struct RunConfig {
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub env: Vec<String>,
    pub user: String,
    pub working_dir: String,
    pub stop_signal: String,
}

/// One entry of a layer.
#[derive(Clone, Debug)]
enum Entry {
    Dir { mode: u32 },
    File { bytes: Vec<u8>, mode: u32 },
    Link { target: String },
}

/// A layer under construction; paths are relative to the root.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: BTreeMap<String, Entry>,
}

impl Layer {
    pub fn dir(&mut self, path: &str, mode: u32) -> &mut Self {
        self.entries.insert(path.into(), Entry::Dir { mode });
        self
    }

    pub fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>, mode: u32) -> &mut Self {
        self.entries.insert(path.into(), Entry::File { bytes: bytes.into(), mode });
        self
    }

    pub fn link(&mut self, path: &str, target: &str) -> &mut Self {
        self.entries.insert(path.into(), Entry::Link { target: target.into() });
        self
    }

    /// # Errors
    /// A path or a link is too long for the archive format.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(1_700_000_000);
            header.set_uid(0);
            header.set_gid(0);
            let done = match entry {
                Entry::Dir { mode } => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    tar.append_data(&mut header, format!("{path}/"), std::io::empty())
                }
                Entry::File { bytes, mode } => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, path, bytes.as_slice())
                }
                Entry::Link { target } => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    tar.append_link(&mut header, path, target)
                }
            };
            done.doing(path)?;
        }
        tar.into_inner().doing("archive")
    }

    /// Writes the entries as files below `root`, for programs that take an unpacked root folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn unpack(&self, root: &Path) -> Result<()> {
        tar::Archive::new(self.archive()?.as_slice()).unpack(root).doing(root.display())
    }
}

/// The static busybox of this machine and a link for each of its tools.
///
/// # Errors
/// There is no static busybox here.
pub fn busybox_layer() -> Result<Layer> {
    let program = fs::read("/bin/busybox").doing("/bin/busybox (package busybox-static)")?;
    let list = Command::new("/bin/busybox").arg("--list").output().doing("busybox --list")?;
    let mut layer = Layer::default();
    for dir in ["bin", "dev", "etc", "home", "proc", "root", "sys", "usr", "usr/bin", "var"] {
        layer.dir(dir, 0o755);
    }
    layer.dir("tmp", 0o1777).file("bin/busybox", program, 0o755);
    for tool in String::from_utf8_lossy(&list.stdout).lines().filter(|tool| *tool != "busybox") {
        layer.link(&format!("bin/{tool}"), "busybox");
    }
    layer.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nweb:x:1000:1000::/home:/bin/sh\n", 0o644);
    layer.file("etc/group", "root:x:0:\nnogroup:x:65534:\nweb:x:1000:\nextra:x:2000:web\n", 0o644);
    Ok(layer)
}

/// A program of this crate, as cargo built it beside the test.
///
/// # Errors
/// It is not there: run `cargo build -p podkeep-tests --bins`.
pub fn own_program(name: &str) -> Result<Vec<u8>> {
    let path = crate::node::target_dir()?.join(name);
    fs::read(&path).doing(path.display())
}

/// Writes an OCI layout folder with one image of `layers` at `dir`.
///
/// # Errors
/// A file cannot be written.
pub fn write_layout(dir: &Path, layers: &[Layer], run: &RunConfig) -> Result<()> {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).doing(blobs.display())?;
    let put = |bytes: &[u8], media_type: &str| -> Result<Value> {
        let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        fs::write(blobs.join(&hex), bytes).doing(&hex)?;
        Ok(json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len()}))
    };
    let mut descriptors = Vec::new();
    for layer in layers {
        descriptors.push(put(&layer.archive()?, "application/vnd.oci.image.layer.v1.tar")?);
    }
    let diff_ids: Vec<Value> = descriptors.iter().filter_map(|d| d.get("digest").cloned()).collect();
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {
            "Entrypoint": run.entrypoint, "Cmd": run.cmd, "Env": run.env, "User": run.user,
            "WorkingDir": run.working_dir, "StopSignal": run.stop_signal,
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = put(config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json")?;
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest =
        json!({"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": descriptors});
    let manifest = put(manifest.to_string().as_bytes(), manifest_type)?;
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(dir.join("index.json"), index.to_string()).doing("index.json")?;
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).doing("oci-layout")
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn path_env() -> Vec<String> {
    vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()]
}

/// Writes the layout of one of the images above below `dir` and returns its folder.
///
/// # Errors
/// The name is none of them, or its programs are not here.
pub fn make(name: &str, dir: &Path) -> Result<PathBuf> {
    let (folder, layers, run) = match name {
        BUSYBOX => (
            "busybox",
            vec![busybox_layer()?],
            RunConfig { cmd: vec!["sh".into()], env: path_env(), ..RunConfig::default() },
        ),
        HTTPD => {
            let mut layer = Layer::default();
            layer.file("bin/podkeep-httpd", own_program("podkeep-httpd")?, 0o755);
            let run = RunConfig {
                entrypoint: vec!["/bin/podkeep-httpd".into()],
                env: path_env(),
                ..RunConfig::default()
            };
            ("httpd", vec![busybox_layer()?, layer], run)
        }
        STAMP => (
            "stamp",
            vec![stamp_layer()?],
            RunConfig { entrypoint: vec!["/stamp".into()], ..RunConfig::default() },
        ),
        other => return Err(Trouble::new(format!("no recipe for image '{other}'"))),
    };
    let path = dir.join(folder);
    write_layout(&path, &layers, &run)?;
    Ok(path)
}

/// The root of [`STAMP`].
///
/// # Errors
/// The program was not built.
pub fn stamp_layer() -> Result<Layer> {
    let mut layer = Layer::default();
    for dir in ["dev", "etc", "out", "proc", "sys", "tmp"] {
        layer.dir(dir, 0o755);
    }
    layer.file("stamp", own_program("podkeep-stamp")?, 0o755);
    Ok(layer)
}
