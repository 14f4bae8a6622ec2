//! Clearway packets: what travels as UDP payload between two hosts. The format is described, with
//! test vectors, in `docs/wire.md`; who may send what when is the business of `transport`.
//!
//! ```text
//! UDP payload = header (24 bytes) | body
//!   body of a data packet  = frames until the end        -> Packet::frames, emit_*
//!   body of any other type = one of Syn, Challenge, SynAck, Reset, Versions, or bytes to echo
//! ```
//!
//! Receiving: [`Packet::new`] → [`Header::parse`] (checks CRC, version, type) → by type
//! [`Packet::frames`] or `Syn::parse(packet)` and the like.
//!
//! Sending: [`Header::emit`] → frames or `Syn::emit` behind it → [`seal`] over the whole payload,
//! which fills in the CRC.

mod ack;
mod emit;
mod frames;
mod handshake;
mod header;
pub mod operation;
#[cfg(test)]
mod tests;

pub use ack::{Ack, AckRanges, EcnReport, emit_ack};
pub use emit::{
    carry_operation, emit_close, emit_fragment, emit_limit, emit_message, emit_open, emit_padding,
    emit_path, emit_ping, emit_probe, emit_reset, emit_skip, emit_stray, emit_stream, emit_wait,
};
pub use frames::{Fragment, Frame, Frames, Message};
pub use handshake::{Challenge, Reset, Syn, SynAck, Versions};
pub use header::{Header, Packet, PacketType, seal};

/// What the version octet of a packet says: how its header and its handshake look.
pub const VERSION: u8 = 1;
/// The version of the protocol with one-sided operations, which the hosts of a flow may agree on.
/// Its packets look like those of [`VERSION`], and may have frames that those have not.
pub const VERSION_OPERATIONS: u8 = 2;
/// The same with streams.
pub const VERSION_STREAMS: u8 = 3;
/// The same without operations, for a flow that connections share: all are streams of it. Offered
/// only by who wants that.
pub const VERSION_SHARED: u8 = 4;
/// The version octet of version negotiation, which every version understands.
pub const VERSION_NEGOTIATION: u8 = 0;
/// The header that every packet starts with.
pub const HEADER_LENGTH: usize = 24;
/// A whole-message frame without the message.
pub const MESSAGE_FRAME_LENGTH: usize = 12;
/// A fragment frame without the fragment.
pub const FRAGMENT_FRAME_LENGTH: usize = 20;
/// An ack frame with one range.
pub const ACK_FRAME_LENGTH: usize = 20;
/// What each further range adds to an ack frame.
pub const ACK_RANGE_LENGTH: usize = 8;
/// A limit frame.
pub const LIMIT_FRAME_LENGTH: usize = 16;
/// A close frame.
pub const CLOSE_FRAME_LENGTH: usize = 8;
/// A reset frame.
pub const RESET_FRAME_LENGTH: usize = 4;
/// A path frame.
pub const PATH_FRAME_LENGTH: usize = 6;
/// A stray frame.
pub const STRAY_FRAME_LENGTH: usize = 4;
/// A probe frame.
pub const PROBE_FRAME_LENGTH: usize = 4;
/// A stream frame.
pub const STREAM_FRAME_LENGTH: usize = 8;
/// An open frame.
pub const OPEN_FRAME_LENGTH: usize = 16;
/// A wait frame.
pub const WAIT_FRAME_LENGTH: usize = 16;
/// A skip frame.
pub const SKIP_FRAME_LENGTH: usize = 12;
/// A ping frame.
pub const PING_FRAME_LENGTH: usize = 1;
/// The largest message, in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 8 << 20;
/// Further ranges after the first in an ack frame, at most.
pub const ACK_RANGES_MAX: usize = 32;
/// The longest cookie, in bytes.
pub const COOKIE_BYTES_MAX: usize = 32;
/// Engines of one host, at most.
pub const ENGINES_MAX: u8 = 64;
/// A syn without a cookie is at least this long, so that no answer to it is longer: the answers to
/// a stranger are a challenge (at most 60 bytes) and a version packet (which is cut to fit).
pub const SYN_BYTES_MIN: usize = 64;
/// The smallest "packet bytes max" that a host may announce: what is left for UDP payload of the
/// smallest datagram that every host takes. RFC 791, section 3.1: "All hosts must be prepared to
/// accept datagrams of up to 576 octets".
pub const PACKET_BYTES_MIN: u16 = 576 - 20 - 8;

/// The type octets of frames.
mod frame_type {
    pub(super) const PADDING: u8 = 0x00;
    pub(super) const PING: u8 = 0x01;
    pub(super) const ACK: u8 = 0x02;
    pub(super) const LIMIT: u8 = 0x03;
    pub(super) const MESSAGE: u8 = 0x04;
    pub(super) const FRAGMENT: u8 = 0x05;
    pub(super) const CLOSE: u8 = 0x06;
    pub(super) const RESET: u8 = 0x07;
    pub(super) const PATH: u8 = 0x08;
    pub(super) const STRAY: u8 = 0x09;
    pub(super) const PROBE: u8 = 0x0a;
    /// What makes a message, and a fragment, an operation and a part of one.
    pub(super) const CARRIES_OPERATION: u8 = 0x20;
    pub(super) const OPERATION: u8 = CARRIES_OPERATION | MESSAGE;
    pub(super) const OPERATION_PART: u8 = CARRIES_OPERATION | FRAGMENT;
    pub(super) const STREAM: u8 = 0x30;
    pub(super) const OPEN: u8 = 0x31;
    pub(super) const WAIT: u8 = 0x32;
    pub(super) const SKIP: u8 = 0x33;
}
