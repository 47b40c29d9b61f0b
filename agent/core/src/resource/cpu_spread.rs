//! CPUs spread evenly over NUMA nodes (`distribute-cpus-across-numa`): the set of nodes and the shares that leave
//! the nodes most alike.
//!
//! On machines with up to ten nodes all sets of nodes are compared. Beyond, the best of the first [`SETS_SAMPLED`] sets in
//! order is used.

use alloc::vec::Vec;

use podkeep_hal::cpu_set::CpuSet;

use super::{
    cpu_take::{Sorting, TakeError, TakeOptions, Taking, take_packed},
    layout::{CpuLayout, Group},
};

/// Sets of nodes and of remainders on a ten-node machine: three to the tenth is 59,049.
const SETS_OF_TEN: u32 = 60_000;

/// Sets compared for one number of nodes on machines with more than ten: some ten milliseconds with 64.
pub const SETS_SAMPLED: u32 = 4_000;

/// `need` CPUs of `available`, in equal shares from as few nodes as hold them, in whole groups of `group` CPUs.
///
/// # Errors
/// There are not that many.
pub fn take_distributed(
    layout: &CpuLayout,
    available: &CpuSet,
    need: usize,
    group: usize,
    sorting: Sorting,
) -> Result<CpuSet, TakeError> {
    let options = TakeOptions { sorting, align_by_uncore: false };
    let group = group.max(1);
    let taking = Taking::new(layout, available, need, sorting);
    if !need.is_multiple_of(group) || taking.is_satisfied() || taking.is_failed() {
        return take_packed(layout, available, need, options);
    }
    let search = Search::new(layout, available, &taking, need, group);
    match search.run().and_then(|best| search.allocate(&best, options)) {
        Some(cpus) => Ok(cpus),
        None => take_packed(layout, available, need, options),
    }
}

/// One way to spread: positions in [`Search::nodes`].
#[derive(Debug)]
struct Spread {
    share: usize,
    chosen: Vec<usize>,
    extra: Vec<usize>,
    balance: u64,
}

struct Search<'a> {
    layout: &'a CpuLayout,
    available: CpuSet,
    nodes: Vec<&'a Group>,
    left: Vec<usize>,
    need: usize,
    group: usize,
}

impl<'a> Search<'a> {
    fn new(
        layout: &'a CpuLayout,
        available: &CpuSet,
        taking: &Taking<'a>,
        need: usize,
        group: usize,
    ) -> Self {
        let mut nodes: Vec<&Group> = Vec::new();
        for node in taking.nodes() {
            // a node that two sockets share is listed under each
            if !nodes.iter().any(|known| known.id == node.id) {
                nodes.push(node);
            }
        }
        let available = available.intersection(&layout.all);
        let left = nodes.iter().map(|node| node.cpus.count_common(&available)).collect();
        Self { layout, available, nodes, left, need, group }
    }

    fn run(&self) -> Option<Spread> {
        let groups = self.layout.all.len().div_ceil(self.group);
        let groups_per_node = groups.div_ceil(self.layout.nodes.len().max(1)).max(1);
        let groups_needed = self.need.div_ceil(self.group);
        let most = groups_needed.min(self.nodes.len());
        (groups_needed.div_ceil(groups_per_node)..=most).find_map(|size| self.best_of_size(size))
    }

    fn best_of_size(&self, size: usize) -> Option<Spread> {
        let share = self.need.checked_div(size)?.checked_div(self.group)?.saturating_mul(self.group);
        let mut best: Option<Spread> = None;
        let mut budget = if self.nodes.len() <= 10 { SETS_OF_TEN } else { SETS_SAMPLED };
        let mut sets = Combinations::new(self.nodes.len(), size);
        while let Some(chosen) = sets.next() {
            budget = budget.saturating_sub(1);
            if self.can_hold(chosen, share)
                && let Some((balance, extra)) = self.balance(chosen, share, &mut budget)
                && best.as_ref().is_none_or(|best| balance < best.balance)
            {
                best = Some(Spread { share, chosen: chosen.to_vec(), extra, balance });
            }
            if budget == 0 || best.as_ref().is_some_and(|best| best.balance == 0) {
                break;
            }
        }
        best
    }

    fn left_on(&self, at: usize) -> usize {
        self.left.get(at).copied().unwrap_or(0)
    }

    fn whole_groups(&self, cpus: usize) -> usize {
        cpus.checked_div(self.group).unwrap_or(0).saturating_mul(self.group)
    }

    fn can_hold(&self, chosen: &[usize], share: usize) -> bool {
        let cpus = |at: &usize| self.left_on(*at);
        chosen.iter().map(cpus).sum::<usize>() >= self.need
            && chosen.iter().map(|at| self.whole_groups(self.left_on(*at))).sum::<usize>() >= self.need
            && chosen.iter().map(cpus).all(|left| left >= share)
    }

    /// How unlike the nodes are afterwards, and which of them give what the equal shares do not cover.
    fn balance(&self, chosen: &[usize], share: usize, budget: &mut u32) -> Option<(u64, Vec<usize>)> {
        let mut after = self.left.clone();
        for at in chosen {
            if let Some(left) = after.get_mut(*at) {
                *left = left.saturating_sub(share);
            }
        }
        let rest = self.need.saturating_sub(share.saturating_mul(chosen.len()));
        if rest == 0 {
            return Some((deviation(&after), Vec::new()));
        }
        let givers: Vec<usize> = chosen
            .iter()
            .copied()
            .filter(|at| after.get(*at).is_some_and(|left| *left >= self.group))
            .collect();
        let mut best: Option<(u64, Vec<usize>)> = None;
        for size in (1..=givers.len()).rev() {
            let mut sets = Combinations::new(givers.len(), size);
            while let Some(picks) = sets.next() {
                if *budget == 0 {
                    return best;
                }
                *budget = budget.saturating_sub(1);
                let extra: Vec<usize> = picks.iter().filter_map(|pick| givers.get(*pick).copied()).collect();
                if let Some(balance) = self.balance_with(&after, &extra, rest)
                    && best.as_ref().is_none_or(|(least, _)| balance < *least)
                {
                    best = Some((balance, extra));
                }
            }
        }
        best
    }

    /// Hands out the rest one group at a time; none if these nodes have too few whole groups.
    fn balance_with(&self, after: &[usize], extra: &[usize], mut rest: usize) -> Option<u64> {
        let whole = |at: &usize| self.whole_groups(after.get(*at).copied().unwrap_or(0));
        if extra.iter().map(whole).sum::<usize>() < rest {
            return None;
        }
        let mut after = after.to_vec();
        while rest > 0 {
            for at in extra {
                match after.get_mut(*at) {
                    Some(left) if rest > 0 && *left >= self.group => {
                        *left = left.saturating_sub(self.group);
                        rest = rest.saturating_sub(self.group);
                    }
                    _ => {}
                }
            }
        }
        Some(deviation(&after))
    }

    fn allocate(&self, spread: &Spread, options: TakeOptions) -> Option<CpuSet> {
        let mut available = self.available;
        let mut result = CpuSet::EMPTY;
        let mut take = |at: usize, count: usize| -> Option<usize> {
            let inside = self.nodes.get(at)?.cpus.intersection(&available);
            if inside.len() < count {
                return Some(0);
            }
            let cpus = take_packed(self.layout, &inside, count, options).ok()?;
            available = available.difference(&cpus);
            result = result.union(&cpus);
            Some(cpus.len())
        };
        for at in &spread.chosen {
            take(*at, spread.share)?;
        }
        let mut rest = self.need.saturating_sub(spread.share.saturating_mul(spread.chosen.len()));
        while rest > 0 {
            let before = rest;
            for at in &spread.extra {
                if rest > 0 {
                    rest = rest.saturating_sub(take(*at, self.group)?);
                }
            }
            if rest == before {
                return None;
            }
        }
        Some(result)
    }
}

/// Population standard deviation in thousandths; mean and result are each rounded to thousandths, half upwards, as the
/// kubelet does, because the rounding decides ties.
fn deviation(values: &[usize]) -> u64 {
    let count = values.len() as u64;
    let sum: u64 = values.iter().map(|value| (*value as u64).saturating_mul(1000)).sum();
    let Some(mean) = sum.saturating_mul(2).saturating_add(count).checked_div(count.saturating_mul(2)) else {
        return 0;
    };
    let squares: u64 = values
        .iter()
        .map(|value| (*value as u64).saturating_mul(1000).abs_diff(mean))
        .map(|distance| distance.saturating_mul(distance))
        .sum();
    // floor((2·sqrt(q) + 1) / 2) rounds sqrt(q) to the nearest
    squares.saturating_mul(4).checked_div(count).map_or(0, |q| q.isqrt().saturating_add(1) / 2)
}

/// All subsets of a size, as positions, in lexicographic order.
pub struct Combinations {
    total: usize,
    at: Vec<usize>,
    fresh: bool,
}

impl Combinations {
    /// Subsets of `size` out of `total`.
    #[must_use]
    pub fn new(total: usize, size: usize) -> Self {
        Self { total, at: (0..size).collect(), fresh: true }
    }

    /// The next subset. Not an `Iterator`: it lends its own buffer.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Option<&[usize]> {
        let size = self.at.len();
        if size > self.total {
            return None;
        }
        if core::mem::take(&mut self.fresh) {
            return Some(&self.at);
        }
        let spare = self.total.saturating_sub(size);
        let moving = (0..size)
            .rev()
            .find(|slot| self.at.get(*slot).is_some_and(|at| *at < spare.saturating_add(*slot)))?;
        let start = self.at.get(moving)?.saturating_add(1);
        for (value, slot) in (start..).zip(self.at.iter_mut().skip(moving)) {
            *slot = value;
        }
        Some(&self.at)
    }
}

impl core::fmt::Debug for Combinations {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(&self.at).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_lexicographic_and_complete() {
        let mut sets = Combinations::new(5, 3);
        let mut seen = Vec::new();
        while let Some(set) = sets.next() {
            seen.push(set.to_vec());
        }
        assert_eq!(seen.len(), 10);
        assert!(seen.is_sorted());
        assert_eq!(seen[9], [2, 3, 4]);
        assert!(Combinations::new(2, 3).next().is_none());
        assert_eq!(Combinations::new(2, 0).next(), Some(&[][..]));
    }

    #[test]
    fn deviation_rounds_mean_and_result() {
        // mean 1.333, deviations 1.333 1.333 2.667: sqrt(10.667 / 3) = 1.8856
        assert_eq!(deviation(&[0, 0, 4]), 1886);
        assert_eq!(deviation(&[3, 3, 3]), 0);
        assert_eq!(deviation(&[]), 0);
    }
}
