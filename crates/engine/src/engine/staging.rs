//! Where frames of apps are copied to and looked at before they leave: the app cannot change them
//! there, and it is not the NIC's memory, whose lines are in another core's cache.

use clearway_channel::burst::{SentBurst, SentFrame};
use clearway_channel::{BURST_FRAMES_MAX, FRAME_BYTES_MAX};
use clearway_wire::digest::Digest;

/// As many frames as a burst may have, of the size that Ethernet has mostly. Of larger ones fewer are
/// staged at a time.
const BYTES: usize = BURST_FRAMES_MAX as usize * 2048;
/// Frames begin at multiples of this: a cache line.
const ALIGNMENT: usize = 64;

const _: () = assert!(BYTES >= FRAME_BYTES_MAX as usize, "one frame always fits");

/// Frames of one burst, and their digests.
#[derive(Debug, Default)]
pub(super) struct Staging {
    bytes: Box<[u8]>,
    used: usize,
    frames: Vec<Staged>,
    digests: Box<[Digest]>,
}

#[derive(Clone, Copy, Debug)]
struct Staged {
    /// Where its copy begins.
    start: u32,
    frame: SentFrame,
}

impl Staging {
    pub(super) fn new() -> Self {
        let frames = BURST_FRAMES_MAX.into();
        Self {
            bytes: vec![0; BYTES].into(),
            used: 0,
            frames: Vec::with_capacity(frames),
            digests: vec![Digest::default(); frames].into(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.frames.clear();
    }

    /// Room for a frame, the next of the burst; `None` if there is none left.
    #[inline]
    pub(super) fn place(&mut self, frame: SentFrame) -> Option<&mut [u8]> {
        let (start, length) = (self.used, frame.length as usize);
        let place = self.bytes.get_mut(start..start + length)?;
        self.used = (start + length).next_multiple_of(ALIGNMENT);
        self.frames.push(Staged { start: start as u32, frame });
        Some(place)
    }

    /// Makes the digests of all frames.
    #[inline]
    pub(super) fn look(&mut self) {
        for (digest, frame) in self.digests.iter_mut().zip(&self.frames) {
            digest.become_of(frame.bytes(&self.bytes));
        }
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
        let frames = self.frames.iter().map(|frame| frame.bytes(&self.bytes));
        frames.zip(&self.digests)
    }

    /// What is left of `burst` after the first `count` frames.
    pub(super) fn left_of(&self, burst: SentBurst, count: usize) -> SentBurst {
        match count.checked_sub(1) {
            Some(last) => burst.past(count as u16, self.frames[last].frame),
            None => burst,
        }
    }
}

impl Staged {
    #[inline]
    fn bytes(self, all: &[u8]) -> &[u8] {
        &all[self.start as usize..][..self.frame.length as usize]
    }
}
