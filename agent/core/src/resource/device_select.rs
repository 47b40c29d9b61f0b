//! Choosing devices near a set of nodes, with the plugin's wishes where it has any.
//!
//! Asking the plugin takes time, so the choice has two steps: [`Selection::new`] takes what is certain and says what to
//! ask ([`Selection::question`]); [`Selection::finish`] uses the answer, if there is one, and fills up.

use alloc::{collections::BTreeMap, string::String};

use podkeep_hal::numa_mask::NumaMask;

use super::device::{Device, Ids};

/// A choice that waits for the plugin's wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    chosen: Ids,
    /// The plugin's wishes count inside this set; filled from it in order.
    first: Ids,
    /// Taken when `first` is used up.
    second: Ids,
    size: usize,
}

/// What to ask a plugin that offers preferred allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Devices it may choose from.
    pub available: Ids,
    /// Devices it must choose.
    pub must_include: Ids,
    /// How many in all.
    pub size: usize,
}

/// Devices by where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Near a node of the affinity.
    pub aligned: Ids,
    /// Near other nodes only.
    pub unaligned: Ids,
    /// Without preference, or all if there is no affinity.
    pub no_affinity: Ids,
}

/// Splits `available` by the affinity.
#[must_use]
pub fn split(devices: &BTreeMap<String, Device>, available: &Ids, affinity: Option<NumaMask>) -> Split {
    let mut split = Split::default();
    let has_nodes = devices.values().any(|device| device.nodes.is_some());
    let Some(affinity) = affinity.filter(|_| has_nodes) else {
        split.no_affinity.clone_from(available);
        return split;
    };
    for id in available {
        let group = match devices.get(id).and_then(|device| device.nodes) {
            Some(nodes) if !nodes.intersection(affinity).is_empty() => &mut split.aligned,
            Some(_) => &mut split.unaligned,
            None => &mut split.no_affinity,
        };
        group.insert(id.clone());
    }
    split
}

impl Selection {
    /// Takes reusable devices, and aligned ones where all are needed.
    ///
    /// # Errors
    /// There are too few: how many are still missing, and how many there are.
    pub fn new(
        devices: &BTreeMap<String, Device>,
        available: Ids,
        reusable: &Ids,
        size: usize,
        affinity: Option<NumaMask>,
    ) -> Result<Self, (usize, usize)> {
        let mut selection = Self { chosen: Ids::new(), first: Ids::new(), second: Ids::new(), size };
        selection.take(reusable);
        let mut available = available;
        available.retain(|id| !selection.chosen.contains(id));
        let missing = selection.missing();
        if missing == 0 {
            return Ok(selection);
        }
        if available.len() < missing {
            return Err((missing, available.len()));
        }
        let split = split(devices, &available, affinity);
        if missing < split.aligned.len() {
            selection.first = split.aligned;
            return Ok(selection);
        }
        selection.take(&split.aligned);
        if selection.missing() > 0 {
            selection.first = available;
            // the plugin may wish for any, but without wishes those elsewhere come before those nowhere
            selection.second = split.no_affinity;
        }
        Ok(selection)
    }

    fn missing(&self) -> usize {
        self.size.saturating_sub(self.chosen.len())
    }

    fn take(&mut self, ids: &Ids) {
        for id in ids {
            if self.missing() == 0 {
                return;
            }
            self.chosen.insert(id.clone());
        }
    }

    /// What to ask the plugin; none if everything is certain.
    #[must_use]
    pub fn question(&self) -> Option<Question> {
        (self.missing() > 0).then(|| Question {
            available: self.first.union(&self.chosen).cloned().collect(),
            must_include: self.chosen.clone(),
            size: self.size,
        })
    }

    /// Uses the plugin's wishes as far as they are among the devices asked about, then fills up.
    #[must_use]
    pub fn finish(mut self, wishes: &Ids) -> Ids {
        let wanted: Ids = wishes.intersection(&self.first).cloned().collect();
        self.take(&wanted);
        let first: Ids = self.first.difference(&self.second).cloned().collect();
        self.take(&first);
        let second = core::mem::take(&mut self.second);
        self.take(&second);
        self.chosen
    }
}
