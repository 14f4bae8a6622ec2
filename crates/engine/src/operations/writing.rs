//! Long writes of peers go to their place as they come, and need no room in the receive pool:
//!
//! ```text
//!  its turn, and its head is there ─begin_write─▶ Exchange.writing ─write_part─▶ the region
//!                                                                  ─end_write─▶ the answer
//!  what came before that ─▶ the receive pool ─take_out_write─▶ the same
//! ```
//!
//! Whether the peer may write is asked for each part. From when it may not, what comes of the write
//! is thrown away, and its answer says why; what was written stays. So nobody who revokes something
//! waits for a peer, and neither does anybody who ends a connection.

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};
use clearway_transport::{Buffer, Operated, Order, Owner};
use clearway_wire::clearway::MESSAGE_BYTES_MAX;
use clearway_wire::clearway::operation::{Kind, REQUEST_LENGTH, Request, Status};

use super::copying::AT_ONCE_BYTES_MAX;
use super::exchange::ANSWERS_LIMIT;
use super::execute::{Data, Outcome, Payload};
use super::regions::Spot;
use super::state::WritingState;
use crate::channels::{Channel, Channels, Site, to_channel};

const HEAD: u32 = REQUEST_LENGTH as u32;

/// A write that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writing {
    request: Request,
    /// How many bytes it writes.
    length: u32,
    /// Nothing more of it is written, and why not.
    refused: Option<Status>,
}

/// The request of an operation of so many bytes, if it is a long write and begins like that.
pub(crate) fn long_write(first: &[u8], length: u32) -> Option<Request> {
    let request = Request::parse(first).ok()?;
    let is_write = matches!(Kind::of(request.kind), Some(Kind::Write | Kind::WriteNotify));
    (is_write && length > HEAD + AT_ONCE_BYTES_MAX).then_some(request)
}

impl Writing {
    /// How many bytes it has with its head.
    pub(super) const fn total(&self) -> u32 {
        HEAD + self.length
    }

    fn outcome(&self) -> Outcome {
        match self.refused {
            None => Outcome::written(&self.request, 0),
            Some(status) => status.into(),
        }
    }

    pub(super) fn save(&self) -> WritingState {
        WritingState {
            request: self.request.emit().to_vec(),
            length: self.length,
            refused: self.refused.map(|status| status as u8),
        }
    }

    pub(super) fn restore(saved: &WritingState) -> Result<Self, Invalid> {
        let is_possible = saved.length <= MESSAGE_BYTES_MAX;
        ensure(is_possible, "a write of more than there may be")?;
        let request = long_write(&saved.request, HEAD + saved.length);
        let request = request.ok_or(Invalid("a write that is none, or not long"))?;
        Ok(Self { request, length: saved.length, refused: saved.refused.map(Status::of) })
    }

    /// It is the request of this number.
    pub(super) const fn is_number(&self, number: u32) -> bool {
        self.request.number == number
    }
}

impl Channels {
    /// A long write whose turn it is, of so many bytes with its head, has begun to come. `None` if
    /// there is no room for its answer.
    pub(crate) fn begin_write(
        &mut self,
        owner: Owner,
        request: &Request,
        bytes: u32,
    ) -> Option<Buffer> {
        self.exchange(owner)?;
        let channel = self.channel(owner.channel)?;
        let slot = owner.connection;
        if !channel.operations.have_room_to_answer(channel.exchange(slot)?) {
            return None;
        }
        channel.note_turn(slot, bytes, true);
        channel.note_write(slot, request, bytes)
    }

    /// A long write that has begun to come before its turn, or without its head, goes to its place
    /// from now on, and what has come of it as well. `None` if it is something else.
    pub(crate) fn take_out_write(
        &mut self,
        owner: Owner,
        buffer: Buffer,
        order: Order,
        parts: &RangeSet,
    ) -> Option<Buffer> {
        let has_head = parts.first().is_some_and(|first| first.end >= HEAD.into());
        if Site::of(buffer) != Site::Pool || !has_head {
            return None;
        }
        self.exchange(owner)?;
        let (channel, slot) = (self.channel(owner.channel)?, owner.connection);
        let mut head = [0; REQUEST_LENGTH];
        channel.end.read_received(to_channel(buffer), 0, &mut head);
        let request = long_write(&head, buffer.length)?;
        // What is there already is to be answered anyway, within the bounds of what a peer may ask.
        if channel.exchange(slot)?.answers >= ANSWERS_LIMIT {
            return None;
        }
        let region = channel.note_write(slot, &request, buffer.length)?;
        channel.write_parts(slot, buffer, parts);
        channel.finish(slot, buffer, order);
        channel.free_spare(buffer);
        Some(region)
    }

    /// All of a long write has come.
    pub(super) fn end_write(&mut self, owner: Owner) -> Operated {
        let channel = self.channel(owner.channel);
        let exchange = channel.and_then(|channel| channel.exchange_of(owner.connection));
        let Some(writing) = exchange.and_then(|exchange| exchange.writing.take()) else {
            return Operated::Violation;
        };
        let (Writing { request, length, .. }, outcome) = (writing, writing.outcome());
        if let Some(channel) = self.channel(owner.channel) {
            channel.answer_write(owner.connection, &request, &outcome);
        }
        self.tell_of(owner, &request, &outcome, length);
        Operated::Over
    }
}

impl Channel {
    /// A write of a peer is under way, which may be refused. `None` if it is not the next request.
    fn note_write(&mut self, slot: u32, request: &Request, bytes: u32) -> Option<Buffer> {
        let length = bytes - HEAD;
        let payload = Payload { length, short: &[] };
        let outcome = self.place_of(slot)?.execute(request, &payload, &mut Vec::new());
        let refused = (!matches!(outcome.data, Data::Place(..))).then_some(outcome.status);
        let exchange = self.exchange_of(slot)?;
        if request.number != exchange.next_request {
            return None;
        }
        exchange.writing = Some(Writing { request: *request, length, refused });
        Some(Site::region(bytes))
    }

    /// The rest of it will not come.
    pub(crate) fn forget_write(&mut self, slot: u32) {
        self.exchange_of(slot).into_iter().for_each(|exchange| exchange.writing = None);
    }

    /// Bytes have come of the write that is under way on a connection, `at` bytes from its start.
    pub(crate) fn write_part(&mut self, slot: u32, at: u32, bytes: &[u8]) {
        // The head was read when it began.
        let skipped = HEAD.saturating_sub(at).min(bytes.len() as u32);
        let data = &bytes[skipped as usize..];
        if !data.is_empty()
            && let Some(place) = self.destination(slot, at + skipped)
            && let Some(memory) = self.end.memory(place.memory)
        {
            let is_written = memory.write(place.offset, data);
            debug_assert!(is_written, "it was bounded just now");
        }
    }

    /// Copies what has come of it into the pool.
    fn write_parts(&mut self, slot: u32, buffer: Buffer, parts: &RangeSet) {
        for part in parts.iter() {
            let (start, end) = ((part.start as u32).max(HEAD), part.end as u32);
            if start < end
                && let Some(place) = self.destination(slot, start)
                && let Some(memory) = self.end.memory(place.memory)
            {
                let (from, length, at) = (to_channel(buffer), end - start, place.offset);
                let is_written = self.end.share_received(from, start, length, memory, at);
                debug_assert!(is_written, "it was bounded just now");
            }
        }
    }

    /// Where bytes go that stand at `at` of the write that is under way, behind its head. Nowhere,
    /// from now on, if the peer may not write there any more.
    fn destination(&mut self, slot: u32, at: u32) -> Option<Spot> {
        let writing = self.exchange(slot)?.writing.filter(|writing| writing.refused.is_none())?;
        match self.place_of(slot)?.destination(&writing.request, writing.length) {
            Ok(start) => Some(start.plus(at - HEAD)),
            Err(status) => {
                let refused = Some(status);
                self.exchange_of(slot)?.writing = Some(Writing { refused, ..writing });
                None
            }
        }
    }
}
