//! Which connections share a flow: those of one user to one service port of a peer, as far as their
//! apps ask for it. The papers call this the flow mapper (Snap, 3.3).
//!
//! Users share none, since whoever shares a flow feels what is lost, and how urgent others are.

use std::collections::HashMap;
use std::net::SocketAddr;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_transport::{Endpoint, FlowKey, Owner, StreamKey};
use serde::{Deserialize, Serialize};

use super::Messages;
use super::resolving::Waiting;
use crate::common::Common;

/// Ways at which those are first looked for whose flow has ended.
const WAYS_MIN: usize = 64;

/// Whose connections, from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SharedWay {
    /// The user.
    pub user: u32,
    /// The own address, with the port of daemons.
    pub local: SocketAddr,
    /// The peer's daemon.
    pub peer: SocketAddr,
    /// The port of the peer's app.
    pub service_port: u16,
}

/// The flow of each way that takes more connections.
#[derive(Debug, Default)]
pub(super) struct SharedFlows {
    flows: HashMap<SharedWay, FlowKey>,
    /// So many are there when those that have ended are taken out next.
    checked_at: usize,
}

impl SharedFlows {
    fn insert(&mut self, way: SharedWay, flow: FlowKey, endpoint: &Endpoint) {
        if self.flows.len() >= self.checked_at.max(WAYS_MIN) {
            self.flows.retain(|_, flow| endpoint.is_shared(*flow));
            self.checked_at = 2 * self.flows.len();
        }
        self.flows.insert(way, flow);
    }

    /// Those whose flows have not ended.
    pub(super) fn save(&self, endpoint: &Endpoint) -> Vec<(SharedWay, u64)> {
        let flows = self.flows.iter().filter(|(_, flow)| endpoint.is_shared(**flow));
        let mut flows: Vec<_> = flows.map(|(way, flow)| (*way, flow.id())).collect();
        flows.sort_unstable();
        flows
    }

    pub(super) fn restore(
        saved: Vec<(SharedWay, u64)>,
        endpoint: &Endpoint,
    ) -> Result<Self, Invalid> {
        let flows = saved.into_iter().map(|(way, id)| (way, FlowKey::of_id(id)));
        let flows: HashMap<_, _> = flows.collect();
        let are_shared = flows.values().all(|flow| endpoint.is_shared(*flow));
        ensure(are_shared, "a shared flow that there is not")?;
        Ok(Self { checked_at: 2 * flows.len(), flows })
    }
}

impl Messages {
    /// Opens a connection by the flow of its way, which is opened for the first. `None` if there
    /// are too many flows.
    pub(super) fn connect_shared(
        &mut self,
        now: Time,
        owner: Owner,
        way: SharedWay,
        window: u64,
    ) -> Option<StreamKey> {
        if let Some(flow) = self.shared.flows.get(&way)
            && let Ok(stream) = self.endpoint.open_stream(now, *flow, owner, window)
        {
            return Some(stream);
        }
        let SharedWay { local, peer, service_port, .. } = way;
        let flow = self.endpoint.connect_shared(now, local, peer, service_port, window)?;
        self.shared.insert(way, flow, &self.endpoint);
        self.endpoint.open_stream(now, flow, owner, window).ok()
    }

    /// Has connections begun anew whose peers share no flows: as many of them in a turn as of
    /// others that go on.
    #[cold]
    pub(crate) fn begin_unshared(&mut self, common: &mut Common) {
        for owner in core::mem::take(&mut common.channels.unshared) {
            let Owner { channel, connection: slot } = owner;
            let Some(peer) = common.channels.peek(channel).and_then(|it| it.peer(slot)) else {
                continue;
            };
            let waiting = Waiting::Connect { channel, slot, service_port: peer.port() };
            let target = self.target(common, peer.ip());
            if !target.is_some_and(|target| self.resolving.go_on_soon(common, waiting, target)) {
                self.give_up(common, waiting);
            }
        }
    }
}
