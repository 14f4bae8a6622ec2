//! Frames to datagrams and back.

use std::net::{IpAddr, SocketAddr};

use clearway_wire::checksum::Sum;
use clearway_wire::ethernet::{self, ether_type};
use clearway_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol, udp};

use super::{OWN_MAC, ROUTER_MAC};

/// The longest headers that are put before a datagram.
pub(super) const HEADERS_MAX: usize =
    ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + udp::HEADER_LENGTH;

/// What a router says of a packet that is too large: its headers, and what it quotes.
const QUOTE_BYTES_MAX: usize = 512;
pub(super) const TOO_LARGE_BYTES_MAX: usize =
    ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + icmpv6::HEADER_LENGTH + QUOTE_BYTES_MAX;

const HOP_LIMIT: u8 = 64;

/// Where a datagram comes from, where it goes, and how it is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) traffic_class: u8,
}

/// A datagram in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) flow: Flow,
    /// Where in the frame its payload is.
    pub(super) start: usize,
    pub(super) length: usize,
}

impl Datagram {
    /// The datagram that is all that `frame` carries; `None` if it is something else. Frames come
    /// from the engine of this process, whose headers are right; what is looked at here is what the
    /// kernel is told.
    pub(super) fn of(frame: &[u8]) -> Option<Datagram> {
        let link = ethernet::View::new(frame).ok()?;
        let (source, destination, protocol, traffic_class, ip_bytes) = match link.ether_type() {
            ether_type::IPV4 => {
                let ip = ipv4::View::new(link.payload()).ok()?;
                let class = link.payload()[ipv4::TYPE_OF_SERVICE_AT];
                let (from, to) = (IpAddr::V4(ip.source()), IpAddr::V4(ip.destination()));
                (from, to, ip.protocol(), class, ip.header_length())
            }
            ether_type::IPV6 => {
                let ip = ipv6::View::new(link.payload()).ok()?;
                let [high, low] = [link.payload()[0], link.payload()[1]];
                let (from, to) = (IpAddr::V6(ip.source()), IpAddr::V6(ip.destination()));
                (from, to, ip.next_header(), high << 4 | low >> 4, ipv6::HEADER_LENGTH)
            }
            _ => return None,
        };
        let udp_at = ethernet::HEADER_LENGTH + ip_bytes;
        let view = udp::View::new(frame.get(udp_at..)?).ok()?;
        if protocol != protocol::UDP || view.length() != frame.len() - udp_at {
            return None;
        }
        let start = udp_at + udp::HEADER_LENGTH;
        let source = SocketAddr::new(source, view.source_port());
        let destination = SocketAddr::new(destination, view.destination_port());
        let flow = Flow { source, destination, traffic_class };
        Some(Datagram { flow, start, length: frame.len() - start })
    }
}

/// The headers of received datagrams of one flow, all of which have the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    bytes: [u8; HEADERS_MAX],
    length: usize,
    /// The payload that they are for.
    payload_length: usize,
    flow: Flow,
}

impl Headers {
    /// `None` if no packet is like that.
    pub(super) fn new(flow: Flow, payload_length: usize) -> Option<Headers> {
        let mut headers = Headers { bytes: [0; HEADERS_MAX], length: 0, payload_length, flow };
        headers.write().then_some(headers)
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Writes them for a datagram of `payload_length` bytes to the end of `place`. All but the last
    /// of a flow in a row are as long as the one before.
    #[inline]
    pub(super) fn put(&mut self, place: &mut [u8], payload_length: usize) {
        if payload_length != self.payload_length {
            self.payload_length = payload_length;
            self.write(); // shorter than one that was right
        }
        let at = place.len() - self.length;
        place[at..].copy_from_slice(&self.bytes[..self.length]);
    }

    fn write(&mut self) -> bool {
        let Flow { source, destination, traffic_class } = self.flow;
        let Ok(udp_length) = u16::try_from(self.payload_length + udp::HEADER_LENGTH) else {
            return false;
        };
        let ip =
            ip_header(&mut self.bytes, source.ip(), destination.ip(), protocol::UDP, udp_length);
        let Some(udp_at) = ip else { return false };
        let packet = &mut self.bytes[ethernet::HEADER_LENGTH..];
        if destination.is_ipv4() {
            packet[ipv4::TYPE_OF_SERVICE_AT] = traffic_class;
            packet[ipv4::CHECKSUM_AT..][..2].fill(0);
            let checksum = Sum::new().with(&packet[..ipv4::HEADER_LENGTH]).checksum();
            packet[ipv4::CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
        } else {
            packet[0] |= traffic_class >> 4;
            packet[1] |= traffic_class << 4;
        }
        let (source_port, destination_port) = (source.port(), destination.port());
        let udp = udp::Repr {
            source_port,
            destination_port,
            payload_length: udp_length - udp::HEADER_LENGTH as u16,
        };
        self.length = udp_at + udp.emit(&mut self.bytes[udp_at..]);
        true
    }
}

/// Writes an Ethernet header and an IP header, and returns their length. `None` if the addresses
/// are of two families, or there is too much for a packet.
fn ip_header(
    frame: &mut [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    payload_length: u16,
) -> Option<usize> {
    let link = |ether_type| ethernet::Repr { destination: OWN_MAC, source: ROUTER_MAC, ether_type };
    let at = ethernet::HEADER_LENGTH;
    let hop_limit = HOP_LIMIT;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            payload_length.checked_add(ipv4::HEADER_LENGTH as u16)?;
            link(ether_type::IPV4).emit(frame);
            let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
            Some(at + ip.emit(&mut frame[at..]))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            link(ether_type::IPV6).emit(frame);
            let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
            Some(at + ip.emit(&mut frame[at..]))
        }
        _ => None,
    }
}

/// What a router would say of `frame`, in which `datagram` is, where packets may have `mtu` bytes:
/// written to `answer`, which is [`TOO_LARGE_BYTES_MAX`] long. Returns its length.
pub(super) fn too_large(frame: &[u8], datagram: &Datagram, mtu: u32, answer: &mut [u8]) -> usize {
    let packet = &frame[ethernet::HEADER_LENGTH..];
    let quote = &packet[..packet.len().min(QUOTE_BYTES_MAX)];
    // It comes from where the packet would have gone: this host does not tell itself.
    let (from, to) = (datagram.flow.destination.ip(), datagram.flow.source.ip());
    match (from, to) {
        (IpAddr::V6(from6), IpAddr::V6(to6)) => {
            let message = icmpv6::Repr::PacketTooBig { mtu, quote };
            let length = message.length() as u16; // a quote is short
            let at = ip_header(answer, from, to, protocol::ICMPV6, length);
            at.map_or(0, |at| at + message.emit(&mut answer[at..], from6, to6))
        }
        _ => {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            let message = icmpv4::Repr::FragmentationNeeded { mtu, quote };
            let length = message.length() as u16; // a quote is short
            let at = ip_header(answer, from, to, protocol::ICMPV4, length);
            at.map_or(0, |at| at + message.emit(&mut answer[at..]))
        }
    }
}
