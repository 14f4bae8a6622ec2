//! All flows of one engine: finds the flow of a packet, opens and ends flows, answers strangers
//! without remembering them.
//!
//! Call order, as for a flow: `handle_*` and the app's calls change the state; then
//! [`Endpoint::next_transmit`] and [`Endpoint::poll_transmit`] until there is nothing; then sleep
//! until [`Endpoint::next_timeout`] at the latest.

use core::hash::{BuildHasher, Hasher};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use clearway_base::{Random, SECOND, Time, TimerWheel, counters};
use clearway_wire::Malformed;
use clearway_wire::clearway::{
    Challenge, HEADER_LENGTH, Header, Packet, PacketType, Reset, Syn, SynAck, Versions,
};
use siphasher::sip::SipHasher13;

use crate::app::{App, Owner, Reason};
use crate::config::Config;
use crate::cookie::Cookies;
use crate::flow::{Dropped, Flow, FlowInfo, Outcome, Parameters, VERSIONS, emit_control};

/// Packets that one flow may send before the next one has its turn.
const BURST_PACKETS: u32 = 16;
/// Answers to strangers that may wait for a free descriptor.
const REPLIES_MAX: usize = 1024;
/// Pings of ours without an answer that are remembered.
const PINGS_MAX: usize = 64;

counters! {
    /// What an endpoint counts. Packets that were dropped are counted by reason.
    pub struct Counters {
        /// Data packets taken.
        data_packets_received,
        /// Packets sent, of all types.
        packets_sent,
        /// Flows that a peer opened.
        flows_accepted,
        /// Flows opened here.
        flows_connected,
        /// Flows ended by a reset from the peer.
        flows_reset_by_peer,
        /// Flows given up because the peer was silent.
        flows_timed_out,
        /// Packets that are no valid Clearway packet, but for their CRC.
        dropped_malformed,
        /// Packets whose CRC did not match.
        dropped_checksum,
        /// Packets of a version that we do not speak.
        dropped_version,
        /// Data packets to a flow that does not exist.
        dropped_unknown_flow,
        /// Packets to a flow from an address that is not its peer's.
        dropped_spoofed,
        /// Packets that had arrived before.
        dropped_duplicate,
        /// Data that came before the syn-ack.
        dropped_early,
        /// Data for an app whose receive pool was full; not acknowledged.
        dropped_no_buffer,
        /// Packets that broke the protocol; their flow was reset.
        dropped_violation,
        /// Syns with a cookie that is not ours or too old.
        dropped_cookie,
        /// Syns to a port that nobody listens on, or that the listener refused.
        dropped_refused,
        /// Handshake packets, resets and pongs that answer nothing of ours.
        dropped_unsolicited,
        /// Answers to strangers that were not sent, to keep within their rate.
        dropped_rate_limited,
    }
}

/// Names a flow: the flow id that packets to us carry. Its low half is the flow's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    /// The slot of the flow: small, dense, and reused after the flow has ended.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// Where the next packet is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The own address and port.
    pub from: SocketAddr,
    /// The peer's daemon.
    pub to: SocketAddr,
    /// The flow that sends; `None` for an answer to a stranger.
    pub flow: Option<FlowKey>,
}

/// A port is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInUse;

#[derive(Debug, Default)]
struct Slot {
    flow: Option<Box<Flow>>,
    /// The flow stands in `ready`.
    is_ready: bool,
    alarms: Alarms,
}

/// The timers of a slot that the wheel holds and that count: at most two. Without the second, each
/// return from a near deadline (an acknowledgement) to a far one (keep-alive) would leave a timer
/// behind in the wheel until the far one is due.
#[derive(Debug, Default)]
struct Alarms {
    near: Option<Time>,
    far: Option<Time>,
}

impl Alarms {
    /// Sees to it that the wheel fires by `deadline`.
    fn set(&mut self, wheel: &mut TimerWheel, slot: u32, deadline: Time) {
        let is_covered = |alarm: Option<Time>| alarm.is_some_and(|alarm| alarm <= deadline);
        if is_covered(self.near) || is_covered(self.far) {
            return;
        }
        self.far = self.far.or(self.near);
        self.near = Some(wheel.set(slot, deadline));
    }

    /// True if the timer that has fired is one that counts.
    fn take(&mut self, fired: Time) -> bool {
        let alarm = if self.near == Some(fired) { &mut self.near } else { &mut self.far };
        let counts = *alarm == Some(fired);
        if counts {
            *alarm = None;
        }
        counts
    }
}

#[derive(Debug)]
struct Reply {
    between: Addresses,
    bytes: Vec<u8>,
}

/// Where a datagram came from and to which of our addresses.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    local: SocketAddr,
    peer: SocketAddr,
}

#[derive(Debug)]
struct Ping {
    id: u64,
    token: u64,
    sent: Time,
}

/// All flows of one engine. See the module's documentation for the order of calls.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Flows by the peer's address and the flow id that it chose.
    by_peer: HashMap<(IpAddr, u64), u32, Keyed>,
    listeners: HashMap<u16, Owner, Keyed>,
    ready: VecDeque<u32>,
    /// Packets that the first of `ready` has sent in its turn.
    burst: u32,
    timers: TimerWheel,
    /// Slots whose timer has come due, and which timer; empty between calls.
    due: Vec<(u32, Time)>,
    replies: VecDeque<Reply>,
    /// Answers to strangers that may still be sent in this second.
    reply_budget: u32,
    reply_budget_until: Time,
    pings: VecDeque<Ping>,
    cookies: Cookies,
    random: Random,
    counters: Counters,
}

impl Endpoint {
    /// An endpoint without flows. `seed` drives flow ids and tokens, and is as secret as `secret`,
    /// the key of the cookies.
    #[must_use]
    pub fn new(config: Config, now: Time, seed: u64, secret: [u8; 16]) -> Self {
        let keyed = Keyed(u64::from_ne_bytes(secret[..8].try_into().expect("8 bytes")) ^ seed);
        Self {
            cookies: Cookies::new(secret, config.cookie_lifetime_ns),
            config,
            slots: Vec::new(),
            free: Vec::new(),
            by_peer: HashMap::with_hasher(keyed),
            listeners: HashMap::with_hasher(keyed),
            ready: VecDeque::new(),
            burst: 0,
            timers: TimerWheel::new(now),
            due: Vec::new(),
            replies: VecDeque::new(),
            reply_budget: 0,
            reply_budget_until: now,
            pings: VecDeque::new(),
            random: Random::new(seed),
            counters: Counters::default(),
        }
    }

    /// What has been counted so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Timers that the wheel holds.
    #[cfg(test)]
    pub(crate) const fn timers_len(&self) -> usize {
        self.timers.len()
    }

    /// The figures of every flow.
    pub fn flows(&self) -> impl Iterator<Item = FlowInfo> + '_ {
        self.slots.iter().filter_map(|slot| slot.flow.as_deref().map(Flow::info))
    }

    // ---- from apps ----

    /// Lets peers connect to `port`; [`App::accept`] will name `listener`.
    pub fn listen(&mut self, port: u16, listener: Owner) -> Result<(), PortInUse> {
        if self.listeners.contains_key(&port) {
            return Err(PortInUse);
        }
        self.listeners.insert(port, listener);
        Ok(())
    }

    /// Stops what [`Endpoint::listen`] began. Flows live on.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Who listens on `port`.
    #[must_use]
    pub fn listener(&self, port: u16) -> Option<Owner> {
        self.listeners.get(&port).copied()
    }

    /// Begins to open a flow from the own address `local` to `service_port` of the daemon at
    /// `remote`, which may use `window` positions. `None` if there are too many flows.
    pub fn connect(
        &mut self,
        now: Time,
        owner: Owner,
        local: SocketAddr,
        remote: SocketAddr,
        service_port: u16,
        window: u64,
    ) -> Option<FlowKey> {
        let local_id = self.reserve()?;
        let token = self.random.next_u64();
        let parameters = Parameters { owner, local_id, local, remote, window };
        let flow = Flow::connect(now, &self.config, parameters, service_port, token);
        Some(self.insert(now, flow))
    }

    /// Sends a message whose bytes stand at `offset` of the app's transmit pool, where they stay
    /// until [`App::sent`].
    pub fn send(&mut self, now: Time, key: FlowKey, offset: u32, length: u32) {
        let Some(flow) = self.flow(key) else { return };
        flow.send(offset, length);
        // In line already: sending more changes nothing until it has its turn.
        if !self.slots[key.slot()].is_ready {
            self.update(now, key.slot());
        }
    }

    /// Messages of the flow that have not arrived yet.
    pub fn messages_open(&mut self, key: FlowKey) -> usize {
        self.flow(key).map_or(0, |flow| flow.messages_open())
    }

    /// The app has released a message of `length` bytes that it got from this flow.
    pub fn release(&mut self, now: Time, key: FlowKey, length: u32) {
        if self.flow(key).is_some_and(|flow| flow.release(length)) {
            self.update(now, key.slot());
        }
    }

    /// Memory of the flow's app has become free: a peer that was turned away for want of it is told.
    pub fn memory_freed(&mut self, now: Time, key: FlowKey) {
        if let Some(flow) = self.flow(key) {
            flow.memory_freed();
            self.update(now, key.slot());
        }
    }

    /// When the flow's peer was last heard.
    pub fn last_heard(&mut self, key: FlowKey) -> Option<Time> {
        self.flow(key).map(|flow| flow.last_heard())
    }

    /// Ends a flow in order: what was sent arrives first.
    pub fn close(&mut self, now: Time, key: FlowKey, app: &mut impl App) {
        if let Some(flow) = self.flow(key) {
            let outcome = flow.close(app);
            self.conclude(now, key.slot(), outcome, app);
        }
    }

    /// Ends a flow at once. The app is told nothing, the peer the reason.
    pub fn abort(&mut self, key: FlowKey, reason: Reason, app: &mut impl App) {
        if self.flow(key).is_some() {
            self.tell_aborted(key.slot(), reason);
            self.remove(key.slot(), app);
        }
    }

    /// Sends a ping of `bytes` UDP payload; [`App::pong`] tells of the answer.
    pub fn ping(&mut self, now: Time, id: u64, local: SocketAddr, peer: SocketAddr, bytes: u16) {
        let token = self.random.next_u64();
        if self.pings.len() == PINGS_MAX {
            self.pings.pop_front();
        }
        self.pings.push_back(Ping { id, token, sent: now });
        let length = bytes.clamp(HEADER_LENGTH as u16, self.config.packet_bytes_max);
        let mut packet = vec![0; usize::from(length)];
        emit_control(&mut packet, PacketType::Ping, 0, token, |body| body.len());
        self.replies.push_back(Reply { between: Addresses { local, peer }, bytes: packet });
    }

    // ---- from the wire ----

    /// Takes the payload of a UDP datagram that came from `source` to the own address
    /// `destination`.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        source: SocketAddr,
        destination: SocketAddr,
        payload: &[u8],
        app: &mut impl App,
    ) {
        let between = Addresses { local: destination, peer: source };
        let packet = match Packet::new(payload) {
            Ok(packet) => packet,
            Err(_) => return self.counters.dropped_malformed += 1,
        };
        match Header::parse(&packet) {
            Ok(header) if header.packet_type == PacketType::Data => {
                self.handle_data(now, between, &header, &packet, app);
            }
            Ok(header) => {
                if self.handle_control(now, between, &header, &packet, app).is_err() {
                    self.counters.dropped_malformed += 1;
                }
            }
            Err(Malformed::Checksum) => self.counters.dropped_checksum += 1,
            Err(Malformed::Version) => self.handle_other_version(now, between, &packet),
            Err(_) => self.counters.dropped_malformed += 1,
        }
    }

    fn handle_data(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        packet: &Packet<'_>,
        app: &mut impl App,
    ) {
        let key = FlowKey(header.flow);
        let slot = key.slot();
        let Some(flow) = find(&mut self.slots, key) else {
            self.counters.dropped_unknown_flow += 1;
            return self.reply_reset(now, between, header.flow);
        };
        if flow.remote().ip() != between.peer.ip() {
            return self.counters.dropped_spoofed += 1;
        }
        match flow.handle_data(now, &self.config, header, packet, app) {
            Ok(outcome) => {
                self.counters.data_packets_received += 1;
                return self.conclude(now, slot, outcome, app);
            }
            Err(Dropped::Malformed(_)) => self.counters.dropped_malformed += 1,
            Err(Dropped::Duplicate) => self.counters.dropped_duplicate += 1,
            Err(Dropped::Early) => self.counters.dropped_early += 1,
            Err(Dropped::NoBuffer) => self.counters.dropped_no_buffer += 1,
            Err(Dropped::Violation) => {
                self.counters.dropped_violation += 1;
                return self.conclude(now, slot, Outcome::Ended(Reason::Protocol), app);
            }
        }
        self.update(now, slot);
    }

    fn handle_control(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        packet: &Packet<'_>,
        app: &mut impl App,
    ) -> Result<(), Malformed> {
        match header.packet_type {
            PacketType::Data => unreachable!("handled by the caller"),
            PacketType::Syn => self.handle_syn(now, between, header, &Syn::parse(packet)?, app),
            PacketType::Challenge => {
                let challenge = Challenge::parse(packet)?;
                if let Some(flow) = self.connecting(between, header) {
                    flow.handle_challenge(now, header.number, challenge.cookie);
                    self.update(now, FlowKey(header.flow).slot());
                }
            }
            PacketType::SynAck => {
                let syn_ack = SynAck::parse(packet)?;
                self.handle_syn_ack(now, between, header, &syn_ack, app);
            }
            PacketType::Reset => {
                self.handle_reset(now, between, header, &Reset::parse(packet)?, app)
            }
            PacketType::Version => {
                let versions = Versions::parse(packet)?;
                let is_hopeless =
                    !versions.versions.iter().any(|version| VERSIONS.contains(version));
                if self.connecting(between, header).is_some() && is_hopeless {
                    let slot = FlowKey(header.flow).slot();
                    self.conclude(now, slot, Outcome::Ended(Reason::Version), app);
                }
            }
            PacketType::Ping => {
                let mut bytes = vec![0; packet.length()];
                emit_control(&mut bytes, PacketType::Pong, 0, header.number, |body| {
                    body.copy_from_slice(packet.body());
                    body.len()
                });
                self.reply(now, between, bytes);
            }
            PacketType::Pong => self.handle_pong(now, header, app),
        }
        Ok(())
    }

    /// The flow that waits for the answer to its syn, if this is one from its peer.
    fn connecting(&mut self, between: Addresses, header: &Header) -> Option<&mut Flow> {
        let flow = find(&mut self.slots, FlowKey(header.flow)).filter(|flow| {
            flow.is_connecting_with(header.number) && flow.remote().ip() == between.peer.ip()
        });
        if flow.is_none() {
            self.counters.dropped_unsolicited += 1;
        }
        flow
    }

    /// Nothing is allocated, and nothing said that is longer than the syn, until the peer has shown
    /// that it receives at its address.
    fn handle_syn(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        syn: &Syn<'_>,
        app: &mut impl App,
    ) {
        if !syn.versions.iter().any(|version| VERSIONS.contains(version)) {
            return self.reply_versions(now, between, syn.source_flow, header.number);
        }
        if syn.cookie.is_empty() {
            let cookie = self.cookies.issue(now, between.peer.ip(), syn.source_flow, syn.port);
            let challenge = Challenge { cookie: &cookie };
            return self.reply_control(
                now,
                between,
                PacketType::Challenge,
                syn.source_flow,
                header.number,
                |body| challenge.emit(body),
            );
        }
        if !self.cookies.is_valid(now, syn.cookie, between.peer.ip(), syn.source_flow, syn.port) {
            return self.counters.dropped_cookie += 1;
        }
        if let Some(&slot) = self.by_peer.get(&(between.peer.ip(), syn.source_flow)) {
            if let Some(flow) = &mut self.slots[slot as usize].flow {
                flow.repeat_syn_ack(header.number);
            }
            return self.update(now, slot as usize);
        }
        self.open(now, between, header.number, syn, app);
    }

    fn open(
        &mut self,
        now: Time,
        between: Addresses,
        token: u64,
        syn: &Syn<'_>,
        app: &mut impl App,
    ) {
        let accepted = self.listener(syn.port).and_then(|listener| {
            let local_id = self.reserve()?;
            let accepted = app.accept(listener, FlowKey(local_id), between.peer);
            if accepted.is_none() {
                self.free.push(FlowKey(local_id).slot() as u32);
            }
            accepted.map(|(owner, window)| (local_id, owner, window))
        });
        let Some((local_id, owner, window)) = accepted else {
            self.counters.dropped_refused += 1;
            let reset = Reset { reason: Reason::Refused.code(), quoted_flow: 0 };
            return self.reply_control(
                now,
                between,
                PacketType::Reset,
                syn.source_flow,
                token,
                |body| reset.emit(body),
            );
        };
        self.counters.flows_accepted += 1;
        let parameters =
            Parameters { owner, local_id, local: between.local, remote: between.peer, window };
        let flow = Flow::accept(now, &self.config, parameters, syn, token);
        let key = self.insert(now, flow);
        self.by_peer.insert((between.peer.ip(), syn.source_flow), key.slot() as u32);
    }

    fn handle_syn_ack(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        syn_ack: &SynAck,
        app: &mut impl App,
    ) {
        let slot = FlowKey(header.flow).slot();
        if let Some(flow) = find(&mut self.slots, FlowKey(header.flow))
            && flow.remote().ip() == between.peer.ip()
            && flow.handle_syn_ack(now, &self.config, header.number, syn_ack)
        {
            self.counters.flows_connected += 1;
            app.connected(flow.owner());
            self.by_peer.insert((between.peer.ip(), syn_ack.source_flow), slot as u32);
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

    /// A reset is believed if it proves that its sender saw a packet of ours: it quotes the flow id
    /// that we send to, or answers our syn with its token.
    fn handle_reset(
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
        self.counters.flows_reset_by_peer += 1;
        self.conclude(now, slot as usize, Outcome::Ended(Reason::from_code(reset.reason)), app);
    }

    fn handle_pong(&mut self, now: Time, header: &Header, app: &mut impl App) {
        match self.pings.iter().position(|ping| ping.token == header.number) {
            Some(index) => {
                let ping = self.pings.remove(index).expect("just found");
                app.pong(ping.id, now.since(ping.sent));
            }
            None => self.counters.dropped_unsolicited += 1,
        }
    }

    /// Takes an ICMP error that quotes a UDP payload of ours to `peer`. It is believed if it proves
    /// that a syn was seen on its way, by the flow id and token inside; open flows have timers.
    pub fn handle_network_error(
        &mut self,
        now: Time,
        peer: SocketAddr,
        quote: &[u8],
        app: &mut impl App,
    ) {
        let quoted =
            Packet::new(quote).ok().and_then(|syn| Some((syn, syn.body().first_chunk::<8>()?)));
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

    /// RFC 9000, 6.1, does the same: answer what may be the begin of a flow, drop the rest.
    fn handle_other_version(&mut self, now: Time, between: Addresses, packet: &Packet<'_>) {
        self.counters.dropped_version += 1;
        if packet.type_octet() == PacketType::Syn as u8
            && let Some(source_flow) = packet.body().first_chunk::<8>()
        {
            let source_flow = u64::from_be_bytes(*source_flow);
            self.reply_versions(now, between, source_flow, packet.number());
        }
    }

    // ---- answers to strangers ----

    fn reply_versions(&mut self, now: Time, between: Addresses, flow: u64, token: u64) {
        self.reply_control(now, between, PacketType::Version, flow, token, |body| {
            Versions { versions: VERSIONS }.emit(body)
        });
    }

    fn reply_reset(&mut self, now: Time, between: Addresses, quoted_flow: u64) {
        let reset = Reset { reason: Reason::Reset.code(), quoted_flow };
        self.reply_control(now, between, PacketType::Reset, 0, 0, |body| reset.emit(body));
    }

    fn reply_control(
        &mut self,
        now: Time,
        between: Addresses,
        packet_type: PacketType,
        flow: u64,
        token: u64,
        body: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let mut bytes = vec![0; 64];
        let length = emit_control(&mut bytes, packet_type, flow, token, body);
        bytes.truncate(length);
        self.reply(now, between, bytes);
    }

    fn reply(&mut self, now: Time, between: Addresses, bytes: Vec<u8>) {
        if now >= self.reply_budget_until {
            self.reply_budget_until = now + SECOND / 100;
            self.reply_budget = (self.config.stateless_per_second / 100).max(1);
        }
        if self.reply_budget == 0 || self.replies.len() >= REPLIES_MAX {
            return self.counters.dropped_rate_limited += 1;
        }
        self.reply_budget -= 1;
        self.replies.push_back(Reply { between, bytes });
    }

    // ---- time ----

    /// When [`Endpoint::handle_timeouts`] is to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Does everything that is due at `now`.
    pub fn handle_timeouts(&mut self, now: Time, app: &mut impl App) {
        let mut due = core::mem::take(&mut self.due);
        self.timers.advance(now, |slot, fired| due.push((slot, fired)));
        for (slot, fired) in due.drain(..) {
            if self.slots[slot as usize].alarms.take(fired) {
                self.handle_timer(now, slot as usize, app);
            }
        }
        self.due = due;
    }

    fn handle_timer(&mut self, now: Time, slot: usize, app: &mut impl App) {
        let Some(flow) = &mut self.slots[slot].flow else { return };
        let outcome = if flow.next_timeout(&self.config) <= now {
            flow.handle_timeout(now, &self.config)
        } else {
            Outcome::Continue
        };
        self.conclude(now, slot, outcome, app);
    }

    // ---- to the wire ----

    /// True if an answer to a stranger waits to be sent.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Where the next packet goes; `None` if there is nothing to send.
    pub fn next_transmit(&mut self, now: Time) -> Option<Destination> {
        if let Some(reply) = self.replies.front() {
            let Addresses { local, peer } = reply.between;
            return Some(Destination { from: local, to: peer, flow: None });
        }
        if self.burst >= BURST_PACKETS {
            self.burst = 0;
            self.ready.rotate_left(1);
        }
        while let Some(&slot) = self.ready.front() {
            if let Some(flow) = &mut self.slots[slot as usize].flow
                && flow.wants_transmit(now)
            {
                return Some(Destination {
                    from: flow.local(),
                    to: flow.remote(),
                    flow: Some(FlowKey(flow.local_id())),
                });
            }
            self.ready.pop_front();
            self.burst = 0;
            self.slots[slot as usize].is_ready = false;
            self.update(now, slot as usize);
        }
        None
    }

    /// Writes the packet that [`Endpoint::next_transmit`] has just announced into `bytes`, which
    /// has room for the configured packet size, and returns its length.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        destination: Destination,
        bytes: &mut [u8],
        app: &impl App,
    ) -> usize {
        self.counters.packets_sent += 1;
        let Some(key) = destination.flow else {
            let Some(reply) = self.replies.pop_front() else { return 0 };
            bytes[..reply.bytes.len()].copy_from_slice(&reply.bytes);
            return reply.bytes.len();
        };
        self.burst += 1;
        let Some(flow) = find(&mut self.slots, key) else { return 0 };
        flow.poll_transmit(now, &self.config, bytes, app)
    }

    /// Drops the packet that [`Endpoint::next_transmit`] has announced, because its destination
    /// cannot be reached now. A flow will try again when its timers say so.
    pub fn skip_transmit(
        &mut self,
        now: Time,
        destination: Destination,
        bytes: &mut [u8],
        app: &impl App,
    ) {
        // Written and not sent is the same as lost on the wire, and recovered in the same way.
        self.poll_transmit(now, destination, bytes, app);
    }

    // ---- the table ----

    fn flow(&mut self, key: FlowKey) -> Option<&mut Flow> {
        find(&mut self.slots, key)
    }

    /// A free slot and a fresh id for it: the slot below, 32 random bits above, which a stranger
    /// cannot guess.
    fn reserve(&mut self) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.config.flows_max as usize => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        // Never 0, which on the wire means "none yet".
        let secret = self.random.next_u32().max(1);
        Some(u64::from(secret) << 32 | u64::from(slot))
    }

    fn insert(&mut self, now: Time, flow: Flow) -> FlowKey {
        let key = FlowKey(flow.local_id());
        self.slots[key.slot()].flow = Some(Box::new(flow));
        self.update(now, key.slot());
        key
    }

    /// After every change of a flow: puts it in line if it has something to send, and sees to it
    /// that the wheel wakes it in time.
    fn update(&mut self, now: Time, index: usize) {
        let slot = &mut self.slots[index];
        let Some(flow) = &mut slot.flow else { return };
        if !slot.is_ready && flow.wants_transmit(now) {
            slot.is_ready = true;
            self.ready.push_back(index as u32);
        }
        let deadline = flow.next_timeout(&self.config);
        if deadline <= now && slot.is_ready {
            return; // it comes here again when it has had its turn
        }
        if deadline < Time::MAX {
            slot.alarms.set(&mut self.timers, index as u32, deadline);
        }
    }

    fn conclude(&mut self, now: Time, slot: usize, outcome: Outcome, app: &mut impl App) {
        match outcome {
            Outcome::Continue => self.update(now, slot),
            Outcome::Gone => self.remove(slot, app),
            Outcome::Ended(reason) => {
                if matches!(reason, Reason::TimedOut | Reason::Protocol) {
                    self.tell_aborted(slot, reason);
                }
                if reason == Reason::TimedOut {
                    self.counters.flows_timed_out += 1;
                }
                self.end(slot, reason, app);
            }
        }
    }

    /// Removes a flow and tells its app.
    fn end(&mut self, slot: usize, reason: Reason, app: &mut impl App) {
        let owner =
            self.slots[slot].flow.as_ref().filter(|flow| flow.has_app()).map(|flow| flow.owner());
        self.remove(slot, app);
        if let Some(owner) = owner {
            app.closed(owner, reason);
        }
    }

    fn tell_aborted(&mut self, slot: usize, reason: Reason) {
        let Some(flow) = &mut self.slots[slot].flow else { return };
        let mut bytes = vec![0; 64];
        let length = flow.emit_abort(reason, &mut bytes);
        let between = Addresses { local: flow.local(), peer: flow.remote() };
        if length > 0 && self.replies.len() < REPLIES_MAX {
            bytes.truncate(length);
            self.replies.push_back(Reply { between, bytes });
        }
    }

    fn remove(&mut self, slot: usize, app: &mut impl App) {
        if let Some(mut flow) = self.slots[slot].flow.take() {
            flow.discard(app);
            self.by_peer.remove(&(flow.remote().ip(), flow.peer_id()));
            self.free.push(slot as u32);
        }
    }
}

/// The flow with this id, if there still is one.
fn find(slots: &mut [Slot], key: FlowKey) -> Option<&mut Flow> {
    let flow = slots.get_mut(key.slot())?.flow.as_deref_mut()?;
    (flow.local_id() == key.0).then_some(flow)
}

/// A hash that strangers, who choose flow ids, cannot steer.
#[derive(Clone, Copy, Debug)]
struct Keyed(u64);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(self.0, !self.0);
        hasher.write_u64(0);
        hasher
    }
}
