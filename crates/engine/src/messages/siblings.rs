//! Connections to apps of this host that other engines serve: over a flow as to any other host, but
//! by the lane. And whose a packet of messages is, if it is another engine's.

use std::net::SocketAddr;

use clearway_base::Time;
use clearway_channel::Code;
use clearway_transport::{Destination, Endpoint, Owner};

use super::Messages;
use crate::channels::Bearer;
use crate::common::Common;
use crate::lanes::What;

impl Messages {
    /// The other engine that is to have a packet of messages, if it is not for this one.
    #[inline]
    pub(crate) fn engine_elsewhere(&self, common: &Common, payload: &[u8]) -> Option<usize> {
        let lanes = &common.lanes;
        if lanes.is_alone() {
            return None;
        }
        let engine = Endpoint::engine_of(payload).map(usize::from).or_else(|| {
            let (port, pass_on) = Endpoint::port_of_syn(payload)?;
            let listener = *self.listeners_elsewhere.get(&port)?;
            // It would look in vain for a queue of an engine that has none of this NIC.
            (pass_on || !lanes.siblings().contains(&listener)).then_some(listener)
        })?;
        (engine != lanes.index() && engine < lanes.count()).then_some(engine)
    }

    /// Remembers who listens on a port, so that connections to it are made there.
    pub(crate) fn note_listener(&mut self, port: u16, engine: Option<usize>) {
        match engine {
            Some(engine) => self.listeners_elsewhere.insert(port, engine),
            None => self.listeners_elsewhere.remove(&port),
        };
        self.endpoint.set_elsewhere(port, engine.is_some());
    }

    /// Connects to an app of this host that another engine serves: over a flow as to any other
    /// host, but by the lane.
    pub(super) fn connect_to_sibling(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        token: u64,
        peer: SocketAddr,
    ) -> Result<(), Code> {
        if !self.listeners_elsewhere.contains_key(&peer.port()) {
            return Err(Code::Refused);
        }
        let channel = common.channels.channel(id).ok_or(Code::Internal)?;
        let window = channel.window();
        let slot = channel.open(peer, Bearer::Resolving, Some(token)).ok_or(Code::Limit)?;
        let owner = Owner { channel: id, connection: slot };
        let daemon = SocketAddr::new(peer.ip(), self.udp_port);
        let flow = self.endpoint.connect(now, owner, daemon, daemon, peer.port(), window);
        let Some(connection) = channel.connection(slot) else { return Ok(()) };
        match flow {
            Some(key) => connection.bearer = Bearer::Flow(key.into()),
            None => drop(channel.close(slot, Code::Limit)),
        }
        Ok(())
    }

    /// Builds a packet to an app of this host, and hands it to the engine that serves the app.
    pub(super) fn send_to_sibling(
        &mut self,
        common: &mut Common,
        now: Time,
        destination: Destination,
    ) {
        let (scratch, channels) = (&mut self.scratch, &common.channels);
        // The flow may end with this packet.
        let owner = destination.flow.and_then(|flow| self.endpoint.owner(flow));
        let user = owner.and_then(|owner| channels.peek(owner.channel)).map(|from| from.user);
        let length = self.endpoint.poll_transmit(now, destination, scratch, channels);
        if length == 0 {
            return;
        }
        let payload = &self.scratch[..length];
        let (source, destined) = (destination.from, destination.to);
        let what = What::Datagram { source, destination: destined, user };
        let engine = Endpoint::engine_of(payload).map(usize::from);
        match engine.or_else(|| self.listener_of(common, destination)) {
            Some(engine) if engine != common.lanes.index() => {
                common.lanes.push(engine, what, payload);
            }
            Some(_) => {} // it has gone, and with it whoever listened
            // It says only that a flow has ended, not whose that was.
            None => common.lanes.push_to(common.lanes.others(), what, payload),
        }
    }

    /// The engine that the connection of a flow is to lead to.
    fn listener_of(&self, common: &Common, destination: Destination) -> Option<usize> {
        let owner = self.endpoint.owner(destination.flow?)?;
        let port = common.channels.peek(owner.channel)?.peer(owner.connection)?.port();
        let listener = self.listeners_elsewhere.get(&port).copied();
        Some(listener.unwrap_or(common.lanes.index()))
    }
}
