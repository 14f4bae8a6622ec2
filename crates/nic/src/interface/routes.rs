//! The kernel's routes by one interface, from its main table.
//!
//! Not here: routes of other tables and the rules that choose between them. How the kernel would
//! route to one peer with all of that is asked by [`super::Route`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// Routes that are kept of an interface; a host that has more of them is a router.
const ROUTES_MAX: usize = 4096;

/// A line of the kernel's routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRoute {
    /// The network's address.
    pub to: IpAddr,
    /// How many bits of it all its addresses share.
    pub prefix_bits: u8,
    /// The gateway; `None` if the network is on the link.
    pub via: Option<IpAddr>,
    /// Of routes to the same network, the one with the lowest is taken.
    pub metric: u32,
    /// The largest packet that goes this way, if the route says.
    pub mtu: Option<u32>,
    /// The own address to send from, if the route says.
    pub source: Option<IpAddr>,
}

/// The routes by the interface `index`, at most 4096.
pub(super) fn of_interface(answers: &[RouteNetlinkMessage], index: u32) -> Vec<TableRoute> {
    let routes = answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    });
    routes.flat_map(|route| parse(route, index)).take(ROUTES_MAX).collect()
}

/// True if the route goes by the interface `index`, or used to.
pub(super) fn is_by(route: &RouteMessage, index: u32) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Oif(by) => *by == index,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
        _ => false,
    })
}

/// One for each of its next hops by this interface.
fn parse(message: &RouteMessage, index: u32) -> Vec<TableRoute> {
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return Vec::new();
    }
    let to = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return Vec::new(),
    };
    let prefix_bits = header.destination_prefix_length;
    let mut route = TableRoute { to, prefix_bits, via: None, metric: 0, mtu: None, source: None };
    let (mut by, mut hops) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.to = ip(address).unwrap_or(to),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Metrics(metrics) => route.mtu = metrics.iter().find_map(mtu),
            RouteAttribute::Oif(index) => by = Some(*index),
            RouteAttribute::MultiPath(all) => hops = Some(all),
            _ => {}
        }
    }
    let Some(hops) = hops else {
        let route = TableRoute { via: gateway(&message.attributes), ..route };
        return if by == Some(index) { vec![route] } else { Vec::new() };
    };
    let hops = hops.iter().filter(|hop| hop.interface_index == index);
    hops.map(|hop| TableRoute { via: gateway(&hop.attributes), ..route }).collect()
}

fn mtu(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    }
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        // An IPv4 route may go by an IPv6 neighbour (RFC 5549).
        RouteAttribute::Via(via) => via_ip(via),
        _ => None,
    })
}

pub(super) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

pub(super) fn via_ip(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(address) => Some((*address).into()),
        RouteVia::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
