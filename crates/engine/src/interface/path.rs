//! The headers of UDP datagrams on one path: made once, copied for each packet.

use super::answers::Link;
use clearway_base::{SECOND, Time};
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, ethernet, ipv4, ipv6, protocol, udp, vlan};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How long a path is used before it is asked for again.
pub(super) const FRESH_NS: u64 = SECOND;
/// The initial hop limit (RFC 1700, "the current recommended default time to live").
pub(super) const HOP_LIMIT: u8 = 64;

const TEMPLATE_BYTES_MAX: usize =
    ethernet::HEADER_LENGTH + vlan::TAG_LENGTH + ipv6::HEADER_LENGTH + udp::HEADER_LENGTH;

/// The lengths of the two headers that stay within the MTU.
pub(super) fn ip_and_udp_length(destination: IpAddr) -> usize {
    let ip = if destination.is_ipv4() { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH };
    ip + udp::HEADER_LENGTH
}

/// All that stays the same in packets from one socket address to another.
///
/// To send: write the payload at [`Path::payload_offset`] of a frame, call
/// [`Path::emit_udp_headers`], and then, when the payload is complete, [`Path::finish`].
#[derive(Clone, Debug)]
pub struct Path {
    /// Ethernet, VLAN, IP and UDP headers of a packet without payload length and checksum.
    template: [u8; TEMPLATE_BYTES_MAX],
    payload_offset: u8,
    ip_offset: u8,
    /// IPv4: of the header's fields but length and checksum. IPv6: of both addresses.
    partial_sum: Sum,
    source: SocketAddr,
    destination: SocketAddr,
    fresh_until: Time,
    generation: u32,
}

impl Path {
    pub(super) fn new(
        link: &Link,
        source: SocketAddr,
        destination: SocketAddr,
        fresh_until: Time,
        generation: u32,
    ) -> Self {
        let mut template = [0; TEMPLATE_BYTES_MAX];
        let ip_offset = link.emit(&mut template, destination.ip());
        let ip = &mut template[ip_offset..];
        let (ip_length, partial_sum) = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => emit_v4(ip, source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => emit_v6(ip, source, destination),
            _ => panic!("a path from {source} to {destination}: one IPv4, the other IPv6"),
        };
        let (source_port, destination_port) = (source.port(), destination.port());
        let udp = udp::Repr { source_port, destination_port, payload_length: 0 };
        let payload_offset = ip_offset + ip_length + udp.emit(&mut ip[ip_length..]);
        Self {
            template,
            payload_offset: payload_offset as u8, // at most TEMPLATE_BYTES_MAX
            ip_offset: ip_offset as u8,
            partial_sum,
            source,
            destination,
            fresh_until,
            generation,
        }
    }

    /// The own address and port.
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    /// The peer's address and port.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// Sends to and from these ports from now on.
    #[inline]
    pub(crate) fn set_ports(&mut self, source: u16, destination: u16) {
        if self.source.port() == source && self.destination.port() == destination {
            return;
        }
        self.source.set_port(source);
        self.destination.set_port(destination);
        let udp_at = self.udp_offset();
        put_u16(&mut self.template, udp_at, source);
        put_u16(&mut self.template, udp_at + 2, destination);
    }

    /// Where in a frame the UDP payload begins.
    #[inline]
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        usize::from(self.payload_offset)
    }

    /// Writes all headers for a payload of `payload_length` bytes, which stays as it is, for a packet
    /// that routers may mark (RFC 3168) if `is_ecn_capable`. Returns the length of the frame.
    ///
    /// # Panics
    /// If `frame` is shorter than the headers, or the payload longer than any MTU.
    #[inline]
    pub fn emit_udp_headers(
        &self,
        frame: &mut [u8],
        payload_length: usize,
        is_ecn_capable: bool,
    ) -> usize {
        // Copies of constant length, which the compiler turns into a few moves.
        match self.payload_offset() {
            42 => frame[..42].copy_from_slice(&self.template[..42]),
            62 => frame[..62].copy_from_slice(&self.template[..62]),
            other => frame[..other].copy_from_slice(&self.template[..other]),
        }
        let udp_length = payload_length + udp::HEADER_LENGTH;
        let udp_length = u16::try_from(udp_length).expect("a UDP payload of more than 64 KB");
        let udp_at = self.udp_offset();
        put_u16(frame, udp_at + udp::LENGTH_AT, udp_length);
        let ip_at = usize::from(self.ip_offset);
        if self.is_ipv4() {
            let total_length = udp_length + ipv4::HEADER_LENGTH as u16;
            let ecn = if is_ecn_capable { Ecn::CAPABLE_BITS } else { 0 };
            frame[ip_at + ipv4::TYPE_OF_SERVICE_AT] |= ecn;
            let checksum =
                self.partial_sum.with_u16(total_length).with_u16(u16::from(ecn)).checksum();
            put_u16(frame, ip_at + ipv4::TOTAL_LENGTH_AT, total_length);
            put_u16(frame, ip_at + ipv4::CHECKSUM_AT, checksum);
        } else {
            put_u16(frame, ip_at + ipv6::PAYLOAD_LENGTH_AT, udp_length);
            if is_ecn_capable {
                frame[ip_at + ipv6::ECN_AT] |= Ecn::CAPABLE_BITS << ipv6::ECN_SHIFT;
            }
        }
        self.payload_offset() + payload_length
    }

    /// Fills in the UDP checksum of the whole `frame`, once its payload is there. Over IPv4 none is
    /// sent (RFC 768: "An all zero transmitted checksum value means that the transmitter generated
    /// no checksum"): Clearway packets have a better one of their own.
    #[inline]
    pub fn finish(&self, frame: &mut [u8]) {
        if !self.is_ipv4() {
            udp::fill_checksum(&mut frame[self.udp_offset()..], self.partial_sum);
        }
    }

    #[inline]
    pub(super) fn is_current(&self, now: Time, generation: u32) -> bool {
        self.generation == generation && now < self.fresh_until
    }

    #[inline]
    fn is_ipv4(&self) -> bool {
        self.destination.is_ipv4()
    }

    #[inline]
    fn udp_offset(&self) -> usize {
        self.payload_offset() - udp::HEADER_LENGTH
    }
}

/// Writes the header; returns its length and the sum over it without length and checksum.
fn emit_v4(bytes: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr) -> (usize, Sum) {
    let (protocol, hop_limit) = (protocol::UDP, HOP_LIMIT);
    let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length: 0 };
    let length = ip.emit(bytes);
    put_u16(bytes, ipv4::TOTAL_LENGTH_AT, 0);
    put_u16(bytes, ipv4::CHECKSUM_AT, 0);
    (length, Sum::new().with(&bytes[..length]))
}

/// Writes the header; returns its length and the sum over the addresses.
fn emit_v6(bytes: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr) -> (usize, Sum) {
    let (protocol, hop_limit) = (protocol::UDP, HOP_LIMIT);
    let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length: 0 };
    let length = ip.emit(bytes);
    (length, Sum::new().with(&source.octets()).with(&destination.octets()))
}

#[inline]
fn put_u16(bytes: &mut [u8], at: usize, field: u16) {
    bytes[at..at + 2].copy_from_slice(&field.to_be_bytes());
}
