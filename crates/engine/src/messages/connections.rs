//! How connections begin and end, and who listens. An attempt to a neighbour that is not known yet
//! waits in `resolving.rs`; so does a ping.

use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use clearway_channel::{Code, Completion};
use clearway_transport::{NoStream, Owner, Reason, StreamKey};

use super::Messages;
use super::resolving::Waiting;
use crate::channels::{Bearer, Local, Stage, code_of};
use crate::common::Common;
use crate::control::PingFailure;
use crate::engine::headers_bytes;

impl Messages {
    /// An app wants to connect, by a flow that is `shared` or of its own.
    pub(super) fn take_connect(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        token: u64,
        peer: SocketAddr,
        shared: bool,
    ) {
        let peer = clearway_channel::canonical(peer);
        if let Err(code) = self.connect(common, now, id, token, peer, shared)
            && let Some(channel) = common.channels.channel(id)
        {
            channel.tell(Completion::ConnectFailed { token, code });
        }
    }

    fn connect(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        token: u64,
        peer: SocketAddr,
        shared: bool,
    ) -> Result<(), Code> {
        if common.host.is_here(peer.ip()) {
            return match self.endpoint.listener(peer.port()) {
                Some(listener) => {
                    common.channels.connect_local(id, token, listener, peer);
                    Ok(())
                }
                None => self.connect_to_sibling(common, now, id, token, peer),
            };
        }
        let target = self.target(common, peer.ip()).ok_or(Code::Unreachable)?;
        if !self.may_resolve(common, id, &target) {
            return Err(Code::Limit);
        }
        let channel = common.channels.channel(id).ok_or(Code::Internal)?;
        let slot = channel.open(peer, Bearer::Resolving, Some(token)).ok_or(Code::Limit)?;
        channel.connection(slot).into_iter().for_each(|it| it.shares = shared);
        let waiting = Waiting::Connect { channel: id, slot, service_port: peer.port() };
        self.resolve(common, now, waiting, target);
        Ok(())
    }

    /// Opens a stream of a connection: one with a flow has it opened there, one to an app of this
    /// host is another such connection.
    pub(super) fn open_stream(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        token: u64,
        connection: u64,
    ) -> Result<(), Code> {
        let channel = common.channels.channel(id).ok_or(Code::Internal)?;
        let parent = channel.find(connection).ok_or(Code::Closed)?;
        let (window, found) = (channel.window(), channel.connection(parent).ok_or(Code::Closed)?);
        if !matches!(found.stage, Stage::Open | Stage::Behind) {
            return Err(Code::Closed);
        }
        let (peer, flow) = match &found.bearer {
            Bearer::Flow(StreamKey { flow, stream: 0 }) => (found.peer, *flow),
            Bearer::Local(Local { parent: None, .. }) => {
                return common.channels.open_local_stream(id, token, parent);
            }
            Bearer::Flow(_) | Bearer::Local(_) | Bearer::Resolving => return Err(Code::Invalid),
        };
        let slot = channel.open(peer, Bearer::Resolving, None).ok_or(Code::Limit)?;
        let owner = Owner { channel: id, connection: slot };
        match self.endpoint.open_stream(now, flow, owner, window) {
            Ok(stream) => {
                let connection = channel.id(slot);
                channel
                    .connection(slot)
                    .into_iter()
                    .for_each(|it| it.bearer = Bearer::Flow(stream));
                channel.tell(Completion::Connected { token, connection, peer });
                Ok(())
            }
            Err(why) => {
                channel.remove(slot);
                Err(match why {
                    NoStream::Unknown => Code::VersionUnknown,
                    NoStream::TooMany => Code::Limit,
                    NoStream::NotOpen => Code::Closed,
                })
            }
        }
    }

    pub(crate) fn ping(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u64,
        (peer, udp_port): (IpAddr, Option<u16>),
        bytes: u16,
    ) -> Result<(), PingFailure> {
        let mut target = self.target(common, peer).ok_or(PingFailure::NoRoute)?;
        target.peer.set_port(udp_port.unwrap_or(self.udp_port));
        let mtu = common.host.interface(target.nic).mtu();
        let limit =
            mtu.saturating_sub(headers_bytes(peer.is_ipv6())).min(self.endpoint.packet_bytes_max());
        if bytes > limit {
            return Err(PingFailure::TooLarge { limit });
        }
        self.resolve(common, now, Waiting::Ping { id, bytes }, target);
        Ok(())
    }

    /// Only a peer on another host can fall silent.
    pub(super) fn set_silence(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        connection: u64,
        silence_ms: u32,
    ) {
        if let Some(key) = common.channels.flow_of(id, connection) {
            self.endpoint.set_silence(now, key.flow, silence_ms);
        }
    }

    pub(crate) fn close(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        connection: u64,
        abort: bool,
    ) {
        let Some(channel) = common.channels.channel(id) else { return };
        let Some(slot) = channel.find(connection) else { return };
        channel.begin_close(slot);
        let Some(found) = channel.connection(slot) else { return };
        let owner = Owner { channel: id, connection: slot };
        match (&found.bearer, abort) {
            (Bearer::Resolving, _) => {
                let service_port = found.peer.port();
                self.resolving.remove(&Waiting::Connect { channel: id, slot, service_port });
                channel.close(slot, Code::Closed);
            }
            (Bearer::Local(_), false) => common.channels.close_local(owner),
            (Bearer::Local(_), true) => common.channels.end_local(owner, Code::Reset),
            (Bearer::Flow(key), false) => self.endpoint.close(now, *key, &mut common.channels),
            (Bearer::Flow(key), true) => {
                let key = *key;
                self.endpoint.abort(key, Reason::Reset, &mut common.channels);
                if let Some(channel) = common.channels.channel(id) {
                    channel.close(slot, code_of(Reason::Closed));
                }
            }
        }
    }

    /// Resets connections of a channel whose app is gone, so many at most. Returns how many.
    pub(crate) fn end_connections(
        &mut self,
        common: &mut Common,
        id: u32,
        connections_max: usize,
    ) -> usize {
        let Some(channel) = common.channels.channel(id) else { return 0 };
        let slots = channel.open_slots(connections_max);
        for &slot in &slots {
            let owner = Owner { channel: id, connection: slot };
            let Some(connection) = common.channels.connection(owner) else { continue };
            match connection.bearer {
                Bearer::Flow(key) => self.endpoint.abort(key, Reason::Reset, &mut common.channels),
                Bearer::Local(_) => common.channels.end_local(owner, Code::Reset),
                Bearer::Resolving => {
                    let service_port = connection.peer.port();
                    self.resolving.remove(&Waiting::Connect { channel: id, slot, service_port });
                }
            }
            if let Some(channel) = common.channels.channel(id) {
                channel.remove(slot);
            }
        }
        slots.len()
    }

    pub(crate) fn listen(
        &mut self,
        common: &mut Common,
        id: u32,
        listener: u32,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<(), Code> {
        if address.is_some_and(|address| !common.host.is_own(address)) {
            return Err(Code::AddressUnavailable);
        }
        if self.listeners_elsewhere.contains_key(&port) {
            return Err(Code::AddressInUse);
        }
        let channel = common.channels.channel(id).ok_or(Code::Internal)?;
        let owner = Owner { channel: id, connection: listener };
        self.endpoint.listen(port, owner).map_err(|_| Code::AddressInUse)?;
        channel.ports.insert((listener, port), address);
        Ok(())
    }

    pub(crate) fn unlisten(&mut self, common: &mut Common, id: u32, listener: u32) {
        let Some(channel) = common.channels.channel(id) else { return };
        let port = channel.ports_of(listener).next();
        if let Some((port, _)) = port {
            channel.ports.remove(&(listener, port));
            self.endpoint.unlisten(port);
        }
    }
}
