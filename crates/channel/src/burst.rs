//! Frames travel in bursts: up to [`BURST_FRAMES_MAX`] of them packed in one piece of a pool, in
//! both directions, so that one entry of a ring, one allocation and one release serve them all.
//!
//! ```text
//!  0         8         16             16 + length, padded to 8
//!  │ word 0  │ time_ns │ frame bytes… │ next frame
//!     └ length:u16 flags:u16 info:u32, from the lowest bit
//! ```
//!
//! From app to daemon, flags, info and time are zero. From daemon to app, time is the host's
//! monotonic clock when the frame was seen, and [`FrameInfo`] says what flags and info mean.
//!
//! The daemon walks a burst with [`SentBurst`], which an app may rewrite meanwhile. So it copies
//! the burst first and walks the copy; where it walks the burst in place, the two words of a header
//! are loaded once each. What comes out is within bounds or a [`Violation`]. Frame bytes are not
//! looked at here: the engine looks at its copy. The app walks a burst of the daemon's with
//! [`ReceivedBurst`].

use crate::layout::{
    BURST_FRAMES_MAX, FRAME_ALIGNMENT, FRAME_BYTES_MAX, FRAME_BYTES_MIN, FRAME_HEADER_BYTES,
};
use crate::{FrameRefusal, Violation};

/// Bytes that a frame of `length` bytes takes in a burst.
#[inline]
#[must_use]
pub const fn packed_bytes(length: u32) -> u32 {
    FRAME_HEADER_BYTES + length.next_multiple_of(FRAME_ALIGNMENT)
}

/// What the daemon says of a frame, besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// When it was seen, by the host's monotonic clock.
    pub time_ns: u64,
    flags: u16,
    info: u32,
}

/// Where a capture saw a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// On its way out, to the wire.
    Wire,
    /// Given to an app or to the host itself; or, if outgoing, on its way to another of this host.
    Delivered,
    /// Refused to the app that sent it; or, if incoming, nobody's here.
    Refused,
}

const FLAG_OUTGOING: u16 = 1;
const POINT_SHIFT: u32 = 1;
const REASON_SHIFT: u32 = 24;

impl FrameInfo {
    /// Of a frame that a virtual interface receives.
    #[must_use]
    pub const fn received(time_ns: u64) -> Self {
        Self { time_ns, flags: 0, info: 0 }
    }

    /// Of a frame that a capture sees: its direction, where, which channel it concerns, and why it
    /// was refused.
    #[must_use]
    pub const fn captured(
        time_ns: u64,
        is_outgoing: bool,
        point: Point,
        channel: Option<u32>,
        reason: Option<FrameRefusal>,
    ) -> Self {
        let direction = if is_outgoing { FLAG_OUTGOING } else { 0 };
        let channel = match channel {
            Some(channel) => channel.wrapping_add(1) & ((1 << REASON_SHIFT) - 1),
            None => 0,
        };
        let reason = match reason {
            Some(reason) => reason.as_u8() as u32,
            None => 0,
        };
        let info = channel | reason << REASON_SHIFT;
        Self { time_ns, flags: direction | (point as u16) << POINT_SHIFT, info }
    }

    /// Whether the frame was on its way out of the host, or out of the app.
    #[must_use]
    pub const fn is_outgoing(self) -> bool {
        self.flags & FLAG_OUTGOING != 0
    }

    /// Where a capture saw it.
    #[must_use]
    pub const fn point(self) -> Point {
        match self.flags >> POINT_SHIFT & 7 {
            1 => Point::Delivered,
            2 => Point::Refused,
            _ => Point::Wire,
        }
    }

    /// The channel of the app that it concerns.
    #[must_use]
    pub const fn channel(self) -> Option<u32> {
        (self.info & ((1 << REASON_SHIFT) - 1)).checked_sub(1)
    }

    /// Why it was refused, if it was.
    #[must_use]
    pub const fn reason(self) -> Option<FrameRefusal> {
        FrameRefusal::from_u8((self.info >> REASON_SHIFT) as u8)
    }

    /// The two words of a header.
    #[inline]
    pub(crate) const fn words(self, length: u32) -> [u64; 2] {
        [length as u64 | (self.flags as u64) << 16 | (self.info as u64) << 32, self.time_ns]
    }

    /// The length and what else a header says.
    #[inline]
    pub(crate) const fn of_words([first, time_ns]: [u64; 2]) -> (u16, Self) {
        (first as u16, Self { time_ns, flags: (first >> 16) as u16, info: (first >> 32) as u32 })
    }
}

/// How far a burst is filled. Does not know where the burst is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filling {
    used_bytes: u32,
    count: u16,
}

impl Filling {
    /// Whether a frame of `length` bytes still fits into a burst of `capacity_bytes`.
    #[inline]
    #[must_use]
    pub fn has_room(&self, length: u32, capacity_bytes: u32) -> bool {
        self.count < BURST_FRAMES_MAX && packed_bytes(length) <= capacity_bytes - self.used_bytes
    }

    /// Takes the place of a frame, where its header starts; `None` if it does not fit. Panics if a
    /// frame cannot have that length.
    #[inline]
    pub(crate) fn take(&mut self, length: u32, capacity_bytes: u32) -> Option<u32> {
        assert!(is_frame_length(length), "a frame of {length} bytes");
        if !self.has_room(length, capacity_bytes) {
            return None;
        }
        let at = self.used_bytes;
        self.used_bytes += packed_bytes(length);
        self.count += 1;
        Some(at)
    }

    /// Adds a frame to the burst in `buffer`, on the app's side: its bytes, to be filled. `None` if
    /// it does not fit. Panics if a frame cannot have that length.
    #[inline]
    pub fn append<'a>(&mut self, buffer: &'a mut [u8], length: u32) -> Option<&'a mut [u8]> {
        let capacity_bytes = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let at = self.take(length, capacity_bytes)? as usize;
        let (header, rest) = buffer[at..].split_at_mut(FRAME_HEADER_BYTES as usize);
        let [first, time] = FrameInfo::default().words(length);
        header[..8].copy_from_slice(&first.to_ne_bytes());
        header[8..].copy_from_slice(&time.to_ne_bytes());
        Some(&mut rest[..length as usize])
    }

    /// Whether it has as many frames as a burst may have.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == BURST_FRAMES_MAX
    }

    /// Bytes of the burst so far.
    #[must_use]
    pub fn used_bytes(&self) -> u32 {
        self.used_bytes
    }

    /// Frames of the burst so far.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }
}

/// Whether a frame may have this length.
#[inline]
#[must_use]
pub const fn is_frame_length(length: u32) -> bool {
    FRAME_BYTES_MIN <= length && length <= FRAME_BYTES_MAX
}

/// A burst that an app has sent, on the daemon's side: what of it is still to be walked, in a
/// private copy by [`next_copied`](Self::next_copied), or in place by `DaemonEnd::next_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBurst {
    next: u32,
    end: u32,
    frames_left: u16,
}

/// A frame in the transmit pool, within bounds: to be copied with `DaemonEnd::read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// Where its bytes start in the transmit pool.
    pub offset: u32,
    /// Its bytes: from [`FRAME_BYTES_MIN`] to [`FRAME_BYTES_MAX`].
    pub length: u32,
}

impl SentBurst {
    /// The burst that a `SendFrames` names.
    #[must_use]
    pub fn new(offset: u32, length: u32, count: u16) -> Self {
        Self { next: offset, end: offset + length, frames_left: count }
    }

    /// Frames that were not walked yet.
    #[must_use]
    pub fn frames_left(&self) -> u16 {
        self.frames_left
    }

    /// Where what was not walked yet begins in the transmit pool.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.next
    }

    /// Bytes that were not walked yet.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.end - self.next
    }

    /// The next frame of a burst whose bytes from `start` of the transmit pool on were copied to
    /// `copy`; `None` after the last one that is there as a whole. A burst that is malformed is a
    /// violation at the frame where that shows.
    #[inline]
    pub fn next_copied(&mut self, copy: &[u8], start: u32) -> Result<Option<SentFrame>, Violation> {
        let Some(at) = self.header()? else { return Ok(None) };
        let header = copy.get((at - start) as usize..).and_then(<[u8]>::first_chunk);
        let Some(header) = header else { return Ok(None) };
        let mut walked = *self;
        let frame = walked.advance(words_of(header))?;
        if (walked.next - start) as usize > copy.len() {
            return Ok(None);
        }
        *self = walked;
        Ok(Some(frame))
    }

    /// The burst as it is once `count` frames of it are walked, of which `last` is the last.
    #[must_use]
    pub fn past(&self, count: u16, last: SentFrame) -> Self {
        let next = last.offset + last.length.next_multiple_of(FRAME_ALIGNMENT);
        Self { next, end: self.end, frames_left: self.frames_left - count }
    }

    /// Where the next header is; `None` after the last frame.
    #[inline]
    pub(crate) fn header(&self) -> Result<Option<u32>, Violation> {
        let left = self.end - self.next;
        match self.frames_left {
            0 if left == 0 => Ok(None),
            0 => Err(Violation::BurstLength),
            _ if left < FRAME_HEADER_BYTES => Err(Violation::BurstLength),
            _ => Ok(Some(self.next)),
        }
    }

    /// The frame whose header is `words`, each loaded once.
    #[inline]
    pub(crate) fn advance(&mut self, words: [u64; 2]) -> Result<SentFrame, Violation> {
        let (length, info) = FrameInfo::of_words(words);
        if !is_frame_length(length.into()) {
            return Err(Violation::FrameLength(length));
        }
        if info != FrameInfo::default() {
            return Err(Violation::FrameHeader);
        }
        let packed = packed_bytes(length.into());
        if packed > self.end - self.next {
            return Err(Violation::BurstLength);
        }
        let offset = self.next + FRAME_HEADER_BYTES;
        self.next += packed;
        self.frames_left -= 1;
        Ok(SentFrame { offset, length: length.into() })
    }
}

/// A burst that has come from the daemon, on the app's side: an iterator over its frames.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedBurst<'a> {
    rest: &'a [u8],
    frames_left: u16,
}

/// A frame that has come from the daemon, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame<'a> {
    /// The frame, from its Ethernet header on, without frame check sequence.
    pub bytes: &'a [u8],
    /// What the daemon says of it.
    pub info: FrameInfo,
}

impl<'a> ReceivedBurst<'a> {
    /// The burst that a `Frames` names, whose bytes these are. One that is damaged ends early.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8], count: u16) -> Self {
        Self { rest: bytes, frames_left: count }
    }

    /// Whether the bytes are just those of so many frames.
    #[inline]
    #[must_use]
    pub fn is_whole(mut self) -> bool {
        let count = usize::from(self.frames_left);
        self.by_ref().count() == count && self.rest.is_empty()
    }
}

impl<'a> Iterator for ReceivedBurst<'a> {
    type Item = ReceivedFrame<'a>;

    #[inline]
    fn next(&mut self) -> Option<ReceivedFrame<'a>> {
        self.frames_left = self.frames_left.checked_sub(1)?;
        let (header, rest) = self.rest.split_first_chunk::<{ FRAME_HEADER_BYTES as usize }>()?;
        let (length, info) = FrameInfo::of_words(words_of(header));
        let padded = u32::from(length).next_multiple_of(FRAME_ALIGNMENT) as usize;
        let (frame, rest) = rest.split_at_checked(padded)?;
        self.rest = rest;
        Some(ReceivedFrame { bytes: &frame[..usize::from(length)], info })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(usize::from(self.frames_left)))
    }
}

/// The words of a header whose bytes nobody else can write.
#[inline]
fn words_of(header: &[u8; FRAME_HEADER_BYTES as usize]) -> [u64; 2] {
    let (words, _) = header.as_chunks();
    [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])]
}

#[cfg(test)]
mod tests;
