//! Messages that are not to leave after some time.
//!
//! There is no timer: one whose time is over is dropped when it would be next to leave. Its
//! positions are then used by a skip frame, which is acknowledged, and sent again, as a message is.

use std::collections::VecDeque;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};

use super::{Message, Outgoing};
use crate::app::Deadline;

/// Positions that messages may have of which the frames fill one byte of a packet: an empty message
/// takes 64 positions and a frame of 12 bytes.
const POSITIONS_PER_BYTE: u64 = 6;

/// A message with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Where it begins.
    pub(super) start: u64,
    pub(super) deadline: Deadline,
    /// It was not sent in time, and is not sent any more.
    pub(super) is_dropped: bool,
}

/// A message that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) sequence: u32,
    pub(crate) length: u32,
    /// One past its last position.
    pub(crate) end: u64,
}

/// Messages with deadlines, in the order in which they leave. One stays here until it has begun to
/// leave or, if it was dropped, until the peer knows; and as long as one before it does.
pub(super) type Deadlines = VecDeque<Timed>;

impl Outgoing {
    /// Appends a message that is dropped if it cannot leave in time.
    pub(crate) fn push_until(&mut self, offset: u32, length: u32, deadline: Deadline) {
        self.deadlines.push_back(Timed { start: self.end, deadline, is_dropped: false });
        self.push(offset, length);
    }

    /// True if messages have deadlines, or some that had one are not acknowledged.
    #[inline]
    pub(crate) fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// Drops those whose time is over, of the messages of which nothing has left and which could
    /// be in the next packet, with room for so many bytes.
    #[cold]
    pub(crate) fn drop_late(&mut self, now: Time, room_bytes: usize) {
        let first = self.deadlines.partition_point(|timed| timed.start < self.next);
        let end = self.next.saturating_add(room_bytes as u64 * POSITIONS_PER_BYTE);
        let next = self.deadlines.range_mut(first..).take_while(|timed| timed.start < end);
        next.for_each(|timed| timed.is_dropped |= timed.deadline.at < now);
    }

    pub(super) fn is_dropped(&self, message: &Message) -> bool {
        let at = self.deadlines.binary_search_by_key(&message.start, |timed| timed.start);
        at.is_ok_and(|at| self.deadlines[at].is_dropped)
    }

    /// The message at `cursor`, which was dropped.
    pub(crate) fn skipped(&self, cursor: usize) -> Option<Skipped> {
        let message = self.messages.get(cursor)?;
        let sequence = self.first_sequence.wrapping_add(cursor as u32);
        Some(Skipped { sequence, length: message.length, end: message.end() })
    }

    pub(super) fn save_deadlines(&self) -> Vec<(u64, Deadline, bool)> {
        let first = self.messages.front().map_or(self.end, |message| message.start);
        let kept = self.deadlines.iter().filter(|timed| timed.start >= first);
        kept.map(|timed| (timed.start, timed.deadline, timed.is_dropped)).collect()
    }

    /// After its messages.
    pub(super) fn restore_deadlines(
        &mut self,
        saved: &[(u64, Deadline, bool)],
    ) -> Result<(), Invalid> {
        let mut messages = self.messages.iter();
        for &(start, deadline, is_dropped) in saved {
            let found = messages.find(|message| message.start >= start);
            let is_there = found.is_some_and(|it| it.start == start && !it.is_operation());
            ensure(is_there, "a deadline of no message")?;
            self.deadlines.push_back(Timed { start, deadline, is_dropped });
        }
        Ok(())
    }

    /// The engine's name for the next message that was dropped, and of which the peer knows that.
    #[cold]
    pub(crate) fn take_dropped(&mut self) -> Option<u32> {
        while let Some(Timed { start, deadline, is_dropped }) = self.deadlines.front().copied() {
            let is_over = start < if is_dropped { self.acknowledged } else { self.next };
            if !is_over {
                return None;
            }
            self.deadlines.pop_front();
            if is_dropped {
                return Some(deadline.number);
            }
        }
        None
    }
}
