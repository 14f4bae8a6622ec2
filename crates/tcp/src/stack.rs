//! All of TCP on one engine: whose a segment is, and what leaves next.
//!
//! Call order: [`Stack::handle_segment`], [`Stack::handle_icmp`], [`Stack::handle_timeouts`] and
//! what apps ask change the state; then [`Stack::poll_transmit`] until it gives nothing, and
//! [`Stack::poll_event`] until it gives nothing; then [`Stack::next_timeout`].
//!
//! A connection's [`SlotId`] is its owner's until [`Stack::forget`]: nothing goes away behind its
//! back.
//!
//! | part | what is in it |
//! |---|---|
//! | this file | whose a segment is; what becomes of what is over |
//! | `connections`, `listeners`, `half_open`, `answers` | who there is, and what each has to do |
//! | `calls`, `listening` | what apps ask |
//! | `fast_open` | data before a handshake is over |
//! | `paths` | what routers have said, for connections that open later |
//! | `strangers` | segments without a connection |
//! | `sharing` | whose a segment is, where several stacks have a port |
//! | `saved` | all of it as plain data, and back |
//! | `counters`, `error` | what is counted, and why calls fail |

use core::net::SocketAddr;
use std::collections::{BTreeMap, HashMap};

use clearway_base::{Random, SlotId, Time};

use crate::config::Config;
use crate::connection::{Arrival, Connection, IcmpError, Reply, Transmit};
use crate::event::Readiness;
use crate::extent::Memory;
use crate::fast_open::{FastOpenKeys, Peers};
use crate::isn::Secret;
use crate::ports::Ports;
use crate::state::State;
use crate::time_wait::TimeWaits;
use crate::tuple::{Hashing, Tuple};
use crate::ways::{Ways, Wire};

mod answers;
mod calls;
mod connections;
mod counters;
mod error;
mod fast_open;
mod half_open;
mod listeners;
mod listening;
mod paths;
mod saved;
mod sharing;
mod strangers;

use answers::Answers;
use connections::Connections;
pub use counters::Counters;
pub use error::Error;
use half_open::HalfOpens;
use listeners::Listeners;
use paths::Paths;

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener(pub(crate) SlotId);

impl Listener {
    /// It as one number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// To a connection.
    Connection(SlotId, Readiness),
    /// A listener has connections to be accepted.
    Acceptable(Listener),
}

/// What is known under addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Connection(SlotId),
    /// A connection whose handshake is not over, and Fast Open has to do with it.
    Attempt(SlotId),
    HalfOpen(SlotId),
    TimeWait(SlotId),
}

impl Entry {
    /// The connection that it is, if it is one.
    const fn connection(self) -> Option<SlotId> {
        match self {
            Self::Connection(key) | Self::Attempt(key) => Some(key),
            Self::HalfOpen(_) | Self::TimeWait(_) => None,
        }
    }
}

/// TCP, of one engine.
#[derive(Debug)]
pub struct Stack {
    config: Config,
    secret: Secret,
    random: Random,
    /// Whose a segment is.
    table: HashMap<Tuple, Entry, Hashing>,
    connections: Connections,
    listeners: Listeners,
    half_open: HalfOpens,
    time_waits: TimeWaits,
    ports: Ports,
    answers: Answers,
    paths: Paths,
    /// What is known of peers for Fast Open, and what cookies of listeners are made with.
    peers: Peers,
    keys: FastOpenKeys,
    /// The listeners of connections that are open early.
    early: BTreeMap<SlotId, SlotId>,
    counters: Counters,
}

/// Deadlines that are served at once: others wait meanwhile, however many connections were opened
/// or closed at the same moment.
const TIMEOUTS_PER_CALL: usize = 256;

impl Stack {
    /// A stack without connections. `secret` is from the operating system's generator, and nobody
    /// else's; `seed` need not be secret.
    #[must_use]
    pub fn new(config: Config, now: Time, seed: u64, secret: [u8; 16]) -> Self {
        let hashing = Hashing::new(secret.map(|byte| byte ^ 0x5a));
        let secret = Secret::new(secret);
        Self {
            keys: secret.fast_open_keys(),
            secret,
            random: Random::new(seed),
            table: HashMap::with_hasher(hashing),
            connections: Connections::new(config.connections_max),
            listeners: Listeners::new(),
            half_open: HalfOpens::new(config.half_open_max),
            time_waits: TimeWaits::new(config.time_wait_max, config.time_wait_ns),
            ports: Ports::new(config.ports),
            answers: Answers::new(now),
            paths: Paths::default(),
            peers: Peers::new(config.fast_open_peers_max),
            early: BTreeMap::new(),
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
        self.peers.set_max(config.fast_open_peers_max);
        self.config = config;
    }

    /// True if nothing is kept, nothing is due and nothing waits, but listeners.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
            && self.connections.is_empty()
            && self.waiting() == (0, 0)
            && self.answers.len() == 0
            && !self.listeners.has_acceptable()
    }

    /// Deadlines that are kept.
    #[cfg(test)]
    pub(crate) fn deadlines(&self) -> usize {
        self.connections.deadlines() + self.half_open.deadlines()
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
            Some(Entry::Attempt(key)) => self.handle_attempt(now, key, tuple, arrival, memory),
            Some(Entry::HalfOpen(key)) => self.handle_half_open(now, key, arrival, memory),
            Some(Entry::TimeWait(key)) => self.handle_time_wait(now, key, arrival, memory),
            None => self.handle_stranger(now, tuple, arrival, memory),
        }
    }

    /// The connection between these ends, if there is one whose segments need nothing but what
    /// [`Stack::handle_segment_of`] does.
    #[inline]
    #[must_use]
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<SlotId> {
        match self.table.get(&Tuple::new(local, remote)) {
            Some(Entry::Connection(key)) => Some(*key),
            _ => None,
        }
    }

    /// A segment has come for a connection that [`Stack::find`] has found for its ends.
    #[inline]
    pub fn handle_segment_of(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        self.counters.segments_received += 1;
        self.handle_own(now, key, arrival, memory);
    }

    #[inline]
    fn handle_own(&mut self, now: Time, key: SlotId, arrival: &Arrival, memory: &mut impl Memory) {
        let (reply, is_over) = self.connections.handle_segment(now, key, arrival, memory);
        if reply == Reply::Reset {
            self.reply_reset(now, arrival);
        }
        if is_over {
            self.settle(now, key);
        }
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
        let entry = self.table.get(&Tuple::new(local, remote)).copied();
        let Some(key) = entry.and_then(Entry::connection) else {
            return;
        };
        let mut narrowed = None;
        self.connections.change(key, |connection| {
            let before = connection.path_mtu();
            connection.handle_icmp(now, error, sequence);
            narrowed = Some(connection.path_mtu()).filter(|mtu| *mtu < before);
        });
        if let Some(mtu) = narrowed {
            self.paths.learn(now, remote.ip(), mtu);
        }
        self.settle(now, key);
    }

    /// Does what is due, of each kind so much at most: the rest stays due.
    pub fn handle_timeouts(&mut self, now: Time) {
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(key) = self.connections.handle_timeout(now) else { break };
            self.settle(now, key);
        }
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(key) = self.half_open.pop_due(now) else { break };
            self.on_half_open_timeout(now, key);
        }
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(tuple) = self.time_waits.pop_due(now) else { break };
            self.table.remove(&tuple);
        }
    }

    /// When [`Stack::handle_timeouts`] is to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        let of_open = self.connections.next_timeout().min(self.half_open.next_timeout());
        of_open.min(self.time_waits.next_timeout())
    }

    // What leaves.

    /// False if [`Stack::poll_transmit`] has surely nothing.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.connections.has_output() || self.answers.len() > 0
    }

    /// How many answers wait that belong to no connection.
    #[inline]
    #[must_use]
    pub fn answers_waiting(&self) -> usize {
        self.answers.len()
    }

    /// The next segment, with at most `most` bytes of payload; what is more than one segment is
    /// given only if `most` is more than that, for whoever can cut it.
    pub fn poll_transmit(&mut self, now: Time, most: u32) -> Option<Transmit> {
        self.poll_transmit_by(now, &mut Wire(most))
    }

    /// The same, where `ways` say how much the next segment of each connection may have, and
    /// whether there is room for it. One that may give several at once is asked again when all
    /// others have been.
    #[inline]
    pub fn poll_transmit_by(&mut self, now: Time, ways: &mut impl Ways) -> Option<Transmit> {
        let transmit = match self.answers.len() {
            0 => self.connections.poll_transmit(now, ways),
            _ => self.answers.pop(),
        };
        self.counters.segments_sent += u64::from(transmit.is_some());
        transmit
    }

    /// There may be room for what a connection has to send, where there was none ([`Ways::room`]).
    pub fn ask_again(&mut self, key: SlotId) {
        self.connections.change(key, |_| ());
    }

    /// False if [`Stack::poll_event`] has surely nothing.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.connections.has_changed() || self.listeners.has_acceptable()
    }

    /// Something that has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(listener) = self.listeners.poll_acceptable() {
            return Some(Event::Acceptable(listener));
        }
        let (key, readiness) = self.connections.poll_changed()?;
        Some(Event::Connection(key, readiness))
    }

    // Books.

    fn isn(&self, now: Time, tuple: &Tuple) -> u32 {
        self.config.isn.unwrap_or_else(|| self.secret.isn(now, tuple))
    }

    fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.config.timestamp_offset.unwrap_or_else(|| self.secret.timestamp_offset(tuple))
    }

    /// Frees the ports of one in TIME-WAIT for a new connection, whose number this is.
    fn end_time_wait(&mut self, now: Time, key: SlotId, tuple: &Tuple) -> u32 {
        let by_clock = self.isn(now, tuple);
        let Some(entry) = self.time_waits.remove(key) else { return by_clock };
        self.table.remove(&entry.tuple);
        entry.next_isn(by_clock)
    }

    fn insert(&mut self, tuple: Tuple, connection: Connection) -> Option<SlotId> {
        let is_attempt = connection.is_attempt();
        let key = self.connections.insert(connection)?;
        let entry = if is_attempt { Entry::Attempt(key) } else { Entry::Connection(key) };
        self.table.insert(tuple, entry);
        Some(key)
    }

    /// After something has happened to a connection: tells of it, and takes it from the table if it
    /// is over.
    fn settle(&mut self, now: Time, key: SlotId) {
        if !self.connections.settle(key) {
            return;
        }
        let Some(connection) = self.connections.get(key) else { return };
        let tuple = Tuple::new(connection.local(), connection.remote());
        let entry = self.table.get(&tuple).copied();
        if entry.and_then(Entry::connection) != Some(key) {
            return;
        }
        let remains = (connection.state() == State::TimeWait).then(|| connection.remains());
        if entry == Some(Entry::Attempt(key)) {
            self.end_early(now, key);
        }
        self.table.remove(&tuple);
        if let Some(remains) = remains {
            let (waiting, gone) = self.time_waits.insert(now, tuple, remains);
            if let Some(gone) = gone {
                self.table.remove(&gone);
                self.counters.time_wait_dropped += 1;
            }
            if let Some(waiting) = waiting {
                self.table.insert(tuple, Entry::TimeWait(waiting));
            }
        }
    }

    /// RFC 9293, section 3.5.2: resets for what no connection is meant by, few per second.
    fn reply_reset(&mut self, now: Time, arrival: &Arrival) {
        let is_sent = self.answers.reset(now, arrival, self.config.resets_per_s);
        self.counters.resets_sent += u64::from(is_sent);
    }
}
