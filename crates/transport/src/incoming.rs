//! The receiving half of a connection: puts messages together in the app's memory and hands them
//! over in order. Detecting duplicate packets is not its job (see `acks.rs`), but every fragment
//! may come twice, in another packet, and is then ignored.

use std::collections::BTreeMap;

use clearway_base::RangeSet;

use crate::app::{App, Buffer, Owner};
use crate::config::MESSAGE_OVERHEAD;

/// Why a packet's data was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The app's receive pool has no room; the packet must not be acknowledged.
    NoBuffer,
    /// The sender went beyond its limit, or contradicts itself.
    Violation,
}

/// A message of which not all bytes are here, or which waits for an earlier one.
#[derive(Debug)]
struct Partial {
    buffer: Buffer,
    /// What is missing is the complement; always a single range unless packets were reordered.
    received: RangeSet,
}

impl Partial {
    fn is_complete(&self) -> bool {
        self.buffer.length == 0
            || self
                .received
                .first()
                .is_some_and(|range| range == (0..u64::from(self.buffer.length)))
    }
}

/// Messages on their way in.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Sequence number of the next message to deliver, not wrapped.
    next: u64,
    partial: BTreeMap<u64, Partial>,
    /// Positions received: each message's overhead once, each byte once.
    received: u64,
    /// Positions of messages that the app has released.
    released: u64,
    /// Positions, received or not, of messages that have their buffer but are not complete.
    reserved: u64,
    /// Positions that the sender may use beyond those released.
    window: u64,
    /// The limit that was last announced.
    announced: u64,
    /// A message was refused for want of memory: the sender must be told when there is some.
    starved: bool,
}

impl Incoming {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            next: 0,
            partial: BTreeMap::new(),
            received: 0,
            released: 0,
            reserved: 0,
            window,
            announced: window,
            starved: false,
        }
    }

    /// Takes a whole message.
    pub(crate) fn message(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let sequence = self.unwrap_sequence(sequence);
        if sequence != self.next || self.partial.contains_key(&sequence) {
            return self.part(app, owner, sequence, bytes.len() as u32, 0, bytes);
        }
        // The usual case: the one that is due, in one piece.
        let positions = MESSAGE_OVERHEAD + bytes.len() as u64;
        self.check_limit(positions)?;
        let buffer = self.allocate(app, owner, bytes.len() as u32)?;
        app.write(owner, buffer, 0, bytes);
        self.received += positions;
        self.next += 1;
        app.deliver(owner, buffer);
        if !self.partial.is_empty() {
            self.deliver_ready(app, owner);
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
        let sequence = self.unwrap_sequence(sequence);
        self.part(app, owner, sequence, total, at, bytes)
    }

    fn part(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u64,
        total: u32,
        at: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        if sequence < self.next {
            return Ok(()); // delivered already: sent again by a sender that did not know
        }
        if !self.partial.contains_key(&sequence) {
            self.check_limit(MESSAGE_OVERHEAD + bytes.len() as u64)?;
            let buffer = self.allocate(app, owner, total)?;
            self.partial.insert(sequence, Partial { buffer, received: RangeSet::new() });
            self.received += MESSAGE_OVERHEAD;
            self.reserved += MESSAGE_OVERHEAD + u64::from(total);
        }
        let limit = self.announced;
        let Some(partial) = self.partial.get_mut(&sequence) else { return Err(Refused::Violation) };
        if partial.buffer.length != total {
            return Err(Refused::Violation);
        }
        let range = u64::from(at)..u64::from(at) + bytes.len() as u64;
        let before = count(&partial.received);
        if partial.received.insert(range) {
            app.write(owner, partial.buffer, at, bytes);
        }
        self.received += count(&partial.received) - before;
        if self.received > limit {
            return Err(Refused::Violation);
        }
        if partial.is_complete() && sequence == self.next {
            self.deliver_ready(app, owner);
        }
        Ok(())
    }

    fn deliver_ready(&mut self, app: &mut impl App, owner: Owner) {
        while let Some(entry) = self.partial.first_entry() {
            if *entry.key() != self.next || !entry.get().is_complete() {
                return;
            }
            let partial = entry.remove();
            self.reserved -= MESSAGE_OVERHEAD + u64::from(partial.buffer.length);
            self.next += 1;
            app.deliver(owner, partial.buffer);
        }
    }

    fn allocate(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        length: u32,
    ) -> Result<Buffer, Refused> {
        app.allocate(owner, length).ok_or_else(|| {
            self.starved = true;
            Refused::NoBuffer
        })
    }

    fn check_limit(&self, positions: u64) -> Result<(), Refused> {
        if self.received + positions > self.announced { Err(Refused::Violation) } else { Ok(()) }
    }

    /// The app has released a message of `length` bytes.
    pub(crate) fn release(&mut self, length: u32) {
        self.released += MESSAGE_OVERHEAD + u64::from(length);
    }

    /// True if the limit has grown by a quarter of the window since it was last announced.
    pub(crate) fn limit_is_worth_telling(&self) -> bool {
        self.limit() >= self.announced + self.window / 4
    }

    /// The app's pool ran out for this flow since the last [`Incoming::announce_limit`].
    pub(crate) const fn is_starved(&self) -> bool {
        self.starved
    }

    /// The limit to announce now.
    pub(crate) fn announce_limit(&mut self) -> u64 {
        self.starved = false;
        self.announced = self.announced.max(self.limit());
        self.announced
    }

    const fn limit(&self) -> u64 {
        self.released + self.reserved + self.window
    }

    /// Messages delivered so far.
    pub(crate) const fn messages_delivered(&self) -> u64 {
        self.next
    }

    /// Gives back the buffers of messages that will never be complete.
    pub(crate) fn discard(&mut self, app: &mut impl App, owner: Owner) {
        while let Some((_, partial)) = self.partial.pop_first() {
            app.discard(owner, partial.buffer);
        }
    }

    /// Finds the full sequence number of which `sequence` is the low half, nearest to the next.
    fn unwrap_sequence(&self, sequence: u32) -> u64 {
        let distance = sequence.wrapping_sub(self.next as u32) as i32;
        self.next.saturating_add_signed(i64::from(distance))
    }
}

fn count(set: &RangeSet) -> u64 {
    set.iter().map(|range| range.end - range.start).sum()
}
