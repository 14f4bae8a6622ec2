//! Clearway, used the way its app library is meant to be used: small messages by copy, large ones
//! received in place.

use super::{Endpoint, closed};
use clearway_client::{Channel, Code, ConnectionId, Error, Message};
use std::io;
use std::time::Duration;

/// Up to this size, copying a message out is cheaper than holding on to it.
const COPY_BYTES_MAX: usize = 1024;
/// A call never waits longer, so that a stall is noticed.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// How the library is called for the first message of a turn; for the others nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// The call waits, as the channel's options say.
    Waiting,
    /// It does not: another app has the same thread.
    Polling,
}

/// One end of a Clearway connection; a server's, of all connections of its channel.
pub(crate) struct Clearway {
    channel: Channel,
    /// By which the last message came.
    connection: ConnectionId,
    calls: Calls,
    /// A message was received in this turn.
    has_received: bool,
    current: Current,
    burst: usize,
}

/// The message last received.
enum Current {
    /// In this buffer, which is as long as messages are.
    Copied(Vec<u8>),
    /// Where the daemon put it.
    InPlace(Option<Message>),
}

impl Clearway {
    /// A connection for messages of at most `message_bytes_max`, `window` of them in flight.
    pub(crate) fn new(
        channel: Channel,
        connection: ConnectionId,
        calls: Calls,
        message_bytes_max: usize,
        window: usize,
    ) -> Self {
        let current = if message_bytes_max <= COPY_BYTES_MAX {
            Current::Copied(vec![0; message_bytes_max])
        } else {
            Current::InPlace(None)
        };
        Self { channel, connection, calls, has_received: false, current, burst: window }
    }

    /// The channel, without the connection.
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }

    pub(super) fn send_to(&mut self, connection: ConnectionId, message: &[u8]) -> io::Result<bool> {
        there_is(self.channel.try_send(connection, message)).map(|sent| sent.is_some())
    }

    fn time_to_wait(&self) -> Duration {
        if self.waits() && !self.has_received { PATIENCE } else { Duration::ZERO }
    }
}

impl Endpoint for Clearway {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn burst(&self) -> usize {
        self.burst
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.send_to(self.connection, message)
    }

    #[inline]
    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let timeout = Some(self.time_to_wait());
        let message = match &mut self.current {
            Current::Copied(buffer) => {
                let received = self.channel.recv(buffer, timeout);
                there_is(received)?.map(|(connection, length)| {
                    self.connection = connection;
                    &buffer[..length]
                })
            }
            Current::InPlace(message) => {
                if let Some(last) = message.take() {
                    self.channel.release(last);
                }
                *message = there_is(self.channel.recv_zero_copy(timeout))?;
                if let Some(message) = message {
                    self.connection = message.connection();
                }
                message.as_deref()
            }
        };
        self.has_received = message.is_some();
        Ok(message)
    }

    #[inline]
    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let message = match &self.current {
            Current::Copied(buffer) => &buffer[..length],
            Current::InPlace(message) => &message.as_deref().unwrap_or_default()[..length],
        };
        there_is(self.channel.try_send(self.connection, message)).map(|sent| sent.is_some())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        Ok(())
    }
}

/// The result of a call, as [`Endpoint`] wants it.
#[inline]
pub(crate) fn there_is<T>(result: Result<T, Error>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::WouldBlock | Error::TimedOut { .. }) => Ok(None),
        Err(error) => Err(failure(error)),
    }
}

#[cold]
fn failure(error: Error) -> io::Error {
    match error.code() {
        Code::Closed | Code::Reset => closed(),
        _ => io::Error::other(error),
    }
}
