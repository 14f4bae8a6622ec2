//! A limited number of places, taken by connections from other hosts: how many each host may take.
//!
//! One host may have nearly all: it may be a NAT with thousands of others behind it, and what
//! nobody else wants had better be used. But of the last eighth each host gets one place only, so
//! that whoever comes finds room, until as many hosts have come as that has places.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::unfinished::host;

/// This part of all places is kept for hosts that have none.
const NEWCOMERS_PART: u32 = 8;

/// Who holds how many of the places.
#[derive(Debug, Default)]
pub struct Shares {
    /// By host; none with nothing.
    held: HashMap<IpAddr, u32>,
}

impl Shares {
    /// True if `peer` may take one of the `free` places, of `places` in all.
    #[must_use]
    pub fn allows(&self, peer: IpAddr, free: u32, places: u32) -> bool {
        let is_newcomer = !self.held.contains_key(&host(peer));
        free > 0 && (is_newcomer || free > (places / NEWCOMERS_PART).max(1))
    }

    /// `peer` has taken a place.
    pub fn take(&mut self, peer: IpAddr) {
        *self.held.entry(host(peer)).or_default() += 1;
    }

    /// `peer` has given back a place that it had taken.
    pub fn give_back(&mut self, peer: IpAddr) {
        let Some(held) = self.held.get_mut(&host(peer)) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(&host(peer));
        }
    }

    /// Places that are held by anybody: for audits.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.held.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;
    use std::net::IpAddr;

    const PLACES: u32 = 80;

    fn address(index: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, index])
    }

    /// Takes as many of the places as it may; returns how many.
    fn fill(shares: &mut Shares, peer: IpAddr) -> u32 {
        let mut taken = 0;
        while shares.allows(peer, PLACES - shares.taken(), PLACES) {
            shares.take(peer);
            taken += 1;
        }
        taken
    }

    #[test]
    fn one_gets_nearly_all_and_each_newcomer_one() {
        let mut shares = Shares::default();
        assert_eq!(fill(&mut shares, address(0)), 70);
        for newcomer in 1..=10 {
            assert_eq!(fill(&mut shares, address(newcomer)), 1);
            assert_eq!(fill(&mut shares, address(0)), 0);
        }
        assert_eq!(fill(&mut shares, address(11)), 0, "there is none left");
        (0..60).for_each(|_| shares.give_back(address(0)));
        assert_eq!(fill(&mut shares, address(1)), 50, "what nobody else wants");
        shares.give_back(address(99));
        assert_eq!(shares.taken(), 70);
    }

    #[test]
    fn all_addresses_of_a_site_are_one_host() {
        let mut shares = Shares::default();
        let [a, b, other] =
            ["fd00::1", "fd00::2", "fd00:0:0:1::1"].map(|text| text.parse().expect("an address"));
        shares.take(a);
        assert!(!shares.allows(b, 10, PLACES) && shares.allows(b, 11, PLACES));
        assert!(shares.allows(other, 1, PLACES) && !shares.allows(other, 0, PLACES));
    }

    #[test]
    fn of_few_places_one_is_kept_and_the_only_one_is_given() {
        let mut shares = Shares::default();
        assert!(shares.allows(address(0), 1, 1));
        shares.take(address(0));
        assert!(shares.allows(address(0), 2, 3) && !shares.allows(address(0), 1, 3));
    }
}
