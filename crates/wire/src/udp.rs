//! UDP headers (RFC 768; over IPv6, RFC 8200, section 8.1).

use crate::bytes::{head_mut, put, u16_at};
use crate::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use crate::view::view;
use crate::{Malformed, protocol};
use core::net::{Ipv4Addr, Ipv6Addr};

/// The length of the header.
pub const HEADER_LENGTH: usize = 8;
/// Where the length stands in the header.
pub const LENGTH_AT: usize = 4;
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 6;

view! {
    /// The bytes of a UDP packet.
    at_least HEADER_LENGTH
}

impl<'a> View<'a> {
    /// The port that the packet comes from.
    #[inline]
    #[must_use]
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes, 0)
    }

    /// The port that the packet goes to.
    #[inline]
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes, 2)
    }

    /// The length of header and payload.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        usize::from(u16_at(self.bytes, LENGTH_AT))
    }

    /// The checksum; zero says that there is none.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes, CHECKSUM_AT)
    }

    /// What follows the header; empty if the length makes no sense.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LENGTH..self.length()).unwrap_or(&[])
    }
}

/// How to check a UDP packet's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The NIC has done it.
    Skip,
    /// The packet came in IPv4 from and to these addresses. It may be without a checksum.
    V4(Ipv4Addr, Ipv4Addr),
    /// The packet came in IPv6 from and to these addresses. It has to have a checksum.
    V6(Ipv6Addr, Ipv6Addr),
}

/// A valid UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The port that the packet comes from.
    pub source_port: u16,
    /// The port that the packet goes to: never 0.
    pub destination_port: u16,
    /// Bytes behind the header.
    pub payload_length: u16,
}

impl Repr {
    /// Judges a packet.
    #[inline]
    pub fn parse(view: &View<'_>, check: Check) -> Result<Self, Malformed> {
        let length = view.length();
        if length < HEADER_LENGTH {
            return Err(Malformed::Length);
        }
        let packet = view.bytes.get(..length).ok_or(Malformed::Truncated)?;
        if !checksum_is_right(view, packet, check) {
            return Err(Malformed::Checksum);
        }
        if view.destination_port() == 0 {
            return Err(Malformed::Field);
        }
        Ok(Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_length: (length - HEADER_LENGTH) as u16,
        })
    }

    /// Writes the header without a checksum; [`fill_checksum`] adds one.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let head: &mut [u8; HEADER_LENGTH] = head_mut(bytes);
        put(head, 0, self.source_port.to_be_bytes());
        put(head, 2, self.destination_port.to_be_bytes());
        put(head, LENGTH_AT, (HEADER_LENGTH as u16 + self.payload_length).to_be_bytes());
        put(head, CHECKSUM_AT, [0, 0]);
        HEADER_LENGTH
    }

    /// The length of the header.
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH
    }
}

#[inline]
fn checksum_is_right(view: &View<'_>, packet: &[u8], check: Check) -> bool {
    let length = packet.len() as u16; // it came from a 16-bit field
    let pseudo_header = match check {
        Check::Skip => return true,
        Check::V4(..) if view.checksum() == 0 => return true,
        // RFC 8200, section 8.1: "IPv6 receivers must discard UDP packets containing a zero
        // checksum".
        Check::V6(..) if view.checksum() == 0 => return false,
        Check::V4(from, to) => pseudo_header_v4(from, to, protocol::UDP, length),
        Check::V6(from, to) => pseudo_header_v6(from, to, protocol::UDP, length.into()),
    };
    pseudo_header.with(packet).is_right() || is_unfinished(view, pseudo_header)
}

/// The sum over the pseudo header alone, as Linux leaves it to a NIC to finish (`CHECKSUM_PARTIAL`
/// of linux/skbuff.h). A packet between programs of one machine meets no NIC that would.
#[cold]
fn is_unfinished(view: &View<'_>, pseudo_header: Sum) -> bool {
    view.checksum() == !pseudo_header.checksum()
}

/// Fills in the checksum of `packet`, UDP header and payload. `addresses` is the sum over source
/// and destination address.
///
/// # Panics
/// If `packet` is shorter than a UDP header.
#[inline]
pub fn fill_checksum(packet: &mut [u8], addresses: Sum) {
    put(packet, CHECKSUM_AT, [0, 0]);
    let sum =
        addresses.with_u16(u16::from(protocol::UDP)).with_u16(packet.len() as u16).with(packet);
    put(packet, CHECKSUM_AT, sum.udp_checksum().to_be_bytes());
}
