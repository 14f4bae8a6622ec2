//! The decision trees: the rules that have been there since they were planned.
//!
//! A node says which bits of a digest are the number of the child to go on with; a leaf has a list
//! of rules in order of rank. A batch goes level by level, so that the loads of different packets
//! overlap, and without a branch that depends on a packet.
//!
//! ```text
//! root ──▶ bits 56..64 of word 3 ──┬─▶ bits 32..38 of word 0 ──┬─▶ list: 17, 40, END
//!                                  │                           └─▶ list: 40, END
//!                                  └─▶ list: 3, END
//! ```
//!
//! Children with the same rules are one node in several places. Lists name rules by their slots. A
//! tree is never changed: a rule that is gone does not match, and one that came since is elsewhere.

use super::entry::Wide;
use super::search::Search;
use super::slots::Slots;
use crate::table::BATCH_MAX;
use clearway_wire::digest::{Digest, WORDS};

/// Contiguous bits of a word of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) word: u8,
    pub(super) shift: u8,
    /// At most [`Window::BITS_MAX`].
    pub(super) bits: u8,
}

impl Window {
    pub(super) const BITS_MAX: u8 = 10;

    pub(super) const fn children(self) -> u32 {
        1 << self.bits
    }
}

/// A fork, or a leaf, whose mask is 0. Eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The first of the children; of a leaf, where its list begins.
    base: u32,
    mask: u16,
    shift: u8,
    word: u8,
}

const _: () = assert!(size_of::<Node>() == 8);

impl Node {
    pub(super) const fn leaf(list: u32) -> Self {
        Self { base: list, mask: 0, shift: 0, word: 0 }
    }

    pub(super) const fn fork(window: Window, base: u32) -> Self {
        let Window { word, shift, .. } = window;
        Self { base, mask: (window.children() - 1) as u16, shift, word }
    }

    /// Where to go on; this node itself, which is at `at`, if it is a leaf.
    #[inline]
    fn next(self, at: u32, words: &[u64; WORDS]) -> u32 {
        let word = words[usize::from(self.word) % WORDS];
        let child = (word >> (self.shift % 64)) as u32 & u32::from(self.mask);
        if self.mask == 0 { at } else { self.base + child }
    }
}

/// Several trees: what would be in too many places of the first is in the next.
#[derive(Debug, Default)]
pub(super) struct Trees {
    pub(super) roots: Vec<u32>,
    pub(super) nodes: Vec<Node>,
    pub(super) lists: Vec<u32>,
}

impl Trees {
    pub(super) fn with_capacity(nodes: usize, lists: usize) -> Self {
        let (nodes, lists) = (Vec::with_capacity(nodes), Vec::with_capacity(lists));
        Self { roots: Vec::new(), nodes, lists }
    }

    /// Gives memory back that there was more than needed.
    pub(super) fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.lists.shrink_to_fit();
    }

    /// Improves what `search` has found so far.
    #[inline]
    pub(super) fn search(
        &self,
        search: &mut Search,
        digests: &[Digest],
        slots: &Slots,
        wide: &[Wide],
    ) {
        for &root in &self.roots {
            let leaves = self.walk(root, search, digests);
            for (at, &leaf) in leaves[..search.count].iter().enumerate() {
                let list = self.nodes[leaf as usize].base as usize;
                let digest = &digests[usize::from(search.which[at])];
                let found = (&mut search.rank[at], &mut search.id[at]);
                slots.first_match(&self.lists[list..], digest, wide, found);
            }
        }
    }

    #[inline]
    fn walk(&self, root: u32, search: &Search, digests: &[Digest]) -> [u32; BATCH_MAX] {
        let mut places = [root; BATCH_MAX];
        loop {
            let mut forks = 0;
            for (place, &which) in places.iter_mut().zip(&search.which[..search.count]) {
                let node = self.nodes[*place as usize];
                *place = node.next(*place, digests[usize::from(which)].words());
                forks |= node.mask;
            }
            if forks == 0 {
                return places;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn rules_in_leaves(&self, digest: &Digest) -> usize {
        let list_of = |root: &u32| {
            let mut place = *root;
            while self.nodes[place as usize].mask != 0 {
                place = self.nodes[place as usize].next(place, digest.words());
            }
            &self.lists[self.nodes[place as usize].base as usize..]
        };
        let lists = self.roots.iter().map(list_of);
        lists.map(|list| list.iter().take_while(|slot| **slot != Slots::END).count()).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + (self.roots.capacity() + self.lists.capacity()) * size_of::<u32>()
    }
}
