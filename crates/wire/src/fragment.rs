//! Fragments: parts of an IP packet, which together are one (RFC 791, section 3.2; RFC 8200,
//! section 4.5).
//!
//! A packet is cut behind its IP header. In IPv4 that says itself which part it is in front of; in
//! IPv6 a fragment header does, behind those extension headers that routers look at:
//!
//! ```text
//! IPv4   [ header, options            ][ part of the payload ]
//! IPv6   [ header, extension headers, fragment header ][ part of the rest ]
//!        ╰──────────── head ──────────────────────────╯
//! ```
//!
//! What the packet is, is judged when it is whole, as any other. Here is judged only what has to be
//! right of each part for itself. Nothing here puts parts together: that is `ip`'s.

use crate::bytes::{put, u16_at, u32_at};
use crate::checksum::Sum;
use crate::{Ecn, Malformed, ipv4, ipv6};
use core::net::IpAddr;

/// The length of an IPv6 fragment header.
pub const HEADER_LENGTH: usize = 8;
/// What fragments but the last carry is a multiple of this.
pub const UNIT: usize = 8;

/// The extension header of IPv6.
const FRAGMENT: u8 = 44;
/// The longest IPv4 packet, and the longest payload of an IPv6 header.
const LENGTH_MAX: usize = u16::MAX as usize;

/// Which packet a fragment is a part of, among those of its sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// What the packet carries: of IPv4. 0 for IPv6, where fragments need not agree on it.
    pub protocol: u8,
    /// The number that its sender has given it.
    pub identification: u32,
}

/// A valid fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Of which packet.
    pub name: Name,
    /// Where its part begins, in bytes behind the head.
    pub offset: usize,
    /// Nothing of the packet comes behind it.
    pub is_last: bool,
    /// Whether it met congestion.
    pub ecn: Ecn,
    /// All in front of the part, from the IP header on.
    pub head: &'a [u8],
    /// The part.
    pub payload: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Judges a fragment of IPv4. A packet that is none is [`Malformed::Field`].
    pub fn of_ipv4(view: &ipv4::View<'a>, verify_checksum: bool) -> Result<Self, Malformed> {
        ipv4::check_header(view, verify_checksum)?;
        let name = Name {
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: view.protocol(),
            identification: view.identification().into(),
        };
        let (head, payload) = (view.header(), view.payload());
        let (offset, has_more) = view.fragment();
        let room = LENGTH_MAX - head.len();
        let part = Self { name, offset, is_last: !has_more, ecn: view.ecn(), head, payload };
        part.check(room)
    }

    /// Judges a fragment of IPv6. A packet that is none is [`Malformed::Field`].
    pub fn of_ipv6(view: &ipv6::View<'a>) -> Result<Self, Malformed> {
        let (head, payload) = view.fragment()?;
        let header = &head[head.len() - HEADER_LENGTH..];
        let name = Name {
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: 0,
            identification: u32_at(header, 4),
        };
        let (offset, has_more) = (usize::from(u16_at(header, 2) & !7), header[3] & 1 != 0);
        let room = LENGTH_MAX - (head.len() - HEADER_LENGTH - ipv6::HEADER_LENGTH);
        Self { name, offset, is_last: !has_more, ecn: view.ecn(), head, payload }.check(room)
    }

    /// RFC 8200, section 4.5: "If the length of a fragment [...] is not a multiple of 8 octets and
    /// the M flag of that fragment is 1, then that fragment must be discarded"; and if "the Payload
    /// Length of the packet reassembled from the fragment would exceed 65,535 octets". IPv4 is no
    /// different. One without a part is of no use, and would fit anywhere.
    fn check(self, room: usize) -> Result<Self, Malformed> {
        if self.is_last && self.offset == 0 {
            return Err(Malformed::Field);
        }
        let is_cut = self.is_last || self.payload.len().is_multiple_of(UNIT);
        let fits = self.offset + self.payload.len() <= room;
        if self.payload.is_empty() || !is_cut || !fits { Err(Malformed::Length) } else { Ok(self) }
    }
}

/// Makes the head of a packet's first fragment that of the whole, which carries `length` bytes and
/// is marked if a fragment was: RFC 3168, section 5.3, "Reassembly of a fragmented packet MUST NOT
/// lose indications of congestion". The head of the first may leave less room than that of another.
///
/// # Panics
/// If the head is not that of a [`Fragment`].
pub fn complete(head: &mut Vec<u8>, length: usize, is_marked: bool) -> Result<(), Malformed> {
    let mark = if is_marked { Ecn::BITS } else { 0 };
    if head[0] >> 4 == 4 {
        head[ipv4::TYPE_OF_SERVICE_AT] |= mark;
        let total_length = field(head.len() + length)?;
        put(head, ipv4::TOTAL_LENGTH_AT, total_length.to_be_bytes());
        put(head, ipv4::FRAGMENT_AT, [0; 2]);
        put(head, ipv4::CHECKSUM_AT, [0; 2]);
        let checksum = Sum::new().with(head).checksum();
        put(head, ipv4::CHECKSUM_AT, checksum.to_be_bytes());
        return Ok(());
    }
    head[ipv6::ECN_AT] |= mark << ipv6::ECN_SHIFT;
    let end = head.len() - HEADER_LENGTH;
    let next_header = head[end];
    head.truncate(end);
    let names_it = ipv6::last_next_header_at(head);
    head[names_it] = next_header;
    let payload_length = field(end - ipv6::HEADER_LENGTH + length)?;
    put(head, ipv6::PAYLOAD_LENGTH_AT, payload_length.to_be_bytes());
    Ok(())
}

fn field(length: usize) -> Result<u16, Malformed> {
    u16::try_from(length).map_err(|_| Malformed::Length)
}

/// Where in its packet a part is, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the packet; IPv4 has room for its low half.
    pub identification: u32,
    /// Where the part begins: a multiple of [`UNIT`].
    pub offset: u16,
    /// Nothing comes behind it.
    pub is_last: bool,
}

impl Place {
    /// Writes the head of a fragment of IPv4, which `repr` is but for that. Returns its length.
    pub fn emit_v4(&self, repr: &ipv4::Repr, bytes: &mut [u8]) -> usize {
        let length = repr.emit(bytes);
        let head = &mut bytes[..length];
        put(head, ipv4::IDENTIFICATION_AT, (self.identification as u16).to_be_bytes());
        let more = if self.is_last { 0 } else { ipv4::MORE_FRAGMENTS };
        put(head, ipv4::FRAGMENT_AT, ((self.offset / 8) | more).to_be_bytes());
        put(head, ipv4::CHECKSUM_AT, [0; 2]);
        let checksum = Sum::new().with(head).checksum();
        put(head, ipv4::CHECKSUM_AT, checksum.to_be_bytes());
        length
    }

    /// Writes the head of a fragment of IPv6, which `repr` is but for that: its length is that of
    /// the part. Returns the head's length.
    pub fn emit_v6(&self, repr: &ipv6::Repr, bytes: &mut [u8]) -> usize {
        let payload_length = repr.payload_length + HEADER_LENGTH as u16;
        let length = ipv6::Repr { protocol: FRAGMENT, payload_length, ..*repr }.emit(bytes);
        let header = &mut bytes[length..length + HEADER_LENGTH];
        put(header, 0, [repr.protocol, 0]);
        put(header, 2, (self.offset | u16::from(!self.is_last)).to_be_bytes());
        put(header, 4, self.identification.to_be_bytes());
        length + HEADER_LENGTH
    }
}
