//! The values of one bitmask.

use super::{Answer, Mask};
use crate::{Pattern, RuleId};
use clearway_wire::digest::{Digest, PATTERN_WORDS};

/// A hash table with open addressing: `index` holds places in `values`, found by linear probing.
#[derive(Debug)]
pub(super) struct Group {
    mask: Mask,
    /// The words of which the mask says something.
    words: Vec<usize>,
    values: Vec<(Mask, Answer)>,
    index: Vec<u32>,
    /// No answer has a lesser rank.
    least_rank: u64,
    /// No answer has a greater rank.
    greatest_rank: u64,
}

const NOTHING: u32 = u32::MAX;

impl Group {
    pub(super) fn new(mask: Mask) -> Self {
        let words = (0..PATTERN_WORDS).filter(|&word| mask[word] != 0).collect();
        Self {
            mask,
            words,
            values: Vec::new(),
            index: vec![NOTHING; 4],
            least_rank: u64::MAX,
            greatest_rank: 0,
        }
    }

    pub(super) const fn least_rank(&self) -> u64 {
        self.least_rank
    }

    pub(super) const fn greatest_rank(&self) -> u64 {
        self.greatest_rank
    }

    pub(super) fn note_rank(&mut self, rank: u64) {
        self.least_rank = self.least_rank.min(rank);
        self.greatest_rank = self.greatest_rank.max(rank);
    }

    pub(super) fn length(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn slot(&self, word: impl Fn(usize) -> u64) -> usize {
        let hash = self.words.iter().fold(0u64, |hash, &at| {
            let mixed = (hash.rotate_left(29) ^ word(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        });
        hash as usize & (self.index.len() - 1)
    }

    /// Where in `values` the value is whose words are `word(0)` and so on.
    fn probe(&self, word: impl Fn(usize) -> u64) -> Option<usize> {
        let mut slot = self.slot(&word);
        loop {
            let at = self.index[slot];
            if at == NOTHING {
                return None;
            }
            let value = &self.values[at as usize].0;
            if self.words.iter().all(|&of| value[of] == word(of)) {
                return Some(at as usize);
            }
            slot = (slot + 1) & (self.index.len() - 1);
        }
    }

    pub(super) fn find(&self, value: &Mask) -> Option<&Answer> {
        self.probe(|word| value[word]).map(|at| &self.values[at].1)
    }

    pub(super) fn find_mut(&mut self, value: &Mask) -> Option<&mut Answer> {
        self.probe(|word| value[word]).map(|at| &mut self.values[at].1)
    }

    pub(super) fn look_up(&self, digest: &Digest) -> Option<Answer> {
        let words = digest.words();
        self.probe(|word| words[word] & self.mask[word]).map(|at| self.values[at].1)
    }

    /// Adds a value that is not there.
    pub(super) fn insert(&mut self, value: Mask, answer: Answer) {
        self.values.push((value, answer));
        self.note_rank(answer.rank);
        if self.values.len() * 2 > self.index.len() {
            self.rebuild(self.index.len() * 2);
        } else {
            self.enter(self.values.len() - 1);
        }
    }

    fn enter(&mut self, at: usize) {
        let value = self.values[at].0;
        let mut slot = self.slot(|word| value[word]);
        while self.index[slot] != NOTHING {
            slot = (slot + 1) & (self.index.len() - 1);
        }
        self.index[slot] = at as u32;
    }

    fn rebuild(&mut self, slots: usize) {
        self.index = vec![NOTHING; slots];
        (0..self.values.len()).for_each(|at| self.enter(at));
    }

    /// Calls `visit` with each value that overlaps with `pattern`.
    pub(super) fn overlaps(
        &mut self,
        pattern: &Pattern,
        mut visit: impl FnMut(&Mask, &mut Answer),
    ) {
        let common: Mask = std::array::from_fn(|word| self.mask[word] & pattern.mask()[word]);
        let wanted = pattern.value();
        for (value, answer) in &mut self.values {
            let differ = self
                .words
                .iter()
                .fold(0, |all, &word| all | (value[word] ^ wanted[word]) & common[word]);
            if differ == 0 {
                visit(value, answer);
                self.least_rank = self.least_rank.min(answer.rank);
            }
        }
    }

    /// Takes out the values that a rule answers.
    pub(super) fn take_answered_by(&mut self, id: RuleId) -> Vec<Mask> {
        let taken = self.values.extract_if(.., |(_, answer)| answer.id == id);
        let taken: Vec<_> = taken.map(|(value, _)| value).collect();
        if !taken.is_empty() {
            self.rebuild(self.index.len());
        }
        taken
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<(Mask, Answer)>()
            + self.index.capacity() * size_of::<u32>()
            + self.words.capacity() * size_of::<usize>()
            + size_of::<Self>()
    }
}
