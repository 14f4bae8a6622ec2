//! The host's own addresses, and where its packets go from there.

use super::Config;
use super::routes::{Route, Routes, common_bits};
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RFC 4861, section 5.1: link-local addresses are always on the link.
const LINK_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));
/// RFC 4291, section 2.5.6.
const LINK_LOCAL_PREFIX_BITS: u8 = 10;

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
    v6: Vec<Ipv6Addr>,
    /// Those of all NICs of the host, this one's included: what comes from one of these came from
    /// nobody on the wire.
    host_v4: Vec<Ipv4Addr>,
    host_v6: Vec<Ipv6Addr>,
    routes: Routes,
    /// The kernel routes, by interfaces that nobody here knows.
    is_routed: bool,
}

impl Addresses {
    pub(super) fn new(config: &Config) -> Self {
        let (mut v4, mut v6, mut routes) = (Vec::new(), Vec::new(), Vec::new());
        for &(address, prefix_bits) in &config.addresses {
            routes.push(Route::on_link(address, prefix_bits));
            match address {
                IpAddr::V4(address) => v4.push(OwnV4::new(address, prefix_bits)),
                IpAddr::V6(address) => v6.push(address),
            }
        }
        if !v6.is_empty() {
            routes.push(Route::on_link(LINK_LOCAL, LINK_LOCAL_PREFIX_BITS));
        }
        routes.extend(&config.routes);
        let host_v4 = v4.iter().map(|own: &OwnV4| own.address).collect();
        let host_v6 = v6.clone();
        let (routes, is_routed) = (Routes::new(routes), config.router.is_some());
        Self { v4, v6, host_v4, host_v6, routes, is_routed }
    }

    /// The host's other NICs have these addresses. Addresses of a link say nothing elsewhere:
    /// another host may have them on this one (RFC 4007, section 6, RFC 3927, section 3).
    pub(super) fn set_elsewhere(&mut self, elsewhere: &[IpAddr]) {
        self.host_v4 = self.v4.iter().map(|own| own.address).collect();
        self.host_v6.clone_from(&self.v6);
        for address in elsewhere {
            match *address {
                own if self.is_own(own) || is_link_local(own) => {}
                IpAddr::V4(address) => self.host_v4.push(address),
                IpAddr::V6(address) => self.host_v6.push(address),
            }
        }
    }

    /// Own addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let v4 = self.v4.iter().map(|own| IpAddr::V4(own.address));
        v4.chain(self.v6.iter().map(|address| IpAddr::V6(*address)))
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
        self.v6.contains(&address)
    }

    /// True if a packet from the wire can come from this address: it is no martian (RFC 1812,
    /// section 5.3.7), and none of the host's own, of whichever NIC. All that is taken from the
    /// wire passes here.
    #[inline]
    pub(super) fn may_be_source(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.may_be_source_v4(address),
            IpAddr::V6(address) => self.may_be_source_v6(address),
        }
    }

    /// RFC 1122, section 3.2.1.3: a source address must be "one of the IP addresses of a host", so
    /// no group, broadcast, loopback or "this host".
    #[inline]
    fn may_be_source_v4(&self, address: Ipv4Addr) -> bool {
        address.octets()[0] != 0
            && !address.is_loopback()
            && !address.is_multicast()
            && !self.host_v4.contains(&address)
            && !self.is_broadcast(address)
    }

    /// RFC 4291, sections 2.5.2, 2.5.3, 2.5.5.2 and 2.7.
    #[inline]
    fn may_be_source_v6(&self, address: Ipv6Addr) -> bool {
        !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && address.to_ipv4_mapped().is_none()
            && !self.host_v6.contains(&address)
    }

    /// True if `address` can be a neighbour: on the link, or a gateway, and another host's.
    pub(super) fn may_be_neighbour(&self, address: IpAddr) -> bool {
        self.routes(address).any(|route| route.next_hop(address) == address)
    }

    /// The best ways to `destination`, in the order in which they are to be tried. None if it is
    /// no address of one other host.
    pub(super) fn routes(&self, destination: IpAddr) -> impl Iterator<Item = &Route> + Clone {
        let is_reached = self.may_be_source(destination) && !self.lacks_link(destination);
        let routes = is_reached.then(|| self.routes.to(destination));
        routes.into_iter().flatten()
    }

    /// RFC 4007, section 6: an address of a link means nothing without that.
    fn lacks_link(&self, address: IpAddr) -> bool {
        self.is_routed && address.is_ipv6() && is_link_local(address)
    }

    /// The own address to send to `destination` from by `route`: the one that the route prefers,
    /// else by RFC 6724, section 5.
    pub(super) fn source_for(&self, destination: IpAddr, route: &Route) -> Option<IpAddr> {
        if let Some(preferred) = route.source.filter(|source| self.is_own(*source)) {
            return Some(preferred);
        }
        let next_hop = route.next_hop(destination);
        let candidates = self.iter().filter(|own| own.is_ipv4() == destination.is_ipv4());
        candidates.min_by_key(|own| {
            // Rule 2: "Prefer appropriate scope." Rule 8: "Use longest matching prefix", that of
            // the next hop first, which knows the addresses of its own network.
            let same_scope = is_link_local(*own) == is_link_local(destination);
            let matching = (common_bits(*own, next_hop), common_bits(*own, destination));
            Reverse((same_scope, matching))
        })
    }

    #[inline]
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.v4.iter().any(|own| own.is_broadcast(address))
    }
}

impl OwnV4 {
    fn new(address: Ipv4Addr, prefix_bits: u8) -> Self {
        let host_bits = u32::MAX.checked_shr(prefix_bits.into()).unwrap_or(0);
        Self { address, host_bits }
    }

    /// All host bits alike: RFC 1122, section 3.2.1.3. RFC 3021: networks of two addresses have no
    /// broadcast; those of one cannot.
    #[inline]
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let is_near = (self.address.to_bits() ^ address.to_bits()) & !self.host_bits == 0;
        let host = address.to_bits() & self.host_bits;
        is_near && (host == 0 || host == self.host_bits) && self.host_bits > 1
    }
}

/// RFC 4291, section 2.5.6, and RFC 3927.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn addresses() -> Addresses {
        let own = [("10.0.0.1", 24), ("172.16.0.1", 31), ("fe80::1", 64), ("fd00::1", 64)];
        let preferring =
            Route { source: Some(ip("172.16.0.1")), ..Route::default_via(ip("10.0.0.254")) };
        Addresses::new(&Config {
            mac: [2, 0, 0, 0, 0, 1],
            addresses: own.map(|(address, bits)| (ip(address), bits)).into(),
            routes: vec![
                Route::default_via(ip("10.0.0.254")),
                Route { to: ip("198.51.100.0"), prefix_bits: 24, ..preferring },
            ],
            vlan: None,
            mtu: 1500,
            mtu_max: None,
            kernel_shares: false,
            router: None,
            receive_checksum: false,
        })
    }

    #[test]
    fn routes() {
        let addresses = addresses();
        let route = |to: &str| {
            let mut routes = addresses.routes(ip(to));
            routes.next().map(|route| route.next_hop(ip(to)).to_string())
        };
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
        let source = |to: &str| {
            let route = addresses.routes(ip(to)).next()?;
            addresses.source_for(ip(to), route).map(|from| from.to_string())
        };
        assert_eq!(source("10.0.0.9").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("172.16.0.0").as_deref(), Some("172.16.0.1"));
        assert_eq!(source("192.0.2.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("198.51.100.1").as_deref(), Some("172.16.0.1"), "the route's wish");
        assert_eq!(source("fd00::2").as_deref(), Some("fd00::1"));
        assert_eq!(source("fe80::2").as_deref(), Some("fe80::1"));
        assert_eq!(source("fd01::1"), None);
    }
}
