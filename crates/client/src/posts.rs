//! Buffers that the app posts behind its connections, for large messages: see `docs/streams.md`,
//! "Posted buffers".

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use clearway_channel::{Command, MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX, Unposted};

use crate::event::Arrival;
use crate::{Awaited, Channel, ConnectionId, Error, MemoryId};

/// The end of a posted buffer: it is the app's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostEnd {
    /// The connection behind which it was posted.
    pub connection: ConnectionId,
    /// The app's name for it.
    pub tag: u64,
    /// The length of the message that lies in it, from its start; or why there is none.
    pub outcome: Result<u32, Unposted>,
}

/// What a channel knows of posted buffers.
#[derive(Debug, Default)]
pub(crate) struct Posts {
    /// How many of each connection and tag have had no end.
    outstanding: BTreeMap<(ConnectionId, u64), usize>,
    /// Ends that were passed by while messages were taken.
    passed: VecDeque<PostEnd>,
}

impl Posts {
    pub(crate) fn is_quiet(&self) -> bool {
        self.passed.is_empty()
    }

    /// The next end that was passed by.
    pub(crate) fn next_passed(&mut self) -> Option<PostEnd> {
        self.passed.pop_front()
    }

    /// An end that is to be told of later.
    pub(crate) fn pass(&mut self, end: PostEnd) {
        self.passed.push_back(end);
    }

    fn begin(&mut self, connection: ConnectionId, tag: u64) {
        *self.outstanding.entry((connection, tag)).or_default() += 1;
    }

    fn end(&mut self, connection: ConnectionId, tag: u64) {
        if let Some(count) = self.outstanding.get_mut(&(connection, tag)) {
            *count -= 1;
            if *count == 0 {
                self.outstanding.remove(&(connection, tag));
            }
        }
    }

    /// The daemon is gone: all have their ends.
    fn end_all(&mut self) {
        for ((connection, tag), count) in std::mem::take(&mut self.outstanding) {
            let end = PostEnd { connection, tag, outcome: Err(Unposted::Ended) };
            self.passed.extend(std::iter::repeat_n(end, count));
        }
    }
}

impl Channel {
    /// Posts a piece of any memory of the channel behind a connection or stream: a message of more
    /// than 8 KiB that comes there goes into the first posted buffer that it fits, whatever the
    /// state of the receive pool. The buffer has more than 8 KiB and up to 8 MiB, and overlaps no
    /// other that is posted; up to 64 of a connection are at a time, and 16384 of a channel. The
    /// app does not touch it until it has its end, of which [`Channel::next_posted`] or
    /// [`Event::PostEnded`](crate::Event::PostEnded) tells with this `tag`, which need not be the
    /// only one of its kind.
    ///
    /// # Errors
    /// If the connection is not open, there is no such memory, or the piece is of another size or
    /// not inside of it. What only the daemon finds wrong, the buffer's end tells.
    pub fn post(
        &mut self,
        connection: ConnectionId,
        memory: MemoryId,
        piece: Range<u64>,
        tag: u64,
    ) -> Result<(), Error> {
        self.check_open(connection)?;
        self.check_piece(memory, &piece).map_err(|why| Error::Post { why })?;
        self.make_room_for_command()?;
        self.check_open(connection)?;
        let (start, bytes) = (piece.start, piece.end - piece.start);
        self.posts.begin(connection, tag);
        let (connection, memory) = (connection.as_u64(), memory.as_u64());
        self.submit(&Command::Post { connection, tag, memory, start, bytes });
        Ok(())
    }

    fn check_piece(&self, memory: MemoryId, piece: &Range<u64>) -> Result<(), Unposted> {
        let memory = self.memory(memory).ok_or(Unposted::NoMemory)?;
        let sizes = u64::from(SMALL_MESSAGE_BYTES_MAX) + 1..=u64::from(MESSAGE_BYTES_MAX);
        if !sizes.contains(&piece.end.saturating_sub(piece.start)) {
            return Err(Unposted::Size);
        }
        if piece.end > memory.length() { Err(Unposted::OutOfBounds) } else { Ok(()) }
    }

    /// Takes the first buffer of this tag back that is posted behind the connection and has no
    /// message coming into it. Its end tells that it is the app's again. If there is none, nothing
    /// happens: what is posted has had its end, or will have it when the message is there.
    pub fn unpost(&mut self, connection: ConnectionId, tag: u64) -> Result<(), Error> {
        self.make_room_for_command()?;
        self.submit(&Command::Unpost { connection: connection.as_u64(), tag });
        Ok(())
    }

    /// The next end of a posted buffer, of any connection. Each has one, also when the app itself
    /// has closed the connection.
    pub fn next_posted(&mut self, timeout: Option<Duration>) -> Result<PostEnd, Error> {
        self.wait_for(timeout, Awaited::Event, |channel| {
            channel.gather_until(|channel| {
                let passed = channel.posts.next_passed();
                passed.or_else(|| channel.next_end_in_inbox())
            })
        })
    }

    fn next_end_in_inbox(&mut self) -> Option<PostEnd> {
        let is_end = |arrival: &Arrival| matches!(arrival, Arrival::PostEnded(_));
        let at = self.inbox.iter().position(is_end)?;
        match self.inbox.remove(at)? {
            Arrival::PostEnded(end) => Some(end),
            _ => None,
        }
    }

    /// Buffers that are posted and have had no end.
    #[must_use]
    pub fn posts_outstanding(&self) -> usize {
        self.posts.outstanding.values().sum()
    }

    /// What is known of buffers when the daemon has gone: those ends that the app was not told of.
    pub(crate) fn ended_posts(&mut self) -> Posts {
        let told = std::iter::from_fn(|| self.next_end_in_inbox()).collect::<Vec<_>>();
        let mut posts = std::mem::take(&mut self.posts);
        posts.passed.extend(told);
        posts.end_all();
        posts
    }

    /// The daemon tells of the end of a buffer.
    pub(crate) fn post_ended(
        &mut self,
        connection: ConnectionId,
        tag: u64,
        outcome: Result<u32, Unposted>,
    ) -> PostEnd {
        self.posts.end(connection, tag);
        PostEnd { connection, tag, outcome }
    }
}
