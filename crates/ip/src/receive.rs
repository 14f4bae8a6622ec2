//! What a frame for this host says. That it is for this host, and for which of its protocols,
//! whoever calls has found out; here it is taken at its word no further than that.

use super::{DropReason, Interface, too_large};
use clearway_base::Time;
use clearway_wire::ethernet::{self, MacAddress, ether_type};
use clearway_wire::{Ecn, Malformed, icmpv4, icmpv6, ipv4, ipv6, protocol, udp, vlan};
use core::net::{IpAddr, SocketAddr};

/// A whole IP packet for one of the host's addresses, from an address that another host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Where it comes from.
    pub source: IpAddr,
    /// The own address that it is for.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: u8,
    /// That, behind the IP header.
    pub payload: &'a [u8],
    /// Whether it met congestion.
    pub ecn: Ecn,
    /// The Ethernet address that it was handed on from.
    pub source_mac: MacAddress,
    /// All of it, for an error to quote.
    pub bytes: &'a [u8],
}

impl Packet<'_> {
    #[inline]
    fn udp_check(&self) -> udp::Check {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => udp::Check::V4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => udp::Check::V6(source, destination),
            _ => udp::Check::Skip, // a packet is of one family
        }
    }

    /// Whether the UDP datagram in it, which no NIC has looked at, is intact.
    pub(super) fn check_udp(&self) -> Result<(), DropReason> {
        udp::Repr::parse(&udp::View::new(self.payload)?, self.udp_check())?;
        Ok(())
    }
}

/// What an ICMP error quotes of a packet behind its IP header, at least.
const QUOTE_BYTES_MIN: usize = 8;

/// A UDP datagram for one of the host's addresses, from an address that another host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it comes from.
    pub source: SocketAddr,
    /// The own address and port that it is for.
    pub destination: SocketAddr,
    /// The UDP payload.
    pub payload: &'a [u8],
    /// Whether it met congestion.
    pub ecn: Ecn,
    /// The Ethernet address that it was handed on from.
    pub source_mac: MacAddress,
    /// The whole IP packet, for a refusal to quote.
    pub packet: &'a [u8],
}

/// An ICMP error about a packet from an own address, of whichever protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkError<'a> {
    /// What happened.
    pub kind: NetworkErrorKind,
    /// Which router or host says so.
    pub reporter: IpAddr,
    /// The own address that the packet came from.
    pub source: IpAddr,
    /// The address that the packet was for.
    pub destination: IpAddr,
    /// What it carried.
    pub protocol: u8,
    /// How that began: eight bytes at least, which is as far as the ports of all protocols that
    /// have some.
    pub quote: &'a [u8],
}

/// What an ICMP error quotes of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedDatagram<'a> {
    /// The own address and port that it came from.
    pub source: SocketAddr,
    /// The address and port that it was for.
    pub destination: SocketAddr,
    /// How its payload began; may be empty.
    pub payload: &'a [u8],
}

impl<'a> NetworkError<'a> {
    /// The datagram that it is about; `None` if it is about another protocol.
    #[must_use]
    pub fn datagram(&self) -> Option<QuotedDatagram<'a>> {
        let view = udp::View::new(self.quote).ok().filter(|_| self.protocol == protocol::UDP)?;
        Some(QuotedDatagram {
            source: SocketAddr::new(self.source, view.source_port()),
            destination: SocketAddr::new(self.destination, view.destination_port()),
            payload: &self.quote[udp::HEADER_LENGTH..],
        })
    }
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkErrorKind {
    /// Its network or host cannot be reached.
    Unreachable,
    /// Somebody on its way forbids it.
    Prohibited,
    /// Nobody at its host has the port, or knows the protocol.
    PortUnreachable,
    /// It was too large for a link on its way.
    TooLarge {
        /// The largest IP packet that passes: smaller than the one that is quoted.
        mtu: u32,
    },
    /// It went round in circles.
    TimeExceeded,
    /// Somebody does not know what it carries: what IPv6 has instead of "protocol unreachable".
    UnknownProtocol,
}

impl Interface {
    /// What a frame with an IP packet for this host carries, whichever protocol that is.
    ///
    /// # Errors
    /// Why it is to be dropped.
    #[inline]
    pub fn packet<'a>(&self, frame: &'a [u8]) -> Result<Packet<'a>, DropReason> {
        let packet = self.packet_from_anywhere(frame)?;
        self.check_source(packet.source)?;
        Ok(packet)
    }

    /// The same for a frame that has come from another host, or from this one, which sends from its
    /// own addresses.
    ///
    /// # Errors
    /// Why it is to be dropped.
    #[inline]
    pub fn packet_from_anywhere<'a>(&self, frame: &'a [u8]) -> Result<Packet<'a>, DropReason> {
        let (source_mac, ether_type, bytes) = link(frame)?;
        if ether_type == ether_type::IPV4 {
            let view = ipv4::View::new(bytes)?;
            let ip = ipv4::Repr::parse(&view, self.verify_checksums)?;
            let (source, destination) = (ip.source.into(), ip.destination.into());
            let (protocol, payload, ecn) = (ip.protocol, view.payload(), view.ecn());
            Ok(Packet { source, destination, protocol, payload, ecn, source_mac, bytes })
        } else {
            let view = ipv6::View::new(bytes)?;
            let ip = ipv6::Repr::parse(&view)?;
            let (source, destination) = (ip.source.into(), ip.destination.into());
            let (protocol, payload, ecn) = (ip.protocol, view.payload(), view.ecn());
            Ok(Packet { source, destination, protocol, payload, ecn, source_mac, bytes })
        }
    }

    /// The same for a frame that is known to have a UDP datagram. `is_verified`: its checksum is
    /// known to be right.
    ///
    /// # Errors
    /// Why it is to be dropped.
    #[inline]
    pub fn datagram<'a>(
        &self,
        frame: &'a [u8],
        is_verified: bool,
    ) -> Result<Datagram<'a>, DropReason> {
        let packet = self.packet(frame)?;
        let check = match is_verified || self.takes_checksums_as_right() {
            true => udp::Check::Skip,
            false => packet.udp_check(),
        };
        let view = udp::View::new(packet.payload)?;
        let udp = udp::Repr::parse(&view, check)?;
        Ok(Datagram {
            source: SocketAddr::new(packet.source, udp.source_port),
            destination: SocketAddr::new(packet.destination, udp.destination_port),
            payload: view.payload(),
            ecn: packet.ecn,
            source_mac: packet.source_mac,
            packet: packet.bytes,
        })
    }

    /// True if the NIC has checked all that comes.
    #[inline]
    #[must_use]
    pub const fn takes_checksums_as_right(&self) -> bool {
        !self.verify_checksums
    }

    /// Takes a frame with a message of ICMP or ICMPv6. What is to be said to it, neighbour
    /// discovery included, waits for [`Interface::poll_transmit`]; bad news about a packet of this
    /// host is for whoever sent that, who has to make sure from the quote.
    ///
    /// # Errors
    /// Why it is to be dropped.
    pub fn handle_icmp<'a>(
        &mut self,
        now: Time,
        frame: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        let (source_mac, ether_type, packet) = link(frame)?;
        if ether_type == ether_type::IPV4 {
            self.handle_icmpv4(now, source_mac, packet)
        } else {
            self.handle_icmpv6(now, source_mac, packet)
        }
    }

    /// Takes a frame with an ICMP error of which the kernel has a copy: the same, of so many a
    /// second.
    ///
    /// # Errors
    /// Why it is to be dropped.
    pub fn handle_undelivered<'a>(
        &mut self,
        now: Time,
        frame: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        if !self.undelivered.take(now) {
            return Err(DropReason::RateLimit);
        }
        self.handle_icmp(now, frame)
    }

    /// Hears what another engine of the host has been given, and has answered: what it says is
    /// learnt here, too, but nothing is said to it.
    pub fn overhear<T>(&mut self, hear: impl FnOnce(&mut Self) -> T) -> T {
        let frames = self.outbox.len();
        let heard = hear(self);
        self.outbox.truncate(frames);
        heard
    }

    #[inline]
    fn ipv4(&self, view: &ipv4::View<'_>) -> Result<ipv4::Repr, DropReason> {
        let ip = ipv4::Repr::parse(view, self.verify_checksums)?;
        self.check_source(ip.source.into())?;
        Ok(ip)
    }

    #[inline]
    pub(super) fn check_source(&self, source: IpAddr) -> Result<(), DropReason> {
        if self.addresses.may_be_source(source) { Ok(()) } else { Err(DropReason::SourceAddress) }
    }

    fn handle_icmpv4<'a>(
        &mut self,
        now: Time,
        source_mac: MacAddress,
        packet: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        let view = ipv4::View::new(packet)?;
        let ip = self.ipv4(&view)?;
        let from = IpAddr::V4(ip.source);
        match icmpv4::Repr::parse(&icmpv4::View::new(view.payload())?)? {
            icmpv4::Repr::EchoRequest(echo) => {
                self.answer_echo_v4(now, source_mac, &ip, echo).map(|()| None)
            }
            // Nothing here asks for echoes.
            icmpv4::Repr::EchoReply(_) => Err(DropReason::Unsolicited),
            icmpv4::Repr::Unreachable {
                code: icmpv4::unreachable::PORT | icmpv4::unreachable::PROTOCOL,
                quote,
            } => self.network_error_v4(NetworkErrorKind::PortUnreachable, from, quote),
            icmpv4::Repr::Unreachable { code, quote }
                if icmpv4::unreachable::PROHIBITED.contains(&code) =>
            {
                self.network_error_v4(NetworkErrorKind::Prohibited, from, quote)
            }
            icmpv4::Repr::Unreachable { quote, .. } => {
                self.network_error_v4(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv4::Repr::FragmentationNeeded { mtu, quote } => {
                let mtu = too_large::mtu_v4(mtu, quote)?;
                self.network_error_v4(NetworkErrorKind::TooLarge { mtu }, from, quote)
            }
            // A part of it has been lost.
            icmpv4::Repr::TimeExceeded { code: icmpv4::REASSEMBLY, quote } => {
                self.network_error_v4(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv4::Repr::TimeExceeded { quote, .. } => {
                self.network_error_v4(NetworkErrorKind::TimeExceeded, from, quote)
            }
        }
    }

    fn handle_icmpv6<'a>(
        &mut self,
        now: Time,
        source_mac: MacAddress,
        packet: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        let view = ipv6::View::new(packet)?;
        let ip = &ipv6::Repr::parse(&view)?;
        let from = IpAddr::V6(ip.source);
        let view = icmpv6::View::new(view.payload())?;
        let message = icmpv6::Repr::parse(&view, ip.source, ip.destination)?;
        if !message.is_neighbour_discovery() {
            if !self.addresses.is_own_v6(ip.destination) {
                return Err(DropReason::Group);
            }
            self.check_source(from)?;
        }
        match message {
            // What this host tells a group comes back to it, by the switch.
            _ if message.is_neighbour_discovery() && source_mac == self.mac => Ok(None),
            icmpv6::Repr::NeighbourSolicitation(solicitation) => {
                self.handle_solicitation(now, source_mac, ip, &solicitation)?;
                Ok(None)
            }
            icmpv6::Repr::NeighbourAdvertisement(advertisement) => {
                self.handle_advertisement(now, source_mac, ip, &advertisement)?;
                Ok(None)
            }
            icmpv6::Repr::EchoRequest(echo) => {
                self.answer_echo_v6(now, source_mac, ip, echo).map(|()| None)
            }
            icmpv6::Repr::EchoReply(_) => Err(DropReason::Unsolicited),
            icmpv6::Repr::Unreachable { code: icmpv6::unreachable::PORT, quote } => {
                self.network_error_v6(NetworkErrorKind::PortUnreachable, from, quote)
            }
            icmpv6::Repr::Unreachable { code, quote }
                if icmpv6::unreachable::PROHIBITED.contains(&code) =>
            {
                self.network_error_v6(NetworkErrorKind::Prohibited, from, quote)
            }
            icmpv6::Repr::Unreachable { quote, .. } => {
                self.network_error_v6(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv6::Repr::PacketTooBig { mtu, quote } => {
                let mtu = too_large::mtu_v6(mtu, quote)?;
                self.network_error_v6(NetworkErrorKind::TooLarge { mtu }, from, quote)
            }
            icmpv6::Repr::TimeExceeded { code: icmpv6::REASSEMBLY, quote } => {
                self.network_error_v6(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv6::Repr::TimeExceeded { quote, .. } => {
                self.network_error_v6(NetworkErrorKind::TimeExceeded, from, quote)
            }
            icmpv6::Repr::ParameterProblem { code: icmpv6::UNKNOWN_PROTOCOL, quote, .. } => {
                self.network_error_v6(NetworkErrorKind::UnknownProtocol, from, quote)
            }
            // Of options and extension headers, of which this host sends none.
            icmpv6::Repr::ParameterProblem { .. } => Err(DropReason::Unsolicited),
        }
    }

    fn network_error_v4<'a>(
        &self,
        kind: NetworkErrorKind,
        reporter: IpAddr,
        quote: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        let view = ipv4::View::new(quote)?;
        if view.version() != 4 {
            return Err(DropReason::Unsolicited);
        }
        let (source, destination) = (view.source().into(), view.destination().into());
        let (protocol, quote) = (view.protocol(), view.payload_of_quote());
        self.check_quote(NetworkError { kind, reporter, source, destination, protocol, quote })
    }

    fn network_error_v6<'a>(
        &self,
        kind: NetworkErrorKind,
        reporter: IpAddr,
        quote: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        let view = ipv6::View::new(quote)?;
        if view.version() != 6 {
            return Err(DropReason::Unsolicited);
        }
        let (source, destination) = (view.source().into(), view.destination().into());
        // This host sends no extension headers, so what follows is what this packet of it carried.
        let (protocol, quote) = (view.next_header(), view.payload_of_quote());
        self.check_quote(NetworkError { kind, reporter, source, destination, protocol, quote })
    }

    /// RFC 792: an error quotes "the first 64 bits of the original datagram's data" at least.
    fn check_quote<'a>(
        &self,
        error: NetworkError<'a>,
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        if !self.addresses.is_own(error.source) {
            return Err(DropReason::Unsolicited);
        }
        if error.quote.len() < QUOTE_BYTES_MIN {
            return Err(Malformed::Truncated.into());
        }
        Ok(Some(error))
    }

    /// RFC 4861, sections 7.1.1 and 7.2.3.
    fn handle_solicitation(
        &mut self,
        now: Time,
        source_mac: MacAddress,
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
        let mac = solicitation.source_mac.unwrap_or(source_mac);
        self.answer_solicitation(now, solicitation.target, ip.source, mac)
    }

    /// RFC 4861, sections 7.1.2 and 7.2.5.
    fn handle_advertisement(
        &mut self,
        now: Time,
        source_mac: MacAddress,
        ip: &ipv6::Repr,
        advertisement: &icmpv6::Advertisement,
    ) -> Result<(), DropReason> {
        self.check_neighbour_discovery(ip)?;
        let icmpv6::Advertisement { target, target_mac, overrides, .. } = *advertisement;
        let is_own = self.addresses.is_own_v6(target);
        let target = IpAddr::V6(target);
        if is_own {
            // RFC 4862, section 5.4.4. An address that this host uses already is not given up.
            let mac = target_mac.unwrap_or(source_mac);
            self.handle_conflict(now, target, mac);
            return Err(DropReason::Conflict);
        }
        self.check_source(ip.source.into())?;
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
        if ip.hop_limit == icmpv6::NEIGHBOUR_HOP_LIMIT { Ok(()) } else { Err(DropReason::HopLimit) }
    }
}

/// Takes the link's headers off: who sent the frame, what is in it, and its bytes. Which VLAN it
/// is of, whoever calls has seen.
#[inline]
pub(super) fn link(frame: &[u8]) -> Result<(MacAddress, u16, &[u8]), DropReason> {
    let view = ethernet::View::new(frame)?;
    let header = ethernet::Repr::parse(&view)?;
    if header.ether_type != ether_type::VLAN {
        return Ok((header.source, header.ether_type, view.payload()));
    }
    let view = vlan::View::new(view.payload())?;
    let tag = vlan::Repr::parse(&view)?;
    Ok((header.source, tag.ether_type, view.payload()))
}
