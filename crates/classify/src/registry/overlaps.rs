//! Which clauses overlap with a given one. Clauses are grouped by mask and, in each group, found by
//! the hash of their value. A clause that says all of what a group's mask asks for can overlap with
//! those of one value only; for any other, the whole group is looked through.

use super::VifId;
use crate::slab::Slab;
use crate::{Clause, Pattern, RuleId};
use clearway_wire::digest::PATTERN_WORDS;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Bound;

type Mask = [u64; PATTERN_WORDS];
/// A clause in its group: the hash of its value, and its number.
type Member = (u64, u32);

/// The clauses of all VIFs.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    rules: Slab<(Clause, VifId)>,
    groups: BTreeMap<Mask, BTreeSet<Member>>,
    /// Seeded at random, so that nobody can make one value's list long on purpose.
    hasher: RandomState,
}

/// How far a search has come. It stays good when clauses come and go: those that were there all the
/// time are looked at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// The first group that is not done.
    group: Bound<Mask>,
    /// What was looked at last in it.
    member: Option<Member>,
}

/// What a search has found.
pub(super) enum Search {
    Found(VifId, Clause),
    Nothing,
    /// There was no time for all.
    Unfinished,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { group: Bound::Unbounded, member: None }
    }
}

impl Overlaps {
    pub(super) fn insert(&mut self, clause: Clause, vif: VifId) -> RuleId {
        let index = self.rules.insert((clause, vif));
        let hash = self.hash(clause.pattern().value());
        self.groups.entry(*clause.pattern().mask()).or_default().insert((hash, index));
        RuleId(index)
    }

    pub(super) fn remove(&mut self, rule: RuleId) {
        let Some((clause, _)) = self.rules.remove(rule.0) else { return };
        let hash = self.hash(clause.pattern().value());
        let mask = clause.pattern().mask();
        let group = self.groups.get_mut(mask).expect("each clause is in the group of its mask");
        group.remove(&(hash, rule.0));
        if group.is_empty() {
            self.groups.remove(mask);
        }
    }

    /// How many clauses there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Goes on looking for a clause that overlaps with `clause`, of a VIF that `is_wanted`. Each
    /// group and each clause that is looked at takes one of what is `left`.
    pub(super) fn find(
        &self,
        clause: &Clause,
        cursor: &mut Cursor,
        left: &mut usize,
        is_wanted: impl Fn(VifId) -> bool,
    ) -> Search {
        for (mask, group) in self.groups.range((cursor.group, Bound::Unbounded)) {
            if cursor.group != Bound::Included(*mask) {
                *cursor = Cursor { group: Bound::Included(*mask), member: None };
            }
            if *left == 0 {
                return Search::Unfinished;
            }
            *left -= 1;
            for member in group.range(self.members(mask, clause.pattern(), cursor.member)) {
                if *left == 0 {
                    return Search::Unfinished;
                }
                *left -= 1;
                cursor.member = Some(*member);
                let &(other, vif) = self.rules.find(member.1).expect("groups hold present rules");
                if other.overlaps(clause) && is_wanted(vif) {
                    return Search::Found(vif, other);
                }
            }
            *cursor = Cursor { group: Bound::Excluded(*mask), member: None };
        }
        Search::Nothing
    }

    /// Which clauses of the group of a mask may overlap with a pattern, behind the one that was
    /// looked at last.
    fn members(
        &self,
        mask: &Mask,
        pattern: &Pattern,
        last: Option<Member>,
    ) -> (Bound<Member>, Bound<Member>) {
        let (low, high) = match self.value_under(mask, pattern) {
            Some(hash) => ((hash, 0), (hash, u32::MAX)),
            None => ((0, 0), (u64::MAX, u32::MAX)),
        };
        (last.map_or(Bound::Included(low), Bound::Excluded), Bound::Included(high))
    }

    /// The hash of what `pattern` says under `mask`, if it says all of it.
    fn value_under(&self, mask: &Mask, pattern: &Pattern) -> Option<u64> {
        let says_all = (0..PATTERN_WORDS).all(|word| mask[word] & !pattern.mask()[word] == 0);
        let value: Mask = std::array::from_fn(|word| pattern.value()[word] & mask[word]);
        says_all.then(|| self.hash(&value))
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }
}
