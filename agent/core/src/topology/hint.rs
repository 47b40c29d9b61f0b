//! What a resource offers: the sets of NUMA nodes that could serve a request.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use podkeep_hal::numa_mask::NumaMask;

/// One offer. No mask means: any node will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Nodes that together can serve the request.
    pub mask: Option<NumaMask>,
    /// Is the mask as narrow as this machine, when empty, allows for such a request?
    pub preferred: bool,
}

impl Hint {
    /// "Any node will do, and I am content".
    pub const ANY: Self = Self { mask: None, preferred: true };
    /// "Nothing can serve this".
    pub const UNMET: Self = Self { mask: None, preferred: false };

    /// An offer of one mask.
    #[must_use]
    pub const fn new(mask: NumaMask, preferred: bool) -> Self {
        Self { mask: Some(mask), preferred }
    }
}

/// Offers for one resource: none means no preference, an empty list that the request cannot be met.
pub type Offer = Option<Vec<Hint>>;

/// Offers of one provider by resource name.
pub type Offers = BTreeMap<String, Offer>;

/// Lists to merge: one for each resource of each provider, with "no preference" and "cannot be met" spelled out.
#[must_use]
pub fn lists<'a>(providers: impl IntoIterator<Item = Option<&'a Offers>>) -> Vec<Vec<Hint>> {
    let mut lists = Vec::new();
    for provider in providers {
        match provider {
            Some(offers) if !offers.is_empty() => lists.extend(offers.values().map(list)),
            _ => lists.push(alloc::vec![Hint::ANY]),
        }
    }
    lists
}

fn list(offer: &Offer) -> Vec<Hint> {
    match offer {
        None => alloc::vec![Hint::ANY],
        Some(hints) if hints.is_empty() => alloc::vec![Hint::UNMET],
        Some(hints) => hints.clone(),
    }
}
