//! Where what is received goes: each piece of new payload, of one segment or of several that came
//! together, into a buffer of its own in the app's receive pool, by one copy: from the NIC's
//! buffer, or from where the app has it that sends it, if that is one of this engine.

use std::collections::BTreeMap;
use std::ops::Range;

use clearway_base::SlotId;
use clearway_channel::Buffer;
use clearway_tcp::{Extent, Listener, Memory};

use super::Tcp;
use super::books::{self, Books};
use super::ports::Ports;
use crate::channels::Channels;

/// What comes out of order leaves so much of a pool: a slab of it, which has room for what is to be
/// read next, whatever its size.
const RESERVE_BYTES: u32 = 64 << 10;

/// The memory of all apps, for one segment.
pub(super) struct Keeper<'a> {
    channels: &'a mut Channels,
    books: &'a mut Books,
    ports: &'a Ports,
    /// Whose a connection is that has not been accepted yet.
    channel: Option<u32>,
    payload: Payload<'a>,
    /// There was no memory for a part of it.
    pub(super) refused: Option<Refused>,
}

/// The payload of the segment at hand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// In pieces, as frames have brought it.
    Pieces(&'a [&'a [u8]]),
    /// Where the app of this engine has it that sends it.
    Sent(&'a [Extent]),
}

/// What there was no memory for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    channel: Option<u32>,
    /// What its connection would have out of order with it; nothing, if it is next.
    ahead_bytes: u64,
}

/// While there is no segment at hand.
pub(super) fn idle<'a>(
    channels: &'a mut Channels,
    books: &'a mut Books,
    ports: &'a Ports,
    channel: Option<u32>,
) -> Keeper<'a> {
    Keeper { channel, ..Keeper::new(channels, books, ports, Payload::Pieces(&[])) }
}

impl<'a> Keeper<'a> {
    pub(super) fn new(
        channels: &'a mut Channels,
        books: &'a mut Books,
        ports: &'a Ports,
        payload: Payload<'a>,
    ) -> Self {
        Self { channels, books, ports, channel: None, payload, refused: None }
    }

    /// The channel of a connection, and what it has been told of.
    #[inline]
    fn whose(&self, connection: SlotId) -> (Option<u32>, u64) {
        match self.books.get(connection) {
            Some(book) => (Some(book.channel), book.received),
            None => (self.channel, 0),
        }
    }

    #[inline]
    fn put(
        &mut self,
        connection: SlotId,
        channel: Option<u32>,
        part: Range<u32>,
        is_next: bool,
    ) -> Option<Extent> {
        let id = channel?;
        let channel = self.channels.channel(id)?;
        // What comes out of order leaves the rest to what the app can read, and so release.
        if !is_next && !channel.has_half_its_memory() {
            return None;
        }
        let length = part.end - part.start;
        let buffer = channel.keep(books::tag(connection), length)?;
        // The pool cuts slabs into cells of one size: pieces of different sizes could have a part
        // of each, and what is to be read next, of one more size, would find no room.
        if !is_next && !channel.end.has_room(RESERVE_BYTES) {
            channel.throw_away(buffer.id);
            return None;
        }
        self.copy(id, buffer, part);
        Some(Extent { region: buffer.id, offset: buffer.offset, length })
    }

    /// The one copy.
    #[inline]
    fn copy(&mut self, channel: u32, buffer: Buffer, part: Range<u32>) {
        let mut at = 0;
        match self.payload {
            Payload::Pieces(pieces) => {
                let Some(channel) = self.channels.channel(channel) else { return };
                for (piece, within) in cut(pieces, |piece| piece.len() as u32, part) {
                    let bytes = &piece[within.start as usize..within.end as usize];
                    channel.end.write(buffer, at, bytes);
                    at += bytes.len() as u32; // of a packet
                }
            }
            Payload::Sent(extents) => {
                for (sent, within) in cut(extents, |extent| extent.length, part) {
                    let bytes = (sent.offset + within.start, within.end - within.start);
                    self.channels.copy_sent(sent.region, bytes, channel, buffer, at);
                    at += bytes.1;
                }
            }
        }
    }
}

/// The pieces in which the bytes `part` of a payload are, and which bytes of each.
#[inline]
fn cut<T>(
    pieces: &[T],
    length: impl Fn(&T) -> u32,
    part: Range<u32>,
) -> impl Iterator<Item = (&T, Range<u32>)> {
    let mut end = 0;
    pieces.iter().filter_map(move |piece| {
        let start = end;
        end += length(piece);
        let (from, to) = (part.start.max(start), part.end.min(end));
        (from < to).then(|| (piece, from - start..to - start))
    })
}

impl Memory for Keeper<'_> {
    #[inline]
    fn keep(&mut self, connection: SlotId, position: u64, part: Range<u32>) -> Option<Extent> {
        let (channel, received) = self.whose(connection);
        let (is_next, length) = (position == received, u64::from(part.end - part.start));
        let kept = self.put(connection, channel, part, is_next);
        if is_next && kept.is_some() {
            return kept;
        }
        let ahead_bytes = if is_next { 0 } else { self.books.ahead_bytes(connection) + length };
        match kept {
            Some(_) => self.books.set_ahead(connection, ahead_bytes),
            None => self.refused = Some(Refused { channel, ahead_bytes }),
        }
        kept
    }

    fn offered(&mut self, _: SlotId, listener: Listener) {
        self.channel = self.ports.of_listener(listener).map(|(channel, _)| channel);
    }

    fn discard(&mut self, connection: SlotId, extent: Extent) {
        let channel = self.whose(connection).0.and_then(|id| self.channels.channel(id));
        if let Some(channel) = channel {
            channel.throw_away(extent.region);
        }
    }
}

impl Tcp {
    /// There was no room for something. What another connection of the app has out of order goes
    /// for it, half of what that has, if it is at least twice of what this one would have.
    #[cold]
    pub(super) fn share_what_is_ahead(&mut self, channels: &mut Channels, refused: Refused) {
        let most = refused.channel.and_then(|channel| self.books.most_ahead(channel));
        let Some((bytes, key)) = most else { return };
        if bytes >= 2 * refused.ahead_bytes {
            let memory = &mut idle(channels, &mut self.books, &self.ports, refused.channel);
            self.stack.renege(key, memory);
            self.books.set_ahead(key, self.stack.ahead_bytes(key));
        }
    }

    /// Buffers of the apps, by channel, that have bytes in them which the apps have not been told
    /// of.
    pub(crate) fn held(&self) -> BTreeMap<u32, Vec<Buffer>> {
        let mut held = BTreeMap::<u32, Vec<Buffer>>::new();
        for key in self.stack.connections() {
            let Some(channel) = self.books.get(key).map(|book| book.channel) else { continue };
            let buffers = self.stack.received(key).map(|extent| {
                let Extent { region: id, offset, length } = extent;
                Buffer { id, offset, length }
            });
            held.entry(channel).or_default().extend(buffers);
        }
        held
    }
}
