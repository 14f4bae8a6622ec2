//! How flows are opened and refused. The order of packets is in `docs/wire.md`.

use std::net::SocketAddr;

use clearway_base::Time;
use clearway_wire::clearway::{
    Challenge, Header, Packet, PacketType, Reset, Syn, SynAck, VERSION_SHARED, Versions,
};

use super::strangers::Addresses;
use super::table::find;
use super::{Arrival, Endpoint, FlowKey};
use crate::app::{App, Owner, Reason, Undelivered};
use crate::control::{common_version, versions_offered};
use crate::flow::{Flow, Opened, Outcome, Parameters, Request};

impl Endpoint {
    /// Nothing is allocated, and nothing said that is longer than the syn, until the peer has shown
    /// that it receives at its address.
    pub(super) fn handle_syn(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        syn: &Syn<'_>,
        arrival: Arrival,
        app: &mut impl App,
    ) -> bool {
        let Some(version) = common_version(syn.versions) else {
            self.reply_versions(now, between, syn.source_flow, header.number);
            return false;
        };
        let peer = between.peer.ip();
        // A flow outlives its listener, and its client may have yet to hear of it.
        let is_repeated = || self.by_peer.contains_key(&(peer, syn.source_flow));
        if !self.listeners.contains_key(&syn.port) && !is_repeated() {
            if self.elsewhere.contains(&syn.port) {
                self.counters.dropped_elsewhere += 1;
            } else {
                self.refuse(now, between, header.number, syn);
            }
            return false;
        }
        if syn.cookie.is_empty() {
            let cookie = self.cookies.issue(now, peer, syn.source_flow, syn.port);
            let engines = self.config.engines_between(between.local.ip(), peer);
            let port = between.peer.port();
            let challenge = Challenge { engines, port, cookie: &cookie };
            self.counters.challenges_sent += 1;
            let (kind, flow) = (PacketType::Challenge, syn.source_flow);
            self.reply_control(now, between, kind, flow, header.number, |body| {
                challenge.emit(body)
            });
            return false;
        }
        let Some(rtt_ns) = self.cookies.age_ns(now, syn.cookie, peer, syn.source_flow, syn.port)
        else {
            self.counters.dropped_cookie += 1;
            return false;
        };
        if let Some(&slot) = self.by_peer.get(&(peer, syn.source_flow)) {
            if let Some(flow) = &mut self.slots[slot as usize].flow {
                flow.repeat_syn_ack(now, &self.config, between.peer.port());
            }
            self.update(now, slot as usize);
            return false;
        }
        let (token, port) = (header.number, between.peer.port());
        let request = Request { token, port, rtt_ns, arrival, version };
        self.open(now, between, &request, syn, app)
    }

    fn open(
        &mut self,
        now: Time,
        between: Addresses,
        request: &Request,
        syn: &Syn<'_>,
        app: &mut impl App,
    ) -> bool {
        let is_shared = request.version == VERSION_SHARED;
        let peer = between.peer.ip();
        let has_room = self.has_room_for(peer) && (!is_shared || self.unused.allows(peer));
        let listener = self.listener(syn.port).filter(|_| has_room);
        let accepted = listener.and_then(|listener| {
            let local_id = self.reserve()?;
            if is_shared {
                return Some((local_id, Owner::NOBODY, 0)); // its connections come as streams
            }
            let key = FlowKey(local_id).into();
            let accepted = app.accept(listener, key, between.local, between.peer);
            if accepted.is_none() {
                self.free.push(FlowKey(local_id).slot() as u32);
            }
            accepted.map(|(owner, window)| (local_id, owner, window))
        });
        let Some((local_id, owner, window)) = accepted else {
            self.refuse(now, between, request.token, syn);
            return false;
        };
        self.counters.flows_accepted += 1;
        self.shares.take(between.peer.ip());
        let (local, remote) = (between.local, between.daemon());
        let seed = self.secrets.next();
        let parameters = Parameters { owner, local_id, local, remote, window, seed };
        let flow = Flow::accept(now, &self.config, parameters, syn, request);
        if is_shared {
            self.unused.note(&flow, true);
        }
        let key = self.insert(now, flow);
        self.by_peer.insert((between.peer.ip(), syn.source_flow), key.slot() as u32);
        true
    }

    /// A reset is shorter than the syn, and the client has to have seen that to believe it, so
    /// there is no need of a cookie.
    fn refuse(&mut self, now: Time, between: Addresses, token: u64, syn: &Syn<'_>) {
        self.counters.dropped_refused += 1;
        let reset = Reset { reason: Reason::Refused.code(), quoted_flow: 0 };
        self.reply_control(now, between, PacketType::Reset, syn.source_flow, token, |body| {
            reset.emit(body)
        });
    }

    pub(super) fn handle_challenge(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        challenge: &Challenge<'_>,
    ) {
        let (key, peer) = (FlowKey(header.flow), between.peer.ip());
        if self.connecting(between, header).is_none() {
            return;
        }
        let known = self.peers.find(peer);
        let known = find(&mut self.slots, key)
            .and_then(|flow| flow.handle_challenge(now, &self.config, known, challenge));
        if let Some(known) = known {
            self.peers.learn(peer, known);
            self.update(now, key.slot());
        }
    }

    pub(super) fn handle_syn_ack(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        syn_ack: &SynAck,
        arrival: Arrival,
        app: &mut impl App,
    ) {
        let slot = FlowKey(header.flow).slot();
        if let Some(flow) = find(&mut self.slots, FlowKey(header.flow))
            && flow.remote().ip() == between.peer.ip()
        {
            flow.note_arrival(arrival, between.peer.port());
            let opened = flow.handle_syn_ack(now, &self.config, header.number, syn_ack, app);
            if let Some(opened) = opened {
                self.opened(slot, opened, app);
            }
            return self.update(now, slot);
        }
        self.counters.dropped_unsolicited += 1;
        // A syn-ack for a flow that has gone: a replayed syn must not leave a ghost at the peer.
        if find(&mut self.slots, FlowKey(header.flow)).is_none() {
            let reset = Reset { reason: Reason::Reset.code(), quoted_flow: header.flow };
            self.reply_control(
                now,
                between,
                PacketType::Reset,
                syn_ack.source_flow,
                header.number,
                |body| reset.emit(body),
            );
        }
    }

    /// A flow that was begun here has become open.
    fn opened(&mut self, slot: usize, opened: Opened, app: &mut impl App) {
        let Some(flow) = &self.slots[slot].flow else { return };
        self.counters.flows_connected += 1;
        self.by_peer.insert((flow.remote().ip(), flow.peer_id()), slot as u32);
        match opened {
            Opened::Own => app.connected(flow.owner()),
            Opened::Shared => {}
            Opened::Unwanted => {
                self.tell_aborted(slot, Reason::Reset);
                self.remove(slot, app);
            }
        }
    }

    /// The peer speaks other versions only, or says so needlessly.
    pub(super) fn handle_versions(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        versions: &Versions<'_>,
        app: &mut impl App,
    ) {
        let Some(flow) = self.connecting(between, header) else { return };
        let offered = versions_offered(flow.is_shared());
        if !versions.versions.iter().any(|version| offered.contains(version)) {
            let slot = FlowKey(header.flow).slot();
            self.conclude(now, slot, Outcome::Ended(Reason::Version), app);
        }
    }

    /// A reset is believed if it proves that its sender saw a packet of ours: it quotes the flow id
    /// that we send to, or answers our syn with its token.
    pub(super) fn handle_reset(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        reset: &Reset,
        app: &mut impl App,
    ) {
        let slot = match self.by_peer.get(&(between.peer.ip(), reset.quoted_flow)).copied() {
            Some(slot) => slot,
            None if self.connecting(between, header).is_some() => {
                FlowKey(header.flow).slot() as u32
            }
            None => return,
        };
        let slot = slot as usize;
        let Some(flow) = &mut self.slots[slot].flow else { return };
        let outcome = flow.handle_reset(Reason::from_code(reset.reason), app);
        self.counters.flows_reset_by_peer += u64::from(outcome != Outcome::Ended(Reason::Closed));
        self.conclude(now, slot, outcome, app);
    }

    /// RFC 9000, 6.1, does the same: answer what may be the begin of a flow, drop the rest.
    pub(super) fn handle_other_version(
        &mut self,
        now: Time,
        between: Addresses,
        packet: &Packet<'_>,
    ) {
        self.counters.dropped_version += 1;
        if packet.type_octet() == PacketType::Syn as u8
            && let Some(source_flow) = packet.body().first_chunk::<8>()
        {
            let source_flow = u64::from_be_bytes(*source_flow);
            self.reply_versions(now, between, source_flow, packet.number());
        }
    }

    /// Takes an ICMP error that quotes a UDP payload of ours to `peer`. It is believed if it proves
    /// that a syn was seen on its way, by the flow id and token inside, or a ping, by its token;
    /// open flows have timers.
    pub fn handle_network_error(
        &mut self,
        now: Time,
        peer: SocketAddr,
        quote: &[u8],
        undelivered: Undelivered,
        app: &mut impl App,
    ) {
        let packet = Packet::new(quote).ok();
        if let Some(id) = packet.and_then(|packet| self.take_ping(packet.number())) {
            return app.pong(id, Err(undelivered));
        }
        let quoted = packet.and_then(|syn| Some((syn, syn.body().first_chunk::<8>()?)));
        let Some((syn, source_flow)) = quoted else {
            return self.counters.dropped_unsolicited += 1;
        };
        let key = FlowKey(u64::from_be_bytes(*source_flow));
        let is_ours = find(&mut self.slots, key)
            .is_some_and(|flow| flow.is_connecting_with(syn.number()) && flow.remote() == peer);
        if !is_ours {
            return self.counters.dropped_unsolicited += 1;
        }
        self.conclude(now, key.slot(), Outcome::Ended(Reason::Unreachable), app);
    }

    /// The flow that waits for the answer to its syn, if this is one from its peer.
    pub(super) fn connecting(&mut self, between: Addresses, header: &Header) -> Option<&mut Flow> {
        let flow = find(&mut self.slots, FlowKey(header.flow)).filter(|flow| {
            flow.is_connecting_with(header.number) && flow.remote().ip() == between.peer.ip()
        });
        if flow.is_none() {
            self.counters.dropped_unsolicited += 1;
        }
        flow
    }
}
