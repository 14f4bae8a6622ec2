//! A batch of packets on their way through the trees and hash tables.

use crate::table::BATCH_MAX;
use clearway_wire::digest::Digest;

/// For each packet, what is hashed and compared most, side by side, and the best match so far.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) count: usize,
    pub(super) word_0: [u64; BATCH_MAX],
    pub(super) word_3: [u64; BATCH_MAX],
    /// The rank of the best match so far; the maximum if there is none.
    pub(super) rank: [u64; BATCH_MAX],
    pub(super) id: [u32; BATCH_MAX],
    /// Which packet of the whole batch it is.
    pub(super) which: [u8; BATCH_MAX],
}

impl Search {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            count: 0,
            word_0: [0; BATCH_MAX],
            word_3: [0; BATCH_MAX],
            rank: [u64::MAX; BATCH_MAX],
            id: [0; BATCH_MAX],
            which: [0; BATCH_MAX],
        }
    }

    /// No packets.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a packet.
    #[inline]
    pub(super) fn push(&mut self, digest: &Digest, which: usize) {
        let at = self.count;
        self.word_0[at] = digest.words()[0];
        self.word_3[at] = digest.words()[3];
        self.rank[at] = u64::MAX;
        self.which[at] = which as u8;
        self.count += 1;
    }

    #[inline]
    pub(super) fn found(&self, at: usize) -> Option<u32> {
        (self.rank[at] != u64::MAX).then_some(self.id[at])
    }
}
