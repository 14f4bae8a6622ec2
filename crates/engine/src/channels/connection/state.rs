//! Connections as plain data, and back.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{SlotState, Slots};
use clearway_transport::{FlowKey, StreamKey};

use super::{Bearer, CONNECTIONS_MAX, Connection, Connections, Local, Stage};
use crate::operations::Exchange;
use crate::state::{BearerState, ConnectionState};

/// More than any connection has had; sums do not overflow.
const COUNT_MAX: u64 = 1 << 62;

impl Connections {
    pub(in crate::channels) fn save(&self) -> Vec<SlotState<ConnectionState>> {
        self.slots.save(Connection::save)
    }

    pub(in crate::channels) fn restore(
        count_max: u32,
        saved: Vec<SlotState<ConnectionState>>,
    ) -> Result<Self, Invalid> {
        ensure(count_max <= CONNECTIONS_MAX, "more connections than can be named")?;
        let slots = Slots::restore(count_max, saved, Connection::restore)?;
        let mut connections = Self { slots, ..Self::new(count_max) };
        let accepted = connections.slots.iter().filter(|(_, it)| it.is_accepted);
        accepted.for_each(|(_, it)| connections.shares.take(it.peer.ip()));
        connections.find_streams()?;
        Ok(connections)
    }

    fn find_streams(&mut self) -> Result<(), Invalid> {
        let streams = self.iter().filter_map(|(slot, it)| Some((it.bearer.parent()?, slot)));
        self.streams = streams.collect();
        let is_connection = |parent: &u32| {
            let parent = self.peek(*parent).and_then(|it| it.bearer.local());
            parent.is_some_and(|it| it.parent.is_none())
        };
        let have_theirs = self.streams.iter().all(|(parent, _)| is_connection(parent));
        ensure(have_theirs, "a stream of what is no connection")
    }
}

impl Connection {
    fn save(&self) -> ConnectionState {
        ConnectionState {
            peer: self.peer,
            bearer: match &self.bearer {
                Bearer::Resolving => BearerState::Resolving,
                Bearer::Flow(key) => BearerState::Flow(key.flow.id(), key.stream),
                Bearer::Local(local) => BearerState::Local {
                    peer: local.peer,
                    waiting: local.waiting.iter().copied().collect(),
                    held: local.held,
                    is_closing: local.closing,
                    parent: local.parent,
                },
            },
            connecting: self.connecting(),
            peer_user: self.peer_user,
            is_accepted: self.is_accepted,
            shares: self.shares,
            is_closing: self.is_closing(),
            submitted: self.submitted,
            sent: self.sent,
            sent_told: self.sent_told,
            is_untold: self.is_untold,
            received: self.received,
            exchange: self.exchange.as_ref().map(|exchange| exchange.save()),
        }
    }

    fn restore(saved: ConnectionState) -> Result<Self, Invalid> {
        let counts = saved.received.max(saved.sent);
        ensure(counts <= COUNT_MAX, "more messages than can be counted")?;
        let bearer = match saved.bearer {
            BearerState::Resolving => Bearer::Resolving,
            BearerState::Flow(id, stream) => {
                Bearer::Flow(StreamKey { flow: FlowKey::of_id(id), stream })
            }
            BearerState::Local { peer, waiting, held, is_closing: closing, parent } => {
                ensure(held <= COUNT_MAX, "more memory than there is")?;
                let local = Local::to(peer, parent);
                Bearer::Local(Local { waiting: waiting.into(), held, closing, ..local })
            }
        };
        let mut connection = Self {
            peer_user: saved.peer_user,
            is_accepted: saved.is_accepted,
            shares: saved.shares,
            submitted: saved.submitted,
            sent: saved.sent,
            sent_told: saved.sent_told,
            is_untold: saved.is_untold,
            received: saved.received,
            exchange: saved.exchange.map(Exchange::restore).transpose()?.map(Box::new),
            ..Self::new(saved.peer, bearer, saved.connecting)
        };
        if saved.is_closing {
            connection.stage = Stage::Closing(saved.connecting);
        }
        connection.note_waiting();
        Ok(connection)
    }
}
