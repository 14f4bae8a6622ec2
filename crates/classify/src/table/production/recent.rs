//! The hash tables: connections' rules, and what came since the trees were planned.
//!
//! A table hashes by fewer bits than its rules ask for ("TupleMerge": Daly et al., 2019), so that a
//! few tables do for rules of hundreds of masks: a rule goes where it has the fewest neighbours,
//! and where no table has room for it, one is made by those bytes that the rule asks for as a
//! whole. Tables are asked in the order of their best rank, each about the whole batch, and only
//! about packets that have no better match already.

use super::entry::{Entry, Wide};
use super::search::Search;
use super::subtable::Subtable;
use crate::Pattern;
use clearway_wire::digest::{Digest, PATTERN_WORDS};

/// No more rules than this share a bucket, where that can be helped.
const BUCKET_MAX: usize = 16;
/// Never more tables than this.
const SUBTABLES_MAX: usize = 48;

/// Where a rule is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    subtable: u32,
    hash: u64,
}

#[derive(Debug)]
pub(super) struct Recent {
    /// The first has an empty mask, so that it takes everything, and is scanned.
    subtables: Vec<Subtable>,
    /// Those which hold something, in the order in which they are asked.
    order: Vec<u32>,
    count: usize,
}

impl Recent {
    pub(super) fn new() -> Self {
        let rest = Subtable::new([0; PATTERN_WORDS]);
        Self { subtables: vec![rest], order: Vec::new(), count: 0 }
    }

    /// How many rules there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// How many tables are asked.
    pub(super) fn tables(&self) -> usize {
        self.order.len()
    }

    pub(super) fn insert(&mut self, entry: Entry, wide: &[Wide]) -> Place {
        let pattern = entry.pattern(wide);
        let index = self.best(&pattern).unwrap_or_else(|| self.with_room(&pattern));
        let subtable = &mut self.subtables[index];
        let hash = subtable.hash_of(&pattern);
        let is_first = entry.rank < subtable.least_rank;
        subtable.insert(entry, hash, wide);
        self.count += 1;
        if is_first {
            self.sort();
        }
        Place { subtable: index as u32, hash }
    }

    /// The table in which the rule has the fewest neighbours, and not too many.
    fn best(&self, pattern: &Pattern) -> Option<usize> {
        let tables = self.order.iter().map(|&index| index as usize).filter(|&index| index > 0);
        let taking = tables.filter(|&index| self.subtables[index].takes(pattern));
        let length = |index: usize| {
            let subtable = &self.subtables[index];
            subtable.bucket_length(subtable.hash_of(pattern))
        };
        let (length, index) = taking.map(|index| (length(index), index)).min()?;
        (length < BUCKET_MAX).then_some(index)
    }

    /// The table by those bytes that the rule asks for as a whole, if there may be one more.
    fn with_room(&mut self, pattern: &Pattern) -> usize {
        let mask = pattern.mask().map(whole_bytes);
        if let Some(same) = self.subtables.iter().position(|subtable| subtable.mask == mask) {
            return same;
        }
        let empty = self.subtables.iter().skip(1).position(|subtable| subtable.count == 0);
        if let Some(empty) = empty {
            self.subtables[empty + 1] = Subtable::new(mask);
            return empty + 1;
        }
        if self.subtables.len() == SUBTABLES_MAX {
            return 0;
        }
        self.subtables.push(Subtable::new(mask));
        self.subtables.len() - 1
    }

    pub(super) fn remove(&mut self, id: u32, place: Place, wide: &[Wide]) -> Entry {
        let subtable = &mut self.subtables[place.subtable as usize];
        let entry = subtable.remove(id, place.hash, wide);
        self.count -= 1;
        if subtable.count == 0 {
            *subtable = Subtable::new(subtable.mask);
            self.sort();
        }
        entry
    }

    fn sort(&mut self) {
        let subtables = &self.subtables;
        self.order.clear();
        let all = 0..subtables.len() as u32;
        self.order.extend(all.filter(|&index| subtables[index as usize].count > 0));
        self.order.sort_unstable_by_key(|&index| subtables[index as usize].least_rank);
    }

    /// Improves what `search` has found so far.
    #[inline]
    pub(super) fn search(&self, search: &mut Search, digests: &[Digest], wide: &[Wide]) {
        for &index in &self.order {
            self.subtables[index as usize].search(search, digests, wide);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.subtables.iter().map(Subtable::memory_bytes).sum::<usize>()
            + self.order.capacity() * size_of::<u32>()
    }
}

/// The bytes of a word that are all ones.
fn whole_bytes(word: u64) -> u64 {
    let bytes = word.to_ne_bytes().map(|byte| if byte == u8::MAX { byte } else { 0 });
    u64::from_ne_bytes(bytes)
}
