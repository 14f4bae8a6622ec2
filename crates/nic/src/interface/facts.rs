//! Everything the daemon and `clearway doctor` want to know about an interface, at one moment.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Device;
use super::netlink::Netlink;
use super::routes::{self, TableRoute, ip, via_ip};
use crate::{Error, MacAddress};

/// What the kernel's own super-frames have at most, unless it is told otherwise
/// (`GSO_LEGACY_MAX_SIZE` of linux/netdevice.h).
const GSO_BYTES_MAX: u32 = 65_536;

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
    /// The kernel's addresses on it that can be used.
    pub addresses: Vec<Address>,
    /// It has addresses that cannot be used yet, or not at all: another host may have them.
    pub has_tentative_addresses: bool,
    /// The kernel's routes by it, without those of other tables than the main one.
    pub routes: Vec<TableRoute>,
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
        Facts::read(&Device::open(name)?, &mut Netlink::open(0)?)
    }

    /// The facts about `device`, asked over `netlink`, which is of the same namespace.
    pub(super) fn read(device: &Device, netlink: &mut Netlink) -> Result<Facts, Error> {
        let name = device.name();
        let asked = |what: &str| {
            let action = format!("cannot read the {what} of {name}");
            move |source: io::Error| Error::System {
                action,
                remedy: "The interface may have been removed; check with `ip link`".into(),
                source,
            }
        };
        let link = link(netlink, device.index()).map_err(asked("state"))?;
        let addresses = addresses(netlink, device.index()).map_err(asked("addresses"))?;
        let routes = netlink.dump(get_route(AddressFamily::Unspec)).map_err(asked("routes"))?;
        let channels = device.channels();
        let (unusable, usable): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|(_, is_tentative)| *is_tentative);
        Ok(Facts {
            name: name.to_owned(),
            index: device.index(),
            mac: device.mac().ok(),
            mtu: mtu(&link),
            driver: device.driver(),
            receive_queues: channels.receive_queues(),
            queue_pairs_max: channels.pairs_max(),
            operstate: operstate(&link),
            running: link.header.flags.contains(LinkFlags::Up | LinkFlags::Running),
            xdp_program: xdp_program(&link),
            addresses: usable.into_iter().map(|(address, _)| address).collect(),
            has_tentative_addresses: !unusable.is_empty(),
            routes: routes::of_interface(&routes, device.index()),
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
        "there is no route to {peer}: {why}. `ip route get {peer}` shows what the kernel knows; \
         add an address or a route"
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

/// Every link has one.
pub(super) fn mtu(link: &LinkMessage) -> usize {
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu as usize),
        _ => None,
    });
    mtu.unwrap_or_default()
}

/// The most bytes, and the most packets, of a super-frame that leaves by `device`, which is of this
/// thread's network namespace (`ip link set ... gso_max_size, gso_max_segs`).
pub(crate) fn gso_limits(device: &Device) -> Result<(u32, u32), Error> {
    let link = link(&mut Netlink::open(0)?, device.index()).map_err(|source| Error::System {
        action: format!("cannot read the limits of {}", device.name()),
        remedy: "The interface may have been removed; check with `ip link`".into(),
        source,
    })?;
    let (mut bytes, mut segments) = (GSO_BYTES_MAX, u32::MAX);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::GsoMaxSize(limit) | LinkAttribute::GsoIpv4MaxSize(limit) => {
                bytes = bytes.min(*limit);
            }
            LinkAttribute::GsoMaxSegs(limit) => segments = segments.min(*limit),
            _ => {}
        }
    }
    Ok((bytes, segments))
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

/// The addresses, and whether each is only tentative (RFC 4862, section 2: "an address whose
/// uniqueness on a link is being verified").
fn addresses(netlink: &mut Netlink, index: u32) -> io::Result<Vec<(Address, bool)>> {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = netlink.dump(question)?;
    Ok(answers
        .into_iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
                address(&message).map(|address| (address, is_tentative(&message)))
            }
            _ => None,
        })
        .collect())
}

/// On a point-to-point link the `Address` attribute is the peer's and `Local` is ours; elsewhere
/// there may be only the former.
pub(super) fn address(message: &AddressMessage) -> Option<Address> {
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

pub(super) fn is_tentative(message: &AddressMessage) -> bool {
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let flags = flags.unwrap_or(AddressFlags::empty());
    flags.intersects(AddressFlags::Dadfailed)
        || flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic)
}

pub(super) fn get_route(family: AddressFamily) -> RouteNetlinkMessage {
    let mut question = RouteMessage::default();
    question.header.address_family = family;
    RouteNetlinkMessage::GetRoute(question)
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
