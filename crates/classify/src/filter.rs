//! Filters: patterns as people write them, with the words of tcpdump.
//!
//! ```text
//! filter     = term { "or" term }
//! term       = primary { ["and"] primary }
//! primary    = "(" filter ")" | primitive
//! primitive  = "any"
//!            | [ether] [src|dst] MAC | ether (src|dst|host) MAC | ether proto N | ether multicast
//!            | vlan [ID] [priority N] | vlan optional | untagged
//!            | ip | ip6 | arp | tcp | udp | udplite | sctp | dccp | icmp | icmp6
//!            | [ip|ip6] proto N
//!            | [ip|ip6] [src|dst] host ADDRESS | [ip|ip6] [src|dst] net PREFIX
//!            | [tcp|udp|...] [src|dst] port N | [tcp|udp|...] [src|dst] portrange N-N
//!            | (icmp|icmp6) [type N] [code N]
//!            | arp [op N|request|reply] [sender ADDRESS] [target ADDRESS]
//!            | aoe [major N] [minor N] [command N] [tag N]
//!            | first-fragment | later-fragment | unintelligible
//!            | digest[WORD] & MASK = VALUE
//! ```
//!
//! As with tcpdump, what says something about the inside of a frame (everything but `any`, `ether
//! src`, `ether dst` and `digest`) is about frames without a VLAN tag, unless `vlan` says
//! otherwise: `vlan optional` for both. Unlike with tcpdump, `not` is not there: the order of rules
//! says it. And `port` is about packets whose ports are known: no later fragment has any.
//!
//! [`Filter`] prints as text that reads back as the same filter, and [`Filter::explain`] says field
//! by field what it is about.

mod error;
mod explain;
mod lexer;
mod parse;
mod print;
mod term;
#[cfg(test)]
mod tests;

pub use error::FilterError;

use crate::{Clause, Pattern};
use clearway_wire::digest::Digest;
use std::str::FromStr;

/// A filter has at most this many alternatives, those included that `host` and `port` without a
/// direction and parentheses make.
pub const ALTERNATIVES_MAX: usize = 64;
/// A filter's text has at most this many bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// A set of clauses, of which one has to match. Has at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    clauses: Vec<Clause>,
}

impl Filter {
    /// Matches everything.
    #[must_use]
    pub fn any() -> Self {
        Clause::ANY.into()
    }

    /// The filter of several clauses. `None` if there are none or more than [`ALTERNATIVES_MAX`].
    #[must_use]
    pub fn of(mut clauses: Vec<Clause>) -> Option<Self> {
        clauses.sort_unstable();
        clauses.dedup();
        (1..=ALTERNATIVES_MAX).contains(&clauses.len()).then_some(Self { clauses })
    }

    /// The alternatives.
    #[must_use]
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// The alternatives as patterns alone, ranges of ports made into sets of prefixes.
    pub fn patterns(&self) -> impl Iterator<Item = Pattern> {
        self.clauses.iter().flat_map(Clause::patterns)
    }

    /// True if one of the alternatives matches.
    #[inline]
    #[must_use]
    pub fn matches(&self, digest: &Digest) -> bool {
        self.clauses.iter().any(|clause| clause.matches(digest))
    }

    /// True if some packet matches both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.clauses.iter().any(|clause| other.clauses.iter().any(|of| clause.overlaps(of)))
    }

    /// What the filter is about, field by field, one line each.
    #[must_use]
    pub fn explain(&self) -> String {
        explain::explain(&self.clauses)
    }
}

impl From<Clause> for Filter {
    fn from(clause: Clause) -> Self {
        Self { clauses: vec![clause] }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse::filter(text)
    }
}
