//! Where frames of apps are copied to and looked at before they leave: the app cannot change them
//! there, and it is not the NIC's memory, whose lines are in another core's cache.

use clearway_channel::burst::{SentBurst, SentFrame, packed_bytes};
use clearway_channel::{BURST_FRAMES_MAX, DaemonEnd, FRAME_BYTES_MAX, Violation};
use clearway_wire::digest::Digest;

/// One frame of any length fits, and a burst of those that Ethernet mostly has.
const BYTES: usize = packed_bytes(FRAME_BYTES_MAX) as usize;

const _: () = assert!(BYTES >= BURST_FRAMES_MAX as usize * packed_bytes(1518) as usize);

/// Frames of one burst, and their digests.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// The burst as it was in the app's pool, from `start` of that on.
    bytes: Box<[u8]>,
    start: u32,
    frames: Vec<SentFrame>,
    digests: Box<[Digest]>,
}

impl Staging {
    pub(super) fn new() -> Self {
        let frames = BURST_FRAMES_MAX.into();
        Self {
            bytes: vec![0; BYTES].into(),
            start: 0,
            frames: Vec::with_capacity(frames),
            digests: vec![Digest::default(); frames].into(),
        }
    }

    /// Copies what is left of a burst, at once, and finds its frames in the copy, with their
    /// digests; if it is too long, those of its beginning. An error says what is malformed behind
    /// the frames that were found.
    pub(super) fn copy(&mut self, end: &DaemonEnd, mut burst: SentBurst) -> Result<(), Violation> {
        self.frames.clear();
        let (start, length) = (burst.offset(), (burst.length() as usize).min(BYTES));
        self.start = start;
        let copy = &mut self.bytes[..length];
        end.read(start, copy);
        let copy = &*copy;
        // Where the next frame is depends on this one's length: the digest is made while that is
        // loaded.
        for digest in &mut self.digests {
            let Some(frame) = burst.next_copied(copy, start)? else { break };
            digest.become_of(bytes_of(frame, copy, start));
            self.frames.push(frame);
        }
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn digests(&self) -> &[Digest] {
        &self.digests[..self.frames.len()]
    }

    /// All frames, with their digests.
    #[inline]
    pub(super) fn frames(&self) -> impl Iterator<Item = (&[u8], &Digest)> {
        let frames = self.frames.iter().map(|frame| bytes_of(*frame, &self.bytes, self.start));
        frames.zip(&self.digests)
    }

    /// What is left of `burst` after the first `count` frames.
    pub(super) fn left_of(&self, burst: SentBurst, count: usize) -> SentBurst {
        match count.checked_sub(1) {
            Some(last) => burst.past(count as u16, self.frames[last]),
            None => burst,
        }
    }
}

/// The bytes of a frame, in a copy of its pool from `start` on.
#[inline]
fn bytes_of(frame: SentFrame, copy: &[u8], start: u32) -> &[u8] {
    &copy[(frame.offset - start) as usize..][..frame.length as usize]
}
