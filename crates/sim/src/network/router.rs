//! The router between subnets: answers who asks for its Ethernet address, and passes packets on,
//! but for times in which it has no route. Of that it tells senders; that a packet is larger than
//! its MTU some routers say, and others drop it without a word. It knows all hosts, and asks for
//! none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_nic::MacAddress;
use clearway_wire::checksum::Sum;
use clearway_wire::ethernet::{self, ether_type};
use clearway_wire::icmpv6::{self, Advertisement};
use clearway_wire::{arp, icmpv4, ipv4, ipv6, protocol, vlan};

use super::mac_of;
use super::subnet::{Subnet, port_of};

/// Where the time to live stands in an IPv4 header, and the hop limit in that of IPv6.
const TIME_TO_LIVE_AT: usize = 8;
const HOP_LIMIT_AT: usize = 7;

/// Of a packet that it drops: header, and more than what routers have to quote (RFC 1812, section
/// 4.3.2.3).
const QUOTE_BYTES_MAX: usize = 128;

/// What a router is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterNature {
    /// The largest IP packet that it passes on.
    pub(crate) mtu: u16,
    /// It tells senders of packets that are larger.
    pub(crate) says_too_large: bool,
}

/// The router, and where all ports are.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) homes: Vec<Subnet>,
    pub(super) nature: RouterNature,
    /// It has lost its routes.
    pub(super) is_lost: bool,
    /// Packets of whose end it has told their senders, by the reason.
    pub(super) without_route: u64,
    pub(super) said_too_large: u64,
}

/// Why a packet goes no further, if its sender is told.
#[derive(Clone, Copy)]
enum Error {
    NoRoute,
    TooLarge(u16),
}

/// What becomes of a packet.
enum Judgement {
    PassedOn,
    Dropped,
    Refused(Error),
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
    pub(super) const fn new(homes: Vec<Subnet>, nature: RouterNature) -> Self {
        Self { homes, nature, is_lost: false, without_route: 0, said_too_large: 0 }
    }

    /// True if a frame with this tag reaches the host: what has none is anybody's.
    pub(super) fn reaches(&self, to: usize, tag: Option<u16>) -> bool {
        tag.is_none() || self.homes[to].vlan == tag
    }

    /// What it does with a frame, if that is any of its business.
    pub(super) fn handle(&mut self, frame: &[u8]) -> Option<Routed> {
        let (tag, type_at) = tag_of(frame);
        let here = *self.homes.iter().find(|home| home.vlan == tag)?;
        let ether_type = u16::from_be_bytes(frame.get(type_at..type_at + 2)?.try_into().ok()?);
        let packet = &frame[type_at + 2..];
        let is_for_it = frame[..6] == here.router_mac();
        let sender = frame[6..12].try_into().ok()?;
        match ether_type {
            ether_type::ARP => answer_arp(here, packet).map(Routed::Answer),
            ether_type::IPV6 if is_solicitation(packet) => {
                answer_solicitation(here, packet).map(Routed::Answer)
            }
            ether_type::IPV4 if is_for_it => self.forward_v4(here, packet, sender),
            ether_type::IPV6 if is_for_it => self.forward_v6(here, packet, sender),
            _ => None,
        }
    }

    fn forward_v4(&mut self, here: Subnet, packet: &[u8], sender: MacAddress) -> Option<Routed> {
        let view = ipv4::View::new(packet).ok()?;
        let header_length = view.header_length();
        let packet = packet.get(..view.total_length())?;
        if !view.checksum_is_right() || view.hop_limit() < 2 || header_length > packet.len() {
            return None;
        }
        match self.judge(packet.len()) {
            Judgement::PassedOn => {}
            Judgement::Dropped => return None,
            Judgement::Refused(error) => {
                let answer = error_v4(here, view.source(), error, packet);
                let frame = in_frame(here, sender, ether_type::IPV4, &answer);
                return Some(Routed::Answer(frame));
            }
        }
        let mut packet = packet.to_vec();
        packet[TIME_TO_LIVE_AT] -= 1;
        packet[ipv4::CHECKSUM_AT..ipv4::CHECKSUM_AT + 2].fill(0);
        let sum = Sum::new().with(&packet[..header_length]).checksum();
        packet[ipv4::CHECKSUM_AT..ipv4::CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        self.pass_on(view.destination().into(), &packet)
    }

    fn forward_v6(&mut self, here: Subnet, packet: &[u8], sender: MacAddress) -> Option<Routed> {
        let view = ipv6::View::new(packet).ok()?;
        if view.version() != 6 || view.hop_limit() < 2 {
            return None;
        }
        match self.judge(packet.len()) {
            Judgement::PassedOn => {}
            Judgement::Dropped => return None,
            Judgement::Refused(error) => {
                let answer = error_v6(here, view.source(), error, packet);
                let frame = in_frame(here, sender, ether_type::IPV6, &answer);
                return Some(Routed::Answer(frame));
            }
        }
        let mut packet = packet.to_vec();
        packet[HOP_LIMIT_AT] -= 1;
        self.pass_on(view.destination().into(), &packet)
    }

    fn judge(&mut self, length: usize) -> Judgement {
        let RouterNature { mtu, says_too_large } = self.nature;
        if self.is_lost {
            self.without_route += 1;
            return Judgement::Refused(Error::NoRoute);
        }
        match (length > usize::from(mtu), says_too_large) {
            (false, _) => Judgement::PassedOn,
            (true, false) => Judgement::Dropped,
            (true, true) => {
                self.said_too_large += 1;
                Judgement::Refused(Error::TooLarge(mtu))
            }
        }
    }

    fn pass_on(&self, destination: IpAddr, packet: &[u8]) -> Option<Routed> {
        let to = port_of(destination)?;
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

/// RFC 792: the packet to a host that tells it what became of one of its own.
fn error_v4(here: Subnet, to: Ipv4Addr, error: Error, packet: &[u8]) -> Vec<u8> {
    let quote = &packet[..packet.len().min(QUOTE_BYTES_MAX)];
    let message = match error {
        Error::NoRoute => icmpv4::Repr::Unreachable { code: 0, quote },
        Error::TooLarge(mtu) => icmpv4::Repr::FragmentationNeeded { mtu, quote },
    };
    let [IpAddr::V4(source), _] = here.router() else { unreachable!("version 4 first") };
    let head = ipv4::Repr {
        source,
        destination: to,
        protocol: protocol::ICMPV4,
        hop_limit: 64,
        payload_length: message.length() as u16,
    };
    let mut packet = vec![0; ipv4::HEADER_LENGTH + message.length()];
    head.emit(&mut packet);
    message.emit(&mut packet[ipv4::HEADER_LENGTH..]);
    packet
}

/// RFC 4443, sections 3.1 and 3.2.
fn error_v6(here: Subnet, to: Ipv6Addr, error: Error, packet: &[u8]) -> Vec<u8> {
    let quote = &packet[..packet.len().min(QUOTE_BYTES_MAX)];
    let message = match error {
        Error::NoRoute => icmpv6::Repr::Unreachable { code: 0, quote },
        Error::TooLarge(mtu) => icmpv6::Repr::PacketTooBig { mtu: mtu.into(), quote },
    };
    let [_, IpAddr::V6(source)] = here.router() else { unreachable!("version 6 second") };
    in_packet(&message, source, to)
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
        let nature = RouterNature { mtu: 1500, says_too_large: true };
        Router::new(HOMES.to_vec(), nature)
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
        let mut silent = router();
        silent.nature.says_too_large = false;
        for packet in [packet_v4(1, 60), packet_v4(64, 1501), damaged] {
            assert_eq!(silent.handle(&to_router(&packet)), None);
        }
    }

    #[test]
    fn who_sends_what_does_not_go_on_hears_why() {
        let lost = Router { is_lost: true, ..router() };
        for (mut router, bytes, mtu) in [(router(), 1501, Some(1500)), (lost, 60, None)] {
            let packet = packet_v4(64, bytes);
            let Some(Routed::Answer(frame)) = router.handle(&to_router(&packet)) else {
                panic!("no answer");
            };
            let answer = ipv4::View::new(&frame[ethernet::HEADER_LENGTH..]).expect("a packet");
            let message = icmpv4::View::new(answer.payload()).expect("of ICMP");
            let quoted = match icmpv4::Repr::parse(&message).expect("intact") {
                icmpv4::Repr::FragmentationNeeded { mtu: said, quote } => {
                    assert_eq!(Some(said), mtu);
                    quote
                }
                icmpv4::Repr::Unreachable { code: 0, quote } => quote,
                other => panic!("{other:?}"),
            };
            assert!(packet.starts_with(quoted) && quoted.len() >= 28);
            assert!(answer.checksum_is_right());
            assert_eq!(answer.destination().octets(), packet[12..16]);
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
