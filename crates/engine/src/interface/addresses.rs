//! The host's own addresses, what is on the link, and the one route beyond it.

use super::Config;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An own IPv4 address and the network around it.
#[derive(Clone, Copy, Debug)]
struct OwnV4 {
    address: Ipv4Addr,
    /// The bits that tell hosts of the network apart.
    host_bits: u32,
}

#[derive(Debug)]
pub(super) struct Addresses {
    v4: Vec<OwnV4>,
    v6: Vec<(Ipv6Addr, u8)>,
    gateway_v4: Option<Ipv4Addr>,
    gateway_v6: Option<Ipv6Addr>,
}

impl Addresses {
    pub(super) fn new(config: &Config) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for &(address, prefix_length) in &config.addresses {
            match address {
                IpAddr::V4(address) => v4.push(OwnV4::new(address, prefix_length)),
                IpAddr::V6(address) => v6.push((address, prefix_length)),
            }
        }
        Self { v4, v6, gateway_v4: config.gateway_v4, gateway_v6: config.gateway_v6 }
    }

    /// Own addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let v4 = self.v4.iter().map(|own| IpAddr::V4(own.address));
        v4.chain(self.v6.iter().map(|(address, _)| IpAddr::V6(*address)))
    }

    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.is_own_v4(address),
            IpAddr::V6(address) => self.is_own_v6(address),
        }
    }

    #[inline]
    pub(super) fn is_own_v4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|own| own.address == address)
    }

    #[inline]
    pub(super) fn is_own_v6(&self, address: Ipv6Addr) -> bool {
        self.v6.iter().any(|(own, _)| *own == address)
    }

    /// RFC 1122, section 3.2.1.3: a source address must be "one of the IP addresses of a host", so
    /// no group, broadcast, loopback or "this host".
    #[inline]
    pub(super) fn may_be_source_v4(&self, address: Ipv4Addr) -> bool {
        address.octets()[0] != 0
            && !address.is_loopback()
            && !address.is_multicast()
            && !self.is_own_v4(address)
            && !self.is_broadcast(address)
    }

    /// `wire` has refused groups already.
    #[inline]
    pub(super) fn may_be_source_v6(&self, address: Ipv6Addr) -> bool {
        !address.is_unspecified()
            && !address.is_loopback()
            && address.to_ipv4_mapped().is_none()
            && !self.is_own_v6(address)
    }

    /// True if `address` can be a neighbour: on the link, and another host's.
    pub(super) fn may_be_neighbour(&self, address: IpAddr) -> bool {
        self.route(address) == Some(address)
    }

    /// See [`super::Interface::route`].
    pub(super) fn route(&self, destination: IpAddr) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(destination) => self.route_v4(destination).map(IpAddr::V4),
            IpAddr::V6(destination) => self.route_v6(destination).map(IpAddr::V6),
        }
    }

    fn route_v4(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        if !self.may_be_source_v4(destination) {
            return None;
        }
        let on_link = self.v4.iter().any(|own| own.is_near(destination));
        if on_link { Some(destination) } else { self.gateway_v4 }
    }

    fn route_v6(&self, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        if destination.is_multicast() || !self.may_be_source_v6(destination) {
            return None;
        }
        // RFC 4861, section 5.1: link-local addresses are always on the link.
        let on_link = destination.is_unicast_link_local()
            || self.v6.iter().any(|(own, length)| same_v6(*own, destination, *length));
        if on_link { Some(destination) } else { self.gateway_v6 }
    }

    /// See [`super::Interface::source_for`]: an address of the next hop's own network where there
    /// is one, else the first of the family.
    pub(super) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        match self.route(destination)? {
            IpAddr::V4(next_hop) => {
                let near = self.v4.iter().find(|own| own.is_near(next_hop));
                near.or(self.v4.first()).map(|own| IpAddr::V4(own.address))
            }
            IpAddr::V6(next_hop) => {
                let near = self.v6.iter().find(|(own, length)| {
                    same_v6(*own, next_hop, *length)
                        && own.is_unicast_link_local() == destination_is_link_local(destination)
                });
                near.or(self.v6.first()).map(|(own, _)| IpAddr::V6(*own))
            }
        }
    }

    #[inline]
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.v4.iter().any(|own| own.is_broadcast(address))
    }
}

impl OwnV4 {
    fn new(address: Ipv4Addr, prefix_length: u8) -> Self {
        let host_bits = u32::MAX.checked_shr(prefix_length.into()).unwrap_or(0);
        Self { address, host_bits }
    }

    /// True if both are of one network.
    #[inline]
    fn is_near(&self, other: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ other.to_bits()) & !self.host_bits == 0
    }

    /// All host bits alike: RFC 1122, section 3.2.1.3. RFC 3021: networks of two addresses have no
    /// broadcast; those of one cannot.
    #[inline]
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let host = address.to_bits() & self.host_bits;
        (host == 0 || host == self.host_bits) && self.host_bits > 1 && self.is_near(address)
    }
}

fn destination_is_link_local(destination: IpAddr) -> bool {
    matches!(destination, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn same_v6(a: Ipv6Addr, b: Ipv6Addr, prefix_length: u8) -> bool {
    let host_bits = 128u32.saturating_sub(prefix_length.into());
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    (a.to_bits() ^ b.to_bits()) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn addresses() -> Addresses {
        Addresses {
            v4: vec![
                OwnV4::new(Ipv4Addr::new(10, 0, 0, 1), 24),
                OwnV4::new(Ipv4Addr::new(172, 16, 0, 1), 31),
            ],
            v6: vec![("fe80::1".parse().unwrap(), 64), ("fd00::1".parse().unwrap(), 64)],
            gateway_v4: Some(Ipv4Addr::new(10, 0, 0, 254)),
            gateway_v6: None,
        }
    }

    #[test]
    fn routes() {
        let addresses = addresses();
        let route = |to: &str| addresses.route(ip(to)).map(|hop| hop.to_string());
        assert_eq!(route("10.0.0.9").as_deref(), Some("10.0.0.9"));
        assert_eq!(route("172.16.0.0").as_deref(), Some("172.16.0.0"));
        assert_eq!(route("192.0.2.1").as_deref(), Some("10.0.0.254"));
        assert_eq!(route("fd00::2").as_deref(), Some("fd00::2"));
        assert_eq!(route("fe80::2").as_deref(), Some("fe80::2"));
        for nowhere in [
            "10.0.0.1",
            "10.0.0.0",
            "10.0.0.255",
            "255.255.255.255",
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "fd00::1",
            "fd01::1",
            "::1",
            "::",
            "ff02::1",
            "::ffff:10.0.0.9",
        ] {
            assert_eq!(route(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn sources() {
        let addresses = addresses();
        let source = |to: &str| addresses.source_for(ip(to)).map(|from| from.to_string());
        assert_eq!(source("10.0.0.9").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("172.16.0.0").as_deref(), Some("172.16.0.1"));
        assert_eq!(source("192.0.2.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("fd00::2").as_deref(), Some("fd00::1"));
        assert_eq!(source("fe80::2").as_deref(), Some("fe80::1"));
        assert_eq!(source("fd01::1"), None);
    }

    #[test]
    fn prefixes_of_any_length_compare() {
        let (a, b) = (Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(1, 2, 3, 5));
        let is_near = |prefix_length| OwnV4::new(a, prefix_length).is_near(b);
        assert!(is_near(0) && is_near(31) && !is_near(32) && !is_near(99));
        let (a, b) = ("fd00::4".parse().unwrap(), "fd00::5".parse().unwrap());
        assert!(same_v6(a, b, 0) && same_v6(a, b, 127) && !same_v6(a, b, 128));
        assert!(!same_v6(a, b, 255));
    }
}
