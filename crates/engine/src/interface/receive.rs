//! What a received frame is, and whether it is for this host.

use super::{DropReason, Interface};
use clearway_base::Time;
use clearway_wire::ethernet::{self, MacAddress, ether_type};
use clearway_wire::{Malformed, icmpv4, icmpv6, ipv4, ipv6, protocol, udp, vlan};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;

/// Pings whose answers are waited for; older ones are forgotten.
const PINGS_MAX: usize = 64;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// UDP for this host.
    Datagram(Datagram<'a>),
    /// The answer to one of [`Interface::ping`].
    EchoReply(EchoReply<'a>),
    /// Bad news about a UDP packet that this host may have sent; whoever sent it has to make sure
    /// from the quote.
    NetworkError(NetworkError<'a>),
    /// It was for the interface itself.
    Consumed,
    /// It was dropped and counted.
    Dropped(DropReason),
}

/// A UDP datagram for one of the host's addresses, from an address that another host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it comes from.
    pub source: SocketAddr,
    /// The own address and port that it is for.
    pub destination: SocketAddr,
    /// The UDP payload.
    pub payload: &'a [u8],
    /// The Ethernet address that it was handed on from.
    pub source_mac: MacAddress,
    /// The whole IP packet, for [`Interface::refuse`] to quote.
    pub packet: &'a [u8],
}

/// The answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoReply<'a> {
    /// Who answered.
    pub source: IpAddr,
    /// As in the request.
    pub identifier: u16,
    /// As in the request.
    pub sequence: u16,
    /// As in the request, if the other side is honest.
    pub data: &'a [u8],
}

/// An ICMP error about a UDP packet from an own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkError<'a> {
    /// What happened.
    pub kind: NetworkErrorKind,
    /// Which router or host says so.
    pub reporter: IpAddr,
    /// The own address and port that the packet came from.
    pub source: SocketAddr,
    /// The address and port that the packet was for.
    pub destination: SocketAddr,
    /// How its UDP payload began; may be empty.
    pub quote: &'a [u8],
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkErrorKind {
    /// Its network or host cannot be reached, or somebody forbids it.
    Unreachable,
    /// Nobody at its host has the port.
    PortUnreachable,
    /// It was too large for a link on its way.
    TooLarge {
        /// The largest IP packet that passes; 0 if the router does not say.
        mtu: u32,
    },
    /// It went round in circles.
    TimeExceeded,
}

/// Where a frame came from, as far as Ethernet knows.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) mac: MacAddress,
    /// The frame was addressed to a group.
    pub(super) to_group: bool,
}

/// Pings that wait for their answer.
#[derive(Debug, Default)]
pub(super) struct Pings {
    waiting: VecDeque<(IpAddr, u16, u16)>,
}

impl Pings {
    pub(super) fn push(&mut self, destination: IpAddr, identifier: u16, sequence: u16) {
        if self.waiting.len() == PINGS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((destination, identifier, sequence));
    }

    fn take(&mut self, source: IpAddr, echo: &icmpv4::Echo<'_>) -> bool {
        let answered = (source, echo.identifier, echo.sequence);
        let position = self.waiting.iter().position(|ping| *ping == answered);
        position.is_some_and(|position| self.waiting.remove(position).is_some())
    }
}

impl Interface {
    /// Takes a received frame. What the interface can answer, it answers by
    /// [`Interface::poll_transmit`]; what is dropped is counted.
    #[inline]
    pub fn handle_frame<'a>(&mut self, now: Time, frame: &'a [u8]) -> Received<'a> {
        self.classify(now, frame).unwrap_or_else(|reason| {
            self.drops.count(reason);
            Received::Dropped(reason)
        })
    }

    #[inline]
    fn classify<'a>(&mut self, now: Time, frame: &'a [u8]) -> Result<Received<'a>, DropReason> {
        let view = ethernet::View::new(frame)?;
        let header = ethernet::Repr::parse(&view)?;
        let to_group = ethernet::is_multicast(header.destination);
        if header.destination != self.mac && !to_group {
            return Err(DropReason::OtherMac);
        }
        let origin = Origin { mac: header.source, to_group };
        let (ether_type, payload) = self.untag(header.ether_type, view.payload())?;
        match ether_type {
            ether_type::IPV4 => self.handle_ipv4(now, origin, payload),
            ether_type::IPV6 => self.handle_ipv6(now, origin, payload),
            ether_type::ARP => self.handle_arp(now, payload).map(|()| Received::Consumed),
            _ => Err(DropReason::EtherType),
        }
    }

    /// Takes the VLAN tag off. A tag with the id 0 carries a priority only, and is ignored.
    #[inline]
    fn untag<'a>(&self, outer: u16, payload: &'a [u8]) -> Result<(u16, &'a [u8]), DropReason> {
        let (id, inner, payload) = if outer == ether_type::VLAN {
            let view = vlan::View::new(payload)?;
            let tag = vlan::Repr::parse(&view)?;
            (Some(tag.id).filter(|id| *id != 0), tag.ether_type, view.payload())
        } else {
            (None, outer, payload)
        };
        if id == self.vlan { Ok((inner, payload)) } else { Err(DropReason::OtherVlan) }
    }

    #[inline]
    fn handle_ipv4<'a>(
        &mut self,
        now: Time,
        origin: Origin,
        packet: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let view = ipv4::View::new(packet)?;
        let ip = ipv4::Repr::parse(&view, self.verify_checksums)?;
        // RFC 1122, section 3.3.6: "A host SHOULD silently discard a datagram that is received via
        // a link-layer broadcast [...] but does not specify an IP multicast or broadcast
        // destination address"; and of those none is taken here.
        if origin.to_group || !self.addresses.is_own_v4(ip.destination) {
            return Err(DropReason::OtherAddress);
        }
        if !self.addresses.may_be_source_v4(ip.source) {
            return Err(DropReason::SourceAddress);
        }
        match ip.protocol {
            protocol::UDP => {
                let check = udp::Check::V4(ip.source, ip.destination);
                let (source, destination) = (ip.source.into(), ip.destination.into());
                self.datagram(origin, source, destination, packet, view.payload(), check)
            }
            protocol::ICMPV4 => self.handle_icmpv4(now, origin, &ip, view.payload()),
            _ => Err(DropReason::Protocol),
        }
    }

    #[inline]
    fn handle_ipv6<'a>(
        &mut self,
        now: Time,
        origin: Origin,
        packet: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let view = ipv6::View::new(packet)?;
        let ip = ipv6::Repr::parse(&view)?;
        if ip.protocol == protocol::ICMPV6 {
            return self.handle_icmpv6(now, origin, &ip, view.payload());
        }
        self.check_addresses_v6(origin, &ip)?;
        if ip.protocol != protocol::UDP {
            return Err(DropReason::Protocol);
        }
        let check = udp::Check::V6(ip.source, ip.destination);
        let (source, destination) = (ip.source.into(), ip.destination.into());
        self.datagram(origin, source, destination, packet, view.payload(), check)
    }

    #[inline]
    fn check_addresses_v6(&self, origin: Origin, ip: &ipv6::Repr) -> Result<(), DropReason> {
        if origin.to_group || !self.addresses.is_own_v6(ip.destination) {
            return Err(DropReason::OtherAddress);
        }
        if !self.addresses.may_be_source_v6(ip.source) {
            return Err(DropReason::SourceAddress);
        }
        Ok(())
    }

    #[inline]
    fn datagram<'a>(
        &self,
        origin: Origin,
        source: IpAddr,
        destination: IpAddr,
        packet: &'a [u8],
        datagram: &'a [u8],
        check: udp::Check,
    ) -> Result<Received<'a>, DropReason> {
        let view = udp::View::new(datagram)?;
        let check = if self.verify_checksums { check } else { udp::Check::Skip };
        let udp = udp::Repr::parse(&view, check)?;
        Ok(Received::Datagram(Datagram {
            source: SocketAddr::new(source, udp.source_port),
            destination: SocketAddr::new(destination, udp.destination_port),
            payload: view.payload(),
            source_mac: origin.mac,
            packet,
        }))
    }

    fn handle_icmpv4<'a>(
        &mut self,
        now: Time,
        origin: Origin,
        ip: &ipv4::Repr,
        message: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let from = IpAddr::V4(ip.source);
        match icmpv4::Repr::parse(&icmpv4::View::new(message)?)? {
            icmpv4::Repr::EchoRequest(echo) => {
                self.answer_echo_v4(now, origin, ip, echo).map(|()| Received::Consumed)
            }
            icmpv4::Repr::EchoReply(echo) => self.echo_reply(from, echo),
            icmpv4::Repr::Unreachable { code: icmpv4::unreachable::PORT, quote } => {
                self.network_error_v4(NetworkErrorKind::PortUnreachable, from, quote)
            }
            icmpv4::Repr::Unreachable { quote, .. } => {
                self.network_error_v4(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv4::Repr::FragmentationNeeded { mtu, quote } => {
                self.network_error_v4(NetworkErrorKind::TooLarge { mtu: mtu.into() }, from, quote)
            }
            icmpv4::Repr::TimeExceeded { quote, .. } => {
                self.network_error_v4(NetworkErrorKind::TimeExceeded, from, quote)
            }
        }
    }

    fn handle_icmpv6<'a>(
        &mut self,
        now: Time,
        origin: Origin,
        ip: &ipv6::Repr,
        message: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let from = IpAddr::V6(ip.source);
        let view = icmpv6::View::new(message)?;
        let message = icmpv6::Repr::parse(&view, ip.source, ip.destination)?;
        if !message.is_neighbour_discovery() {
            self.check_addresses_v6(origin, ip)?;
        }
        match message {
            icmpv6::Repr::NeighbourSolicitation(solicitation) => {
                self.handle_solicitation(now, origin, ip, &solicitation)?;
                Ok(Received::Consumed)
            }
            icmpv6::Repr::NeighbourAdvertisement(advertisement) => {
                self.handle_advertisement(now, ip, &advertisement)?;
                Ok(Received::Consumed)
            }
            icmpv6::Repr::EchoRequest(echo) => {
                self.answer_echo_v6(now, origin, ip, echo).map(|()| Received::Consumed)
            }
            icmpv6::Repr::EchoReply(echo) => self.echo_reply(from, echo),
            icmpv6::Repr::Unreachable { code: icmpv6::unreachable::PORT, quote } => {
                self.network_error_v6(NetworkErrorKind::PortUnreachable, from, quote)
            }
            icmpv6::Repr::Unreachable { quote, .. } => {
                self.network_error_v6(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv6::Repr::PacketTooBig { mtu, quote } => {
                self.network_error_v6(NetworkErrorKind::TooLarge { mtu }, from, quote)
            }
            icmpv6::Repr::TimeExceeded { quote, .. } => {
                self.network_error_v6(NetworkErrorKind::TimeExceeded, from, quote)
            }
        }
    }

    fn echo_reply<'a>(
        &mut self,
        source: IpAddr,
        echo: icmpv4::Echo<'a>,
    ) -> Result<Received<'a>, DropReason> {
        if !self.pings.take(source, &echo) {
            return Err(DropReason::Unsolicited);
        }
        let icmpv4::Echo { identifier, sequence, data } = echo;
        Ok(Received::EchoReply(EchoReply { source, identifier, sequence, data }))
    }

    fn network_error_v4<'a>(
        &self,
        kind: NetworkErrorKind,
        reporter: IpAddr,
        quote: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let view = ipv4::View::new(quote)?;
        if view.version() != 4 || view.protocol() != protocol::UDP {
            return Err(DropReason::Unsolicited);
        }
        let (source, destination) = (view.source().into(), view.destination().into());
        self.network_error(kind, reporter, source, destination, view.payload_of_quote())
    }

    fn network_error_v6<'a>(
        &self,
        kind: NetworkErrorKind,
        reporter: IpAddr,
        quote: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let view = ipv6::View::new(quote)?;
        // This host sends no extension headers, so UDP follows at once if this was a packet of it.
        if view.version() != 6 || view.next_header() != protocol::UDP {
            return Err(DropReason::Unsolicited);
        }
        let (source, destination) = (view.source().into(), view.destination().into());
        self.network_error(kind, reporter, source, destination, view.payload_of_quote())
    }

    /// `quoted` is what was quoted behind the IP header: at least the UDP header (RFC 792: "the
    /// first 64 bits of the original datagram's data").
    fn network_error<'a>(
        &self,
        kind: NetworkErrorKind,
        reporter: IpAddr,
        source: IpAddr,
        destination: IpAddr,
        quoted: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        if !self.addresses.is_own(source) {
            return Err(DropReason::Unsolicited);
        }
        let view = udp::View::new(quoted)?;
        Ok(Received::NetworkError(NetworkError {
            kind,
            reporter,
            source: SocketAddr::new(source, view.source_port()),
            destination: SocketAddr::new(destination, view.destination_port()),
            quote: &quoted[udp::HEADER_LENGTH..],
        }))
    }

    /// RFC 4861, sections 7.1.1 and 7.2.3.
    fn handle_solicitation(
        &mut self,
        now: Time,
        origin: Origin,
        ip: &ipv6::Repr,
        solicitation: &icmpv6::Solicitation,
    ) -> Result<(), DropReason> {
        self.check_neighbour_discovery(ip)?;
        if !self.addresses.is_own_v6(solicitation.target) {
            return Err(DropReason::OtherAddress);
        }
        let asker = IpAddr::V6(ip.source);
        if ip.source.is_unspecified() {
            // "If the IP source address is the unspecified address, there is no source link-layer
            // address option in the message."
            if solicitation.source_mac.is_some() {
                return Err(Malformed::Field.into());
            }
        } else if !self.addresses.may_be_neighbour(asker) {
            return Err(DropReason::SourceAddress);
        } else if let Some(mac) = solicitation.source_mac {
            self.neighbours.handle_request(now, asker, mac);
        }
        let mac = solicitation.source_mac.unwrap_or(origin.mac);
        self.answer_solicitation(now, solicitation.target, ip.source, mac)
    }

    /// RFC 4861, sections 7.1.2 and 7.2.5.
    fn handle_advertisement(
        &mut self,
        now: Time,
        ip: &ipv6::Repr,
        advertisement: &icmpv6::Advertisement,
    ) -> Result<(), DropReason> {
        self.check_neighbour_discovery(ip)?;
        let icmpv6::Advertisement { target, target_mac, overrides, .. } = *advertisement;
        let target = IpAddr::V6(target);
        if !advertisement.is_solicited {
            if let Some(mac) = target_mac {
                self.neighbours.handle_announcement(now, target, mac);
            }
            return Ok(());
        }
        let is_ours = self.addresses.is_own_v6(ip.destination);
        if is_ours && self.neighbours.handle_answer(now, target, target_mac, overrides) {
            Ok(())
        } else {
            Err(DropReason::Unsolicited)
        }
    }

    fn check_neighbour_discovery(&self, ip: &ipv6::Repr) -> Result<(), DropReason> {
        if self.kernel_shares {
            return Err(DropReason::OfKernel);
        }
        if ip.hop_limit != icmpv6::NEIGHBOUR_HOP_LIMIT {
            return Err(DropReason::HopLimit);
        }
        let is_ours = self.addresses.is_own_v6(ip.destination) || self.is_own_group(ip.destination);
        if is_ours { Ok(()) } else { Err(DropReason::OtherAddress) }
    }

    /// All nodes, and the solicited-node groups of the own addresses.
    fn is_own_group(&self, group: Ipv6Addr) -> bool {
        group == super::answers::ALL_NODES
            || self.addresses.iter().any(|own| match own {
                IpAddr::V6(own) => ipv6::solicited_node(own) == group,
                IpAddr::V4(_) => false,
            })
    }
}
