//! What a channel does with buffers that its app has posted: see `channels/posts.rs`.

use clearway_channel::{Completion, Shared, Unposted};
use clearway_transport::{Buffer, Order, StreamKey};

use super::Channel;
use crate::channels::connection::Stage;
use crate::channels::posts::Post;
use crate::channels::sites::Site;
use crate::operations::Spot;

impl Channel {
    /// The app posts a buffer behind a connection: its slot. If that cannot be, the app is told.
    pub(crate) fn post(&mut self, connection: u64, tag: u64, piece: (Spot, u64)) -> Option<u32> {
        let slot = self.open_slot(connection).ok_or(Unposted::NoConnection);
        let posted = slot.and_then(|slot| self.posts.post(&self.end, slot, tag, piece));
        match posted {
            Ok(()) => slot.ok(),
            Err(why) => {
                self.tell(Completion::Unposted { why: why as u8, connection, tag });
                None
            }
        }
    }

    /// The slot of a connection that the app has not closed.
    fn open_slot(&self, connection: u64) -> Option<u32> {
        let slot = self.find(connection)?;
        let stage = self.peek_connection(slot)?.stage;
        matches!(stage, Stage::Open | Stage::Behind).then_some(slot)
    }

    /// The app takes a buffer back. If a message is coming into it, its end will be told.
    pub(crate) fn unpost(&mut self, connection: u64, tag: u64) {
        let slot = self.find(connection);
        if let Some(post) = slot.and_then(|slot| self.posts.cancel(slot, tag)) {
            self.tell_unposted(&post, Unposted::Cancelled);
        }
    }

    /// A posted buffer for a message, if there is one that it fits.
    pub(crate) fn begin_posted(&mut self, slot: u32, length: u32, order: Order) -> Option<Buffer> {
        let buffer = self.posts.begin(slot, length)?;
        if order == Order::Due {
            self.line.leave_too_large(slot);
            self.note_turn(slot, length, true);
        }
        Some(buffer)
    }

    /// Copies received bytes into a posted buffer. It was bounded when it was posted, and its
    /// memory is there until its end.
    pub(crate) fn write_posted(&self, number: u32, at: u32, bytes: &[u8]) {
        let place = self.posts.place(number).map(|start| start.plus(at));
        if let Some((memory, offset)) = place.and_then(|place| self.posted_memory(place)) {
            let is_written = memory.write(offset, bytes);
            debug_assert!(is_written, "it was bounded when it was posted");
        }
    }

    /// Where a message lies that has begun: memory, and offset in it.
    pub(crate) fn posted_place(&self, buffer: Buffer) -> Option<(&Shared, u64)> {
        let Site::Posted(number) = Site::of(buffer) else { return None };
        self.posted_memory(self.posts.place(number)?)
    }

    fn posted_memory(&self, place: Spot) -> Option<(&Shared, u64)> {
        Some((self.end.memory(place.memory)?, place.offset))
    }

    /// Gives the app a message in a posted buffer.
    pub(crate) fn place(&mut self, number: u32, length: u32) {
        let Some(Post { connection: slot, tag, .. }) = self.posts.end(number) else { return };
        let connection = self.id(slot);
        let Some(sent) = self.count_received(slot) else { return };
        self.tell(Completion::Placed { connection, tag, length, sent });
    }

    /// Nothing more comes into a posted buffer: its connection ends.
    pub(super) fn end_posted(&mut self, number: u32) {
        if let Some(post) = self.posts.end(number) {
            self.tell_unposted(&post, Unposted::Ended);
        }
    }

    /// Nothing will come into the buffers of a connection that wait for messages.
    pub(super) fn end_posts(&mut self, slot: u32) {
        while let Some(post) = self.posts.end_waiting(slot) {
            self.tell_unposted(&post, Unposted::Ended);
        }
    }

    fn tell_unposted(&mut self, post: &Post, why: Unposted) {
        let (connection, tag) = (self.id(post.connection), post.tag);
        self.tell(Completion::Unposted { why: why as u8, connection, tag });
    }

    /// True if a buffer is posted that is a piece of this memory.
    pub(crate) fn uses_posted(&self, memory: u64) -> bool {
        self.posts.use_memory(memory)
    }

    /// The flow of a connection, if it is one over the wire.
    pub(crate) fn flow(&self, slot: u32) -> Option<StreamKey> {
        self.peek_connection(slot)?.bearer.flow()
    }

    /// True if the peer of a connection was turned away, and was not told of memory since: it is to
    /// be told now.
    pub(crate) fn was_turned_away(&mut self, slot: u32) -> bool {
        self.line.take_turned_away(slot)
    }
}
