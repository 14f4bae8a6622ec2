//! IPv6 headers (RFC 8200) and a safe walk over extension headers. Of these none is ever sent but
//! the fragment header; a fragment is no packet here, but a
//! [`Fragment`](crate::fragment::Fragment).

use crate::bytes::{array_at, head_mut, put, u16_at};
use crate::view::view;
use crate::{Ecn, Malformed};
use core::net::Ipv6Addr;

/// The length of the fixed header: the only kind that is sent.
pub const HEADER_LENGTH: usize = 40;
/// Where the low half of the traffic class stands, and how far up in that octet the two bits of
/// [`Ecn`].
pub const ECN_AT: usize = 1;
/// See [`ECN_AT`].
pub const ECN_SHIFT: u32 = 4;
/// Where the hop limit stands in the header.
pub const HOP_LIMIT_AT: usize = 7;
/// Where the payload length stands in the header.
pub const PAYLOAD_LENGTH_AT: usize = 4;
/// More extension headers than this are refused. RFC 8200, section 4.1, expects each at most once,
/// destination options twice; there are six kinds.
pub const EXTENSION_HEADERS_MAX: usize = 7;

mod extension {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
}

/// The solicited-node multicast group of `address`: RFC 4291, section 2.7.1, "formed by taking the
/// low-order 24 bits of an address (unicast or anycast) and appending those bits to the prefix
/// FF02:0:0:0:0:1:FF00::/104".
#[must_use]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., b, c] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (b & 0xff), c)
}

view! {
    /// The bytes of an IPv6 packet; more may follow it (Ethernet pads short frames).
    at_least HEADER_LENGTH
}

impl<'a> View<'a> {
    /// The version: 6, if this is what it should be.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u8 {
        self.bytes[0] >> 4
    }

    /// Whether it is, or could be, marked as having met congestion.
    #[inline]
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.bytes[ECN_AT] >> ECN_SHIFT)
    }

    /// Bytes behind the fixed header, extension headers included.
    #[inline]
    #[must_use]
    pub fn payload_length(&self) -> usize {
        usize::from(u16_at(self.bytes, PAYLOAD_LENGTH_AT))
    }

    /// What follows the fixed header.
    #[inline]
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.bytes[6]
    }

    /// The hop limit.
    #[inline]
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.bytes[7]
    }

    /// Where the packet comes from.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        array_at(self.bytes, 8).into()
    }

    /// Where the packet goes.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        array_at(self.bytes, 24).into()
    }

    /// The payload behind all extension headers; empty if they or the lengths make no sense.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.upper_layer().map_or(&[], |(_, payload)| payload)
    }

    /// What follows the fixed header, even if the packet is cut short: for packets quoted by ICMP.
    #[must_use]
    pub fn payload_of_quote(&self) -> &'a [u8] {
        &self.bytes[HEADER_LENGTH..]
    }

    /// All up to the end of the fragment header, which is there, and what follows it. RFC 8200,
    /// section 4.5: in front of it are "all headers up to and including the Routing header if
    /// present".
    pub(crate) fn fragment(&self) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        if self.version() != 6 {
            return Err(Malformed::Version);
        }
        if self.source().is_multicast() {
            return Err(Malformed::Address);
        }
        let end = HEADER_LENGTH + self.payload_length();
        let packet = self.bytes.get(..end).ok_or(Malformed::Truncated)?;
        let mut next_header = self.next_header();
        let mut at = HEADER_LENGTH;
        for index in 0..=EXTENSION_HEADERS_MAX {
            if !is_extension(next_header) {
                break;
            }
            let (header, rest) = split_extension(next_header, index, &packet[at..])?;
            if next_header == extension::FRAGMENT {
                return Ok((&packet[..at + header.len()], rest));
            }
            check_extension(next_header, header)?;
            (next_header, at) = (header[0], at + header.len());
        }
        Err(Malformed::Field)
    }

    /// The protocol behind all extension headers, and its packet.
    #[inline]
    fn upper_layer(&self) -> Result<(u8, &'a [u8]), Malformed> {
        let end = HEADER_LENGTH + self.payload_length();
        let payload = self.bytes.get(HEADER_LENGTH..end).ok_or(Malformed::Truncated)?;
        if !is_extension(self.next_header()) {
            return Ok((self.next_header(), payload));
        }
        walk_extensions(self.next_header(), payload)
    }
}

fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        extension::HOP_BY_HOP
            | extension::ROUTING
            | extension::FRAGMENT
            | extension::DESTINATION_OPTIONS
    )
}

/// Every step consumes at least eight bytes and their number is limited, so this ends.
fn walk_extensions(mut next_header: u8, mut bytes: &[u8]) -> Result<(u8, &[u8]), Malformed> {
    for index in 0..=EXTENSION_HEADERS_MAX {
        if !is_extension(next_header) {
            return Ok((next_header, bytes));
        }
        let (header, rest) = split_extension(next_header, index, bytes)?;
        check_extension(next_header, header)?;
        (next_header, bytes) = (header[0], rest);
    }
    Err(Malformed::ExtensionHeaders)
}

/// The extension header of this kind at which `bytes` begin, the one of this number, and what
/// follows it. It is at least eight bytes long.
fn split_extension(kind: u8, index: usize, bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    // RFC 8200, section 4.1: the hop-by-hop options header "is restricted to appear immediately
    // after an IPv6 header only".
    if kind == extension::HOP_BY_HOP && index > 0 {
        return Err(Malformed::ExtensionHeaders);
    }
    let &[_, length, ..] = bytes else { return Err(Malformed::Truncated) };
    let length = if kind == extension::FRAGMENT { 8 } else { 8 + usize::from(length) * 8 };
    bytes.split_at_checked(length).ok_or(Malformed::Truncated)
}

/// Where in these headers, which are sound, the octet is that names what follows the last of them.
pub(crate) fn last_next_header_at(headers: &[u8]) -> usize {
    let (mut named_at, mut at) = (6, HEADER_LENGTH);
    while at < headers.len() {
        named_at = at;
        at += 8 + usize::from(headers[at + 1]) * 8;
    }
    named_at
}

/// `header` is at least eight bytes long.
fn check_extension(kind: u8, header: &[u8]) -> Result<(), Malformed> {
    match kind {
        // RFC 6946, section 4: an atomic fragment (offset 0, M flag 0) is processed "in isolation
        // from any other packets", as if it had no fragment header.
        extension::FRAGMENT if u16_at(header, 2) & !0b110 != 0 => Err(Malformed::Fragment),
        // Segments left means that we are not the packet's destination, and this is no router.
        extension::ROUTING if header[3] != 0 => Err(Malformed::ExtensionHeaders),
        extension::HOP_BY_HOP | extension::DESTINATION_OPTIONS => check_options(&header[2..]),
        _ => Ok(()),
    }
}

/// RFC 8200, section 4.2: of an option that is not known, the two highest-order bits say what to
/// do: 00 is "skip over this option", all else discards the packet.
fn check_options(mut options: &[u8]) -> Result<(), Malformed> {
    const PAD1: u8 = 0;
    while let [option_type, rest @ ..] = options {
        if *option_type == PAD1 {
            options = rest;
            continue;
        }
        if option_type >> 6 != 0 {
            return Err(Malformed::ExtensionHeaders);
        }
        let (&length, rest) = rest.split_first().ok_or(Malformed::ExtensionHeaders)?;
        options = rest.get(usize::from(length)..).ok_or(Malformed::ExtensionHeaders)?;
    }
    Ok(())
}

/// A valid IPv6 header of a packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Where the packet comes from: never a group.
    pub source: Ipv6Addr,
    /// Where the packet goes.
    pub destination: Ipv6Addr,
    /// What the payload behind all extension headers is.
    pub protocol: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// Bytes behind all extension headers.
    pub payload_length: u16,
}

impl Repr {
    /// Judges a header and its extension headers.
    #[inline]
    pub fn parse(view: &View<'_>) -> Result<Self, Malformed> {
        if view.version() != 6 {
            return Err(Malformed::Version);
        }
        let (protocol, payload) = view.upper_layer()?;
        // RFC 4291, section 2.7: "Multicast addresses must not be used as source addresses".
        if view.source().is_multicast() {
            return Err(Malformed::Address);
        }
        Ok(Self {
            source: view.source(),
            destination: view.destination(),
            protocol,
            hop_limit: view.hop_limit(),
            payload_length: payload.len() as u16,
        })
    }

    /// Writes a header without extensions.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let head: &mut [u8; HEADER_LENGTH] = head_mut(bytes);
        put(head, 0, [0x60, 0, 0, 0]);
        put(head, PAYLOAD_LENGTH_AT, self.payload_length.to_be_bytes());
        put(head, 6, [self.protocol, self.hop_limit]);
        put(head, 8, self.source.octets());
        put(head, 24, self.destination.octets());
        HEADER_LENGTH
    }

    /// The length of the header as it is sent.
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH
    }
}
