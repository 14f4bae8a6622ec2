//! Bursts of frames at the daemon's end: walking those that the app sent, filling those that it
//! receives.

use super::{Buffer, DaemonEnd};
use crate::burst::{Filling, FrameInfo, SentBurst, SentFrame};
use crate::layout::FRAME_HEADER_BYTES;
use crate::{Completion, Violation};

/// A burst in the receive pool that is being filled. Ends in a
/// [`completion`](BurstBuffer::completion), or in `DaemonEnd::discard`.
#[derive(Debug)]
#[must_use = "a burst that is dropped is lost to the pool"]
pub struct BurstBuffer {
    buffer: Buffer,
    filling: Filling,
}

impl BurstBuffer {
    /// Whether a frame of `length` bytes still fits.
    #[inline]
    #[must_use]
    pub fn has_room(&self, length: u32) -> bool {
        self.filling.has_room(length, self.buffer.length)
    }

    /// Frames so far.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.filling.count()
    }

    /// Names the buffer: to be granted with the completion, or discarded.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.buffer.id
    }

    /// Tells the app of the burst. It must have a frame.
    #[must_use]
    pub fn completion(&self, vif: u32) -> Completion {
        Completion::Frames {
            vif,
            offset: self.buffer.offset,
            length: self.filling.used_bytes(),
            buffer: self.buffer.id,
            count: self.filling.count(),
        }
    }
}

impl DaemonEnd {
    /// The next frame of a burst that the app sent, `None` after the last. Its bytes are to be
    /// copied by [`read`](Self::read) before they are looked at: the app may change them at any
    /// time. A burst that is malformed is a violation at the frame where that shows.
    #[inline]
    pub fn next_frame(&self, burst: &mut SentBurst) -> Result<Option<SentFrame>, Violation> {
        let Some(at) = burst.header()? else { return Ok(None) };
        let word = |at: u32| self.transmit.load_word(at as usize);
        let words = [word(at), word(at + 8)];
        let frame = burst.advance(words)?;
        self.transmit.prefetch((frame.offset + frame.length) as usize);
        Ok(Some(frame))
    }

    /// A burst in the receive pool for frames of `packed_bytes` in all (the sum of
    /// [`packed_bytes`](crate::burst::packed_bytes)); `None` if there is no room now. `owner` is
    /// given back by [`release`](Self::release).
    #[inline]
    pub fn allocate_burst(&mut self, packed_bytes: u32, owner: u32) -> Option<BurstBuffer> {
        let buffer = self.allocate(packed_bytes, owner)?;
        Some(BurstBuffer { buffer, filling: Filling::default() })
    }

    /// Adds a frame to a burst. Panics if it does not fit, or if a frame cannot have that length.
    #[inline]
    pub fn append_frame(&mut self, burst: &mut BurstBuffer, info: FrameInfo, frame: &[u8]) {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let at = burst.filling.take(length, burst.buffer.length).expect("room for the frame");
        let mut header = [0; FRAME_HEADER_BYTES as usize];
        let [first, time] = info.words(length);
        header[..8].copy_from_slice(&first.to_ne_bytes());
        header[8..].copy_from_slice(&time.to_ne_bytes());
        self.write(burst.buffer, at, &header);
        self.write(burst.buffer, at + FRAME_HEADER_BYTES, frame);
    }
}

#[cfg(test)]
mod tests;
