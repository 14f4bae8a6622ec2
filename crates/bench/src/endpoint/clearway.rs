//! Clearway, used the way its app library is meant to be used: small messages by copy, large ones
//! received in place.

use super::{Endpoint, closed};
use crate::arguments::Idle;
use clearway_client::{Channel, Code, ConnectionId, Error, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::Duration;

/// Up to this size, copying a message out is cheaper than holding on to it.
const COPY_BYTES_MAX: usize = 1024;
/// A sleep never lasts longer, so that a stall is noticed.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// One end of a Clearway connection.
pub(crate) struct Clearway {
    channel: Channel,
    connection: ConnectionId,
    idle: Idle,
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
        idle: Idle,
        message_bytes_max: usize,
        window: usize,
    ) -> Self {
        let current = if message_bytes_max <= COPY_BYTES_MAX {
            Current::Copied(vec![0; message_bytes_max])
        } else {
            Current::InPlace(None)
        };
        Self { channel, connection, idle, current, burst: window }
    }

    /// The channel, without the connection.
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }
}

impl Endpoint for Clearway {
    fn burst(&self) -> usize {
        self.burst
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        there_is(self.channel.try_send(self.connection, message)).map(|sent| sent.is_some())
    }

    #[inline]
    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        match &mut self.current {
            Current::Copied(buffer) => {
                let received = self.channel.recv(buffer, Some(Duration::ZERO));
                Ok(there_is(received)?.map(|(_, length)| &buffer[..length]))
            }
            Current::InPlace(message) => {
                if let Some(last) = message.take() {
                    self.channel.release(last);
                }
                *message = there_is(self.channel.recv_zero_copy(Some(Duration::ZERO)))?;
                Ok(message.as_deref())
            }
        }
    }

    #[inline]
    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let message = match &self.current {
            Current::Copied(buffer) => &buffer[..length],
            Current::InPlace(message) => &message.as_deref().unwrap_or_default()[..length],
        };
        there_is(self.channel.try_send(self.connection, message)).map(|sent| sent.is_some())
    }

    fn idle(&mut self) -> io::Result<()> {
        match self.idle {
            // No `pause`: hypervisors take a tight loop of them for a spinning lock and step in.
            Idle::Spin => {}
            Idle::Yield => std::thread::yield_now(),
            Idle::Block => {
                if self.channel.arm() {
                    let mut doorbell = [PollFd::new(&self.channel, PollFlags::IN)];
                    let _ = poll(&mut doorbell, Some(&SLEEP));
                }
                self.channel.disarm();
            }
        }
        Ok(())
    }
}

/// The result of a call that does not wait, as [`Endpoint`] wants it.
#[inline]
fn there_is<T>(result: Result<T, Error>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::WouldBlock) => Ok(None),
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
