//! Sets of CPU numbers, and the list text of the kernel ("0-3,8") both ways.
//!
//! The text rules are those of the kubelet's own parser: signs and leading zeros pass, blanks and line ends do not
//! (files of the kernel end in one: trim before parsing).

use core::fmt;

/// CPUs a set can hold: numbers 0 to 1023.
pub const MAX_CPUS: usize = 1024;

const WORDS: usize = MAX_CPUS / 64;

/// A CPU number, 0 to [`MAX_CPUS`] − 1.
pub type CpuId = u16;

/// A set of CPU numbers below [`MAX_CPUS`]. 128 bytes, copied freely.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    words: [u64; WORDS],
}

/// A list text that is no CPU list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuListError {
    /// Not a number where one must stand; `at` is the byte position of that piece.
    Number {
        /// Byte position of the piece in the text.
        at: usize,
    },
    /// A range that runs downwards.
    Backwards {
        /// First number of the range.
        first: u64,
        /// Last number of the range.
        last: u64,
    },
    /// A CPU number this program has no room for.
    TooLarge {
        /// The number.
        cpu: u64,
    },
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { at } => write!(f, "no CPU number at byte {at}: write a list like \"0-3,8\""),
            Self::Backwards { first, last } => {
                write!(f, "range \"{first}-{last}\" runs backwards: the smaller number comes first")
            }
            Self::TooLarge { cpu } => {
                write!(f, "CPU {cpu} is above the largest supported number {}", MAX_CPUS - 1)
            }
        }
    }
}

impl core::error::Error for CpuListError {}

/// The ranges of a list text in the order they are written, with no limit on the numbers but 2^63 − 1.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    rest: Option<&'a str>,
    at: usize,
}

impl<'a> Ranges<'a> {
    /// Reads `text`; the empty text has no ranges.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        Self { rest: (!text.is_empty()).then_some(text), at: 0 }
    }
}

impl Iterator for Ranges<'_> {
    type Item = Result<(u64, u64), CpuListError>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest?;
        let at = self.at;
        let (piece, rest) = match text.split_once(',') {
            Some((piece, rest)) => (piece, Some(rest)),
            None => (text, None),
        };
        self.rest = rest;
        self.at = at.saturating_add(piece.len()).saturating_add(1);
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        Some(match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok((first, last)),
            (Some(first), Some(last)) => Err(CpuListError::Backwards { first, last }),
            _ => Err(CpuListError::Number { at }),
        })
    }
}

/// An optional plus and decimal digits up to 2^63 − 1. A minus never reaches here: it splits a range.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<i64>().ok().and_then(|value| u64::try_from(value).ok())
}

impl CpuSet {
    /// The set without members.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// Reads a list text.
    ///
    /// # Errors
    /// The text is no list, or names a CPU of [`MAX_CPUS`] or more.
    pub fn parse(text: &str) -> Result<Self, CpuListError> {
        let mut set = Self::EMPTY;
        for range in Ranges::of(text) {
            let (first, last) = range?;
            if last >= MAX_CPUS as u64 {
                return Err(CpuListError::TooLarge { cpu: last });
            }
            for cpu in first..=last {
                set.insert(CpuId::try_from(cpu).unwrap_or(CpuId::MAX));
            }
        }
        Ok(set)
    }

    /// The set of one CPU; empty if the number is too large.
    #[must_use]
    pub fn only(cpu: CpuId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(cpu);
        set
    }

    /// All CPUs from `first` to `last`, both included.
    #[must_use]
    pub fn range(first: CpuId, last: CpuId) -> Self {
        (first..=last).collect()
    }

    /// Adds a CPU; false if it was there already or its number is too large.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let bit = 1u64 << (cpu % 64);
        match self.words.get_mut(usize::from(cpu / 64)) {
            Some(word) => {
                let new = *word & bit == 0;
                *word |= bit;
                new
            }
            None => false,
        }
    }

    /// Takes a CPU out; false if it was not there.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let bit = 1u64 << (cpu % 64);
        match self.words.get_mut(usize::from(cpu / 64)) {
            Some(word) => {
                let was = *word & bit != 0;
                *word &= !bit;
                was
            }
            None => false,
        }
    }

    /// Is this CPU a member?
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(usize::from(cpu / 64)).is_some_and(|word| word & (1u64 << (cpu % 64)) != 0)
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// No members?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Lowest member.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Highest member.
    #[must_use]
    pub fn last(&self) -> Option<CpuId> {
        self.words.iter().enumerate().rev().find(|(_, word)| **word != 0).and_then(|(index, word)| {
            let top = 63u32.saturating_sub(word.leading_zeros()) as usize;
            CpuId::try_from(index.saturating_mul(64).saturating_add(top)).ok()
        })
    }

    /// Members of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Members of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Are all members in `other`?
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// No member in common?
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// Number of members in common, without building the intersection.
    #[must_use]
    pub fn count_common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Members, ascending.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter { words: self.words, index: 0 }
    }

    /// The lowest `count` members (all, if there are fewer).
    #[must_use]
    pub fn lowest(&self, count: usize) -> Self {
        self.iter().take(count).collect()
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut result = *self;
        for (word, theirs) in result.words.iter_mut().zip(&other.words) {
            *word = join(*word, *theirs);
        }
        result
    }
}

/// Members of a [`CpuSet`], ascending.
#[derive(Clone, Debug)]
pub struct Iter {
    words: [u64; WORDS],
    index: usize,
}

impl Iterator for Iter {
    type Item = CpuId;

    fn next(&mut self) -> Option<CpuId> {
        loop {
            let word = self.words.get_mut(self.index)?;
            if *word == 0 {
                self.index = self.index.saturating_add(1);
                continue;
            }
            let bit = word.trailing_zeros() as usize;
            *word &= word.wrapping_sub(1);
            return CpuId::try_from(self.index.saturating_mul(64).saturating_add(bit)).ok();
        }
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<T: IntoIterator<Item = CpuId>>(cpus: T) -> Self {
        let mut set = Self::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl IntoIterator for &CpuSet {
    type Item = CpuId;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

/// Kernel list text: ascending, two or more neighbours joined as `a-b`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&last.saturating_add(1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl serde::Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = CpuSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a CPU list like \"0-3,8\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CpuSet, E> {
                CpuSet::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, format, string::ToString, vec::Vec};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn display_two_neighbours_join() {
        assert_eq!(CpuSet::parse("8,0-1,5").unwrap().to_string(), "0-1,5,8");
        assert_eq!(CpuSet::EMPTY.to_string(), "");
        assert_eq!(CpuSet::range(0, 1023).to_string(), "0-1023");
    }

    #[test]
    fn parse_wrong_text_names_place() {
        assert_eq!(CpuSet::parse("1,x"), Err(CpuListError::Number { at: 2 }));
        assert_eq!(CpuSet::parse("3-1"), Err(CpuListError::Backwards { first: 3, last: 1 }));
        assert_eq!(CpuSet::parse("1024"), Err(CpuListError::TooLarge { cpu: 1024 }));
        assert_eq!(CpuSet::parse("0-18446744073709551615"), Err(CpuListError::Number { at: 0 }));
    }

    #[test]
    fn insert_out_of_range_is_refused() {
        let mut set = CpuSet::EMPTY;
        assert!(!set.insert(1024));
        assert!(set.is_empty());
        assert!(!set.contains(u16::MAX));
    }

    fn cpus() -> impl Strategy<Value = BTreeSet<u16>> {
        proptest::collection::btree_set(0u16..1024, 0..80)
    }

    proptest! {
        #[test]
        fn algebra_equals_sorted_sets(a in cpus(), b in cpus()) {
            let (x, y): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(x.union(&y).iter().collect::<Vec<_>>(), a.union(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(x.intersection(&y).iter().collect::<BTreeSet<_>>(), a.intersection(&b).copied().collect());
            prop_assert_eq!(x.difference(&y).iter().collect::<BTreeSet<_>>(), a.difference(&b).copied().collect());
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.count_common(&y), a.intersection(&b).count());
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.first(), a.first().copied());
            prop_assert_eq!(x.last(), a.last().copied());
        }

        #[test]
        fn parse_reads_what_display_wrote(a in cpus()) {
            let set: CpuSet = a.into_iter().collect();
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Ok(set));
        }

        #[test]
        fn parse_any_text_does_not_panic(text in "[0-9,+ -]{0,24}|.{0,12}") {
            if let Ok(set) = CpuSet::parse(&text) {
                prop_assert_eq!(CpuSet::parse(&format!("{set}")), Ok(set));
            }
        }
    }
}
