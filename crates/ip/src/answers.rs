//! What the interface says itself: ARP and NDP, both sides of them; echo; refusals.

use super::neighbours::Question;
use super::receive::link;
use super::{Datagram, DropReason, Interface, fragmenting, path};
use clearway_base::Time;
use clearway_wire::ethernet::{self, MacAddress, ether_type};
use clearway_wire::fragment::Name;
use clearway_wire::icmpv4::{self, Echo};
use clearway_wire::icmpv6::{self, Advertisement, Solicitation};
use clearway_wire::{arp, ipv4, ipv6, protocol, vlan};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The group of all hosts on the link (RFC 4291, section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// How much of a refused packet is quoted, so that the error fits where the packet came through.
/// RFC 1812, section 4.3.2.3: "the ICMP datagram SHOULD contain as much of the original datagram as
/// possible without the length of the ICMP datagram exceeding 576 bytes".
const QUOTE_BYTES_MAX_V4: usize = 576 - ipv4::HEADER_LENGTH - icmpv4::HEADER_LENGTH;
/// RFC 4443, section 2.4 (c): "without making the error message packet exceed the minimum IPv6
/// MTU".
const QUOTE_BYTES_MAX_V6: usize = 1280 - ipv6::HEADER_LENGTH - icmpv6::HEADER_LENGTH;

/// The link header of a frame to one host or group.
pub(super) struct LinkHeader {
    pub(super) source: MacAddress,
    pub(super) destination: MacAddress,
    pub(super) vlan: Option<u16>,
}

impl LinkHeader {
    /// Writes the header of a frame that carries an IP packet to `destination`. Returns its length.
    pub(super) fn emit(&self, bytes: &mut [u8], destination: IpAddr) -> usize {
        let is_ipv4 = destination.is_ipv4();
        self.emit_type(bytes, if is_ipv4 { ether_type::IPV4 } else { ether_type::IPV6 })
    }

    fn emit_type(&self, bytes: &mut [u8], ether_type: u16) -> usize {
        let outer = if self.vlan.is_some() { ether_type::VLAN } else { ether_type };
        let Self { source, destination, .. } = *self;
        let mut length = ethernet::Repr { destination, source, ether_type: outer }.emit(bytes);
        if let Some(id) = self.vlan {
            let tag = vlan::Repr { priority: 0, drop_eligible: false, id, ether_type };
            length += tag.emit(&mut bytes[length..]);
        }
        length
    }

    pub(super) fn length(&self) -> usize {
        ethernet::HEADER_LENGTH + if self.vlan.is_some() { vlan::TAG_LENGTH } else { 0 }
    }
}

impl Interface {
    /// The link has come up. Tells it who is at this host's addresses (hosts that know better, from
    /// before a restart, then ask), and asks again what nobody has answered.
    pub fn handle_link_up(&mut self, now: Time) {
        self.neighbours.handle_link_up(now);
        let own: Vec<IpAddr> = self.addresses.iter().collect();
        self.announce(&own);
    }

    /// Tells the link that these addresses are here, and asks whether somebody else has them. They
    /// are used meanwhile: RFC 5227 waits for some seconds first, in which a daemon would be of no
    /// use.
    pub(super) fn announce(&mut self, own: &[IpAddr]) {
        if self.kernel_shares || !self.is_spokesman {
            return;
        }
        for address in own {
            // What does not fit is not announced, and will be asked for.
            let _ = match *address {
                IpAddr::V4(own) => self.probe_v4(own).and_then(|()| self.announce_v4(own)),
                IpAddr::V6(own) => {
                    self.probe_v6(own).and_then(|()| self.push_advertisement(own, ALL_NODES, None))
                }
            };
        }
    }

    /// Tells the sender of a frame with a UDP datagram that nobody has its port.
    ///
    /// # Errors
    /// Why it is dropped without an answer.
    pub fn refuse_datagram(&mut self, now: Time, frame: &[u8]) -> Result<(), DropReason> {
        let datagram = self.datagram(frame, false)?;
        if !self.echo_answers.take(now) {
            return Err(DropReason::RateLimit);
        }
        let Datagram { source_mac: mac, packet, .. } = datagram;
        match (datagram.destination.ip(), datagram.source.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (code, quote) = (icmpv4::unreachable::PORT, quote_v4(packet));
                self.push_icmpv4(mac, from, to, &icmpv4::Repr::Unreachable { code, quote })
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (code, quote) = (icmpv6::unreachable::PORT, quote_v6(packet));
                let message = icmpv6::Repr::Unreachable { code, quote };
                self.push_icmpv6(mac, from, to, path::HOP_LIMIT, &message)
            }
            _ => Ok(()),
        }
    }

    /// Tells the sender of a packet that not all of it has come: RFC 1122, section 3.3.2, "an ICMP
    /// Time Exceeded message sent to the source host (if fragment zero has been received)", and RFC
    /// 8200, section 4.5. `first` is that fragment, which `mac` has handed on.
    pub(super) fn tell_of_timeout(
        &mut self,
        now: Time,
        name: &Name,
        mac: MacAddress,
        first: &[u8],
    ) {
        if !self.is_own(name.destination) || !self.echo_answers.take(now) {
            return;
        }
        // What does not fit is not said.
        let _ = match (name.destination, name.source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (code, quote) = (icmpv4::REASSEMBLY, quote_v4(first));
                self.push_icmpv4(mac, from, to, &icmpv4::Repr::TimeExceeded { code, quote })
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (code, quote) = (icmpv6::REASSEMBLY, quote_v6(first));
                let message = icmpv6::Repr::TimeExceeded { code, quote };
                self.push_icmpv6(mac, from, to, path::HOP_LIMIT, &message)
            }
            _ => Ok(()),
        };
    }

    /// Takes a frame with an ARP packet: RFC 826, "Packet Reception". An answer waits for
    /// [`Interface::poll_transmit`].
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn handle_arp(&mut self, now: Time, frame: &[u8]) -> Result<(), DropReason> {
        let (_, _, packet) = link(frame)?;
        let arp = arp::Repr::parse(&arp::View::new(packet)?)?;
        // What this host tells a group comes back to it, by the switch.
        if arp.source_mac == self.mac {
            return Ok(());
        }
        // RFC 5227, section 2.4: an ARP packet "where the 'sender IP address' is the host's own IP
        // address, but the 'sender hardware address' does not match" is "a conflicting ARP packet".
        if self.addresses.is_own_v4(arp.source) {
            self.handle_conflict(now, arp.source.into(), arp.source_mac);
            return Err(DropReason::Conflict);
        }
        // A probe (RFC 5227) comes from nowhere yet, and is answered too.
        let is_probe = arp.source.is_unspecified() && arp.operation == arp::Operation::Request;
        if !is_probe && !self.addresses.may_be_neighbour(arp.source.into()) {
            return Err(DropReason::SourceAddress);
        }
        if arp.source == arp.target {
            self.neighbours.handle_announcement(now, arp.source.into(), arp.source_mac);
            return Ok(());
        }
        if !self.addresses.is_own_v4(arp.target) {
            return Err(DropReason::OtherAddress);
        }
        match arp.operation {
            arp::Operation::Request => self.answer_arp(now, is_probe, &arp),
            arp::Operation::Reply => {
                let (who, mac) = (arp.source.into(), Some(arp.source_mac));
                let was_asked = self.neighbours.handle_answer(now, who, mac, true);
                if was_asked { Ok(()) } else { Err(DropReason::Unsolicited) }
            }
        }
    }

    fn answer_arp(
        &mut self,
        now: Time,
        is_probe: bool,
        request: &arp::Repr,
    ) -> Result<(), DropReason> {
        if !is_probe {
            self.neighbours.handle_request(now, request.source.into(), request.source_mac);
        }
        if !self.neighbour_answers.take(now) {
            return Err(DropReason::RateLimit);
        }
        let reply = arp::Repr {
            operation: arp::Operation::Reply,
            source_mac: self.mac,
            source: request.target,
            target_mac: request.source_mac,
            target: request.source,
        };
        self.push_arp(request.source_mac, &reply)
    }

    /// RFC 4861, section 7.2.4: to an asker without an address, "the sender MUST set the Solicited
    /// flag to zero and multicast the advertisement to the all-nodes address".
    pub(super) fn answer_solicitation(
        &mut self,
        now: Time,
        target: Ipv6Addr,
        asker: Ipv6Addr,
        mac: MacAddress,
    ) -> Result<(), DropReason> {
        if !self.neighbour_answers.take(now) {
            return Err(DropReason::RateLimit);
        }
        if asker.is_unspecified() {
            return self.push_advertisement(target, ALL_NODES, None);
        }
        self.push_advertisement(target, asker, Some(mac))
    }

    pub(super) fn answer_echo_v4(
        &mut self,
        now: Time,
        source_mac: MacAddress,
        request: &ipv4::Repr,
        echo: Echo<'_>,
    ) -> Result<(), DropReason> {
        self.check_echo(now)?;
        let (from, to) = (request.destination, request.source);
        let message = icmpv4::Repr::EchoReply(echo);
        if !self.has_to_be_cut(message.length(), to.into()) {
            return self.push_icmpv4(source_mac, from, to, &message);
        }
        let mut bytes = vec![0; message.length()];
        message.emit(&mut bytes);
        let (link, number) = (self.link(source_mac), fragmenting::identification(&echo));
        self.push_fragments(&link, from.into(), to.into(), number, &bytes)
    }

    pub(super) fn answer_echo_v6(
        &mut self,
        now: Time,
        source_mac: MacAddress,
        request: &ipv6::Repr,
        echo: Echo<'_>,
    ) -> Result<(), DropReason> {
        self.check_echo(now)?;
        let (from, to) = (request.destination, request.source);
        let message = icmpv6::Repr::EchoReply(echo);
        if !self.has_to_be_cut(message.length(), to.into()) {
            return self.push_icmpv6(source_mac, from, to, path::HOP_LIMIT, &message);
        }
        let mut bytes = vec![0; message.length()];
        message.emit(&mut bytes, from, to);
        let (link, number) = (self.link(source_mac), fragmenting::identification(&echo));
        self.push_fragments(&link, from.into(), to.into(), number, &bytes)
    }

    fn check_echo(&mut self, now: Time) -> Result<(), DropReason> {
        if self.echo_answers.take(now) { Ok(()) } else { Err(DropReason::RateLimit) }
    }

    /// Writes the frame that asks for a neighbour. Returns its length; 0 if the question makes no
    /// sense or does not fit.
    pub(super) fn emit_question(&self, question: &Question, frame: &mut [u8]) -> usize {
        match (self.source_for(question.target), question.target) {
            (Some(IpAddr::V4(source)), IpAddr::V4(target)) => {
                let request = arp::Repr {
                    operation: arp::Operation::Request,
                    source_mac: self.mac,
                    source,
                    target_mac: [0; 6],
                    target,
                };
                let link = self.link(question.mac.unwrap_or(ethernet::BROADCAST));
                emit_arp(&link, &request, frame)
            }
            (Some(IpAddr::V6(source)), IpAddr::V6(target)) => {
                let group = ipv6::solicited_node(target);
                let destination = if question.mac.is_some() { target } else { group };
                let link = self.link(question.mac.unwrap_or(ethernet::multicast_v6(group)));
                let source_mac = Some(self.mac);
                let message =
                    icmpv6::Repr::NeighbourSolicitation(Solicitation { target, source_mac });
                let hop_limit = icmpv6::NEIGHBOUR_HOP_LIMIT;
                emit_icmpv6(&link, source, destination, hop_limit, &message, frame)
            }
            _ => 0,
        }
    }

    /// RFC 5227, section 2.1.1: a probe is a request for the own address with an "all-zero 'sender
    /// IP address'", so that it changes nobody's cache.
    fn probe_v4(&mut self, own: Ipv4Addr) -> Result<(), DropReason> {
        let probe = arp::Repr {
            operation: arp::Operation::Request,
            source_mac: self.mac,
            source: Ipv4Addr::UNSPECIFIED,
            target_mac: [0; 6],
            target: own,
        };
        self.push_arp(ethernet::BROADCAST, &probe)
    }

    /// RFC 4862, section 5.4.2: "The solicitation's Target Address is set to the address being
    /// checked, the IP source is set to the unspecified address".
    fn probe_v6(&mut self, own: Ipv6Addr) -> Result<(), DropReason> {
        let group = ipv6::solicited_node(own);
        let solicitation = Solicitation { target: own, source_mac: None };
        let message = icmpv6::Repr::NeighbourSolicitation(solicitation);
        let (mac, hop_limit) = (ethernet::multicast_v6(group), icmpv6::NEIGHBOUR_HOP_LIMIT);
        self.push_icmpv6(mac, Ipv6Addr::UNSPECIFIED, group, hop_limit, &message)
    }

    /// Another host uses the own address `own`. Defends it, but not more than once in a while: RFC
    /// 5227, section 2.4 (b), "record the time that the conflicting ARP packet was received, and
    /// then broadcast one single ARP Announcement".
    pub(super) fn handle_conflict(&mut self, now: Time, own: IpAddr, mac: MacAddress) {
        if self.conflicts.note(now, own, mac) {
            let _ = match own {
                IpAddr::V4(own) => self.announce_v4(own),
                IpAddr::V6(own) => self.push_advertisement(own, ALL_NODES, None),
            };
        }
    }

    /// RFC 5227, section 2.3: an announcement is a request whose "sender IP address" and "target IP
    /// address" are both the own one.
    fn announce_v4(&mut self, own: Ipv4Addr) -> Result<(), DropReason> {
        let announcement = arp::Repr {
            operation: arp::Operation::Request,
            source_mac: self.mac,
            source: own,
            target_mac: [0; 6],
            target: own,
        };
        self.push_arp(ethernet::BROADCAST, &announcement)
    }

    /// To `mac` if somebody asked, else to the group `to`.
    fn push_advertisement(
        &mut self,
        own: Ipv6Addr,
        to: Ipv6Addr,
        mac: Option<MacAddress>,
    ) -> Result<(), DropReason> {
        let message = icmpv6::Repr::NeighbourAdvertisement(Advertisement {
            target: own,
            is_router: false,
            is_solicited: mac.is_some(),
            overrides: true,
            target_mac: Some(self.mac),
        });
        let mac = mac.unwrap_or(ethernet::multicast_v6(to));
        self.push_icmpv6(mac, own, to, icmpv6::NEIGHBOUR_HOP_LIMIT, &message)
    }

    fn push_arp(&mut self, mac: MacAddress, packet: &arp::Repr) -> Result<(), DropReason> {
        let link = self.link(mac);
        let length = link.length() + packet.length();
        self.push(length, |frame| {
            emit_arp(&link, packet, frame);
        })
    }

    fn push_icmpv4(
        &mut self,
        mac: MacAddress,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        message: &icmpv4::Repr<'_>,
    ) -> Result<(), DropReason> {
        let link = self.link(mac);
        let length = link.length() + ipv4::HEADER_LENGTH + message.length();
        self.push(length, |frame| emit_icmpv4(&link, source, destination, message, frame))
    }

    fn push_icmpv6(
        &mut self,
        mac: MacAddress,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        message: &icmpv6::Repr<'_>,
    ) -> Result<(), DropReason> {
        let link = self.link(mac);
        let length = link.length() + ipv6::HEADER_LENGTH + message.length();
        self.push(length, |frame| {
            emit_icmpv6(&link, source, destination, hop_limit, message, frame);
        })
    }

    pub(super) fn push(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), DropReason> {
        if self.outbox.push(length, fill) { Ok(()) } else { Err(DropReason::OutboxFull) }
    }

    fn link(&self, destination: MacAddress) -> LinkHeader {
        LinkHeader { source: self.mac, destination, vlan: self.vlan }
    }
}

/// As much of a packet as an ICMP error quotes.
fn quote_v4(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().min(QUOTE_BYTES_MAX_V4)]
}

/// The same of ICMPv6.
fn quote_v6(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().min(QUOTE_BYTES_MAX_V6)]
}

/// Returns the length of the frame; 0 if it does not fit.
fn emit_arp(link: &LinkHeader, packet: &arp::Repr, frame: &mut [u8]) -> usize {
    let length = link.length() + packet.length();
    let Some(frame) = frame.get_mut(..length) else { return 0 };
    let at = link.emit_type(frame, ether_type::ARP);
    packet.emit(&mut frame[at..]);
    length
}

/// `frame` is exactly as long as it has to be, and so is the message no longer than an outbox slot.
fn emit_icmpv4(
    link: &LinkHeader,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    message: &icmpv4::Repr<'_>,
    frame: &mut [u8],
) {
    let payload_length = message.length() as u16;
    let (protocol, hop_limit) = (protocol::ICMPV4, path::HOP_LIMIT);
    let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
    let at = link.emit_type(frame, ether_type::IPV4);
    let at = at + ip.emit(&mut frame[at..]);
    message.emit(&mut frame[at..]);
}

/// Returns the length of the frame; 0 if it does not fit.
fn emit_icmpv6(
    link: &LinkHeader,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    message: &icmpv6::Repr<'_>,
    frame: &mut [u8],
) -> usize {
    let length = link.length() + ipv6::HEADER_LENGTH + message.length();
    let Some(frame) = frame.get_mut(..length) else { return 0 };
    let payload_length = message.length() as u16; // no longer than an outbox slot
    let ip =
        ipv6::Repr { source, destination, protocol: protocol::ICMPV6, hop_limit, payload_length };
    let at = link.emit_type(frame, ether_type::IPV6);
    let at = at + ip.emit(&mut frame[at..]);
    message.emit(&mut frame[at..], source, destination);
    length
}
