//! The production table: a few hash tables, each by the bits that many rules have in common, behind a
//! cache of exact answers.
//!
//! - Each rule is in one hash table, so that an update touches one bucket. Ranges of ports stay ranges.
//! - A table hashes by fewer bits than its rules ask for (TupleMerge), so that a few tables do for rules
//!   of hundreds of masks. A bucket holds its rules side by side in order of rank.
//! - Tables are asked in the order of their best rank, each about the whole batch, and only about
//!   packets that have no better match already.
//! - What fits nowhere is in the *rest*, which is scanned; when the rest grows, tables are made for it, and
//!   when the number of rules has doubled, all tables are planned anew.

mod cache;
mod entry;
mod plan;
mod search;
mod subtable;

use super::{BATCH_MAX, Table};
use crate::{Pattern, Rule, RuleId};
use cache::{Cache, Questions};
use clearway_wire::digest::{Digest, PATTERN_WORDS};
use entry::{Entry, Wide};
use plan::{BUCKET_MAX, TABLES_MAX};
use search::Search;
use std::collections::HashMap;
use subtable::Subtable;

/// The rest may have so many rules before tables are made for it.
const REST_MIN: usize = 16;
/// Never more tables than this.
const SUBTABLES_MAX: usize = 48;

/// The cache has room for as many flows per rule, and per rule that is about one flow: some room to
/// spare, so that most find a place.
const FLOWS: usize = 16;
const FLOWS_OF_EXACT: usize = 2;
/// With so few, and a short rest, all is as well as it can be.
const SUBTABLES_SIMPLE: usize = 4;

/// Where a rule is.
#[derive(Clone, Copy, Debug)]
struct Place {
    subtable: u32,
    hash: u64,
}

/// The production table.
#[derive(Debug)]
pub struct Production {
    cache: Cache,
    /// The first is the rest: its mask is empty, so that it takes everything.
    subtables: Vec<Subtable>,
    /// The order in which they are asked.
    order: Vec<u32>,
    places: HashMap<RuleId, Place>,
    /// Rules that are about one five-tuple.
    exact: usize,
    wide: Vec<Wide>,
    wide_free: Vec<u32>,
    /// How many rules there may be before all is planned anew.
    planned_for: usize,
    /// How many the rest may have before tables are made for it.
    rest_max: usize,
    /// Where the work on a batch is done; what is left of the last one means nothing.
    search: Box<Search>,
    questions: Box<Questions>,
}

impl Default for Production {
    fn default() -> Self {
        Self::new()
    }
}

impl Production {
    /// A table without rules.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cache: Cache::default(),
            subtables: vec![Subtable::new([0; PATTERN_WORDS])],
            order: vec![0],
            places: HashMap::new(),
            exact: 0,
            wide: Vec::new(),
            wide_free: Vec::new(),
            planned_for: 2 * REST_MIN,
            rest_max: REST_MIN,
            search: Box::new(Search::new()),
            questions: Box::new(Questions::new()),
        }
    }

    /// A table that remembers no answers: for measuring what the cache is worth.
    #[must_use]
    pub fn without_cache() -> Self {
        let mut table = Self::new();
        table.cache.disable();
        table
    }

    /// How many hash tables there are, the rest included.
    #[must_use]
    pub fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// How many packets the cache was asked about, and how many of them it knew.
    #[must_use]
    pub const fn cache_use(&self) -> (u64, u64) {
        self.cache.total()
    }

    fn entry(&mut self, rule: &Rule) -> Entry {
        let wide = Wide::of(rule).map_or(Entry::NARROW, |wide| {
            let at = self.wide_free.pop().unwrap_or(self.wide.len() as u32);
            if at as usize == self.wide.len() {
                self.wide.push(wide);
            } else {
                self.wide[at as usize] = wide;
            }
            at
        });
        Entry::new(rule, wide)
    }

    /// Puts an entry where it has the fewest neighbours.
    fn place(&mut self, entry: Entry) {
        let pattern = entry.pattern(&self.wide);
        let mut best = (BUCKET_MAX, 0, 0);
        for (index, subtable) in self.subtables.iter().enumerate().skip(1) {
            if !subtable.takes(&pattern) {
                continue;
            }
            let hash = subtable.hash_of(&pattern);
            let length = subtable.bucket_length(hash);
            if length < best.0 {
                best = (length, index, hash);
            }
            if length == 0 {
                break;
            }
        }
        let (_, index, mut hash) = best;
        if index == 0 {
            hash = self.subtables[0].hash_of(&pattern);
        }
        self.put(index, entry, hash);
    }

    fn put(&mut self, index: usize, entry: Entry, hash: u64) {
        let subtable = &mut self.subtables[index];
        let is_first = entry.rank < subtable.least_rank;
        subtable.insert(entry, hash, &self.wide);
        self.places.insert(RuleId(entry.id), Place { subtable: index as u32, hash });
        if is_first {
            self.sort();
        }
    }

    fn update_cache(&mut self, entry: &Entry) {
        let pattern = entry.pattern(&self.wide);
        let flows = self.exact * FLOWS_OF_EXACT + (self.places.len() - self.exact) * FLOWS;
        self.cache.update(&pattern, &entry.looks_at(&self.wide), flows);
    }

    fn sort(&mut self) {
        self.order.clear();
        self.order.extend(0..self.subtables.len() as u32);
        self.order.sort_by_key(|&index| self.subtables[index as usize].least_rank);
    }

    /// Makes tables for `entries`, which are in none, and puts them there.
    fn plan(&mut self, mut entries: Vec<Entry>, tables_max: usize) {
        // In order of rank, so that it is those behind that find a bucket full.
        entries.sort_unstable_by_key(|entry| entry.rank);
        let patterns: Vec<Pattern> =
            entries.iter().map(|entry| entry.pattern(&self.wide)).collect();
        for mask in plan::masks(&patterns, tables_max) {
            if self.subtables.iter().all(|subtable| subtable.mask != mask) {
                self.subtables.push(Subtable::new(mask));
            }
        }
        self.sort();
        for entry in entries {
            self.place(entry);
        }
        let rest = self.subtables[0].count;
        self.rest_max = REST_MIN.max(rest * 2);
    }

    /// True if no plan could be much better: as with nothing but connections, however many.
    fn is_simple(&self) -> bool {
        self.subtables.len() <= SUBTABLES_SIMPLE && self.subtables[0].count <= REST_MIN
    }

    /// All tables anew.
    fn plan_all(&mut self) {
        let entries: Vec<Entry> =
            self.subtables.iter().flat_map(|subtable| subtable.entries().copied()).collect();
        self.subtables.truncate(1);
        self.subtables[0] = Subtable::new([0; PATTERN_WORDS]);
        self.plan(entries, TABLES_MAX);
    }

    /// Tables for the rest.
    fn plan_rest(&mut self) {
        let room = SUBTABLES_MAX - self.subtables.len();
        let rest = std::mem::replace(&mut self.subtables[0], Subtable::new([0; PATTERN_WORDS]));
        self.plan(rest.entries().copied().collect(), room.min(2));
    }

    /// Asks the cache about a batch, and finds and remembers what it does not know.
    fn ask(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]) {
        self.cache.ask(digests, &mut self.questions);
        for (at, found) in found.iter_mut().enumerate() {
            *found = self.questions.rule(at).map(RuleId);
        }
        let unknown = self.questions.unknown_count;
        if unknown == 0 {
            return;
        }
        self.search.clear();
        for &which in &self.questions.unknown[..unknown] {
            self.search.push(&digests[usize::from(which)], usize::from(which));
        }
        self.search(digests);
        for at in 0..unknown {
            let which = usize::from(self.search.which[at]);
            found[which] = self.search.found(at).map(RuleId);
            self.cache.remember(&self.questions, which, self.search.found(at));
        }
    }

    /// Looks for the packets of `search` in all tables.
    fn search(&mut self, digests: &[Digest]) {
        for &index in &self.order {
            self.subtables[index as usize].search(&mut self.search, digests, &self.wide);
        }
    }
}

impl Table for Production {
    fn insert(&mut self, rule: Rule) {
        let entry = self.entry(&rule);
        self.place(entry);
        self.exact += usize::from(entry.is_exact());
        self.update_cache(&entry);
        if self.places.len() > self.planned_for {
            self.planned_for = self.places.len() * 2;
            if !self.is_simple() {
                self.plan_all();
            }
        } else if self.subtables[0].count > self.rest_max {
            self.plan_rest();
        }
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let Some(place) = self.places.remove(&id) else { return false };
        let subtable = &mut self.subtables[place.subtable as usize];
        let entry = subtable.remove(id.0, place.hash, &self.wide);
        self.exact -= usize::from(entry.is_exact());
        self.update_cache(&entry);
        if entry.is_wide() {
            self.wide_free.push(entry.wide);
        }
        true
    }

    fn classify(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]) {
        assert!(digests.len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
        let found = &mut found[..digests.len()];
        if self.cache.is_on(digests.len()) {
            return self.ask(digests, found);
        }
        self.search.clear();
        for (which, digest) in digests.iter().enumerate() {
            self.search.push(digest, which);
        }
        self.search(digests);
        for (at, found) in found.iter_mut().enumerate() {
            *found = self.search.found(at).map(RuleId);
        }
    }

    fn rules(&self) -> usize {
        self.places.len()
    }

    fn memory_bytes(&self) -> usize {
        let subtables: usize = self.subtables.iter().map(Subtable::memory_bytes).sum();
        // The map keeps one byte per place besides, and is at most 7/8 full.
        let places = self.places.capacity() * 8 / 7 * (size_of::<(RuleId, Place)>() + 1);
        let wide = self.wide.capacity() * size_of::<Wide>();
        let work = size_of::<Search>() + size_of::<Questions>();
        self.cache.memory_bytes() + subtables + places + wide + work
    }
}
