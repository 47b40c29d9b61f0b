//! Interim until its owner lands the real one: replace this file wholly, and adapt the callers in agent/src/node (grep) where the signature differs.
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use podkeep_core::types::Pod;

use crate::container::build::HostVolume;
use crate::node::Node;
use crate::node::files::VolumeWait;

pub async fn prepare_for(node: &Rc<Node>, pod: &Rc<Pod>) -> Result<BTreeMap<String, HostVolume>, VolumeWait> {
    let mut made = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let path = match &volume.host_path {
            Some(host) => host.path.clone().into(),
            None => {
                let dir =
                    crate::node::pods::pod_dir(node, &pod.metadata.uid).join("volumes").join(&volume.name);
                std::fs::create_dir_all(&dir)
                    .map_err(|e| VolumeWait { reason: "FailedMount".into(), message: e.to_string() })?;
                dir
            }
        };
        made.insert(volume.name.clone(), HostVolume { path, readonly: false });
    }
    Ok(made)
}

pub fn remove_tree(dir: &Path) {
    std::fs::remove_dir_all(dir).ok();
}

pub fn teardown(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
