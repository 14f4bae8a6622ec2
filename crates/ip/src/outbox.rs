//! The interface's own frames on their way out, ready-made.

/// Frames that wait; more than a burst of the wire brings in is not worth answering.
const FRAMES_MAX: usize = 32;
/// No frame of the interface's own is longer: longer answers are cut (`fragmenting`).
pub const FRAME_BYTES_MAX: usize = 1518;

/// A bounded queue of whole frames, allocated once.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    lengths: [usize; FRAMES_MAX],
    first: usize,
    count: usize,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; FRAMES_MAX * FRAME_BYTES_MAX],
            lengths: [0; FRAMES_MAX],
            first: 0,
            count: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many frames wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// How many more have room.
    pub(super) fn room(&self) -> usize {
        FRAMES_MAX - self.count
    }

    /// Those that wait, the oldest first.
    pub(super) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        (self.first..self.first + self.count).map(|number| {
            let slot = number % FRAMES_MAX;
            &self.bytes[slot * FRAME_BYTES_MAX..][..self.lengths[slot]]
        })
    }

    /// Drops the newest frames, so that `length` are left.
    pub(super) fn truncate(&mut self, length: usize) {
        self.count = self.count.min(length);
    }

    /// Queues a frame of `length` bytes that `fill` writes. False if it does not fit.
    pub(super) fn push(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.count == FRAMES_MAX || length > FRAME_BYTES_MAX {
            return false;
        }
        let slot = (self.first + self.count) % FRAMES_MAX;
        let at = slot * FRAME_BYTES_MAX;
        fill(&mut self.bytes[at..at + length]);
        self.lengths[slot] = length;
        self.count += 1;
        true
    }

    /// Copies the oldest frame that fits into `frame` and returns its length; 0 if there is none.
    pub(super) fn pop_into(&mut self, frame: &mut [u8]) -> usize {
        while self.count > 0 {
            let (at, length) = (self.first * FRAME_BYTES_MAX, self.lengths[self.first]);
            self.first = (self.first + 1) % FRAMES_MAX;
            self.count -= 1;
            if let Some(frame) = frame.get_mut(..length) {
                frame.copy_from_slice(&self.bytes[at..at + length]);
                return length;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_in_order() {
        let mut outbox = Outbox::new();
        let mut frame = [0; 100];
        for round in 0..100u8 {
            assert!(outbox.push(3, |bytes| bytes.fill(round)));
            assert!(outbox.push(2, |bytes| bytes.fill(round + 1)));
            assert_eq!((outbox.pop_into(&mut frame), frame[2]), (3, round));
            assert_eq!((outbox.pop_into(&mut frame), frame[1]), (2, round + 1));
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn has_bounds() {
        let mut outbox = Outbox::new();
        assert!(!outbox.push(FRAME_BYTES_MAX + 1, |_| ()));
        assert!((0..FRAMES_MAX).all(|_| outbox.push(64, |_| ())));
        assert!(!outbox.push(1, |_| ()));
        // What does not fit into the buffer is dropped and does not block the others.
        assert_eq!(outbox.pop_into(&mut [0; 63]), 0);
        assert!(outbox.is_empty());
    }
}
