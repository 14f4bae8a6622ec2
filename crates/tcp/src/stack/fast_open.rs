//! TCP Fast Open: which SYNs are welcome with data, connections whose handshake is not over, and
//! what their answers say of peers (RFC 7413, sections 4.1 and 4.2).

use core::net::IpAddr;

use clearway_base::{SECOND, SlotId, Time};
use clearway_wire::tcp::FastOpen;

use super::{Entry, Listener, Stack};
use crate::config::Settings;
use crate::connection::{Arrival, Connection};
use crate::event::End;
use crate::extent::Memory;
use crate::fast_open::{FastOpenKeys, Recognized};
use crate::listen::HalfOpen;
use crate::tuple::Tuple;

/// What a listener says to a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Welcome {
    /// Nothing of Fast Open: data has to come again.
    Plain,
    /// The same, and a cookie.
    Cookie(FastOpen),
    /// Its data is taken, and the SYN-ACK may have another cookie.
    Early(Option<FastOpen>),
}

/// How long one that was reset before its handshake was over counts as if it were there: as long as
/// with Linux.
const RESET_COUNTS_NS: u64 = 60 * SECOND;

impl Stack {
    /// What cookies of listeners are made with from now on. Until it is called, it is something
    /// that follows from the stack's secret.
    pub fn set_fast_open_keys(&mut self, keys: FastOpenKeys) {
        self.keys = keys;
    }

    /// The same of one listener; `None`: with the keys of all.
    pub fn set_listener_keys(&mut self, listener: Listener, keys: Option<FastOpenKeys>) {
        if let Some(socket) = self.listeners.get_mut(listener.0) {
            socket.keys = keys;
        }
    }

    /// Forgets what peers have given.
    pub fn forget_fast_open_peers(&mut self) {
        self.peers.clear();
    }

    /// True if the SYN to a peer could have data.
    #[must_use]
    pub fn may_send_early(&self, now: Time, peer: IpAddr, settings: &Settings) -> bool {
        settings.fast_open.connects && self.peers.may_have_data(now, peer, settings)
    }

    /// How many bytes more the SYN of a connection takes that has not left yet.
    #[must_use]
    pub fn syn_room(&self, key: SlotId) -> u64 {
        self.connections.get(key).map_or(0, Connection::syn_room)
    }

    /// What a listener says to a SYN, for which there is room.
    pub(super) fn welcome(&mut self, now: Time, listener: SlotId, arrival: &Arrival) -> Welcome {
        let Some(socket) = self.listeners.get_mut(listener) else { return Welcome::Plain };
        let Settings { fast_open, variants, .. } = socket.settings;
        let option = arrival.repr.options.fast_open();
        let option =
            option.filter(|option| variants.experimental_fast_open || !option.is_experimental);
        let is_meant = option.is_some() || fast_open.without_cookies && arrival.payload_length > 0;
        if fast_open.pending_max == 0 || !is_meant {
            return Welcome::Plain;
        }
        // RFC 7413, section 5.1: with too many of them, listeners do as if they had none.
        let has_room = socket.may_open_early(now);
        if fast_open.without_cookies && has_room {
            return Welcome::Early(None);
        }
        let Some(asked) = option else { return Welcome::Plain };
        let keys = socket.keys.unwrap_or(self.keys);
        let local = (!variants.cookie_of_peer).then_some(arrival.to.ip());
        let remote = arrival.from.ip();
        let answer = FastOpen { cookie: Some(keys.cookie(local, remote)), ..asked };
        let Some(cookie) = asked.cookie else { return Welcome::Cookie(answer) };
        match keys.recognize(&cookie, local, remote) {
            None => {
                self.counters.fast_open_cookies_wrong += 1;
                Welcome::Cookie(answer)
            }
            Some(_) if !has_room => {
                self.counters.fast_opens_limited += 1;
                Welcome::Plain
            }
            Some(Recognized::Current) if !variants.cookie_of_peer => Welcome::Early(None),
            Some(_) => Welcome::Early(Some(answer)),
        }
    }

    /// Gives a connection to the app whose SYN has just come. False if there is no room.
    pub(super) fn open_early(
        &mut self,
        now: Time,
        half_open: &HalfOpen,
        arrival: &Arrival,
        option: Option<FastOpen>,
        memory: &mut impl Memory,
    ) -> bool {
        let Some(socket) = self.listeners.get(half_open.listener) else { return false };
        if self.connections.is_full() {
            return false;
        }
        let (window, retries_max) = (arrival.repr.window, self.config.syn_ack_retries);
        let accepted = half_open.accepted(socket);
        let mut connection = Connection::accept_early(now, &accepted, option, window, retries_max);
        connection.expect_path(self.paths.mtu(now, arrival.from.ip()));
        let Some(key) = self.insert(half_open.tuple, connection) else { return false };
        self.counters.connections_accepted += 1;
        self.counters.fast_opens_accepted += 1;
        self.begin_early(key, half_open.listener);
        self.connections.offer(key);
        self.listeners.offer(half_open.listener, key);
        memory.offered(key, Listener(half_open.listener));
        self.connections.change(key, |it| it.take_syn_data(now, key, arrival, memory));
        true
    }

    /// A segment has come for a connection whose handshake is not over.
    pub(super) fn handle_attempt(
        &mut self,
        now: Time,
        key: SlotId,
        tuple: Tuple,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        self.handle_own(now, key, arrival, memory);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.is_attempt() {
            return;
        }
        let settings = *connection.settings();
        if let Some(outcome) = connection.end_attempt(arrival) {
            self.counters.fast_opens_taken += u64::from(outcome.had_data && outcome.is_taken);
            self.counters.fast_opens_refused += u64::from(outcome.had_data && !outcome.is_taken);
            self.peers.learn(now, arrival.from.ip(), &settings, &outcome);
        }
        if self.table.get(&tuple) == Some(&Entry::Attempt(key)) {
            self.end_early(now, key);
            self.table.insert(tuple, Entry::Connection(key));
        }
    }

    /// A connection is open early, and counts at its listener.
    pub(super) fn begin_early(&mut self, key: SlotId, listener: SlotId) {
        if let Some(socket) = self.listeners.get_mut(listener) {
            socket.early += 1;
            self.early.insert(key, listener);
        }
    }

    /// It is not any more: it is open, or there is none.
    pub(super) fn end_early(&mut self, now: Time, key: SlotId) {
        let listener = self.early.remove(&key);
        let Some(socket) = listener.and_then(|listener| self.listeners.get_mut(listener)) else {
            return;
        };
        socket.early -= 1;
        let end = self.connections.get(key).and_then(|connection| connection.status().end);
        if end == Some(End::Reset) {
            socket.reset_early.push_back(now + RESET_COUNTS_NS);
        }
    }
}
