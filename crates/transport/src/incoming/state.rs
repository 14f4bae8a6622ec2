//! The receiving half as plain data, and back.

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};

use super::ahead::{Ahead, RANGES_MAX};
use super::{GAPS_MAX, Incoming, Partial};
use crate::app::{Buffer, Order};
use crate::config::MESSAGE_OVERHEAD;
use crate::state::{AheadState, IncomingState, POSITIONS_MAX, PartialState};

impl Incoming {
    pub(crate) fn save(&self) -> IncomingState {
        let partial = self.partial.iter().map(|(sequence, partial)| PartialState {
            sequence: *sequence,
            buffer: partial.buffer,
            order: partial.order,
            is_operation: partial.is_operation,
            received: partial.received.save(),
        });
        IncomingState {
            next: self.next,
            partial: partial.collect(),
            received: self.received,
            released: self.released,
            window: self.window,
            announced: self.announced,
            starved: self.starved,
            ahead: self.ahead.as_ref().map(|ahead| AheadState {
                is_unordered: ahead.is_unordered,
                delivered: ahead.delivered.save(),
                skipped: ahead.skipped.save(),
            }),
        }
    }

    pub(crate) fn restore(state: IncomingState) -> Result<Self, Invalid> {
        let bounds = [state.next, state.received, state.released, state.window, state.announced];
        ensure(bounds.iter().all(|at| *at < POSITIONS_MAX), "positions that there are not")?;
        let mut incoming = Self {
            next: state.next,
            begun: state.next,
            received: state.received,
            released: state.released,
            announced: state.announced,
            starved: state.starved,
            ..Self::new(state.window)
        };
        incoming.ahead = match state.ahead {
            Some(AheadState { is_unordered, delivered, skipped }) => Some(Box::new(Ahead {
                is_unordered,
                delivered: RangeSet::restore(delivered, RANGES_MAX)?,
                skipped: RangeSet::restore(skipped, RANGES_MAX)?,
            })),
            None => None,
        };
        let mut before = None;
        for partial in state.partial {
            let sequence = partial.sequence;
            let is_in_order = sequence >= state.next
                && before.is_none_or(|b| b < sequence)
                && !incoming.is_over(sequence);
            ensure(is_in_order, "messages that were delivered, or come twice")?;
            before = Some(sequence);
            incoming.restore_partial(partial)?;
        }
        incoming.check()?;
        Ok(incoming)
    }

    fn restore_partial(&mut self, state: PartialState) -> Result<(), Invalid> {
        let PartialState { sequence, buffer, order, is_operation, received } = state;
        let is_one = buffer.offset.checked_add(buffer.length).is_some();
        ensure(is_one, "a message beyond its pool")?;
        ensure(sequence < self.announced / MESSAGE_OVERHEAD + 1, "a message beyond the limit")?;
        let received = RangeSet::restore(received, GAPS_MAX as usize + 1)?;
        let end = received.last().map_or(0, |last| last.end);
        ensure(end <= u64::from(buffer.length), "bytes beyond the end of their message")?;
        let received_bytes = received.iter().map(|range| range.end - range.start).sum::<u64>();
        let received_bytes = received_bytes as u32;
        let partial = Partial { buffer, order, is_operation, received, received_bytes };
        self.gaps = self.gaps.saturating_add(partial.gaps());
        self.largest.begin(sequence, partial.positions(), self.window);
        self.partial.insert(sequence, partial);
        Ok(())
    }

    fn check(&self) -> Result<(), Invalid> {
        ensure(self.gaps <= GAPS_MAX, "too many gaps")?;
        for ranges in self.ahead.iter().flat_map(|ahead| [&ahead.delivered, &ahead.skipped]) {
            let is_within = ranges.first().is_none_or(|first| first.start > self.next)
                && ranges
                    .last()
                    .is_none_or(|last| last.end <= self.announced / MESSAGE_OVERHEAD + 1);
            ensure(is_within, "delivered, or skipped, messages that were not sent")?;
        }
        let books = self.books();
        let is_sum = books.unfinished.saturating_add(books.released) <= books.received
            && books.received <= books.announced;
        ensure(is_sum, "more was received, or released, than there was")?;
        let first = self.partial.get(&self.next);
        ensure(first.is_none_or(|first| !first.is_complete()), "a message that was not delivered")
    }

    /// One-sided operations are among what is not delivered.
    pub(crate) fn has_operations(&self) -> bool {
        self.partial.values().any(|partial| partial.is_operation)
    }

    /// The memory of messages that are not delivered.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = (Buffer, Order)> + '_ {
        self.partial.values().map(|partial| (partial.buffer, partial.order))
    }
}
