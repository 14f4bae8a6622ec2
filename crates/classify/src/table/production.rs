//! The production table: decision trees over the rules that have been there for a while, hash
//! tables for those that came since and for connections, behind a cache of exact answers.
//!
//! ```text
//!  insert ──▶ recent (hash tables) ──┐ step by step, while packets come:
//!                 │                  ▼
//!             connections      slots ──▶ plan ──▶ trees
//! ```
//!
//! - An update touches one bucket, or one slot: trees are never changed, but made anew.
//! - That is done a slice at a time, one with each batch of packets: soon if many rules are in hash
//!   tables, and otherwise when searching these has cost about an eighth of what making trees does.
//!   Meanwhile a rule may be found in both.

mod cache;
mod choice;
mod cut;
mod entry;
mod plan;
mod recent;
mod search;
mod slots;
mod subtable;
#[cfg(test)]
mod tests;
mod tree;

use super::{BATCH_MAX, Table};
use crate::slab::without_free_end;
use crate::{Rule, RuleId};
use cache::{Cache, Questions};
use clearway_wire::digest::Digest;
use entry::{Entry, Wide};
use plan::Plan;
use recent::{Place, Recent};
use search::Search;
use slots::Slots;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use tree::Trees;

/// The cache has room for as many flows per rule, and per rule that is about one flow: some room to
/// spare, so that most find a place.
const FLOWS: usize = 12;
const FLOWS_OF_EXACT: usize = 2;
/// More exact rules than this, and than one in so many of all, are connections.
const EXACT_FEW: usize = 64;
const EXACT_PART: usize = 8;
/// Trees are made anew soon if more than one rule in so many is in the hash tables: when as many
/// hash tables have been asked, in all batches since, as a quarter of the rules that the trees
/// would hold.
const NEW_PART: usize = 4;
const DEBT_PART: usize = 4;
/// With fewer, when as many have been asked for each slice that it took the last time: about then
/// it has cost an eighth of what making trees does.
const DEBT_PER_SLICE: usize = 32;
/// Or when so many slots of rules that are gone are in lists, of all.
const RETIRED_PART: usize = 2;
/// Memory is given back when fewer than one place in so many is used.
const SPARSE: usize = 4;
/// So many slots are looked at in a slice when rules move.
const MOVED: usize = 32;

/// Where a rule is. Trees may have what is in a slot, and if they do not, the hash tables do.
#[derive(Clone, Copy, Debug)]
struct Whereabouts {
    slot: Option<u32>,
    recent: Option<Place>,
}

/// What is done with slots between batches.
#[derive(Debug)]
enum Work {
    /// Nothing.
    None,
    /// Trees are made.
    Plan(Box<Plan>),
    /// What is in slots before this one, and in the trees now, moves out of the hash tables.
    Move(usize),
}

/// The production table.
#[derive(Debug)]
pub struct Production {
    cache: Cache,
    slots: Slots,
    trees: Trees,
    recent: Recent,
    work: Work,
    /// How many hash tables have been asked since the trees were made, in all batches.
    debt: usize,
    /// How many slices it took to make the trees.
    slices: usize,
    places: HashMap<RuleId, Whereabouts>,
    /// Rules that are about one five-tuple.
    exact: usize,
    /// Those of them that no tree ever has: they are best found by a hash.
    connections: usize,
    wide: Vec<Wide>,
    /// Free places among those, the lowest first.
    wide_free: BTreeSet<u32>,
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
            slots: Slots::new(),
            trees: Trees::default(),
            recent: Recent::new(),
            work: Work::None,
            debt: 0,
            slices: 0,
            places: HashMap::new(),
            exact: 0,
            connections: 0,
            wide: Vec::new(),
            wide_free: BTreeSet::new(),
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

    /// How many hash tables are asked.
    #[must_use]
    pub fn hash_tables(&self) -> usize {
        self.recent.tables()
    }

    /// True if no rules are on their way into the trees.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self.work, Work::None) && self.recent.count() == self.connections
    }

    /// How many packets the cache was asked about, and how many of them it knew.
    #[must_use]
    pub const fn cache_use(&self) -> (u64, u64) {
        self.cache.total()
    }

    /// With how many rules the trees have a packet compared, at most.
    #[cfg(test)]
    pub(crate) fn rules_in_leaves(&self, digest: &Digest) -> usize {
        self.trees.rules_in_leaves(digest)
    }

    fn entry(&mut self, rule: &Rule) -> Entry {
        let wide = Wide::of(rule).map_or(Entry::NARROW, |wide| {
            let at = self.wide_free.pop_first().unwrap_or(self.wide.len() as u32);
            if at as usize == self.wide.len() {
                self.wide.push(wide);
            } else {
                self.wide[at as usize] = wide;
            }
            at
        });
        Entry::new(rule, wide)
    }

    fn update_cache(&mut self, entry: &Entry) {
        let pattern = entry.pattern(&self.wide);
        let flows = self.exact * FLOWS_OF_EXACT + (self.places.len() - self.exact) * FLOWS;
        self.cache.update(&pattern, &entry.looks_at(&self.wide), flows);
    }

    /// Gives back memory that only rules which are gone have needed.
    fn trim(&mut self) {
        let Self { wide, wide_free, places, .. } = self;
        wide.truncate(without_free_end(wide_free, wide.len()));
        if wide.len() < wide.capacity() / SPARSE {
            wide.shrink_to(wide.len() * 2);
        }
        if places.len() < places.capacity() / SPARSE {
            places.shrink_to(places.len() * 2);
        }
    }

    /// A slice of what is to be done so that packets are found faster.
    fn work(&mut self) {
        match &mut self.work {
            Work::None => {
                if self.is_plan_due() {
                    self.slots.begin();
                    self.slices = 0;
                    self.work = Work::Plan(Box::new(Plan::new()));
                }
            }
            Work::Plan(plan) => {
                self.slices += 1;
                if let Some(trees) = plan.step(&mut self.slots, &self.wide) {
                    self.trees = trees;
                    self.slots.finish();
                    self.work = Work::Move(self.slots.entries().len());
                }
            }
            Work::Move(end) => {
                let slots = end.saturating_sub(MOVED)..*end;
                *end = slots.start;
                self.move_rules(slots);
            }
        }
    }

    fn is_plan_due(&self) -> bool {
        let rules = self.places.len() - self.connections;
        let new = self.recent.count() - self.connections;
        let is_debt_due = match new {
            0 => false,
            _ if new * NEW_PART > rules => self.debt * DEBT_PART > rules,
            _ => self.debt > self.slices * DEBT_PER_SLICE,
        };
        is_debt_due || self.slots.retired() * RETIRED_PART > self.slots.entries().len()
    }

    /// Rules in these slots that the trees have: the hash tables forget them.
    fn move_rules(&mut self, slots: Range<usize>) {
        if slots.start == 0 {
            self.work = Work::None;
            self.debt = 0;
        }
        // The highest slots may have been given back meanwhile.
        for slot in slots.start..slots.end.min(self.slots.entries().len()) {
            let entry = &self.slots.entries()[slot];
            if !self.slots.is_named(slot as u32) || entry.is_never() || slot == Slots::END as usize
            {
                continue;
            }
            let place = self.places.get_mut(&RuleId(entry.id)).expect("a rule has a place");
            if let Some(recent) = place.recent.take() {
                self.recent.remove(entry.id, recent, &self.wide);
            }
        }
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

    /// Looks for the packets of `search` everywhere.
    fn search(&mut self, digests: &[Digest]) {
        self.trees.search(&mut self.search, digests, &self.slots, &self.wide);
        self.recent.search(&mut self.search, digests, &self.wide);
        self.debt += self.recent.tables();
    }
}

impl Table for Production {
    fn insert(&mut self, rule: Rule) {
        let entry = self.entry(&rule);
        self.exact += usize::from(entry.is_exact());
        let few = EXACT_FEW.max(self.places.len() / EXACT_PART);
        let is_connection = entry.is_exact() && self.exact > few;
        self.connections += usize::from(is_connection);
        let recent = Some(self.recent.insert(entry, &self.wide));
        let slot = (!is_connection).then(|| self.slots.insert(entry));
        self.places.insert(rule.id, Whereabouts { slot, recent });
        self.update_cache(&entry);
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let Some(place) = self.places.remove(&id) else { return false };
        let entry = place.recent.map(|recent| self.recent.remove(id.0, recent, &self.wide));
        let entry = match place.slot {
            Some(slot) => self.slots.remove(slot),
            None => entry.expect("a connection is in the hash tables"),
        };
        self.connections -= usize::from(place.slot.is_none());
        self.exact -= usize::from(entry.is_exact());
        self.update_cache(&entry);
        if entry.is_wide() {
            self.wide_free.insert(entry.wide);
        }
        self.trim();
        true
    }

    fn classify(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]) {
        assert!(digests.len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
        let found = &mut found[..digests.len()];
        self.work();
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
        // The map keeps one byte per place besides, and is at most 7/8 full.
        let places = self.places.capacity() * 8 / 7 * (size_of::<(RuleId, Whereabouts)>() + 1);
        let wide = self.wide.capacity() * size_of::<Wide>();
        let work = size_of::<Search>() + size_of::<Questions>();
        let found =
            self.trees.memory_bytes() + self.slots.memory_bytes() + self.recent.memory_bytes();
        self.cache.memory_bytes() + found + places + wide + work
    }
}
