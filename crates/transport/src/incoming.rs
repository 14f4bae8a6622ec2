//! The receiving half of a connection: puts messages together in the app's memory and hands them
//! over in order. Detecting duplicate packets is not its job (see `acks.rs`), but every fragment
//! may come twice, in another packet, and is then ignored.

mod ahead;
mod largest;
mod messages;
mod operations;
mod state;

use std::collections::BTreeMap;

use clearway_base::RangeSet;

use crate::app::{App, Buffer, Delivered, Order, Owner, Room};
use crate::config::{MESSAGE_OVERHEAD, PACKETS_IN_FLIGHT_MAX};
use crate::state::POSITIONS_MAX;
use ahead::Ahead;
use largest::Largest;
pub use messages::DueMessages;
pub use operations::DueOperations;

/// Why a packet's data was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room, in the app's receive pool or in the books of what is missing; the packet
    /// must not be acknowledged.
    NoBuffer,
    /// The sender went beyond its limit, or contradicts itself.
    Violation,
}

/// A message of which not all bytes are here, or which waits for an earlier one.
#[derive(Debug)]
struct Partial {
    buffer: Buffer,
    order: Order,
    /// It is a one-sided operation, which the engine carries out.
    is_operation: bool,
    /// What is missing is the complement; always a single range unless packets were reordered.
    received: RangeSet,
    received_bytes: u32,
}

/// What a frame says of a message, or of an operation, that comes in parts.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    is_operation: bool,
    /// The length of the whole.
    total: u32,
    /// Where in it these bytes stand.
    at: u32,
    bytes: &'a [u8],
}

/// Gaps in the messages of a connection, at most. Each is a packet in flight at least, and so many
/// are lost only where one in thirty is, with as many in flight as may be. What would leave more
/// has to come again, when others have been filled: to find a place among them takes time, and a
/// peer could make them of single bytes.
const GAPS_MAX: u32 = PACKETS_IN_FLIGHT_MAX as u32 / 32;

impl Partial {
    fn positions(&self) -> u64 {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        MESSAGE_OVERHEAD + u64::from(self.buffer.length)
    }

    fn is_complete(&self) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        self.received_bytes == self.buffer.length
    }

    /// Records that these bytes are here, unless that leaves more than `gaps_max` gaps in between.
    /// Returns how many of them were not.
    fn insert(&mut self, at: u32, length: u32, gaps_max: u32) -> Result<u32, Refused> {
        let range = u64::from(at)..u64::from(at) + u64::from(length);
        let new = self.received.insert(range.clone()) as u32; // at most `length`
        if self.gaps() > gaps_max {
            // It touches no other, or there would be no more than before.
            self.received.remove(range);
            return Err(Refused::NoBuffer);
        }
        self.received_bytes += new;
        Ok(new)
    }

    /// All before it are over. The engine may want to take an operation as it comes, once it has
    /// its first part.
    fn take_turn(&mut self, app: &mut impl App, owner: Owner) {
        if self.is_operation && self.received.contains(0) {
            self.buffer = app.turn_of_operation(owner, self.buffer, self.order, &self.received);
        }
    }

    /// Gaps between the parts that are here.
    fn gaps(&self) -> u32 {
        self.received.len().saturating_sub(1) as u32
    }
}

/// Messages on their way in.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Sequence number of the next message to deliver, not wrapped.
    next: u64,
    /// Of all messages before this one something has come, or they are over. As of when
    /// [`Incoming::room_for`] was last asked.
    begun: u64,
    partial: BTreeMap<u64, Partial>,
    /// Positions received: each message's overhead once, each byte once.
    received: u64,
    /// Positions of messages that the app has released.
    released: u64,
    /// The largest message in `partial`. A sender that may begin a message may also end it, however
    /// large; and no more than that, or a peer that never ends the first could send without limit.
    /// More than a window only while that message is there: else the sender could go on beyond
    /// another of that size of which nothing has come, and what comes early would lie where that
    /// one is to go.
    largest: Largest,
    /// Positions that the sender may use beyond those released.
    window: u64,
    /// The limit that was last announced.
    announced: u64,
    /// What is known of messages behind `next` that need not wait for their turn.
    ahead: Option<Box<Ahead>>,
    /// Gaps in all of `partial`, at most [`GAPS_MAX`].
    gaps: u32,
    /// A message was refused for want of memory: the sender must be told when there is some.
    starved: bool,
    /// The sequence number of the first of these, if the sender is to be told that it has to wait.
    turned_away: Option<u64>,
    /// Operations were carried out since [`Incoming::take_operated`] was last asked.
    operated: bool,
}

/// The receiving half's part of [`crate::FlowBooks`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    pub(crate) received: u64,
    pub(crate) unfinished: u64,
    pub(crate) released: u64,
    pub(crate) announced: u64,
    pub(crate) window: u64,
}

impl Incoming {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            next: 0,
            begun: 0,
            partial: BTreeMap::new(),
            received: 0,
            released: 0,
            largest: Largest::default(),
            window,
            announced: window,
            ahead: None,
            gaps: 0,
            starved: false,
            turned_away: None,
            operated: false,
        }
    }

    /// Takes a whole message.
    #[inline]
    pub(crate) fn message(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let is_due = sequence == self.next as u32 && !self.partial.contains_key(&self.next);
        if !is_due {
            return self.fragment(app, owner, sequence, bytes.len() as u32, 0, bytes);
        }
        // The usual case: the one that is due, in one piece.
        let positions = MESSAGE_OVERHEAD + bytes.len() as u64;
        self.check_limit(positions)?;
        let delivered = app.receive(owner, bytes);
        let delivered = delivered.ok_or_else(|| self.turn_away(self.next))?;
        self.received += positions;
        self.next += 1;
        if delivered == Delivered::Released {
            self.release(1, bytes.len() as u64);
        }
        if !self.partial.is_empty() | self.ahead.is_some() {
            self.deliver_ready(app, owner)?;
        }
        Ok(())
    }

    /// Takes a part of a message.
    pub(crate) fn fragment(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        total: u32,
        at: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        self.take_part(app, owner, sequence, &Part { is_operation: false, total, at, bytes })
    }

    /// Takes a part of a message or of an operation.
    fn take_part(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        part: &Part<'_>,
    ) -> Result<(), Refused> {
        let Part { is_operation, total, at, bytes } = *part;
        let sequence = self.unwrap_sequence(sequence).ok_or(Refused::Violation)?;
        if sequence < self.next || self.is_over(sequence) {
            return Ok(()); // sent again by a sender that did not know
        }
        let is_first = !self.partial.contains_key(&sequence);
        if is_first {
            self.begin(app, owner, sequence, part)?;
        }
        let Some(partial) = self.partial.get_mut(&sequence) else { return Err(Refused::Violation) };
        if partial.buffer.length != total || partial.is_operation != is_operation {
            return Err(Refused::Violation);
        }
        let others = self.gaps - partial.gaps();
        let new = partial.insert(at, bytes.len() as u32, GAPS_MAX - others)?;
        self.gaps = others + partial.gaps();
        if new > 0 {
            app.write(owner, partial.buffer, at, bytes);
        }
        self.received += u64::from(new);
        if self.received > self.announced {
            return Err(Refused::Violation);
        }
        if partial.is_complete() {
            if sequence == self.next {
                self.deliver_ready(app, owner)?;
            } else if self.ahead.is_some() {
                self.deliver_ahead(app, owner, sequence);
            }
        } else if at == 0 && sequence == self.next && !is_first {
            partial.take_turn(app, owner);
        }
        Ok(())
    }

    /// Makes room for a message of which a part has come, and nothing before.
    fn begin(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u64,
        part: &Part<'_>,
    ) -> Result<(), Refused> {
        let Part { is_operation, total, at, bytes } = *part;
        self.check_limit(MESSAGE_OVERHEAD + bytes.len() as u64)?;
        if self.is_beyond(sequence) {
            return Err(Refused::Violation);
        }
        let order = if sequence == self.next { Order::Due } else { Order::Ahead };
        let buffer = if is_operation {
            let first = (at == 0 && order == Order::Due).then_some(bytes);
            app.begin_operation(owner, total, order, first)
        } else {
            app.begin(owner, total, order, self.room_for(sequence))
        };
        let buffer = buffer.ok_or_else(|| self.turn_away(sequence))?;
        let received = RangeSet::new();
        let partial = Partial { buffer, order, is_operation, received, received_bytes: 0 };
        self.largest.begin(sequence, partial.positions(), self.window);
        self.partial.insert(sequence, partial);
        self.received += MESSAGE_OVERHEAD;
        Ok(())
    }

    /// Where a message may lie. Buffers that the app has posted are for those of which all before
    /// have begun to come: one that comes sooner could take the last that another fits, and then
    /// wait for that for ever. Without order it waits for none, while there is room in the books.
    fn room_for(&mut self, sequence: u64) -> Room {
        if sequence == self.next {
            return Room::Posted;
        }
        self.begun = self.begun.max(self.next);
        while self.partial.contains_key(&self.begun) || self.is_over(self.begun) {
            self.begun += 1;
        }
        let is_next = sequence == self.begun;
        let waits_for_none = || self.ahead.as_ref().is_some_and(|it| it.has_room(&self.partial));
        if is_next || waits_for_none() { Room::Posted } else { Room::Pool }
    }

    #[inline(never)]
    fn deliver_ready(&mut self, app: &mut impl App, owner: Owner) -> Result<(), Refused> {
        self.pass_over(app, owner);
        while let Some(mut entry) = self.partial.first_entry() {
            if *entry.key() != self.next {
                break;
            }
            if !entry.get().is_complete() {
                entry.get_mut().take_turn(app, owner);
                break;
            }
            let sequence = *entry.key();
            let partial = entry.remove();
            self.next += 1;
            self.take_out(app, owner, sequence, &partial);
            if partial.is_operation {
                self.operate_ready(app, owner, partial.buffer)?;
            } else {
                self.deliver(app, owner, partial.buffer);
            }
            self.pass_over(app, owner);
        }
        Ok(())
    }

    fn deliver(&mut self, app: &mut impl App, owner: Owner, buffer: Buffer) {
        if app.deliver(owner, buffer) == Delivered::Released {
            self.release(1, buffer.length.into());
        }
    }

    /// A message is complete, and no longer among those that are not.
    fn take_out(&mut self, app: &mut impl App, owner: Owner, sequence: u64, partial: &Partial) {
        let is_last = self.partial.is_empty();
        self.largest.end(sequence, partial.positions(), self.window, is_last);
        app.finish(owner, partial.buffer, partial.order);
    }

    /// There is no memory for the message with this sequence number.
    #[cold]
    fn turn_away(&mut self, sequence: u64) -> Refused {
        self.starved = true;
        self.turned_away = Some(self.turned_away.map_or(sequence, |first| first.min(sequence)));
        Refused::NoBuffer
    }

    fn check_limit(&self, positions: u64) -> Result<(), Refused> {
        if self.received + positions > self.announced { Err(Refused::Violation) } else { Ok(()) }
    }

    /// A message with this sequence number cannot be sent yet: all before it have their places in
    /// the sender's sequence, too.
    const fn is_beyond(&self, sequence: u64) -> bool {
        sequence.saturating_mul(MESSAGE_OVERHEAD) >= self.announced
    }

    /// The app has released so many messages, of so many bytes in all.
    pub(crate) fn release(&mut self, messages: u32, bytes: u64) {
        self.released += u64::from(messages) * MESSAGE_OVERHEAD + bytes;
    }

    /// True if the limit has grown by a quarter of the window since it was last announced.
    pub(crate) fn limit_is_worth_telling(&self) -> bool {
        self.limit() >= self.announced + self.window / 4
    }

    /// The app's pool ran out for this flow since the last [`Incoming::announce_limit`].
    pub(crate) const fn is_starved(&self) -> bool {
        self.starved
    }

    /// The sender is to be told that it has to wait.
    pub(crate) const fn has_turned_away(&self) -> bool {
        self.turned_away.is_some()
    }

    /// The sequence number of the message that the sender has to wait with, to be told now.
    pub(crate) const fn take_turned_away(&mut self) -> Option<u32> {
        match self.turned_away.take() {
            Some(sequence) => Some(sequence as u32),
            None => None,
        }
    }

    /// The limit that the sender knows, or will know.
    pub(crate) const fn announced_limit(&self) -> u64 {
        self.announced
    }

    /// The limit to announce now, by a frame that is sent again if it is lost.
    pub(crate) fn announce_limit(&mut self) -> u64 {
        (self.starved, self.turned_away) = (false, None);
        self.announced = self.announced.max(self.limit());
        self.announced
    }

    /// What comes is thrown away from now on, and takes nobody's memory.
    pub(crate) const fn lift_limit(&mut self) {
        self.announced = POSITIONS_MAX - 1;
    }

    const fn limit(&self) -> u64 {
        self.released + self.largest.positions() + self.window
    }

    /// What it says of positions.
    pub(crate) fn books(&self) -> Books {
        let unfinished = |partial: &Partial| MESSAGE_OVERHEAD + u64::from(partial.received_bytes);
        Books {
            received: self.received,
            unfinished: self.partial.values().map(unfinished).sum(),
            released: self.released,
            announced: self.announced,
            window: self.window,
        }
    }

    /// Messages delivered so far.
    pub(crate) const fn messages_delivered(&self) -> u64 {
        self.next
    }

    /// Gives back the buffers of messages that will never be complete.
    pub(crate) fn discard(&mut self, app: &mut impl App, owner: Owner) {
        self.gaps = 0;
        while let Some((_, partial)) = self.partial.pop_first() {
            app.discard(owner, partial.buffer, partial.order);
        }
    }

    /// Finds the full sequence number of which `sequence` is the low half, nearest to the next.
    /// `None` for one before the first.
    fn unwrap_sequence(&self, sequence: u32) -> Option<u64> {
        let distance = sequence.wrapping_sub(self.next as u32) as i32;
        self.next.checked_add_signed(i64::from(distance))
    }
}

#[cfg(test)]
mod tests;
