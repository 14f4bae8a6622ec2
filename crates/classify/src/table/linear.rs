//! The linear table: a list in order of rank. "The packet filter generates a packet digest and
//! iteratively tries to match it against receive patterns of all virtual interfaces" (the paper,
//! section 3.1). It is the oracle of all others.

use super::Table;
use crate::{Rule, RuleId};
use clearway_wire::digest::Digest;

/// Rules in order of rank.
#[derive(Clone, Debug, Default)]
pub struct Linear {
    rules: Vec<Rule>,
}

impl Linear {
    /// A table without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Table for Linear {
    fn insert(&mut self, rule: Rule) {
        let at = self.rules.partition_point(|other| other.rank < rule.rank);
        self.rules.insert(at, rule);
    }

    fn remove(&mut self, id: RuleId) -> bool {
        let Some(at) = self.rules.iter().position(|rule| rule.id == id) else { return false };
        self.rules.remove(at);
        true
    }

    fn classify(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]) {
        for (digest, found) in digests.iter().zip(found) {
            *found = self.rules.iter().find(|rule| rule.clause.matches(digest)).map(|rule| rule.id);
        }
    }

    fn rules(&self) -> usize {
        self.rules.len()
    }

    fn memory_bytes(&self) -> usize {
        self.rules.capacity() * size_of::<Rule>()
    }
}
