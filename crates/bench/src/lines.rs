//! Connections of one app by one channel, of which those have a turn by which something has come.

use crate::endpoint::{Endpoint, there_is};
use crate::many::Fresh;
use clearway_client::{Channel, ConnectionId, Error, Event, Message};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

/// A call never waits longer, so that a stall is noticed.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Events that are taken before messages are answered.
const EVENTS_MAX: usize = 256;

/// All connections.
pub(crate) struct Lines {
    pub(crate) channel: Channel,
    lines: Vec<Line>,
    numbers: HashMap<ConnectionId, usize>,
    /// The lines that something has come by since it was last asked.
    fresh: Vec<usize>,
}

/// One connection.
struct Line {
    connection: ConnectionId,
    inbox: VecDeque<Message>,
    /// The message last received.
    current: Option<Message>,
}

impl Lines {
    /// No connection of this channel's yet.
    pub(crate) fn of(channel: Channel) -> Self {
        Self { channel, lines: Vec::new(), numbers: HashMap::new(), fresh: Vec::new() }
    }

    pub(crate) fn add(&mut self, connection: ConnectionId) {
        self.numbers.insert(connection, self.lines.len());
        self.lines.push(Line { connection, inbox: VecDeque::new(), current: None });
    }

    pub(crate) fn connection(&self, at: usize) -> ConnectionId {
        self.lines[at].connection
    }

    /// Waits until something comes, and takes what there is.
    pub(crate) fn wait(&mut self) -> io::Result<Fresh> {
        let mut timeout = LOOK;
        for _ in 0..EVENTS_MAX {
            match self.channel.next_event(Some(timeout)) {
                Ok(Event::Message(message)) => self.take(message),
                Ok(Event::Writable) => {
                    self.fresh.clear();
                    return Ok(Fresh::Any);
                }
                Ok(Event::Closed { code, .. }) => return Err(io::Error::other(code)),
                Ok(_) => {}
                Err(Error::WouldBlock | Error::TimedOut { .. }) => break,
                Err(error) => return Err(io::Error::other(error)),
            }
            timeout = Duration::ZERO;
        }
        match std::mem::take(&mut self.fresh) {
            lines if lines.is_empty() => Ok(Fresh::Any),
            lines => Ok(Fresh::Of(lines)),
        }
    }

    fn take(&mut self, message: Message) {
        let Some(&at) = self.numbers.get(&message.connection()) else { return };
        let inbox = &mut self.lines[at].inbox;
        if inbox.is_empty() {
            self.fresh.push(at);
        }
        inbox.push_back(message);
    }

    /// The end of one connection.
    pub(crate) fn end(&mut self, at: usize) -> End<'_> {
        End { channel: &mut self.channel, line: &mut self.lines[at] }
    }
}

/// The end of one connection.
pub(crate) struct End<'a> {
    channel: &'a mut Channel,
    line: &'a mut Line,
}

impl Endpoint for End<'_> {
    fn waits(&self) -> bool {
        true
    }

    fn burst(&self) -> usize {
        self.line.inbox.len()
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        there_is(self.channel.try_send(self.line.connection, message)).map(|sent| sent.is_some())
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(last) = self.line.current.take() {
            self.channel.release(last);
        }
        self.line.current = self.line.inbox.pop_front();
        Ok(self.line.current.as_deref())
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let message = &self.line.current.as_deref().unwrap_or_default()[..length];
        there_is(self.channel.try_send(self.line.connection, message)).map(|sent| sent.is_some())
    }
}
