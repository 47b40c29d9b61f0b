//! One affinity out of all offers: the kubelet's answer without walking its cross product.
//!
//! The kubelet forms every combination of one hint a resource, intersects the masks, and keeps the best by
//! [`better`]. That comparison is a total order, so only *which* pairs (mask, preferred) can occur matters:
//! - preferred: all hints preferred and all masks the same. These masks are an intersection of sets, exact at any size.
//! - not preferred: any reachable intersection, needed only when nothing preferred can occur. Up to [`DENSE_NODES`]
//!   nodes the reachable sets are computed exactly ([`dense`]); above that in [`wide`], exactly as long as the
//!   work stays within its bound.
//!
//! So admission by `restricted` and `single-numa-node` is exact on every machine; the bound can only touch which of
//! several non-preferred masks `best-effort` takes on machines with more than [`DENSE_NODES`] nodes.

use alloc::vec::Vec;

use podkeep_hal::numa_mask::NumaMask;

use super::{distance::MaskRule, hint::Hint};

/// Up to so many nodes all masks are counted.
pub const DENSE_NODES: usize = 12;

/// Pairs of masks intersected in one merge on wider machines: a few milliseconds.
pub const PAIRS: usize = 49_152;

/// The narrowest size every resource can live with: the largest of the smallest mask sizes, "any" left out.
#[must_use]
pub fn common_size(lists: &[Vec<Hint>]) -> u32 {
    let smallest = |list: &Vec<Hint>| list.iter().filter_map(|hint| hint.mask).map(NumaMask::count).min();
    lists.iter().filter_map(smallest).max().unwrap_or(0)
}

/// Does `candidate` replace `current`? `size` is [`common_size`].
#[must_use]
pub fn better(candidate: &Hint, current: Option<&Hint>, size: u32, rule: MaskRule<'_>) -> bool {
    let Some(mask) = candidate.mask.filter(|mask| !mask.is_empty()) else { return false };
    let Some(current) = current else { return true };
    let Some(known) = current.mask else { return true };
    if candidate.preferred != current.preferred {
        return candidate.preferred;
    }
    if candidate.preferred || known.count() > size {
        return rule.wins(mask, known);
    }
    if known.count() == size {
        return mask.count() == size && rule.wins(mask, known);
    }
    // the known one is too narrow: the wider one wins, up to the common size
    if mask.count() > size {
        return false;
    }
    if mask.count() == known.count() { rule.wins(mask, known) } else { mask.count() > known.count() }
}

/// The best combination over all nodes `all`; "all nodes, not preferred" if there is none.
#[must_use]
pub fn merge(all: NumaMask, lists: &[Vec<Hint>], rule: MaskRule<'_>) -> Hint {
    if lists.is_empty() {
        return Hint::new(all, true);
    }
    if lists.iter().any(Vec::is_empty) {
        return Hint::new(all, false);
    }
    let preferred = best(preferred_masks(all, lists), 0, true, rule);
    if let Some(hint) = preferred {
        return hint;
    }
    let size = common_size(lists);
    let reachable = if all.count() as usize <= DENSE_NODES {
        dense::reachable(all, lists)
    } else {
        wide::reachable(all, lists, size, rule)
    };
    best(reachable, size, false, rule).unwrap_or(Hint::new(all, false))
}

fn best(masks: Vec<NumaMask>, size: u32, preferred: bool, rule: MaskRule<'_>) -> Option<Hint> {
    masks.into_iter().map(|mask| Hint::new(mask, preferred)).fold(None, |best, candidate| {
        if better(&candidate, best.as_ref(), size, rule) { Some(candidate) } else { best }
    })
}

/// Masks on which all resources agree and are content with.
fn preferred_masks(all: NumaMask, lists: &[Vec<Hint>]) -> Vec<NumaMask> {
    let content_with_any = |list: &&Vec<Hint>| list.contains(&Hint::ANY);
    let mut choosy: Vec<&Vec<Hint>> = lists.iter().filter(|list| !content_with_any(list)).collect();
    choosy.sort_by_key(|list| list.len());
    let mut agreed: Vec<NumaMask>;
    match choosy.split_first() {
        Some((first, rest)) => {
            agreed = preferred_of(first);
            for list in rest {
                if agreed.is_empty() {
                    break;
                }
                let theirs = preferred_of(list);
                agreed.retain(|mask| theirs.binary_search(mask).is_ok());
            }
        }
        None => {
            agreed = lists.iter().flat_map(|list| preferred_of(list)).collect();
            agreed.push(all);
        }
    }
    agreed.iter().map(|mask| mask.intersection(all)).collect()
}

/// Preferred masks of a list, ascending, each once.
fn preferred_of(list: &[Hint]) -> Vec<NumaMask> {
    let mut masks: Vec<NumaMask> =
        list.iter().filter(|hint| hint.preferred).filter_map(|hint| hint.mask).collect();
    masks.sort_unstable();
    masks.dedup();
    masks
}

/// Masks of a list inside `all`, ascending, each once; "any" is all nodes.
fn masks_of(all: NumaMask, list: &[Hint]) -> Vec<NumaMask> {
    let mut masks: Vec<NumaMask> =
        list.iter().map(|hint| hint.mask.map_or(all, |mask| mask.intersection(all))).collect();
    masks.sort_unstable();
    masks.dedup();
    masks
}

mod dense {
    //! Exact: for lists X and Y of masks, the number of pairs whose intersection *contains* m is the product of the
    //! numbers of members of X and of Y that contain m. Counting supersets in each list, multiplying, and undoing the
    //! count gives the number of combinations with each intersection, in nodes × 2^nodes steps a list, however long the
    //! lists are. Counts are exact while there are fewer than 2^64 combinations; before that they are cut down to "some".

    use alloc::{vec, vec::Vec};

    use podkeep_hal::numa_mask::{NodeId, NumaMask};

    use super::Hint;

    pub(super) fn reachable(all: NumaMask, lists: &[Vec<Hint>]) -> Vec<NumaMask> {
        let nodes: Vec<NodeId> = all.iter().collect();
        let size = 1usize << nodes.len();
        // node numbers are their own positions on machines without gaps
        let plain = all.0.checked_add(1) == Some(size as u64);
        let position = |mask: NumaMask| if plain { mask.0 as usize } else { compress(mask, &nodes) };
        // supersets of each mask in the one list that allows everything: all nodes
        let mut product = vec![1u64; size];
        let mut combinations = 1u64;
        let mut counts = vec![0u64; size];
        for list in lists {
            let longer = combinations.checked_mul(list.len() as u64);
            if longer.is_none() {
                undo_supersets(&mut product);
                product.iter_mut().for_each(|count| *count = (*count).min(1));
                count_supersets(&mut product);
                combinations = size as u64;
            }
            combinations = combinations.saturating_mul(list.len() as u64);
            counts.fill(0);
            for hint in list {
                let mask = hint.mask.map_or(all, |mask| mask.intersection(all));
                if let Some(count) = counts.get_mut(position(mask)) {
                    *count = count.wrapping_add(1);
                }
            }
            count_supersets(&mut counts);
            for (ours, theirs) in product.iter_mut().zip(&counts) {
                *ours = ours.wrapping_mul(*theirs);
            }
        }
        undo_supersets(&mut product);
        let expand = |at: usize| -> NumaMask {
            if plain {
                return NumaMask(at as u64);
            }
            nodes.iter().enumerate().filter(|(bit, _)| at >> bit & 1 == 1).map(|(_, node)| *node).collect()
        };
        product.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, _)| expand(at)).collect()
    }

    fn compress(mask: NumaMask, nodes: &[NodeId]) -> usize {
        nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| mask.contains(**node))
            .fold(0, |at, (bit, _)| at | 1 << bit)
    }

    /// For each node: adds the count of "with it" to the count of "without it".
    fn count_supersets(counts: &mut [u64]) {
        for_nodes(counts, |without, with| *without = without.wrapping_add(*with));
    }

    fn undo_supersets(counts: &mut [u64]) {
        for_nodes(counts, |without, with| *without = without.wrapping_sub(*with));
    }

    #[inline(always)]
    fn for_nodes(counts: &mut [u64], join: impl Fn(&mut u64, &u64)) {
        let mut half = 1;
        while half < counts.len() {
            for block in counts.chunks_exact_mut(half * 2) {
                let (without, with) = block.split_at_mut(half);
                for (low, high) in without.iter_mut().zip(with.iter()) {
                    join(low, high);
                }
            }
            half *= 2;
        }
    }
}

mod wide {
    //! Beyond twelve nodes: list by list, the set of intersections so far. Once a mask of the common size is known,
    //! partial masks that are smaller, or of that size and no better, cannot matter and are dropped. If the set would
    //! cost more than its share of [`super::PAIRS`], the masks nearest to the common size are kept.

    use alloc::vec::Vec;

    use podkeep_hal::numa_mask::NumaMask;

    use super::{Hint, MaskRule, PAIRS, better, masks_of};

    pub(super) fn reachable(
        all: NumaMask,
        lists: &[Vec<Hint>],
        size: u32,
        rule: MaskRule<'_>,
    ) -> Vec<NumaMask> {
        let mut lists: Vec<Vec<NumaMask>> = lists.iter().map(|list| masks_of(all, list)).collect();
        lists.sort_by_key(Vec::len);
        let share = (PAIRS / lists.len().max(1)).max(1024);
        let known = best_single(&lists, share, size, rule);
        let useful = |mask: &NumaMask| match known.filter(|known| known.count() == size) {
            Some(known) => mask.count() > size || (mask.count() == size && rule.wins(*mask, known)),
            None => !mask.is_empty(),
        };
        let mut reached = alloc::vec![all];
        for list in &mut lists {
            // at least the square root of the share from either side
            let side = share.isqrt().max(1);
            keep_nearest(list, share / reached.len().clamp(1, side), size);
            keep_nearest(&mut reached, share / list.len().max(1), size);
            let pairs = reached.iter().flat_map(|ours| list.iter().map(|theirs| ours.intersection(*theirs)));
            let mut next: Vec<NumaMask> = pairs.filter(|mask| useful(mask)).collect();
            next.sort_unstable();
            next.dedup();
            reached = next;
        }
        reached.extend(known);
        reached
    }

    /// The best mask of any list that lies inside some mask of every other list: it can be reached as it is.
    fn best_single(lists: &[Vec<NumaMask>], steps: usize, size: u32, rule: MaskRule<'_>) -> Option<NumaMask> {
        let mut steps = steps;
        let mut best: Option<Hint> = None;
        for mask in lists.iter().flatten() {
            if steps == 0 {
                break;
            }
            let candidate = Hint::new(*mask, false);
            if !better(&candidate, best.as_ref(), size, rule) {
                steps = steps.saturating_sub(1);
                continue;
            }
            let held = lists.iter().all(|list| {
                // the widest masks are most likely to hold it, and "all nodes" is the last
                let looked_at = list.iter().rev().take(steps);
                let held = looked_at.clone().position(|wider| mask.is_subset(*wider));
                steps = steps.saturating_sub(held.unwrap_or(list.len()).saturating_add(1));
                held.is_some()
            });
            if held {
                best = Some(candidate);
            }
        }
        best.and_then(|hint| hint.mask)
    }

    /// Keeps `count` masks: of the common size and above the narrowest first, then those below, widest first.
    fn keep_nearest(masks: &mut Vec<NumaMask>, count: usize, size: u32) {
        let count = count.max(1);
        if masks.len() <= count {
            return;
        }
        // the kept ones need no order among themselves
        masks.select_nth_unstable_by_key(count, |mask| {
            let nodes = mask.count();
            if nodes >= size { (0, nodes, *mask) } else { (1, size.saturating_sub(nodes), *mask) }
        });
        masks.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::topology::distance::Distances;

    /// The kubelet's way: every combination, compared one by one.
    fn cross_product(all: NumaMask, lists: &[Vec<Hint>], rule: MaskRule<'_>) -> Hint {
        if lists.is_empty() {
            return Hint::new(all, true);
        }
        let size = common_size(lists);
        let mut best: Option<Hint> = None;
        let mut at = vec![0usize; lists.len()];
        if lists.iter().any(Vec::is_empty) {
            return Hint::new(all, false);
        }
        loop {
            let chosen: Vec<Hint> = lists.iter().zip(&at).map(|(list, at)| list[*at]).collect();
            let named: Vec<NumaMask> = chosen.iter().filter_map(|hint| hint.mask).collect();
            let mask = named.iter().fold(all, |mask, named| mask.intersection(*named));
            let alike = named.windows(2).all(|pair| pair[0] == pair[1]);
            let candidate = Hint::new(mask, alike && chosen.iter().all(|hint| hint.preferred));
            if better(&candidate, best.as_ref(), size, rule) {
                best = Some(candidate);
            }
            let Some(turn) = (0..lists.len()).rev().find(|turn| at[*turn] + 1 < lists[*turn].len()) else {
                return best.unwrap_or(Hint::new(all, false));
            };
            at[turn] += 1;
            at[turn + 1..].fill(0);
        }
    }

    fn hint(nodes: u32) -> impl Strategy<Value = Hint> {
        let mask = proptest::option::weighted(0.9, 1u64..(1 << nodes));
        (mask, any::<bool>()).prop_map(|(mask, preferred)| Hint { mask: mask.map(NumaMask), preferred })
    }

    fn machine() -> impl Strategy<Value = (u32, Vec<Vec<Hint>>, Vec<Vec<u32>>)> {
        (1u32..7).prop_flat_map(|nodes| {
            let list = proptest::collection::vec(hint(nodes), 1..7);
            let row = proptest::collection::vec(10u32..14, nodes as usize);
            let rows = proptest::collection::vec(row, nodes as usize);
            (Just(nodes), proptest::collection::vec(list, 0..5), rows)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn merge_equals_cross_product((nodes, lists, rows) in machine()) {
            let all = NumaMask((1 << nodes) - 1);
            let distances = Distances::new(rows);
            for closest in [None, Some(&distances)] {
                let rule = MaskRule { closest };
                prop_assert_eq!(merge(all, &lists, rule), cross_product(all, &lists, rule));
            }
        }

        /// The same small offers on a machine with many nodes take the other path to the same answer.
        #[test]
        fn merge_of_short_lists_on_wide_machine_equals_cross_product((_, lists, _) in machine()) {
            let all = NumaMask(u64::MAX);
            let spread = |mask: NumaMask| mask.iter().map(|node| node * 9).collect::<NumaMask>();
            let lists: Vec<Vec<Hint>> = lists
                .into_iter()
                .map(|list| list.into_iter().map(|hint| Hint { mask: hint.mask.map(spread), ..hint }).collect())
                .collect();
            let rule = MaskRule::default();
            prop_assert_eq!(merge(all, &lists, rule), cross_product(all, &lists, rule));
        }

        #[test]
        fn reachable_on_wide_machine_equals_counting((nodes, lists, _) in machine()) {
            let all = NumaMask((1 << nodes) - 1);
            prop_assume!(!lists.is_empty());
            let size = common_size(&lists);
            let rule = MaskRule::default();
            let exact = best(dense::reachable(all, &lists), size, false, rule);
            prop_assert_eq!(best(wide::reachable(all, &lists, size, rule), size, false, rule), exact);
        }
    }

    #[test]
    fn preferred_masks_agree_with_any() {
        let all = NumaMask(0b11);
        let lists = vec![vec![Hint::ANY], vec![Hint::new(NumaMask(0b10), true)]];
        assert_eq!(merge(all, &lists, MaskRule::default()), Hint::new(NumaMask(0b10), true));
        assert_eq!(merge(all, &[vec![Hint::ANY]], MaskRule::default()), Hint::new(all, true));
        assert_eq!(merge(all, &[vec![Hint::UNMET]], MaskRule::default()), Hint::new(all, false));
    }
}
