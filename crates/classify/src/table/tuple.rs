//! The tuple table: one hash table per bitmask, as in the paper (section 3.2, figure 4): "calculate
//! the digest, apply a bitmask, calculate a hash from the masked digest, and perform a lookup to
//! check if any value associated with the bitmask matches the digest". The first hit ends the
//! search.
//!
//! Ranges of ports become sets of prefixes, so a rule may have several values. To keep the order of
//! rules, "explicitly add filtering rules for packets that match multiple patterns": the
//! intersections. What is added:
//!
//! - Bitmasks are asked in an order in which one that says more comes before one that says part of
//!   it. So an intersection, whose bitmask says what both say, is always asked before both.
//! - A value's answer is the first rule that contains the value. So a rule that contains another's
//!   value needs no intersection: it is the answer there.
//! - For a value *v* and a rule *r* that overlap, where *v* is asked first and *r* goes before
//!   *v*'s answer, the intersection is added; and for that again. Nothing else can be answered
//!   wrongly: if the first hit were *v* and the right answer *r*, then *v* ∩ *r* would have been
//!   hit before.
//!
//! Their number may explode (fw1 with 10,000 rules has a million in the paper). Past a limit the
//! table gives all of them up, and asks every bitmask that may have a better answer than the one it
//! has.

mod group;

use super::Table;
use crate::{Pattern, Rule, RuleId};
use clearway_wire::digest::{Digest, PATTERN_WORDS};
use group::Group;
use std::collections::BTreeMap;

type Mask = [u64; PATTERN_WORDS];

/// No more values than this: about 100 MB.
const VALUES_MAX: usize = 1 << 20;
/// No more comparisons of patterns than this in search of intersections: some ten seconds.
const COMPARISONS_MAX: u64 = 1 << 33;

/// A value's answer, or one of a rule's patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    rank: u64,
    id: RuleId,
}

/// The order in which bitmasks are asked: those that say more first.
type Place = (std::cmp::Reverse<u32>, Mask);

fn place(mask: &Mask) -> Place {
    (std::cmp::Reverse(mask.iter().map(|word| word.count_ones()).sum()), *mask)
}

/// One hash table per bitmask.
#[derive(Debug)]
pub struct Tuple {
    groups: BTreeMap<Place, Group>,
    /// The patterns of all rules, by bitmask, each list in order of rank.
    patterns: BTreeMap<Place, Vec<(Answer, Pattern)>>,
    ids: BTreeMap<RuleId, Rule>,
    values: usize,
    values_max: usize,
    comparisons: u64,
    /// How many bitmasks and values there were when intersections were given up. From then on every
    /// bitmask is asked.
    given_up: Option<(usize, usize)>,
}

impl Default for Tuple {
    fn default() -> Self {
        Self::new()
    }
}

impl Tuple {
    /// A table without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::with_values_max(VALUES_MAX)
    }

    /// A table that gives intersections up when there would be more than `values_max` values.
    #[must_use]
    pub fn with_values_max(values_max: usize) -> Self {
        Self {
            groups: BTreeMap::new(),
            patterns: BTreeMap::new(),
            ids: BTreeMap::new(),
            values: 0,
            values_max,
            comparisons: 0,
            given_up: None,
        }
    }

    /// How many bitmasks there are, those of intersections included: the paper's "after hashing".
    /// Of a table that has given up, how many there were.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.given_up.map_or(self.groups.len(), |(masks, _)| masks)
    }

    /// How many values there are, intersections included. Of a table that has given up, how many
    /// there were.
    #[must_use]
    pub fn values(&self) -> usize {
        self.given_up.map_or(self.values, |(_, values)| values)
    }

    fn insert_pattern(&mut self, answer: Answer, pattern: Pattern) {
        let place = place(pattern.mask());
        let list = self.patterns.entry(place).or_default();
        let at = list.partition_point(|(other, _)| other.rank < answer.rank);
        list.insert(at, (answer, pattern));
        if self.given_up.is_some() {
            return self.insert_own(answer, &pattern);
        }
        // What the rule changes for the values that are there.
        let mut work = Vec::new();
        for (&of, group) in &mut self.groups {
            if answer.rank >= group.greatest_rank() {
                continue;
            }
            self.comparisons += group.length() as u64;
            group.overlaps(&pattern, |value, old| {
                if answer.rank >= old.rank {
                    return;
                }
                if contains(pattern.mask(), &of.1) {
                    *old = answer;
                } else if of < place {
                    work.extend(Pattern::new(of.1, *value).intersection(&pattern));
                }
            });
        }
        work.push(pattern);
        self.add(work);
    }

    /// Adds a rule's own value, for a table that asks all bitmasks: only equal patterns matter.
    fn insert_own(&mut self, answer: Answer, pattern: &Pattern) {
        let place = place(pattern.mask());
        let group = self.groups.entry(place).or_insert_with(|| Group::new(place.1));
        match group.find_mut(pattern.value()) {
            Some(old) if old.rank <= answer.rank => {}
            Some(old) => *old = answer,
            None => {
                group.insert(*pattern.value(), answer);
                self.values += 1;
            }
        }
        group.note_rank(answer.rank);
    }

    /// Adds values, with their intersections, as far as they are not there.
    fn add(&mut self, mut work: Vec<Pattern>) {
        while let Some(pattern) = work.pop() {
            let place = place(pattern.mask());
            let is_there = |group: &Group| group.find(pattern.value()).is_some();
            if self.groups.get(&place).is_some_and(is_there) {
                continue;
            }
            let answer = self.first_containing(&pattern).expect("it is part of a rule at least");
            self.groups
                .entry(place)
                .or_insert_with(|| Group::new(place.1))
                .insert(*pattern.value(), answer);
            self.values += 1;
            self.intersect(&pattern, answer, &mut work);
            let is_too_much =
                self.values + work.len() > self.values_max || self.comparisons > COMPARISONS_MAX;
            if is_too_much {
                return self.give_up();
            }
        }
    }

    /// Goes back to the values that rules have.
    fn give_up(&mut self) {
        self.given_up = Some((self.groups.len(), self.values));
        self.groups.clear();
        self.values = 0;
        let all: Vec<_> = self.patterns.values().flatten().copied().collect();
        all.iter().for_each(|(answer, pattern)| self.insert_own(*answer, pattern));
    }

    /// Gives a value to the next rule that has the same.
    fn insert_heir(&mut self, value: &Pattern) {
        let list = self.patterns.get(&place(value.mask()));
        let heir = list.into_iter().flatten().find(|(_, pattern)| pattern == value);
        if let Some((answer, pattern)) = heir.copied() {
            self.insert_own(answer, &pattern);
        }
    }

    /// The best answer of all bitmasks.
    fn exhaustive(&self, digest: &Digest) -> Option<Answer> {
        self.groups.values().fold(None, |best: Option<Answer>, group| {
            let end = best.map_or(u64::MAX, |best| best.rank);
            let hit = (group.least_rank() < end).then(|| group.look_up(digest)).flatten();
            hit.filter(|hit| hit.rank < end).or(best)
        })
    }

    /// The intersections that a value of that answer needs.
    fn intersect(&mut self, value: &Pattern, answer: Answer, work: &mut Vec<Pattern>) {
        let place = place(value.mask());
        for (of, list) in self.patterns.range(place..) {
            if *of == place {
                continue;
            }
            self.comparisons += list.len() as u64;
            let before = list.iter().take_while(|(other, _)| other.rank < answer.rank);
            work.extend(before.filter_map(|(_, pattern)| value.intersection(pattern)));
        }
    }

    /// The rule of the least rank that contains all of `value`.
    fn first_containing(&self, value: &Pattern) -> Option<Answer> {
        let mut best: Option<Answer> = None;
        for (of, list) in self.patterns.range(place(value.mask())..) {
            if !contains(&of.1, value.mask()) {
                continue;
            }
            let end = best.map_or(u64::MAX, |best| best.rank);
            let mut better = list.iter().take_while(|(answer, _)| answer.rank < end);
            if let Some((answer, _)) = better.find(|(_, pattern)| pattern.contains(value)) {
                best = Some(*answer);
            }
        }
        best
    }
}

/// True if `mask` says no more than `of` does.
fn contains(mask: &Mask, of: &Mask) -> bool {
    mask.iter().zip(of).all(|(mine, theirs)| mine & !theirs == 0)
}

impl Table for Tuple {
    fn insert(&mut self, rule: Rule) {
        self.ids.insert(rule.id, rule);
        let answer = Answer { rank: rule.rank.number(), id: rule.id };
        for pattern in rule.clause.patterns() {
            self.insert_pattern(answer, pattern);
        }
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let Some(rule) = self.ids.remove(&id) else { return false };
        for pattern in rule.clause.patterns() {
            let place = place(pattern.mask());
            // The first of several patterns of one bitmask takes all of them.
            let Some(list) = self.patterns.get_mut(&place) else { continue };
            list.retain(|(answer, _)| answer.id != id);
            if list.is_empty() {
                self.patterns.remove(&place);
            }
        }
        // What it answered is somebody else's now, or nobody's.
        let mut orphans = Vec::new();
        for (place, group) in &mut self.groups {
            let values = group.take_answered_by(id);
            orphans.extend(values.into_iter().map(|value| Pattern::new(place.1, value)));
        }
        self.groups.retain(|_, group| !group.is_empty());
        self.values -= orphans.len();
        if self.given_up.is_some() {
            orphans.iter().for_each(|value| self.insert_heir(value));
            return true;
        }
        orphans.retain(|value| self.first_containing(value).is_some());
        self.add(orphans);
        true
    }

    fn classify(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]) {
        for (digest, found) in digests.iter().zip(found) {
            let best = match self.given_up {
                None => self.groups.values().find_map(|group| group.look_up(digest)),
                Some(_) => self.exhaustive(digest),
            };
            *found = best.map(|answer| answer.id);
        }
    }

    fn rules(&self) -> usize {
        self.ids.len()
    }

    fn memory_bytes(&self) -> usize {
        let groups: usize = self.groups.values().map(Group::memory_bytes).sum();
        let lists = self.patterns.values();
        let lists: usize = lists.map(|list| list.capacity() * size_of::<(Answer, Pattern)>()).sum();
        groups + lists + self.ids.len() * size_of::<(RuleId, Rule)>()
    }
}
