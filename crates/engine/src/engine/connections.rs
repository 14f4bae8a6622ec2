//! How connections begin and end, and who listens. An attempt waits here until the neighbour's
//! Ethernet address is known; so does a ping.

use std::net::{IpAddr, SocketAddr};

use clearway_base::{SECOND, Time};
use clearway_channel::Code;
use clearway_transport::{Owner, Reason};

use super::Core;
use super::elsewhere::Way;
use crate::channels::{Link, code_of};
use crate::interface::Resolution;

/// How long a neighbour may take to be found.
const RESOLVE_TIMEOUT_NS: u64 = 3 * SECOND;

/// Something that waits for a neighbour's Ethernet address.
#[derive(Debug)]
enum Waiting {
    Connect { owner: Owner, service_port: u16 },
    Ping { id: u64, bytes: u16 },
}

#[derive(Debug)]
pub(super) struct Unresolved {
    what: Waiting,
    way: Way,
    local: SocketAddr,
    peer: SocketAddr,
    pub(super) give_up: Time,
}

impl Core {
    pub(super) fn connect(
        &mut self,
        now: Time,
        id: u32,
        token: u64,
        peer: SocketAddr,
    ) -> Result<(), Code> {
        if self.is_here(peer.ip()) {
            return match self.endpoint.listener(peer.port()) {
                Some(listener) => {
                    self.channels.connect_local(id, token, listener, peer);
                    Ok(())
                }
                None => self.connect_to_sibling(now, id, token, peer),
            };
        }
        let way = self.way_to(peer.ip()).ok_or(Code::Unreachable)?;
        let source = self.interface_of(way).source_for(peer.ip());
        let local = source.ok_or(Code::Unreachable)?;
        let channel = self.channels.channel(id).ok_or(Code::Internal)?;
        let slot = channel.open(peer, Link::Resolving, Some(token)).ok_or(Code::Limit)?;
        let owner = Owner { channel: id, connection: slot };
        let what = Waiting::Connect { owner, service_port: peer.port() };
        self.wait_for_neighbour(now, what, way, local, peer.ip());
        Ok(())
    }

    pub(super) fn ping(
        &mut self,
        now: Time,
        id: u64,
        peer: IpAddr,
        bytes: u16,
    ) -> Result<(), Code> {
        let way = self.way_to(peer).ok_or(Code::Unreachable)?;
        let local = self.interface_of(way).source_for(peer).ok_or(Code::Unreachable)?;
        self.wait_for_neighbour(now, Waiting::Ping { id, bytes }, way, local, peer);
        Ok(())
    }

    fn wait_for_neighbour(
        &mut self,
        now: Time,
        what: Waiting,
        way: Way,
        local: IpAddr,
        peer: IpAddr,
    ) {
        let local = SocketAddr::new(local, self.config.udp_port);
        let peer = SocketAddr::new(peer, self.config.udp_port);
        let unresolved = Unresolved { what, way, local, peer, give_up: now + RESOLVE_TIMEOUT_NS };
        self.unresolved.push(unresolved);
        self.go_on_resolved(now);
    }

    /// Goes on with everything whose neighbour has become known.
    pub(super) fn go_on_resolved(&mut self, now: Time) {
        for unresolved in core::mem::take(&mut self.unresolved) {
            match self.resolve(now, unresolved.way, unresolved.local, unresolved.peer) {
                Resolution::Known(path) => {
                    self.paths_of(unresolved.way).prepare(path);
                    self.begin(now, &unresolved);
                }
                Resolution::Pending if now < unresolved.give_up => self.unresolved.push(unresolved),
                Resolution::Pending | Resolution::Unreachable => self.give_up(&unresolved),
            }
        }
    }

    fn begin(&mut self, now: Time, unresolved: &Unresolved) {
        let Unresolved { what, local, peer, .. } = unresolved;
        match *what {
            Waiting::Ping { id, bytes } => self.endpoint.ping(now, id, *local, *peer, bytes),
            Waiting::Connect { owner, service_port } => {
                let Some(channel) = self.channels.channel(owner.channel) else { return };
                let window = channel.window();
                let Some(connection) = channel.connection(owner.connection) else { return };
                match self.endpoint.connect(now, owner, *local, *peer, service_port, window) {
                    Some(key) => connection.link = Link::Flow(key),
                    None => drop(channel.close(owner.connection, Code::Limit)),
                }
            }
        }
    }

    fn give_up(&mut self, unresolved: &Unresolved) {
        match unresolved.what {
            Waiting::Ping { id, .. } => self.failed_pings.push((id, Code::Unreachable)),
            Waiting::Connect { owner, .. } => {
                if let Some(channel) = self.channels.channel(owner.channel) {
                    channel.close(owner.connection, Code::Unreachable);
                }
            }
        }
    }

    pub(super) fn close(&mut self, now: Time, id: u32, connection: u64, abort: bool) {
        let Some(channel) = self.channels.channel(id) else { return };
        let Some(slot) = channel.find(connection) else { return };
        channel.begin_close(slot);
        let Some(found) = channel.connection(slot) else { return };
        let owner = Owner { channel: id, connection: slot };
        match (&found.link, abort) {
            (Link::Resolving, _) => drop(channel.close(slot, Code::Closed)),
            (Link::Local(_), false) => self.channels.close_local(owner),
            (Link::Local(_), true) => self.channels.end_local(owner, Code::Reset),
            (Link::Flow(key), false) => self.endpoint.close(now, *key, &mut self.channels),
            (Link::Flow(key), true) => {
                let key = *key;
                self.endpoint.abort(key, Reason::Reset, &mut self.channels);
                if let Some(channel) = self.channels.channel(id) {
                    channel.close(slot, code_of(Reason::Closed));
                }
            }
        }
    }

    /// Resets all connections of a channel: its app is gone.
    pub(super) fn end_connections(&mut self, id: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        for slot in channel.open_slots() {
            let owner = Owner { channel: id, connection: slot };
            match self.channels.connection(owner).map(|connection| &connection.link) {
                Some(Link::Flow(key)) => {
                    let key = *key;
                    self.endpoint.abort(key, Reason::Reset, &mut self.channels);
                }
                Some(Link::Local(_)) => self.channels.end_local(owner, Code::Reset),
                Some(Link::Resolving) | None => {}
            }
        }
        self.unresolved.retain(|unresolved| {
            !matches!(unresolved.what, Waiting::Connect { owner, .. } if owner.channel == id)
        });
    }

    pub(super) fn listen(
        &mut self,
        id: u32,
        listener: u32,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<(), Code> {
        if address.is_some_and(|address| !self.is_own(address)) {
            return Err(Code::AddressUnavailable);
        }
        if self.listeners_elsewhere.contains_key(&port) {
            return Err(Code::AddressInUse);
        }
        let channel = self.channels.channel(id).ok_or(Code::Internal)?;
        let owner = Owner { channel: id, connection: listener };
        self.endpoint.listen(port, owner).map_err(|_| Code::AddressInUse)?;
        channel.ports.push((port, listener, address));
        Ok(())
    }

    pub(super) fn unlisten(&mut self, id: u32, listener: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        if let Some(index) = channel.ports.iter().position(|(_, other, _)| *other == listener) {
            let (port, _, _) = channel.ports.swap_remove(index);
            self.endpoint.unlisten(port);
        }
    }
}
