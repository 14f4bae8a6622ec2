//! Messages that come into buffers that their receiver has posted: behind one connection, beside
//! none or beside as many others as a channel may have.

use super::clearway::PATIENCE;
use super::{Calls, Endpoint, there_is};
use clearway_client::{Channel, ConnectionId, MemoryId, PostEnd, Shared};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Buffers posted behind each connection: as many as may.
const POSTS: u64 = 64;
/// Smaller ones are not to be had (more than 8 KiB).
const POST_BYTES: u64 = (8 << 10) + 64;
/// A message fills its buffer.
pub(crate) const MESSAGE_BYTES: usize = POST_BYTES as usize;
/// What is read of a message, and answered: its number.
const NUMBER_BYTES: usize = 8;

/// How many buffers are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Posted {
    /// Behind the connection by which messages come.
    Few,
    /// Behind 255 others, too: 16,384, more than which a channel may not have.
    Many,
}

impl Posted {
    pub(crate) const fn connections(self) -> usize {
        match self {
            Self::Few => 1,
            Self::Many => 256,
        }
    }

    /// Memory for all buffers.
    pub(crate) fn shared_bytes(self) -> u32 {
        let bytes = self.connections() as u64 * POSTS * POST_BYTES;
        u32::try_from(bytes.next_power_of_two()).expect("less than 1 GiB")
    }
}

/// The end that takes messages, and answers with their numbers.
pub(crate) struct Receiver {
    channel: Channel,
    calls: Calls,
    memory: Shared,
    /// The message last received.
    current: Option<PostEnd>,
    number: [u8; NUMBER_BYTES],
}

impl Receiver {
    /// Posts buffers behind each of these connections.
    pub(crate) fn new(
        channel: Channel,
        connections: &[ConnectionId],
        calls: Calls,
    ) -> io::Result<Self> {
        let memory = channel.shared();
        let number = [0; NUMBER_BYTES];
        let mut receiver = Self { channel, calls, memory, current: None, number };
        for (at, connection) in connections.iter().enumerate() {
            for tag in at as u64 * POSTS..(at as u64 + 1) * POSTS {
                receiver.post(*connection, tag)?;
            }
        }
        Ok(receiver)
    }

    /// The tag says where the buffer is.
    fn post(&mut self, connection: ConnectionId, tag: u64) -> io::Result<()> {
        let piece = tag * POST_BYTES..(tag + 1) * POST_BYTES;
        self.channel.post(connection, MemoryId::CHANNEL, piece, tag).map_err(io::Error::other)
    }

    fn take(&mut self, end: PostEnd) -> io::Result<()> {
        if end.outcome != Ok(MESSAGE_BYTES as u32) {
            return Err(io::Error::other(format!("no message is in a buffer: {:?}", end.outcome)));
        }
        if !self.memory.read(end.tag * POST_BYTES, &mut self.number) {
            return Err(io::Error::other("a buffer that was never posted"));
        }
        self.current = Some(end);
        Ok(())
    }
}

impl Endpoint for Receiver {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        unreachable!("a receiver only answers")
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let timeout = if self.waits() { PATIENCE } else { Duration::ZERO };
        match there_is(self.channel.next_posted(Some(timeout)))? {
            Some(end) => self.take(end).map(|()| Some(&self.number[..])),
            None => Ok(None),
        }
    }

    /// The buffer is there for the next message.
    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let Some(PostEnd { connection, tag, .. }) = self.current else { return Ok(false) };
        if there_is(self.channel.try_send(connection, &self.number[..length]))?.is_none() {
            return Ok(false);
        }
        self.current = None;
        self.post(connection, tag).map(|()| true)
    }
}
