//! What the headers of a peer's next datagram or segment look like, if they are as those of the one
//! before: then nothing has to be found out about them again.

use super::{Datagram, Packet};
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, ethernet, ipv4, ipv6, protocol, udp};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

const IP_AT: usize = ethernet::HEADER_LENGTH;
/// The Ethernet type, and the first octet of the IP header: version and, of IPv4, its length.
const KIND_AT: usize = IP_AT - 2;
/// IPv4, and a header without options.
const PLAIN_V4: [u8; 3] = [0x08, 0x00, 0x45];
/// IPv6.
const PLAIN_V6: [u8; 2] = [0x86, 0xdd];

const UDP_AT_V4: usize = IP_AT + ipv4::HEADER_LENGTH;
const UDP_AT_V6: usize = IP_AT + ipv6::HEADER_LENGTH;
const LENGTH_V4: usize = UDP_AT_V4 + udp::HEADER_LENGTH;
const LENGTH_V6: usize = UDP_AT_V6 + udp::HEADER_LENGTH;
const PROTOCOL_AT_V4: usize = IP_AT + 9;
const NEXT_HEADER_AT: usize = IP_AT + 6;
const ADDRESSES_AT_V4: usize = IP_AT + 12;
const ADDRESSES_AT_V6: usize = IP_AT + 8;

/// Ethernet, IPv4, and the ports.
const SEGMENT_LENGTH: usize = UDP_AT_V4 + 4;

/// Headers in words, the last of which overlaps the one before.
type WordsOfSegment = [u64; SEGMENT_LENGTH.div_ceil(8)];
type WordsV4 = [u64; LENGTH_V4.div_ceil(8)];
type WordsV6 = [u64; LENGTH_V6.div_ceil(8)];

/// The headers of a datagram without VLAN tag, IP options, extension headers, and in IPv4 without
/// UDP checksum, as those are that Clearway sends: what is alike in all that a peer sends from one
/// port to another.
#[derive(Clone, Debug)]
pub enum Head {
    /// In IPv4.
    V4(WordsV4),
    /// In IPv6.
    V6(WordsV6),
}

impl Head {
    /// The length of those in IPv4, and in IPv6.
    pub const LENGTH_V4: usize = LENGTH_V4;
    /// See [`Head::LENGTH_V4`].
    pub const LENGTH_V6: usize = LENGTH_V6;

    /// Those of a frame from which [`Interface::datagram`](crate::Interface::datagram) has taken
    /// one. `None` if there is more in them.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let kind = frame.get(KIND_AT..)?;
        if kind.starts_with(&PLAIN_V4) {
            let head: &[u8; LENGTH_V4] = frame.first_chunk()?;
            let has_checksum = field(head, UDP_AT_V4 + udp::CHECKSUM_AT) != 0;
            return (!has_checksum).then(|| Self::V4(alike(head, &MASK_V4)));
        }
        let head: &[u8; LENGTH_V6] = frame.first_chunk()?;
        let is_plain = kind.starts_with(&PLAIN_V6) && head[NEXT_HEADER_AT] == protocol::UDP;
        is_plain.then(|| Self::V6(alike(head, &MASK_V6)))
    }

    /// The datagram of a frame in IPv4 whose headers are these, but for lengths, identification,
    /// ECN and IP checksum, if those are right. `None` says no more than that it has to be looked
    /// at.
    #[inline]
    #[must_use]
    pub fn datagram_v4<'a>(&self, frame: &'a [u8]) -> Option<Datagram<'a>> {
        match self {
            Self::V4(known) => datagram_v4(known, frame),
            Self::V6(_) => None,
        }
    }

    /// The same in IPv6, of which the checksum of UDP has to be right, too. `is_verified`: it is
    /// known to be.
    #[inline]
    #[must_use]
    pub fn datagram_v6<'a>(&self, frame: &'a [u8], is_verified: bool) -> Option<Datagram<'a>> {
        match self {
            Self::V4(_) => None,
            Self::V6(known) => datagram_v6(known, frame, is_verified),
        }
    }
}

/// The headers of a segment of TCP in IPv4, without VLAN tag and IP options, up to its ports: what
/// is alike in all that a peer sends from one port to another.
#[derive(Clone, Debug)]
pub struct SegmentHead(WordsOfSegment);

impl SegmentHead {
    /// Those of a frame from which [`Interface::packet`](crate::Interface::packet) has taken one.
    /// `None` if there is more in them.
    #[inline]
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let head: &[u8; SEGMENT_LENGTH] = frame.first_chunk()?;
        is_segment(head).then(|| Self(alike(head, &MASK_OF_SEGMENT)))
    }

    /// The addresses and ports, here and there, of a frame that looks like one with a segment.
    #[inline]
    #[must_use]
    pub fn ends(frame: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4)> {
        let head: &[u8; SEGMENT_LENGTH] = frame.first_chunk()?;
        let end = |address, port| SocketAddrV4::new(address_v4(head, address), field(head, port));
        let here = || end(ADDRESSES_AT_V4 + 4, UDP_AT_V4 + 2);
        is_segment(head).then(|| (here(), end(ADDRESSES_AT_V4, UDP_AT_V4)))
    }

    /// The packet of a frame whose headers are these, but for length, identification, ECN and
    /// IP checksum, if those are right. `None` says no more than that it has to be looked at.
    #[inline]
    #[must_use]
    pub fn packet<'a>(&self, frame: &'a [u8]) -> Option<Packet<'a>> {
        let head: &[u8; SEGMENT_LENGTH] = frame.first_chunk()?;
        let is_right = is_like(head, &self.0, &MASK_OF_SEGMENT)
            && Sum::new().with(&head[IP_AT..UDP_AT_V4]).is_right();
        let length = usize::from(field(head, IP_AT + ipv4::TOTAL_LENGTH_AT));
        let bytes = &frame[IP_AT..];
        is_right.then_some(Packet {
            source: address_v4(head, ADDRESSES_AT_V4).into(),
            destination: address_v4(head, ADDRESSES_AT_V4 + 4).into(),
            protocol: protocol::TCP,
            payload: bytes.get(ipv4::HEADER_LENGTH..length)?,
            ecn: Ecn::from_bits(head[IP_AT + ipv4::TYPE_OF_SERVICE_AT]),
            source_mac: array(head, 6),
            bytes,
        })
    }
}

#[inline]
fn is_segment(head: &[u8; SEGMENT_LENGTH]) -> bool {
    array(head, KIND_AT) == PLAIN_V4 && head[PROTOCOL_AT_V4] == protocol::TCP
}

#[inline]
fn datagram_v4<'a>(known: &WordsV4, frame: &'a [u8]) -> Option<Datagram<'a>> {
    let head: &[u8; LENGTH_V4] = frame.first_chunk()?;
    let ip_length = usize::from(field(head, IP_AT + ipv4::TOTAL_LENGTH_AT));
    let udp_length = usize::from(field(head, UDP_AT_V4 + udp::LENGTH_AT));
    let is_right = is_like(head, known, &MASK_V4)
        && ip_length == ipv4::HEADER_LENGTH + udp_length
        && Sum::new().with(&head[IP_AT..UDP_AT_V4]).is_right();
    if !is_right {
        return None;
    }
    let (from, to) = (address_v4(head, ADDRESSES_AT_V4), address_v4(head, ADDRESSES_AT_V4 + 4));
    Some(Datagram {
        source: SocketAddr::new(from.into(), field(head, UDP_AT_V4)),
        destination: SocketAddr::new(to.into(), field(head, UDP_AT_V4 + 2)),
        payload: frame.get(LENGTH_V4..IP_AT + ip_length)?,
        ecn: Ecn::from_bits(head[IP_AT + ipv4::TYPE_OF_SERVICE_AT]),
        source_mac: array(head, 6),
        packet: &frame[IP_AT..],
    })
}

#[inline]
fn datagram_v6<'a>(known: &WordsV6, frame: &'a [u8], is_verified: bool) -> Option<Datagram<'a>> {
    let head: &[u8; LENGTH_V6] = frame.first_chunk()?;
    let udp_length = field(head, UDP_AT_V6 + udp::LENGTH_AT);
    if !is_like(head, known, &MASK_V6) || field(head, IP_AT + ipv6::PAYLOAD_LENGTH_AT) != udp_length
    {
        return None;
    }
    let packet = frame.get(UDP_AT_V6..UDP_AT_V6 + usize::from(udp_length))?;
    // RFC 8200, section 8.1, has a pseudo header of addresses, length and protocol, and no datagram
    // without a checksum.
    let is_right = is_verified
        || (field(head, UDP_AT_V6 + udp::CHECKSUM_AT) != 0
            && Sum::new()
                .with(&head[ADDRESSES_AT_V6..UDP_AT_V6])
                .with_u16(udp_length)
                .with_u16(protocol::UDP.into())
                .with(packet)
                .is_right());
    if !is_right {
        return None;
    }
    let address = |at| Ipv6Addr::from(array(head, at));
    let (from, to) = (address(ADDRESSES_AT_V6), address(ADDRESSES_AT_V6 + 16));
    Some(Datagram {
        source: SocketAddr::new(from.into(), field(head, UDP_AT_V6)),
        destination: SocketAddr::new(to.into(), field(head, UDP_AT_V6 + 2)),
        payload: packet.get(udp::HEADER_LENGTH..)?,
        ecn: Ecn::from_bits(head[IP_AT + ipv6::ECN_AT] >> ipv6::ECN_SHIFT),
        source_mac: array(head, 6),
        packet: &frame[IP_AT..],
    })
}

const MASK_OF_SEGMENT: WordsOfSegment = {
    let fields = [IP_AT + ipv4::TOTAL_LENGTH_AT, IP_AT + 4];
    let mask = without(&[0xff; SEGMENT_LENGTH], fields);
    let mut mask = without(&mask, [IP_AT + ipv4::CHECKSUM_AT]);
    mask[IP_AT + ipv4::TYPE_OF_SERVICE_AT] = !0b11; // ECN
    words(&mask)
};

const MASK_V4: WordsV4 = {
    let lengths = [IP_AT + ipv4::TOTAL_LENGTH_AT, UDP_AT_V4 + udp::LENGTH_AT];
    let mut mask =
        without(&without(&[0xff; LENGTH_V4], lengths), [IP_AT + 4, IP_AT + ipv4::CHECKSUM_AT]);
    mask[IP_AT + ipv4::TYPE_OF_SERVICE_AT] = !0b11; // ECN
    words(&mask)
};

const MASK_V6: WordsV6 = {
    let lengths = [IP_AT + ipv6::PAYLOAD_LENGTH_AT, UDP_AT_V6 + udp::LENGTH_AT];
    let mut mask = without(&without(&[0xff; LENGTH_V6], lengths), [UDP_AT_V6 + udp::CHECKSUM_AT]);
    mask[IP_AT + ipv6::ECN_AT] = !(0b11 << ipv6::ECN_SHIFT);
    words(&mask)
};

/// `mask` without the fields of two octets at these places.
const fn without<const L: usize, const N: usize>(mask: &[u8; L], fields: [usize; N]) -> [u8; L] {
    let (mut mask, mut index) = (*mask, 0);
    while index < N {
        (mask[fields[index]], mask[fields[index] + 1]) = (0, 0);
        index += 1;
    }
    mask
}

/// What does not differ from datagram to datagram.
#[inline]
fn alike<const L: usize, const N: usize>(head: &[u8; L], mask: &[u64; N]) -> [u64; N] {
    let words: [u64; N] = words(head);
    core::array::from_fn(|index| words[index] & mask[index])
}

/// True if all that does not differ is the same: without a branch for each word.
#[inline]
fn is_like<const L: usize, const N: usize>(
    head: &[u8; L],
    known: &[u64; N],
    mask: &[u64; N],
) -> bool {
    let differences = alike(head, mask).into_iter().zip(known).map(|(word, known)| word ^ known);
    differences.fold(0, |all, one| all | one) == 0
}

#[inline]
const fn words<const L: usize, const N: usize>(head: &[u8; L]) -> [u64; N] {
    let (mut words, mut index) = ([0; N], 0);
    while index < N {
        let at = if index + 1 < N { 8 * index } else { L - 8 };
        words[index] = word(head, at);
        index += 1;
    }
    words
}

#[inline]
const fn word<const L: usize>(head: &[u8; L], at: usize) -> u64 {
    let (_, from) = head.split_at(at);
    match from.first_chunk() {
        Some(word) => u64::from_ne_bytes(*word),
        None => panic!("a word beyond the headers"),
    }
}

#[inline]
fn field<const L: usize>(head: &[u8; L], at: usize) -> u16 {
    u16::from_be_bytes(array(head, at))
}

#[inline]
fn address_v4<const L: usize>(head: &[u8; L], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(array(head, at))
}

#[inline]
fn array<const L: usize, const N: usize>(head: &[u8; L], at: usize) -> [u8; N] {
    core::array::from_fn(|index| head[at + index])
}
