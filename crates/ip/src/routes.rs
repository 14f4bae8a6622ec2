//! Ways to networks: the longest prefix first, then the lowest metric.
//!
//! Not here: which of several ways that are equally good is taken. That depends on whether their
//! neighbours answer, which `Interface` knows.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A way to a network, as the kernel or the configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// An address of the network.
    pub to: IpAddr,
    /// How many bits of it all addresses of the network share.
    pub prefix_bits: u8,
    /// The neighbour that packets are handed to; `None` if the network is on the link.
    pub via: Option<IpAddr>,
    /// Of routes to the same network, the one with the lowest is taken.
    pub metric: u32,
    /// The largest IP packet that goes this way; the link's if `None`.
    pub mtu: Option<u16>,
    /// The own address to send from; chosen by RFC 6724 if `None`.
    pub source: Option<IpAddr>,
}

impl Route {
    /// To a network that is on the link.
    #[must_use]
    pub const fn on_link(to: IpAddr, prefix_bits: u8) -> Self {
        Self { to, prefix_bits, via: None, metric: 0, mtu: None, source: None }
    }

    /// To everything of the gateway's family.
    #[must_use]
    pub const fn default_via(gateway: IpAddr) -> Self {
        let to = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self { via: Some(gateway), ..Self::on_link(to, 0) }
    }

    /// What makes it better than others that lead to the same destination: the lower.
    pub(super) fn rank(&self) -> Rank {
        (core::cmp::Reverse(self.prefix_bits), self.metric)
    }

    /// The neighbour that a packet to `destination` is handed to.
    pub(super) fn next_hop(&self, destination: IpAddr) -> IpAddr {
        self.via.unwrap_or(destination)
    }

    fn leads_to(&self, destination: IpAddr) -> bool {
        common_bits(self.to, destination).is_some_and(|bits| bits >= self.prefix_bits.into())
    }
}

/// The longest prefix comes first, then the lowest metric.
pub type Rank = (core::cmp::Reverse<u8>, u32);

/// All ways of an interface.
#[derive(Debug)]
pub(super) struct Routes {
    /// The best first.
    routes: Vec<Route>,
}

impl Routes {
    pub(super) fn new(mut routes: Vec<Route>) -> Self {
        // Stable, so that what is equally good stays in the order that it was given in.
        routes.sort_by_key(Route::rank);
        Self { routes }
    }

    /// The ways to `destination` with the longest prefix, those of the lowest metric first.
    pub(super) fn to(&self, destination: IpAddr) -> impl Iterator<Item = &Route> + Clone {
        let leading = self.routes.iter().filter(move |route| route.leads_to(destination));
        let longest = leading.clone().next().map(|route| route.prefix_bits);
        leading.take_while(move |route| Some(route.prefix_bits) == longest)
    }
}

/// How many leading bits two addresses share; `None` if they are of two families.
pub(super) fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(to: &str, prefix_bits: u8, via: &str, metric: u32) -> Route {
        Route { via: Some(ip(via)), metric, ..Route::on_link(ip(to), prefix_bits) }
    }

    #[test]
    fn longest_prefix_then_lowest_metric() {
        let routes = Routes::new(vec![
            Route::default_via(ip("10.0.0.1")),
            route("10.1.0.0", 16, "10.0.0.3", 20),
            route("10.1.0.0", 16, "10.0.0.2", 10),
            route("10.1.2.0", 24, "10.0.0.4", 99),
            Route::on_link(ip("fd00::"), 64),
            Route::default_via(ip("fe80::1")),
        ]);
        let hops = |to: &str| {
            routes.to(ip(to)).map(|route| route.next_hop(ip(to)).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(hops("192.0.2.1"), ["10.0.0.1"]);
        assert_eq!(hops("10.1.9.9"), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(hops("10.1.2.3"), ["10.0.0.4"]);
        assert_eq!(hops("fd00::7"), ["fd00::7"]);
        assert_eq!(hops("fd01::7"), ["fe80::1"]);
    }

    #[test]
    fn prefixes_of_any_length_compare() {
        let near = |bits| Route::on_link(ip("1.2.3.4"), bits).leads_to(ip("1.2.3.5"));
        assert!(near(0) && near(31) && !near(32) && !near(99));
        let near = |bits| Route::on_link(ip("fd00::4"), bits).leads_to(ip("fd00::5"));
        assert!(near(0) && near(127) && !near(128) && !near(255));
        assert!(!Route::on_link(ip("0.0.0.0"), 0).leads_to(ip("::")));
    }
}
