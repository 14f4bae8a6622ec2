//! The rules that trees name, each in a slot that keeps its number.
//!
//! A slot whose rule is gone never matches. It is used again at once if no tree has ever named it,
//! and otherwise when the trees that did are no more.

use super::entry::{Entry, Wide};
use crate::slab::without_free_end;
use clearway_wire::digest::Digest;
use std::collections::BTreeSet;
use std::ops::Range;

/// Memory is given back when fewer than one slot in so many is left.
const SPARSE: usize = 4;

#[derive(Debug)]
pub(super) struct Slots {
    /// The first is the end of each list.
    entries: Vec<Entry>,
    /// Which of them a tree names, or one that is being made.
    named: Vec<bool>,
    /// Those which may be used again, the lowest first, so that the highest can be given back.
    free: BTreeSet<u32>,
    /// Gone, and named by a tree: since the trees being made were begun, and before.
    retired: Vec<u32>,
    retired_before: Vec<u32>,
}

impl Slots {
    /// The slot at which a list ends: it ends every search that comes to it.
    pub(super) const END: u32 = 0;

    pub(super) fn new() -> Self {
        Self {
            entries: vec![Entry::NONE],
            named: vec![true],
            free: BTreeSet::new(),
            retired: Vec::new(),
            retired_before: Vec::new(),
        }
    }

    /// All slots: those in which there is no rule hold [`Entry::NEVER`].
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        if let Some(slot) = self.free.pop_first() {
            self.entries[slot as usize] = entry;
            return slot;
        }
        self.entries.push(entry);
        self.named.push(false);
        self.entries.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, slot: u32) -> Entry {
        let entry = std::mem::replace(&mut self.entries[slot as usize], Entry::NEVER);
        if self.named[slot as usize] {
            self.retired.push(slot);
        } else {
            self.free.insert(slot);
            self.trim();
        }
        entry
    }

    /// Gives back the highest slots, as far as they are free.
    fn trim(&mut self) {
        let left = without_free_end(&mut self.free, self.entries.len());
        self.entries.truncate(left);
        self.named.truncate(left);
        if self.entries.len() < self.entries.capacity() / SPARSE {
            self.entries.shrink_to(self.entries.len() * 2);
            self.named.shrink_to(self.named.len() * 2);
        }
    }

    /// Those which are gone but still named.
    pub(super) fn retired(&self) -> usize {
        self.retired.len() + self.retired_before.len()
    }

    /// True if trees name the slot.
    pub(super) fn is_named(&self, slot: u32) -> bool {
        self.named[slot as usize]
    }

    /// New trees are begun.
    pub(super) fn begin(&mut self) {
        self.retired_before.append(&mut self.retired);
    }

    /// They name the rules in these slots, as far as there are any.
    pub(super) fn name(&mut self, slots: Range<usize>) -> impl Iterator<Item = u32> {
        let slots = slots.start.max(1)..slots.end.min(self.entries.len());
        let Self { entries, named, .. } = self;
        slots.filter(|&slot| !entries[slot].is_never()).map(|slot| {
            named[slot] = true;
            slot as u32
        })
    }

    /// The new trees are all there is.
    pub(super) fn finish(&mut self) {
        for slot in std::mem::take(&mut self.retired_before) {
            self.named[slot as usize] = false;
            self.free.insert(slot);
        }
        self.trim();
    }

    /// The first of a list, which is in order of rank, that matches and is better than what was
    /// found.
    #[inline]
    pub(super) fn first_match(
        &self,
        list: &[u32],
        digest: &Digest,
        wide: &[Wide],
        (rank, id): (&mut u64, &mut u32),
    ) {
        let (word_0, word_3) = (digest.words()[0], digest.words()[3]);
        for &slot in list {
            let entry = &self.entries[slot as usize];
            if entry.rank >= *rank {
                return;
            }
            let rest_matches = || !entry.is_wide() || wide[entry.wide as usize].matches(digest);
            if entry.matches(word_0, word_3) && rest_matches() {
                (*rank, *id) = (entry.rank, entry.id);
                return;
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // The set of free slots takes about twice what it holds.
        let numbers =
            self.free.len() * 2 + self.retired.capacity() + self.retired_before.capacity();
        self.entries.capacity() * (size_of::<Entry>() + 1) + numbers * size_of::<u32>()
    }
}
