//! Validation of volumes and mounts.
use crate::types::{Object, Volume, object::Field};

/// Whether a volume names where its content comes from.
pub fn has_source(volume: &Volume) -> bool {
    let name_is_first = 1;
    (name_is_first..volume.shape().fields.len())
        .any(|index| volume.at(index).is_some_and(|field: &dyn Field| !field.view().is_empty()))
}
