//! Writing frames. Each function writes at the start of `bytes` and returns the length written;
//! each panics if `bytes` is too short for that, which the caller has to know before. (The ack is
//! in `ack.rs`.)

use super::{
    CLOSE_FRAME_LENGTH, FRAGMENT_FRAME_LENGTH, LIMIT_FRAME_LENGTH, MESSAGE_BYTES_MAX,
    MESSAGE_FRAME_LENGTH, OPEN_FRAME_LENGTH, PATH_FRAME_LENGTH, PING_FRAME_LENGTH,
    PROBE_FRAME_LENGTH, RESET_FRAME_LENGTH, SKIP_FRAME_LENGTH, STRAY_FRAME_LENGTH,
    STREAM_FRAME_LENGTH, WAIT_FRAME_LENGTH, frame_type,
};
use crate::bytes::{head_mut, put};

/// Writes the head of a whole-message frame; the caller puts the `length` bytes of the message
/// behind it.
#[inline]
pub fn emit_message(bytes: &mut [u8], sequence: u32, length: u32) -> usize {
    let head: &mut [u8; MESSAGE_FRAME_LENGTH] = head_mut(bytes);
    put_message_fields(head, frame_type::MESSAGE, sequence, length);
    MESSAGE_FRAME_LENGTH
}

/// Writes the head of a fragment frame; the caller puts the `length` bytes of the fragment behind
/// it. They belong at `offset` of a message of `total` bytes.
#[inline]
pub fn emit_fragment(
    bytes: &mut [u8],
    sequence: u32,
    length: u32,
    total: u32,
    offset: u32,
) -> usize {
    debug_assert!(length > 0 && total <= MESSAGE_BYTES_MAX && offset + length <= total);
    let head: &mut [u8; FRAGMENT_FRAME_LENGTH] = head_mut(bytes);
    put_message_fields(head, frame_type::FRAGMENT, sequence, length);
    put(head, 12, total.to_be_bytes());
    put(head, 16, offset.to_be_bytes());
    FRAGMENT_FRAME_LENGTH
}

/// Makes what [`emit_message`] or [`emit_fragment`] has just written at the start of `bytes` an
/// operation, or a part of one.
#[inline]
pub fn carry_operation(bytes: &mut [u8]) {
    bytes[0] |= frame_type::CARRIES_OPERATION;
}

/// What the heads of whole messages and of fragments have in common.
#[inline]
fn put_message_fields(head: &mut [u8], octet: u8, sequence: u32, length: u32) {
    put(head, 0, [octet, 0, 0, 0]);
    put(head, 4, sequence.to_be_bytes());
    put(head, 8, length.to_be_bytes());
}

/// Writes a limit frame: the other side may use the sequence space up to `limit`.
#[inline]
pub fn emit_limit(bytes: &mut [u8], limit: u64) -> usize {
    let head: &mut [u8; LIMIT_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::LIMIT, 0, 0, 0, 0, 0, 0, 0]);
    put(head, 8, limit.to_be_bytes());
    LIMIT_FRAME_LENGTH
}

/// Writes a close frame: the flow ends after `messages` messages of stream 0.
#[inline]
pub fn emit_close(bytes: &mut [u8], reason: u16, messages: u32) -> usize {
    let head: &mut [u8; CLOSE_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::CLOSE, 0]);
    put(head, 2, reason.to_be_bytes());
    put(head, 4, messages.to_be_bytes());
    CLOSE_FRAME_LENGTH
}

/// Writes a reset frame: the flow ends now.
#[inline]
pub fn emit_reset(bytes: &mut [u8], reason: u16) -> usize {
    let head: &mut [u8; RESET_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::RESET, 0]);
    put(head, 2, reason.to_be_bytes());
    RESET_FRAME_LENGTH
}

/// Writes a path frame: packets from the UDP port `port`, such as came in `round`, come straight to
/// the engine that has the flow.
#[inline]
pub fn emit_path(bytes: &mut [u8], port: u16, round: u16) -> usize {
    let head: &mut [u8; PATH_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::PATH, 0]);
    put(head, 2, port.to_be_bytes());
    put(head, 4, round.to_be_bytes());
    PATH_FRAME_LENGTH
}

/// Writes a stray frame: packets from the UDP port `port` come to another engine first.
#[inline]
pub fn emit_stray(bytes: &mut [u8], port: u16) -> usize {
    let head: &mut [u8; STRAY_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::STRAY, 0]);
    put(head, 2, port.to_be_bytes());
    STRAY_FRAME_LENGTH
}

/// Writes a probe frame: the packet comes from a port that is being tried, in this round.
#[inline]
pub fn emit_probe(bytes: &mut [u8], round: u16) -> usize {
    let head: &mut [u8; PROBE_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::PROBE, 0]);
    put(head, 2, round.to_be_bytes());
    PROBE_FRAME_LENGTH
}

/// Writes a stream frame: what follows is of `stream`.
#[inline]
pub fn emit_stream(bytes: &mut [u8], stream: u32) -> usize {
    let head: &mut [u8; STREAM_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::STREAM, 0, 0, 0]);
    put(head, 4, stream.to_be_bytes());
    STREAM_FRAME_LENGTH
}

/// Writes an open frame: the other side may use the stream's positions up to `limit`.
#[inline]
pub fn emit_open(bytes: &mut [u8], limit: u64) -> usize {
    let head: &mut [u8; OPEN_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::OPEN, 0, 0, 0, 0, 0, 0, 0]);
    put(head, 8, limit.to_be_bytes());
    OPEN_FRAME_LENGTH
}

/// Writes a wait frame: there is no memory for the message `sequence`, which packet `number` or one
/// before it carried.
#[inline]
pub fn emit_wait(bytes: &mut [u8], sequence: u32, number: u64) -> usize {
    let head: &mut [u8; WAIT_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::WAIT, 0, 0, 0]);
    put(head, 4, sequence.to_be_bytes());
    put(head, 8, number.to_be_bytes());
    WAIT_FRAME_LENGTH
}

/// Writes a skip frame: the message `sequence`, of `length` bytes, is not sent.
#[inline]
pub fn emit_skip(bytes: &mut [u8], sequence: u32, length: u32) -> usize {
    let head: &mut [u8; SKIP_FRAME_LENGTH] = head_mut(bytes);
    put(head, 0, [frame_type::SKIP, 0, 0, 0]);
    put(head, 4, sequence.to_be_bytes());
    put(head, 8, length.to_be_bytes());
    SKIP_FRAME_LENGTH
}

/// Writes a ping frame, which elicits an acknowledgement and says nothing else.
#[inline]
pub fn emit_ping(bytes: &mut [u8]) -> usize {
    bytes[0] = frame_type::PING;
    PING_FRAME_LENGTH
}

/// Fills all of `bytes` with padding.
#[inline]
pub fn emit_padding(bytes: &mut [u8]) -> usize {
    bytes.fill(frame_type::PADDING);
    bytes.len()
}
