//! ICMP for IPv6 (RFC 4443): echo, errors, and of neighbour discovery (RFC 4861) solicitation and
//! advertisement. Routers are configured, not discovered.

use crate::bytes::{array_at, put, u32_at};
use crate::checksum::pseudo_header_v6;
use crate::ethernet::{self, MacAddress};
use crate::view::view;
use crate::{Malformed, protocol};
use core::net::Ipv6Addr;
use core::ops::RangeInclusive;

pub use crate::icmpv4::Echo;

/// The fixed part of every message.
pub const HEADER_LENGTH: usize = 8;
/// The hop limit that neighbour discovery is sent with, and has to arrive with: RFC 4861, section
/// 7.1.1, "The IP Hop Limit field has a value of 255, i.e., the packet could not possibly have been
/// forwarded by a router."
pub const NEIGHBOUR_HOP_LIMIT: u8 = 255;

const CHECKSUM_AT: usize = 2;
/// Fixed part and target.
const NEIGHBOUR_LENGTH: usize = HEADER_LENGTH + 16;
/// Type, length and Ethernet address.
const LINK_ADDRESS_OPTION_LENGTH: usize = 8;

/// The type of neighbour advertisements (RFC 4861, section 4.4).
pub const NEIGHBOUR_ADVERTISEMENT: u8 = message_type::NEIGHBOUR_ADVERTISEMENT;

/// The code of "parameter problem" that says that nobody there knows the protocol of what the
/// packet carries (RFC 4443, section 3.4).
pub const UNKNOWN_PROTOCOL: u8 = 1;
/// The code of "time exceeded" that says that fragments are missing (RFC 4443, section 3.3).
pub const REASSEMBLY: u8 = 1;
/// The types of errors (RFC 4443, section 2.1).
pub const ERRORS: RangeInclusive<u8> = 0..=127;
/// The types of those errors that say that a packet did not arrive.
pub const UNDELIVERED: [u8; 3] =
    [message_type::UNREACHABLE, message_type::PACKET_TOO_BIG, message_type::TIME_EXCEEDED];
/// All types of neighbour discovery (RFC 4861, section 4), those that are not spoken here included.
pub const NEIGHBOUR_DISCOVERY: RangeInclusive<u8> = 133..=137;

mod message_type {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const PACKET_TOO_BIG: u8 = 2;
    pub(super) const TIME_EXCEEDED: u8 = 3;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
    pub(super) const ECHO_REQUEST: u8 = 128;
    pub(super) const ECHO_REPLY: u8 = 129;
    pub(super) const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub(super) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

mod option_type {
    pub(super) const SOURCE_LINK_ADDRESS: u8 = 1;
    pub(super) const TARGET_LINK_ADDRESS: u8 = 2;
}

mod advertisement_flag {
    pub(super) const ROUTER: u8 = 0x80;
    pub(super) const SOLICITED: u8 = 0x40;
    pub(super) const OVERRIDE: u8 = 0x20;
}

/// Codes of destination unreachable (RFC 4443, section 3.1).
pub mod unreachable {
    /// A firewall, a policy for sources, or a route that rejects forbids it.
    pub const PROHIBITED: [u8; 3] = [1, 5, 6];
    /// The host does not answer, or anything that no other code says.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens on the port.
    pub const PORT: u8 = 4;
}

view! {
    /// The bytes of an ICMPv6 message.
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

    /// True if the message that came from `source` to `destination` is intact.
    #[must_use]
    pub fn checksum_is_right(&self, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
        let length = self.bytes.len() as u32; // of a packet
        pseudo_header_v6(source, destination, protocol::ICMPV6, length).with(self.bytes).is_right()
    }

    /// What follows the fixed part.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LENGTH..]
    }
}

/// A valid ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// "Send this back."
    EchoRequest(Echo<'a>),
    /// "Here it is."
    EchoReply(Echo<'a>),
    /// A packet could not be delivered.
    Unreachable {
        /// Why: one of [`mod@unreachable`] or another.
        code: u8,
        /// How the packet began.
        quote: &'a [u8],
    },
    /// A packet was too large for a link on its way.
    PacketTooBig {
        /// The largest that passes.
        mtu: u32,
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
    /// A node could not make sense of a packet's headers.
    ParameterProblem {
        /// Why: [`UNKNOWN_PROTOCOL`] or another.
        code: u8,
        /// Which octet of the packet it was.
        pointer: u32,
        /// How the packet began.
        quote: &'a [u8],
    },
    /// "Who has this address?"
    NeighbourSolicitation(Solicitation),
    /// "I have."
    NeighbourAdvertisement(Advertisement),
}

/// A question for the Ethernet address of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The address in question: never a group.
    pub target: Ipv6Addr,
    /// Who asks; missing if that is still being decided (duplicate address detection).
    pub source_mac: Option<MacAddress>,
}

/// The answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The address in question: never a group.
    pub target: Ipv6Addr,
    /// The sender forwards packets.
    pub is_router: bool,
    /// The sender was asked.
    pub is_solicited: bool,
    /// What was known before is wrong.
    pub overrides: bool,
    /// Who has the address; may be missing in an answer to a probe.
    pub target_mac: Option<MacAddress>,
}

impl<'a> Repr<'a> {
    /// Judges a message that came from `source` to `destination`. That neighbour discovery came
    /// with the right hop limit is checked where that is known. Types that are not in this enum are
    /// [`Malformed::Type`].
    pub fn parse(
        view: &View<'a>,
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<Self, Malformed> {
        if !view.checksum_is_right(source, destination) {
            return Err(Malformed::Checksum);
        }
        let (code, quote) = (view.code(), view.payload());
        match view.message_type() {
            message_type::UNREACHABLE => Ok(Self::Unreachable { code, quote }),
            message_type::PACKET_TOO_BIG => {
                Ok(Self::PacketTooBig { mtu: u32_at(view.bytes, 4), quote })
            }
            message_type::TIME_EXCEEDED => Ok(Self::TimeExceeded { code, quote }),
            message_type::PARAMETER_PROBLEM => {
                Ok(Self::ParameterProblem { code, pointer: u32_at(view.bytes, 4), quote })
            }
            message_type::ECHO_REQUEST => Ok(Self::EchoRequest(Echo::read(view.bytes))),
            message_type::ECHO_REPLY => Ok(Self::EchoReply(Echo::read(view.bytes))),
            message_type::NEIGHBOUR_SOLICITATION => {
                Solicitation::parse(view).map(Self::NeighbourSolicitation)
            }
            message_type::NEIGHBOUR_ADVERTISEMENT => {
                Advertisement::parse(view).map(Self::NeighbourAdvertisement)
            }
            _ => Err(Malformed::Type),
        }
    }

    /// Writes the message for the way from `source` to `destination`, checksum included.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Repr::length`].
    pub fn emit(&self, bytes: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr) -> usize {
        let packet = &mut bytes[..self.length()];
        let (message_type, code, rest) = self.header();
        put(packet, 0, [message_type, code, 0, 0]);
        put(packet, 4, rest);
        self.emit_payload(&mut packet[HEADER_LENGTH..]);
        let length = packet.len() as u32; // of a packet
        let sum = pseudo_header_v6(source, destination, protocol::ICMPV6, length).with(packet);
        put(packet, CHECKSUM_AT, sum.checksum().to_be_bytes());
        packet.len()
    }

    /// The length of the message.
    #[must_use]
    pub const fn length(&self) -> usize {
        match self {
            Self::EchoRequest(echo) | Self::EchoReply(echo) => HEADER_LENGTH + echo.data.len(),
            Self::Unreachable { quote, .. }
            | Self::PacketTooBig { quote, .. }
            | Self::TimeExceeded { quote, .. }
            | Self::ParameterProblem { quote, .. } => HEADER_LENGTH + quote.len(),
            Self::NeighbourSolicitation(Solicitation { source_mac: mac, .. })
            | Self::NeighbourAdvertisement(Advertisement { target_mac: mac, .. }) => {
                NEIGHBOUR_LENGTH + if mac.is_some() { LINK_ADDRESS_OPTION_LENGTH } else { 0 }
            }
        }
    }

    /// True for messages that have to come from the link itself, and that group addresses take.
    #[must_use]
    pub const fn is_neighbour_discovery(&self) -> bool {
        matches!(self, Self::NeighbourSolicitation(_) | Self::NeighbourAdvertisement(_))
    }

    /// Type, code, and the four bytes whose meaning depends on the type.
    fn header(&self) -> (u8, u8, [u8; 4]) {
        match self {
            Self::EchoRequest(echo) => (message_type::ECHO_REQUEST, 0, echo.rest_of_header()),
            Self::EchoReply(echo) => (message_type::ECHO_REPLY, 0, echo.rest_of_header()),
            Self::Unreachable { code, .. } => (message_type::UNREACHABLE, *code, [0; 4]),
            Self::PacketTooBig { mtu, .. } => (message_type::PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Self::TimeExceeded { code, .. } => (message_type::TIME_EXCEEDED, *code, [0; 4]),
            Self::ParameterProblem { code, pointer, .. } => {
                (message_type::PARAMETER_PROBLEM, *code, pointer.to_be_bytes())
            }
            Self::NeighbourSolicitation(_) => (message_type::NEIGHBOUR_SOLICITATION, 0, [0; 4]),
            Self::NeighbourAdvertisement(advertisement) => {
                (message_type::NEIGHBOUR_ADVERTISEMENT, 0, [advertisement.flags(), 0, 0, 0])
            }
        }
    }

    fn emit_payload(&self, bytes: &mut [u8]) {
        match self {
            Self::EchoRequest(echo) | Self::EchoReply(echo) => bytes.copy_from_slice(echo.data),
            Self::Unreachable { quote, .. }
            | Self::PacketTooBig { quote, .. }
            | Self::TimeExceeded { quote, .. }
            | Self::ParameterProblem { quote, .. } => bytes.copy_from_slice(quote),
            Self::NeighbourSolicitation(Solicitation { target, source_mac }) => {
                put(bytes, 0, target.octets());
                emit_link_address(bytes, option_type::SOURCE_LINK_ADDRESS, *source_mac);
            }
            Self::NeighbourAdvertisement(Advertisement { target, target_mac, .. }) => {
                put(bytes, 0, target.octets());
                emit_link_address(bytes, option_type::TARGET_LINK_ADDRESS, *target_mac);
            }
        }
    }
}

impl Solicitation {
    fn parse(view: &View<'_>) -> Result<Self, Malformed> {
        let (target, options) = split_target(view)?;
        let source_mac = link_address(options, option_type::SOURCE_LINK_ADDRESS)?;
        Ok(Self { target, source_mac })
    }
}

impl Advertisement {
    fn parse(view: &View<'_>) -> Result<Self, Malformed> {
        let (target, options) = split_target(view)?;
        let flags = view.rest_of_header()[0];
        Ok(Self {
            target,
            is_router: flags & advertisement_flag::ROUTER != 0,
            is_solicited: flags & advertisement_flag::SOLICITED != 0,
            overrides: flags & advertisement_flag::OVERRIDE != 0,
            target_mac: link_address(options, option_type::TARGET_LINK_ADDRESS)?,
        })
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.is_router, advertisement_flag::ROUTER)
            | flag(self.is_solicited, advertisement_flag::SOLICITED)
            | flag(self.overrides, advertisement_flag::OVERRIDE)
    }
}

/// RFC 4861, sections 7.1.1 and 7.1.2: the code is 0, the length at least 24, "Target Address is
/// not a multicast address".
fn split_target<'a>(view: &View<'a>) -> Result<(Ipv6Addr, &'a [u8]), Malformed> {
    if view.code() != 0 {
        return Err(Malformed::Field);
    }
    let (target, options) = view.payload().split_first_chunk::<16>().ok_or(Malformed::Truncated)?;
    let target = Ipv6Addr::from(*target);
    if target.is_multicast() {
        return Err(Malformed::Address);
    }
    Ok((target, options))
}

/// The Ethernet address in the first option of this type. All options are walked: RFC 4861, section
/// 4.6, "Nodes MUST silently discard an ND packet that contains an option with length zero".
fn link_address(mut options: &[u8], wanted: u8) -> Result<Option<MacAddress>, Malformed> {
    let mut found = None;
    while let [option_type, length, ..] = *options {
        if length == 0 {
            return Err(Malformed::Length);
        }
        let (option, rest) =
            options.split_at_checked(usize::from(length) * 8).ok_or(Malformed::Length)?;
        if option_type == wanted && found.is_none() {
            found = Some(checked_mac(array_at(option, 2))?);
        }
        options = rest;
    }
    Ok(found)
}

fn checked_mac(mac: MacAddress) -> Result<MacAddress, Malformed> {
    if ethernet::is_multicast(mac) { Err(Malformed::Address) } else { Ok(mac) }
}

fn emit_link_address(payload: &mut [u8], option_type: u8, mac: Option<MacAddress>) {
    if let Some(mac) = mac {
        put(payload, 16, [option_type, 1]);
        put(payload, 18, mac);
    }
}
