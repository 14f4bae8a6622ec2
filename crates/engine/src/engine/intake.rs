//! How much of what has come a turn takes: many small frames, but few large ones. What is small and
//! comes behind waits for no more than that.

use clearway_nic::BURST_FRAMES;

use super::BURST_BYTES;

/// How many frames of each queue the next turn takes at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intake {
    frames: usize,
}

impl Intake {
    pub(super) const fn new() -> Self {
        Self { frames: BURST_FRAMES }
    }

    pub(super) const fn frames(self) -> usize {
        self.frames
    }

    /// So many frames, of so many bytes in all, were shown at once. If those were all that a turn
    /// takes, others of their length follow.
    #[inline]
    pub(super) fn took(&mut self, frames: usize, bytes: usize) {
        if frames >= self.frames {
            self.frames = (BURST_BYTES * frames / bytes.max(1)).clamp(1, BURST_FRAMES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_so_many_bytes_as_far_as_it_knows() {
        let mut intake = Intake::new();
        for (frames, bytes, then) in [
            (BURST_FRAMES, BURST_FRAMES * 64, BURST_FRAMES),
            (BURST_FRAMES, BURST_FRAMES * 1500, BURST_FRAMES),
            (20, 20 * 9000, BURST_FRAMES), // which were all
            (BURST_FRAMES, BURST_FRAMES * 9000, 10),
            (9, 9 * 64, 10),
            (10, 10 * 65_000, 1),
            (1, 64, BURST_FRAMES),
            (BURST_FRAMES, 0, BURST_FRAMES),
        ] {
            intake.took(frames, bytes);
            assert_eq!(intake.frames(), then, "after {frames} of {bytes} bytes");
        }
    }
}
