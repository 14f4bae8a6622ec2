//! The sending half of a connection: messages as one sequence space.
//!
//! ```text
//!  position 0          64        64+n  64+n+64
//!           ├─overhead──┼──n bytes─┼─overhead─┼──m bytes─── ...
//!           └────────message 0─────┴────────message 1────── ...
//!                 acknowledged ▲        next ▲         end ▲      limit ▲
//! ```
//! A packet carries one contiguous range of positions, so what was lost is a range again, however
//! many messages it touches. Loss detection itself is not here; see `recovery.rs`.

mod deadlines;
mod operations;
mod state;

use clearway_base::{RangeSet, ShortQueue};
use core::ops::Range;

use crate::company::OPERATION_POSITIONS;
use crate::config::MESSAGE_OVERHEAD;
use deadlines::Deadlines;
pub(crate) use operations::Carried;

/// Ranges of positions that are acknowledged, or lost, between others that are not, at most: the
/// peer could make as many as there are packets, or messages in the app's pool. To find a place
/// among so many costs no more than some packets; honest paths make fewer unless one packet in
/// eight is lost.
const RANGES_MAX: usize = crate::config::PACKETS_IN_FLIGHT_MAX / 8;

/// A message that the app has submitted: where its bytes are, and its place in the sequence space.
/// Or a one-sided operation, whose name stands in the place of the offset (`operations.rs`).
#[derive(Clone, Copy, Debug)]
struct Message {
    start: u64,
    offset: u32,
    length: u32,
}

impl Message {
    const fn end(&self) -> u64 {
        self.start + MESSAGE_OVERHEAD + self.length as u64
    }
}

/// A part of a message, to go into one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The message's sequence number.
    pub(crate) sequence: u32,
    /// The length of the whole message.
    pub(crate) total: u32,
    /// Where in the message this part begins.
    pub(crate) at: u32,
    /// Its length.
    pub(crate) length: u32,
    /// Where in the app's transmit pool its bytes are.
    pub(crate) offset: u32,
    /// The positions it covers.
    pub(crate) end: u64,
}

/// How many have arrived, and are no longer kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) messages: u32,
    pub(crate) operations: u32,
}

impl core::ops::AddAssign for Done {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.operations += other.operations;
    }
}

/// Messages on their way out.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    messages: ShortQueue<Message>,
    /// Sequence number of the first of `messages`.
    first_sequence: u32,
    /// Index in `messages` of the one that holds `next`.
    next_index: usize,
    /// How many of `messages` are one-sided operations, and how many of these are answers.
    operations: u32,
    answers: u32,
    /// The first position never sent.
    next: u64,
    /// One past the last position of all messages.
    end: u64,
    /// Every position below has been acknowledged.
    acknowledged: u64,
    /// Acknowledged ranges above `acknowledged`.
    acknowledged_above: RangeSet,
    /// What is to be sent again.
    lost: RangeSet,
    /// Positions from here on may not be used yet: the receiver's limit, or less while it has no
    /// memory for what is behind.
    limit: u64,
    /// The receiver's limit.
    granted: u64,
    turned_away: TurnedAway,
    deadlines: Deadlines,
}

/// What the receiver had no memory for.
#[derive(Clone, Copy, Debug, Default)]
struct TurnedAway {
    /// It was in packets with numbers below this.
    packets_end: u64,
    /// It was positions from here on.
    start: u64,
    /// What is told of packets with numbers below this is older than the limit.
    told_end: u64,
}

/// The sending half's part of [`crate::FlowBooks`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    pub(crate) end: u64,
    pub(crate) next: u64,
    pub(crate) acknowledged: u64,
    pub(crate) limit: u64,
}

impl Outgoing {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, granted: limit, ..Self::default() }
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, offset: u32, length: u32) {
        let message = Message { start: self.end, offset, length };
        self.end = message.end();
        self.messages.push_back(message);
    }

    /// Raises the limit; a lower one than before is an old one that arrived late.
    pub(crate) fn raise_limit(&mut self, limit: u64) -> bool {
        let raised = limit > self.granted;
        self.granted = self.granted.max(limit);
        self.try_again();
        raised
    }

    /// The receiver has told its limit, and may have memory again. `next_number`: that of the next
    /// packet.
    pub(crate) fn take_limit(&mut self, limit: u64, next_number: u64) {
        self.turned_away.told_end = next_number;
        self.raise_limit(limit);
    }

    /// The receiver has no memory for the message with this sequence number, which the packet with
    /// this number, or one before it, has carried: that was not lost. What was sent before the
    /// receiver said that it has memory again tells nothing.
    pub(crate) fn wait(&mut self, sequence: u32, number: u64) {
        let index = sequence.wrapping_sub(self.first_sequence) as usize;
        let Some(message) = self.messages.get(index) else { return };
        if number >= self.turned_away.told_end {
            self.turned_away.packets_end = self.turned_away.packets_end.max(number + 1);
            self.turned_away.start = message.start;
            self.limit = self.limit.min(message.start);
        }
    }

    /// What the receiver had no memory for is sent again, whatever it says.
    pub(crate) const fn try_again(&mut self) {
        self.limit = self.granted;
    }

    /// True if the receiver had no memory for the end of this range, which the packet with this
    /// number has carried.
    pub(crate) const fn was_turned_away(&self, range: &Range<u64>, number: u64) -> bool {
        number < self.turned_away.packets_end && range.end > self.turned_away.start
    }

    /// The next range to send: what was lost first, then what is new and within the limit.
    /// Nothing changes until [`Outgoing::sent`].
    #[inline]
    pub(crate) fn next_range(&self) -> Option<Range<u64>> {
        if self.lost.is_empty() && self.end <= self.limit {
            return (self.next < self.end).then_some(self.next..self.end);
        }
        self.next_range_held_up()
    }

    /// The same where something was lost, or the limit does not allow for all messages.
    #[inline(never)]
    fn next_range_held_up(&self) -> Option<Range<u64>> {
        if let Some(lost) = self.lost.first() {
            let range = lost.start..lost.end.min(self.limit);
            return (!range.is_empty()).then_some(range);
        }
        let end = self.end.min(self.limit);
        // The overhead and the first byte of a message travel together.
        let message = self.messages.get(self.next_index)?;
        let starts = self.next == message.start;
        let needs =
            if starts { (MESSAGE_OVERHEAD + 1).min(message.end() - message.start) } else { 1 };
        (self.next + needs <= end).then_some(self.next..end)
    }

    /// True if [`Outgoing::next_range`] has something.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        self.next_range().is_some()
    }

    /// The receiver's limit, and not the lack of messages, is what stops this sender.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit < self.end && self.next < self.end && self.next_range().is_none()
    }

    /// The receiver's limit does not allow for all messages.
    pub(crate) const fn wants_credit(&self) -> bool {
        self.granted < self.end
    }

    /// The message at `cursor`, if that begins where `range` does, ends within it, and has no more
    /// than `room` bytes.
    #[inline]
    pub(crate) fn whole(&self, range: &Range<u64>, cursor: usize, room: usize) -> Option<Piece> {
        let Message { start, offset, length } = *self.messages.get(cursor)?;
        let end = start + MESSAGE_OVERHEAD + u64::from(length);
        let sequence = self.first_sequence.wrapping_add(cursor as u32);
        let is_whole = start == range.start && end <= range.end && length as usize <= room;
        is_whole.then_some(Piece { sequence, total: length, at: 0, length, offset, end })
    }

    /// The length of the message at `cursor`.
    pub(crate) fn length_at(&self, cursor: usize) -> Option<u32> {
        self.messages.get(cursor).map(|message| message.length)
    }

    /// The piece that begins at `range.start`, of at most `room` bytes of payload and within
    /// `range`. `None` if not even one byte fits (an empty message always does).
    pub(crate) fn piece(
        &self,
        range: &Range<u64>,
        cursor: &mut usize,
        room: usize,
    ) -> Option<Piece> {
        let message = self.messages.get(*cursor)?;
        let position = range.start;
        let at = position.saturating_sub(message.start + MESSAGE_OVERHEAD) as u32;
        let bytes_start = message.start + MESSAGE_OVERHEAD + u64::from(at);
        let within = range.end.min(message.end()).checked_sub(bytes_start)?;
        let length = within.min(room as u64) as u32;
        if length == 0 && message.length != 0 {
            return None;
        }
        let end = bytes_start + u64::from(length);
        let sequence = self.first_sequence.wrapping_add(*cursor as u32);
        if end == message.end() {
            *cursor += 1;
        }
        Some(Piece {
            sequence,
            total: message.length,
            at,
            length,
            offset: message.offset + at,
            end,
        })
    }

    /// Where [`Outgoing::piece`] starts looking for `position`.
    pub(crate) fn cursor(&self, position: u64) -> usize {
        if position >= self.next {
            return self.next_index;
        }
        self.messages.partition_point(|message| message.end() <= position)
    }

    /// Records that `range` is in flight (again). `cursor` is where [`Outgoing::piece`] stopped.
    pub(crate) fn sent(&mut self, range: Range<u64>, cursor: usize) {
        if range.end > self.next {
            self.next = range.end;
            self.next_index = cursor;
        } else {
            self.lost.remove(range);
        }
    }

    /// Records that `range` has arrived. Returns how many messages are thereby done, in order.
    pub(crate) fn acknowledge(&mut self, range: Range<u64>) -> Done {
        if range.is_empty() {
            return Done::default();
        }
        if range.start > self.acknowledged {
            self.acknowledge_above(range);
            return Done::default();
        }
        self.acknowledged = self.acknowledged.max(range.end);
        if !self.acknowledged_above.is_empty() {
            self.join_above();
        }
        if !self.lost.is_empty() {
            self.lost.forget_below(self.acknowledged);
        }
        self.pop_done()
    }

    /// Records that all that was sent has arrived.
    pub(crate) fn acknowledge_all(&mut self) -> Done {
        self.acknowledge(self.acknowledged..self.next)
    }

    /// What has arrived before is next to what has arrived now.
    fn join_above(&mut self) {
        while let Some(above) = self.acknowledged_above.first() {
            if above.start > self.acknowledged {
                break;
            }
            self.acknowledged = self.acknowledged.max(above.end);
            self.acknowledged_above.pop_first();
        }
    }

    /// `range` has arrived before others. If it is one too many, it is to be sent again: whoever
    /// receives it twice takes it once.
    fn acknowledge_above(&mut self, range: Range<u64>) {
        self.acknowledged_above.insert(range.clone());
        if self.acknowledged_above.len() > RANGES_MAX {
            // It touches no other, or there would be no more than before.
            self.acknowledged_above.remove(range.clone());
            return self.lose(range);
        }
        if !self.lost.is_empty() {
            self.lost.remove(range);
            self.bound_lost();
        }
    }

    fn pop_done(&mut self) -> Done {
        let (mut done, mut operations, mut answers) = (0, 0, 0);
        while let Some(message) = self.messages.front()
            && message.end() <= self.acknowledged
        {
            operations += u32::from(message.is_operation());
            answers += u32::from(message.is_answer());
            self.messages.remove_front();
            done += 1;
        }
        self.operations -= operations;
        self.answers -= answers;
        self.first_sequence = self.first_sequence.wrapping_add(done);
        self.next_index -= done as usize;
        Done { messages: done - operations, operations }
    }

    /// `range` was lost, or is to be sent again as a probe: whatever of it has not arrived.
    pub(crate) fn send_again(&mut self, range: Range<u64>) {
        let range = range.start.max(self.acknowledged)..range.end;
        if range.is_empty() {
            return;
        }
        self.lose(range.clone());
        for above in self.acknowledged_above.overlapping(range) {
            self.lost.remove(above);
        }
        self.bound_lost();
    }

    fn lose(&mut self, range: Range<u64>) {
        self.lost.insert(range);
        self.bound_lost();
    }

    /// Keeps what is to be sent again in few ranges: what lies between the first two is sent again
    /// with them, whether it has arrived or not.
    fn bound_lost(&mut self) {
        while self.lost.len() > RANGES_MAX
            && let Some(first) = self.lost.pop_first()
            && let Some(second) = self.lost.first()
        {
            self.lost.insert(first.start..second.end);
        }
    }

    /// The first `bytes` that have not arrived, of those that were sent, are to be sent again.
    pub(crate) fn send_first_again(&mut self, bytes: u64) {
        let Some(message) = self.messages.front() else { return };
        let start = self.acknowledged.max(message.start);
        // A range never ends within the overhead of a message: nothing of that alone can be sent.
        let end = start.max(message.start + MESSAGE_OVERHEAD) + bytes;
        self.send_again(start..end.min(message.end()).min(self.next));
    }

    /// What it says of positions.
    pub(crate) const fn books(&self) -> Books {
        let Self { end, next, acknowledged, granted: limit, .. } = *self;
        Books { end, next, acknowledged, limit }
    }

    /// True if every message has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.acknowledged == self.end
    }

    /// Positions that have not arrived, and what operations count besides.
    #[inline]
    pub(crate) const fn positions_left(&self) -> u64 {
        self.end - self.acknowledged + self.operations as u64 * OPERATION_POSITIONS
    }

    /// True if everything that was sent has arrived.
    #[inline]
    pub(crate) const fn has_none_on_way(&self) -> bool {
        self.acknowledged == self.next
    }

    /// True if every message has been sent at least once.
    pub(crate) fn is_sent(&self) -> bool {
        self.next == self.end
    }

    /// Messages pushed so far.
    pub(crate) fn messages_pushed(&self) -> u32 {
        self.first_sequence.wrapping_add(self.messages.len() as u32)
    }

    /// Messages that have not fully arrived yet.
    pub(crate) fn messages_open(&self) -> usize {
        self.messages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE_OVERHEAD, Outgoing, RANGES_MAX};
    use clearway_base::{Random, RangeSet};
    use core::ops::Range;

    impl Outgoing {
        /// The next message has this number, and a place behind as many.
        pub(crate) fn count_from(&mut self, sequence: u32) {
            assert!(self.is_done());
            self.first_sequence = sequence;
            let places = u64::from(sequence) * MESSAGE_OVERHEAD;
            let Self { next, end, acknowledged, limit, granted, .. } = self;
            for position in [next, end, acknowledged, limit, granted] {
                *position += places;
            }
        }

        /// Every position that was sent has arrived, is in flight, or is to be sent again; and all
        /// books are within their bounds.
        pub(crate) fn audit(&self, in_flight: RangeSet) {
            assert!(self.acknowledged <= self.next && self.next <= self.end);
            for ranges in [&self.lost, &self.acknowledged_above] {
                assert!(ranges.len() <= RANGES_MAX);
                assert!(ranges.first().is_none_or(|first| first.start >= self.acknowledged));
                assert!(ranges.last().is_none_or(|last| last.end <= self.next));
            }
            let mut known = in_flight;
            for ranges in [&self.lost, &self.acknowledged_above] {
                ranges.iter().for_each(|range| _ = known.insert(range));
            }
            known.remove(0..self.acknowledged);
            let all = Some(self.acknowledged..self.next).filter(|range| !range.is_empty());
            assert!(known.iter().eq(all), "{known:?} of {}..{}", self.acknowledged, self.next);
            let ends = self.messages.iter().map(super::Message::end);
            let starts = self.messages.iter().map(|message| message.start);
            assert!(starts.skip(1).chain([self.end]).eq(ends) || self.messages.is_empty());
            let begun = self.messages.iter().filter(|message| message.end() <= self.next).count();
            assert_eq!(self.next_index, begun);
        }
    }

    /// Sends one packet of up to `room` payload bytes; returns its range.
    fn send(outgoing: &mut Outgoing, mut room: usize) -> Option<Range<u64>> {
        let mut range = outgoing.next_range()?;
        let start = range.start;
        let mut cursor = outgoing.cursor(start);
        while !range.is_empty() {
            let Some(piece) = outgoing.piece(&range, &mut cursor, room) else { break };
            range.start = piece.end;
            room -= piece.length as usize;
            if room == 0 {
                break;
            }
        }
        outgoing.sent(start..range.start, cursor);
        (start < range.start).then_some(start..range.start)
    }

    #[test]
    fn small_messages_share_a_range() {
        let mut outgoing = Outgoing::new(u64::MAX);
        for index in 0..3 {
            outgoing.push(index * 100, 10);
        }
        assert_eq!(send(&mut outgoing, 100), Some(0..222));
        assert!(!outgoing.has_data());
        assert_eq!(outgoing.acknowledge(0..222).messages, 3);
        assert!(outgoing.is_done());
    }

    #[test]
    fn the_limit_stops_new_positions_only() {
        let mut outgoing = Outgoing::new(100);
        outgoing.push(0, 10);
        outgoing.push(10, 10);
        assert_eq!(send(&mut outgoing, 1000), Some(0..74));
        assert!(outgoing.is_limited() && !outgoing.has_data());
        outgoing.send_again(0..74);
        assert_eq!(send(&mut outgoing, 1000), Some(0..74));
        assert!(outgoing.raise_limit(148));
        assert_eq!(send(&mut outgoing, 1000), Some(74..148));
    }

    #[test]
    fn a_probe_carries_the_first_bytes_that_have_not_arrived() {
        let mut outgoing = Outgoing::new(u64::MAX);
        outgoing.send_first_again(100);
        outgoing.push(0, 1000);
        outgoing.send_first_again(100);
        assert!(outgoing.lost.is_empty(), "nothing has been sent");
        for expected in [0..264, 264..464, 464..664] {
            assert_eq!(send(&mut outgoing, 200), Some(expected));
        }
        outgoing.acknowledge(464..664);
        outgoing.send_first_again(100);
        assert_eq!(send(&mut outgoing, 200), Some(0..164));
        outgoing.acknowledge(0..264);
        outgoing.send_first_again(1000);
        assert_eq!(send(&mut outgoing, 200), Some(264..464));
    }

    /// A peer that acknowledges every other message would have us remember all of the app's pool.
    #[test]
    fn what_arrived_between_gaps_and_what_was_lost_have_bounded_books() {
        const MESSAGES: u64 = 20_000;
        let mut outgoing = Outgoing::new(u64::MAX);
        (0..MESSAGES).for_each(|_| outgoing.push(0, 0));
        let whole = |nth: u64| nth * 64..(nth + 1) * 64;
        while send(&mut outgoing, 1).is_some_and(|range| range.end < 64 * MESSAGES) {}
        // Half of it from below and half from above; the others count as lost.
        for nth in 0..MESSAGES / 4 {
            for message in [2 * nth, MESSAGES - 1 - 2 * nth] {
                outgoing.acknowledge(whole(message | 1));
                outgoing.send_again(whole(message & !1));
            }
            assert!(outgoing.acknowledged_above.len() <= RANGES_MAX);
            assert!(outgoing.lost.len() <= RANGES_MAX);
        }
        let mut in_flight = RangeSet::new();
        in_flight.insert(0..64 * MESSAGES);
        outgoing.audit(in_flight);
        let mut done = 0;
        while let Some(range) = send(&mut outgoing, 1) {
            done += outgoing.acknowledge(range).messages;
        }
        for nth in 0..MESSAGES {
            done += outgoing.acknowledge(whole(nth)).messages;
        }
        assert_eq!(u64::from(done), MESSAGES);
        assert!(outgoing.is_done() && outgoing.lost.is_empty());
        outgoing.audit(RangeSet::new());
    }

    /// As many as there may be, and neither fewer nor more.
    #[test]
    fn ranges_are_given_up_or_joined_when_there_is_one_too_many() {
        let whole = |nth: u64| nth * 64..(nth + 1) * 64;
        let odd = |nth: usize| whole(2 * nth as u64 + 1);
        let all_sent = || {
            let mut outgoing = Outgoing::new(u64::MAX);
            (0..2 * RANGES_MAX + 4).for_each(|_| outgoing.push(0, 0));
            while send(&mut outgoing, 1).is_some() {}
            outgoing
        };
        let mut outgoing = all_sent();
        for nth in 0..RANGES_MAX {
            assert_eq!(outgoing.acknowledge(odd(nth)), super::Done::default());
            assert_eq!((outgoing.acknowledged_above.len(), outgoing.lost.len()), (nth + 1, 0));
        }
        outgoing.acknowledge(odd(RANGES_MAX));
        assert_eq!(outgoing.acknowledged_above.len(), RANGES_MAX);
        assert!(outgoing.lost.iter().eq([odd(RANGES_MAX)]), "as if it had not arrived");
        let mut outgoing = all_sent();
        for nth in 0..RANGES_MAX {
            outgoing.send_again(odd(nth));
            assert_eq!(outgoing.lost.len(), nth + 1);
        }
        outgoing.send_again(odd(RANGES_MAX));
        assert_eq!((outgoing.lost.len(), outgoing.lost.first()), (RANGES_MAX, Some(64..256)));
        outgoing.send_again(odd(RANGES_MAX));
        assert_eq!(outgoing.lost.len(), RANGES_MAX, "no news");
    }

    #[test]
    fn every_position_arrives_whatever_is_lost() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut outgoing = Outgoing::new(1000);
            let mut in_flight: Vec<Range<u64>> = Vec::new();
            let (mut pushed, mut done) = (0, 0);
            while pushed < 40 || !outgoing.is_done() {
                if pushed < 40 && random.chance(1, 3) {
                    let length = if random.chance(1, 5) { 0 } else { random.below(600) as u32 };
                    outgoing.push(0, length);
                    pushed += 1;
                }
                if let Some(range) = send(&mut outgoing, 1 + random.below(200) as usize) {
                    in_flight.push(range);
                }
                if !in_flight.is_empty() && random.chance(2, 3) {
                    let range =
                        in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
                    if random.chance(1, 4) {
                        outgoing.send_again(range);
                    } else {
                        done += outgoing.acknowledge(range).messages;
                    }
                }
                outgoing.raise_limit(outgoing.next + random.below(2000));
            }
            assert_eq!(done, 40, "seed {seed}");
        }
    }

    /// Nothing of the message that has to wait is sent, or of those behind it, and all of those
    /// before it, until there is memory: as the newest word has it.
    #[test]
    fn what_has_to_wait_is_sent_when_there_is_memory() {
        let message = MESSAGE_OVERHEAD + 100;
        let mut outgoing = Outgoing::new(10 * message);
        (0..6).for_each(|at| outgoing.push(at * 100, 100));
        outgoing.sent(0..4 * message, 4);
        outgoing.send_again(message..4 * message);
        outgoing.wait(2, 7);
        assert_eq!(outgoing.next_range(), Some(message..2 * message));
        assert!(outgoing.was_turned_away(&(message..3 * message), 7));
        assert!(!outgoing.was_turned_away(&(message..2 * message), 7), "it was lost");
        assert!(!outgoing.was_turned_away(&(2 * message..3 * message), 8), "it was lost");
        outgoing.sent(message..2 * message, 2);
        assert_eq!((outgoing.next_range(), outgoing.books().limit), (None, 10 * message));
        outgoing.wait(9, 7);
        outgoing.take_limit(10 * message, 9);
        assert_eq!(outgoing.next_range(), Some(2 * message..4 * message));
        outgoing.wait(2, 8);
        assert_eq!(outgoing.next_range(), Some(2 * message..4 * message), "older than the limit");
        outgoing.sent(2 * message..4 * message, 4);
        outgoing.wait(5, 9);
        assert_eq!(outgoing.next_range(), Some(4 * message..5 * message));
        outgoing.try_again();
        assert_eq!(outgoing.next_range(), Some(4 * message..6 * message));
    }

    #[test]
    fn only_a_higher_limit_is_news() {
        let mut outgoing = Outgoing::new(100);
        assert!(!outgoing.raise_limit(100) && !outgoing.raise_limit(99));
        assert!(outgoing.raise_limit(101));
    }

    #[test]
    fn a_message_begins_with_its_first_byte() {
        let mut outgoing = Outgoing::new(MESSAGE_OVERHEAD);
        outgoing.push(0, 10);
        assert!(outgoing.is_limited() && outgoing.next_range().is_none());
        outgoing.raise_limit(MESSAGE_OVERHEAD + 1);
        assert!(!outgoing.is_sent());
        assert_eq!(send(&mut outgoing, 100), Some(0..65));
        outgoing.raise_limit(100);
        assert_eq!(send(&mut outgoing, 100), Some(65..74));
        assert!(outgoing.is_sent() && !outgoing.is_done());
    }

    #[test]
    fn what_was_late_and_not_lost_is_not_sent_again() {
        let mut outgoing = Outgoing::new(u64::MAX);
        (0..3).for_each(|_| outgoing.push(0, 36));
        for expected in [0..100, 100..200, 200..300] {
            assert_eq!(send(&mut outgoing, 36), Some(expected));
        }
        outgoing.send_again(100..300);
        outgoing.acknowledge(200..300);
        assert_eq!(send(&mut outgoing, 1000), Some(100..200));
        assert!(!outgoing.has_data());
        assert_eq!(outgoing.messages_open(), 3, "the first has not arrived");
    }
}
