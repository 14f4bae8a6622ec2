//! A clause with its place in the order.

use crate::Clause;

/// What a table calls a rule. Chosen by whoever inserts it; small numbers keep tables small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// A place in the order: the lesser rank is asked first. Priorities go before the sequence in which
/// rules came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank(u64);

impl Rank {
    /// Sequence numbers are below this.
    pub const SEQUENCE_END: u64 = 1 << 48;

    /// The rank of the rule with a declared `priority` (the higher is asked first) that came as the
    /// `sequence`th.
    ///
    /// # Panics
    /// If the sequence number is [`Rank::SEQUENCE_END`] or more: nobody lives to see it.
    #[must_use]
    pub const fn new(priority: u16, sequence: u64) -> Self {
        assert!(sequence < Self::SEQUENCE_END, "2^48 rules have come");
        Self(((u16::MAX - priority) as u64) << 48 | sequence)
    }

    /// The declared priority.
    #[must_use]
    pub const fn priority(self) -> u16 {
        u16::MAX - (self.0 >> 48) as u16
    }

    /// The rank as a number, which orders as the rank does.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// What a table finds: the rule that matches and has the least rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name; no two rules in a table have the same.
    pub id: RuleId,
    /// Its place in the order; no two rules in a table have the same.
    pub rank: Rank,
    /// What it is about.
    pub clause: Clause,
}
