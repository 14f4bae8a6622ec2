//! One direction of a channel: a ring of cache-line entries between one producer and one consumer.
//!
//! ```text
//!   producer (private: tail, how far it may go)      consumer (private: position)
//!        │ writes words 1.., then word 0 with the turn     │ reads word 0; its turn says whether
//!        ▼                                                 ▼ the entry is new; then the rest
//!   [entry][entry][entry][entry]...            head ◀── published at least each quarter ring
//! ```
//!
//! There is no shared tail: an entry carries the lap it was written in (`turn`, from 1), so the
//! consumer finds out by looking at the entry itself, and a message crosses between two cores with
//! one cache line. The head crosses rarely: the producer looks at it only when the ring seems full.
//!
//! What the words mean is not known here (`entry.rs`), nor who sleeps (`sleep.rs`). Generic over
//! where the memory is, so that loom and Miri can run the same code on ordinary memory.

use crate::layout::ENTRY_WORDS;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The words of an entry, as both sides see them.
pub(crate) type Entry = [AtomicU64; ENTRY_WORDS];

/// Where a ring lives.
pub(crate) trait RingMemory {
    /// The entry at `position`, counted on from lap to lap.
    fn entry(&self, position: u32) -> &Entry;
    /// How many entries the consumer has taken.
    fn head(&self) -> &AtomicU32;
}

/// The head that the consumer published cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadHead {
    pub(crate) found: u32,
    pub(crate) taken: u32,
    pub(crate) written: u32,
}

/// An entry that is neither from this lap nor from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadTurn {
    pub(crate) found: u32,
    pub(crate) expected: u32,
}

/// The writing side of a ring.
pub(crate) struct Producer<M> {
    memory: M,
    tail: u64,
    /// Where the room ends: behind the head as it was seen last by all entries.
    end: u32,
    entries: u32,
    entries_log2: u32,
}

impl<M: RingMemory> Producer<M> {
    /// The producer of an empty ring of `entries`, a power of two.
    pub(crate) fn new(memory: M, entries: u32) -> Self {
        assert!(entries.is_power_of_two());
        Self { memory, tail: 0, end: entries, entries, entries_log2: entries.trailing_zeros() }
    }

    /// Goes on behind the first `tail` entries, of which the consumer has taken those before `head`
    /// at least.
    pub(crate) fn go_on(&mut self, tail: u64, head: u32) {
        (self.tail, self.end) = (tail, head.wrapping_add(self.entries));
    }

    /// How far the consumer is, as far as is known.
    pub(crate) fn head_known(&self) -> u32 {
        self.end.wrapping_sub(self.entries)
    }

    /// Free entries as far as is known without looking at the shared head.
    #[inline]
    pub(crate) fn room_known(&self) -> u32 {
        self.end.wrapping_sub(self.tail as u32)
    }

    /// Looks at the shared head, which may lie; then [`Self::room_known`] is up to date.
    pub(crate) fn refresh(&mut self) -> Result<(), BadHead> {
        // Acquire pairs with the Release in `Consumer::publish`: the consumer's loads of the
        // entries that it gave back happen before our stores to them.
        let found = self.memory.head().load(Ordering::Acquire);
        let (taken, written) = (self.head_known(), self.tail as u32);
        if found.wrapping_sub(taken) > written.wrapping_sub(taken) {
            return Err(BadHead { found, taken, written });
        }
        self.end = found.wrapping_add(self.entries);
        Ok(())
    }

    /// Writes one entry: `fill` stores words 1.. (relaxed) and returns the upper half of word 0.
    /// The caller has made sure that there is room.
    #[inline]
    pub(crate) fn push(&mut self, fill: impl FnOnce(&Entry) -> u32) {
        debug_assert!(self.room_known() > 0);
        let entry = self.memory.entry(self.tail as u32);
        let upper = fill(entry);
        let word = u64::from(upper) << 32 | u64::from(turn_of(self.tail, self.entries_log2));
        // Release pairs with the Acquire in `Consumer::peek`: who sees this turn sees the words
        // that `fill` stored, and the payload they name.
        entry[0].store(word, Ordering::Release);
        self.tail += 1;
    }

    /// How many entries were written since the beginning.
    pub(crate) fn written(&self) -> u64 {
        self.tail
    }
}

/// The reading side of a ring.
pub(crate) struct Consumer<M> {
    memory: M,
    position: u64,
    /// The producer is told of what was taken when the position is here: so many behind the one
    /// that it was told last.
    publish_at: u64,
    unpublished_max: u64,
    entries_log2: u32,
}

impl<M: RingMemory> Consumer<M> {
    /// The consumer of an empty ring of `entries`, a power of two.
    pub(crate) fn new(memory: M, entries: u32) -> Self {
        assert!(entries.is_power_of_two());
        let unpublished_max = u64::from(entries / 4).max(1);
        let entries_log2 = entries.trailing_zeros();
        Self { memory, position: 0, publish_at: unpublished_max, unpublished_max, entries_log2 }
    }

    /// Goes on behind the first `position` entries.
    pub(crate) fn go_on(&mut self, position: u64) {
        // Whatever was published before: it is not known.
        (self.position, self.publish_at) = (position, position);
        self.publish();
    }

    /// The upper half of word 0 and the words of the next entry, if it has been written. The
    /// words can change while a hostile producer lives: load each once.
    #[inline]
    pub(crate) fn peek(&self) -> Result<Option<(u32, &Entry)>, BadTurn> {
        let entry = self.memory.entry(self.position as u32);
        // Acquire pairs with the Release in `Producer::push`.
        let word = entry[0].load(Ordering::Acquire);
        let expected = turn_of(self.position, self.entries_log2);
        let found = word as u32;
        if found == expected {
            Ok(Some(((word >> 32) as u32, entry)))
        } else if found == expected.wrapping_sub(1) {
            Ok(None)
        } else {
            Err(BadTurn { found, expected })
        }
    }

    /// Done with the entry that `peek` showed.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.position += 1;
        if self.position >= self.publish_at {
            self.publish();
        }
    }

    /// Lets the producer have back what was taken so far.
    #[inline]
    pub(crate) fn publish(&mut self) {
        let publish_at = self.position + self.unpublished_max;
        if self.publish_at != publish_at {
            self.publish_at = publish_at;
            // Release pairs with the Acquire in `Producer::refresh`.
            self.memory.head().store(self.position as u32, Ordering::Release);
        }
    }

    /// How many entries were taken since the beginning.
    pub(crate) fn taken(&self) -> u64 {
        self.position
    }
}

/// The lap that `position` is in, from 1, wrapping. Memory that was never written has lap 0.
#[inline]
fn turn_of(position: u64, entries_log2: u32) -> u32 {
    ((position >> entries_log2) as u32).wrapping_add(1)
}

#[cfg(test)]
pub(crate) mod tests;
