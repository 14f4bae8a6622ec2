//! What a segment does: RFC 9293, section 3.10.7.4, in its order.

use clearway_base::{MILLISECOND, SlotId, Time};
use clearway_wire::tcp::Flags;

use super::{Arrival, Connection};
use crate::ack::Due;
use crate::event::{End, Readiness};
use crate::extent::Memory;
use crate::rcv::Received;
use crate::seq;
use crate::state::State;
use crate::timers::Timer;
use crate::timestamps::{Timestamps, is_before};

/// What is answered at once, besides what [`Connection::poll_transmit`] will give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing.
    Nothing,
    /// A reset, made of the segment alone.
    Reset,
}

impl Connection {
    /// A segment has come from the peer.
    #[inline]
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) -> Reply {
        self.counters.segments_received += 1;
        match self.state {
            State::SynSent => self.handle_syn_sent(now, key, arrival, memory),
            State::Closed | State::TimeWait => match arrival.repr.flags.contains(Flags::RST) {
                true => Reply::Nothing,
                false => Reply::Reset,
            },
            _ => self.handle_synchronized(now, key, arrival, memory),
        }
    }

    #[inline]
    fn handle_synchronized(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) -> Reply {
        let repr = &arrival.repr;
        let mut start = seq::position(self.rcv.next(), repr.sequence);
        let mut flags = repr.flags;
        if self.state == State::SynReceived && flags.contains(Flags::SYN) {
            // The other's SYN once more, or its SYN-ACK after a simultaneous open.
            if start + 1 != self.behind_syn() {
                return self.handle_other_syn(now);
            }
            if !flags.contains(Flags::ACK) {
                self.syn_due = true;
                self.ecn.on_asked_again(flags, arrival.ecn);
                return Reply::Nothing;
            }
            (start, flags) = (start + 1, flags.without(Flags::SYN));
        }
        if !self.is_recent(now, arrival) {
            return Reply::Nothing;
        }
        let length = arrival.length() - u64::from(flags != repr.flags);
        if !self.rcv.is_acceptable(start, length) {
            self.handle_unacceptable(now, arrival, flags, start);
            return Reply::Nothing;
        }
        if flags.intersects(Flags::RST | Flags::SYN) || !flags.contains(Flags::ACK) {
            self.handle_unusual(now, arrival, flags, start);
            return Reply::Nothing;
        }
        let ack = seq::position(self.snd.una(), repr.acknowledgement);
        if self.state == State::SynReceived {
            // "If SND.UNA < SEG.ACK =< SND.NXT, then enter ESTABLISHED state [...]. If the segment
            // acknowledgment is not acceptable, form a reset segment".
            if !(self.snd.first()..=self.snd.next()).contains(&ack) {
                return Reply::Reset;
            }
            // What was sent early in segments of its own is acknowledged below, as always.
            let of_syn = if self.board.is_empty() { ack } else { self.snd.first() };
            self.establish(now, repr, of_syn);
            self.on_syn_ack_answered(arrival);
            self.take_held(now);
        }
        // RFC 5961, section 5.2: "The ACK value is considered acceptable only if it is in the range
        // of ((SND.UNA - MAX.SND.WND) <= SEG.ACK <= SND.NXT). All incoming segments whose ACK value
        // doesn't satisfy the above condition MUST be discarded and an ACK sent back." What stands
        // before the SYN was never sent, however large the window.
        if ack > self.snd.next()
            || ack + self.snd.window_max() < self.snd.una()
            || ack + 1 < self.snd.first()
        {
            self.challenge(now);
            return Reply::Nothing;
        }
        if self.ecn.is_accurate() {
            self.count_marks(arrival, start, ack);
        }
        if let (Some(timestamps), Some(option)) = (&mut self.timestamps, repr.options.timestamps)
            && start <= self.acknowledged
        {
            timestamps.update(now, option.value);
        }
        self.last_heard = now;
        self.keep_alive_probes = 0;
        if self.handle_ack(now, arrival, start, ack) == After::Gone {
            return Reply::Nothing;
        }
        if length > 0 {
            return self.handle_data(now, key, start, arrival, memory);
        }
        self.ecn.on_bare(arrival.ecn, flags, self.settings.variants.lax_ecn);
        Reply::Nothing
    }

    /// The first acknowledgement of this end's SYN-ACK may say how that came.
    fn on_syn_ack_answered(&mut self, arrival: &Arrival) {
        let repr = &arrival.repr;
        let is_bare = arrival.length() == 0 && repr.options.sack().is_empty();
        let variants = &self.settings.variants;
        let sent = (!variants.untested_ecn).then(|| variants.capable.of_syn_ack());
        self.ecn.on_answered(repr, is_bare, sent, !variants.draft_accurate_ecn);
    }

    /// RFC 9768, section 3.2: each packet counts. What has no data is answered if it tells of much,
    /// and then without blocks, so that nobody takes the answer for a duplicate (3.2.2.5.1).
    #[cold]
    fn count_marks(&mut self, arrival: &Arrival, start: u64, ack: u64) {
        let options = &arrival.repr.options;
        let recent = self.timestamps.as_ref().map(Timestamps::recent);
        let is_later = recent.zip(options.timestamps).is_some_and(|(recent, option)| {
            start <= self.acknowledged && is_before(recent, option.value)
        });
        let is_to_be_told = self.ecn.on_arrival(arrival.ecn, arrival.payload_length, is_later);
        if is_to_be_told && !(self.sack && self.rcv.has_blocks()) {
            self.ack.demand();
        }
        if ack == self.snd.una() && self.board.is_empty() {
            self.ecn.on_idle_ack(&arrival.repr, &self.acknowledged(ack, 0));
        }
    }

    /// RFC 7323, section 5.3, R1: "If there is a Timestamps option in the arriving segment,
    /// SEG.TSval < TS.Recent, TS.Recent is valid [...], and if the RST bit is not set, then treat
    /// the arriving segment as not acceptable". 3.2: "If a non-<RST> segment is received without a
    /// TSopt, a TCP SHOULD silently drop the segment."
    #[inline]
    fn is_recent(&mut self, now: Time, arrival: &Arrival) -> bool {
        let Some(timestamps) = &self.timestamps else {
            return true;
        };
        if arrival.repr.flags.contains(Flags::RST) {
            return true;
        }
        match arrival.repr.options.timestamps {
            Some(option) if !timestamps.is_old(now, option.value) => true,
            Some(_) => {
                let start = seq::position(self.rcv.next(), arrival.repr.sequence);
                let flags = arrival.repr.flags;
                self.acknowledge_unacceptable(now, flags, start, arrival.length());
                false
            }
            None => self.settings.variants.missing_timestamps,
        }
    }

    /// "If an incoming segment is not acceptable, an acknowledgment should be sent in reply (unless
    /// the RST bit is set, if so drop the segment and return)". RFC 5961 has a challenge for resets
    /// in the window, which may be larger than what the peer has been told.
    #[cold]
    fn handle_unacceptable(&mut self, now: Time, arrival: &Arrival, flags: Flags, start: u64) {
        if flags.intersects(Flags::RST | Flags::SYN) {
            return self.handle_unusual(now, arrival, flags, start);
        }
        let length = arrival.length() - u64::from(flags != arrival.repr.flags);
        if self.ecn.is_accurate() && length > 0 {
            self.on_data_again(arrival, start + length);
        }
        self.acknowledge_unacceptable(now, flags, start, length);
    }

    /// Data that ends at `end` was acknowledged, and has come again. It counts nevertheless (RFC
    /// 9768, section 3.2), if it is what was acknowledged last.
    fn on_data_again(&mut self, arrival: &Arrival, end: u64) {
        if end == self.acknowledged {
            self.ecn.on_arrival(arrival.ecn, arrival.payload_length, false);
        }
        self.ecn.on_data_again();
    }

    fn acknowledge_unacceptable(&mut self, now: Time, flags: Flags, start: u64, length: u64) {
        // RFC 2883 is about data: a SYN is challenged, and nothing more is said of it.
        if self.sack && !flags.contains(Flags::SYN) {
            self.rcv.note_old(start, length);
        }
        // Data is most often sent again for want of an acknowledgement. What has no length is
        // answered as rarely as a challenge, so that two ends never answer each other for ever; and
        // so is a SYN, whose answer is one (RFC 5961, section 4.2).
        if length > 0 && !flags.contains(Flags::SYN) {
            self.ack.demand();
        } else {
            self.challenge(now);
        }
    }

    /// An acknowledgement that says where this end stands, to a segment that may be an attacker's.
    pub(super) fn challenge(&mut self, now: Time) {
        if self.challenges.allow(now) {
            self.ack.demand();
        }
    }

    /// A reset or a SYN; or within the window, but without an acknowledgement.
    #[cold]
    fn handle_unusual(&mut self, now: Time, arrival: &Arrival, flags: Flags, start: u64) {
        if flags.contains(Flags::RST) {
            return self.handle_reset(now, start);
        }
        if flags.contains(Flags::SYN) {
            if self.settings.variants.syn_in_window && self.rcv.is_in_window(start) {
                self.reset_due = true;
                return self.finish(End::Reset);
            }
            if flags.contains(Flags::ACK) && start + 1 == self.rcv.first() {
                self.ecn.on_answer_again(arrival.ecn);
            }
            // RFC 5961, section 4.2: "If the SYN bit is set, irrespective of the sequence number,
            // TCP MUST send an ACK (also referred to as challenge ACK) to the remote peer".
            self.challenge(now);
        }
        // "if the ACK bit is off, drop the segment and return"
    }

    /// RFC 5961, section 3.2: only if "the RST bit is set and the sequence number exactly matches
    /// the next expected sequence number (RCV.NXT)"; if it is merely in the window, a challenge
    /// ACK.
    fn handle_reset(&mut self, now: Time, start: u64) {
        if !self.rcv.is_in_window(start) {
            return;
        }
        if start != self.rcv.next() && !self.settings.variants.reset_in_window {
            return self.challenge(now);
        }
        self.finish(match self.state {
            State::SynReceived if !self.is_early => End::Refused,
            _ => End::Reset,
        });
    }

    /// A SYN in SYN-RECEIVED that is not the one that led to it.
    #[cold]
    fn handle_other_syn(&mut self, now: Time) -> Reply {
        self.challenge(now);
        Reply::Nothing
    }

    #[inline]
    fn handle_data(
        &mut self,
        now: Time,
        key: SlotId,
        start: u64,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) -> Reply {
        if !self.state.receives() {
            // The peer's FIN has come; RFC 9293: "This should not occur since a FIN has been
            // received from the remote side. Ignore the segment text." It may be the FIN again.
            if arrival.repr.flags.contains(Flags::FIN) {
                self.ack.demand();
            }
            return Reply::Nothing;
        }
        let end = start + u64::from(arrival.payload_length);
        if self.is_closed && arrival.payload_length > 0 && end > self.rcv.next() {
            // RFC 9293, section 3.6.1: data comes that nobody will read.
            self.finish(End::Aborted);
            return Reply::Reset;
        }
        self.handle_payload(now, key, start, arrival, memory);
        Reply::Nothing
    }

    /// Takes data and FIN, which begin at `start`.
    #[inline]
    pub(super) fn handle_payload(
        &mut self,
        now: Time,
        key: SlotId,
        start: u64,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        let flags = arrival.repr.flags;
        let has_fin = flags.contains(Flags::FIN);
        let received = self.rcv.handle(key, start, arrival.payload_length, has_fin, memory);
        let is_marked = self.ecn.on_data(arrival.ecn, flags);
        self.on_received(now, &received, arrival.payload_length, is_marked);
    }

    /// What came with the peer's SYN before this end's was acknowledged.
    #[cold]
    fn take_held(&mut self, now: Time) {
        let received = self.rcv.take_held();
        if received.advanced > 0 {
            self.on_received(now, &received, received.advanced as u32, false);
        } else if received.is_finished {
            self.handle_fin(); // it is acknowledged: `Variants::fin_with_syn`
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time, received: &Received, length: u32, is_marked: bool) {
        if received.advanced > 0 {
            self.readiness |= Readiness::READABLE;
            self.rcv.tune(now, self.rto.smoothed_ns().unwrap_or(ROUND_TRIP_NS));
        }
        self.ack.on_data(length, received.is_urgent || is_marked);
        if received.is_finished {
            self.handle_fin();
        }
        if self.ack.due() == Due::Later && !self.timers.is_set(Timer::AckDelay) {
            self.timers.set(Timer::AckDelay, now + self.settings.ack_delay_ns);
        }
    }

    /// The peer has sent all.
    fn handle_fin(&mut self) {
        self.readiness |= Readiness::FINISHED | Readiness::READABLE;
        match self.state {
            State::SynReceived | State::Established => self.state = State::CloseWait,
            State::FinWait1 => {
                self.state = State::Closing;
                if self.settings.variants.fin_again {
                    self.board.mark_first_lost();
                    self.recovery.free_lost = 1;
                }
            }
            State::FinWait2 => self.enter_time_wait(),
            _ => {}
        }
    }
}

/// What a round trip is taken for that nobody has measured.
const ROUND_TRIP_NS: u64 = 100 * MILLISECOND;

/// What has become of a connection by an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It goes on.
    Alive,
    /// The last thing that there was to acknowledge is.
    Gone,
}
