//! Which clauses overlap with a given one. Clauses are grouped by mask and, in each group, found by the
//! hash of their value. A clause that says all of what a group's mask asks for can overlap with those of
//! one value only; for any other, the whole group is looked through.

use super::VifId;
use super::slab::Slab;
use crate::{Clause, Pattern, Ports, RuleId};
use clearway_wire::digest::{PATTERN_WORDS, fields};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, RandomState};

type Mask = [u64; PATTERN_WORDS];

/// The clauses of all VIFs.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    rules: Slab<(Clause, VifId)>,
    groups: BTreeMap<Mask, BTreeSet<(u64, u32)>>,
    /// All masks in one.
    union: Mask,
    /// Clauses with a range of ports, which is in no mask.
    ranges: usize,
    /// Seeded at random, so that nobody can make one value's list long on purpose.
    hasher: RandomState,
}

impl Overlaps {
    pub(super) fn insert(&mut self, clause: Clause, vif: VifId) -> RuleId {
        let index = self.rules.insert((clause, vif));
        let hash = self.hash(clause.pattern().value());
        let mask = clause.pattern().mask();
        self.groups.entry(*mask).or_default().insert((hash, index));
        self.union = either(self.union, mask);
        self.ranges += usize::from(has_range(&clause));
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
            self.union = self.groups.keys().fold([0; PATTERN_WORDS], either);
        }
        self.ranges -= usize::from(has_range(&clause));
    }

    /// How many different masks there are.
    pub(super) fn masks(&self) -> usize {
        self.groups.len()
    }

    /// The bits of a digest on which it may depend which clauses match.
    #[inline]
    pub(super) fn decisive(&self) -> Mask {
        let mut bits = self.union;
        if self.ranges > 0 {
            bits[0] |= fields::SOURCE_PORT.mask() | fields::DESTINATION_PORT.mask();
        }
        bits
    }

    /// Whose rule it is.
    #[inline]
    pub(super) fn vif_of(&self, rule: RuleId) -> VifId {
        self.rules.find(rule.0).expect("the table has no rules but these").1
    }

    /// A clause that overlaps with `clause`, of a VIF that `is_wanted`.
    pub(super) fn find(
        &self,
        clause: &Clause,
        is_wanted: impl Fn(VifId) -> bool,
    ) -> Option<(VifId, Clause)> {
        let candidate = |&(_, index): &(u64, u32)| {
            let &(other, vif) = self.rules.find(index).expect("groups hold present rules");
            (other.overlaps(clause) && is_wanted(vif)).then_some((vif, other))
        };
        self.groups.iter().find_map(|(mask, group)| {
            match self.value_under(mask, clause.pattern()) {
                Some(hash) => group.range((hash, 0)..=(hash, u32::MAX)).find_map(candidate),
                None => group.iter().find_map(candidate),
            }
        })
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

fn either(a: Mask, b: &Mask) -> Mask {
    std::array::from_fn(|word| a[word] | b[word])
}

fn has_range(clause: &Clause) -> bool {
    [clause.source_ports(), clause.destination_ports()] != [Ports::ANY; 2]
}
