//! How an app's connections come and go, and which there are.

use std::net::SocketAddr;

use clearway_channel::{Code, Completion};

use super::Channel;
use crate::channels::connection::{Bearer, Connection, Stage};

impl Channel {
    /// A new connection; its slot, or `None` if the app has as many as it may.
    pub(crate) fn open(
        &mut self,
        peer: SocketAddr,
        bearer: Bearer,
        connecting: Option<u64>,
    ) -> Option<u32> {
        if self.has_too_much_pending() {
            return None;
        }
        self.connections.open(peer, bearer, connecting)
    }

    /// A connection that another host opens; its slot, or `None` if there is no room for that host.
    pub(crate) fn accept(&mut self, peer: SocketAddr, bearer: Bearer) -> Option<u32> {
        if self.has_too_much_pending() {
            return None;
        }
        self.connections.accept(peer, bearer)
    }

    /// A peer has opened a stream, of another connection of the app's.
    pub(crate) fn tell_of_stream(&mut self, slot: u32, parent: u32) {
        let (connection, parent) = (self.id(slot), self.id(parent));
        self.tell(Completion::StreamAccepted { connection, parent });
    }

    /// Its app has closed a connection, and wants nothing more of it.
    pub(crate) fn begin_close(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        connection.stage = Stage::Closing(connection.connecting());
        self.leave_line(slot);
        self.end_posts(slot);
    }

    /// Ends a connection and tells the app why.
    pub(crate) fn close(&mut self, slot: u32, code: Code) -> Option<Connection> {
        let id = self.id(slot);
        self.end_operations(slot);
        self.end_posts(slot);
        let connection = self.remove(slot)?;
        if self.is_condemned {
            // The channel's end says it, and whoever attaches again opens what was open.
            return Some(connection);
        }
        self.tell(match connection.connecting() {
            // Nobody was there yet who could have got lost.
            Some(token) if code == Code::Lost => {
                Completion::ConnectFailed { token, code: Code::Unreachable }
            }
            Some(token) => Completion::ConnectFailed { token, code },
            None => Completion::Closed { connection: id, code, sent: connection.sent as u32 },
        });
        Some(connection)
    }

    /// Ends a connection: its sends are over. The app has been, or will be, told.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let connection = self.connections.remove(slot)?;
        debug_assert_eq!(connection.unfinished, 0, "its flow is to give back its buffers first");
        if self.line.forget(slot) {
            self.freed();
        }
        self.forget_copies(slot);
        self.posts.forget(slot);
        self.end.sends_finished(connection.outstanding());
        if let Some(exchange) = &connection.exchange {
            self.forget_exchange(slot, exchange);
        }
        Some(connection)
    }

    /// The slots of connections, of so many at most.
    pub(crate) fn open_slots(&self, connections_max: usize) -> Vec<u32> {
        self.connections.iter().map(|(slot, _)| slot).take(connections_max).collect()
    }

    /// The slots of connections whose messages go by such a bearer.
    pub(crate) fn slots_of(&self, is_it: impl Fn(&Bearer) -> bool) -> impl Iterator<Item = u32> {
        let connections = self.connections.iter();
        connections.filter(move |(_, connection)| is_it(&connection.bearer)).map(|(slot, _)| slot)
    }

    /// The streams of a connection within this host.
    pub(crate) fn streams_of(&self, parent: u32) -> impl Iterator<Item = u32> {
        self.connections.streams_of(parent)
    }

    /// Connections that the app has not closed, so many at most, by their ids.
    pub(crate) fn unclosed(&self, connections_max: usize) -> Vec<u64> {
        let open = self.connections.iter().filter(|(_, connection)| !connection.is_closing());
        open.map(|(slot, _)| self.connections.id(slot)).take(connections_max).collect()
    }

    /// Connections that the app may have at a time, those of TCP counted apart.
    pub(crate) const fn connections_max(&self) -> u32 {
        self.connections.max()
    }

    /// How many slots there are for connections, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.connections.places()
    }
}
