//! The bodies of the packets that open, refuse and end flows: syn, challenge, syn-ack, reset and
//! version. Each `parse` takes a packet whose header said so; each `emit` writes a body, which
//! goes behind the header, and returns its length.

use super::{
    COOKIE_BYTES_MAX, ENGINES_MAX, HEADER_LENGTH, PACKET_BYTES_MIN, Packet, SYN_BYTES_MIN,
};
use crate::Malformed;
use crate::bytes::{head_mut, put, u16_at, u64_at};

/// The fields of a syn's body before its versions.
const SYN_FIXED_LENGTH: usize = 24;
/// The flag of a syn that is to be passed on.
const PASS_ON: u8 = 1 << 0;
/// The body of a syn without a cookie.
const UNPADDED_BODY_MIN: usize = SYN_BYTES_MIN - HEADER_LENGTH;

/// Asks for a connection.
///
/// ```text
///  0       1       2       3       4       5       6       7
/// +---------------------------------------------------------------+
/// |                          source flow                          |
/// +---------------+-------+-------+-------------------------------+
/// | service port  |v count|c length         receive limit
/// +---------------+-------+-------+---------------+---------------+
///          receive limit          | bytes max     |engines| flags |
/// +-------------------------------+---------------+---------------+
/// | versions, one octet each ... | cookie ... | zeros to 64 bytes in all if there is no cookie
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn<'a> {
    /// The flow id that the sender chose for what is sent to it; not 0. It stands at the same
    /// place in every version.
    pub source_flow: u64,
    /// The port that the service listens on.
    pub port: u16,
    /// Initial credit: as in a limit frame.
    pub receive_limit: u64,
    /// The largest UDP payload that the sender takes.
    pub packet_bytes_max: u16,
    /// How many engines the sender's NIC may spread packets over; 1 to 64.
    pub engines: u8,
    /// Any engine of the receiver may take it, and is to pass it on to the one that listens: that
    /// one has not been reached otherwise.
    pub pass_on: bool,
    /// The versions that the sender speaks, best first; at least one, at most 255.
    pub versions: &'a [u8],
    /// The cookie of the challenge that this answers; empty at first.
    pub cookie: &'a [u8],
}

impl<'a> Syn<'a> {
    /// Reads the body of a syn.
    pub fn parse(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let (head, rest) = split_fixed::<SYN_FIXED_LENGTH>(packet)?;
        let (versions, rest) =
            rest.split_at_checked(usize::from(head[10])).ok_or(Malformed::Length)?;
        let cookie = rest.get(..usize::from(head[11])).ok_or(Malformed::Length)?;
        if versions.is_empty() {
            return Err(Malformed::Versions);
        }
        if cookie.len() > COOKIE_BYTES_MAX {
            return Err(Malformed::Cookie);
        }
        if cookie.is_empty() && packet.length() < SYN_BYTES_MIN {
            return Err(Malformed::Unpadded);
        }
        Ok(Self {
            source_flow: checked_flow(u64_at(head, 0))?,
            port: u16_at(head, 8),
            receive_limit: u64_at(head, 12),
            packet_bytes_max: checked_packet_bytes(u16_at(head, 20))?,
            engines: checked_engines(head[22])?,
            pass_on: head[23] & PASS_ON != 0,
            versions,
            cookie,
        })
    }

    /// Writes the body, padding included.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Syn::length`], or versions or cookie are longer than allowed.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        assert!(self.versions.len() <= 255 && self.cookie.len() <= COOKIE_BYTES_MAX);
        let body = &mut bytes[..self.length()];
        body.fill(0);
        put(body, 0, self.source_flow.to_be_bytes());
        put(body, 8, self.port.to_be_bytes());
        put(body, 10, [self.versions.len() as u8, self.cookie.len() as u8]);
        put(body, 12, self.receive_limit.to_be_bytes());
        put(body, 20, self.packet_bytes_max.to_be_bytes());
        put(body, 22, [self.engines, if self.pass_on { PASS_ON } else { 0 }]);
        let (versions, rest) = body[SYN_FIXED_LENGTH..].split_at_mut(self.versions.len());
        versions.copy_from_slice(self.versions);
        rest[..self.cookie.len()].copy_from_slice(self.cookie);
        body.len()
    }

    /// The length of the body, padding included.
    #[must_use]
    pub const fn length(&self) -> usize {
        let length = SYN_FIXED_LENGTH + self.versions.len() + self.cookie.len();
        if self.cookie.is_empty() && length < UNPADDED_BODY_MIN {
            UNPADDED_BODY_MIN
        } else {
            length
        }
    }
}

/// The fields of a challenge's body before its cookie.
const CHALLENGE_FIXED_LENGTH: usize = 4;

/// Answers a syn without a cookie: the sender is to repeat it with this one, from the same port.
///
/// ```text
/// +-------+-------+---------------+
/// |c length|engines|     port      | cookie ...
/// +-------+-------+---------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// How many engines the sender's NIC may spread packets over; 1 to 64.
    pub engines: u8,
    /// The UDP port that the syn came from: from there, packets come to the right engine.
    pub port: u16,
    /// 1 to 32 bytes.
    pub cookie: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Reads the body of a challenge.
    pub fn parse(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let (head, rest) = split_fixed::<CHALLENGE_FIXED_LENGTH>(packet)?;
        let cookie = rest.get(..usize::from(head[0])).ok_or(Malformed::Length)?;
        if cookie.is_empty() || cookie.len() > COOKIE_BYTES_MAX {
            return Err(Malformed::Cookie);
        }
        Ok(Self { engines: checked_engines(head[1])?, port: u16_at(head, 2), cookie })
    }

    /// Writes the body.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Challenge::length`] or the cookie longer than allowed.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        assert!(self.cookie.len() <= COOKIE_BYTES_MAX);
        let body = &mut bytes[..self.length()];
        put(body, 0, [self.cookie.len() as u8, self.engines]);
        put(body, 2, self.port.to_be_bytes());
        body[CHALLENGE_FIXED_LENGTH..].copy_from_slice(self.cookie);
        body.len()
    }

    /// The length of the body.
    #[must_use]
    pub const fn length(&self) -> usize {
        CHALLENGE_FIXED_LENGTH + self.cookie.len()
    }
}

/// Accepts a connection.
///
/// ```text
///  0       1       2       3       4       5       6       7
/// +---------------------------------------------------------------+
/// |                          source flow                          |
/// +---------------------------------------------------------------+
/// |                         receive limit                         |
/// +---------------+-------+-------+-------------------------------+
/// |   bytes max   |version|   0   |     port      |
/// +---------------+-------+-------+---------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynAck {
    /// The flow id that the sender chose for what is sent to it; not 0.
    pub source_flow: u64,
    /// Initial credit: as in a limit frame.
    pub receive_limit: u64,
    /// The largest UDP payload that the sender takes.
    pub packet_bytes_max: u16,
    /// The version that the sender chose of those offered.
    pub version: u8,
    /// The UDP port that the syn came from: from there, packets come to the right engine.
    pub port: u16,
}

impl SynAck {
    /// The length of the body.
    pub const LENGTH: usize = 22;

    /// Reads the body of a syn-ack.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Malformed> {
        let (head, _) = split_fixed::<{ Self::LENGTH }>(packet)?;
        Ok(Self {
            source_flow: checked_flow(u64_at(head, 0))?,
            receive_limit: u64_at(head, 8),
            packet_bytes_max: checked_packet_bytes(u16_at(head, 16))?,
            version: head[18],
            port: u16_at(head, 20),
        })
    }

    /// Writes the body.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`SynAck::LENGTH`].
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let body: &mut [u8; Self::LENGTH] = head_mut(bytes);
        put(body, 0, self.source_flow.to_be_bytes());
        put(body, 8, self.receive_limit.to_be_bytes());
        put(body, 16, self.packet_bytes_max.to_be_bytes());
        put(body, 18, [self.version, 0]);
        put(body, 20, self.port.to_be_bytes());
        Self::LENGTH
    }

    /// The length of the body.
    #[must_use]
    pub const fn length(&self) -> usize {
        Self::LENGTH
    }
}

/// Says that a flow is not, or no longer, known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Why.
    pub reason: u16,
    /// The flow id that the packet which provoked this was sent to: proof of having seen it.
    pub quoted_flow: u64,
}

impl Reset {
    /// The length of the body.
    pub const LENGTH: usize = 10;

    /// Reads the body of a reset.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Malformed> {
        let (head, _) = split_fixed::<{ Self::LENGTH }>(packet)?;
        Ok(Self { reason: u16_at(head, 0), quoted_flow: u64_at(head, 2) })
    }

    /// Writes the body.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Reset::LENGTH`].
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let body: &mut [u8; Self::LENGTH] = head_mut(bytes);
        put(body, 0, self.reason.to_be_bytes());
        put(body, 2, self.quoted_flow.to_be_bytes());
        Self::LENGTH
    }

    /// The length of the body.
    #[must_use]
    pub const fn length(&self) -> usize {
        Self::LENGTH
    }
}

/// Lists the versions that the sender speaks, in answer to a syn of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions<'a> {
    /// One octet each, at least one.
    pub versions: &'a [u8],
}

impl<'a> Versions<'a> {
    /// Reads the body of a version packet.
    pub fn parse(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let versions = counted_octets(packet)?;
        if versions.is_empty() {
            return Err(Malformed::Versions);
        }
        Ok(Self { versions })
    }

    /// Writes the body.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Versions::length`] or there are more than 255 versions.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        assert!(self.versions.len() <= 255);
        emit_counted_octets(bytes, self.versions)
    }

    /// The length of the body.
    #[must_use]
    pub const fn length(&self) -> usize {
        1 + self.versions.len()
    }
}

/// The fixed part of a body, and what follows it. More than is known may follow: a later revision
/// may add fields at the end.
fn split_fixed<'a, const N: usize>(
    packet: &Packet<'a>,
) -> Result<(&'a [u8; N], &'a [u8]), Malformed> {
    packet.body().split_first_chunk().ok_or(Malformed::Truncated)
}

/// A body of one octet that says how many follow.
fn counted_octets<'a>(packet: &Packet<'a>) -> Result<&'a [u8], Malformed> {
    let (&count, octets) = packet.body().split_first().ok_or(Malformed::Truncated)?;
    octets.get(..usize::from(count)).ok_or(Malformed::Length)
}

fn emit_counted_octets(bytes: &mut [u8], octets: &[u8]) -> usize {
    bytes[0] = octets.len() as u8;
    bytes[1..1 + octets.len()].copy_from_slice(octets);
    1 + octets.len()
}

fn checked_flow(flow: u64) -> Result<u64, Malformed> {
    if flow == 0 { Err(Malformed::FlowId) } else { Ok(flow) }
}

fn checked_engines(engines: u8) -> Result<u8, Malformed> {
    if (1..=ENGINES_MAX).contains(&engines) { Ok(engines) } else { Err(Malformed::Field) }
}

fn checked_packet_bytes(bytes_max: u16) -> Result<u16, Malformed> {
    if bytes_max < PACKET_BYTES_MIN { Err(Malformed::Field) } else { Ok(bytes_max) }
}
