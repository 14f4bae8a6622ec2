//! Small messages of a connection while its streams carry large ones.

use super::clearway::PATIENCE;
use super::{Calls, Endpoint, closed, there_is};
use clearway_client::{Channel, ConnectionId, Event, Message};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Streams with large messages, and how many of these each keeps in flight.
const STREAMS: usize = 3;
const LARGE_IN_FLIGHT: usize = 2;
/// Bytes of a large message.
const LARGE_BYTES: usize = 1 << 20;
/// Room that large messages take in a pool, those that wait to be released included.
pub(crate) const POOL_BYTES: u32 = 64 << 20;
/// The server has taken a large message.
const TAKEN: &[u8] = &[];
/// The urgency of what goes first.
const FIRST: u8 = 0;
const WEIGHT: u16 = 16;

/// What goes beside the small messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Company {
    /// Nothing.
    None,
    /// Large messages by other streams.
    Large,
    /// The same, and the small ones go first.
    Patient,
}

/// An end of such a connection: the client's, with streams that it has opened, or the server's,
/// without.
pub(crate) struct Streams {
    channel: Channel,
    connection: ConnectionId,
    calls: Calls,
    /// The streams with large messages, and how many of these are in flight.
    large: Vec<(ConnectionId, usize)>,
    has_received: bool,
    current: Option<Message>,
}

impl Streams {
    /// The end that answers.
    pub(crate) fn server(channel: Channel, connection: ConnectionId, calls: Calls) -> Self {
        Self { channel, connection, calls, large: Vec::new(), has_received: false, current: None }
    }

    /// The end that asks, and opens streams for its company.
    pub(crate) fn client(
        channel: Channel,
        connection: ConnectionId,
        calls: Calls,
        company: Company,
    ) -> io::Result<Self> {
        let mut end = Self::server(channel, connection, calls);
        if company != Company::None {
            for _ in 0..STREAMS {
                let stream = end.channel.open_stream(connection, Some(PATIENCE));
                end.large.push((stream.map_err(io::Error::other)?, 0));
            }
        }
        if company == Company::Patient {
            let set = end.channel.set_priority(connection, FIRST, WEIGHT);
            set.map_err(io::Error::other)?;
        }
        Ok(end)
    }

    /// Takes what has come by a stream: a large message, or word that one was taken.
    fn take(&mut self, message: Message) -> io::Result<()> {
        let from = message.connection();
        match self.large.iter_mut().find(|(stream, _)| *stream == from) {
            Some((_, in_flight)) => *in_flight -= 1,
            None if there_is(self.channel.try_send(from, TAKEN))?.is_some() => {}
            None => return Err(io::Error::other("no room to say that a message was taken")),
        }
        self.channel.release(message);
        Ok(())
    }

    fn fill_streams(&mut self) -> io::Result<()> {
        for (stream, in_flight) in &mut self.large {
            while *in_flight < LARGE_IN_FLIGHT {
                // In place, as it is: to fill it would take longer than the small messages may.
                let buffer = self.channel.send_buffer(LARGE_BYTES, Some(PATIENCE));
                let buffer = buffer.map_err(io::Error::other)?;
                self.channel.send_zero_copy(*stream, buffer).map_err(io::Error::other)?;
                *in_flight += 1;
            }
        }
        Ok(())
    }
}

impl Endpoint for Streams {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        there_is(self.channel.try_send(self.connection, message)).map(|sent| sent.is_some())
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(last) = self.current.take() {
            self.channel.release(last);
        }
        let timeout = if self.waits() && !self.has_received { PATIENCE } else { Duration::ZERO };
        while let Some(event) = there_is(self.channel.next_event(Some(timeout)))? {
            match event {
                Event::Message(message) if message.connection() == self.connection => {
                    self.current = Some(message);
                    break;
                }
                Event::Message(message) => self.take(message)?,
                Event::Closed { .. } => return Err(closed()),
                _ => {}
            }
        }
        self.has_received = self.current.is_some();
        Ok(self.current.as_deref())
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let Some(message) = &self.current else { return Ok(false) };
        let sent = self.channel.try_send(self.connection, &message[..length]);
        there_is(sent).map(|sent| sent.is_some())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        self.fill_streams()
    }
}
