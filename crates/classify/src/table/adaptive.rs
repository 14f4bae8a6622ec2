//! The adaptive table: a list in which rules that match often come first, as far as order allows.
//! "The packet filter could for example increment a counter in a receiving virtual interface each
//! time it forwards a packet. Occasionally, the packet filter would also re-sort the virtual
//! interface list based on these counters" (the paper, section 3.2).
//!
//! A rule never moves before one of lesser rank that it overlaps with: then the first match in the
//! list is the match of the least rank still. Sorting goes in small steps, one rule at a time.

use super::Table;
use crate::{Rule, RuleId};
use clearway_wire::digest::Digest;

/// Hits after which a rule is looked at again.
const HITS_PER_STEP: u32 = 64;

#[derive(Clone, Debug)]
struct Counted {
    rule: Rule,
    hits: u32,
    /// Hits since it was last looked at.
    fresh: u32,
}

/// Rules in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    rules: Vec<Counted>,
}

impl Adaptive {
    /// A table without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the rule at `from` before those in front of it that match less often and that it may
    /// pass.
    fn promote(&mut self, from: usize) {
        let moving = &self.rules[from];
        let may_pass = |other: &&Counted| {
            other.hits < moving.hits && !other.rule.clause.overlaps(&moving.rule.clause)
        };
        let passed = self.rules[..from].iter().rev().take_while(may_pass).count();
        self.rules[from - passed..=from].rotate_right(1);
    }
}

impl Table for Adaptive {
    fn insert(&mut self, rule: Rule) {
        // Behind all that it overlaps with and that go before it, before all that go behind it.
        let overlapping = |counted: &Counted| counted.rule.clause.overlaps(&rule.clause);
        let before = self
            .rules
            .iter()
            .rposition(|counted| counted.rule.rank < rule.rank && overlapping(counted));
        let behind = self
            .rules
            .iter()
            .position(|counted| counted.rule.rank > rule.rank && overlapping(counted));
        let least = before.map_or(0, |before| before + 1);
        let counted = Counted { rule, hits: 0, fresh: 0 };
        match behind {
            Some(behind) if behind < least => self.insert_in_order(counted),
            Some(behind) => self.rules.insert(behind, counted),
            None => self.rules.push(counted),
        }
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let Some(at) = self.rules.iter().position(|counted| counted.rule.id == id) else {
            return false;
        };
        self.rules.remove(at);
        true
    }

    fn classify(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]) {
        for (digest, found) in digests.iter().zip(found) {
            let at = self.rules.iter().position(|counted| counted.rule.clause.matches(digest));
            *found = at.map(|at| self.rules[at].rule.id);
            let Some(at) = at else { continue };
            let counted = &mut self.rules[at];
            counted.hits = counted.hits.saturating_add(1);
            counted.fresh += 1;
            if counted.fresh >= HITS_PER_STEP {
                counted.fresh = 0;
                self.promote(at);
            }
        }
    }

    fn rules(&self) -> usize {
        self.rules.len()
    }

    fn memory_bytes(&self) -> usize {
        self.rules.capacity() * size_of::<Counted>()
    }
}

impl Adaptive {
    /// Where the order has become such that no place is right for a new rule, everything goes back
    /// to the order of ranks.
    fn insert_in_order(&mut self, counted: Counted) {
        self.rules.push(counted);
        self.rules.sort_unstable_by_key(|counted| counted.rule.rank);
    }
}
