//! The router between subnets: answers who asks for its Ethernet address, and passes packets on.
//! What is larger than its MTU it drops without a word, as too many do. It knows all hosts, and
//! asks for none.

use std::net::{IpAddr, Ipv6Addr};

use clearway_nic::MacAddress;
use clearway_wire::checksum::Sum;
use clearway_wire::ethernet::{self, ether_type};
use clearway_wire::icmpv6::{self, Advertisement};
use clearway_wire::{arp, ipv4, ipv6, protocol, vlan};

use super::mac_of;
use super::subnet::{Subnet, host_of};

/// Where the time to live stands in an IPv4 header, and the hop limit in that of IPv6.
const TIME_TO_LIVE_AT: usize = 8;
const HOP_LIMIT_AT: usize = 7;

/// The router, and where all hosts are.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) homes: Vec<Subnet>,
    /// The largest IP packet that it passes on.
    pub(super) mtu: u16,
}

/// What it does with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Routed {
    /// An answer to the sender.
    Answer(Vec<u8>),
    /// On to a host.
    Forward { to: usize, frame: Vec<u8> },
}

/// The tag of a frame, and where behind it the Ethernet type stands.
pub(super) fn tag_of(frame: &[u8]) -> (Option<u16>, usize) {
    let is_tagged = frame.get(12..14) == Some(&ether_type::VLAN.to_be_bytes());
    match frame.get(14..16).filter(|_| is_tagged) {
        Some(tag) => (Some(u16::from_be_bytes([tag[0] & 0x0f, tag[1]])), 16),
        None => (None, 12),
    }
}

impl Router {
    /// True if a frame with this tag reaches the host: what has none is anybody's.
    pub(super) fn reaches(&self, to: usize, tag: Option<u16>) -> bool {
        tag.is_none() || self.homes[to].vlan == tag
    }

    /// What it does with a frame, if that is any of its business.
    pub(super) fn handle(&self, frame: &[u8]) -> Option<Routed> {
        let (tag, type_at) = tag_of(frame);
        let here = *self.homes.iter().find(|home| home.vlan == tag)?;
        let ether_type = u16::from_be_bytes(frame.get(type_at..type_at + 2)?.try_into().ok()?);
        let packet = &frame[type_at + 2..];
        let is_for_it = frame[..6] == here.router_mac();
        match ether_type {
            ether_type::ARP => answer_arp(here, packet).map(Routed::Answer),
            ether_type::IPV6 if is_solicitation(packet) => {
                answer_solicitation(here, packet).map(Routed::Answer)
            }
            ether_type::IPV4 if is_for_it => self.forward_v4(packet),
            ether_type::IPV6 if is_for_it => self.forward_v6(packet),
            _ => None,
        }
    }

    fn forward_v4(&self, packet: &[u8]) -> Option<Routed> {
        let view = ipv4::View::new(packet).ok()?;
        let header_length = view.header_length();
        let packet = packet.get(..view.total_length())?;
        if !view.checksum_is_right() || view.hop_limit() < 2 || header_length > packet.len() {
            return None;
        }
        let mut packet = packet.to_vec();
        packet[TIME_TO_LIVE_AT] -= 1;
        packet[ipv4::CHECKSUM_AT..ipv4::CHECKSUM_AT + 2].fill(0);
        let sum = Sum::new().with(&packet[..header_length]).checksum();
        packet[ipv4::CHECKSUM_AT..ipv4::CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        self.pass_on(view.destination().into(), &packet)
    }

    fn forward_v6(&self, packet: &[u8]) -> Option<Routed> {
        let view = ipv6::View::new(packet).ok()?;
        if view.version() != 6 || view.hop_limit() < 2 {
            return None;
        }
        let mut packet = packet.to_vec();
        packet[HOP_LIMIT_AT] -= 1;
        self.pass_on(view.destination().into(), &packet)
    }

    fn pass_on(&self, destination: IpAddr, packet: &[u8]) -> Option<Routed> {
        if packet.len() > usize::from(self.mtu) {
            return None;
        }
        let to = host_of(destination)?;
        let home = *self.homes.get(to)?;
        if !home.has(to, destination) {
            return None;
        }
        let is_v4 = destination.is_ipv4();
        let ether_type = if is_v4 { ether_type::IPV4 } else { ether_type::IPV6 };
        Some(Routed::Forward { to, frame: in_frame(home, mac_of(to), ether_type, packet) })
    }
}

fn is_solicitation(packet: &[u8]) -> bool {
    // RFC 4861, section 4.3: type 135.
    packet.get(6) == Some(&protocol::ICMPV6) && packet.get(ipv6::HEADER_LENGTH) == Some(&135)
}

/// A frame of the router's, in this subnet.
fn in_frame(home: Subnet, destination: MacAddress, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let outer = if home.vlan.is_some() { ether_type::VLAN } else { ether_type };
    let head = ethernet::Repr { destination, source: home.router_mac(), ether_type: outer };
    let mut frame = vec![0; ethernet::HEADER_LENGTH + vlan::TAG_LENGTH + packet.len()];
    let mut length = head.emit(&mut frame);
    if let Some(id) = home.vlan {
        let tag = vlan::Repr { priority: 0, drop_eligible: false, id, ether_type };
        length += tag.emit(&mut frame[length..]);
    }
    frame.truncate(length + packet.len());
    frame[length..].copy_from_slice(packet);
    frame
}

fn answer_arp(here: Subnet, packet: &[u8]) -> Option<Vec<u8>> {
    let request = arp::Repr::parse(&arp::View::new(packet).ok()?).ok()?;
    let is_asked = request.operation == arp::Operation::Request
        && here.router().contains(&request.target.into());
    let reply = arp::Repr {
        operation: arp::Operation::Reply,
        source_mac: here.router_mac(),
        source: request.target,
        target_mac: request.source_mac,
        target: request.source,
    };
    let mut answer = [0; arp::LENGTH];
    reply.emit(&mut answer);
    is_asked.then(|| in_frame(here, request.source_mac, ether_type::ARP, &answer))
}

fn answer_solicitation(here: Subnet, packet: &[u8]) -> Option<Vec<u8>> {
    let view = ipv6::View::new(packet).ok()?;
    let (asker, group) = (view.source(), view.destination());
    let message = icmpv6::View::new(view.payload()).ok()?;
    let Ok(icmpv6::Repr::NeighbourSolicitation(asked)) =
        icmpv6::Repr::parse(&message, asker, group)
    else {
        return None;
    };
    let mac = asked.source_mac.filter(|_| here.router().contains(&asked.target.into()))?;
    let answer = icmpv6::Repr::NeighbourAdvertisement(Advertisement {
        target: asked.target,
        is_router: true,
        is_solicited: true,
        overrides: true,
        target_mac: Some(here.router_mac()),
    });
    Some(in_frame(here, mac, ether_type::IPV6, &in_packet(&answer, asked.target, asker)))
}

fn in_packet(message: &icmpv6::Repr<'_>, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let head = ipv6::Repr {
        source,
        destination,
        protocol: protocol::ICMPV6,
        hop_limit: icmpv6::NEIGHBOUR_HOP_LIMIT,
        payload_length: message.length() as u16,
    };
    let mut packet = vec![0; ipv6::HEADER_LENGTH + message.length()];
    head.emit(&mut packet);
    message.emit(&mut packet[ipv6::HEADER_LENGTH..], source, destination);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::subnet::Versions;

    const HOMES: [Subnet; 2] =
        [Subnet { number: 0, vlan: None }, Subnet { number: 1, vlan: Some(100) }];

    fn router() -> Router {
        Router { homes: HOMES.to_vec(), mtu: 1500 }
    }

    fn packet_v4(time_to_live: u8, bytes: usize) -> Vec<u8> {
        let of = |home: Subnet, host| match home.addresses(host, Versions::V4)[0].0 {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => unreachable!("of version 4"),
        };
        let mut packet = vec![0; bytes];
        packet[..4].copy_from_slice(&[0x45, 0, (bytes >> 8) as u8, bytes as u8]);
        packet[TIME_TO_LIVE_AT] = time_to_live;
        packet[12..16].copy_from_slice(&of(HOMES[0], 0).octets());
        packet[16..20].copy_from_slice(&of(HOMES[1], 1).octets());
        let sum = Sum::new().with(&packet[..20]).checksum();
        packet[ipv4::CHECKSUM_AT..ipv4::CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn to_router(packet: &[u8]) -> Vec<u8> {
        in_frame(HOMES[0], HOMES[0].router_mac(), ether_type::IPV4, packet)
    }

    #[test]
    fn a_packet_goes_on_with_another_tag_and_one_hop_less() {
        let Some(Routed::Forward { to, frame }) = router().handle(&to_router(&packet_v4(64, 60)))
        else {
            panic!("not forwarded");
        };
        assert_eq!((to, tag_of(&frame)), (1, (Some(100), 16)));
        assert_eq!(frame[..6], mac_of(1));
        assert_eq!(frame[18 + TIME_TO_LIVE_AT], 63);
        assert_eq!(Sum::new().with(&frame[18..38]).checksum(), 0);
    }

    #[test]
    fn what_is_too_large_too_old_or_damaged_is_dropped() {
        let mut damaged = packet_v4(64, 60);
        damaged[13] ^= 1;
        for packet in [packet_v4(1, 60), packet_v4(64, 1501), damaged] {
            assert_eq!(router().handle(&to_router(&packet)), None);
        }
    }

    #[test]
    fn whoever_asks_for_the_router_gets_its_address() {
        let [IpAddr::V4(target), _] = HOMES[0].router() else { panic!("version 4 first") };
        let source = std::net::Ipv4Addr::new(10, 7, 0, 1);
        let request = arp::Repr {
            operation: arp::Operation::Request,
            source_mac: mac_of(0),
            source,
            target_mac: [0; 6],
            target,
        };
        let mut packet = [0; arp::LENGTH];
        request.emit(&mut packet);
        let frame = in_frame(HOMES[0], ethernet::BROADCAST, ether_type::ARP, &packet);
        let Some(Routed::Answer(answer)) = router().handle(&frame) else { panic!("no answer") };
        assert_eq!(answer[..6], mac_of(0));
        assert_eq!(answer[22..28], HOMES[0].router_mac());
    }
}
