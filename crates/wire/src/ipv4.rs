//! IPv4 headers (RFC 791). Options are skipped; a fragment is no packet here, but a
//! [`Fragment`](crate::fragment::Fragment).

use crate::bytes::{array_at, head_mut, put, u16_at};
use crate::checksum::Sum;
use crate::view::view;
use crate::{Ecn, Malformed};
use core::net::Ipv4Addr;

/// The length of a header without options: the only kind that is sent.
pub const HEADER_LENGTH: usize = 20;
/// Where the type of service stands, whose two low bits are [`Ecn`]'s.
pub const TYPE_OF_SERVICE_AT: usize = 1;
/// Where the total length stands in the header.
pub const TOTAL_LENGTH_AT: usize = 2;
/// Where the identification stands in the header.
pub(crate) const IDENTIFICATION_AT: usize = 4;
/// Where flags and fragment offset stand in the header.
pub(crate) const FRAGMENT_AT: usize = 6;
/// Where the time to live stands in the header.
pub const HOP_LIMIT_AT: usize = 8;
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 10;

const DO_NOT_FRAGMENT: u16 = 1 << 14;
pub(crate) const MORE_FRAGMENTS: u16 = 1 << 13;
const FRAGMENT_OFFSET: u16 = (1 << 13) - 1;

view! {
    /// The bytes of an IPv4 packet; more may follow it (Ethernet pads short frames).
    at_least HEADER_LENGTH
}

impl<'a> View<'a> {
    /// The version: 4, if this is what it should be.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u8 {
        self.bytes[0] >> 4
    }

    /// The length of the header with its options, in bytes.
    #[inline]
    #[must_use]
    pub fn header_length(&self) -> usize {
        usize::from(self.bytes[0] & 0xf) * 4
    }

    /// Whether it is, or could be, marked as having met congestion.
    #[inline]
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.bytes[TYPE_OF_SERVICE_AT])
    }

    /// The length of the packet.
    #[inline]
    #[must_use]
    pub fn total_length(&self) -> usize {
        usize::from(u16_at(self.bytes, TOTAL_LENGTH_AT))
    }

    /// True if the packet is a part of a larger one.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        u16_at(self.bytes, FRAGMENT_AT) & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Where in the larger packet its payload begins, and whether more of that follows.
    #[must_use]
    pub fn fragment(&self) -> (usize, bool) {
        let word = u16_at(self.bytes, FRAGMENT_AT);
        (usize::from(word & FRAGMENT_OFFSET) * 8, word & MORE_FRAGMENTS != 0)
    }

    /// The number of the packet that it is a part of.
    #[must_use]
    pub fn identification(&self) -> u16 {
        u16_at(self.bytes, IDENTIFICATION_AT)
    }

    /// The time to live.
    #[inline]
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.bytes[8]
    }

    /// What the payload is.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// Where the packet comes from.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Ipv4Addr {
        array_at(self.bytes, 12).into()
    }

    /// Where the packet goes.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Ipv4Addr {
        array_at(self.bytes, 16).into()
    }

    /// True if the header, options included, is intact.
    #[inline]
    #[must_use]
    pub fn checksum_is_right(&self) -> bool {
        if self.header_length() == HEADER_LENGTH
            && let Some(head) = self.bytes.first_chunk::<HEADER_LENGTH>()
        {
            return Sum::new().with(head).is_right(); // no loop: its length is a constant
        }
        self.bytes.get(..self.header_length()).is_some_and(|head| Sum::new().with(head).is_right())
    }

    /// The header with its options; empty if its length makes no sense.
    #[must_use]
    pub fn header(&self) -> &'a [u8] {
        self.bytes.get(..self.header_length()).unwrap_or(&[])
    }

    /// What follows the header, up to the packet's total length; empty if the lengths make no
    /// sense.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_length()..self.total_length()).unwrap_or(&[])
    }

    /// What follows the header, even if the packet is cut short: for packets quoted by ICMP.
    #[must_use]
    pub fn payload_of_quote(&self) -> &'a [u8] {
        self.bytes.get(self.header_length()..).unwrap_or(&[])
    }
}

/// A valid IPv4 header of a packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Where the packet comes from.
    pub source: Ipv4Addr,
    /// Where the packet goes.
    pub destination: Ipv4Addr,
    /// What the payload is.
    pub protocol: u8,
    /// The time to live.
    pub hop_limit: u8,
    /// Bytes behind the header.
    pub payload_length: u16,
}

impl Repr {
    /// Judges a header. `verify_checksum` may be false if the NIC has done it.
    #[inline]
    pub fn parse(view: &View<'_>, verify_checksum: bool) -> Result<Self, Malformed> {
        let (header_length, total_length) = check_header(view, verify_checksum)?;
        if view.is_fragment() {
            return Err(Malformed::Fragment);
        }
        Ok(Self {
            source: view.source(),
            destination: view.destination(),
            protocol: view.protocol(),
            hop_limit: view.hop_limit(),
            payload_length: (total_length - header_length) as u16,
        })
    }

    /// Writes the header, checksum included, with "don't fragment" set: whoever sends too much
    /// learns it by ICMP. The identification is 0; RFC 6864, section 4.1: "Originating sources MAY
    /// set the IPv4 ID field of atomic datagrams to any value."
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let head: &mut [u8; HEADER_LENGTH] = head_mut(bytes);
        let total_length = HEADER_LENGTH as u16 + self.payload_length;
        put(head, 0, [0x45, 0]);
        put(head, TOTAL_LENGTH_AT, total_length.to_be_bytes());
        put(head, 4, [0, 0]);
        put(head, 6, DO_NOT_FRAGMENT.to_be_bytes());
        put(head, 8, [self.hop_limit, self.protocol, 0, 0]);
        put(head, 12, self.source.octets());
        put(head, 16, self.destination.octets());
        let checksum = Sum::new().with(head).checksum();
        put(head, CHECKSUM_AT, checksum.to_be_bytes());
        HEADER_LENGTH
    }

    /// The length of the header as it is sent.
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH
    }
}

/// Judges a header but for what it says of fragments. Returns its length and the packet's.
#[inline]
pub(crate) fn check_header(
    view: &View<'_>,
    verify_checksum: bool,
) -> Result<(usize, usize), Malformed> {
    if view.version() != 4 {
        return Err(Malformed::Version);
    }
    let (header_length, total_length) = (view.header_length(), view.total_length());
    if header_length < HEADER_LENGTH || total_length < header_length {
        return Err(Malformed::Length);
    }
    if total_length > view.bytes.len() {
        return Err(Malformed::Truncated);
    }
    if verify_checksum && !view.checksum_is_right() {
        return Err(Malformed::Checksum);
    }
    Ok((header_length, total_length))
}
