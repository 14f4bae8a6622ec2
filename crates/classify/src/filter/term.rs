//! A clause while it is put together: what `vlan` has to say is decided when all is there.

use crate::{Clause, Pattern};
use clearway_wire::digest::fields;

/// What has been said about VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tagging {
    /// Nothing, nor about anything inside a frame.
    Unsaid,
    /// Nothing, but something about the inside: so there is no tag.
    Implied,
    /// Something: it is in the clause.
    Said,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) clause: Clause,
    pub(super) tagging: Tagging,
}

impl Term {
    /// Says nothing about the inside of a frame.
    pub(super) fn outside(clause: impl Into<Clause>) -> Self {
        Self { clause: clause.into(), tagging: Tagging::Unsaid }
    }

    /// Says something about the inside of a frame.
    pub(super) fn inside(clause: impl Into<Clause>) -> Self {
        Self { clause: clause.into(), tagging: Tagging::Implied }
    }

    /// Says something about the tag.
    pub(super) fn tag(clause: impl Into<Clause>) -> Self {
        Self { clause: clause.into(), tagging: Tagging::Said }
    }

    /// Both, if they do not contradict each other.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let tagging = match (self.tagging, other.tagging) {
            (Tagging::Said, _) | (_, Tagging::Said) => Tagging::Said,
            (Tagging::Implied, _) | (_, Tagging::Implied) => Tagging::Implied,
            _ => Tagging::Unsaid,
        };
        Some(Self { clause: self.clause.intersection(&other.clause)?, tagging })
    }

    /// The clause, with "no tag" if that is implied. `None` if that contradicts what `digest` says.
    pub(super) fn finish(&self) -> Option<Clause> {
        if self.tagging != Tagging::Implied {
            return Some(self.clause);
        }
        self.clause.intersection(&Pattern::ANY.with(fields::TAGGED, 0).into())
    }
}
