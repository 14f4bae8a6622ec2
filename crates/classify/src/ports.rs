//! Ranges of ports, and what sets of prefixes they are.

use std::fmt;

/// A range of ports, both ends included. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Every port.
    pub const ANY: Self = Self { first: 0, last: u16::MAX };

    /// The ports from `first` to `last`, if there are any.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// One port.
    #[must_use]
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The lowest port.
    #[inline]
    #[must_use]
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    #[inline]
    #[must_use]
    pub const fn last(self) -> u16 {
        self.last
    }

    /// True if `port` is in the range.
    #[inline]
    #[must_use]
    pub const fn contain(self, port: u16) -> bool {
        port.wrapping_sub(self.first) <= self.last - self.first
    }

    /// The ports in both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// The range as one prefix (mask and value), if it is one.
    #[must_use]
    pub const fn as_prefix(self) -> Option<(u16, u16)> {
        let ignored = self.first ^ self.last;
        let is_prefix = ignored & ignored.wrapping_add(1) == 0 && self.first & ignored == 0;
        if is_prefix { Some((!ignored, self.first)) } else { None }
    }

    /// The range of the ports that begin with a prefix, if `mask` is that of a prefix.
    #[must_use]
    pub const fn of_prefix(mask: u16, value: u16) -> Option<Self> {
        let is_prefix = !mask & (!mask).wrapping_add(1) == 0;
        if is_prefix { Some(Self { first: value, last: value | !mask }) } else { None }
    }

    /// The fewest prefixes (mask and value) that make up the range, in rising order: at most 30.
    /// "Arbitrary ranges (e.g., port ranges) can be represented by converting them to sets of
    /// prefixes" (the paper, section 3.1).
    pub fn prefixes(self) -> impl Iterator<Item = (u16, u16)> {
        let end = u32::from(self.last) + 1;
        let mut next = u32::from(self.first);
        std::iter::from_fn(move || {
            if next == end {
                return None;
            }
            // As large as the alignment of its first port allows, and no larger than what is left.
            let bits = next.trailing_zeros().min((end - next).ilog2()).min(16);
            let prefix = (!((1u32 << bits) - 1) as u16, next as u16);
            next += 1 << bits;
            Some(prefix)
        })
    }

    /// The ports of the range that have `value` under `mask`, in rising order. Each costs the same,
    /// however far it is from the one before.
    pub fn under(self, mask: u16, value: u16) -> impl Iterator<Item = u16> {
        let mut from = Some(self.first);
        std::iter::from_fn(move || {
            let port = least_from(from?, mask, value).filter(|port| *port <= self.last);
            from = port.and_then(|port| port.checked_add(1));
            port
        })
    }

    /// True if a port of the range has `value` under `mask`.
    #[must_use]
    pub fn meet(self, mask: u16, value: u16) -> bool {
        self.under(mask, value).next().is_some()
    }
}

/// The least port from `first` up that has `value` under `mask`. It is `first` itself, or it has
/// `first`'s bits down to one that is 0 there and 1 here, and below that one no more than it must.
fn least_from(first: u16, mask: u16, value: u16) -> Option<u16> {
    if first & mask == value {
        return Some(first);
    }
    (0..u16::BITS).find_map(|bit| {
        let (one, below) = (1u16 << bit, (1u16 << bit) - 1);
        let port = (first & !below) | one | (value & below);
        (first & one == 0 && port & mask == value).then_some(port)
    })
}

impl fmt::Debug for Ports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ports, least_from};
    use proptest::prelude::*;

    #[test]
    fn the_worst_range_has_thirty_prefixes() {
        assert_eq!(Ports::new(1, 65534).unwrap().prefixes().count(), 30);
        assert_eq!(Ports::ANY.prefixes().collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(Ports::one(65535).prefixes().collect::<Vec<_>>(), [(0xffff, 0xffff)]);
    }

    #[test]
    fn the_highest_port_is_one_too() {
        let ports = Ports::new(65534, 65535).unwrap();
        assert_eq!(ports.under(0, 0).collect::<Vec<_>>(), [65534, 65535]);
        assert_eq!(ports.under(0xffff, 0xffff).collect::<Vec<_>>(), [65535]);
        assert_eq!(ports.under(0xffff, 0xfffd).count(), 0);
    }

    proptest! {
        #[test]
        fn prefixes_are_the_range(a: u16, b: u16, port: u16) {
            let ports = Ports::new(a.min(b), a.max(b)).unwrap();
            let hits = ports.prefixes().filter(|(mask, value)| port & mask == *value).count();
            prop_assert_eq!(hits, usize::from(ports.contain(port)));
            prop_assert_eq!(ports.prefixes().count() == 1, ports.as_prefix().is_some());
        }

        #[test]
        fn a_prefix_is_its_range(bits in 0u32..=16, value: u16) {
            let mask = !(u16::MAX.checked_shr(bits).unwrap_or(0));
            let ports = Ports::of_prefix(mask, value & mask).unwrap();
            prop_assert_eq!(ports.as_prefix(), Some((mask, value & mask)));
        }

        #[test]
        fn ports_under_a_mask_are_what_a_scan_finds(a: u16, b: u16, mask: u16, value: u16) {
            let ports = Ports::new(a.min(b), a.max(b)).unwrap();
            let value = value & mask;
            let found: Vec<u16> = (0..=u16::MAX)
                .filter(|port| ports.contain(*port) && port & mask == value)
                .collect();
            prop_assert_eq!(ports.under(mask, value).collect::<Vec<_>>(), found);
        }

        #[test]
        fn least_is_what_a_scan_finds(first: u16, mask: u16, value: u16) {
            let found = (first..=u16::MAX).find(|port| port & mask == value & mask);
            prop_assert_eq!(least_from(first, mask, value & mask), found);
        }
    }
}
