//! One of the hash tables: rules that all say something of the same bits, found by those bits.
//!
//! ```text
//! hash ─┬─ low bits ──▶ bits[]        16 bits per bucket: which hashes it holds; from the first
//!       │               │              cache level, rejects nearly everything that is not there
//!       └─ top 4 bits ──┘
//!                       └─▶ buckets[] ──▶ entries[start..start + length], in order of rank
//! ```

use super::entry::{Entry, Mask, WIDE_WORDS, Wide, hash, hash_wide};
use super::search::Search;
use crate::Pattern;
use clearway_wire::digest::Digest;

/// A run of entries; its room is `1 << class`.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    start: u32,
    length: u32,
    class: u8,
}

impl Bucket {
    const EMPTY: Self = Self { start: 0, length: 0, class: u8::MAX };
}

const CLASSES: usize = 32;
const BUCKETS_MIN: usize = 4;

#[derive(Debug)]
pub(super) struct Subtable {
    pub(super) mask: Mask,
    /// True if the mask is about words 0 and 3 only.
    is_narrow: bool,
    /// No entry has a lesser rank.
    pub(super) least_rank: u64,
    pub(super) count: usize,
    bits: Vec<u16>,
    buckets: Vec<Bucket>,
    entries: Vec<Entry>,
    /// Runs of entries that nobody uses, by class.
    free: [Vec<u32>; CLASSES],
}

impl Subtable {
    pub(super) fn new(mask: Mask) -> Self {
        Self {
            mask,
            is_narrow: WIDE_WORDS.iter().all(|&word| mask[word] == 0),
            least_rank: u64::MAX,
            count: 0,
            bits: vec![0; BUCKETS_MIN],
            buckets: vec![Bucket::EMPTY; BUCKETS_MIN],
            entries: Vec::new(),
            free: Default::default(),
        }
    }

    /// True if a rule that asks for `pattern` can be found here.
    pub(super) fn takes(&self, pattern: &Pattern) -> bool {
        self.mask.iter().zip(pattern.mask()).all(|(mine, theirs)| mine & !theirs == 0)
    }

    pub(super) fn hash_of(&self, pattern: &Pattern) -> u64 {
        self.hash_of_words(pattern.value())
    }

    #[inline]
    fn hash_of_words(&self, words: &[u64]) -> u64 {
        if self.is_narrow {
            hash(words[0] & self.mask[0], words[3] & self.mask[3])
        } else {
            hash_wide(words, &self.mask)
        }
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// How many entries share the bucket of `hash`.
    pub(super) fn bucket_length(&self, hash: u64) -> usize {
        self.buckets[self.index(hash)].length as usize
    }

    pub(super) fn insert(&mut self, entry: Entry, hash: u64, wide: &[Wide]) {
        // A table for everything has one bucket; more would not spread it.
        if self.count >= self.buckets.len() && self.mask != [0; 7] {
            self.grow(wide);
        }
        let index = self.index(hash);
        let bucket = self.with_room(index);
        let run = bucket.start as usize..(bucket.start + bucket.length) as usize;
        let at = self.entries[run.clone()].partition_point(|other| other.rank < entry.rank);
        self.entries.copy_within(run.start + at..run.end, run.start + at + 1);
        self.entries[run.start + at] = entry;
        self.buckets[index].length += 1;
        self.bits[index] |= bit(hash);
        self.least_rank = self.least_rank.min(entry.rank);
        self.count += 1;
    }

    /// The bucket, moved to a larger run of entries if it was full.
    fn with_room(&mut self, index: usize) -> Bucket {
        let old = self.buckets[index];
        if old.class != u8::MAX && old.length < 1 << old.class {
            return old;
        }
        let class = if old.class == u8::MAX { 0 } else { old.class + 1 };
        let start = self.allocate(class);
        let run = old.start as usize..(old.start + old.length) as usize;
        self.entries.copy_within(run, start as usize);
        self.release(old);
        self.buckets[index] = Bucket { start, length: old.length, class };
        self.buckets[index]
    }

    fn allocate(&mut self, class: u8) -> u32 {
        self.free[usize::from(class)].pop().unwrap_or_else(|| {
            let start = self.entries.len();
            self.entries.resize(start + (1 << class), Entry::NONE);
            u32::try_from(start).expect("rules are far fewer than 2^31")
        })
    }

    fn release(&mut self, bucket: Bucket) {
        if bucket.class != u8::MAX {
            self.free[usize::from(bucket.class)].push(bucket.start);
        }
    }

    /// Takes out the entry of that id, which is in the bucket of `hash`.
    pub(super) fn remove(&mut self, id: u32, hash: u64, wide: &[Wide]) -> Entry {
        let index = self.index(hash);
        let bucket = self.buckets[index];
        let (start, end) = (bucket.start as usize, (bucket.start + bucket.length) as usize);
        let at = self.entries[start..end].iter().position(|entry| entry.id == id);
        let at = start + at.expect("what a table was told to keep, it keeps");
        let entry = self.entries[at];
        self.entries.copy_within(at + 1..end, at);
        self.buckets[index].length -= 1;
        self.count -= 1;
        if bucket.length == 1 {
            self.release(bucket);
            self.buckets[index] = Bucket::EMPTY;
        }
        let rest = self.entries[start..end - 1].iter();
        self.bits[index] =
            rest.fold(0, |bits, entry| bits | bit(self.hash_of(&entry.pattern(wide))));
        entry
    }

    /// Doubles the number of buckets.
    fn grow(&mut self, wide: &[Wide]) {
        let all: Vec<_> = self.entries().copied().collect();
        let buckets = (self.buckets.len() * 2).max(BUCKETS_MIN);
        let mut grown = Self::new(self.mask);
        grown.bits = vec![0; buckets];
        grown.buckets = vec![Bucket::EMPTY; buckets];
        grown.entries.reserve(all.len() * 2);
        for entry in all {
            grown.insert(entry, grown.hash_of(&entry.pattern(wide)), wide);
        }
        grown.least_rank = self.least_rank;
        *self = grown;
    }

    /// All entries, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.buckets.iter().flat_map(|bucket| {
            &self.entries[bucket.start as usize..(bucket.start + bucket.length) as usize]
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let free: usize = self.free.iter().map(|runs| runs.capacity() * size_of::<u32>()).sum();
        self.bits.capacity() * size_of::<u16>()
            + self.buckets.capacity() * size_of::<Bucket>()
            + self.entries.capacity() * size_of::<Entry>()
            + free
            + size_of::<Self>()
    }

    /// Improves what `search` has found so far. First all buckets are looked for and only then
    /// entered, so that the loads of different packets overlap.
    #[inline]
    pub(super) fn search(&self, search: &mut Search, digests: &[Digest], wide: &[Wide]) {
        let mut work = [(0u8, 0u32); super::BATCH_MAX];
        let count = if self.is_narrow {
            let (mask_0, mask_3) = (self.mask[0], self.mask[3]);
            self.candidates(search, &mut work, |search, at| {
                hash(search.word_0[at] & mask_0, search.word_3[at] & mask_3)
            })
        } else {
            self.candidates(search, &mut work, |search, at| {
                hash_wide(digests[usize::from(search.which[at])].words(), &self.mask)
            })
        };
        for &(at, index) in &work[..count] {
            self.enter(usize::from(at), self.buckets[index as usize], search, digests, wide);
        }
    }

    /// Which packets may find something better here, and in which bucket. Without a branch.
    #[inline]
    fn candidates(
        &self,
        search: &Search,
        work: &mut [(u8, u32); super::BATCH_MAX],
        hash: impl Fn(&Search, usize) -> u64,
    ) -> usize {
        let last = self.bits.len() - 1;
        let mut count = 0;
        for at in 0..search.count {
            let hash = hash(search, at);
            let index = hash as usize & last;
            let is_there = self.bits[index] & bit(hash) != 0;
            work[count % super::BATCH_MAX] = (at as u8, index as u32);
            count += usize::from(is_there & (self.least_rank < search.rank[at]));
        }
        count
    }

    #[inline]
    fn enter(
        &self,
        at: usize,
        bucket: Bucket,
        search: &mut Search,
        digests: &[Digest],
        wide: &[Wide],
    ) {
        let (word_0, word_3) = (search.word_0[at], search.word_3[at]);
        let run = bucket.start as usize..(bucket.start + bucket.length) as usize;
        for entry in &self.entries[run] {
            if entry.rank >= search.rank[at] {
                break;
            }
            let rest_matches = || {
                let digest = &digests[usize::from(search.which[at])];
                !entry.is_wide() || wide[entry.wide as usize].matches(digest)
            };
            if entry.matches(word_0, word_3) && rest_matches() {
                (search.rank[at], search.id[at]) = (entry.rank, entry.id);
                break;
            }
        }
    }
}

/// The top four bits of a hash, as one of sixteen bits.
#[inline]
fn bit(hash: u64) -> u16 {
    1 << (hash >> 60)
}
