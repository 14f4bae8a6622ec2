//! The sending half as plain data, and back.

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};

use super::{Message, Outgoing, RANGES_MAX};
use crate::config::MESSAGE_OVERHEAD;
use crate::state::{OutgoingState, POSITIONS_MAX};

impl Outgoing {
    pub(crate) fn save(&self) -> OutgoingState {
        OutgoingState {
            first_sequence: self.first_sequence,
            start: self.messages.front().map_or(self.end, |message| message.start),
            messages: self.messages.iter().map(|m| (m.offset, m.length)).collect(),
            next: self.next,
            acknowledged: self.acknowledged,
            acknowledged_above: self.acknowledged_above.save(),
            lost: self.lost.save(),
            limit: self.granted.min(POSITIONS_MAX), // whatever the peer says
            deadlines: self.save_deadlines(),
        }
    }

    /// `in_flight`: the positions that packets in flight have carried. What is nowhere else is
    /// there, or the state is none of this program.
    pub(crate) fn restore(state: OutgoingState, in_flight: RangeSet) -> Result<Self, Invalid> {
        let bounds = [state.start, state.next, state.acknowledged, state.limit];
        ensure(bounds.iter().all(|at| *at <= POSITIONS_MAX), "positions that there are not")?;
        let mut outgoing = Self {
            first_sequence: state.first_sequence,
            next: state.next,
            end: state.start,
            acknowledged: state.acknowledged,
            acknowledged_above: RangeSet::restore(state.acknowledged_above, RANGES_MAX)?,
            lost: RangeSet::restore(state.lost, RANGES_MAX)?,
            limit: state.limit,
            granted: state.limit,
            ..Self::default()
        };
        for (offset, length) in state.messages {
            ensure(outgoing.end < POSITIONS_MAX, "more messages than there are positions")?;
            ensure(offset.checked_add(length).is_some(), "a message beyond its pool")?;
            outgoing.push(offset, length);
            let pushed = outgoing.messages.back();
            outgoing.operations += u32::from(pushed.is_some_and(|message| message.is_operation()));
            outgoing.answers += u32::from(pushed.is_some_and(|message| message.is_answer()));
        }
        outgoing.restore_deadlines(&state.deadlines)?;
        outgoing.next_index = outgoing.messages.partition_point(|m| m.end() <= state.next);
        outgoing.check(in_flight)?;
        Ok(outgoing)
    }

    fn check(&self, in_flight: RangeSet) -> Result<(), Invalid> {
        let in_order = self.acknowledged <= self.next && self.next <= self.end;
        ensure(in_order, "positions out of order")?;
        let first = self.messages.front();
        let is_begun = first.map_or(self.acknowledged == self.end, |first| {
            (first.start..first.end()).contains(&self.acknowledged)
        });
        ensure(is_begun, "messages that have arrived and are kept, or have not and are not")?;
        ensure(self.is_next_possible(), "a part of a message's overhead is sent")?;
        let mut known = in_flight;
        for ranges in [&self.lost, &self.acknowledged_above] {
            let is_within = ranges.first().is_none_or(|first| first.start >= self.acknowledged)
                && ranges.last().is_none_or(|last| last.end <= self.next);
            ensure(is_within, "ranges of what was never sent, or has arrived")?;
            ranges.iter().for_each(|range| _ = known.insert(range));
        }
        known.remove(0..self.acknowledged);
        let all = Some(self.acknowledged..self.next).filter(|range| !range.is_empty());
        ensure(known.iter().eq(all), "positions that are neither sent, lost nor acknowledged")
    }

    /// Packets end with a message, or within its bytes.
    fn is_next_possible(&self) -> bool {
        self.messages.get(self.next_index).is_none_or(|message| {
            self.next == message.start || self.next > message.start + MESSAGE_OVERHEAD
        })
    }
}

impl Message {
    /// The bytes that it occupies in the transmit pool.
    pub(super) const fn extent(&self) -> (u32, u32) {
        (self.offset, self.length)
    }
}

impl Outgoing {
    /// Where in the transmit pool its messages are.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.messages.iter().filter(|message| !message.is_operation()).map(Message::extent)
    }
}
