//! What a frame for this host says. That it is for this host, and for which of its services, the
//! switch's table has found out; here it is taken at its word no further than that.

use super::{DropReason, Interface, Service, too_large};
use clearway_base::Time;
use clearway_wire::ethernet::{self, MacAddress, ether_type};
use clearway_wire::{Ecn, Malformed, icmpv4, icmpv6, ipv4, ipv6, protocol, udp, vlan};
use core::net::{IpAddr, SocketAddr};

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// UDP for this host.
    Datagram(Datagram<'a>),
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
    /// Whether it met congestion.
    pub ecn: Ecn,
    /// The Ethernet address that it was handed on from.
    pub source_mac: MacAddress,
    /// The whole IP packet, for a refusal to quote.
    pub packet: &'a [u8],
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
        /// The largest IP packet that passes: smaller than the one that is quoted.
        mtu: u32,
    },
    /// It went round in circles.
    TimeExceeded,
}

impl Interface {
    /// Takes a frame that the table has found to be for `service`. What the interface can answer,
    /// it answers by [`Interface::poll_transmit`]; what is dropped is counted.
    #[inline]
    pub fn handle_frame<'a>(
        &mut self,
        now: Time,
        service: Service,
        frame: &'a [u8],
    ) -> Received<'a> {
        self.take(now, service, frame).unwrap_or_else(|reason| {
            self.drops.count(reason);
            Received::Dropped(reason)
        })
    }

    /// Takes a frame that another engine of the host has been given, and has answered: what it says is
    /// learnt here, too. Nothing is answered or counted.
    pub fn overhear<'a>(
        &mut self,
        now: Time,
        service: Service,
        frame: &'a [u8],
    ) -> Option<Received<'a>> {
        let frames = self.outbox.len();
        let received = self.take(now, service, frame).ok();
        self.outbox.truncate(frames);
        received
    }

    #[inline]
    fn take<'a>(
        &mut self,
        now: Time,
        service: Service,
        frame: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let (source_mac, ether_type, packet) = link(frame)?;
        match (service, ether_type) {
            (Service::Messages, _) => {
                self.datagram(source_mac, ether_type, packet).map(Received::Datagram)
            }
            (Service::Datagrams, _) => {
                let datagram = self.datagram(source_mac, ether_type, packet)?;
                self.refuse(now, &datagram).map(|()| Received::Consumed)
            }
            (Service::Arp, _) => self.handle_arp(now, packet).map(|()| Received::Consumed),
            (Service::Icmp, ether_type::IPV4) => self.handle_icmpv4(now, source_mac, packet),
            (Service::Icmp, _) => self.handle_icmpv6(now, source_mac, packet),
        }
    }

    #[inline]
    fn datagram<'a>(
        &self,
        source_mac: MacAddress,
        ether_type: u16,
        packet: &'a [u8],
    ) -> Result<Datagram<'a>, DropReason> {
        let (source, destination, datagram, check, ecn) = if ether_type == ether_type::IPV4 {
            let view = ipv4::View::new(packet)?;
            let ip = self.ipv4(&view)?;
            let check = udp::Check::V4(ip.source, ip.destination);
            (ip.source.into(), ip.destination.into(), view.payload(), check, view.ecn())
        } else {
            let view = ipv6::View::new(packet)?;
            let ip = ipv6::Repr::parse(&view)?;
            self.check_source(ip.source.into())?;
            let check = udp::Check::V6(ip.source, ip.destination);
            (ip.source.into(), ip.destination.into(), view.payload(), check, view.ecn())
        };
        let view = udp::View::new(datagram)?;
        let check = if self.verify_checksums { check } else { udp::Check::Skip };
        let udp = udp::Repr::parse(&view, check)?;
        Ok(Datagram {
            source: SocketAddr::new(source, udp.source_port),
            destination: SocketAddr::new(destination, udp.destination_port),
            payload: view.payload(),
            ecn,
            source_mac,
            packet,
        })
    }

    #[inline]
    fn ipv4(&self, view: &ipv4::View<'_>) -> Result<ipv4::Repr, DropReason> {
        let ip = ipv4::Repr::parse(view, self.verify_checksums)?;
        self.check_source(ip.source.into())?;
        Ok(ip)
    }

    #[inline]
    fn check_source(&self, source: IpAddr) -> Result<(), DropReason> {
        if self.addresses.may_be_source(source) { Ok(()) } else { Err(DropReason::SourceAddress) }
    }

    fn handle_icmpv4<'a>(
        &mut self,
        now: Time,
        source_mac: MacAddress,
        packet: &'a [u8],
    ) -> Result<Received<'a>, DropReason> {
        let view = ipv4::View::new(packet)?;
        let ip = self.ipv4(&view)?;
        let from = IpAddr::V4(ip.source);
        match icmpv4::Repr::parse(&icmpv4::View::new(view.payload())?)? {
            icmpv4::Repr::EchoRequest(echo) => {
                self.answer_echo_v4(now, source_mac, &ip, echo).map(|()| Received::Consumed)
            }
            // Nothing here asks for echoes.
            icmpv4::Repr::EchoReply(_) => Err(DropReason::Unsolicited),
            icmpv4::Repr::Unreachable { code: icmpv4::unreachable::PORT, quote } => {
                self.network_error_v4(NetworkErrorKind::PortUnreachable, from, quote)
            }
            icmpv4::Repr::Unreachable { quote, .. } => {
                self.network_error_v4(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv4::Repr::FragmentationNeeded { mtu, quote } => {
                let mtu = too_large::mtu_v4(mtu, quote)?;
                self.network_error_v4(NetworkErrorKind::TooLarge { mtu }, from, quote)
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
    ) -> Result<Received<'a>, DropReason> {
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
            _ if message.is_neighbour_discovery() && source_mac == self.mac => {
                Ok(Received::Consumed)
            }
            icmpv6::Repr::NeighbourSolicitation(solicitation) => {
                self.handle_solicitation(now, source_mac, ip, &solicitation)?;
                Ok(Received::Consumed)
            }
            icmpv6::Repr::NeighbourAdvertisement(advertisement) => {
                self.handle_advertisement(now, source_mac, ip, &advertisement)?;
                Ok(Received::Consumed)
            }
            icmpv6::Repr::EchoRequest(echo) => {
                self.answer_echo_v6(now, source_mac, ip, echo).map(|()| Received::Consumed)
            }
            icmpv6::Repr::EchoReply(_) => Err(DropReason::Unsolicited),
            icmpv6::Repr::Unreachable { code: icmpv6::unreachable::PORT, quote } => {
                self.network_error_v6(NetworkErrorKind::PortUnreachable, from, quote)
            }
            icmpv6::Repr::Unreachable { quote, .. } => {
                self.network_error_v6(NetworkErrorKind::Unreachable, from, quote)
            }
            icmpv6::Repr::PacketTooBig { mtu, quote } => {
                let mtu = too_large::mtu_v6(mtu, quote)?;
                self.network_error_v6(NetworkErrorKind::TooLarge { mtu }, from, quote)
            }
            icmpv6::Repr::TimeExceeded { quote, .. } => {
                self.network_error_v6(NetworkErrorKind::TimeExceeded, from, quote)
            }
        }
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
/// is of, the table has seen.
#[inline]
fn link(frame: &[u8]) -> Result<(MacAddress, u16, &[u8]), DropReason> {
    let view = ethernet::View::new(frame)?;
    let header = ethernet::Repr::parse(&view)?;
    if header.ether_type != ether_type::VLAN {
        return Ok((header.source, header.ether_type, view.payload()));
    }
    let view = vlan::View::new(view.payload())?;
    let tag = vlan::Repr::parse(&view)?;
    Ok((header.source, tag.ether_type, view.payload()))
}
