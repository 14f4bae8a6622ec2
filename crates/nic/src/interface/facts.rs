//! Everything the daemon and `clearway doctor` want to know about an interface, at one moment.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Device;
use super::netlink::Netlink;
use crate::{Error, MacAddress};

/// What is true of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Its address, if it is an Ethernet interface.
    pub mac: Option<MacAddress>,
    /// The largest packet it carries.
    pub mtu: usize,
    /// The kernel driver, if it says.
    pub driver: Option<String>,
    /// Receive queues in use.
    pub receive_queues: u32,
    /// The most queue pairs it can be set to.
    pub queue_pairs_max: u32,
    /// The state of RFC 2863: `up`, `down`, `lowerlayerdown`, `dormant`, `unknown`, ...
    pub operstate: String,
    /// It is up and has a carrier.
    pub running: bool,
    /// The id of an XDP program that is attached to it.
    pub xdp_program: Option<u32>,
    /// The kernel's addresses on it.
    pub addresses: Vec<Address>,
    /// Where IPv4 packets for elsewhere go.
    pub gateway_ipv4: Option<Ipv4Addr>,
    /// Where IPv6 packets for elsewhere go.
    pub gateway_ipv6: Option<Ipv6Addr>,
}

/// An address of an interface with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Bits that all hosts on its network share.
    pub prefix_bits: u8,
}

/// The first step on the way to a peer, as the kernel routes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface that packets leave by.
    pub interface_index: u32,
    /// The neighbour that gets them: a gateway, or the peer itself.
    pub next_hop: IpAddr,
    /// The address of ours that the kernel would send from.
    pub source: Option<IpAddr>,
}

impl Facts {
    /// The facts about the interface called `name` in this thread's network namespace.
    pub fn of(name: &str) -> Result<Facts, Error> {
        let device = Device::open(name)?;
        let mut netlink = Netlink::open(0)?;
        let asked = |what: &str| {
            let action = format!("cannot read the {what} of {name}");
            move |source: io::Error| Error::System {
                action,
                remedy: "The interface may have been removed; check with `ip link`".into(),
                source,
            }
        };
        let link = link(&mut netlink, device.index()).map_err(asked("state"))?;
        let addresses = addresses(&mut netlink, device.index()).map_err(asked("addresses"))?;
        let routes = netlink.dump(get_route(AddressFamily::Unspec)).map_err(asked("routes"))?;
        let gateways = default_gateways(&routes, device.index());
        let channels = device.channels();
        Ok(Facts {
            name: name.to_owned(),
            index: device.index(),
            mac: device.mac().ok(),
            mtu: device.mtu()?,
            driver: device.driver(),
            receive_queues: channels.receive_queues(),
            queue_pairs_max: channels.pairs_max(),
            operstate: operstate(&link),
            running: device.running().unwrap_or(false),
            xdp_program: xdp_program(&link),
            addresses,
            gateway_ipv4: gateways.iter().find_map(|gateway| match gateway {
                IpAddr::V4(gateway) => Some(*gateway),
                IpAddr::V6(_) => None,
            }),
            gateway_ipv6: gateways.iter().find_map(|gateway| match gateway {
                IpAddr::V4(_) => None,
                IpAddr::V6(gateway) => Some(*gateway),
            }),
        })
    }

    /// The names of all interfaces of this thread's network namespace.
    pub fn names() -> Result<Vec<String>, Error> {
        let mut netlink = Netlink::open(0)?;
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let links = netlink.dump(question).map_err(|source| Error::System {
            action: "cannot list the interfaces".into(),
            remedy: "Check with `ip link`".into(),
            source,
        })?;
        Ok(links.into_iter().filter_map(name_of).collect())
    }
}

impl Route {
    /// How the kernel would send to `peer` from this thread's network namespace.
    pub fn to(peer: IpAddr) -> Result<Route, Error> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(peer);
        question.header.destination_prefix_length = if peer.is_ipv4() { 32 } else { 128 };
        question.attributes.push(RouteAttribute::Destination(peer.into()));
        let answer = Netlink::open(0)?.ask(RouteNetlinkMessage::GetRoute(question), 0);
        match answer {
            Ok(Some(RouteNetlinkMessage::NewRoute(route))) => Ok(Route::from_message(peer, &route)),
            Ok(_) => Err(no_route(peer, "the kernel gave no route")),
            Err(error) => Err(no_route(peer, &error.to_string())),
        }
    }

    fn from_message(peer: IpAddr, message: &RouteMessage) -> Route {
        let mut route = Route { interface_index: 0, next_hop: peer, source: None };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => route.interface_index = *index,
                RouteAttribute::Gateway(address) => {
                    route.next_hop = ip(address).unwrap_or(peer);
                }
                // An IPv4 route may go by an IPv6 neighbour (RFC 5549).
                RouteAttribute::Via(via) => route.next_hop = via_ip(via).unwrap_or(peer),
                RouteAttribute::PrefSource(address) => route.source = ip(address),
                _ => {}
            }
        }
        route
    }
}

fn no_route(peer: IpAddr, why: &str) -> Error {
    Error::NotFound(format!(
        "there is no route to {peer}: {why}. `ip route get {peer}` shows what the kernel knows; add \
         an address or a route"
    ))
}

fn link(netlink: &mut Netlink, index: u32) -> io::Result<LinkMessage> {
    let mut question = LinkMessage::default();
    question.header.index = index;
    match netlink.ask(RouteNetlinkMessage::GetLink(question), 0)? {
        Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn name_of(message: RouteNetlinkMessage) -> Option<String> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    })
}

fn operstate(link: &LinkMessage) -> String {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::OperState(state) => Some(format!("{state:?}").to_lowercase()),
            _ => None,
        })
        .unwrap_or_else(|| "unknown".to_owned())
}

fn xdp_program(link: &LinkMessage) -> Option<u32> {
    let parts = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(parts) => Some(parts),
        _ => None,
    })?;
    parts.iter().find_map(|part| match part {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) => Some(*id),
        _ => None,
    })
}

fn addresses(netlink: &mut Netlink, index: u32) -> io::Result<Vec<Address>> {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = netlink.dump(question)?;
    Ok(answers
        .into_iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
                address(&message)
            }
            _ => None,
        })
        .collect())
}

/// On a point-to-point link the `Address` attribute is the peer's and `Local` is ours; elsewhere
/// there may be only the former.
fn address(message: &AddressMessage) -> Option<Address> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    Some(Address { address, prefix_bits: message.header.prefix_len })
}

fn get_route(family: AddressFamily) -> RouteNetlinkMessage {
    let mut question = RouteMessage::default();
    question.header.address_family = family;
    RouteNetlinkMessage::GetRoute(question)
}

/// The gateways of the default routes by this interface, those of the lowest metric first.
fn default_gateways(routes: &[RouteNetlinkMessage], index: u32) -> Vec<IpAddr> {
    let mut gateways: Vec<(u32, IpAddr)> = routes
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => default_gateway(route, index),
            _ => None,
        })
        .collect();
    gateways.sort_unstable();
    gateways.into_iter().map(|(_, gateway)| gateway).collect()
}

fn default_gateway(route: &RouteMessage, index: u32) -> Option<(u32, IpAddr)> {
    let header = &route.header;
    if header.destination_prefix_length != 0 || header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let (mut gateway, mut metric, mut by_this) = (None, 0, false);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Oif(by) => by_this = *by == index,
            _ => {}
        }
    }
    gateway.filter(|_| by_this).map(|gateway| (metric, gateway))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn via_ip(via: &netlink_packet_route::route::RouteVia) -> Option<IpAddr> {
    use netlink_packet_route::route::RouteVia;
    match via {
        RouteVia::Inet(address) => Some((*address).into()),
        RouteVia::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
