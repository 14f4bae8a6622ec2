//! Data before the handshake is over: TCP Fast Open (RFC 7413, section 4.2).
//!
//! ```text
//! connects   SYN with data ──▶ │ all of it acknowledged: it has arrived
//!                              │ else: it is sent as if it had never been
//! is early   SYN-RECEIVED with what the SYN has brought, and with what the app answers
//! ```

use core::ops::Range;

use clearway_base::{SlotId, Time};
use clearway_wire::tcp::{self, Flags, HEADER_LENGTH, HEADER_LENGTH_MAX};

use super::{Accepted, Arrival, Connection, Transmit, control};
use crate::ack::Due;
use crate::extent::Memory;
use crate::fast_open::{Outcome, Plan};
use crate::seq;
use crate::snd::Eagerness;
use crate::state::State;
use crate::timers::Timer;

/// What Fast Open has to do with a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// What the SYN says, or the SYN-ACK.
    option: Option<tcp::FastOpen>,
    /// How much data it may have.
    room: u32,
    /// It has left, and with data.
    was_sent: bool,
    had_data: bool,
    /// When it was answered: it had been sent again; all of its data was taken.
    was_resent: bool,
    is_taken: bool,
}

impl Attempt {
    const fn new(option: Option<tcp::FastOpen>, room: u32) -> Self {
        let (was_sent, had_data, was_resent, is_taken) = (false, false, false, false);
        Self { option, room, was_sent, had_data, was_resent, is_taken }
    }
}

/// What is left free in a SYN with data, as Linux does, whatever the options are: something on the
/// way may add some of its own.
const OPTIONS_MAX: u32 = (HEADER_LENGTH_MAX - HEADER_LENGTH) as u32;

impl Connection {
    /// Its SYN is to have what `plan` says.
    pub(crate) fn plan(&mut self, plan: &Plan) {
        let most = self.settings.segment_bytes_max;
        let mut size = self.size;
        size.agree(Some(plan.segment_bytes.unwrap_or(self.size.offer(None))), most, 0);
        let room = if plan.has_data { size.mss().saturating_sub(OPTIONS_MAX) } else { 0 };
        self.attempt = Some(Box::new(Attempt::new(plan.option, room)));
    }

    /// A connection whose peer's SYN has shown that it receives at its address: it is the app's at
    /// once. `option` is what the SYN-ACK says of it.
    pub(crate) fn accept_early(
        now: Time,
        accepted: &Accepted,
        option: Option<tcp::FastOpen>,
        window: u16,
        retries_max: u8,
    ) -> Self {
        let mut connection = Self::accept(now, accepted);
        let is_late = connection.settings.variants.late_syn_ack;
        let bytes = connection.size.bytes();
        connection.is_early = true;
        connection.syn_due = !is_late;
        connection.syn_sent = None;
        connection.attempt = Some(Box::new(Attempt::new(option, if is_late { bytes } else { 0 })));
        connection.retries_max = retries_max;
        connection.snd.open_early(seq::first(accepted.peer_isn), window);
        connection.control = control(&connection.settings, bytes as u16);
        connection.data_sent = now;
        connection
    }

    /// Takes the data of the SYN that has led to this. Its FIN, as none should have, comes again.
    pub(crate) fn take_syn_data(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        if arrival.payload_length == 0 {
            return;
        }
        let mut arrival = *arrival;
        arrival.repr.flags = arrival.repr.flags.without(Flags::FIN);
        self.handle_payload(now, key, self.rcv.next(), &arrival, memory);
        self.syn_had_data = self.rcv.next() > self.rcv.first();
    }

    /// How much more the SYN has room for, which has not left yet.
    pub(crate) fn syn_room(&self) -> u64 {
        let attempt = self.attempt.as_ref().filter(|attempt| !attempt.was_sent);
        attempt.map_or(0, |attempt| u64::from(attempt.room).saturating_sub(self.snd.unsent_bytes()))
    }

    /// One that was saved: what its SYN has said is not known any more.
    pub(super) fn restore_early(&mut self, is_early: bool, syn_had_data: bool) {
        (self.is_early, self.syn_had_data) = (is_early, syn_had_data);
        let nothing = Attempt { was_sent: true, ..Attempt::new(None, 0) };
        self.attempt = (is_early && self.state == State::SynReceived).then(|| Box::new(nothing));
    }

    /// True as long as its handshake is not over, and Fast Open has to do with it.
    pub(crate) const fn is_attempt(&self) -> bool {
        self.attempt.is_some() && matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// The handshake is over: what has become of the SYN of this end, whose answer `arrival` is.
    /// `None` if the peer was first, or if there is no connection.
    pub(crate) fn end_attempt(&mut self, arrival: &Arrival) -> Option<Outcome> {
        let attempt = self.attempt.take()?;
        (!self.is_early && self.state != State::Closed).then(|| Outcome {
            asked: attempt.option,
            had_data: attempt.had_data,
            is_taken: attempt.is_taken,
            was_resent: attempt.was_resent,
            answer: arrival.repr.options.fast_open(),
            segment_bytes: arrival.repr.options.maximum_segment_size,
        })
    }

    /// What its SYN says of Fast Open, or its SYN-ACK. A SYN that is sent again says nothing of it:
    /// it may have been lost because of that.
    pub(super) fn fast_open_option(&self) -> Option<tcp::FastOpen> {
        let is_said = match self.state {
            State::SynSent => self.retries == 0,
            _ => self.is_early,
        };
        self.attempt.as_ref().filter(|_| is_said)?.option
    }

    /// The data that leaves with a SYN: as much as there is room for, the first time.
    pub(super) fn syn_payload(&mut self) -> Range<u64> {
        let start = self.snd.first();
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| !attempt.was_sent) else {
            return start..start;
        };
        attempt.was_sent = true;
        let room = if self.retries == 0 { attempt.room } else { 0 };
        let end = start + self.snd.unsent_bytes().min(room.into());
        attempt.had_data = end > start;
        self.snd.on_sent(end, false);
        start..end
    }

    /// What leaves before the handshake is over.
    #[cold]
    pub(super) fn opening_segment(&mut self, now: Time, most: u32) -> Option<Transmit> {
        if self.syn_due || self.late_syn_ack_is_due() {
            return Some(self.syn_segment(now));
        }
        if self.is_early && self.state == State::SynReceived {
            return self.early_segment(now, most);
        }
        None
    }

    /// `Variants::late_syn_ack`
    fn late_syn_ack_is_due(&self) -> bool {
        let waits = self.is_early && self.attempt.as_ref().is_some_and(|it| !it.was_sent);
        waits && (self.ack.due() == Due::Now || self.snd.has_unsent())
    }

    /// Data of an app that has been asked early. RFC 7413, section 4.2.2, allows as much as after a
    /// handshake; only the SYN-ACK is sent again before that is over, and so a peer that does not
    /// answer has no more than an initial window from it.
    fn early_segment(&mut self, now: Time, most: u32) -> Option<Transmit> {
        let bytes = self.size.bytes();
        let room = self.window_bytes().saturating_sub(self.board.in_flight_bytes());
        let eagerness = Eagerness { no_delay: self.settings.no_delay, cork: self.settings.cork };
        let range = self.snd.next_range(bytes, most.max(bytes), room, eagerness)?;
        let of_syn_ack = self.timers.get(Timer::Retransmit);
        let next = self.first_time(now, range);
        self.timers.set(Timer::Retransmit, of_syn_ack);
        self.timers.stop(Timer::TailProbe);
        Some(self.segment(now, None, &next))
    }

    /// Where the peer's stream begins, behind its SYN, for a SYN that comes again.
    pub(super) const fn behind_syn(&self) -> u64 {
        if self.is_early { self.rcv.first() } else { self.rcv.next() }
    }

    /// The SYN is acknowledged, up to `ack`. What went with it and was not taken has never been
    /// sent.
    pub(super) fn take_back_syn_data(&mut self, ack: u64) {
        let next = self.snd.next();
        if let Some(attempt) = &mut self.attempt {
            attempt.was_resent = self.retries > 0;
            attempt.is_taken = ack == next;
        }
        if self.board.is_empty() && next > self.snd.first() {
            self.syn_had_data |= ack == next;
            self.snd.acknowledge(ack);
            self.snd.take_back();
        }
    }

    /// A router says that something was too long: a SYN leaves again, without its data.
    pub(super) fn on_syn_too_big(&mut self) {
        if self.state == State::SynSent && self.snd.next() > self.snd.first() {
            self.retries = self.retries.max(1);
            self.send_syn_again();
        }
    }
}
