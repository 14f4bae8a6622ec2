//! What can happen to a frame under way, and the dice.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_base::Random;

const PPM: u64 = 1_000_000;
/// Most bits that corruption flips in one frame.
const BITS_FLIPPED_MAX: u64 = 3;

/// How likely each fault is, in millionths, and how bad. All zero, the default, is a perfect wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The frame is lost.
    pub loss_ppm: u32,
    /// The frame arrives twice.
    pub duplication_ppm: u32,
    /// One to three bits of the frame are flipped.
    pub corruption_ppm: u32,
    /// The frame is held back until later ones have overtaken it.
    pub reordering_ppm: u32,
    /// How many frames overtake at most. A held frame also comes forward when the receiver has found
    /// nothing that many times, so that the last frame of all is never stuck.
    pub reordering_frames_max: u16,
    /// Every frame takes this long; see [`super::Handle::set_time`].
    pub latency_ns: u64,
    /// The frame takes longer than that.
    pub delay_ppm: u32,
    /// How much longer at most.
    pub delay_ns_max: u64,
}

impl Faults {
    /// Some of everything but delay: `ppm` of each, with up to 8 frames overtaking.
    #[must_use]
    pub const fn all(ppm: u32) -> Self {
        Self {
            loss_ppm: ppm,
            duplication_ppm: ppm,
            corruption_ppm: ppm,
            reordering_ppm: ppm,
            reordering_frames_max: 8,
            latency_ns: 0,
            delay_ppm: 0,
            delay_ns_max: 0,
        }
    }

    /// A cut wire that does not know it: everything is lost.
    #[must_use]
    pub const fn partition() -> Self {
        Self { loss_ppm: PPM as u32, ..Self::all(0) }
    }
}

/// How many frames had which fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames lost.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames with flipped bits.
    pub corrupted: u64,
    /// Frames held back for others to overtake.
    pub reordered: u64,
    /// Frames delayed beyond the latency of all.
    pub delayed: u64,
}

/// What happens to one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) copies: u8,
    /// Frames that may overtake; 0 for none.
    pub(super) overtaken_by: u16,
    pub(super) delay_ns: u64,
}

/// Counts faults across all queues of a fabric.
#[derive(Debug, Default)]
pub(super) struct FaultTally {
    lost: AtomicU64,
    duplicated: AtomicU64,
    corrupted: AtomicU64,
    reordered: AtomicU64,
    delayed: AtomicU64,
}

impl FaultTally {
    /// Decides about `frame`, and flips its bits. Always draws as many numbers for the same frame and
    /// faults, so that a run can be replayed.
    pub(super) fn decide(&self, faults: &Faults, random: &mut Random, frame: &mut [u8]) -> Fate {
        let mut fate = Fate { copies: 1, delay_ns: faults.latency_ns, ..Fate::default() };
        if roll(random, faults.loss_ppm, &self.lost) {
            return Fate { lost: true, ..fate };
        }
        if roll(random, faults.corruption_ppm, &self.corrupted) {
            flip_bits(random, frame);
        }
        if roll(random, faults.duplication_ppm, &self.duplicated) {
            fate.copies = 2;
        }
        if roll(random, faults.reordering_ppm, &self.reordered) {
            fate.overtaken_by = 1 + random.below(faults.reordering_frames_max.into()) as u16;
        }
        if roll(random, faults.delay_ppm, &self.delayed) {
            fate.delay_ns += random.below(faults.delay_ns_max) + 1;
        }
        fate
    }

    pub(super) fn counts(&self) -> FaultCounts {
        FaultCounts {
            lost: self.lost.load(Ordering::Relaxed),
            duplicated: self.duplicated.load(Ordering::Relaxed),
            corrupted: self.corrupted.load(Ordering::Relaxed),
            reordered: self.reordered.load(Ordering::Relaxed),
            delayed: self.delayed.load(Ordering::Relaxed),
        }
    }
}

fn roll(random: &mut Random, ppm: u32, count: &AtomicU64) -> bool {
    let hit = ppm > 0 && random.chance(ppm.into(), PPM);
    if hit {
        count.fetch_add(1, Ordering::Relaxed);
    }
    hit
}

fn flip_bits(random: &mut Random, frame: &mut [u8]) {
    let first = random.below(frame.len() as u64 * 8) as usize;
    for flip in 0..=random.below(BITS_FLIPPED_MAX) as usize {
        // Different bits each time, so that no two flips cancel out.
        let bit = (first + flip * 13) % (frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
    }
}
