//! Where what is received goes: each piece of new payload into a buffer of its own in the app's
//! receive pool, by one copy from the NIC's buffer.

use std::collections::BTreeMap;
use std::ops::Range;

use clearway_channel::Buffer;
use clearway_tcp::{Extent, Key, Memory};

use super::Tcp;
use super::books::{self, Books};
use crate::channels::Channels;

/// What comes out of order leaves so much of a pool: a slab of it, which has room for what is to be
/// read next, whatever its size.
const RESERVE_BYTES: u32 = 64 << 10;

/// The memory of all apps, for one segment.
pub(super) struct Keeper<'a> {
    pub(super) channels: &'a mut Channels,
    pub(super) books: &'a Books,
    /// Whose a connection is that has not been accepted yet.
    pub(super) channel: Option<u32>,
    /// The payload of the segment at hand.
    pub(super) payload: &'a [u8],
}

impl<'a> Keeper<'a> {
    /// While there is no segment at hand.
    pub(super) fn idle(channels: &'a mut Channels, books: &'a Books, channel: Option<u32>) -> Self {
        Self { channels, books, channel, payload: &[] }
    }

    #[inline]
    fn channel_of(&self, connection: Key) -> Option<u32> {
        self.books.get(connection).map(|book| book.channel).or(self.channel)
    }
}

impl Memory for Keeper<'_> {
    #[inline]
    fn keep(&mut self, connection: Key, position: u64, part: Range<u32>) -> Option<Extent> {
        let is_next = position == self.books.get(connection).map_or(0, |book| book.received);
        let channel = self.channels.channel(self.channel_of(connection)?)?;
        // What comes out of order leaves the rest to what the app can read, and so release.
        if !is_next && !channel.has_half_its_memory() {
            return None;
        }
        let bytes = &self.payload[part.start as usize..part.end as usize];
        let buffer = channel.keep(books::tag(connection), bytes)?;
        // The pool cuts slabs into cells of one size: pieces of different sizes could have a part
        // of each, and what is to be read next, of one more size, would find no room.
        if !is_next && !channel.end.has_room(RESERVE_BYTES) {
            channel.throw_away(buffer.id);
            return None;
        }
        Some(Extent { region: buffer.id, offset: buffer.offset, length: buffer.length })
    }

    fn discard(&mut self, connection: Key, extent: Extent) {
        let channel = self.channel_of(connection).and_then(|id| self.channels.channel(id));
        if let Some(channel) = channel {
            channel.throw_away(extent.region);
        }
    }
}

impl Tcp {
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
