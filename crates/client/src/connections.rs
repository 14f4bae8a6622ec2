//! The connections of a channel, and what each has sent that is not finished.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;

use clearway_channel::Extent;

use crate::ConnectionId;

/// A connection as the app library knows it.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// Sends that are not finished, oldest first.
    pub(crate) outstanding: VecDeque<Extent>,
    /// How many are finished, as the daemon counts: wrapping.
    sent: u32,
    /// The app has opened it, not its peer.
    is_own: bool,
    /// The app has closed it and hears no more of it.
    pub(crate) is_closing: bool,
}

impl Connection {
    /// Removes a send that is finished, while there are fewer finished than `sent`.
    #[inline]
    pub(crate) fn next_finished(&mut self, sent: u32) -> Option<Extent> {
        if self.sent == sent {
            return None;
        }
        let extent = self.outstanding.pop_front()?;
        self.sent = self.sent.wrapping_add(1);
        Some(extent)
    }
}

/// All connections of a channel.
#[derive(Default)]
pub(crate) struct Connections {
    table: HashMap<ConnectionId, Connection, BuildHasherDefault<IdHasher>>,
    closing: usize,
}

impl Connections {
    pub(crate) fn insert(&mut self, id: ConnectionId, peer: SocketAddr, is_own: bool) {
        let outstanding = VecDeque::new();
        let connection = Connection { peer, outstanding, sent: 0, is_own, is_closing: false };
        self.table.insert(id, connection);
    }

    #[inline]
    pub(crate) fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(&id)
    }

    /// The connection, unless the app has closed it.
    #[inline]
    pub(crate) fn find_open(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(&id).filter(|connection| !connection.is_closing)
    }

    /// Marks a connection as closed by the app; false if it was not open.
    pub(crate) fn close(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.find_open(id) else { return false };
        connection.is_closing = true;
        self.closing += 1;
        true
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.table.remove(&id)?;
        self.closing -= usize::from(connection.is_closing);
        Some(connection)
    }

    /// The one that is open, if there is no other.
    pub(crate) fn only_one(&self) -> Option<(ConnectionId, SocketAddr)> {
        let mut open = self.table.iter().filter(|(_, connection)| !connection.is_closing);
        let (id, connection) = open.next()?;
        open.next().is_none().then_some((*id, connection.peer))
    }

    /// Those that are open, the oldest first: id, peer, whether the app has opened it, and how many
    /// sends are not finished.
    pub(crate) fn summary(&self) -> Vec<(ConnectionId, SocketAddr, bool, usize)> {
        let open = self.table.iter().filter(|(_, connection)| !connection.is_closing);
        let mut all: Vec<_> = open
            .map(|(id, found)| (*id, found.peer, found.is_own, found.outstanding.len()))
            .collect();
        all.sort_unstable_by_key(|(id, ..)| *id);
        all
    }

    /// Those that are open.
    pub(crate) fn open(&self) -> Vec<ConnectionId> {
        let open = self.table.iter().filter(|(_, connection)| !connection.is_closing);
        open.map(|(id, _)| *id).collect()
    }

    /// How many the app has closed and the daemon not yet.
    pub(crate) fn closing(&self) -> usize {
        self.closing
    }
}

/// Ids are chosen by the daemon, which the app trusts, and differ in the lower bits: one
/// multiplication spreads them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
