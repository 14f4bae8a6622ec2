//! What both halves of a flow say of positions and credit: for whoever simulates hosts and checks
//! that none is lost or made. Not for `status`: the ids are a secret that strangers would have to
//! guess.

use super::{Flow, Priority, State};
use crate::app::Owner;
use crate::stream::Stream;

/// The books of one connection at one moment. All but ids and windows are positions of the sequence
/// space of one direction (`docs/wire.md`): a message takes [`crate::MESSAGE_OVERHEAD`] of them,
/// and one for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBooks {
    /// The connection that it carries.
    pub owner: Owner,
    /// The id that packets to this side carry.
    pub local_id: u64,
    /// The id that packets to the peer carry; 0 before there is one.
    pub peer_id: u64,
    /// Which of the flow's streams it is; 0 for the connection that has opened the flow.
    pub stream: u32,
    /// Messages go both ways: neither side has closed.
    pub is_open: bool,
    /// Congestion window, in bytes.
    pub congestion_window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// What it may send beside the others of its flow.
    pub priority: Priority,
    /// It has something to send that the peer has credit for.
    pub has_data: bool,
    /// Positions of the messages that the app has sent so far.
    pub submitted: u64,
    /// Of these, positions that have been in a packet.
    pub sent: u64,
    /// Positions that have arrived at the peer without a gap, as far as is known here.
    pub acknowledged: u64,
    /// Positions that the peer allows.
    pub limit: u64,
    /// Positions that have come from the peer.
    pub received: u64,
    /// Of these, positions of messages that are not complete, or not due yet.
    pub unfinished: u64,
    /// Positions of messages that the app has released.
    pub released: u64,
    /// Positions that the peer has been allowed.
    pub announced: u64,
    /// Positions that the peer may use beyond those released, but for the rest of a large message.
    pub window: u64,
}

impl Flow {
    /// Those of its own connection, and of each stream.
    pub(crate) fn books(&self) -> impl Iterator<Item = FlowBooks> + '_ {
        let others = self.streams.iter().flat_map(|all| all.iter());
        let others =
            others.map(|view| self.books_of(view.id, view.stream, view.is_open, view.priority));
        let own = self.streams.as_ref().map_or(Priority::default(), |all| all.own_priority());
        let main = (!self.is_shared).then(|| self.books_of(0, &self.main, true, own));
        main.into_iter().chain(others)
    }

    fn books_of(&self, id: u32, stream: &Stream, is_open: bool, priority: Priority) -> FlowBooks {
        let (outgoing, incoming) = (stream.outgoing.books(), stream.incoming.books());
        FlowBooks {
            owner: stream.owner,
            local_id: self.local_id,
            peer_id: self.peer_id,
            stream: id,
            is_open: matches!(self.state, State::Open) && stream.peer_close.is_none() && is_open,
            congestion_window_bytes: self.window_bytes,
            in_flight_bytes: self.recovery.in_flight_bytes(),
            priority,
            has_data: stream.outgoing.has_data(),
            submitted: outgoing.end,
            sent: outgoing.next,
            acknowledged: outgoing.acknowledged,
            limit: outgoing.limit,
            received: incoming.received,
            unfinished: incoming.unfinished,
            released: incoming.released,
            announced: incoming.announced,
            window: incoming.window,
        }
    }
}
