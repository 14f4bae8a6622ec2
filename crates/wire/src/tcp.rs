//! TCP segments (RFC 9293, section 3.1) and their options.
//!
//! ```text
//!  0                   1                   2                   3
//! +-------------------------------+-------------------------------+
//! |          source port          |       destination port        |
//! |                        sequence number                        |
//! |                     acknowledgement number                    |
//! | offset|  0  |     flags       |            window             |
//! |           checksum            |        urgent pointer         |
//! | options, in words of 32 bits ...                              |
//! +---------------------------------------------------------------+
//! ```
//!
//! Options are in `options`. What cannot be understood of them is skipped, as RFC 9293 wants it
//! (MUST-6), and never makes a segment invalid.

use crate::bytes::{head_mut, put, u16_at, u32_at};
use crate::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use crate::view::view;
use crate::{Malformed, protocol};
use core::net::IpAddr;

mod blocks;
mod counters;
mod flags;
mod options;
#[cfg(test)]
mod tests;

pub use blocks::{Blocks, SackBlocks};
pub use counters::{EcnCounters, EcnOrder};
pub use flags::Flags;
pub use options::{Cookie, Counted, Extra, FastOpen, Options, Timestamps};

/// The length of the header without options.
pub const HEADER_LENGTH: usize = 20;
/// The length of the header with as many options as it can have.
pub const HEADER_LENGTH_MAX: usize = 60;
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 16;

view! {
    /// The bytes of a TCP segment.
    at_least HEADER_LENGTH
}

impl<'a> View<'a> {
    /// The port that the segment comes from.
    #[inline]
    #[must_use]
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes, 0)
    }

    /// The port that the segment goes to.
    #[inline]
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes, 2)
    }

    /// The number of the first byte, or of the SYN.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u32 {
        u32_at(self.bytes, 4)
    }

    /// The number that the sender of this segment expects next.
    #[inline]
    #[must_use]
    pub fn acknowledgement(&self) -> u32 {
        u32_at(self.bytes, 8)
    }

    /// The length of the header with its options.
    #[inline]
    #[must_use]
    pub fn header_length(&self) -> usize {
        usize::from(self.bytes[12] >> 4) * 4
    }

    /// The flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags::from_bits(u16_at(self.bytes, 12))
    }

    /// The window, not scaled.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u16 {
        u16_at(self.bytes, 14)
    }

    /// The checksum.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes, CHECKSUM_AT)
    }

    /// The urgent pointer.
    #[inline]
    #[must_use]
    pub fn urgent(&self) -> u16 {
        u16_at(self.bytes, 18)
    }

    /// The options; empty if the length of the header makes no sense.
    #[inline]
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LENGTH..self.header_length()).unwrap_or(&[])
    }

    /// What follows the header; empty if the length of the header makes no sense.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        match self.header_length() {
            0..HEADER_LENGTH => &[],
            length => self.bytes.get(length..).unwrap_or(&[]),
        }
    }
}

/// How to check a TCP segment's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The NIC has done it.
    Skip,
    /// The segment came from the first and to the second of these addresses.
    Addresses(IpAddr, IpAddr),
}

/// A valid TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repr {
    /// The port that the segment comes from.
    pub source_port: u16,
    /// The port that the segment goes to.
    pub destination_port: u16,
    /// The number of the first byte, or of the SYN.
    pub sequence: u32,
    /// The number that the sender expects next; means something with [`Flags::ACK`] only.
    pub acknowledgement: u32,
    /// The flags.
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// The urgent pointer; means something with [`Flags::URG`] only.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Repr {
    /// Judges a segment, whose bytes end with its payload. No combination of flags and no option
    /// makes it invalid: what they mean depends on the connection.
    #[inline]
    pub fn parse(view: &View<'_>, check: Check) -> Result<Self, Malformed> {
        if !(HEADER_LENGTH..=view.bytes.len()).contains(&view.header_length()) {
            return Err(Malformed::Length);
        }
        if !checksum_is_right(view, check) {
            return Err(Malformed::Checksum);
        }
        // RFC 6335, section 6: port 0 is reserved.
        if view.source_port() == 0 || view.destination_port() == 0 {
            return Err(Malformed::Field);
        }
        Ok(Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            sequence: view.sequence(),
            acknowledgement: view.acknowledgement(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: Options::parse(view.options()),
        })
    }

    /// Writes the header without a checksum; [`fill_checksum`] adds one. Returns its length.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let length = self.length();
        let head: &mut [u8; HEADER_LENGTH] = head_mut(bytes);
        put(head, 0, self.source_port.to_be_bytes());
        put(head, 2, self.destination_port.to_be_bytes());
        put(head, 4, self.sequence.to_be_bytes());
        put(head, 8, self.acknowledgement.to_be_bytes());
        put(head, 12, ((length as u16 / 4) << 12 | self.flags.bits()).to_be_bytes());
        put(head, 14, self.window.to_be_bytes());
        put(head, CHECKSUM_AT, [0, 0]);
        put(head, 18, self.urgent.to_be_bytes());
        self.options.emit(&mut bytes[HEADER_LENGTH..length]);
        length
    }

    /// The length of the header with its options.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH + self.options.length()
    }
}

#[inline]
fn checksum_is_right(view: &View<'_>, check: Check) -> bool {
    let length = view.bytes.len();
    let pseudo_header = match check {
        Check::Skip => return true,
        Check::Addresses(IpAddr::V4(from), IpAddr::V4(to)) => {
            pseudo_header_v4(from, to, protocol::TCP, length as u16) // an IPv4 packet is shorter
        }
        Check::Addresses(IpAddr::V6(from), IpAddr::V6(to)) => {
            pseudo_header_v6(from, to, protocol::TCP, length as u32)
        }
        Check::Addresses(..) => return false,
    };
    pseudo_header.with(view.bytes).is_right()
}

/// Fills in the checksum of `segment`, TCP header and payload. `addresses` is the sum over source
/// and destination address.
///
/// # Panics
/// If `segment` is shorter than a TCP header.
#[inline]
pub fn fill_checksum(segment: &mut [u8], addresses: Sum) {
    put(segment, CHECKSUM_AT, [0, 0]);
    let sum =
        addresses.with_u16(u16::from(protocol::TCP)).with_u16(segment.len() as u16).with(segment);
    put(segment, CHECKSUM_AT, sum.checksum().to_be_bytes());
}
