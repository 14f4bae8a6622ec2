//! The frames of a data packet, read one after the other without copying.

use super::{
    Ack, CLOSE_FRAME_LENGTH, FRAGMENT_FRAME_LENGTH, LIMIT_FRAME_LENGTH, MESSAGE_BYTES_MAX,
    MESSAGE_FRAME_LENGTH, OPEN_FRAME_LENGTH, PATH_FRAME_LENGTH, PROBE_FRAME_LENGTH,
    RESET_FRAME_LENGTH, SKIP_FRAME_LENGTH, STRAY_FRAME_LENGTH, STREAM_FRAME_LENGTH,
    WAIT_FRAME_LENGTH, frame_type,
};
use crate::Malformed;
use crate::bytes::{u16_at, u32_at, u64_at};

/// A valid frame. Padding is skipped and never shows up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Asks for an acknowledgement and carries nothing.
    Ping,
    /// Packets that were received.
    Ack(Ack<'a>),
    /// The highest position of the connection's sequence space that the other side may use.
    Limit(u64),
    /// A whole message.
    Message(Message<'a>),
    /// A part of a message.
    Fragment(Fragment<'a>),
    /// A whole operation, request or answer: see [`super::operation`]. Numbered as messages are.
    Operation(Message<'a>),
    /// A part of an operation.
    OperationPart(Fragment<'a>),
    /// Orderly close.
    Close {
        /// Why.
        reason: u16,
        /// How many messages of the stream come before the end.
        messages: u32,
    },
    /// Abort.
    Reset {
        /// Why.
        reason: u16,
    },
    /// What comes from this UDP port comes straight to the engine that has the flow.
    Path {
        /// The source port of the packet that did.
        port: u16,
        /// The round of that packet: of its probe frame, or 0 for a syn-ack.
        round: u16,
    },
    /// What comes from this UDP port comes to another engine of the host first.
    Stray {
        /// The source port of a packet that did.
        port: u16,
    },
    /// This packet comes from a port that is being tried.
    Probe {
        /// Which search this is, of those that its sender has made for the flow.
        round: u16,
    },
    /// The frames behind it are of this stream.
    Stream(u32),
    /// The stream begins.
    Open {
        /// The highest position that the other side may use in it.
        limit: u64,
    },
    /// There is no memory for a message, nor for those behind it, until a limit frame comes.
    Wait {
        /// The message's sequence number.
        sequence: u32,
        /// The largest number of a packet that was dropped for that.
        number: u64,
    },
    /// A message is not sent: its sender has dropped it.
    Skip {
        /// The message's sequence number.
        sequence: u32,
        /// Its length, at most [`MESSAGE_BYTES_MAX`].
        length: u32,
    },
}

/// A message that came in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Must be zero.
    pub reserved: u16,
    /// Which message of the stream this is.
    pub sequence: u32,
    /// The message.
    pub bytes: &'a [u8],
}

/// A part of a message. `offset + bytes.len() <= total <= MESSAGE_BYTES_MAX`, and it is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Must be zero.
    pub reserved: u16,
    /// Which message of the stream this is a part of.
    pub sequence: u32,
    /// The length of the whole message.
    pub total: u32,
    /// Where in the message these bytes belong.
    pub offset: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// What frames of messages and of operations begin with: type, flags, and what is reserved.
const USUAL_MESSAGE: u32 = u32::from_be_bytes([frame_type::MESSAGE, 0, 0, 0]);
const USUAL_OPERATION: u32 = u32::from_be_bytes([frame_type::OPERATION, 0, 0, 0]);

/// The frames of a data packet's body. Ends after the first malformed one, whose reason it yields:
/// that makes the whole packet malformed.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    has_ack: bool,
}

impl<'a> Frames<'a> {
    /// The frames in `body`.
    #[inline]
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body, has_ack: false }
    }

    /// The acknowledgement that packets begin with, if they have one; no other may follow.
    #[inline]
    pub fn leading_ack(&mut self) -> Result<Option<Ack<'a>>, Malformed> {
        if self.rest.first() != Some(&frame_type::ACK) || self.has_ack {
            return Ok(None);
        }
        let (ack, rest) = Ack::split(self.rest)?;
        (self.rest, self.has_ack) = (rest, true);
        Ok(Some(ack))
    }

    /// The message that is all there is, if that is so: then there is nothing left to check or to
    /// read. Nothing is reserved in it.
    #[inline]
    #[must_use]
    pub fn only_message(&self) -> Option<Message<'a>> {
        let (head, bytes) = split_head::<MESSAGE_FRAME_LENGTH>(self.rest).ok()?;
        let is_all = u32_at(head, 0) == USUAL_MESSAGE && u32_at(head, 8) as usize == bytes.len();
        is_all.then(|| Message { reserved: 0, sequence: u32_at(head, 4), bytes })
    }

    /// The next frame if it is a whole message with nothing reserved, as most are: a short way
    /// around the iterator, which has all others.
    #[inline]
    pub fn next_message(&mut self) -> Option<Message<'a>> {
        self.next_usual(USUAL_MESSAGE)
    }

    /// The same for a whole operation.
    #[inline]
    pub fn next_operation(&mut self) -> Option<Message<'a>> {
        self.next_usual(USUAL_OPERATION)
    }

    /// The stream of which what follows is, if the next frame says that.
    #[inline]
    pub fn next_stream(&mut self) -> Option<u32> {
        self.skip_padding();
        if self.rest.first() != Some(&frame_type::STREAM) {
            return None;
        }
        let (head, rest) = split_head::<STREAM_FRAME_LENGTH>(self.rest).ok()?;
        self.rest = rest;
        Some(u32_at(head, 4))
    }

    #[inline(always)]
    fn next_usual(&mut self, begin: u32) -> Option<Message<'a>> {
        self.skip_padding();
        let (head, rest) = split_head::<MESSAGE_FRAME_LENGTH>(self.rest).ok()?;
        if u32_at(head, 0) != begin {
            return None;
        }
        let (bytes, rest) = split_payload(rest, u32_at(head, 8)).ok()?;
        self.rest = rest;
        Some(Message { reserved: 0, sequence: u32_at(head, 4), bytes })
    }

    #[inline]
    fn skip_padding(&mut self) {
        while let [frame_type::PADDING, rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Says whether all frames can be read, and if not, why. Cheaper than reading them.
    #[inline]
    pub fn check(&self) -> Result<(), Malformed> {
        let (mut rest, mut has_ack) = (self.rest, self.has_ack);
        while let Some(&octet) = rest.first() {
            rest = match octet {
                frame_type::PADDING => &rest[1..],
                frame_type::MESSAGE | frame_type::OPERATION => {
                    let (head, rest) = split_head::<MESSAGE_FRAME_LENGTH>(rest)?;
                    split_payload(rest, u32_at(head, 8))?.1
                }
                frame_type::STREAM => split_head::<STREAM_FRAME_LENGTH>(rest)?.1,
                frame_type::ACK if has_ack => return Err(Malformed::SecondAck),
                _ => {
                    has_ack |= octet == frame_type::ACK;
                    split_frame(octet, rest)?.1
                }
            };
        }
        Ok(())
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.skip_padding();
        let octet = *self.rest.first()?;
        let (frame, rest) = match split_frame(octet, self.rest) {
            _ if self.has_ack && octet == frame_type::ACK => (Err(Malformed::SecondAck), &[][..]),
            Ok((frame, rest)) => (Ok(frame), rest),
            Err(reason) => (Err(reason), &[][..]),
        };
        self.has_ack |= octet == frame_type::ACK;
        self.rest = rest;
        Some(frame)
    }
}

impl core::iter::FusedIterator for Frames<'_> {}

/// The frame that `bytes` starts with, and the bytes behind it. Inlined, so that a frame that most
/// packets have goes from here to its reader in registers.
#[inline(always)]
fn split_frame(octet: u8, bytes: &[u8]) -> Result<(Frame<'_>, &[u8]), Malformed> {
    match octet {
        frame_type::MESSAGE => split_message(bytes).map(|(m, rest)| (Frame::Message(m), rest)),
        frame_type::FRAGMENT => split_fragment(bytes).map(|(f, rest)| (Frame::Fragment(f), rest)),
        frame_type::ACK => Ack::split(bytes).map(|(ack, rest)| (Frame::Ack(ack), rest)),
        _ => split_rare_frame(octet, bytes),
    }
}

#[inline(never)]
fn split_rare_frame(octet: u8, bytes: &[u8]) -> Result<(Frame<'_>, &[u8]), Malformed> {
    match octet {
        frame_type::LIMIT => {
            let (head, rest) = split_head::<LIMIT_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Limit(u64_at(head, 8)), rest))
        }
        frame_type::PING => Ok((Frame::Ping, &bytes[1..])),
        frame_type::CLOSE => {
            let (head, rest) = split_head::<CLOSE_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Close { reason: u16_at(head, 2), messages: u32_at(head, 4) }, rest))
        }
        frame_type::RESET => {
            let (head, rest) = split_head::<RESET_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Reset { reason: u16_at(head, 2) }, rest))
        }
        frame_type::PATH => {
            let (head, rest) = split_head::<PATH_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Path { port: u16_at(head, 2), round: u16_at(head, 4) }, rest))
        }
        frame_type::STRAY => {
            let (head, rest) = split_head::<STRAY_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Stray { port: u16_at(head, 2) }, rest))
        }
        frame_type::PROBE => {
            let (head, rest) = split_head::<PROBE_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Probe { round: u16_at(head, 2) }, rest))
        }
        frame_type::OPERATION => {
            split_message(bytes).map(|(operation, rest)| (Frame::Operation(operation), rest))
        }
        frame_type::OPERATION_PART => {
            split_fragment(bytes).map(|(part, rest)| (Frame::OperationPart(part), rest))
        }
        frame_type::STREAM => {
            let (head, rest) = split_head::<STREAM_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Stream(u32_at(head, 4)), rest))
        }
        frame_type::OPEN => {
            let (head, rest) = split_head::<OPEN_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Open { limit: u64_at(head, 8) }, rest))
        }
        frame_type::WAIT => {
            let (head, rest) = split_head::<WAIT_FRAME_LENGTH>(bytes)?;
            Ok((Frame::Wait { sequence: u32_at(head, 4), number: u64_at(head, 8) }, rest))
        }
        frame_type::SKIP => {
            let (head, rest) = split_head::<SKIP_FRAME_LENGTH>(bytes)?;
            let (sequence, length) = (u32_at(head, 4), u32_at(head, 8));
            if length > MESSAGE_BYTES_MAX {
                return Err(Malformed::FragmentExtent);
            }
            Ok((Frame::Skip { sequence, length }, rest))
        }
        _ => Err(Malformed::FrameType),
    }
}

#[inline]
fn split_message(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), Malformed> {
    let (head, rest) = split_head::<MESSAGE_FRAME_LENGTH>(bytes)?;
    let (bytes, rest) = split_payload(rest, u32_at(head, 8))?;
    Ok((Message { reserved: u16_at(head, 2), sequence: u32_at(head, 4), bytes }, rest))
}

#[inline]
fn split_fragment(bytes: &[u8]) -> Result<(Fragment<'_>, &[u8]), Malformed> {
    let (head, rest) = split_head::<FRAGMENT_FRAME_LENGTH>(bytes)?;
    let (length, total, offset) = (u32_at(head, 8), u32_at(head, 12), u32_at(head, 16));
    if total > MESSAGE_BYTES_MAX || length == 0 || offset > total || length > total - offset {
        return Err(Malformed::FragmentExtent);
    }
    let (bytes, rest) = split_payload(rest, length)?;
    let (reserved, sequence) = (u16_at(head, 2), u32_at(head, 4));
    Ok((Fragment { reserved, sequence, total, offset, bytes }, rest))
}

#[inline]
fn split_head<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Malformed> {
    bytes.split_first_chunk().ok_or(Malformed::Truncated)
}

#[inline]
fn split_payload(bytes: &[u8], length: u32) -> Result<(&[u8], &[u8]), Malformed> {
    bytes.split_at_checked(length as usize).ok_or(Malformed::MessageLength)
}
