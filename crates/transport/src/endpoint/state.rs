//! An endpoint as plain data, and back. Who stands in line to send, which timers are set, and where
//! flows are found by their peers follows from the flows.

use std::collections::VecDeque;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_wire::clearway::ENGINES_MAX;

use super::closed::CLOSED_MAX;
use super::peers::PEERS_MAX;
use super::strangers::{Addresses, PINGS_MAX, Ping, REPLIES_MAX, Reply};
use super::{Counters, Endpoint, FLOWS_MAX, FlowKey, Slot, StreamKey, Turn};
use crate::app::{Buffer, Operation, Order, Owner};
use crate::config::Config;
use crate::cookie::Secrets;
use crate::flow::{Flow, Known};
use crate::state::{DURATION_NS_MAX, EndpointState, FlowState, ReplyState};

/// What a connection has of its app's memory.
#[derive(Clone, Debug)]
pub struct FlowMemory {
    /// The flow, and which of its streams.
    pub key: StreamKey,
    /// Whose it is.
    pub owner: Owner,
    /// No app has it any more.
    pub is_drained: bool,
    /// The other end is not known yet.
    pub is_connecting: bool,
    /// The peer has opened it.
    pub was_accepted: bool,
    /// Buffers in the receive pool that messages come into.
    pub buffers: Vec<(Buffer, Order)>,
    /// Offsets and lengths of messages in the transmit pool.
    pub extents: Vec<(u32, u32)>,
    /// One-sided operations that have not arrived.
    pub operations: Vec<Operation>,
}

impl Endpoint {
    /// All that another endpoint needs to go on.
    #[must_use]
    pub fn save(&self) -> EndpointState {
        let (secret, seed, secrets_made) = self.secrets.save();
        let mut listeners: Vec<_> = self.listeners.iter().map(|(port, to)| (*port, *to)).collect();
        listeners.sort_unstable_by_key(|(port, _)| *port);
        let mut elsewhere: Vec<u16> = self.elsewhere.iter().copied().collect();
        elsewhere.sort_unstable();
        let known = |(peer, known): (_, Known)| (peer, known.engines, known.rtt_ns);
        EndpointState {
            secret,
            seed,
            secrets_made,
            flows: self.slots.iter().filter_map(|slot| Some(slot.flow.as_ref()?.save())).collect(),
            closed: self.closed.iter().collect(),
            listeners,
            elsewhere,
            replies: self.replies.iter().map(Reply::save).collect(),
            farewells: self.farewells.iter().map(Reply::save).collect(),
            pings: self.pings.iter().map(Ping::save).collect(),
            peers: self.peers.iter().map(known).collect(),
            turn: (self.turn.began, self.turn.returned),
            counters: self.counters.save(),
        }
    }

    /// One that goes on at `now` where another one was saved. Nothing of `saved` is trusted; but
    /// whose memory flows name is the owner's to check, see [`Endpoint::memory`].
    pub fn restore(saved: EndpointState, config: Config, now: Time) -> Result<Self, Invalid> {
        let (began, returned) = saved.turn;
        // What was due since then is due at once.
        let began = began.min(now);
        let mut endpoint = Self::new(config, began, saved.seed, saved.secret);
        let secrets = Secrets::new(saved.secret, saved.seed);
        endpoint.secrets = secrets.after(saved.secrets_made.min(u64::MAX / 2));
        endpoint.turn = Turn { began, gap_ns: 0, returned: returned.min(now) };
        endpoint.counters = Counters::restore(&saved.counters);
        endpoint.restore_known(&saved)?;
        endpoint.replies = endpoint.restore_replies(saved.replies, REPLIES_MAX)?;
        let flows_max = endpoint.config.flows_max as usize;
        endpoint.farewells = endpoint.restore_replies(saved.farewells, flows_max)?;
        endpoint.restore_flows(now, saved.flows)?;
        Ok(endpoint)
    }

    fn restore_known(&mut self, saved: &EndpointState) -> Result<(), Invalid> {
        ensure(saved.closed.len() <= CLOSED_MAX, "too many flows that have ended")?;
        saved.closed.iter().for_each(|id| self.closed.insert(*id));
        for (port, listener) in &saved.listeners {
            ensure(self.listen(*port, *listener).is_ok(), "two listeners on one port")?;
        }
        self.elsewhere.extend(&saved.elsewhere);
        ensure(saved.pings.len() <= PINGS_MAX, "too many pings")?;
        self.pings = saved.pings.iter().map(|ping| Ping::restore(*ping)).collect();
        ensure(saved.peers.len() <= PEERS_MAX, "too many peers")?;
        for &(peer, engines, rtt_ns) in &saved.peers {
            let is_known = (1..=ENGINES_MAX).contains(&engines) && rtt_ns <= DURATION_NS_MAX;
            ensure(is_known, "a peer that cannot be")?;
            self.peers.learn(peer, Known { engines, rtt_ns });
        }
        Ok(())
    }

    fn restore_flows(&mut self, now: Time, saved: Vec<FlowState>) -> Result<(), Invalid> {
        let places = FLOWS_MAX.min(self.config.flows_max as usize);
        let slot_of = |flow: &FlowState| FlowKey(flow.local_id).slot();
        let end = saved.iter().map(|flow| slot_of(flow) + 1).max().unwrap_or(0);
        ensure(end <= places, "more flows than there may be")?;
        self.slots.resize_with(end, Slot::default);
        for flow in saved {
            self.restore_flow(now, flow)?;
        }
        let is_free = |slot: &u32| self.slots[*slot as usize].flow.is_none();
        self.free = (0..end as u32).rev().filter(is_free).collect();
        // Whether they have something to send is found out when they have their turns.
        let taken = (0..end).filter(|slot| self.slots[*slot].flow.is_some());
        taken.collect::<Vec<_>>().into_iter().for_each(|slot| self.queue(now, slot));
        Ok(())
    }

    fn restore_flow(&mut self, now: Time, saved: FlowState) -> Result<(), Invalid> {
        let key = FlowKey(saved.local_id);
        ensure(key.engine() == self.config.engine_index, "a flow of another engine")?;
        let flow = Flow::restore(now, &self.config, saved)?;
        ensure(self.slots[key.slot()].flow.is_none(), "two flows in one place")?;
        if flow.was_accepted() {
            self.shares.take(flow.remote().ip());
        }
        if flow.is_unused() {
            self.unused.note(&flow, true);
        }
        if flow.peer_id() != 0 {
            self.by_peer.insert((flow.remote().ip(), flow.peer_id()), key.slot() as u32);
        }
        self.slots[key.slot()].flow = Some(Box::new(flow));
        Ok(())
    }

    /// What is too large for the interface as it is now is lost, as it would be on the wire.
    fn restore_replies(
        &self,
        saved: Vec<ReplyState>,
        count_max: usize,
    ) -> Result<VecDeque<Reply>, Invalid> {
        ensure(saved.len() <= count_max, "too many packets wait")?;
        let bytes_max = usize::from(self.config.packet_bytes_max);
        let fitting = saved.into_iter().filter(|reply| reply.bytes.len() <= bytes_max);
        let replies = fitting.map(|ReplyState { local, peer, bytes }| {
            let is_possible = local.is_ipv4() == peer.is_ipv4();
            ensure(is_possible, "a packet between two families of addresses")?;
            Ok(Reply { between: Addresses { local, peer }, bytes })
        });
        replies.collect()
    }

    /// What each connection has of its app's memory: whoever restores an endpoint has to see that
    /// it is the app's, and nobody else's.
    pub fn memory(&self) -> impl Iterator<Item = FlowMemory> + '_ {
        self.slots.iter().filter_map(|slot| slot.flow.as_ref()).flat_map(|flow| flow.memory())
    }
}

impl Reply {
    fn save(&self) -> ReplyState {
        let Addresses { local, peer } = self.between;
        ReplyState { local, peer, bytes: self.bytes.clone() }
    }
}
