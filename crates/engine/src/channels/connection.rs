//! The connections of one channel.

mod state;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use clearway_base::{SlotId, Slots};
use clearway_transport::{Deadline, Owner, Shares, StreamKey};
use serde::{Deserialize, Serialize};

use crate::operations::Exchange;

/// Bits of a connection's slot number in the owner tag of a buffer; the rest tells one
/// connection in a slot from the next.
const SLOT_BITS: u32 = 20;
/// Tags with the highest bit are of others than connections of messages: see `tcp/books.rs`.
const TAGS: u32 = u32::MAX >> 1;
/// Connections of one channel that can be named, whatever the policy says.
const CONNECTIONS_MAX: u32 = 1 << SLOT_BITS;

/// What carries the messages of a connection.
#[derive(Debug)]
pub(crate) enum Bearer {
    /// The peer's Ethernet address is being looked up; nothing has been sent yet.
    Resolving,
    /// Over the wire.
    Flow(StreamKey),
    /// To another connection on this host.
    Local(Local),
}

impl Bearer {
    /// The flow, if it goes over the wire, and its stream.
    #[inline]
    pub(crate) const fn flow(&self) -> Option<StreamKey> {
        match self {
            Self::Flow(key) => Some(*key),
            Self::Local(_) | Self::Resolving => None,
        }
    }

    /// The end of a connection within this host, if it is one.
    pub(crate) const fn local(&self) -> Option<&Local> {
        match self {
            Self::Local(local) => Some(local),
            Self::Flow(_) | Self::Resolving => None,
        }
    }

    /// The connection of which it is a stream, if that is within this host.
    fn parent(&self) -> Option<u32> {
        self.local()?.parent
    }
}

/// A message in an app's transmit pool that waits to be sent to an app of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Where it starts.
    pub offset: u32,
    /// Bytes of it.
    pub length: u32,
    /// Until when it may be sent.
    pub deadline: Option<Deadline>,
}

/// One end of a connection between two apps of this host.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) peer: Owner,
    /// Messages submitted that the peer's app has no room for yet.
    pub(crate) waiting: VecDeque<Held>,
    /// Positions that this end's app has been given and has not released.
    pub(crate) held: u64,
    /// This end has closed and ends when `waiting` is empty, and all its streams have ended.
    pub(crate) closing: bool,
    /// The connection of the same app of which it is a stream.
    pub(crate) parent: Option<u32>,
}

impl Local {
    pub(crate) const fn to(peer: Owner, parent: Option<u32>) -> Self {
        Self { peer, waiting: VecDeque::new(), held: 0, closing: false, parent }
    }
}

/// Where a connection is in its life: what becomes of a message that its app sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is sent.
    Open,
    /// The same, but operations wait that were asked for before.
    Behind,
    /// It is dropped: the connection is being opened. This is the app's name for its attempt.
    Connecting(u64),
    /// It is dropped: the app has closed, and hears no more but the end. If it did so before the
    /// connection was open, its attempt has this name.
    Closing(Option<u64>),
}

/// A connection as the engine knows it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) bearer: Bearer,
    pub(crate) stage: Stage,
    /// The user of the app at its other end, if another engine of this host serves that: each of
    /// its packets says so. If this engine serves it, its channel says it.
    pub(crate) peer_user: Option<u32>,
    /// Another host has opened it.
    is_accepted: bool,
    /// Its app wants it to share a flow with others.
    pub(crate) shares: bool,
    /// Sends taken from the app, wrapping, and those of them that are finished, of which the app
    /// knows the lower half.
    pub(super) submitted: u32,
    pub(super) sent: u64,
    /// Messages given to the app.
    pub(super) received: u64,
    /// `sent` as the app knows it.
    pub(super) sent_told: u32,
    pub(super) is_untold: bool,
    /// Messages that lie in the app's memory before their turn.
    pub(super) early: u32,
    /// Messages that lie in the app's memory and are not complete, or not yet next.
    pub(super) unfinished: u32,
    /// One-sided operations, from the first on.
    pub(crate) exchange: Option<Box<Exchange>>,
}

impl Connection {
    fn new(peer: SocketAddr, bearer: Bearer, connecting: Option<u64>) -> Self {
        Self {
            peer,
            bearer,
            stage: connecting.map_or(Stage::Open, Stage::Connecting),
            peer_user: None,
            is_accepted: false,
            shares: false,
            submitted: 0,
            sent: 0,
            received: 0,
            sent_told: 0,
            is_untold: false,
            early: 0,
            unfinished: 0,
            exchange: None,
        }
    }

    /// The app's name for its attempt to connect, while that goes on.
    pub(crate) const fn connecting(&self) -> Option<u64> {
        match self.stage {
            Stage::Connecting(token) => Some(token),
            Stage::Closing(token) => token,
            Stage::Open | Stage::Behind => None,
        }
    }

    /// The app has closed.
    pub(crate) const fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }

    /// The attempt to connect, of this name, has been successful.
    pub(crate) fn connected(&mut self) -> Option<u64> {
        let token = self.connecting()?;
        self.stage = if self.is_closing() { Stage::Closing(None) } else { Stage::Open };
        Some(token)
    }

    /// Messages that wait behind operations.
    pub(crate) fn messages_waiting(&self) -> usize {
        self.exchange.as_ref().map_or(0, |exchange| exchange.messages_waiting() as usize)
    }

    /// Whether operations wait may have changed.
    pub(crate) fn note_waiting(&mut self) {
        if let Stage::Open | Stage::Behind = self.stage {
            let waits = self.exchange.as_ref().is_some_and(|exchange| exchange.is_waiting());
            self.stage = if waits { Stage::Behind } else { Stage::Open };
        }
    }

    /// Sends taken from the app that are not finished.
    pub(super) const fn outstanding(&self) -> u32 {
        self.submitted.wrapping_sub(self.sent as u32)
    }
}

/// All connections of a channel. An id or a buffer of one that has ended means nothing.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Slots<Connection>,
    /// Which hosts hold how many, of those that they have opened.
    shares: Shares,
    /// Streams within this host, each behind the connection of which it is one.
    streams: BTreeSet<(u32, u32)>,
}

impl Connections {
    pub(super) fn new(count_max: u32) -> Self {
        let slots = Slots::new(count_max.min(CONNECTIONS_MAX));
        Self { slots, shares: Shares::default(), streams: BTreeSet::new() }
    }

    /// How many slots there are, free ones included.
    pub(super) fn places(&self) -> usize {
        self.slots.places()
    }

    /// How many there may be.
    pub(super) const fn max(&self) -> u32 {
        self.slots.count_max()
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u32 {
        self.slots.count()
    }

    /// Whether what is counted is what there is.
    pub(super) fn audit(&self) -> Result<(), String> {
        self.slots.audit()?;
        let accepted = self.iter().filter(|(_, connection)| connection.is_accepted).count();
        if accepted != self.shares.taken() as usize {
            let held = self.shares.taken();
            return Err(format!("{accepted} connections were accepted, but hosts hold {held}"));
        }
        let streams = self.iter().filter_map(|(slot, it)| Some((it.bearer.parent()?, slot)));
        if streams.collect::<BTreeSet<_>>() != self.streams {
            return Err(format!("{} streams are known, and others are open", self.streams.len()));
        }
        Ok(())
    }

    /// A new one; its slot, or `None` if the app has as many as it may.
    pub(super) fn open(
        &mut self,
        peer: SocketAddr,
        bearer: Bearer,
        connecting: Option<u64>,
    ) -> Option<u32> {
        let parent = bearer.parent();
        let id = self.slots.insert(Connection::new(peer, bearer, connecting))?;
        self.streams.extend(parent.map(|parent| (parent, id.slot)));
        Some(id.slot)
    }

    /// One that another host opens; `None` as well if it would leave no room for other hosts.
    pub(super) fn accept(&mut self, peer: SocketAddr, bearer: Bearer) -> Option<u32> {
        let max = self.max();
        if !self.shares.allows(peer.ip(), max - self.count(), max) {
            return None;
        }
        let slot = self.open(peer, bearer, None)?;
        self.at(slot)?.is_accepted = true;
        self.shares.take(peer.ip());
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let connection = self.slots.remove_at(slot)?;
        if connection.is_accepted {
            self.shares.give_back(connection.peer.ip());
        }
        if let Some(parent) = connection.bearer.parent() {
            self.streams.remove(&(parent, slot));
        }
        Some(connection)
    }

    /// The streams of a connection within this host.
    pub(super) fn streams_of(&self, parent: u32) -> impl Iterator<Item = u32> {
        self.streams.range((parent, 0)..=(parent, u32::MAX)).map(|(_, stream)| *stream)
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.at_mut(slot)
    }

    /// What is kept of the connection in this slot, for fetching it from memory ahead.
    #[inline]
    pub(super) fn state(&self, slot: u32) -> Option<&(impl Sized + use<>)> {
        self.slots.place(slot)
    }

    pub(super) fn peek(&self, slot: u32) -> Option<&Connection> {
        self.slots.at(slot)
    }

    /// The id by which the app names the connection in this slot.
    #[inline]
    pub(super) fn id(&self, slot: u32) -> u64 {
        self.slots.id_at(slot).to_bits()
    }

    /// The slot of the connection that the app means, if it still has it.
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        let id = SlotId::of_bits(id);
        self.slots.get(id).map(|_| id.slot)
    }

    /// What a buffer of this connection remembers: slot, and a part of its generation.
    #[inline]
    pub(super) fn tag(&self, slot: u32) -> u32 {
        tag_of(self.slots.id_at(slot))
    }

    /// The connection that a buffer with this tag belongs to, if it lives on, and its slot.
    #[inline]
    pub(super) fn find_tag(&self, tag: u32) -> Option<(u32, &Connection)> {
        let slot = tag & (CONNECTIONS_MAX - 1);
        let connection = self.slots.at(slot)?;
        (tag_of(self.slots.id_at(slot)) == tag).then_some((slot, connection))
    }

    /// Those that are open, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.slots.iter().map(|(id, connection)| (id.slot, connection))
    }
}

const fn tag_of(id: SlotId) -> u32 {
    (id.slot | id.generation << SLOT_BITS) & TAGS
}

#[cfg(test)]
mod tests {
    use super::{Bearer, Connections};
    use std::net::SocketAddr;

    #[test]
    fn a_greedy_host_leaves_room_for_others() {
        let mut connections = Connections::new(80);
        let peer = |host: u8| SocketAddr::from(([10, 0, 0, host], 20707));
        let mut greedy = Vec::new();
        while let Some(slot) = connections.accept(peer(1), Bearer::Resolving) {
            greedy.push(slot);
        }
        assert_eq!(greedy.len(), 70);
        for newcomer in 2..7 {
            assert!(connections.accept(peer(newcomer), Bearer::Resolving).is_some());
            assert!(connections.accept(peer(1), Bearer::Resolving).is_none());
        }
        // The app's own connections are nobody's share.
        for _ in 0..5 {
            connections.open(peer(1), Bearer::Resolving, None).expect("five are left");
        }
        assert!(connections.accept(peer(7), Bearer::Resolving).is_none());
        greedy.iter().for_each(|slot| _ = connections.remove(*slot));
        assert_eq!(connections.count(), 10);
        assert!(connections.accept(peer(1), Bearer::Resolving).is_some(), "it may come again");
    }
}
