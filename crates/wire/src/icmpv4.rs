//! ICMP for IPv4 (RFC 792): echo, and the errors that say that a packet of ours did not arrive.

use crate::Malformed;
use crate::bytes::{array_at, put, u16_at};
use crate::checksum::Sum;
use crate::view::view;

/// The fixed part of every message handled here.
pub const HEADER_LENGTH: usize = 8;

const CHECKSUM_AT: usize = 2;

/// The type of echo requests.
pub const ECHO_REQUEST: u8 = message_type::ECHO_REQUEST;
/// The code of "time exceeded" that says that fragments are missing (RFC 792).
pub const REASSEMBLY: u8 = 1;
/// The types of those errors that say that a packet did not arrive.
pub const UNDELIVERED: [u8; 2] = [message_type::UNREACHABLE, message_type::TIME_EXCEEDED];

mod message_type {
    pub(super) const ECHO_REPLY: u8 = 0;
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const ECHO_REQUEST: u8 = 8;
    pub(super) const TIME_EXCEEDED: u8 = 11;
}

/// Codes of destination unreachable (RFC 792; RFC 1122, section 3.2.2.1).
pub mod unreachable {
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const PROTOCOL: u8 = 2;
    /// The network, the host or the kind of packet is forbidden (RFC 1812, section 5.2.7.1).
    pub const PROHIBITED: [u8; 3] = [9, 10, 13];
    /// Nobody listens on the port.
    pub const PORT: u8 = 3;
    /// The packet is too large for the next link and may not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

view! {
    /// The bytes of an ICMP message.
    at_least HEADER_LENGTH
}

impl<'a> View<'a> {
    /// The type.
    #[must_use]
    pub fn message_type(&self) -> u8 {
        self.bytes[0]
    }

    /// The code, which tells kinds of a type apart.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.bytes[1]
    }

    /// The four bytes whose meaning depends on the type.
    #[must_use]
    pub fn rest_of_header(&self) -> [u8; 4] {
        array_at(self.bytes, 4)
    }

    /// True if the message is intact.
    #[must_use]
    pub fn checksum_is_right(&self) -> bool {
        Sum::new().with(self.bytes).is_right()
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LENGTH..]
    }
}

/// A valid ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// "Send this back."
    EchoRequest(Echo<'a>),
    /// "Here it is."
    EchoReply(Echo<'a>),
    /// A packet could not be delivered.
    Unreachable {
        /// Why: one of [`mod@unreachable`] or another, but not "fragmentation needed".
        code: u8,
        /// How the packet began.
        quote: &'a [u8],
    },
    /// A packet was too large for a link on its way.
    FragmentationNeeded {
        /// The largest that passes (RFC 1191, section 4); 0 from routers that do not say.
        mtu: u16,
        /// How the packet began.
        quote: &'a [u8],
    },
    /// A packet went round in circles, or a fragment waited in vain for the others.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
        /// How the packet began.
        quote: &'a [u8],
    },
}

/// What an echo request and its reply have in common; also of ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Which program asked.
    pub identifier: u16,
    /// Which of its requests this is.
    pub sequence: u16,
    /// Any bytes.
    pub data: &'a [u8],
}

impl<'a> Echo<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        Self { identifier: u16_at(bytes, 4), sequence: u16_at(bytes, 6), data: &bytes[8..] }
    }

    pub(crate) fn rest_of_header(&self) -> [u8; 4] {
        let (a, b) = (self.identifier.to_be_bytes(), self.sequence.to_be_bytes());
        [a[0], a[1], b[0], b[1]]
    }
}

impl<'a> Repr<'a> {
    /// Judges a message. Types that are not in this enum are [`Malformed::Type`].
    pub fn parse(view: &View<'a>) -> Result<Self, Malformed> {
        if !view.checksum_is_right() {
            return Err(Malformed::Checksum);
        }
        let (code, quote) = (view.code(), view.payload());
        match view.message_type() {
            message_type::ECHO_REQUEST if code == 0 => {
                Ok(Self::EchoRequest(Echo::read(view.bytes)))
            }
            message_type::ECHO_REPLY if code == 0 => Ok(Self::EchoReply(Echo::read(view.bytes))),
            message_type::UNREACHABLE if code == unreachable::FRAGMENTATION_NEEDED => {
                Ok(Self::FragmentationNeeded { mtu: u16_at(view.bytes, 6), quote })
            }
            message_type::UNREACHABLE => Ok(Self::Unreachable { code, quote }),
            message_type::TIME_EXCEEDED => Ok(Self::TimeExceeded { code, quote }),
            _ => Err(Malformed::Type),
        }
    }

    /// Writes the message, checksum included.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Repr::length`].
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let packet = &mut bytes[..self.length()];
        let (message_type, code, rest) = self.header();
        put(packet, 0, [message_type, code, 0, 0]);
        put(packet, 4, rest);
        packet[HEADER_LENGTH..].copy_from_slice(self.payload());
        let checksum = Sum::new().with(packet).checksum();
        put(packet, CHECKSUM_AT, checksum.to_be_bytes());
        packet.len()
    }

    /// The length of the message.
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH + self.payload().len()
    }

    /// Type, code, and the four bytes whose meaning depends on the type.
    fn header(&self) -> (u8, u8, [u8; 4]) {
        match self {
            Self::EchoRequest(echo) => (message_type::ECHO_REQUEST, 0, echo.rest_of_header()),
            Self::EchoReply(echo) => (message_type::ECHO_REPLY, 0, echo.rest_of_header()),
            Self::Unreachable { code, .. } => (message_type::UNREACHABLE, *code, [0; 4]),
            Self::FragmentationNeeded { mtu, .. } => {
                let mtu = mtu.to_be_bytes();
                let rest = [0, 0, mtu[0], mtu[1]];
                (message_type::UNREACHABLE, unreachable::FRAGMENTATION_NEEDED, rest)
            }
            Self::TimeExceeded { code, .. } => (message_type::TIME_EXCEEDED, *code, [0; 4]),
        }
    }

    const fn payload(&self) -> &'a [u8] {
        match self {
            Self::EchoRequest(echo) | Self::EchoReply(echo) => echo.data,
            Self::Unreachable { quote, .. }
            | Self::FragmentationNeeded { quote, .. }
            | Self::TimeExceeded { quote, .. } => quote,
        }
    }
}
