//! Where the headers of a frame are.

use std::net::{Ipv4Addr, Ipv6Addr};

use clearway_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use clearway_wire::ethernet::{self, ether_type};
use clearway_wire::{ipv4, ipv6, protocol, tcp, udp, vlan};

use super::offload::Offload;

/// The longest headers that are parted from a payload; kernels send none that are longer.
pub const HEADERS_MAX: usize = 256;

/// VLAN tags that may follow each other.
const TAGS_MAX: usize = 2;
/// Extension headers of IPv6 that a packet with a payload may have: hop-by-hop options, routing,
/// destination options (RFC 8200, section 4.1).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const EXTENSIONS_MAX: usize = 4;
/// More than any packet has, its headers included.
pub(crate) const PACKET_BYTES_MAX: usize = u16::MAX as usize;
/// Where the flags of an IPv4 header are, and "don't fragment" of their high byte.
const FRAGMENT_AT: usize = 6;
const DO_NOT_FRAGMENT: u8 = 1 << 6;
/// Where TCP has its sequence number, how long its header is, and the low byte of its flags.
pub(super) const SEQUENCE_AT: usize = 4;
pub(super) const TCP_DATA_OFFSET_AT: usize = 12;
pub(super) const FLAGS_AT: usize = 13;

/// The headers of a frame of UDP or TCP that is no fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) is_v4: bool,
    pub(crate) is_tcp: bool,
    pub(crate) ip_at: usize,
    pub(crate) transport_at: usize,
    pub(crate) payload_at: usize,
}

impl Layout {
    /// `None` if the frame is something else, or its headers are not all there.
    pub(crate) fn of(frame: &[u8]) -> Option<Layout> {
        let mut ip_at = ethernet::HEADER_LENGTH;
        let mut kind = u16_at(frame, ip_at - 2)?;
        for _ in 0..TAGS_MAX {
            if matches!(kind, ether_type::VLAN | ether_type::SERVICE_VLAN) {
                ip_at += vlan::TAG_LENGTH;
                kind = u16_at(frame, ip_at - 2)?;
            }
        }
        let packet = frame.get(ip_at..)?;
        let (is_v4, protocol, ip_bytes) = match kind {
            ether_type::IPV4 => {
                let ip = ipv4::View::new(packet).ok()?;
                let is_whole = ip.version() == 4 && !ip.is_fragment();
                (true, ip.protocol(), is_whole.then(|| ip.header_length())?)
            }
            ether_type::IPV6 => {
                let (protocol, ip_bytes) = behind_extensions(packet)?;
                (false, protocol, ip_bytes)
            }
            _ => return None,
        };
        if ip_bytes < ipv4::HEADER_LENGTH {
            return None;
        }
        let transport_at = ip_at + ip_bytes;
        let transport = frame.get(transport_at..)?;
        let (is_tcp, transport_bytes) = match protocol {
            protocol::UDP => (false, udp::HEADER_LENGTH),
            protocol::TCP => {
                let words = transport.get(TCP_DATA_OFFSET_AT)? >> 4;
                (true, usize::from(words) * 4)
            }
            _ => return None,
        };
        let payload_at = transport_at + transport_bytes;
        let is_there = payload_at <= frame.len().min(HEADERS_MAX);
        let is_long_enough = !is_tcp || transport_bytes >= tcp::HEADER_LENGTH;
        (is_there && is_long_enough).then_some(Layout {
            is_v4,
            is_tcp,
            ip_at,
            transport_at,
            payload_at,
        })
    }

    /// True if a router may part the packet: then it has a number of its own (RFC 6864, section
    /// 4.1).
    pub(super) fn may_be_fragmented(&self, headers: &[u8]) -> bool {
        self.is_v4 && headers[self.ip_at + FRAGMENT_AT] & DO_NOT_FRAGMENT == 0
    }

    /// There is something between the header of IPv6 and that of UDP or TCP. A NIC that takes what
    /// the former says for what the latter is needs to be spared that.
    #[cfg(any(test, feature = "dpdk"))]
    pub(crate) const fn has_extensions(&self) -> bool {
        !self.is_v4 && self.transport_at - self.ip_at != ipv6::HEADER_LENGTH
    }

    /// As what an [`Offload`] speaks of such frames.
    pub(super) const fn offload_kind(&self) -> u8 {
        match (self.is_tcp, self.is_v4) {
            (false, _) => Offload::UDP,
            (true, true) => Offload::TCP_V4,
            (true, false) => Offload::TCP_V6,
        }
    }

    /// Where the checksum of UDP or TCP is, behind `transport_at`.
    pub(super) const fn checksum_offset(&self) -> usize {
        if self.is_tcp { tcp::CHECKSUM_AT } else { udp::CHECKSUM_AT }
    }

    /// Where the checksum of UDP or TCP is.
    pub(crate) const fn checksum_at(&self) -> usize {
        self.transport_at + self.checksum_offset()
    }

    /// The bytes of a packet with so much payload, the IP header included.
    pub(super) const fn packet_bytes(&self, payload_bytes: usize) -> usize {
        self.payload_at - self.ip_at + payload_bytes
    }

    /// Where the packet ends, by what IP says of it, which may be beyond the end of a frame. `None`
    /// if that is in the middle of its headers.
    pub(super) fn packet_end(&self, headers: &[u8]) -> Option<usize> {
        let ip_bytes = if self.is_v4 {
            u16_at(headers, self.ip_at + ipv4::TOTAL_LENGTH_AT).map(usize::from)
        } else {
            u16_at(headers, self.ip_at + ipv6::PAYLOAD_LENGTH_AT)
                .map(|bytes| usize::from(bytes) + ipv6::HEADER_LENGTH)
        };
        ip_bytes.map(|bytes| self.ip_at + bytes).filter(|end| *end >= self.payload_at)
    }

    /// Writes the lengths of a packet with so much payload, which is at most 64 KiB in all.
    pub(super) fn put_lengths(&self, headers: &mut [u8], payload_bytes: usize) {
        let packet_bytes = self.packet_bytes(payload_bytes);
        if self.is_v4 {
            put(headers, self.ip_at + ipv4::TOTAL_LENGTH_AT, packet_bytes as u16);
        } else {
            let bytes = packet_bytes - ipv6::HEADER_LENGTH;
            put(headers, self.ip_at + ipv6::PAYLOAD_LENGTH_AT, bytes as u16);
        }
        if !self.is_tcp {
            let bytes = udp::HEADER_LENGTH + payload_bytes;
            put(headers, self.transport_at + udp::LENGTH_AT, bytes as u16);
        }
    }

    /// Writes the checksum of an IPv4 header.
    pub(super) fn put_ip_checksum(&self, headers: &mut [u8]) {
        if self.is_v4 {
            let header = &mut headers[self.ip_at..self.transport_at];
            put(header, ipv4::CHECKSUM_AT, 0);
            let checksum = Sum::new().with(header).checksum();
            put(header, ipv4::CHECKSUM_AT, checksum);
        }
    }

    /// Writes the checksum of UDP or TCP, of all that there is.
    pub(super) fn put_checksum(&self, headers: &mut [u8], payload: &[u8]) {
        put(headers, self.checksum_at(), 0);
        let pseudo = self.pseudo_header(headers, payload.len());
        let sum = pseudo.with(&headers[self.transport_at..]).with(payload);
        let checksum = if self.is_tcp { sum.checksum() } else { sum.udp_checksum() };
        put(headers, self.checksum_at(), checksum);
    }

    /// Whether the checksums of UDP or TCP, and of an IPv4 header, are those of what is there. A
    /// datagram over IPv4 may have none (RFC 768): nobody relies on it.
    pub(super) fn sums_up(&self, headers: &[u8], payload: &[u8]) -> bool {
        let (ip, transport) = headers[self.ip_at..].split_at(self.transport_at - self.ip_at);
        let has_none = || {
            let checksum = u16_at(headers, self.checksum_at());
            self.is_v4 && !self.is_tcp && checksum == Some(0)
        };
        let pseudo = self.pseudo_header(headers, payload.len());
        (!self.is_v4 || Sum::new().with(ip).checksum() == 0)
            && (has_none() || pseudo.with(transport).with(payload).checksum() == 0)
    }

    /// The sum over the pseudo header of a packet with so much payload.
    pub(super) fn pseudo_header(&self, headers: &[u8], payload_bytes: usize) -> Sum {
        let protocol = if self.is_tcp { protocol::TCP } else { protocol::UDP };
        let length = (self.payload_at - self.transport_at + payload_bytes) as u16;
        if self.is_v4 {
            let addresses: [u8; 8] = array(headers, self.ip_at + 12);
            let [a, b, c, d, e, f, g, h] = addresses;
            let (from, to) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            pseudo_header_v4(from, to, protocol, length)
        } else {
            let from = Ipv6Addr::from(array(headers, self.ip_at + 8));
            let to = Ipv6Addr::from(array(headers, self.ip_at + 24));
            pseudo_header_v6(from, to, protocol, length.into())
        }
    }
}

/// What follows the headers of IPv6, and how long these are.
fn behind_extensions(packet: &[u8]) -> Option<(u8, usize)> {
    let ip = ipv6::View::new(packet).ok()?;
    if ip.version() != 6 {
        return None;
    }
    let (mut protocol, mut at) = (ip.next_header(), ipv6::HEADER_LENGTH);
    for _ in 0..EXTENSIONS_MAX {
        if !EXTENSIONS.contains(&protocol) {
            break;
        }
        // RFC 8200, section 4.3: "Length of the Hop-by-Hop Options header in 8-octet units, not
        // including the first 8 octets". The others likewise.
        let [next, length] = *packet.get(at..)?.first_chunk()?;
        (protocol, at) = (next, at + 8 + usize::from(length) * 8);
    }
    Some((protocol, at))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn array<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    *bytes[at..].first_chunk().expect("a layout is one of headers that are all there")
}
