//! All of TCP on one engine: whose a segment is, and what leaves next.
//!
//! Call order: [`Stack::handle_segment`], [`Stack::handle_icmp`], [`Stack::handle_timeouts`] and
//! what apps ask change the state; then [`Stack::poll_transmit`] until it gives nothing, and
//! [`Stack::poll_event`] until it gives nothing; then [`Stack::next_timeout`].
//!
//! A connection's [`Key`] is its owner's until [`Stack::forget`]: nothing goes away behind its
//! back.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use clearway_base::{Random, SECOND, Time, counters};
use clearway_wire::tcp::{Flags, Options, Repr};

use crate::config::{Config, IpFields, Settings};
use crate::connection::{
    Arrival, Connecting, Connection, IcmpError, Info, Refused, Reply, Status, Transmit,
};
use crate::deadlines::Deadlines;
use crate::event::Readiness;
use crate::extent::{Extent, Memory};
use crate::isn::Secret;
use crate::listen::{HalfOpen, ListenSocket};
use crate::ports::Ports;
use crate::shares::Shares;
use crate::state::State;
use crate::table::{Hashing, Key, Slab, Tuple, bits, is_of_one_host};
use crate::time_wait::TimeWaits;

mod saved;
mod strangers;

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener(pub(crate) Key);

impl Listener {
    /// It as one number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.bits()
    }
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// To a connection.
    Connection(Key, Readiness),
    /// A listener has connections to be accepted.
    Acceptable(Listener),
}

/// Why something that is asked cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such connection or listener, or not any more.
    Unknown,
    /// The connection takes no more data: its half is closed, or it is over.
    Closed,
    /// So much waits already: wait for [`Readiness::WRITABLE`].
    Full,
    /// The port, or every port, is in use; or the table is full.
    InUse,
    /// The two addresses are not of the same family.
    Family,
    /// A connection is to one host, and this is the address of many, or of none.
    NoHost,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "There is no such connection.",
            Self::Closed => "The connection takes no more data.",
            Self::Full => {
                "Too much waits to be acknowledged: wait until the connection is writable."
            }
            Self::InUse => "The port is in use, or no more connections are allowed.",
            Self::Family => "IPv4 and IPv6 addresses cannot be connected.",
            Self::NoHost => {
                "A connection needs the address of one host: not 0.0.0.0, ::, broadcast or multicast."
            }
        })
    }
}

impl core::error::Error for Error {}

counters! {
    /// What a stack counts.
    pub struct Counters {
        /// Segments that came.
        segments_received: Segments, "with each segment", "nothing: this is traffic";
        /// Segments that left.
        segments_sent: Segments, "with each segment", "nothing: this is traffic";
        /// Segments for which there was no connection.
        segments_unknown: Segments,
            "when a peer sends to a port where nobody listens, or to a connection that is gone",
            "nothing, unless an app ought to listen there";
        /// Resets sent to such.
        resets_sent: Segments, "with segments_unknown, within a rate", "see segments_unknown";
        /// Connections opened by this host.
        connections_opened: Connections, "when an app connects", "nothing: this is traffic";
        /// Connections opened by peers.
        connections_accepted: Connections,
            "when a peer connects to a listener", "nothing: this is traffic";
        /// SYNs that were answered with a cookie.
        cookies_sent: Cookies,
            "when a listener has more half-open connections than it keeps",
            "raise the listener's backlog, or see who floods it";
        /// Cookies that came back and were right.
        cookies_right: Cookies, "when a peer answers one", "nothing: it is connected";
        /// Cookies that came back and were wrong.
        cookies_wrong: Cookies,
            "when an answer comes late, or a stranger guesses", "nothing: it is refused";
        /// SYNs and connections dropped because a listener's backlog was full.
        backlog_dropped: Connections,
            "when an app does not accept as fast as peers connect",
            "accept faster, or raise the backlog";
        /// Pieces that had come out of order and were given up, for others of their app.
        pieces_given_up: Segments,
            "when an app's receive pool is short and a connection has much of it out of order",
            "raise the app's receive_pool_bytes if it is often; see who loses packets";
        /// Connections in TIME-WAIT forgotten before their time, because there were too many of
        /// their app's.
        time_wait_dropped: Connections,
            "when this host closes more connections in a minute than it remembers",
            "nothing, unless peers report resets: then have the peers close first";
    }
}

/// What is known under addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Connection(Key),
    HalfOpen(Key),
    TimeWait(Key),
}

/// A connection and what the stack notes of it.
#[derive(Debug)]
struct Slot {
    connection: Connection,
    /// By when it is looked at: no later than its next deadline.
    armed: Time,
    /// It waits in `ready`, in `changed`.
    is_ready: bool,
    is_changed: bool,
    /// A listener has not given it to anybody yet: its events wait.
    is_offered: bool,
    /// Its owner has let go of it.
    is_forgotten: bool,
}

impl Slot {
    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            armed: Time::MAX,
            is_ready: false,
            is_changed: false,
            is_offered: false,
            is_forgotten: false,
        }
    }

    /// Has it polled if it may have something to send.
    #[inline]
    fn mark_ready(&mut self, key: Key, ready: &mut VecDeque<Key>) {
        if self.is_to_be_polled() && !core::mem::replace(&mut self.is_ready, true) {
            ready.push_back(key);
        }
    }

    /// Has its owner told if there is something to tell.
    #[inline]
    fn mark_changed(&mut self, key: Key, changed: &mut VecDeque<Key>) {
        let is_changed = !self.connection.readiness().is_empty();
        if is_changed && !core::mem::replace(&mut self.is_changed, true) {
            changed.push_back(key);
        }
    }

    /// Has it looked at by its next deadline. One that has moved away, as most do, costs nothing
    /// until the one before it is due.
    #[inline]
    fn arm(&mut self, key: Key, deadlines: &mut Deadlines) {
        let deadline = self.connection.next_timeout();
        if deadline < self.armed {
            self.armed = deadline;
            deadlines.set(key.index, deadline);
        }
    }

    /// False if it has surely nothing to send, and is not to be taken away after that.
    #[inline]
    const fn is_to_be_polled(&self) -> bool {
        self.connection.has_output() || self.is_forgotten
    }
}

/// Where a listener is: one address or several, and a port.
type Place = (Option<u128>, u16);

/// TCP, of one engine.
#[derive(Debug)]
pub struct Stack {
    config: Config,
    secret: Secret,
    random: Random,
    table: HashMap<Tuple, Entry, Hashing>,
    connections: Slab<Slot>,
    listeners: Slab<ListenSocket>,
    /// Those of one place share what comes to it; in order.
    listening: BTreeMap<Place, Vec<Key>>,
    half_open: Slab<HalfOpen>,
    half_open_shares: Shares,
    time_waits: TimeWaits,
    ports: Ports,
    /// Of connections, and of half-open ones.
    deadlines: Deadlines,
    half_open_deadlines: Deadlines,
    /// Connections that may have something to send, and that have something to tell.
    ready: VecDeque<Key>,
    changed: VecDeque<Key>,
    acceptable: VecDeque<Listener>,
    /// Answers that belong to no connection.
    replies: VecDeque<Transmit>,
    resets: Resets,
    counters: Counters,
}

/// Resets, and other answers to strangers, are few.
#[derive(Debug)]
struct Resets {
    since: Time,
    count: u32,
}

/// Answers to strangers that wait for the queue: what does not fit is as if lost on the way.
const REPLIES_MAX: usize = 256;

/// Deadlines that are served at once: others wait meanwhile, however many connections were opened
/// or closed at the same moment.
const TIMEOUTS_PER_CALL: usize = 256;

impl Stack {
    /// A stack without connections. `secret` is from the operating system's generator, and nobody
    /// else's; `seed` need not be secret.
    #[must_use]
    pub fn new(config: Config, now: Time, seed: u64, secret: [u8; 16]) -> Self {
        let hashing = Hashing::new(secret.map(|byte| byte ^ 0x5a));
        Self {
            secret: Secret::new(secret),
            random: Random::new(seed),
            table: HashMap::with_hasher(hashing),
            connections: Slab::new(config.connections_max),
            listeners: Slab::new(u32::from(u16::MAX)),
            listening: BTreeMap::new(),
            half_open: Slab::new(config.half_open_max),
            half_open_shares: Shares::default(),
            time_waits: TimeWaits::new(config.time_wait_max, config.time_wait_ns),
            ports: Ports::new(config.ports),
            deadlines: Deadlines::default(),
            half_open_deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            changed: VecDeque::new(),
            acceptable: VecDeque::new(),
            replies: VecDeque::new(),
            resets: Resets { since: now, count: 0 },
            counters: Counters::default(),
            config,
        }
    }

    /// What is set for the stack.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Sets it anew. The sizes of its tables stay as they are.
    pub fn set_config(&mut self, config: Config) {
        if config.ports != self.config.ports {
            self.ports = Ports::new(config.ports);
        }
        self.time_waits.set_duration(config.time_wait_ns);
        self.config = config;
    }

    // What apps ask.

    /// Opens a connection to `remote`, from `local`; its port is chosen if it is 0. `mtu` is that
    /// of the way there. [`Readiness::OPEN`] says that it is open.
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
        mtu: u16,
        settings: Settings,
    ) -> Result<Key, Error> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Family);
        }
        // RFC 9293, section 3.9.2.3: "MUST reject as an error a local OPEN call for an invalid
        // remote IP address (e.g., a broadcast or multicast address)" (MUST-46).
        if !is_of_one_host(local.ip()) || !is_of_one_host(remote.ip()) {
            return Err(Error::NoHost);
        }
        if self.connections.is_full() {
            return Err(Error::InUse);
        }
        let local = match local.port() {
            0 => SocketAddr::new(local.ip(), self.free_port(local.ip(), remote)?),
            _ => local,
        };
        let tuple = Tuple::new(local, remote);
        let isn = match self.table.get(&tuple) {
            None => self.isn(now, &tuple),
            // RFC 6191: the timestamps of the new connection will be later.
            Some(Entry::TimeWait(key)) if settings.timestamps => self.end_time_wait(*key),
            Some(_) => return Err(Error::InUse),
        };
        let timestamp_offset = self.timestamp_offset(&tuple);
        let connecting = Connecting { local, remote, settings, mtu, isn, timestamp_offset };
        let connection = Connection::connect(now, &connecting);
        self.counters.connections_opened += 1;
        self.insert(tuple, connection).ok_or(Error::InUse)
    }

    fn isn(&self, now: Time, tuple: &Tuple) -> u32 {
        self.config.isn.unwrap_or_else(|| self.secret.isn(now, tuple))
    }

    fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.config.timestamp_offset.unwrap_or_else(|| self.secret.timestamp_offset(tuple))
    }

    fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Result<u16, Error> {
        self.choose_port(local, remote, |_| true)
    }

    /// A port from which `remote` can be reached, that nothing here uses for that, and that
    /// `may_be` used (RFC 6056).
    pub fn choose_port(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        may_be: impl Fn(u16) -> bool,
    ) -> Result<u16, Error> {
        let table = &self.table;
        let is_free = |port| {
            let tuple = Tuple::new(SocketAddr::new(local, port), remote);
            !table.contains_key(&tuple) && may_be(port)
        };
        self.ports.choose(&self.secret, local, remote, is_free).ok_or(Error::InUse)
    }

    fn end_time_wait(&mut self, key: Key) -> u32 {
        let Some(entry) = self.time_waits.remove(key) else {
            return self.random.next_u32();
        };
        self.table.remove(&entry.tuple);
        entry.next_isn()
    }

    /// Listens at `port` of `address`, of every address of its family if it is the unspecified one,
    /// or of every address. `backlog` connections may wait to be
    /// accepted.
    pub fn listen(
        &mut self,
        address: Option<IpAddr>,
        port: u16,
        backlog: u32,
        mtu: u16,
        settings: Settings,
    ) -> Result<Listener, Error> {
        if self.listening.contains_key(&(address.map(bits), port)) {
            return Err(Error::InUse);
        }
        self.insert_listener(ListenSocket {
            address,
            port,
            mtu,
            settings,
            backlog: backlog.max(1),
            accepted: VecDeque::new(),
            half_open: BTreeSet::new(),
            cookies_until: Time::ZERO,
        })
    }

    /// Listens beside another listener, at its place: each connection comes to one of those that
    /// are there, by a hash of its addresses and ports (SO_REUSEPORT).
    pub fn listen_beside(
        &mut self,
        listener: Listener,
        backlog: u32,
        settings: Settings,
    ) -> Result<Listener, Error> {
        let socket = self.listeners.get(listener.0).ok_or(Error::Unknown)?;
        let cookies_until = socket.cookies_until; // theirs may come back to this one
        let (address, port, mtu) = (socket.address, socket.port, socket.mtu);
        self.insert_listener(ListenSocket {
            address,
            port,
            mtu,
            settings,
            backlog: backlog.max(1),
            accepted: VecDeque::new(),
            half_open: BTreeSet::new(),
            cookies_until,
        })
    }

    fn insert_listener(&mut self, socket: ListenSocket) -> Result<Listener, Error> {
        let place = socket.place();
        let key = self.listeners.insert(socket).ok_or(Error::InUse)?;
        let group = self.listening.entry(place).or_default();
        let at = group.partition_point(|other| *other < key);
        group.insert(at, key);
        Ok(Listener(key))
    }

    /// Ends a listener. What waits there, half-open or not accepted, is another's of the same
    /// place, if one there is set the same and has room; else it is reset.
    pub fn unlisten(&mut self, now: Time, listener: Listener, memory: &mut impl Memory) {
        let Some(socket) = self.listeners.remove(listener.0) else {
            return;
        };
        self.leave(&socket.place(), listener.0);
        self.bequeath_half_open(&socket);
        for key in socket.accepted.iter().copied() {
            if !self.bequeath(key, &socket) {
                self.abort(now, key);
                self.forget(now, key, memory);
            }
        }
    }

    fn leave(&mut self, place: &Place, listener: Key) {
        let Some(group) = self.listening.get_mut(place) else { return };
        group.retain(|other| *other != listener);
        if group.is_empty() {
            self.listening.remove(place);
        }
    }

    /// Gives a connection that waits at a listener that has ended to another one. False if none can
    /// have it.
    fn bequeath(&mut self, key: Key, socket: &ListenSocket) -> bool {
        let Some(slot) = self.connections.get(key) else { return false };
        let tuple = Tuple::new(slot.connection.local(), slot.connection.remote());
        self.heir(socket, &tuple).is_some_and(|heir| self.offer(heir, key))
    }

    /// Has a connection wait at a listener, if that has room.
    fn offer(&mut self, listener: Key, key: Key) -> bool {
        let Some(socket) = self.listeners.get_mut(listener).filter(|it| !it.is_full()) else {
            return false;
        };
        socket.accepted.push_back(key);
        if socket.accepted.len() == 1 {
            self.acceptable.push_back(Listener(listener));
        }
        true
    }

    /// What is set for a listener: for the connections that it accepts from now on.
    #[must_use]
    pub fn listener_settings(&self, listener: Listener) -> Option<&Settings> {
        self.listeners.get(listener.0).map(|socket| &socket.settings)
    }

    /// Sets it anew, and how many connections may wait.
    pub fn set_listener(&mut self, listener: Listener, backlog: u32, settings: Settings) {
        if let Some(socket) = self.listeners.get_mut(listener.0) {
            (socket.backlog, socket.settings) = (backlog.max(1), settings);
        }
    }

    /// How many connections a listener has that wait to be accepted.
    #[must_use]
    pub fn acceptable(&self, listener: Listener) -> usize {
        self.listeners.get(listener.0).map_or(0, |socket| socket.accepted.len())
    }

    /// A connection that a listener has for its owner, whose key it is from now on.
    pub fn accept(&mut self, listener: Listener) -> Option<Key> {
        let key = self.listeners.get_mut(listener.0)?.accepted.pop_front()?;
        if let Some(slot) = self.connections.get_mut(key) {
            slot.is_offered = false;
        }
        self.mark_changed(key);
        Some(key)
    }

    /// Appends bytes to what a connection sends. They are the stack's until [`Stack::pop_sent`]
    /// gives them back.
    pub fn send(&mut self, key: Key, extent: Extent) -> Result<(), Error> {
        let slot = self.connections.get_mut(key).ok_or(Error::Unknown)?;
        slot.connection.send(extent).map_err(|refused| match refused {
            Refused::Closed => Error::Closed,
            Refused::Full => Error::Full,
        })?;
        slot.mark_ready(key, &mut self.ready);
        Ok(())
    }

    /// Extents that need not be kept any longer, in the order of [`Stack::send`]: acknowledged, or,
    /// if the connection is over, of no use.
    pub fn pop_sent(&mut self, key: Key) -> Option<Extent> {
        self.connections.get_mut(key)?.connection.pop_sent()
    }

    /// The next bytes that have come. They are the caller's; the window stays smaller by them until
    /// [`Stack::release`].
    pub fn recv(&mut self, key: Key) -> Option<Extent> {
        self.connections.get_mut(key)?.connection.recv()
    }

    /// The same, but of a piece that is longer than `most` bytes only so many.
    pub fn recv_at_most(&mut self, key: Key, most: u32) -> Option<Extent> {
        self.connections.get_mut(key)?.connection.recv_at_most(most)
    }

    /// What [`Stack::recv`] would give, which stays where it is.
    pub fn unread(&self, key: Key) -> impl Iterator<Item = Extent> + '_ {
        let slot = self.connections.get(key);
        slot.into_iter().flat_map(|slot| slot.connection.unread())
    }

    /// All that has come and nobody has taken: what [`Stack::recv`] would give, and what is out of
    /// order.
    pub fn received(&self, key: Key) -> impl Iterator<Item = Extent> + '_ {
        let slot = self.connections.get(key);
        slot.into_iter().flat_map(|slot| slot.connection.received())
    }

    /// Bytes that have come out of order.
    #[must_use]
    pub fn ahead_bytes(&self, key: Key) -> u64 {
        self.connections.get(key).map_or(0, |slot| slot.connection.ahead_bytes())
    }

    /// Gives half of what a connection has out of order back to `memory`, for others: its peer
    /// sends that again.
    pub fn renege(&mut self, key: Key, memory: &mut impl Memory) {
        let Some(slot) = self.connections.get_mut(key) else { return };
        let counters = &mut self.counters;
        slot.connection.renege(|extent| {
            counters.pieces_given_up += 1;
            memory.discard(key, extent);
        });
    }

    /// The caller is done with so many bytes of what it got from [`Stack::recv`].
    pub fn release(&mut self, key: Key, bytes: u64) {
        self.change(key, |connection| connection.release(bytes));
    }

    /// There will be nothing more to send; what the peer sends is still received.
    pub fn shutdown(&mut self, key: Key) {
        self.change(key, Connection::shutdown);
    }

    /// Lets go of a connection: what was given to be sent is sent, and nothing more is received.
    pub fn close(&mut self, now: Time, key: Key) {
        self.change(key, |connection| connection.close(now));
        self.settle(now, key);
    }

    /// Gives up a connection: the peer gets a reset.
    pub fn abort(&mut self, now: Time, key: Key) {
        self.change(key, Connection::abort);
        self.settle(now, key);
    }

    /// The key will not be used again. What has been received and not taken goes back to `memory`;
    /// what was to be sent, to whoever calls [`Stack::pop_sent`] before.
    pub fn forget(&mut self, now: Time, key: Key, memory: &mut impl Memory) {
        let Some(slot) = self.connections.get_mut(key) else {
            return;
        };
        slot.connection.drain(|extent| memory.discard(key, extent));
        if !slot.connection.state().is_over() {
            self.abort(now, key);
        }
        self.forget_soon(key);
    }

    /// What is set for a connection.
    #[must_use]
    pub fn settings(&self, key: Key) -> Option<&Settings> {
        self.connections.get(key).map(|slot| slot.connection.settings())
    }

    /// Sets it anew. What is agreed on at the beginning stays as it is.
    pub fn set_settings(&mut self, key: Key, settings: Settings) {
        self.change(key, |connection| connection.set_settings(settings));
    }

    /// Acknowledges what comes at once, for a while, and what has come; or as late as may be.
    pub fn set_quick_acks(&mut self, key: Key, are_quick: bool) {
        self.change(key, |connection| connection.set_quick_acks(are_quick));
    }

    /// What its owner has to know of a connection to do something with it.
    #[must_use]
    pub fn status(&self, key: Key) -> Option<Status> {
        self.connections.get(key).map(|slot| slot.connection.status())
    }

    /// True if what a connection has sent was sent again, and still not acknowledged.
    #[must_use]
    pub fn is_silent(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(|slot| slot.connection.is_silent())
    }

    /// What can be told of a connection.
    #[must_use]
    pub fn info(&self, key: Key) -> Option<Info> {
        self.connections.get(key).map(|slot| slot.connection.info())
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = Key> + '_ {
        self.connections.iter().map(|(key, _)| key)
    }

    /// True if a connection is its owner's: it waits at no listener, and its owner has not let go
    /// of it.
    #[must_use]
    pub fn is_owned(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(|slot| !slot.is_offered && !slot.is_forgotten)
    }

    /// What a connection was given to be sent and has not given back, in order.
    pub fn outstanding(&self, key: Key) -> impl Iterator<Item = Extent> + '_ {
        let slot = self.connections.get(key);
        slot.into_iter().flat_map(|slot| slot.connection.outstanding())
    }

    /// The listeners at a port of exactly these addresses, as [`Stack::listen`] has them.
    pub fn listeners_on(
        &self,
        address: Option<IpAddr>,
        port: u16,
    ) -> impl Iterator<Item = Listener> + '_ {
        let group = self.listening.get(&(address.map(bits), port));
        group.into_iter().flatten().copied().map(Listener)
    }

    /// How many listeners there are.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// True if nothing is kept, nothing is due and nothing waits, but listeners.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
            && self.connections.len() == 0
            && self.waiting() == (0, 0)
            && self.ready.is_empty()
            && self.replies.is_empty()
            && self.acceptable.is_empty()
    }

    /// Deadlines that are kept.
    #[cfg(test)]
    pub(crate) fn deadlines(&self) -> usize {
        self.deadlines.len() + self.half_open_deadlines.len()
    }

    /// What is counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Goes on counting from there.
    pub const fn set_counters(&mut self, counters: Counters) {
        self.counters = counters;
    }

    /// True if a connection that is over guards `port` of `address`, or of any address if it is the
    /// unspecified one. Looks at all of them.
    #[must_use]
    pub fn is_guarded(&self, address: IpAddr, port: u16) -> bool {
        self.time_waits.iter().any(|entry| {
            let local = entry.tuple.ends().0;
            local.port() == port && (local.ip() == address || address.is_unspecified())
        })
    }

    /// How many are half open, and in TIME-WAIT.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.half_open.len(), self.time_waits.len())
    }

    // What comes.

    /// A segment has come to an address of this host.
    pub fn handle_segment(&mut self, now: Time, arrival: &Arrival, memory: &mut impl Memory) {
        self.counters.segments_received += 1;
        let tuple = Tuple::new(arrival.to, arrival.from);
        match self.table.get(&tuple).copied() {
            Some(Entry::Connection(key)) => self.handle_own(now, key, arrival, memory),
            Some(Entry::HalfOpen(key)) => self.handle_half_open(now, key, arrival, memory),
            Some(Entry::TimeWait(key)) => self.handle_time_wait(now, key, arrival),
            None => self.handle_stranger(now, tuple, arrival, memory),
        }
    }

    fn handle_own(&mut self, now: Time, key: Key, arrival: &Arrival, memory: &mut impl Memory) {
        let Some(slot) = self.connections.get_mut(key) else {
            return;
        };
        let reply = slot.connection.handle_segment(now, key, arrival, memory);
        slot.mark_ready(key, &mut self.ready);
        if reply == Reply::Nothing && !slot.connection.state().is_over() {
            slot.mark_changed(key, &mut self.changed);
            return slot.arm(key, &mut self.deadlines);
        }
        if reply == Reply::Reset {
            self.reply_reset(now, arrival);
        }
        self.settle(now, key);
    }

    /// An ICMP error has come, about a segment that went from `local` to `remote` with `sequence`.
    pub fn handle_icmp(
        &mut self,
        now: Time,
        error: IcmpError,
        local: SocketAddr,
        remote: SocketAddr,
        sequence: u32,
    ) {
        let Some(Entry::Connection(key)) = self.table.get(&Tuple::new(local, remote)).copied()
        else {
            return;
        };
        self.change(key, |connection| connection.handle_icmp(now, error, sequence));
        self.settle(now, key);
    }

    /// Does what is due, of each kind so much at most: the rest stays due.
    pub fn handle_timeouts(&mut self, now: Time) {
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(index) = self.deadlines.pop_due(now) else { break };
            self.on_timeout(now, index);
        }
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(index) = self.half_open_deadlines.pop_due(now) else { break };
            self.on_half_open_timeout(now, index);
        }
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(tuple) = self.time_waits.pop_due(now) else { break };
            self.table.remove(&tuple);
        }
    }

    fn on_timeout(&mut self, now: Time, index: u32) {
        let Some(key) = self.connections.key_at(index) else {
            return;
        };
        let Some(slot) = self.connections.get_mut(key) else {
            return;
        };
        slot.armed = Time::MAX;
        if slot.connection.next_timeout() <= now {
            slot.connection.handle_timeouts(now);
            self.mark_ready(key);
        }
        self.settle(now, key);
    }

    /// When [`Stack::handle_timeouts`] is to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        let of_connections = self.deadlines.earliest().min(self.half_open_deadlines.earliest());
        of_connections.min(self.time_waits.next_timeout())
    }

    // What leaves.

    /// False if [`Stack::poll_transmit`] has surely nothing.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.replies.is_empty()
    }

    /// How many answers wait that belong to no connection.
    #[inline]
    #[must_use]
    pub fn answers_waiting(&self) -> usize {
        self.replies.len()
    }

    /// The next segment, with at most `most` bytes of payload; what is more than one segment is
    /// given only if `most` is more than that, for whoever can cut it.
    pub fn poll_transmit(&mut self, now: Time, most: u32) -> Option<Transmit> {
        if let Some(reply) = self.replies.pop_front() {
            self.counters.segments_sent += 1;
            return Some(reply);
        }
        while let Some(key) = self.ready.front().copied() {
            let Some(slot) = self.connections.get_mut(key) else {
                self.ready.pop_front();
                continue;
            };
            let transmit = slot.connection.poll_transmit(now, key, most);
            if transmit.is_none() || !slot.is_to_be_polled() {
                self.ready.pop_front();
                slot.is_ready = false;
                if slot.is_forgotten {
                    self.connections.remove(key);
                    self.deadlines.remove(key.index);
                } else {
                    slot.arm(key, &mut self.deadlines);
                }
            }
            if transmit.is_some() {
                self.counters.segments_sent += 1;
                return transmit;
            }
        }
        None
    }

    /// Where the bytes `range` of a connection's [`Transmit`] are, in order.
    pub fn extents(&self, key: Key, range: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
        let slot = self.connections.get(key);
        slot.into_iter().flat_map(move |slot| slot.connection.extents(range.clone()))
    }

    /// False if [`Stack::poll_event`] has surely nothing.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.changed.is_empty() || !self.acceptable.is_empty()
    }

    /// Something that has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(listener) = self.acceptable.pop_front() {
            return Some(Event::Acceptable(listener));
        }
        while let Some(key) = self.changed.pop_front() {
            let Some(slot) = self.connections.get_mut(key) else {
                continue;
            };
            slot.is_changed = false;
            if slot.is_offered {
                continue;
            }
            let readiness = slot.connection.take_readiness();
            if !readiness.is_empty() && !slot.is_forgotten {
                return Some(Event::Connection(key, readiness));
            }
        }
        None
    }

    // Books.

    fn insert(&mut self, tuple: Tuple, connection: Connection) -> Option<Key> {
        let key = self.connections.insert(Slot::new(connection))?;
        self.table.insert(tuple, Entry::Connection(key));
        self.mark_ready(key);
        Some(key)
    }

    fn change(&mut self, key: Key, change: impl FnOnce(&mut Connection)) {
        if let Some(slot) = self.connections.get_mut(key) {
            change(&mut slot.connection);
            slot.mark_ready(key, &mut self.ready);
            slot.mark_changed(key, &mut self.changed);
            slot.arm(key, &mut self.deadlines);
        }
    }

    fn mark_ready(&mut self, key: Key) {
        if let Some(slot) = self.connections.get_mut(key) {
            slot.mark_ready(key, &mut self.ready);
        }
    }

    fn mark_changed(&mut self, key: Key) {
        if let Some(slot) = self.connections.get_mut(key) {
            slot.mark_changed(key, &mut self.changed);
        }
    }

    /// After something has happened to a connection: tells of it, and takes it from the table if it
    /// is over.
    fn settle(&mut self, now: Time, key: Key) {
        let Some(slot) = self.connections.get_mut(key) else {
            return;
        };
        slot.mark_changed(key, &mut self.changed);
        let connection = &slot.connection;
        if !connection.state().is_over() {
            return slot.arm(key, &mut self.deadlines);
        }
        let tuple = Tuple::new(connection.local(), connection.remote());
        if self.table.get(&tuple) != Some(&Entry::Connection(key)) {
            return;
        }
        self.table.remove(&tuple);
        if connection.state() == State::TimeWait {
            let (waiting, gone) = self.time_waits.insert(now, tuple, connection.remains());
            if let Some(gone) = gone {
                self.table.remove(&gone);
                self.counters.time_wait_dropped += 1;
            }
            self.table.insert(tuple, Entry::TimeWait(waiting));
        }
    }

    /// Takes a connection away as soon as it has sent the last that it has to.
    fn forget_soon(&mut self, key: Key) {
        if let Some(slot) = self.connections.get_mut(key) {
            slot.is_forgotten = true;
            self.mark_ready(key);
        }
    }

    /// RFC 9293, section 3.5.2: resets for what no connection is meant by, few per second.
    fn reply_reset(&mut self, now: Time, arrival: &Arrival) {
        if now.since(self.resets.since) >= SECOND {
            self.resets = Resets { since: now, count: 0 };
        }
        self.resets.count += 1;
        if self.resets.count <= self.config.resets_per_s {
            self.counters.resets_sent += 1;
            self.reply(reset_for(arrival));
        }
    }

    fn reply(&mut self, reply: Transmit) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back(reply);
        }
    }
}

/// RFC 9293, section 3.10.7.1: "If the ACK bit is off, sequence number zero is used,
/// <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. If the ACK bit is on, <SEQ=SEG.ACK><CTL=RST>".
fn reset_for(arrival: &Arrival) -> Transmit {
    let repr = &arrival.repr;
    let (sequence, acknowledgement, flags) = match repr.flags.contains(Flags::ACK) {
        true => (repr.acknowledgement, 0, Flags::RST),
        false => {
            let end = repr.sequence.wrapping_add(arrival.length() as u32);
            (0, end, Flags::RST | Flags::ACK)
        }
    };
    let repr = Repr {
        source_port: arrival.to.port(),
        destination_port: arrival.from.port(),
        sequence,
        acknowledgement,
        flags,
        window: 0,
        urgent: 0,
        options: Options::default(),
    };
    Transmit::bare(arrival.to, arrival.from, repr, IpFields::default())
}
