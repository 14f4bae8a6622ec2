//! Connections of Clearway's TCP: one channel, whose events are of all of them.

use super::server::{Happened, Id, Transport};
use crate::endpoint::there_is;
use clearway_client::{Channel, Event, TcpId, TcpOption};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::Duration;

/// Connections that may wait for the engine.
const BACKLOG: u32 = 1024;
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// A channel that listens.
pub(super) struct Clearway {
    channel: Channel,
    /// What is still to be told.
    to_tell: VecDeque<Happened>,
    /// Sends to them found no room.
    without_room: HashSet<Id>,
}

impl Clearway {
    pub(super) fn new(mut channel: Channel, port: u16) -> Result<Self, clearway_client::Error> {
        let port = channel.tcp_bind(port)?;
        channel.tcp_listen(port.id, BACKLOG)?;
        Ok(Self { channel, to_tell: VecDeque::new(), without_room: HashSet::new() })
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::TcpAccepted { connection, .. } => {
                // It may have ended.
                let _ = self.channel.tcp_set(*connection, TcpOption::NoDelay(true));
                self.to_tell.push_back(Happened::Accepted(connection.as_u64()));
            }
            Event::TcpReady { connection, ready } => {
                let id = connection.as_u64();
                if ready.is_writable && self.without_room.remove(&id) {
                    self.to_tell.push_back(Happened::Writable(id));
                } else if ready.is_readable && !self.without_room.contains(&id) {
                    self.to_tell.push_back(Happened::Readable(id));
                }
            }
            Event::Writable => {
                self.to_tell.extend(self.without_room.drain().map(Happened::Writable));
            }
            Event::TcpPortClosed { code, .. } => {
                return Err(io::Error::other(format!("the port was taken away: {code}")));
            }
            _ => {} // not of a listener
        }
        Ok(())
    }
}

impl Transport for Clearway {
    fn next(&mut self) -> io::Result<Happened> {
        loop {
            if let Some(happened) = self.to_tell.pop_front() {
                return Ok(happened);
            }
            let event = self.channel.next_event(None).map_err(io::Error::other)?;
            self.take(&event)?;
        }
    }

    /// The channel tells of each arrival once: what is left is told again here.
    fn receive(&mut self, id: Id, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let connection = TcpId::from_u64(id);
        let received = there_is(self.channel.tcp_recv(connection, buffer, AT_ONCE))?;
        let has_more =
            |channel: &mut Channel| channel.tcp_ready(connection).is_some_and(|r| r.is_readable);
        if received.is_some_and(|count| count > 0) && has_more(&mut self.channel) {
            self.to_tell.push_back(Happened::Readable(id));
        }
        Ok(received)
    }

    fn send(&mut self, id: Id, bytes: &[u8]) -> io::Result<usize> {
        let sent = there_is(self.channel.tcp_send(TcpId::from_u64(id), bytes, AT_ONCE))?;
        if sent.is_none() {
            self.without_room.insert(id);
        }
        Ok(sent.unwrap_or(0))
    }

    fn close(&mut self, id: Id) {
        self.without_room.remove(&id);
        let _ = self.channel.tcp_close(TcpId::from_u64(id)); // it may have ended
    }
}
