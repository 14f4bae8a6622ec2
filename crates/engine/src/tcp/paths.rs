//! The headers towards each peer: kept by connection, and for answers to strangers the way back
//! that their segment came. A stranger who is answered again later, or by another engine, may not
//! be remembered: then it is what the IP layer knows.

use std::collections::VecDeque;
use std::net::IpAddr;

use clearway_base::{SlotId, Time};
use clearway_tcp::Transmit;
use clearway_wire::protocol;
use clearway_wire::tcp::Flags;

use crate::host::Nic;
use crate::ip::{Interface, Path, Resolution};

/// Strangers whose way back is remembered until they are answered, in the same turn as a rule, or
/// until the neighbour is known.
const STRANGERS_MAX: usize = 64;

/// How to get somewhere.
#[derive(Clone, Debug)]
pub(super) struct TcpPath {
    pub(super) path: Path,
    /// Over which NIC.
    pub(super) nic: Nic,
    /// It is this host: nothing leaves.
    pub(super) is_here: bool,
}

/// That of a connection.
#[derive(Debug)]
struct Known {
    owner: SlotId,
    way: TcpPath,
    /// Something that was sent over it has been acknowledged since it was last asked for.
    is_confirmed: bool,
    /// The version of the switch's table that says that its peer is a connection of this engine.
    joined_by: Option<u64>,
}

/// The paths of an engine.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By the places of their connections' keys.
    connections: Vec<Option<Known>>,
    strangers: VecDeque<TcpPath>,
    /// That of the last stranger who was not among them.
    forgotten: Option<TcpPath>,
}

impl Paths {
    /// The way of a segment, if there is one now, over the NIC of its source. Asks for the
    /// neighbour of a connection if it is not known; whoever `is_silent` may have another Ethernet
    /// address by now.
    #[inline]
    pub(super) fn find(
        &mut self,
        now: Time,
        (nic, interface): (Nic, &mut Interface),
        transmit: &Transmit,
        is_silent: impl FnOnce(SlotId) -> bool,
    ) -> Option<&TcpPath> {
        let Some(key) = transmit.connection else {
            return self.of_answer(now, (nic, interface), transmit);
        };
        let place = key.slot as usize;
        let known = self.connections.get(place).and_then(Option::as_ref);
        let is_current = known.is_some_and(|Known { owner, way, .. }| {
            *owner == key && way.nic == nic && interface.is_current(now, &way.path)
        });
        if !is_current {
            self.refresh(now, (nic, interface), transmit, key, is_silent(key));
        }
        self.connections[place].as_ref().map(|known| &known.way)
    }

    /// Asks the interface again. A path that is there already serves until there is a better one.
    #[cold]
    fn refresh(
        &mut self,
        now: Time,
        (nic, interface): (Nic, &mut Interface),
        transmit: &Transmit,
        key: SlotId,
        is_silent: bool,
    ) {
        let place = key.slot as usize;
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        let is_same = |known: &Known| known.owner == key && known.way.nic == nic;
        let old = self.connections[place].take().filter(is_same);
        let (from, to) = (transmit.from.ip(), transmit.to.ip());
        // RFC 4861, section 7.3.1: "the connection is making forward progress" is as good as an
        // answer of the neighbour.
        match &old {
            Some(known) if known.is_confirmed => interface.confirm(now, &known.way.path),
            Some(_) if is_silent => interface.doubt(now, to),
            _ => {}
        }
        let here = interface.path_here(now, from, to, protocol::TCP);
        let way = match here {
            Some(path) => Some(TcpPath { path, nic, is_here: true }),
            None => match interface.path(now, from, to, protocol::TCP) {
                Resolution::Known(path) => Some(TcpPath { path, nic, is_here: false }),
                Resolution::Pending | Resolution::Unreachable => {
                    let old = old.map(|known| known.way);
                    let old = old.or_else(|| self.of_stranger(transmit).cloned());
                    old.filter(|way| interface.is_own(way.path.source()))
                }
            },
        };
        let known = |way| Known { owner: key, way, is_confirmed: false, joined_by: None };
        self.connections[place] = way.map(known);
    }

    /// That of what is of no connection.
    #[cold]
    fn of_answer(
        &mut self,
        now: Time,
        (nic, interface): (Nic, &mut Interface),
        transmit: &Transmit,
    ) -> Option<&TcpPath> {
        if let Some(place) = self.place_of(transmit.from.ip(), transmit.to.ip()) {
            return self.strangers.get(place);
        }
        self.forgotten = way_to_stranger(now, (nic, interface), transmit);
        self.forgotten.as_ref()
    }

    fn of_stranger(&self, transmit: &Transmit) -> Option<&TcpPath> {
        self.strangers.get(self.place_of(transmit.from.ip(), transmit.to.ip())?)
    }

    /// Where the way between two addresses stands among those of strangers.
    fn place_of(&self, from: IpAddr, to: IpAddr) -> Option<usize> {
        let is_it = |way: &TcpPath| way.path.destination() == to && way.path.source() == from;
        self.strangers.iter().rposition(is_it) // the newest are asked for most
    }

    fn known(&self, key: SlotId) -> Option<&Known> {
        let known = self.connections.get(key.slot as usize)?.as_ref();
        known.filter(|known| known.owner == key)
    }

    /// True if what a connection has sent last was for another host, over this engine's NIC.
    #[inline]
    pub(super) fn leaves_here(&self, key: SlotId) -> bool {
        self.known(key).is_some_and(|known| !known.way.is_here && known.way.nic == Nic::Own)
    }

    /// The other NIC over which a connection has sent last, by its place among them.
    #[inline]
    pub(super) fn other_nic(&self, key: SlotId) -> Option<usize> {
        match self.known(key)?.way.nic {
            Nic::Own => None,
            Nic::Other(other) => Some(other),
        }
    }

    /// The peer of a connection is one of this engine, as this version of the switch's table says.
    pub(super) fn join(&mut self, key: SlotId, version: u64) {
        if let Some(Some(known)) = self.connections.get_mut(key.slot as usize) {
            debug_assert_eq!(known.owner, key, "something was sent just now");
            known.joined_by = Some(version);
        }
    }

    /// True if it is, and nothing has changed since.
    #[inline]
    pub(super) fn is_joined(
        &self,
        now: Time,
        interface: &Interface,
        version: u64,
        key: SlotId,
    ) -> bool {
        let joined = self.known(key).filter(|known| known.joined_by == Some(version));
        joined.is_some_and(|known| interface.is_current(now, &known.way.path))
    }

    /// True if what a connection has sent last has not left this engine.
    pub(super) fn was_joined(&self, key: SlotId) -> bool {
        self.known(key).is_some_and(|known| known.joined_by.is_some())
    }

    /// The peer of a connection has acknowledged something that was sent to it.
    #[inline]
    pub(super) fn confirm(&mut self, key: SlotId) {
        if let Some(Some(known)) = self.connections.get_mut(key.slot as usize) {
            known.is_confirmed |= known.owner == key;
        }
    }

    /// Takes the way back of a segment that is answered.
    pub(super) fn prepare(&mut self, way: TcpPath) {
        if let Some(place) = self.place_of(way.path.source(), way.path.destination()) {
            self.strangers.remove(place);
        } else if self.strangers.len() == STRANGERS_MAX {
            self.strangers.pop_front();
        }
        self.strangers.push_back(way);
    }
}

/// The way to a stranger from whom nothing has come just now, if it is known. The neighbour is
/// asked for if it is a SYN that is answered: that is done several times, and a peer that has had
/// the answer, and whose own got lost, may wait for the next one.
fn way_to_stranger(
    now: Time,
    (nic, interface): (Nic, &mut Interface),
    transmit: &Transmit,
) -> Option<TcpPath> {
    let (from, to) = (transmit.from.ip(), transmit.to.ip());
    if let Some(path) = interface.path_here(now, from, to, protocol::TCP) {
        return Some(TcpPath { path, nic, is_here: true });
    }
    let path = match transmit.repr.flags.contains(Flags::SYN) {
        true => interface.path_to_stranger(now, from, to, protocol::TCP),
        false => interface.known_path(from, to, protocol::TCP),
    };
    path.map(|path| TcpPath { path, nic, is_here: false })
}
