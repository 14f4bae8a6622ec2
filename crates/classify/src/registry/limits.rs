//! How much there may be, in all and of one owner.

use super::{Filter, Refusal, Vif};
use clearway_wire::digest::PATTERN_WORDS;
use std::collections::{BTreeMap, BTreeSet};

/// How much there may be. Clauses are what costs memory (about 1 KB each with everything), masks are what
/// costs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// VIFs in all.
    pub vifs: usize,
    /// VIFs of one owner.
    pub vifs_of_owner: usize,
    /// Alternatives of all send and receive filters of one owner.
    pub clauses_of_owner: usize,
    /// Different masks in all.
    pub masks: usize,
    /// Different masks of one owner.
    pub masks_of_owner: usize,
    /// Alternatives of the receive filters of all copies: every packet is compared with each.
    pub copy_clauses: usize,
    /// The same of one owner.
    pub copy_clauses_of_owner: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            vifs: 262_144,
            vifs_of_owner: 131_072,
            clauses_of_owner: 2 * 131_072,
            masks: 2048,
            masks_of_owner: 128,
            copy_clauses: 256,
            copy_clauses_of_owner: 64,
        }
    }
}

impl Limits {
    pub(super) fn admit_whole(&self, vifs: usize, masks: usize) -> Result<(), Refusal> {
        if vifs >= self.vifs {
            return Err(Refusal::TooMany { what: "VIFs", limit: self.vifs });
        }
        if masks >= self.masks {
            return Err(Refusal::TooMany { what: "different masks", limit: self.masks });
        }
        Ok(())
    }
}

/// What an owner has.
#[derive(Debug, Default)]
pub(super) struct Usage {
    vifs: usize,
    clauses: usize,
    masks: BTreeMap<[u64; PATTERN_WORDS], usize>,
}

impl Usage {
    /// Nothing if the limits allow `vif` besides.
    pub(super) fn admit(&self, vif: &Vif, limits: &Limits) -> Result<(), Refusal> {
        let new: BTreeSet<_> = clauses(vif).map(|clause| clause.pattern().mask()).collect();
        let new = new.iter().filter(|mask| !self.masks.contains_key(**mask)).count();
        let refuse = |what, limit| Err(Refusal::TooManyOfOwner { what, limit, owner: vif.owner });
        if self.vifs >= limits.vifs_of_owner {
            return refuse("VIFs", limits.vifs_of_owner);
        }
        if self.clauses + clauses(vif).count() > limits.clauses_of_owner {
            return refuse("alternatives in filters", limits.clauses_of_owner);
        }
        if self.masks.len() + new > limits.masks_of_owner {
            return refuse("different masks", limits.masks_of_owner);
        }
        Ok(())
    }

    /// Counts `vif` in.
    pub(super) fn enter(&mut self, vif: &Vif) {
        for clause in clauses(vif) {
            *self.masks.entry(*clause.pattern().mask()).or_default() += 1;
            self.clauses += 1;
        }
        self.vifs += 1;
    }

    /// Counts `vif` out. True if nothing is left.
    pub(super) fn leave(&mut self, vif: &Vif) -> bool {
        for clause in clauses(vif) {
            let mask = clause.pattern().mask();
            let count = self.masks.get_mut(mask).expect("it was counted in");
            *count -= 1;
            if *count == 0 {
                self.masks.remove(mask);
            }
            self.clauses -= 1;
        }
        self.vifs -= 1;
        self.vifs == 0
    }
}

pub(super) fn clauses(vif: &Vif) -> impl Iterator<Item = &crate::Clause> {
    vif.send.iter().chain(&vif.receive).flat_map(Filter::clauses)
}
