//! The connections of a channel, and what each has sent that is not finished.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clearway_channel::Extent;

use crate::ConnectionId;

/// The low half of an id is a place that is used again: small, since a channel has a place for each
/// connection that it has at a time. A daemon that says otherwise is not believed.
const PLACES_MAX: usize = 1 << 20;

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
    /// The number of the next message that is sent, from 0 on, wrapping.
    pub(crate) fn number_of_next(&self) -> u32 {
        self.sent.wrapping_add(self.outstanding.len() as u32)
    }

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
    places: Vec<Option<(ConnectionId, Connection)>>,
    closing: usize,
}

impl Connections {
    pub(crate) fn insert(&mut self, id: ConnectionId, peer: SocketAddr, is_own: bool) {
        let place = place_of(id);
        if place >= PLACES_MAX {
            return;
        }
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        let outstanding = VecDeque::new();
        let connection = Connection { peer, outstanding, sent: 0, is_own, is_closing: false };
        self.places[place] = Some((id, connection));
    }

    #[inline]
    pub(crate) fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let (known, connection) = self.places.get_mut(place_of(id))?.as_mut()?;
        (*known == id).then_some(connection)
    }

    /// The connection, unless the app has closed it.
    #[inline]
    pub(crate) fn find_open(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.find(id).filter(|connection| !connection.is_closing)
    }

    /// Marks a connection as closed by the app; false if it was not open.
    pub(crate) fn close(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.find_open(id) else { return false };
        connection.is_closing = true;
        self.closing += 1;
        true
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.find(id)?;
        let (_, connection) = self.places[place_of(id)].take()?;
        self.closing -= usize::from(connection.is_closing);
        Some(connection)
    }

    /// Those that the app has not closed.
    fn iter(&self) -> impl Iterator<Item = &(ConnectionId, Connection)> {
        self.places.iter().flatten().filter(|(_, connection)| !connection.is_closing)
    }

    /// The one that is open, if there is no other.
    pub(crate) fn only_one(&self) -> Option<(ConnectionId, SocketAddr)> {
        let mut open = self.iter();
        let (id, connection) = open.next()?;
        open.next().is_none().then_some((*id, connection.peer))
    }

    /// Those that are open, the oldest first: id, peer, whether the app has opened it, and how many
    /// sends are not finished.
    pub(crate) fn summary(&self) -> Vec<(ConnectionId, SocketAddr, bool, usize)> {
        let mut all: Vec<_> = self
            .iter()
            .map(|(id, found)| (*id, found.peer, found.is_own, found.outstanding.len()))
            .collect();
        all.sort_unstable_by_key(|(id, ..)| *id);
        all
    }

    /// Those that are open.
    pub(crate) fn open(&self) -> Vec<ConnectionId> {
        self.iter().map(|(id, _)| *id).collect()
    }

    /// How many the app has closed and the daemon not yet.
    pub(crate) fn closing(&self) -> usize {
        self.closing
    }
}

/// Ids differ in what stands above.
#[inline]
pub(crate) fn place_of(id: ConnectionId) -> usize {
    id.as_u64() as u32 as usize
}

#[cfg(test)]
mod tests {
    use clearway_channel::Code;

    use super::{Connections, PLACES_MAX};
    use crate::{ConnectionId, Ended, Error};

    #[test]
    fn a_place_that_is_used_again_is_another_connection() {
        let mut connections = Connections::default();
        let peer = ([10, 0, 0, 1], 20707).into();
        let [first, second] = [7, 1 << 32 | 7].map(ConnectionId::from_u64);
        connections.insert(first, peer, true);
        assert!(connections.find_open(first).is_some() && connections.find(second).is_none());
        assert_eq!(connections.only_one(), Some((first, peer)));
        assert!(connections.close(first) && !connections.close(first));
        assert!(connections.find_open(first).is_none() && connections.find(first).is_some());
        assert!(connections.remove(second).is_none() && connections.closing() == 1);
        assert!(connections.remove(first).is_some() && connections.closing() == 0);
        connections.insert(second, peer, true);
        assert!(connections.find(second).is_some() && connections.find(first).is_none());
        assert_eq!(connections.open(), [second]);
    }

    /// As `clearway status` and programs print it.
    #[test]
    fn an_id_is_told_as_a_decimal_number() {
        let connection = ConnectionId::from_u64(1 << 32 | 7);
        let told = Error::Connection { connection, code: Code::Closed }.to_string();
        assert!(told.starts_with("connection 4294967303: "), "{told}");
    }

    /// A program that looks only at what has ended forgets it, too.
    #[test]
    fn a_stream_that_the_peer_does_not_take_is_over_and_says_why() {
        let connection = ConnectionId::from_u64(7);
        let refused = Error::Connection { connection, code: Code::Refused };
        assert_eq!(refused.ended(), Ended::Connection);
        assert!(refused.to_string().contains("takes none"), "{refused}");
        let gone = Error::Connection { connection, code: Code::DaemonGone };
        assert_eq!(gone.ended(), Ended::Channel);
        let full = Error::Stream { connection, code: Code::Limit };
        assert_eq!((full.ended(), full.code()), (Ended::Nothing, Code::Limit));
    }

    #[test]
    fn no_id_takes_more_memory_than_a_channel_has_connections() {
        let mut connections = Connections::default();
        for id in [PLACES_MAX as u64, u64::from(u32::MAX), u64::MAX].map(ConnectionId::from_u64) {
            connections.insert(id, ([10, 0, 0, 1], 20707).into(), false);
            assert!(connections.find(id).is_none());
        }
        assert!(connections.places.is_empty());
    }
}
