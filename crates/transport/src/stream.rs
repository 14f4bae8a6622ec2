//! The messages of one connection, both ways: in order, and with credit of their own.

use core::ops::Range;

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};
use clearway_wire::clearway::{
    self, FRAGMENT_FRAME_LENGTH, MESSAGE_FRAME_LENGTH, SKIP_FRAME_LENGTH,
};

use crate::app::{App, Owner};
use crate::company::Sending;
use crate::incoming::{Incoming, Refused};
use crate::outgoing::{Carried, Outgoing, Piece};
use crate::recovery::{Content, Told};
use crate::state::{POSITIONS_MAX, StreamState};

/// Positions of one packet, at most: what it remembers of them has 32 bits. Skip frames, each of a
/// message as long as can be, would have more in a packet of 6 KB.
const RANGE_MAX: u64 = u32::MAX as u64;

/// One stream of a flow. What packets carry of it stands together: see [`crate::flow::Flow`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stream {
    /// The connection that it carries.
    pub(crate) owner: Owner,
    /// The peer is to be told of credit.
    pub(crate) limit_due: bool,
    /// The peer is to be told that there is no more.
    pub(crate) close_due: bool,
    pub(crate) close_acknowledged: bool,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// The peer ends after this many messages.
    pub(crate) peer_close: Option<u32>,
    pub(crate) messages_sent: u64,
}

impl Stream {
    /// One whose peer may use `window` positions, and which may use none yet.
    pub(crate) fn new(owner: Owner, window: u64) -> Self {
        Self {
            owner,
            limit_due: false,
            close_due: false,
            close_acknowledged: false,
            incoming: Incoming::new(window),
            outgoing: Outgoing::new(0),
            peer_close: None,
            messages_sent: 0,
        }
    }

    /// Writes message frames from `at` on; returns where they end.
    pub(crate) fn emit_messages(
        &mut self,
        sending: &mut Sending<'_>,
        bytes: &mut [u8],
        at: usize,
        sent: &mut Range<u64>,
        app: &impl App,
    ) -> usize {
        let Some(mut range) = self.outgoing.next_range() else { return at };
        let was_idle = self.outgoing.has_none_on_way();
        let share = sending.share(self.owner, self.outgoing.positions_left(), bytes.len());
        let bytes = &mut bytes[..share.bytes];
        let cursor = self.outgoing.cursor(range.start);
        let carried = if self.outgoing.is_mixed() {
            self.outgoing.cut_to_kind(sending.now, share, &mut range, cursor)
        } else {
            Carried::Messages
        };
        let end = match carried {
            Carried::Messages => self.emit_pieces::<false>(bytes, at, range, cursor, sent, app),
            Carried::Operations => self.emit_pieces::<true>(bytes, at, range, cursor, sent, app),
            Carried::Skips => self.emit_skips(bytes, at, range, cursor, sent),
        };
        sending.sent(self.owner, share, end - at, was_idle && self.outgoing.is_sent());
        end
    }

    /// Writes that the messages in `range` were dropped, whose first is at `cursor`.
    #[cold]
    fn emit_skips(
        &mut self,
        bytes: &mut [u8],
        mut at: usize,
        range: Range<u64>,
        mut cursor: usize,
        sent: &mut Range<u64>,
    ) -> usize {
        let mut end = range.start;
        while end < range.end
            && at + SKIP_FRAME_LENGTH <= bytes.len()
            && let Some(skipped) = self.outgoing.skipped(cursor)
            && skipped.end - range.start <= RANGE_MAX
        {
            at += clearway::emit_skip(&mut bytes[at..], skipped.sequence, skipped.length);
            (end, cursor) = (skipped.end, cursor + 1);
        }
        if end > range.start {
            *sent = range.start..end;
            self.outgoing.sent(sent.clone(), cursor);
        }
        at
    }

    /// Writes frames of messages, or of operations, in `range`, whose first is at `cursor`.
    #[inline(always)]
    fn emit_pieces<const OPERATIONS: bool>(
        &mut self,
        bytes: &mut [u8],
        mut at: usize,
        mut range: Range<u64>,
        mut cursor: usize,
        sent: &mut Range<u64>,
        app: &impl App,
    ) -> usize {
        let (start, first) = (range.start, at);
        while !range.is_empty() && at + MESSAGE_FRAME_LENGTH <= bytes.len() {
            let (head, room) = (at, bytes.len() - at - MESSAGE_FRAME_LENGTH);
            let piece = if let Some(whole) = self.outgoing.whole(&range, cursor, room) {
                at += clearway::emit_message(&mut bytes[at..], whole.sequence, whole.length);
                cursor += 1;
                whole
            } else {
                let others = (range.start > start).then(|| bytes.len() - first);
                let Some(part) = self.part(&range, &mut cursor, room, others) else { break };
                at += clearway::emit_fragment(
                    &mut bytes[at..],
                    part.sequence,
                    part.length,
                    part.total,
                    part.at,
                );
                part
            };
            let end = at + piece.length as usize;
            if OPERATIONS {
                clearway::carry_operation(&mut bytes[head..]);
                app.read_operation(self.owner, piece.operation(), piece.at, &mut bytes[at..end]);
            } else {
                app.read(self.owner, piece.offset, &mut bytes[at..end]);
            }
            at = end;
            range.start = piece.end;
        }
        if range.start > start {
            *sent = start..range.start;
            self.outgoing.sent(sent.clone(), cursor);
        }
        at
    }

    /// The part of the first message of `range`, which is at `cursor`, that a frame has that may
    /// have `room` bytes behind the head of a whole message. None if there are `others` in the
    /// packet, which had room for so many bytes, and it is not to be filled up.
    #[inline(never)]
    fn part(
        &self,
        range: &Range<u64>,
        cursor: &mut usize,
        room: usize,
        others: Option<usize>,
    ) -> Option<Piece> {
        let total = self.outgoing.length_at(*cursor)?;
        if others.is_some_and(|packet_room| !fills_up(total, room, packet_room)) {
            return None;
        }
        let room = room.checked_sub(FRAGMENT_FRAME_LENGTH - MESSAGE_FRAME_LENGTH)?;
        self.outgoing.piece(range, cursor, room)
    }

    /// The peer has dropped a message of so many bytes.
    pub(crate) fn skip(
        &mut self,
        sequence: u32,
        length: u32,
        app: &mut impl App,
    ) -> Result<(), Refused> {
        self.limit_due |= self.incoming.skip(app, self.owner, sequence, length)?;
        Ok(())
    }

    /// The peer knows of more of what was sent: the app is told of what was dropped.
    #[inline]
    pub(crate) fn tell_dropped(&mut self, app: &mut impl App) {
        while self.outgoing.has_deadlines()
            && let Some(number) = self.outgoing.take_dropped()
        {
            app.dropped(self.owner, number);
        }
    }

    /// The app has released so many received messages, of so many bytes in all. True if the peer is
    /// to be told.
    pub(crate) fn release(&mut self, messages: u32, bytes: u64) -> bool {
        self.incoming.release(messages, bytes);
        self.limit_due |= self.incoming.is_starved() || self.incoming.limit_is_worth_telling();
        self.limit_due
    }

    /// The app has closed. What it has sent may want credit that the peer's app gives only when it
    /// has got rid of its own messages, all the more if that closes, too: these are thrown away.
    pub(crate) fn let_peer_end(&mut self) {
        if self.outgoing.wants_credit() {
            self.incoming.lift_limit();
            self.limit_due = true;
        }
    }

    /// Writes what is to be told of credit at `at`, if anything is; returns where it ends.
    /// `refused`: the largest number of a packet that was refused.
    pub(crate) fn emit_credit(
        &mut self,
        bytes: &mut [u8],
        at: usize,
        refused: u64,
        told: &mut Told,
    ) -> usize {
        if self.limit_due {
            self.limit_due = false;
            told.limit = true;
            return at + clearway::emit_limit(&mut bytes[at..], self.incoming.announce_limit());
        }
        match self.incoming.take_turned_away() {
            Some(sequence) => at + clearway::emit_wait(&mut bytes[at..], sequence, refused),
            None => at,
        }
    }

    /// The app has memory again, from whatever connection.
    pub(crate) fn memory_freed(&mut self) {
        self.limit_due |= self.incoming.is_starved();
    }

    /// What a packet carried is to be sent again.
    pub(crate) fn send_again(&mut self, content: &Content) {
        self.outgoing.send_again(content.range.clone());
        self.limit_due |= content.told.limit;
        self.close_due |= content.told.close;
    }

    /// The peer ends after so many messages.
    pub(crate) fn take_close(&mut self, messages: u32, is_open: bool) -> Result<(), Refused> {
        let missing = messages.wrapping_sub(self.incoming.messages_delivered() as u32) as i32;
        let is_too_few = missing < 0 && is_open;
        if is_too_few || self.peer_close.is_some_and(|before| before != messages) {
            return Err(Refused::Violation);
        }
        self.peer_close = Some(messages);
        Ok(())
    }

    pub(crate) fn save(&self) -> StreamState {
        StreamState {
            owner: self.owner,
            limit_due: self.limit_due,
            close_due: self.close_due,
            close_acknowledged: self.close_acknowledged,
            peer_close: self.peer_close,
            incoming: self.incoming.save(),
            outgoing: self.outgoing.save(),
            messages_sent: self.messages_sent,
        }
    }

    /// `in_flight`: the positions that packets in flight have carried.
    pub(crate) fn restore(saved: StreamState, in_flight: RangeSet) -> Result<Self, Invalid> {
        ensure(saved.messages_sent <= POSITIONS_MAX, "more than can be counted")?;
        Ok(Self {
            owner: saved.owner,
            limit_due: saved.limit_due,
            close_due: saved.close_due,
            close_acknowledged: saved.close_acknowledged,
            incoming: Incoming::restore(saved.incoming)?,
            outgoing: Outgoing::restore(saved.outgoing, in_flight)?,
            peer_close: saved.peer_close,
            messages_sent: saved.messages_sent,
        })
    }
}

/// Whether a message of which there is no room for all is cut to fill up a packet that has others
/// in it. Not if a packet of its own could carry all of it. If it is cut anyway, packets that are
/// full are fewer, and all of one length, so that many of them leave as one super-frame.
#[inline]
const fn fills_up(total: u32, room: usize, packet_room: usize) -> bool {
    room >= FILL_BYTES_MIN && total as usize + MESSAGE_FRAME_LENGTH > packet_room
}

/// To cut a message costs both ends a frame more: room of fewer bytes stays empty.
const FILL_BYTES_MIN: usize = 128;
