//! Where messages lie that came before their turn. They are given to the app only after one that is
//! still to come, and until then nothing else can take their place; so they must leave room for
//! that one, whatever its size.
//!
//! Bytes alone do not say that: the pool cuts slabs of 64 KiB into cells of one size, and four
//! early messages of four sizes would leave a pool of 256 KiB with no place for a fifth. So all of
//! them lie in one half of the pool, either one, and the other half is free once the app has
//! released what it has.

use clearway_transport::Buffer;

/// The smallest half that has room for cells of any size: one slab of the pool.
const HALF_BYTES_MIN: u32 = 64 << 10;

/// Early messages, counted by the half of the receive pool that they lie in.
#[derive(Debug)]
pub(super) struct Early {
    half_bytes: u32,
    held: [u32; 2],
}

impl Early {
    pub(super) const fn new(pool_bytes: u32) -> Self {
        Self { half_bytes: pool_bytes / 2, held: [0; 2] }
    }

    /// Counts an early message in. False if it may not lie there.
    pub(super) const fn begin(&mut self, buffer: Buffer) -> bool {
        let half = self.half(buffer);
        let fits = self.half_bytes >= HALF_BYTES_MIN && buffer.length <= self.half_bytes;
        if !fits || self.held[1 - half] > 0 {
            return false;
        }
        self.held[half] += 1;
        true
    }

    /// It is not early any more.
    pub(super) const fn end(&mut self, buffer: Buffer) {
        self.held[self.half(buffer)] -= 1;
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u32 {
        self.held[0] + self.held[1]
    }

    const fn half(&self, buffer: Buffer) -> usize {
        (buffer.offset >= self.half_bytes) as usize
    }
}

#[cfg(test)]
mod tests {
    use clearway_channel::{DaemonEnd, Sizes};

    use super::*;

    /// Takes early messages of all sizes until no more are allowed; then one that is due must fit.
    fn leaves_room(pool_bytes: u32, due_bytes: u32) -> bool {
        let (transmit_pool_bytes, receive_pool_bytes) = (64 << 10, pool_bytes);
        let entries = 16;
        let sizes = Sizes {
            submission_entries: entries,
            completion_entries: entries,
            transmit_pool_bytes,
            receive_pool_bytes,
            shared_bytes: 0,
        };
        let (mut end, _handover) = DaemonEnd::create(sizes).expect("memory");
        let mut early = Early::new(pool_bytes);
        for length in (0..16).map(|log2| 1 << log2).cycle().take(1000) {
            let Some(buffer) = end.allocate(length, 0) else { continue };
            let clearway_channel::Buffer { id, offset, length } = buffer;
            if !early.begin(Buffer { id, offset, length }) {
                end.discard(id);
            }
        }
        end.allocate(due_bytes, 0).is_some()
    }

    #[test]
    fn early_messages_of_all_sizes_leave_half_of_the_pool() {
        for pool_bytes in [128 << 10, 256 << 10, 1 << 20] {
            for due_bytes in [0, 64, 100, 1000, 5000, 8192, pool_bytes / 2] {
                assert!(leaves_room(pool_bytes, due_bytes), "{pool_bytes}: {due_bytes}");
            }
        }
    }

    #[test]
    fn a_pool_of_one_slab_takes_nothing_early() {
        assert!(leaves_room(64 << 10, 64 << 10));
    }

    #[test]
    fn what_has_had_its_turn_makes_room_in_the_other_half() {
        let mut early = Early::new(256 << 10);
        let (low, high) = ((128 << 10) - 64, 128 << 10);
        let at = |offset| Buffer { id: 0, offset, length: 10 };
        assert!(early.begin(at(low)) && early.begin(at(0)) && !early.begin(at(high)));
        early.end(at(low));
        assert!(!early.begin(at(high)));
        early.end(at(0));
        assert!(early.begin(at(high)) && !early.begin(at(low)));
    }
}
