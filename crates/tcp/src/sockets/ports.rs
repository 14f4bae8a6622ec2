//! Who may have which port.

use core::net::IpAddr;

/// The addresses that a socket is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    One(IpAddr),
    EveryV4,
    EveryV6,
    Every,
}

impl Place {
    pub(super) fn new(address: IpAddr, v6_only: bool) -> Self {
        match address {
            address if !address.is_unspecified() => Self::One(address),
            IpAddr::V4(_) => Self::EveryV4,
            IpAddr::V6(_) if v6_only => Self::EveryV6,
            IpAddr::V6(_) => Self::Every,
        }
    }

    /// As [`crate::Stack::listen`] has it.
    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Self::One(address) => Some(address),
            Self::EveryV4 => Some(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED)),
            Self::EveryV6 => Some(IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED)),
            Self::Every => None,
        }
    }

    /// True if there is an address that is in both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every, _) | (_, Self::Every) => true,
            (Self::One(one), Self::One(other)) => one == other,
            (Self::One(one), every) | (every, Self::One(one)) => {
                one.is_ipv4() == (*every == Self::EveryV4)
            }
            (one, other) => one == other,
        }
    }
}

/// What a socket wants of its port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) place: Place,
    /// It may be had by others that say the same and do not listen.
    pub(super) shares: bool,
    /// It may be had by others that say the same.
    pub(super) shares_with_listeners: bool,
    pub(super) listens: bool,
}

impl Claim {
    /// True if it may be had by others.
    pub(super) fn is_shared(&self) -> bool {
        self.shares || self.shares_with_listeners
    }

    /// True if the two cannot have the same port: but for those that share it nobody has a port of
    /// an address of another one.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        // Who is about to be bound next to a listener could only connect: Linux refuses it.
        let may = self.shares && other.shares && !other.listens;
        let may_listen = self.shares_with_listeners && other.shares_with_listeners;
        self.place.overlaps(&other.place) && !may && !may_listen
    }
}

#[cfg(test)]
mod tests {
    use super::{Claim, Place};

    const PLACES: [&str; 5] = ["10.0.0.1", "10.0.0.2", "fd00::1", "0.0.0.0", "::"];

    fn places() -> Vec<Place> {
        let mut places: Vec<Place> =
            PLACES.iter().map(|text| Place::new(text.parse().unwrap(), false)).collect();
        places.push(Place::new("::".parse().unwrap(), true));
        places
    }

    #[test]
    fn every_address_of_a_family_overlaps_each_of_it() {
        let overlaps = [
            "x..xx.", // 10.0.0.1
            ".x.xx.", "..x.xx", "xx.xx.", // 0.0.0.0
            "xxxxxx", // ::
            "..x.xx", // :: without IPv4
        ];
        for (one, row) in places().iter().zip(overlaps) {
            for (other, mark) in places().iter().zip(row.chars()) {
                assert_eq!(one.overlaps(other), mark == 'x', "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn a_port_is_shared_by_those_who_both_want_it_and_never_with_a_listener() {
        let claim = |shares, listens| Claim {
            place: Place::Every,
            shares,
            shares_with_listeners: false,
            listens,
        };
        assert!(!claim(true, false).excludes(&claim(true, false)));
        assert!(claim(true, false).excludes(&claim(false, false)));
        assert!(claim(false, false).excludes(&claim(true, false)));
        assert!(claim(true, false).excludes(&claim(true, true)));
        assert!(!claim(true, true).excludes(&claim(true, false)));
        assert!(claim(true, true).excludes(&claim(true, true)));
    }

    #[test]
    fn listeners_share_a_port_if_all_want_it() {
        let claim = |shares_with_listeners, listens| Claim {
            place: Place::Every,
            shares: false,
            shares_with_listeners,
            listens,
        };
        for listens in [false, true] {
            assert!(!claim(true, listens).excludes(&claim(true, true)));
            assert!(claim(true, listens).excludes(&claim(false, true)));
            assert!(claim(false, listens).excludes(&claim(true, true)));
        }
    }
}
