//! A connection as plain data, and back.

use clearway_base::{SECOND, Time};
use clearway_congestion::{CongestionControl, Pacer};
use clearway_wire::tcp::Options;

use super::{Connection, control};
use crate::ecn::EcnState;
use crate::event::Readiness;
use crate::mtu::SegmentSize;
use crate::rcv::Receive;
use crate::rto::Rto;
use crate::saved::{Invalid, SavedAgreement, SavedConnection, ensure};
use crate::scoreboard::Scoreboard;
use crate::snd::Send;
use crate::state::State;
use crate::timers::Timer;
use crate::timestamps::Timestamps;

/// No timeout is longer.
const DEADLINE_NS_MAX: u64 = 600 * SECOND;
/// No SYN has more data.
const WITH_SYN_MAX: u64 = u16::MAX as u64;
/// No congestion control lets more be in flight.
const OUTSTANDING_MAX: u64 = 128 << 20;

impl Connection {
    pub(crate) fn save(&self) -> SavedConnection {
        let (mtus, segment_bytes) = self.size.save();
        let deadline = |timer| self.timers.is_set(timer).then(|| self.timers.get(timer));
        SavedConnection {
            is_offered: false,
            is_forgotten: false,
            ends: (self.local, self.remote),
            state: self.state,
            end: self.end,
            soft_error: self.soft_error,
            settings: self.settings,
            is_closed: self.is_closed,
            reset_due: self.reset_due,
            is_early: self.is_early,
            syn_had_data: self.syn_had_data,
            readiness: self.readiness.bits(),
            agreed: SavedAgreement {
                mtus,
                segment_bytes,
                scales: self.scales.then(|| (self.snd.scale(), self.rcv.scale())),
                sack: self.sack,
                ecn: self.ecn.save(),
                timestamps: self.timestamps.as_ref().map(Timestamps::save),
                timestamp_offset: self.timestamp_offset,
            },
            snd: self.snd.save(),
            rcv: self.rcv.save(self.acknowledged),
            rtt_ns: (self.rto.smoothed_ns().unwrap_or(0), self.rto.variation_ns()),
            window_bytes: self.control.window_bytes(),
            // A SYN counts as sent again.
            retries: if is_opening(self.state) { self.retries.max(1) } else { self.retries },
            doublings: self.rto.doublings(),
            last_heard: self.last_heard,
            stalled_since: self.stalled_since,
            keep_alive_probes: self.keep_alive_probes,
            retransmit: deadline(Timer::Retransmit)
                .or(deadline(Timer::Persist))
                .or_else(|| self.retransmit_instead()),
            keep_alive: deadline(Timer::KeepAlive),
            fin_wait: deadline(Timer::Close),
        }
    }

    /// When what is outstanding would be sent again if something else were not to happen before: a
    /// probe, or that it counts as lost.
    fn retransmit_instead(&self) -> Option<Time> {
        let is_outstanding = self.state.is_synchronized() && !self.board.is_empty();
        is_outstanding.then(|| self.data_sent + self.rto.timeout_ns(&self.settings))
    }

    /// A connection that goes on at `now`. The first that it sends is an acknowledgement, or its
    /// SYN.
    pub(crate) fn restore(now: Time, saved: SavedConnection) -> Result<Self, Invalid> {
        let (local, remote) = saved.ends;
        let agreed = saved.agreed;
        ensure(local.is_ipv4() == remote.is_ipv4(), "two families of addresses")?;
        let (snd_scale, rcv_scale) = agreed.scales.unwrap_or((0, 0));
        ensure(snd_scale <= 14 && rcv_scale <= 14, "a window is shifted by more than 14")?;
        let snd = Send::restore(saved.snd, snd_scale, saved.state == State::Closed)?;
        let acknowledged = saved.rcv.acknowledged;
        let rcv = Receive::restore(saved.rcv, &saved.settings, rcv_scale)?;
        check_state(saved.state, saved.is_early, &snd, &rcv)?;
        let mut it = Self::new(local, remote, saved.settings, snd, rcv, agreed.mtus.0);
        it.state = saved.state;
        it.end = saved.end;
        it.soft_error = saved.soft_error;
        it.is_closed = saved.is_closed;
        it.reset_due = saved.reset_due;
        it.restore_early(saved.is_early, saved.syn_had_data);
        it.readiness = Readiness::from_bits(saved.readiness);
        it.agree_again(now, agreed)?;
        it.acknowledged = acknowledged;
        it.retries = saved.retries;
        it.last_heard = saved.last_heard.min(now);
        it.stalled_since = saved.stalled_since.map(|since| since.min(now));
        it.keep_alive_probes = saved.keep_alive_probes;
        it.data_sent = now;
        it.rto = Rto::restore(saved.rtt_ns, saved.doublings, &it.settings);
        it.control = control(&it.settings, it.size.bytes() as u16);
        it.control.resume(saved.window_bytes);
        it.pacer = Pacer::new(now, it.size.bytes() as u16);
        it.go_on(now, saved.retransmit.is_some());
        it.keep_deadline(now, saved.retransmit);
        if it.state.is_synchronized() && !it.state.is_over() {
            it.search_later(now);
        }
        for (timer, deadline) in
            [(Timer::KeepAlive, saved.keep_alive), (Timer::Close, saved.fin_wait)]
        {
            if let Some(deadline) = deadline.filter(|_| it.state != State::Closed) {
                it.timers.set(timer, deadline);
            }
        }
        Ok(it)
    }

    fn agree_again(&mut self, now: Time, agreed: SavedAgreement) -> Result<(), Invalid> {
        self.scales = agreed.scales.is_some();
        self.sack = agreed.sack;
        self.ecn = EcnState::restore(&agreed.ecn)?;
        self.timestamps = agreed.timestamps.map(Timestamps::restore);
        self.timestamp_offset = agreed.timestamp_offset;
        let timestamps = self.timestamps.as_ref().map(|timestamps| timestamps.option(now));
        let every = Options { timestamps, ..Options::default() };
        let remote = self.remote.ip();
        self.size = SegmentSize::restore(remote, agreed.mtus, agreed.segment_bytes, every.length());
        Ok(())
    }

    /// What was outstanding is so still, as a SYN is that has a deadline; what was about to be sent
    /// is sent now.
    fn go_on(&mut self, now: Time, has_deadline: bool) {
        match self.state {
            State::SynSent | State::SynReceived => {
                self.retries_max = self.settings.syn_retries;
                // It was sent before, nobody knows when (Karn).
                self.retries = self.retries.max(1);
                self.syn_due = !has_deadline;
                self.board = self.restore_board(now);
            }
            State::Closed | State::TimeWait => {}
            _ => {
                self.board = self.restore_board(now);
                if !self.board.is_empty() {
                    self.stalled_since.get_or_insert(now);
                    self.timers.set(Timer::Retransmit, now + self.rto.timeout_ns(&self.settings));
                }
                self.ack.demand();
            }
        }
    }

    /// What was sent and is not acknowledged; but what has gone with a SYN, and is not acknowledged
    /// with that, counts as not sent.
    fn restore_board(&self, now: Time) -> Scoreboard {
        let begin = match is_opening(self.state) {
            true if self.is_early => self.snd.first(),
            true => self.snd.next(),
            false => self.snd.una(),
        };
        Scoreboard::restore(now, begin..self.snd.next(), u64::from(self.size.bytes()))
    }

    /// What was to happen at `deadline`, if nothing was heard until then, does not wait for longer
    /// because of a restore: many, one after another, would put it off for ever.
    fn keep_deadline(&mut self, now: Time, deadline: Option<Time>) {
        let is_opening = is_opening(self.state);
        let Some(deadline) = deadline.filter(|_| is_opening || self.state.sends()) else {
            return;
        };
        let is_outstanding = is_opening || !self.board.is_empty();
        let timer = if is_outstanding { Timer::Retransmit } else { Timer::Persist };
        self.timers.set(timer, deadline.min(now + DEADLINE_NS_MAX));
    }
}

const fn is_opening(state: State) -> bool {
    matches!(state, State::SynSent | State::SynReceived)
}

/// Holds a state against what has been sent and received.
fn check_state(state: State, is_early: bool, snd: &Send, rcv: &Receive) -> Result<(), Invalid> {
    let is_opening = is_opening(state);
    let is_over = matches!(state, State::Closed | State::TimeWait);
    ensure(snd.next() - snd.una() <= OUTSTANDING_MAX, "too much is outstanding")?;
    let is_open = snd.una() >= snd.first();
    ensure(is_over || is_open != is_opening, "a handshake is neither over nor not")?;
    let with_syn = snd.next() - snd.first().min(snd.next());
    let may_be_sent = is_early || with_syn <= WITH_SYN_MAX;
    ensure(!is_opening || may_be_sent, "too much was sent before the handshake was over")?;
    let fin_sent = is_open && snd.is_finished();
    let fin_acknowledged = snd.is_fin_acknowledged();
    let is_so = match state {
        State::Established => !fin_sent && !rcv.is_finished(),
        State::FinWait1 => fin_sent && !fin_acknowledged && !rcv.is_finished(),
        State::FinWait2 => fin_acknowledged && !rcv.is_finished(),
        State::CloseWait => !fin_sent && rcv.is_finished(),
        State::Closing | State::LastAck => fin_sent && !fin_acknowledged && rcv.is_finished(),
        State::SynSent | State::SynReceived => !rcv.is_finished(),
        State::TimeWait | State::Closed => true,
    };
    ensure(is_so, "a state is not that of what was sent and received")
}
