//! How much there may be, in all and of one user.

use super::{Filter, Vif};
use clearway_wire::digest::PATTERN_WORDS;
use std::collections::{BTreeMap, BTreeSet};

/// What a refusal calls clauses. Of them, who runs the host may allow a user more.
pub const CLAUSES: &str = "alternatives in filters";

/// How much there may be. What the host has for itself does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of all users together.
    pub total: Most,
    /// Of each.
    pub user: Most,
}

/// How much there may be of each thing. Clauses are what costs memory (about 1 KB each with
/// everything), masks and copies are what costs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Alternatives of all filters.
    pub clauses: usize,
    /// Different masks of send and receive filters.
    pub masks: usize,
    /// Alternatives of what copies are wanted of: every packet is compared with each.
    pub copies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: Most { clauses: 262_144, masks: 2048, copies: 256 },
            user: Most { clauses: 16_384, masks: 128, copies: 64 },
        }
    }
}

/// What there is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    vifs: usize,
    clauses: usize,
    copies: usize,
    masks: BTreeMap<[u64; PATTERN_WORDS], usize>,
}

impl Usage {
    /// Nothing if `most` allows `vif` besides; else of what there would be too much.
    pub(super) fn admit(&self, vif: &Vif, most: &Most) -> Result<(), (&'static str, usize)> {
        let new: BTreeSet<_> = own_clauses(vif).map(|clause| clause.pattern().mask()).collect();
        let new = new.iter().filter(|mask| !self.masks.contains_key(**mask)).count();
        let copies = copied_clauses(vif).count();
        for (what, count, limit) in [
            (CLAUSES, self.clauses + clauses(vif), most.clauses),
            ("different masks", self.masks.len() + new, most.masks),
            ("alternatives of copies", self.copies + copies, most.copies),
        ] {
            if count > limit {
                return Err((what, limit));
            }
        }
        Ok(())
    }

    /// Counts `vif` in.
    pub(super) fn enter(&mut self, vif: &Vif) {
        for clause in own_clauses(vif) {
            *self.masks.entry(*clause.pattern().mask()).or_default() += 1;
            self.clauses += 1;
        }
        let copies = copied_clauses(vif).count();
        (self.clauses, self.copies) = (self.clauses + copies, self.copies + copies);
        self.vifs += 1;
    }

    /// Counts `vif` out. True if nothing is left.
    pub(super) fn leave(&mut self, vif: &Vif) -> bool {
        for clause in own_clauses(vif) {
            let mask = clause.pattern().mask();
            let count = self.masks.get_mut(mask).expect("it was counted in");
            *count -= 1;
            if *count == 0 {
                self.masks.remove(mask);
            }
            self.clauses -= 1;
        }
        let copies = copied_clauses(vif).count();
        (self.clauses, self.copies) = (self.clauses - copies, self.copies - copies);
        self.vifs -= 1;
        self.vifs == 0
    }
}

/// How many alternatives all filters of `vif` have together.
pub(super) fn clauses(vif: &Vif) -> usize {
    own_clauses(vif).chain(copied_clauses(vif)).count()
}

fn own_clauses(vif: &Vif) -> impl Iterator<Item = &crate::Clause> {
    vif.send.iter().chain(&vif.receive).flat_map(Filter::clauses)
}

fn copied_clauses(vif: &Vif) -> impl Iterator<Item = &crate::Clause> {
    vif.copies.iter().flat_map(Filter::clauses)
}
