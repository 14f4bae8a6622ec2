//! One-sided operations on their way out. Each is a message in all but where its bytes are: the
//! engine has them, by a name, which stands where a message's offset does.
//!
//! ```text
//!   31 operation │ 30 answer │ 29..0 name below 2^28, so that a place in the operation adds to it
//! ```

use core::ops::Range;

use clearway_base::Time;
use clearway_wire::clearway::{MESSAGE_FRAME_LENGTH, SKIP_FRAME_LENGTH};

use super::{Message, Outgoing};
use crate::app::{OPERATION_NAMES, Operation};
use crate::company::Share;

const OPERATION: u32 = 1 << 31;
const ANSWER: u32 = 1 << 30;
const CARRIED: u32 = OPERATION | ANSWER;

const _: () = assert!(OPERATION_NAMES + clearway_wire::clearway::MESSAGE_BYTES_MAX <= ANSWER);

/// What frames carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    Messages,
    Operations,
    /// Skip frames, of messages that were dropped.
    Skips,
}

/// Of these one packet has some of one only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Dropped,
    Request,
    Answer,
}

impl Kind {
    /// What one of so many bytes takes of a packet, at least.
    const fn frame_bytes(self, bytes: usize) -> usize {
        match self {
            Self::Dropped => SKIP_FRAME_LENGTH,
            Self::Message | Self::Request | Self::Answer => MESSAGE_FRAME_LENGTH + bytes,
        }
    }

    const fn is_operation(self) -> bool {
        matches!(self, Self::Request | Self::Answer)
    }

    const fn carried(self) -> Carried {
        match self {
            Self::Message => Carried::Messages,
            Self::Dropped => Carried::Skips,
            Self::Request | Self::Answer => Carried::Operations,
        }
    }
}

impl Outgoing {
    /// Appends an operation.
    #[inline]
    pub(crate) fn push_operation(&mut self, operation: Operation) {
        debug_assert!(operation.name < OPERATION_NAMES);
        let answer = if operation.is_answer { ANSWER } else { 0 };
        self.operations += 1;
        self.answers += u32::from(operation.is_answer);
        self.push(OPERATION | answer | operation.name, operation.length);
    }

    /// True if operations are on their way, or wait.
    #[inline]
    pub(crate) const fn has_operations(&self) -> bool {
        self.operations > 0
    }

    /// True if messages may not all be sent as what they are: there are operations among them, or
    /// some have deadlines.
    #[inline]
    pub(crate) fn is_mixed(&self) -> bool {
        self.has_operations() | self.has_deadlines()
    }

    /// What the first message of `range` is, which is cut to those of its kind that follow it; what
    /// could be in the next packet, of so many bytes, and is late is dropped before.
    #[inline(never)]
    pub(crate) fn cut_to_kind(
        &mut self,
        now: Time,
        share: Share,
        range: &mut Range<u64>,
        cursor: usize,
    ) -> Carried {
        if self.has_deadlines() {
            self.drop_late(now, share.bytes);
            return self.cut_to_run(range, cursor, share, |message| self.kind_of(message));
        }
        if share.operation_bytes == 0 && self.are_alike() {
            return Carried::Operations;
        }
        self.cut_to_run(range, cursor, share, Message::kind)
    }

    /// All are operations of one kind.
    fn are_alike(&self) -> bool {
        let is_one_kind = self.answers == 0 || self.answers == self.operations;
        is_one_kind && self.operations as usize == self.messages.len()
    }

    /// Looks at no more of them than the packet has room for.
    #[inline(always)]
    fn cut_to_run(
        &self,
        range: &mut Range<u64>,
        cursor: usize,
        share: Share,
        kind_of: impl Fn(&Message) -> Kind,
    ) -> Carried {
        let Some(first) = self.messages.get(cursor) else { return Carried::Messages };
        let kind = kind_of(first);
        // Of the first, what has not left.
        let left = u64::from(first.length).min(first.end().saturating_sub(range.start));
        let extra = if kind.is_operation() { share.operation_bytes } else { 0 };
        let mut bytes = kind.frame_bytes(left as usize) + extra;
        for message in (cursor + 1..).map_while(|index| self.messages.get(index)) {
            // Of the one that reaches beyond the packet a part may be in it, of the next nothing.
            if message.start >= range.end || bytes > share.bytes || kind_of(message) != kind {
                range.end = range.end.min(message.start);
                break;
            }
            bytes += kind.frame_bytes(message.length as usize) + extra;
        }
        kind.carried()
    }

    fn kind_of(&self, message: &Message) -> Kind {
        match message.kind() {
            Kind::Message if self.is_dropped(message) => Kind::Dropped,
            kind => kind,
        }
    }

    /// Names and lengths of the operations that have not arrived, and whether they are answers.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> + '_ {
        let operations = self.messages.iter().filter(|message| message.is_operation());
        operations.map(|message| Operation {
            name: message.offset & !CARRIED,
            length: message.length,
            is_answer: message.offset & ANSWER != 0,
        })
    }
}

impl Message {
    /// What it is, if it is sent at all.
    const fn kind(&self) -> Kind {
        match self.offset & CARRIED {
            CARRIED => Kind::Answer,
            OPERATION => Kind::Request,
            _ => Kind::Message,
        }
    }

    pub(super) const fn is_operation(&self) -> bool {
        self.offset & OPERATION != 0
    }

    pub(super) const fn is_answer(&self) -> bool {
        self.offset & CARRIED == CARRIED
    }
}

impl super::Piece {
    /// The name of the operation that this is a part of.
    pub(crate) const fn operation(&self) -> u32 {
        (self.offset - self.at) & !CARRIED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::Done;

    fn operation(name: u32, is_answer: bool) -> Operation {
        Operation { name, length: 36, is_answer }
    }

    fn room(bytes: usize) -> Share {
        Share { bytes, operation_bytes: 0 }
    }

    /// Messages, requests and answers never share a packet, and are counted apart.
    #[test]
    fn each_kind_has_packets_of_its_own() {
        let mut outgoing = Outgoing::new(u64::MAX);
        outgoing.push(7, 36);
        outgoing.push(8, 36);
        outgoing.push_operation(operation(1, false));
        outgoing.push_operation(operation(2, true));
        outgoing.push_operation(operation(OPERATION_NAMES - 1, true));
        outgoing.push(9, 36);
        let mut seen = Vec::new();
        while let Some(mut range) = outgoing.next_range() {
            let start = range.start;
            let mut cursor = outgoing.cursor(start);
            let carried = outgoing.cut_to_kind(Time::ZERO, room(1000), &mut range, cursor);
            let mut names = Vec::new();
            while let Some(piece) =
                (!range.is_empty()).then(|| outgoing.piece(&range, &mut cursor, 30)).flatten()
            {
                range.start = piece.end;
                names.push(if carried == Carried::Messages {
                    piece.offset - piece.at
                } else {
                    piece.operation()
                });
            }
            outgoing.sent(start..range.start, cursor);
            names.dedup();
            seen.push((carried, names));
        }
        let expected = [
            (Carried::Messages, vec![7, 8]),
            (Carried::Operations, vec![1]),
            (Carried::Operations, vec![2, OPERATION_NAMES - 1]),
            (Carried::Messages, vec![9]),
        ];
        assert_eq!(seen, expected);
        assert_eq!(
            outgoing.operations().map(|o| o.name).collect::<Vec<_>>(),
            [1, 2, (1 << 28) - 1]
        );
        assert_eq!(outgoing.acknowledge(0..300), Done { messages: 2, operations: 1 });
        assert_eq!(outgoing.acknowledge(300..600), Done { messages: 1, operations: 2 });
        assert!(!outgoing.has_operations() && outgoing.is_done());
    }

    /// Of those that are cut to what they take besides their bytes, the rest comes later.
    #[test]
    fn beside_those_who_wait_a_packet_has_few_operations() {
        let mut outgoing = Outgoing::new(1 << 20);
        (0..20).for_each(|name| outgoing.push_operation(operation(name, false)));
        for (operation_bytes, count) in [(0, 20), (4500 / 4, 4)] {
            let share = Share { bytes: 4500, operation_bytes };
            let mut range = outgoing.next_range().expect("all");
            outgoing.cut_to_kind(Time::ZERO, share, &mut range, 0);
            assert_eq!(range.end, count * (crate::MESSAGE_OVERHEAD + 36));
        }
    }

    /// However little is left of the first, and however much room there is behind it.
    #[test]
    fn what_was_begun_shares_no_packet_with_another_kind() {
        let mut outgoing = Outgoing::new(1 << 20);
        outgoing.push_operation(Operation { name: 1, length: 3000, is_answer: false });
        outgoing.push_operation(Operation { name: 2, length: 10, is_answer: true });
        let all = outgoing.next_range().expect("both");
        let begun = all.start..all.start + crate::MESSAGE_OVERHEAD + 2900;
        outgoing.sent(begun, 0);
        let mut range = outgoing.next_range().expect("what is left");
        let cursor = outgoing.cursor(range.start);
        let carried = outgoing.cut_to_kind(Time::ZERO, room(1400), &mut range, cursor);
        assert_eq!((carried, range.end - range.start), (Carried::Operations, 100));
    }
}
