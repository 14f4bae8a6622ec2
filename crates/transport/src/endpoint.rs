//! All flows of one engine: finds the flow of a packet, opens and ends flows, answers strangers
//! without remembering them.
//!
//! Call order, as for a flow: `handle_*` and the app's calls change the state; then
//! [`Endpoint::next_transmit`] and [`Endpoint::poll_transmit`] until there is nothing; then sleep
//! until [`Endpoint::next_timeout`] at the latest.
//!
//! Here are the endpoint itself and what apps ask of it. Datagrams come in by `receive`, and
//! `handshake` if they open a flow; `table` keeps the flows and their timers, `transmit` says who
//! sends next, and `strangers` answers those who have no flow.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use clearway_base::{MILLISECOND, Time, TimerWheel};
use clearway_wire::clearway::{ENGINES_MAX, Packet, PacketType, Syn};

use crate::app::{App, Deadline, Owner, Reason};
use crate::company::Company;
use crate::config::Config;
use crate::cookie::{Cookies, Secrets};
use crate::flow::{
    Flow, FlowBooks, FlowInfo, Listeners, NoStream, Parameters, Priority, StreamInfo, Wants,
};
use crate::shares::Shares;

mod audit;
mod closed;
mod counters;
mod handshake;
mod path;
mod peers;
mod receive;
#[cfg(test)]
mod recount;
mod state;
mod strangers;
mod table;
mod transmit;
mod unused;

use closed::Closed;
pub use counters::Counters;
use peers::Peers;
pub use receive::Arrival;
pub use state::FlowMemory;
use strangers::{Ping, Reply};
pub(crate) use table::Keyed;
use table::{Slot, find};
use unused::Unused;

/// Bits of a flow id that are its slot; the others are a secret that a stranger has to guess.
const SLOT_BITS: u32 = 18;
/// Bits above them that name the engine, so that any engine of the host knows whose a packet is.
const ENGINE_BITS: u32 = ENGINES_MAX.ilog2();
/// Resets of aborted flows that are sent before the packets of others, per turn: an app that ends
/// with thousands of connections is not to hold up those that stay.
const FAREWELLS_FIRST: u32 = 8;
/// Flows of one endpoint, whatever the configuration says.
const FLOWS_MAX: usize = 1 << SLOT_BITS;

/// A host that has not looked at its packets for so long was away: stopped, suspended, or its core
/// was another's. What it measures then says nothing about the network. Timers wait no longer
/// before they ask again.
const AWAY_NS: u64 = 100 * MILLISECOND;

/// The state of so many flows, 2 KB each, stays in a cache of the second level beside all else.
const FLOWS_AT_HAND: usize = 128;

/// Names a flow: the flow id that packets to us carry. Its lowest bits are the flow's slot,
/// those above them its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    /// What a datagram of a peer names. Nothing is checked.
    #[inline]
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        Some(Self(Packet::new(datagram).ok()?.flow()))
    }

    /// What a data packet of a peer names; `None` if a datagram is anything else. Nothing is
    /// checked.
    #[inline]
    #[must_use]
    pub fn of_data(datagram: &[u8]) -> Option<Self> {
        let packet = Packet::new(datagram).ok()?;
        (packet.type_octet() == PacketType::Data as u8).then(|| Self(packet.flow()))
    }

    /// One that has been saved.
    #[must_use]
    pub const fn of_id(id: u64) -> Self {
        Self(id)
    }

    /// The flow id.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.0
    }

    /// The slot of the flow: small, dense, and reused after the flow has ended.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & (FLOWS_MAX as u64 - 1)) as usize
    }

    /// The engine that has the flow.
    #[must_use]
    pub const fn engine(self) -> u8 {
        (self.0 >> SLOT_BITS) as u8 & (ENGINES_MAX - 1)
    }
}

/// Names a connection: its flow, and which of the flow's streams it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The flow.
    pub flow: FlowKey,
    /// The stream's number; 0 for the connection that has opened the flow.
    pub stream: u32,
}

impl From<FlowKey> for StreamKey {
    #[inline]
    fn from(flow: FlowKey) -> Self {
        Self { flow, stream: 0 }
    }
}

/// Where the next packet is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The own address, and the UDP port to send from: it differs by flow, and may differ from one
    /// packet of a flow to the next.
    pub from: SocketAddr,
    /// The peer's daemon.
    pub to: SocketAddr,
    /// The flow that sends; `None` for an answer to a stranger.
    pub flow: Option<FlowKey>,
    /// What the flow wants to send: that it may has been found out already.
    pub(crate) wants: Wants,
    /// The packet is to be sent as capable of being marked: ECT(0) in its IP header.
    pub is_ecn_capable: bool,
}

/// A port is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInUse;

/// All flows of one engine. See the module's documentation for the order of calls.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Flows by the peer's address and the flow id that it chose.
    by_peer: HashMap<(IpAddr, u64), u32, Keyed>,
    /// Which hosts have opened the flows that were not begun here.
    shares: Shares,
    /// Those of them that are shared, and have no connections.
    unused: Unused,
    closed: Closed,
    listeners: Listeners,
    /// Service ports that another engine of this host listens on.
    elsewhere: HashSet<u16, Keyed>,
    ready: VecDeque<u32>,
    /// Flows that have more to send, and leave time to those who wait for answers.
    resting: VecDeque<u32>,
    /// Packets that the first of `ready` has sent in its turn.
    burst: u32,
    timers: TimerWheel,
    /// Slots whose timer has come due, and which timer.
    due: VecDeque<(u32, Time)>,
    replies: VecDeque<Reply>,
    /// The last packets of flows that were aborted.
    farewells: VecDeque<Reply>,
    /// How many of those are still sent before flows that go on, in this turn.
    farewells_first: u32,
    /// Answers to strangers that may still be sent in this second.
    reply_budget: u32,
    reply_budget_until: Time,
    pings: VecDeque<Ping>,
    peers: Peers,
    cookies: Cookies,
    secrets: Secrets,
    counters: Counters,
    turn: Turn,
    company: Company,
}

/// When the engine last looked at its packets.
#[derive(Clone, Copy, Debug)]
struct Turn {
    began: Time,
    /// How long before that it had not: what is received in this turn may have waited so long.
    gap_ns: u64,
    /// When it came back from being away.
    returned: Time,
}

impl Endpoint {
    /// An endpoint without flows. Flow ids, tokens and cookies come from `secret`, which must be
    /// random, and from `seed`, which tells endpoints with the same secret apart.
    ///
    /// # Panics
    /// If `config` names an engine that the host does not have, or too many engines.
    #[must_use]
    pub fn new(config: Config, now: Time, seed: u64, secret: [u8; 16]) -> Self {
        assert!(
            config.engine_index < ENGINES_MAX && (1..=ENGINES_MAX).contains(&config.engine_count),
            "engine {} of {}",
            config.engine_index,
            config.engine_count
        );
        let keyed = Keyed(u64::from_ne_bytes(secret[..8].try_into().expect("8 bytes")) ^ seed);
        Self {
            cookies: Cookies::new(secret, config.cookie_lifetime_ns),
            unused: Unused::new(config.flows_max),
            config,
            slots: Vec::new(),
            free: Vec::new(),
            by_peer: HashMap::with_hasher(keyed),
            shares: Shares::default(),
            closed: Closed::new(keyed),
            listeners: HashMap::with_hasher(keyed),
            elsewhere: HashSet::with_hasher(keyed),
            ready: VecDeque::new(),
            resting: VecDeque::new(),
            burst: 0,
            timers: TimerWheel::new(now),
            due: VecDeque::new(),
            replies: VecDeque::new(),
            farewells: VecDeque::new(),
            farewells_first: 0,
            reply_budget: 0,
            reply_budget_until: now,
            pings: VecDeque::new(),
            peers: Peers::new(keyed),
            secrets: Secrets::new(secret, seed),
            counters: Counters::default(),
            turn: Turn { began: now, gap_ns: 0, returned: Time::ZERO },
            company: Company::default(),
        }
    }

    /// The engine begins to look at what has come since it last called this. Packets may have
    /// waited for that long, which is no delay of the network; unless it `has_rested` until
    /// something came. One who does not call this is taken to have been there all the time.
    pub fn begin_turn(&mut self, now: Time, has_rested: bool) {
        let gap_ns = if has_rested { 0 } else { now.since(self.turn.began) };
        let overslept = || self.next_timeout().is_some_and(|due| now.since(due) >= AWAY_NS);
        if gap_ns >= AWAY_NS || (has_rested && overslept()) {
            self.turn.returned = now;
        }
        (self.turn.began, self.turn.gap_ns) = (now, gap_ns);
        self.farewells_first = FAREWELLS_FIRST;
        self.company.begin_turn(now, gap_ns);
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
        (0..self.places()).filter_map(|place| self.flow_at(place))
    }

    /// How many places there are for flows, free ones included.
    #[must_use]
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// The figures of the flow in a place below [`Endpoint::places`], if there is one.
    #[must_use]
    pub fn flow_at(&self, place: usize) -> Option<FlowInfo> {
        self.slots.get(place)?.flow.as_deref().map(Flow::info)
    }

    /// The figures of the streams of this flow, as far as an app has them.
    pub fn streams_at(&self, place: usize) -> impl Iterator<Item = StreamInfo> + '_ {
        let flow = self.slots.get(place).and_then(|slot| slot.flow.as_deref());
        flow.into_iter().flat_map(Flow::streams_info)
    }

    /// What every connection says of its positions and credit.
    pub fn books(&self) -> impl Iterator<Item = FlowBooks> + '_ {
        self.slots.iter().filter_map(|slot| slot.flow.as_deref()).flat_map(Flow::books)
    }

    /// Whose flow this is, if there still is one that an app has.
    #[must_use]
    pub fn owner(&self, key: FlowKey) -> Option<Owner> {
        let flow = self.slots.get(key.slot())?.flow.as_deref()?;
        (flow.local_id() == key.0 && flow.has_app()).then(|| flow.owner())
    }

    /// The memory that a packet or message of this flow needs, for fetching it from memory ahead.
    /// `None` if there is no such flow, or so few flows that they are at hand.
    #[inline]
    #[must_use]
    pub fn state(&self, key: FlowKey) -> Option<&(impl Sized + use<>)> {
        if !self.has_many_flows() {
            return None;
        }
        self.slots.get(key.slot())?.flow.as_deref()
    }

    /// How many flows there are, in whatever state.
    #[must_use]
    pub fn flows_open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// False if all flows are at hand: [`Endpoint::state`] has none.
    #[inline]
    #[must_use]
    pub fn has_many_flows(&self) -> bool {
        self.slots.len() > FLOWS_AT_HAND
    }

    /// Whose flow a datagram of a peer is for, if what it says is true.
    #[must_use]
    pub fn owner_of(&self, datagram: &[u8]) -> Option<Owner> {
        self.owner(FlowKey::of(datagram)?)
    }

    /// Which engine of the host that has received `datagram` is to have it: the one whose flow, or
    /// whose ping, it names. `None` if it is for the engine that it came to: syns, pings, and what
    /// is no Clearway packet. Nothing is checked; that is the other engine's business.
    #[must_use]
    pub fn engine_of(datagram: &[u8]) -> Option<u8> {
        let packet = Packet::new(datagram).ok()?;
        let is_pong = packet.type_octet() == PacketType::Pong as u8;
        let id = if is_pong { packet.number() } else { packet.flow() };
        (id != 0).then(|| FlowKey(id).engine())
    }

    /// The service port of a syn, and whether any engine is to pass it on to the one that listens
    /// there. Nothing is checked, as above.
    #[must_use]
    pub fn port_of_syn(datagram: &[u8]) -> Option<(u16, bool)> {
        let packet = Packet::new(datagram).ok()?;
        let is_syn = packet.type_octet() == PacketType::Syn as u8;
        let syn = Syn::parse(&packet).ok().filter(|_| is_syn)?;
        Some((syn.port, syn.pass_on))
    }

    // ---- from the control plane ----

    /// Another engine of this host listens on `port`, or no longer does. Peers who look for that
    /// engine send syns to all of them: those that come here are dropped without a word.
    pub fn set_elsewhere(&mut self, port: u16, is_elsewhere: bool) {
        if is_elsewhere {
            self.elsewhere.insert(port);
        } else {
            self.elsewhere.remove(&port);
        }
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
        let flow = self.begin(now, owner, (local, remote), service_port, window)?;
        Some(self.insert(now, flow))
    }

    /// The same for connections that share the flow, if the peer's daemon knows how to: each is
    /// opened by [`Endpoint::open_stream`], which needs not wait, and is told that it is connected
    /// when the listener has accepted it. The flow ends with the last of them. If the peer's daemon
    /// does not know how: see [`App::unshared`].
    pub fn connect_shared(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
        service_port: u16,
        window: u64,
    ) -> Option<FlowKey> {
        let flow = self.begin(now, Owner::NOBODY, (local, remote), service_port, window)?;
        Some(self.insert(now, flow.share()))
    }

    fn begin(
        &mut self,
        now: Time,
        owner: Owner,
        (local, remote): (SocketAddr, SocketAddr),
        service_port: u16,
        window: u64,
    ) -> Option<Flow> {
        let local_id = self.reserve()?;
        let (token, seed) = (self.secrets.next(), self.secrets.next());
        let parameters = Parameters { owner, local_id, local, remote, window, seed };
        let known = self.peers.find(remote.ip());
        Some(Flow::connect(now, &self.config, parameters, service_port, token, known))
    }

    /// True if a flow is shared, and its connections can be opened.
    #[must_use]
    pub fn is_shared(&self, key: FlowKey) -> bool {
        let flow = self.slots.get(key.slot()).and_then(|slot| slot.flow.as_deref());
        flow.is_some_and(|flow| flow.local_id() == key.0 && flow.is_shared())
    }

    /// Sends a message whose bytes stand at `offset` of the app's transmit pool, where they stay
    /// until [`App::sent`].
    #[inline]
    pub fn send(&mut self, now: Time, to: impl Into<StreamKey>, offset: u32, length: u32) {
        self.send_all(now, to, (offset, length), core::iter::empty());
    }

    /// Sends the messages of a connection that its app has submitted one after the other: offset
    /// and length of each. Takes those behind the first only if the connection is there.
    #[inline]
    pub fn send_all(
        &mut self,
        now: Time,
        to: impl Into<StreamKey>,
        first: (u32, u32),
        behind: impl Iterator<Item = (u32, u32)>,
    ) {
        let StreamKey { flow: key, stream } = to.into();
        let Some(flow) = find(&mut self.slots, key) else { return };
        flow.send(stream, first.0, first.1);
        let is_called_back =
            !self.resting.is_empty() && Company::is_lone(first.1) && flow.is_alone(stream);
        for (offset, length) in behind {
            flow.send(stream, offset, length);
        }
        if is_called_back {
            self.call_back(key);
        }
        self.queue(now, key.slot());
    }

    /// The same for a message that is dropped if nothing of it has left in time: both apps are
    /// told, by [`App::dropped`] and [`App::skipped`]. A peer of before version 3 gets it, however
    /// late.
    pub fn send_until(
        &mut self,
        now: Time,
        to: impl Into<StreamKey>,
        offset: u32,
        length: u32,
        deadline: Deadline,
    ) {
        let StreamKey { flow: key, stream } = to.into();
        let Some(flow) = self.flow(key) else { return };
        flow.send_until(stream, offset, length, deadline);
        self.queue(now, key.slot());
    }

    /// Opens a stream of an open flow, for another connection of the same app; its peer may use
    /// `window` positions. Messages can be sent at once.
    pub fn open_stream(
        &mut self,
        now: Time,
        key: FlowKey,
        owner: Owner,
        window: u64,
    ) -> Result<StreamKey, NoStream> {
        let flow = self.flow(key).ok_or(NoStream::NotOpen)?;
        let stream = flow.open_stream(owner, window)?;
        self.queue(now, key.slot());
        Ok(StreamKey { flow: key, stream })
    }

    /// What a connection may send beside others of its flow. Ignored if it is out of its ranges:
    /// see [`Priority::is_valid`].
    pub fn set_priority(&mut self, of: impl Into<StreamKey>, priority: Priority) {
        let StreamKey { flow: key, stream } = of.into();
        if let Some(flow) = self.flow(key).filter(|_| priority.is_valid()) {
            flow.set_priority(stream, priority);
        }
    }

    /// From now on messages of a connection are delivered as they become whole, in whatever order.
    pub fn set_unordered(&mut self, of: impl Into<StreamKey>, app: &mut impl App) {
        let StreamKey { flow: key, stream } = of.into();
        if let Some(flow) = self.flow(key) {
            flow.set_unordered(stream, app);
        }
    }

    /// True if the other end of an open flow knows one-sided operations.
    pub fn takes_operations(&mut self, key: FlowKey) -> bool {
        self.flow(key).is_some_and(|flow| flow.takes_operations())
    }

    /// The app has operations to send: [`App::take_outbound`].
    pub fn push_operations(&mut self, now: Time, key: FlowKey, app: &mut impl App) {
        let Some(flow) = self.flow(key) else { return };
        flow.push_operations(app);
        self.queue(now, key.slot());
    }

    /// The app has released so many messages of this connection, of so many bytes in all.
    pub fn release(&mut self, now: Time, of: impl Into<StreamKey>, messages: u32, bytes: u64) {
        let StreamKey { flow: key, stream } = of.into();
        if self.flow(key).is_some_and(|flow| flow.release(stream, messages, bytes)) {
            self.update(now, key.slot());
        }
    }

    /// Memory of the connection's app has become free: a peer that was turned away for want of it
    /// is told.
    pub fn memory_freed(&mut self, now: Time, of: impl Into<StreamKey>) {
        let StreamKey { flow: key, stream } = of.into();
        if let Some(flow) = self.flow(key) {
            flow.memory_freed(stream);
            self.update(now, key.slot());
        }
    }

    /// When the flow's peer was last heard.
    #[cfg(test)]
    pub(crate) fn last_heard(&mut self, key: FlowKey) -> Option<Time> {
        self.flow(key).map(|flow| flow.last_heard())
    }

    /// When the flow's peer last acknowledged something new: then what is sent to it arrives. That
    /// it is heard does not say so: who gets no answers repeats itself. `Time::ZERO` if it has
    /// not yet.
    pub fn last_acknowledged(&mut self, key: FlowKey) -> Option<Time> {
        self.flow(key).map(|flow| flow.last_acknowledged())
    }

    /// How many probe timeouts in a row the flow has seen since its peer was last heard.
    pub fn probe_timeouts(&mut self, key: FlowKey) -> u32 {
        self.flow(key).map_or(0, |flow| flow.probe_timeouts())
    }

    /// Gives this flow up after another silence than [`Config::idle_timeout_ns`]; what lies outside
    /// of [`SILENCE_MS`](crate::SILENCE_MS) is taken for its nearest end.
    pub fn set_silence(&mut self, now: Time, key: FlowKey, silence_ms: u32) {
        let Some(Slot { flow: Some(flow), .. }) = self.slots.get_mut(key.slot()) else { return };
        if flow.local_id() == key.0 {
            flow.set_silence(now, &self.config, silence_ms);
            self.update(now, key.slot());
        }
    }

    /// Ends a connection in order: what was sent arrives first. That which has opened the flow
    /// takes all others along.
    pub fn close(&mut self, now: Time, of: impl Into<StreamKey>, app: &mut impl App) {
        let StreamKey { flow: key, stream } = of.into();
        if let Some(flow) = self.flow(key) {
            let outcome = flow.close(stream, app);
            self.conclude(now, key.slot(), outcome, app);
        }
    }

    /// Ends a connection at once. Its app is told nothing, the peer the reason. That which has
    /// opened the flow takes all others along, whose app is told.
    pub fn abort(&mut self, of: impl Into<StreamKey>, reason: Reason, app: &mut impl App) {
        let StreamKey { flow: key, stream } = of.into();
        let Some(flow) = self.flow(key) else { return };
        if stream != 0 {
            if flow.abort_stream(stream, reason, app) {
                // No time is told here: an alarm counts from this turn's.
                return self.queue(self.turn.began, key.slot());
            }
            return self.remove(key.slot(), app);
        }
        flow.end_streams(app);
        self.tell_aborted(key.slot(), reason);
        self.remove(key.slot(), app);
    }
}

#[cfg(test)]
mod tests;
