//! Segments without a connection: those that want to open one, those of one that is over, and all
//! others.

use core::net::SocketAddr;

use clearway_base::{SlotId, Time};
use clearway_wire::tcp::{Flags, Repr};

use super::fast_open::Welcome;
use super::{Entry, Listener, Stack};
use crate::config::Cookies;
use crate::connection::{Arrival, Challenges, Connection};
use crate::extent::Memory;
use crate::listen::{HalfOpen, ListenSocket, Offer, cookie, from_cookie};
use crate::time_wait::Verdict;
use crate::timestamps::Timestamps;
use crate::tuple::{Tuple, is_of_one_host};
use crate::variants::Variants;

impl Stack {
    /// RFC 9293, sections 3.10.7.1 and 3.10.7.2: CLOSED, and LISTEN.
    pub(super) fn handle_stranger(
        &mut self,
        now: Time,
        tuple: Tuple,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        let flags = arrival.repr.flags;
        // RFC 9293, section 3.9.2.3: "MUST silently discard an incoming SYN segment that is
        // addressed to a broadcast or multicast address" (MUST-57), and one whose source address is
        // such (MUST-63); RFC 1122, section 3.2.2, has it for whatever could be answered.
        if !is_of_one_host(arrival.to.ip()) || !is_of_one_host(arrival.from.ip()) {
            return;
        }
        if flags.contains(Flags::RST) {
            return; // "An incoming segment containing a RST is discarded."
        }
        let Some(listener) = self.listener_for(arrival.to, &tuple) else {
            self.counters.segments_unknown += 1;
            return self.reply_reset(now, arrival);
        };
        if flags.contains(Flags::ACK) {
            return self.handle_cookie(now, listener, tuple, arrival, memory);
        }
        if flags.contains(Flags::SYN) {
            self.handle_syn(now, listener, tuple, arrival, None, memory);
        }
        // "Any other control or data-bearing segment (not containing SYN) must have an ACK and thus
        // would have been discarded".
    }

    pub(super) fn listener_for(&self, to: SocketAddr, tuple: &Tuple) -> Option<SlotId> {
        self.listeners.for_connection(to, tuple, self.table.hasher())
    }

    /// A SYN for a listener. Its answer has `isn`, if there is one and it is not a cookie.
    fn handle_syn(
        &mut self,
        now: Time,
        listener: SlotId,
        tuple: Tuple,
        arrival: &Arrival,
        isn: Option<u32>,
        memory: &mut impl Memory,
    ) {
        let Some(socket) = self.listeners.get_mut(listener) else {
            return;
        };
        if socket.is_full() {
            self.counters.backlog_dropped += 1;
            return; // the peer will try again
        }
        let repr = &arrival.repr;
        let mut offer = Offer::of(arrival, &socket.settings);
        let settings = socket.settings;
        let has_room = self.half_open.may_enter(settings.account);
        let is_full = !has_room || socket.half_open.len() >= socket.backlog.max(16) as usize;
        let has_cookie = match self.config.cookies {
            Cookies::Never if is_full => {
                self.counters.backlog_dropped += 1;
                return;
            }
            Cookies::Never => false,
            Cookies::UnderFlood => is_full,
            Cookies::Always => true,
        };
        let timestamp_offset = self.timestamp_offset(&tuple);
        let isn = match has_cookie {
            true => {
                offer = offer.in_cookie();
                let size = offer.segment_bytes.unwrap_or(536);
                cookie::make(&self.secret, now, &tuple, repr.sequence, size)
            }
            false => isn.unwrap_or_else(|| self.isn(now, &tuple)),
        };
        let half_open = HalfOpen {
            account: settings.account,
            tuple,
            listener,
            local: arrival.to,
            remote: arrival.from,
            isn,
            peer_isn: repr.sequence,
            offer,
            timestamp_offset,
            sent: now,
            retries: 0,
            resent: 0,
            is_again: false,
            is_deferred: false,
            challenges: Challenges::default(),
        };
        let clock = Timestamps::clock(now, timestamp_offset);
        let welcome = match has_cookie {
            true => Welcome::Plain,
            false => self.welcome(now, listener, arrival),
        };
        if let Welcome::Early(option) = welcome
            && self.open_early(now, &half_open, arrival, option, memory)
        {
            return;
        }
        let Some(socket) = self.listeners.get_mut(listener) else {
            return;
        };
        if has_cookie {
            let reply = half_open.syn_ack(socket, cookie::timestamp(clock, &offer));
            self.listeners.expect_cookies(listener, now + cookie::LIFETIME_NS);
            self.counters.cookies_sent += u64::from(self.answers.push(reply));
            return;
        }
        let mut reply = half_open.syn_ack(socket, clock);
        if let Welcome::Cookie(option) = welcome {
            reply.repr.options.extra = option.into();
        }
        if let Some(key) = self.half_open.insert(half_open, half_open.timeout(&settings)) {
            socket.half_open.insert(key);
            self.table.insert(tuple, Entry::HalfOpen(key));
            self.answers.push(reply);
        }
    }

    /// A segment of a stranger whose SYN has been answered: RFC 9293, section 3.10.7.4,
    /// SYN-RECEIVED.
    pub(super) fn handle_half_open(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        let Some(half_open) = self.half_open.get(key).copied() else {
            return;
        };
        let repr = &arrival.repr;
        let next = half_open.peer_isn.wrapping_add(1);
        let settings = self.listeners.get(half_open.listener).map(|socket| &socket.settings);
        let window = settings.map_or(0, |set| set.receive_buffer_bytes.min(u16::MAX.into()));
        let variants = settings.map_or(Variants::default(), |set| set.variants);
        let ahead = i64::from(repr.sequence.wrapping_sub(next) as i32);
        let is_in_window = (0..i64::from(window.max(1))).contains(&ahead);
        if repr.flags.contains(Flags::RST) {
            // RFC 5961, section 3.2, in SYN-RECEIVED, too: only the exact number counts.
            if ahead == 0 || is_in_window && variants.reset_in_window {
                self.drop_half_open(key);
            } else if is_in_window {
                self.challenge(now, key);
            }
            return;
        }
        if repr.flags.contains(Flags::SYN) {
            return self.handle_syn_again(now, key, &half_open, arrival, memory);
        }
        match half_open.is_recent(repr) {
            Some(true) => {}
            Some(false) => return self.challenge(now, key),
            None if variants.missing_timestamps => {}
            None => return, // RFC 7323, section 3.2: without a word
        }
        let ends_behind = ahead + arrival.length() as i64 > 0;
        if !(is_in_window || ahead < 0 && ends_behind) {
            // "If an incoming segment is not acceptable, an acknowledgment should be sent in
            // reply".
            return self.challenge(now, key);
        }
        if !repr.flags.contains(Flags::ACK) {
            return;
        }
        // "If the segment acknowledgment is not acceptable, form a reset segment
        // <SEQ=SEG.ACK><CTL=RST>".
        if repr.acknowledgement != half_open.isn.wrapping_add(1) {
            return self.reply_reset(now, arrival);
        }
        if arrival.length() == 0 && self.is_deferred(key) {
            return;
        }
        self.open(now, Some(key), &half_open, arrival, memory);
    }

    /// True if the listener of a half-open connection, which has been answered, waits for data.
    /// Meanwhile the SYN-ACK is not sent again, until the last time before the wait is over.
    fn is_deferred(&mut self, key: SlotId) -> bool {
        let Some(half_open) = self.half_open.get_mut(key) else {
            return false;
        };
        let socket = self.listeners.get(half_open.listener);
        half_open.is_deferred =
            socket.is_some_and(|socket| half_open.retries < socket.settings.defer_accept);
        half_open.is_deferred
    }

    /// The same SYN again is answered again; another one is of a peer that has begun anew: "If the
    /// connection was initiated with a passive OPEN, then return this connection to the LISTEN
    /// state".
    fn handle_syn_again(
        &mut self,
        now: Time,
        key: SlotId,
        half_open: &HalfOpen,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        if arrival.repr.sequence == half_open.peer_isn {
            return self.on_syn_again(now, key, arrival);
        }
        if arrival.repr.flags.contains(Flags::ACK) {
            return self.reply_reset(now, arrival);
        }
        self.drop_half_open(key);
        let (listener, tuple) = (half_open.listener, half_open.tuple);
        self.handle_syn(now, listener, tuple, arrival, None, memory);
    }

    /// The peer asks once more, and may ask for something else.
    fn on_syn_again(&mut self, now: Time, key: SlotId, arrival: &Arrival) {
        let Some(half_open) = self.half_open.get_mut(key) else {
            return;
        };
        let Some(socket) = self.listeners.get(half_open.listener) else {
            return;
        };
        let asked = Offer::of(arrival, &socket.settings).ecn;
        let Some(ecn) = half_open.offer.ecn.again(asked, arrival.ecn) else {
            self.drop_half_open(key);
            return self.reply_reset(now, arrival);
        };
        (half_open.offer.ecn, half_open.is_again) = (ecn, true);
        let half_open = *half_open;
        self.answer_again(now, &half_open);
    }

    fn answer_again(&mut self, now: Time, half_open: &HalfOpen) {
        if let Some(socket) = self.listeners.get(half_open.listener) {
            let clock = Timestamps::clock(now, half_open.timestamp_offset);
            let reply = half_open.syn_ack(socket, clock);
            self.answers.push(reply);
        }
    }

    /// As few as a connection sends.
    fn challenge(&mut self, now: Time, key: SlotId) {
        let Some(half_open) = self.half_open.get_mut(key) else {
            return;
        };
        if !half_open.challenges.allow(now) {
            return;
        }
        if let Some(socket) = self.listeners.get(half_open.listener) {
            let clock = Timestamps::clock(now, half_open.timestamp_offset);
            let reply = half_open.challenge(socket, clock);
            self.answers.push(reply);
        }
    }

    /// The handshake is complete: there is a connection.
    fn open(
        &mut self,
        now: Time,
        key: Option<SlotId>,
        half_open: &HalfOpen,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        let Some(socket) = self.listeners.get_mut(half_open.listener) else {
            key.into_iter().for_each(|key| self.drop_half_open(key));
            return self.reply_reset(now, arrival);
        };
        if socket.is_full() || self.connections.is_full() {
            self.counters.backlog_dropped += 1;
            return; // the SYN-ACK will be sent again, and so will this
        }
        let mut connection = Connection::accept(now, &half_open.accepted(socket));
        connection.expect_path(self.paths.mtu(now, arrival.from.ip()));
        key.into_iter().for_each(|key| self.drop_half_open(key));
        let Some(key) = self.insert(half_open.tuple, connection) else {
            return;
        };
        self.counters.connections_accepted += 1;
        self.connections.offer(key);
        self.listeners.offer(half_open.listener, key);
        memory.offered(key, Listener(half_open.listener));
        self.handle_own(now, key, arrival, memory);
    }

    /// Gives those who have begun to connect to a listener that has ended to others at its place,
    /// or forgets them.
    pub(super) fn bequeath_half_open(&mut self, gone: &ListenSocket) {
        for key in gone.half_open.iter().copied() {
            let tuple = self.half_open.get(key).map(|begun| begun.tuple);
            let hashing = self.table.hasher();
            match tuple.and_then(|tuple| self.listeners.heir(gone, &tuple, hashing)) {
                Some(heir) => self.move_half_open(key, heir),
                None => self.drop_half_open(key),
            }
        }
    }

    fn move_half_open(&mut self, key: SlotId, heir: SlotId) {
        if let Some(socket) = self.listeners.get_mut(heir) {
            self.half_open.give(key, heir, socket.settings.account);
            socket.half_open.insert(key);
        }
    }

    pub(super) fn drop_half_open(&mut self, key: SlotId) {
        if let Some(half_open) = self.half_open.remove(key) {
            self.table.remove(&half_open.tuple);
            if let Some(socket) = self.listeners.get_mut(half_open.listener) {
                socket.half_open.remove(&key);
            }
        }
    }

    pub(super) fn on_half_open_timeout(&mut self, now: Time, key: SlotId) {
        let Some(half_open) = self.half_open.get_mut(key) else {
            return;
        };
        let Some(socket) = self.listeners.get(half_open.listener) else {
            return self.drop_half_open(key);
        };
        let timeout = half_open.timeout(&socket.settings);
        if timeout > now {
            return self.half_open.wait(key, timeout); // its listener is set anew
        }
        let defer = socket.settings.defer_accept;
        if half_open.retries >= self.config.syn_ack_retries.max(defer) {
            return self.drop_half_open(key);
        }
        half_open.retries += 1;
        half_open.sent = now;
        let is_answered = !half_open.is_deferred || half_open.retries >= defer;
        half_open.resent += u8::from(is_answered);
        let half_open = *half_open;
        self.half_open.wait(key, half_open.timeout(&socket.settings));
        if is_answered {
            self.answer_again(now, &half_open);
        }
    }

    /// An acknowledgement for a listener: of a cookie, if any was given out, or of nothing.
    fn handle_cookie(
        &mut self,
        now: Time,
        listener: SlotId,
        tuple: Tuple,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        if !self.expects_cookie(now, listener, &arrival.repr) {
            // "Any acknowledgment is bad if it arrives on a connection still in the LISTEN state."
            return self.reply_reset(now, arrival);
        }
        let Some(size) = self.cookie_of(now, &tuple, &arrival.repr) else {
            self.counters.cookies_wrong += 1;
            return self.reply_reset(now, arrival);
        };
        self.counters.cookies_right += 1;
        let offset = self.timestamp_offset(&tuple);
        let half_open = from_cookie(arrival, size, tuple, listener, offset);
        self.open(now, None, &half_open, arrival, memory);
    }

    /// True if a segment with an acknowledgement may bring a cookie back to a listener.
    pub(super) fn expects_cookie(&self, now: Time, listener: SlotId, repr: &Repr) -> bool {
        self.listeners.cookies_until(listener) > now && !repr.flags.contains(Flags::SYN)
    }

    /// The segment size of the cookie that it brings, if it is one.
    pub(super) fn cookie_of(&self, now: Time, tuple: &Tuple, repr: &Repr) -> Option<u16> {
        let cookie = repr.acknowledgement.wrapping_sub(1);
        let peer_isn = repr.sequence.wrapping_sub(1);
        cookie::check(&self.secret, now, tuple, peer_isn, cookie)
    }

    /// A segment of a connection that is over.
    pub(super) fn handle_time_wait(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        let tuple = Tuple::new(arrival.to, arrival.from);
        let listener = self.listener_for(arrival.to, &tuple);
        let Some(entry) = self.time_waits.get_mut(key) else {
            return;
        };
        let socket = listener.and_then(|listener| self.listeners.get(listener));
        let has_room = socket.is_some_and(|socket| !socket.is_full());
        let verdict = entry.judge(now, arrival, has_room, self.config.is_time_wait_silent);
        match verdict {
            Verdict::Drop => {}
            Verdict::Acknowledge | Verdict::Restart => {
                let reply = entry.acknowledgement(now, arrival);
                if verdict == Verdict::Restart {
                    self.time_waits.restart(now, key);
                }
                self.answers.push(reply);
            }
            Verdict::Reuse => {
                let isn = self.end_time_wait(now, key, &tuple);
                if let Some(listener) = listener {
                    self.handle_syn(now, listener, tuple, arrival, Some(isn), memory);
                }
            }
        }
    }
}
