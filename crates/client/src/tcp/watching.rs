//! Connections that are told of again for as long as something can be done with them.

use super::{Sockets, TcpId, TcpReady, is_not_open};
use crate::{Channel, Error, Event};

impl TcpReady {
    /// Something of what `other` has can be done.
    const fn has_of(self, other: Self) -> bool {
        (self.is_readable && other.is_readable)
            || (self.is_writable && other.is_writable)
            || (self.is_over && other.is_over)
    }
}

impl Sockets {
    /// A connection has been told of. If it is watched, it will be again.
    pub(super) fn tell_again(&mut self, id: TcpId) {
        let Some(connection) = self.find(id) else { return };
        let is_watched = connection.watched != TcpReady::default();
        if is_watched && !std::mem::replace(&mut connection.is_told_again, true) {
            self.again.push_back(id);
        }
    }
}

impl Channel {
    /// From now on [`next_event`](Self::next_event) and [`next_events`](Self::next_events) tell of
    /// a connection again while something of `watched` can be done with it, and there is nothing
    /// new to tell: its readiness is triggered by level, as `epoll` and `poll` have it. With
    /// nothing, as at first, they tell of it once each time that something happens to it (by edge,
    /// as EPOLLET). That it takes bytes is not told again while the channel has no room for them.
    ///
    /// An error if the connection is not open.
    pub fn tcp_watch(&mut self, id: TcpId, watched: TcpReady) -> Result<(), Error> {
        self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?.watched = watched;
        self.tcp.tell_again(id);
        Ok(())
    }

    /// The next of those that are told of again, if there is one.
    pub(crate) fn tcp_next_again(&mut self) -> Option<Event> {
        (0..self.tcp.again.len()).find_map(|_| self.tcp_look_again())
    }

    /// All of them, each once, but `most` at most.
    pub(crate) fn tcp_take_again(&mut self, events: &mut Vec<Event>, most: usize) {
        for _ in 0..self.tcp.again.len() {
            if events.len() >= most {
                return;
            }
            events.extend(self.tcp_look_again());
        }
    }

    /// True if one is to be told of again.
    pub(crate) fn tcp_has_again(&mut self) -> bool {
        // Who is told of goes behind the others: the one who was found is the first again then.
        let found = self.tcp_next_again().is_some();
        if found {
            self.tcp.again.rotate_right(1);
        }
        found
    }

    /// Looks at the first of those, which stays among them only if something can be done with it.
    fn tcp_look_again(&mut self) -> Option<Event> {
        let has_room = !self.wants_room;
        let connection = self.tcp.again.pop_front()?;
        let found = self.tcp.find_open(connection)?;
        let (ready, watched) = (found.ready(), found.watched);
        found.is_told_again = ready.has_of(watched);
        if found.is_told_again {
            self.tcp.again.push_back(connection);
        }
        let now = TcpReady { is_writable: ready.is_writable && has_room, ..ready };
        now.has_of(watched).then_some(Event::TcpReady { connection, ready })
    }
}
