//! Buffers that an app has posted: pieces of its memory, lined up behind its connections for large
//! messages. A message takes the first of its connection that it fits, and from then on no other
//! can; who waits in the pool has nothing to do with it.
//!
//! ```text
//!  post ─▶ waiting ─begin─▶ taken ─end─▶ the app has a message in it
//!            └──────end───────┴───────▶ the app has it back
//! ```
//!
//! No two overlap, whichever connections they are of: what the app is told of is what the peer has
//! sent, and of nobody else.

mod state;

use std::collections::BTreeMap;

use clearway_channel::{
    DaemonEnd, MESSAGE_BYTES_MAX, POSTS_MAX, POSTS_PER_CONNECTION_MAX, SMALL_MESSAGE_BYTES_MAX,
    Unposted,
};
use clearway_transport::Buffer;

use super::sites::Site;
use crate::operations::Spot;
pub use state::PostState;

/// Numbers are below that. Far more than there are at a time.
const NUMBERS: u32 = 1 << 30;

/// A posted buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    /// The slot of its connection.
    pub(super) connection: u32,
    /// The app's name for it.
    pub(super) tag: u64,
    /// Where it is.
    pub(super) start: Spot,
    pub(super) bytes: u32,
    /// A message is coming into it.
    pub(super) is_taken: bool,
}

impl Post {
    fn end(&self) -> u64 {
        self.start.plus(self.bytes).offset
    }
}

/// All of a channel.
#[derive(Debug, Default)]
pub(super) struct Posts {
    all: BTreeMap<u32, Post>,
    /// By the slots of connections: the numbers of theirs, in the order in which they were posted.
    lines: BTreeMap<u32, Vec<u32>>,
    /// By memory and where they begin: their numbers.
    places: BTreeMap<(u64, u64), u32>,
    /// Where a free number is looked for.
    next: u32,
}

impl Posts {
    /// Lines a buffer up, of `bytes` in the memory of a channel.
    pub(super) fn post(
        &mut self,
        end: &DaemonEnd,
        connection: u32,
        tag: u64,
        (start, bytes): (Spot, u64),
    ) -> Result<(), Unposted> {
        let posted = self.lines.get(&connection).map_or(0, Vec::len);
        if posted >= POSTS_PER_CONNECTION_MAX as usize || self.all.len() >= POSTS_MAX as usize {
            return Err(Unposted::TooMany);
        }
        let post = Post { connection, tag, start, bytes: size(bytes)?, is_taken: false };
        self.check_place(end, &post)?;
        let number = self.free_number();
        self.insert(number, post);
        Ok(())
    }

    fn check_place(&self, end: &DaemonEnd, post: &Post) -> Result<(), Unposted> {
        if end.memory(post.start.memory).is_none() {
            return Err(Unposted::NoMemory);
        }
        if !post.start.has(end, post.bytes.into()) {
            return Err(Unposted::OutOfBounds);
        }
        // None overlaps another, so that only the last that begins before the end can be in it.
        let before = (post.start.memory, 0)..(post.start.memory, post.end());
        let last = self.places.range(before).next_back();
        match last.and_then(|(_, number)| self.all.get(number)) {
            Some(last) if last.end() > post.start.offset => Err(Unposted::Overlaps),
            _ => Ok(()),
        }
    }

    fn free_number(&mut self) -> u32 {
        while self.all.contains_key(&self.next) {
            self.next = (self.next + 1) % NUMBERS;
        }
        let number = self.next;
        self.next = (number + 1) % NUMBERS;
        number
    }

    fn insert(&mut self, number: u32, post: Post) {
        self.places.insert((post.start.memory, post.start.offset), number);
        self.lines.entry(post.connection).or_default().push(number);
        self.all.insert(number, post);
    }

    /// A buffer for a large message of a connection, if one is posted that it fits.
    pub(super) fn begin(&mut self, connection: u32, length: u32) -> Option<Buffer> {
        if length <= SMALL_MESSAGE_BYTES_MAX {
            return None;
        }
        let number = self.find(connection, |post| !post.is_taken && post.bytes >= length)?;
        self.all.get_mut(&number)?.is_taken = true;
        Some(Site::posted(number, length))
    }

    /// Where a message that has begun lies.
    pub(super) fn place(&self, number: u32) -> Option<Spot> {
        self.all.get(&number).map(|post| post.start)
    }

    /// The first of a connection with this tag that waits for a message: it does no more.
    pub(super) fn cancel(&mut self, connection: u32, tag: u64) -> Option<Post> {
        let number = self.find(connection, |post| !post.is_taken && post.tag == tag)?;
        self.end(number)
    }

    /// The first of a connection that waits for a message: it does no more.
    pub(super) fn end_waiting(&mut self, connection: u32) -> Option<Post> {
        let number = self.find(connection, |post| !post.is_taken)?;
        self.end(number)
    }

    fn find(&self, connection: u32, is_it: impl Fn(&Post) -> bool) -> Option<u32> {
        let mut line = self.lines.get(&connection)?.iter().copied();
        line.find(|number| self.all.get(number).is_some_and(&is_it))
    }

    /// A buffer is the app's again.
    pub(super) fn end(&mut self, number: u32) -> Option<Post> {
        let post = self.all.remove(&number)?;
        self.places.remove(&(post.start.memory, post.start.offset));
        if let Some(line) = self.lines.get_mut(&post.connection) {
            line.retain(|other| *other != number);
            if line.is_empty() {
                self.lines.remove(&post.connection);
            }
        }
        Some(post)
    }

    /// The connection is over, and nobody is told.
    pub(super) fn forget(&mut self, connection: u32) {
        for number in self.lines.remove(&connection).into_iter().flatten() {
            self.end(number);
        }
    }

    /// True if one is a piece of this memory.
    pub(super) fn use_memory(&self, memory: u64) -> bool {
        self.places.range((memory, 0)..=(memory, u64::MAX)).next().is_some()
    }

    /// Slots of connections that have some.
    pub(super) fn connections(&self) -> impl Iterator<Item = u32> {
        self.lines.keys().copied()
    }

    /// Whether what is noted of them is what there is.
    pub(super) fn audit(&self) -> Result<(), String> {
        let lined: usize = self.lines.values().map(Vec::len).sum();
        let (all, placed) = (self.all.len(), self.places.len());
        if lined == all && placed == all && !self.lines.values().any(Vec::is_empty) {
            return Ok(());
        }
        Err(format!("{all} buffers are posted, {lined} in line, {placed} in memory"))
    }
}

/// The size of a buffer, if messages go into such.
fn size(bytes: u64) -> Result<u32, Unposted> {
    let bytes = u32::try_from(bytes).map_err(|_| Unposted::Size)?;
    let sizes = SMALL_MESSAGE_BYTES_MAX + 1..=MESSAGE_BYTES_MAX;
    if sizes.contains(&bytes) { Ok(bytes) } else { Err(Unposted::Size) }
}

#[cfg(test)]
mod tests;
