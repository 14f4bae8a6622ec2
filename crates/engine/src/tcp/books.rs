//! Whose each connection is, and what its app has been told. An app names a connection by its key
//! in the stack, and can name its own only.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, RangeBounds};

use clearway_base::SlotId;

/// Marks the owner tag of a buffer as one of TCP: connections of messages have none with it. The
/// rest is the connection's place, and a part of its generation.
const TAG: u32 = 1 << 31;
const TAG_INDEX_BITS: u32 = 17;

/// What is noted of a connection.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) key: SlotId,
    pub(super) channel: u32,
    /// The number of its port.
    pub(super) port: u32,
    /// The app's name for its attempt to connect, while that goes on.
    pub(super) connecting: Option<u64>,
    /// Sends taken from the app, and those of them that are finished.
    pub(super) submitted: u32,
    pub(super) sent: u32,
    /// `sent` as the app knows it.
    pub(super) sent_told: u32,
    /// Bytes that the app has been told of: what comes next is at this position.
    pub(super) received: u64,
    /// Bytes that have come out of order, and are in its app's memory.
    ahead_bytes: u64,
    /// The app knows that its peer has finished.
    pub(super) is_finished: bool,
    /// The app has let go of it.
    pub(super) is_closing: bool,
    /// The connection of this engine that is its other end, if one is.
    pub(super) peer: Option<SlotId>,
    /// Bytes that the other end's app has room for, if it was held up; 0 if nobody has looked.
    pub(super) offered: u32,
}

/// Where the book of a connection is among those of its channel: the number of its port, and its
/// place.
pub(crate) type PortPlace = (u32, u32);

/// All connections of an engine that are some app's.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By the places of their keys.
    books: Vec<Option<Book>>,
    /// Those of each channel.
    channels: HashMap<u32, BTreeSet<PortPlace>>,
    /// Of each channel's that have something out of order, how much that is, and the places.
    ahead: HashMap<u32, BTreeSet<(u64, u32)>>,
}

/// The id by which an app names a connection; none is 0.
pub(super) fn id(key: SlotId) -> u64 {
    key.to_bits()
}

/// What a buffer of a connection remembers.
pub(super) fn tag(key: SlotId) -> u32 {
    TAG | (key.generation << TAG_INDEX_BITS & !TAG) | key.slot
}

impl Books {
    pub(super) fn open(&mut self, key: SlotId, channel: u32, port: u32, connecting: Option<u64>) {
        self.insert(Book {
            key,
            channel,
            port,
            connecting,
            submitted: 0,
            sent: 0,
            sent_told: 0,
            received: 0,
            ahead_bytes: 0,
            is_finished: false,
            is_closing: false,
            peer: None,
            offered: 0,
        });
    }

    pub(super) fn insert(&mut self, book: Book) {
        let (place, channel, port) = (book.key.slot, book.channel, book.port);
        if self.books.len() <= place as usize {
            self.books.resize_with(place as usize + 1, || None);
        }
        self.books[place as usize] = Some(book);
        self.channels.entry(channel).or_default().insert((port, place));
    }

    pub(super) fn remove(&mut self, key: SlotId) -> Option<Book> {
        self.set_ahead(key, 0);
        let place = self.books.get_mut(key.slot as usize)?;
        let book = place.take_if(|book| book.key == key)?;
        if let Some(places) = self.channels.get_mut(&book.channel) {
            places.remove(&(book.port, key.slot));
            if places.is_empty() {
                self.channels.remove(&book.channel);
            }
        }
        Some(book)
    }

    #[inline]
    pub(super) fn get(&self, key: SlotId) -> Option<&Book> {
        self.books.get(key.slot as usize)?.as_ref().filter(|book| book.key == key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: SlotId) -> Option<&mut Book> {
        self.books.get_mut(key.slot as usize)?.as_mut().filter(|book| book.key == key)
    }

    /// The channel of a connection.
    pub(super) fn channel_of(&self, key: SlotId) -> Option<u32> {
        self.get(key).map(|book| book.channel)
    }

    /// Bytes that a connection has out of order.
    #[inline]
    pub(super) fn ahead_bytes(&self, key: SlotId) -> u64 {
        self.get(key).map_or(0, |book| book.ahead_bytes)
    }

    /// So many they are now.
    pub(super) fn set_ahead(&mut self, key: SlotId, bytes: u64) {
        let Some(book) = self.get_mut(key).filter(|book| book.ahead_bytes != bytes) else { return };
        let before = (core::mem::replace(&mut book.ahead_bytes, bytes), key.slot);
        let channel = book.channel;
        let of_channel = self.ahead.entry(channel).or_default();
        of_channel.remove(&before);
        if bytes > 0 {
            of_channel.insert((bytes, key.slot));
        }
        if of_channel.is_empty() {
            self.ahead.remove(&channel);
        }
    }

    /// Which connection of a channel has most out of order, and how much.
    pub(super) fn most_ahead(&self, channel: u32) -> Option<(u64, SlotId)> {
        let (bytes, place) = *self.ahead.get(&channel)?.last()?;
        Some((bytes, self.at(place as usize)?.key))
    }

    /// The connection that the app of a channel means, if it has it.
    #[inline]
    pub(super) fn find(&mut self, channel: u32, id: u64) -> Option<&mut Book> {
        let key = SlotId::of_bits(id);
        let book = self.books.get_mut(key.slot as usize)?.as_mut()?;
        (book.channel == channel && book.key == key).then_some(book)
    }

    /// The connection of a channel that a buffer with this tag belongs to, if it lives on.
    pub(super) fn find_tag(&self, channel: u32, tag: u32) -> Option<SlotId> {
        let place = tag & ((1 << TAG_INDEX_BITS) - 1);
        let book = self.books.get(place as usize)?.as_ref()?;
        (book.channel == channel && self::tag(book.key) == tag).then_some(book.key)
    }

    /// The connections of a channel, so many at most.
    pub(super) fn of_channel(&self, channel: u32, most: usize) -> Vec<SlotId> {
        self.books_of(channel).map(|book| book.key).take(most).collect()
    }

    /// Those of one of its ports, so many at most.
    pub(super) fn of_port(&self, channel: u32, port: u32, most: usize) -> Vec<SlotId> {
        let of_port = self.books_in(channel, (port, 0)..=(port, u32::MAX));
        of_port.map(|book| book.key).take(most).collect()
    }

    /// The first of a channel that is behind `after`, of all if that is nothing; and where it is.
    pub(super) fn next_of(
        &mut self,
        channel: u32,
        after: Option<PortPlace>,
    ) -> Option<(PortPlace, &mut Book)> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let at = *self.channels.get(&channel)?.range(behind).next()?;
        Some((at, self.books.get_mut(at.1 as usize)?.as_mut()?))
    }

    /// All of them, by their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Book> {
        self.books.iter().flatten()
    }

    /// The connection at a place, if there is one.
    pub(super) fn at(&self, place: usize) -> Option<&Book> {
        self.books.get(place)?.as_ref()
    }

    /// How many places there are, free ones included.
    pub(super) fn places(&self) -> usize {
        self.books.len()
    }

    /// How many connections a channel has.
    pub(super) fn count_of(&self, channel: u32) -> usize {
        self.channels.get(&channel).map_or(0, BTreeSet::len)
    }

    /// Sends of a channel that are taken and not finished.
    pub(super) fn outstanding_of(&self, channel: u32) -> u32 {
        self.books_of(channel).map(|book| book.submitted.wrapping_sub(book.sent)).sum()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.channels.values().map(BTreeSet::len).sum()
    }

    fn books_of(&self, channel: u32) -> impl Iterator<Item = &Book> {
        self.books_in(channel, ..)
    }

    fn books_in(
        &self,
        channel: u32,
        range: impl RangeBounds<PortPlace>,
    ) -> impl Iterator<Item = &Book> {
        let places = self.channels.get(&channel).map(|places| places.range(range));
        places.into_iter().flatten().filter_map(|(_, place)| self.at(*place as usize))
    }
}
