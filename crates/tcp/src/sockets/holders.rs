//! Which sockets have which port, whether a program has asked for it or not.

use std::collections::BTreeSet;

use clearway_base::SlotId;

use super::Socket;

/// Sockets that have a port.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeSet<(u16, Socket)>);

/// Before all others.
const FIRST: Socket = Socket(SlotId { slot: 0, generation: 0 });

impl Holders {
    pub(super) fn add(&mut self, port: u16, socket: Socket) {
        self.0.insert((port, socket));
    }

    pub(super) fn remove(&mut self, port: u16, socket: Socket) {
        self.0.remove(&(port, socket));
    }

    /// Those that have this one.
    pub(super) fn of(&self, port: u16) -> impl Iterator<Item = Socket> + '_ {
        let sockets = self.0.range((port, FIRST)..).take_while(move |(other, _)| *other == port);
        sockets.map(|(_, socket)| *socket)
    }
}
