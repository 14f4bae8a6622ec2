//! How much a turn takes from a queue, and gives it: many small frames, but few large ones. What is
//! small and comes behind waits for no more than that, and what a turn touches stays in the cache.

use clearway_nic::BURST_FRAMES;

use super::Queues;

/// Bytes each way, about: a message of 32 KB is in one turn.
const BYTES: usize = 24 * 1500;
/// The same where what leaves costs a system call, which is worth more packets.
const BYTES_OF_CALL: usize = 64 * 1500;

/// The bursts of an engine's queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bursts {
    bytes: usize,
    /// Frames of each queue that the next turn takes at most.
    frames: usize,
    /// Segments may come together.
    are_together: bool,
}

impl Bursts {
    pub(super) fn of(queues: &Queues) -> Self {
        let are_calls = queues.iter().any(|queue| queue.capabilities().flush_is_call);
        let are_together = queues.iter().any(|queue| queue.capabilities().receive_together);
        let bytes = if are_calls { BYTES_OF_CALL } else { BYTES };
        Self { bytes, frames: BURST_FRAMES, are_together }
    }

    /// Bytes that a turn gives a queue at most, about.
    pub(super) const fn bytes(self) -> usize {
        self.bytes
    }

    /// Frames that a turn takes from a queue at most.
    pub(super) const fn frames(self) -> usize {
        self.frames
    }

    /// Segments may come together.
    pub(super) const fn come_together(self) -> bool {
        self.are_together
    }

    /// So many frames, of so many bytes in all, were shown at once. If those were all that a turn
    /// takes, others of their length follow.
    #[inline]
    pub(super) fn took(&mut self, frames: usize, bytes: usize) {
        if frames >= self.frames {
            self.frames = (self.bytes * frames / bytes.max(1)).clamp(1, BURST_FRAMES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_so_many_bytes_as_far_as_it_knows() {
        let mut bursts = Bursts { bytes: 64 * 1500, frames: BURST_FRAMES, are_together: false };
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
            bursts.took(frames, bytes);
            assert_eq!(bursts.frames(), then, "after {frames} of {bytes} bytes");
        }
    }
}
