//! The headers of packets on one path: made once, copied for each packet.

use super::answers::LinkHeader;
use clearway_base::{SECOND, Time};
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, ethernet, ipv4, ipv6, udp, vlan};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How long a path is used before it is asked for again.
pub(super) const FRESH_NS: u64 = SECOND;
/// The initial hop limit (RFC 1700, "the current recommended default time to live").
pub(super) const HOP_LIMIT: u8 = 64;

/// The longest headers of a packet without options, its link's included; UDP's, too.
const TEMPLATE_BYTES_MAX: usize =
    ethernet::HEADER_LENGTH + vlan::TAG_LENGTH + ipv6::HEADER_LENGTH + udp::HEADER_LENGTH;

/// The length of the IP header of a packet to `destination`.
pub(super) fn ip_header_length(destination: IpAddr) -> usize {
    if destination.is_ipv4() { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH }
}

/// All that stays the same in packets of one protocol from one address to another.
///
/// To send: write what the packet carries at [`Path::payload_offset`] of a frame, and call
/// [`Path::emit_headers`]. For UDP see [`UdpPath`].
#[derive(Clone, Debug)]
pub struct Path {
    /// Ethernet, VLAN and IP headers of a packet without payload length and checksum, and UDP's in
    /// a [`UdpPath`].
    template: [u8; TEMPLATE_BYTES_MAX],
    /// How much of it there is.
    template_length: u8,
    ip_offset: u8,
    /// IPv4: of the header's fields but length and checksum. IPv6: of both addresses.
    partial_sum: Sum,
    source: IpAddr,
    destination: IpAddr,
    fresh_until: Time,
    generation: u32,
}

impl Path {
    pub(super) fn new(
        link: &LinkHeader,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        fresh_until: Time,
        generation: u32,
    ) -> Self {
        let mut template = [0; TEMPLATE_BYTES_MAX];
        let ip_offset = link.emit(&mut template, destination);
        let ip = &mut template[ip_offset..];
        let (ip_length, partial_sum) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                emit_v4(ip, source, destination, protocol)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                emit_v6(ip, source, destination, protocol)
            }
            _ => panic!("a path from {source} to {destination}: one IPv4, the other IPv6"),
        };
        Self {
            template,
            template_length: (ip_offset + ip_length) as u8, // at most TEMPLATE_BYTES_MAX
            ip_offset: ip_offset as u8,
            partial_sum,
            source,
            destination,
            fresh_until,
            generation,
        }
    }

    /// The own address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// The peer's address.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// The path of UDP datagrams between these ports; this one has to be for UDP.
    #[must_use]
    pub fn udp(mut self, source_port: u16, destination_port: u16) -> UdpPath {
        debug_assert_eq!(self.template_length, self.ip_offset + self.ip_header_length());
        let udp = udp::Repr { source_port, destination_port, payload_length: 0 };
        let at = self.payload_offset();
        // As long as that has room.
        self.template_length += udp.emit(&mut self.template[at..]) as u8;
        UdpPath { path: self, source_port, destination_port }
    }

    /// Where in a frame that begins which the packet carries.
    #[inline]
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        usize::from(self.template_length)
    }

    /// Writes all headers for a payload of `payload_length` bytes, which stays as it is, of a
    /// packet that routers may mark (RFC 3168) if `is_ecn_capable`. Returns the length of the
    /// frame.
    ///
    /// # Panics
    /// If `frame` is shorter than the headers, or the payload longer than any MTU.
    #[inline]
    pub fn emit_headers(
        &self,
        frame: &mut [u8],
        payload_length: usize,
        is_ecn_capable: bool,
    ) -> usize {
        let behind_ip =
            self.payload_offset() - usize::from(self.ip_offset + self.ip_header_length());
        let length =
            u16::try_from(behind_ip + payload_length).expect("a packet of more than 64 KB");
        self.emit_template(frame, length, is_ecn_capable);
        self.payload_offset() + payload_length
    }

    /// Changes what [`Path::emit_headers`] has written into `frame`: the hop limit, and the traffic
    /// class but for its two bits of ECN.
    #[cold]
    pub fn set_ip_fields(&self, frame: &mut [u8], hop_limit: u8, traffic_class: u8) {
        let ip = &mut frame[usize::from(self.ip_offset)..];
        let class = traffic_class & !Ecn::BITS;
        if self.is_ipv4() {
            let ip = &mut ip[..ipv4::HEADER_LENGTH];
            ip[ipv4::TYPE_OF_SERVICE_AT] = ip[ipv4::TYPE_OF_SERVICE_AT] & Ecn::BITS | class;
            ip[ipv4::HOP_LIMIT_AT] = hop_limit;
            put_u16(ip, ipv4::CHECKSUM_AT, 0);
            let checksum = Sum::new().with(ip).checksum();
            put_u16(ip, ipv4::CHECKSUM_AT, checksum);
        } else {
            ip[0] = ip[0] & 0xf0 | class >> ipv6::ECN_SHIFT;
            let low = ip[ipv6::ECN_AT] & (0xf | Ecn::BITS << ipv6::ECN_SHIFT);
            ip[ipv6::ECN_AT] = low | class << ipv6::ECN_SHIFT;
            ip[ipv6::HOP_LIMIT_AT] = hop_limit;
        }
    }

    /// Writes the template, for a packet that carries `length` bytes behind its IP header.
    #[inline]
    fn emit_template(&self, frame: &mut [u8], length: u16, is_ecn_capable: bool) {
        // Copies of constant length, which the compiler turns into a few moves.
        match self.payload_offset() {
            42 => frame[..42].copy_from_slice(&self.template[..42]),
            62 => frame[..62].copy_from_slice(&self.template[..62]),
            other => frame[..other].copy_from_slice(&self.template[..other]),
        }
        let ip_at = usize::from(self.ip_offset);
        if self.is_ipv4() {
            let total_length = length + ipv4::HEADER_LENGTH as u16;
            let ecn = if is_ecn_capable { Ecn::CAPABLE_BITS } else { 0 };
            frame[ip_at + ipv4::TYPE_OF_SERVICE_AT] |= ecn;
            let checksum =
                self.partial_sum.with_u16(total_length).with_u16(u16::from(ecn)).checksum();
            put_u16(frame, ip_at + ipv4::TOTAL_LENGTH_AT, total_length);
            put_u16(frame, ip_at + ipv4::CHECKSUM_AT, checksum);
        } else {
            put_u16(frame, ip_at + ipv6::PAYLOAD_LENGTH_AT, length);
            if is_ecn_capable {
                frame[ip_at + ipv6::ECN_AT] |= Ecn::CAPABLE_BITS << ipv6::ECN_SHIFT;
            }
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
    fn ip_header_length(&self) -> u8 {
        ip_header_length(self.destination) as u8
    }
}

/// All that stays the same in UDP datagrams from one socket address to another.
///
/// To send: write the payload at [`UdpPath::payload_offset`] of a frame, call
/// [`UdpPath::emit_headers`], and then, when the payload is complete, [`UdpPath::finish`].
#[derive(Clone, Debug)]
pub struct UdpPath {
    path: Path,
    source_port: u16,
    destination_port: u16,
}

impl UdpPath {
    /// The own address and port.
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.path.source, self.source_port)
    }

    /// The peer's address and port.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.path.destination, self.destination_port)
    }

    /// The path of the packets that the datagrams are in.
    #[inline]
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends to and from these ports from now on.
    #[inline]
    pub fn set_ports(&mut self, source: u16, destination: u16) {
        if self.source_port == source && self.destination_port == destination {
            return;
        }
        (self.source_port, self.destination_port) = (source, destination);
        let udp_at = self.udp_offset();
        put_u16(&mut self.path.template, udp_at, source);
        put_u16(&mut self.path.template, udp_at + 2, destination);
    }

    /// Where in a frame the UDP payload begins.
    #[inline]
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        self.path.payload_offset()
    }

    /// Writes all headers for a payload of `payload_length` bytes, as [`Path::emit_headers`] does.
    ///
    /// # Panics
    /// If `frame` is shorter than the headers, or the payload longer than any MTU.
    #[inline]
    pub fn emit_headers(
        &self,
        frame: &mut [u8],
        payload_length: usize,
        is_ecn_capable: bool,
    ) -> usize {
        let length = u16::try_from(payload_length + udp::HEADER_LENGTH);
        let length = length.expect("a UDP payload of more than 64 KB");
        self.path.emit_template(frame, length, is_ecn_capable);
        put_u16(frame, self.udp_offset() + udp::LENGTH_AT, length);
        self.payload_offset() + payload_length
    }

    /// Fills in the UDP checksum of the whole `frame`, once its payload is there. Over IPv4 none is
    /// sent (RFC 768: "An all zero transmitted checksum value means that the transmitter generated
    /// no checksum"): Clearway packets have a better one of their own.
    #[inline]
    pub fn finish(&self, frame: &mut [u8]) {
        if !self.path.is_ipv4() {
            udp::fill_checksum(&mut frame[self.udp_offset()..], self.path.partial_sum);
        }
    }

    #[inline]
    fn udp_offset(&self) -> usize {
        self.payload_offset() - udp::HEADER_LENGTH
    }
}

/// Writes the header; returns its length and the sum over it without length and checksum.
fn emit_v4(
    bytes: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
) -> (usize, Sum) {
    let (hop_limit, payload_length) = (HOP_LIMIT, 0);
    let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
    let length = ip.emit(bytes);
    put_u16(bytes, ipv4::TOTAL_LENGTH_AT, 0);
    put_u16(bytes, ipv4::CHECKSUM_AT, 0);
    (length, Sum::new().with(&bytes[..length]))
}

/// Writes the header; returns its length and the sum over the addresses.
fn emit_v6(
    bytes: &mut [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
) -> (usize, Sum) {
    let (hop_limit, payload_length) = (HOP_LIMIT, 0);
    let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
    let length = ip.emit(bytes);
    (length, Sum::new().with(&source.octets()).with(&destination.octets()))
}

#[inline]
fn put_u16(bytes: &mut [u8], at: usize, field: u16) {
    bytes[at..at + 2].copy_from_slice(&field.to_be_bytes());
}
