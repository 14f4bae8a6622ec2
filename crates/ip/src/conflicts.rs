//! Other hosts that use an own address: who, and when it was last defended.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{SECOND, Time};
use clearway_wire::MacAddress;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// RFC 5227, section 1.1: DEFEND_INTERVAL, "10 seconds".
const DEFEND_INTERVAL_NS: u64 = 10 * SECOND;
/// Conflicts that are remembered: an own address in dispute each, and more than a host has.
const CONFLICTS_MAX: usize = 32;

/// Another host uses an own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The own address.
    pub address: IpAddr,
    /// The other's Ethernet address.
    pub mac: MacAddress,
}

/// The conflicts of an interface.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// Those of late, the oldest first.
    seen: VecDeque<(Time, Conflict)>,
    /// Those that nobody has been told of yet.
    news: VecDeque<Conflict>,
}

/// What is saved of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ConflictsState {
    seen: Vec<(Time, Conflict)>,
    news: Vec<Conflict>,
}

impl Conflicts {
    /// Notes that a packet claims `address` for `mac`. True if that is to be answered: the first of
    /// each interval is.
    pub(super) fn note(&mut self, now: Time, address: IpAddr, mac: MacAddress) -> bool {
        self.seen.retain(|(since, _)| now.since(*since) < DEFEND_INTERVAL_NS);
        let is_known = self.seen.iter().any(|(_, conflict)| conflict.address == address);
        if is_known || self.seen.len() == CONFLICTS_MAX {
            return false;
        }
        let conflict = Conflict { address, mac };
        self.seen.push_back((now, conflict));
        if self.news.len() < CONFLICTS_MAX {
            self.news.push_back(conflict);
        }
        true
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The next one that is new.
    pub(super) fn poll(&mut self) -> Option<Conflict> {
        self.news.pop_front()
    }

    pub(super) fn save(&self) -> ConflictsState {
        ConflictsState {
            seen: self.seen.iter().copied().collect(),
            news: self.news.iter().copied().collect(),
        }
    }

    /// The conflicts as they are known at `now`.
    pub(super) fn restore(saved: ConflictsState, now: Time) -> Result<Self, Invalid> {
        let counts = [saved.seen.len(), saved.news.len()];
        ensure(counts.iter().all(|count| *count <= CONFLICTS_MAX), "too many conflicts")?;
        let seen = saved.seen.into_iter().map(|(since, conflict)| (since.min(now), conflict));
        Ok(Self { seen: seen.collect(), news: saved.news.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn each_address_is_defended_once_in_a_while() {
        let mut conflicts = Conflicts::default();
        let address = |host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
        let at = |seconds| Time::from_ns(seconds * SECOND);
        assert!(conflicts.note(at(100), address(1), [2; 6]));
        assert!(!conflicts.note(at(101), address(1), [4; 6]));
        assert!(conflicts.note(at(101), address(2), [2; 6]));
        assert!(!conflicts.note(at(109), address(1), [2; 6]));
        assert!(conflicts.note(at(110), address(1), [4; 6]));
        let told: Vec<_> = core::iter::from_fn(|| conflicts.poll()).collect();
        assert_eq!(told.len(), 3);
        assert_eq!(told[2], Conflict { address: address(1), mac: [4; 6] });
        for host in 0..=255 {
            conflicts.note(at(111), address(host), [2; 6]);
        }
        assert!(conflicts.seen.len() <= CONFLICTS_MAX && conflicts.news.len() <= CONFLICTS_MAX);
    }
}
