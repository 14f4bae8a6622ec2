//! What an acknowledgement does: it frees what was sent, measures the path, finds what is lost, and
//! says how much more may be sent.

use core::ops::Range;

use clearway_base::Time;
use clearway_congestion::{AckSample, CongestionControl};
use clearway_wire::tcp::Flags;

use super::receive::After;
use super::{Arrival, Connection, Probe};
use crate::ecn::Acknowledged;
use crate::event::Readiness;
use crate::prr::PrrAck;
use crate::rack::Window;
use crate::recovery::Phase;
use crate::scoreboard::{Delivered, Lost};
use crate::seq;
use crate::state::State;
use crate::timers::Timer;
use crate::{frto, tlp};

/// RFC 5681, section 3.2: "the arrival of 3 duplicate ACKs" of a peer without SACK.
const DUPLICATES: u32 = 3;

/// One acknowledgement, on its way through this file.
struct Ack {
    now: Time,
    ack: u64,
    advances: bool,
    /// What was in flight before it came.
    in_flight_before: u64,
    delivered: Delivered,
    /// It reports something that has come twice (RFC 2883).
    has_duplicate: bool,
    /// It carries nothing but an acknowledgement of what was acknowledged already.
    is_bare: bool,
    /// It says that a packet was marked.
    marked: bool,
}

impl Connection {
    /// Takes the acknowledgement `ack`, which is not of what has not been sent, of a segment at
    /// `start`. One that is late may still say what has arrived: RFC 6675, section 5, "upon the
    /// receipt of any ACK containing SACK information, the scoreboard MUST be updated".
    #[inline]
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        arrival: &Arrival,
        start: u64,
        ack: u64,
    ) -> After {
        let repr = &arrival.repr;
        let una = self.snd.una();
        let window_changed = ack >= una && self.update_window(now, arrival, start, ack);
        if self.settings.variants.empty_window_probes {
            self.put_off_window_probe(now);
        }
        let sacks = self.sack && !repr.options.sack().is_empty();
        if !sacks && (ack < una || self.board.is_empty()) {
            return After::Alive; // nothing that is not known
        }
        let is_bare = ack == una && arrival.length() == 0 && !window_changed;
        let mut seen = Ack {
            now,
            ack: ack.max(una),
            advances: ack > una,
            in_flight_before: self.board.in_flight_bytes(),
            delivered: Delivered::new(now, self.rto.min_ns()),
            has_duplicate: false,
            is_bare: is_bare && !sacks,
            marked: false,
        };
        if sacks {
            seen.has_duplicate = self.take_duplicate(arrival.repr.options.sack(), ack);
        }
        if seen.advances {
            self.advance(&mut seen);
        }
        if sacks {
            self.take_blocks(arrival.repr.options.sack(), &mut seen);
        }
        if is_bare && !self.sack && self.snd.window() > 0 && !self.board.is_empty() {
            self.recovery.duplicates += 1;
        }
        self.measure(&seen, arrival);
        if self.ecn.is_agreed() && ack >= una {
            let acknowledged = self.acknowledged(ack, seen.delivered.bytes);
            seen.marked = self.ecn.on_ack(repr, &acknowledged);
        }
        self.recover(&mut seen, arrival);
        self.control_window(&seen);
        self.set_timers(now, seen.advances);
        self.after_ack(now)
    }

    pub(super) fn acknowledged(&self, una: u64, bytes: u64) -> Acknowledged {
        let (next, segment_bytes) = (self.snd.next(), self.size.bytes());
        Acknowledged { una, next, bytes, segment_bytes }
    }

    fn update_window(&mut self, now: Time, arrival: &Arrival, start: u64, ack: u64) -> bool {
        let is_syn = arrival.repr.flags.contains(Flags::SYN);
        let changed = self.snd.update_window(start, ack, arrival.repr.window, !is_syn);
        if changed && self.snd.window() > 0 && self.timers.is_set(Timer::Persist) {
            self.end_persist(now, ack);
        }
        changed
    }

    /// The answer to a window probe begins the interval to the next.
    fn put_off_window_probe(&mut self, now: Time) {
        if self.timers.is_set(Timer::Persist) {
            let deadline = self.before_giving_up(now + self.rto.timeout_ns(&self.settings));
            self.timers.set(Timer::Persist, deadline);
        }
    }

    /// The window is open again. A probe that was not acknowledged was not taken: it is as if it
    /// had not been sent.
    fn end_persist(&mut self, now: Time, ack: u64) {
        self.timers.stop(Timer::Persist);
        self.rto.on_progress();
        self.retries = 0;
        if ack == self.snd.una() && self.board.segments() == 1 {
            self.board.clear();
            self.snd.take_back();
        }
        self.stalled_since = (!self.board.is_empty()).then_some(now);
        self.probe = self.probe.filter(|probe| *probe != Probe::Window);
    }

    #[inline]
    fn advance(&mut self, seen: &mut Ack) {
        self.board.acknowledge(seen.ack, &mut seen.delivered, &mut self.rack);
        self.snd.acknowledge(seen.ack);
        self.rto.on_progress();
        self.retries = 0;
        self.soft_error = None;
        if self.timers.is_set(Timer::Persist) {
            let deadline = seen.now + self.rto.timeout_ns(&self.settings);
            self.timers.set(Timer::Persist, deadline);
        }
        self.stalled_since = (!self.board.is_empty()).then_some(seen.now);
        if self.snd.has_acknowledged() {
            self.readiness |= Readiness::WRITABLE;
        }
    }

    /// RFC 2883, section 4: a first block below the acknowledgement, or within the second block, is
    /// of something that has come twice.
    fn take_duplicate(&mut self, blocks: &[(u32, u32)], ack: u64) -> bool {
        let first = self.block(blocks[0]);
        let is_old = first.end <= ack;
        let is_inside = blocks.get(1).is_some_and(|second| {
            let second = self.block(*second);
            second.start <= first.start && first.end <= second.end
        });
        let is_duplicate = first.start < first.end && (is_old || is_inside);
        if is_duplicate {
            self.rack.on_duplicate(self.snd.next(), ack);
            if self.recovery.on_duplicate(&first) {
                self.on_spurious();
            }
        }
        is_duplicate
    }

    fn block(&self, (left, right): (u32, u32)) -> Range<u64> {
        let start = seq::position(self.snd.una(), left);
        start..seq::position(start, right)
    }

    /// Blocks of what is outstanding; what is not is a lie, or old. So is one that says that the
    /// first byte has arrived that is not acknowledged.
    fn take_blocks(&mut self, blocks: &[(u32, u32)], seen: &mut Ack) {
        for block in blocks {
            let range = self.block(*block);
            if range.start > self.snd.una()
                && range.start < range.end
                && range.end <= self.snd.next()
            {
                self.board.sack(&range, &mut seen.delivered, &mut self.rack);
            }
        }
    }

    /// A round-trip time, of what was sent once (Karn), or by the timestamp that is echoed. Behind
    /// what was sent again it would be the time until that was repaired.
    #[inline]
    fn measure(&mut self, seen: &Ack, arrival: &Arrival) {
        if !seen.advances {
            return;
        }
        let echo = arrival.repr.options.timestamps.map_or(0, |option| option.echo);
        let by_echo = || self.timestamps.as_ref()?.age_ns(seen.now, echo);
        let oldest = seen.delivered.oldest.filter(|_| !seen.delivered.has_resent);
        let by_record = oldest.map(|sent| seen.now.since(sent));
        if let Some(rtt_ns) = by_record.or_else(by_echo) {
            self.rto.sample(seen.now, rtt_ns, &self.settings);
        }
    }

    /// Finds what is lost, and begins or ends what is done about it.
    #[inline]
    fn recover(&mut self, seen: &mut Ack, arrival: &Arrival) {
        if self.recovery.is_open()
            && self.board.sacked_bytes() == 0
            && self.recovery.duplicates == 0
            && !self.tail.is_outstanding()
        {
            return; // the common case
        }
        self.judge_tail_probe(seen);
        if seen.advances && self.ends_recovery(seen, arrival) {
            return;
        }
        self.judge_timeout(seen);
        let lost = self.find_lost(seen);
        if lost.bytes > 0 {
            self.on_lost(seen.now, &lost, seen.delivered.bytes);
        }
        if self.recovery.phase() == Phase::Fast {
            self.reduce(seen, lost.bytes == 0);
        }
    }

    fn judge_tail_probe(&mut self, seen: &Ack) {
        if self.tail.on_ack(seen.ack, seen.has_duplicate, seen.is_bare) == tlp::Verdict::Repaired {
            self.reduce_window(seen.now, self.size.bytes().into(), seen.in_flight_before);
            self.ecn.on_reduced(self.snd.next());
        }
    }

    /// True if recovery is over, because all is acknowledged or because nothing was lost, and there
    /// is nothing more to be found. What was sent during it may have holes of its own, of which no
    /// other acknowledgement may tell.
    fn ends_recovery(&mut self, seen: &Ack, arrival: &Arrival) -> bool {
        let echo = arrival.repr.options.timestamps.map_or(0, |option| option.echo);
        let is_spurious = !self.recovery.is_open()
            && self.timestamps.is_some()
            && self.recovery.is_of_the_original(echo);
        if is_spurious {
            self.on_spurious();
            return true;
        }
        if self.recovery.is_open() || seen.ack < self.recovery.point() {
            if !self.sack && self.recovery.is_open() {
                self.recovery.duplicates = 0;
            }
            return false;
        }
        self.rack.on_recovered();
        self.control_before = None;
        self.recovery.end();
        self.board.sacked_bytes() == 0
    }

    fn on_spurious(&mut self) {
        match self.control_before.take() {
            Some(before) => self.control = *before,
            None => self.control.on_spurious_loss(),
        }
        self.board.forget_lost();
        self.recovery.undo();
    }

    /// F-RTO: what the acknowledgements after a timeout say about it.
    fn judge_timeout(&mut self, seen: &Ack) {
        let verdict = self.recovery.frto.on_ack(&frto::Seen {
            is_silent: !seen.advances && !seen.is_bare && seen.delivered.bytes == 0,
            advances: seen.advances,
            is_all: seen.ack >= self.recovery.point(),
            has_original: seen.delivered.first_end <= self.recovery.point(),
            has_new_data: self.snd.has_unsent() && self.snd.open() > 0,
        });
        match verdict {
            frto::Verdict::Wait => {}
            frto::Verdict::SendNew => self.recovery.free_new = 2,
            frto::Verdict::Spurious => self.on_spurious(),
            frto::Verdict::Lost => self.board.mark_lost_before(self.recovery.point()),
        }
    }

    fn find_lost(&mut self, seen: &Ack) -> Lost {
        if !self.sack {
            return self.find_lost_by_duplicates(seen);
        }
        let lost = self.board.detect_lost(seen.now, &self.rack, &self.rack_window());
        self.timers.set(Timer::Reorder, lost.next.unwrap_or(Time::MAX));
        lost
    }

    /// RFC 6582: the third duplicate says that the first segment is lost, and in recovery so does
    /// every acknowledgement of a part.
    fn find_lost_by_duplicates(&mut self, seen: &Ack) -> Lost {
        let is_third = self.recovery.is_open()
            && self.recovery.duplicates == DUPLICATES
            && seen.ack > self.recovery.point();
        let is_partial = self.recovery.phase() == Phase::Fast && seen.advances;
        if is_third || is_partial {
            return self.board.mark_first_lost();
        }
        Lost::default()
    }

    pub(super) fn rack_window(&self) -> Window {
        Window {
            is_recovering: !self.recovery.is_open(),
            sacked_bytes: self.board.sacked_bytes(),
            segment_bytes: self.size.bytes().into(),
            smoothed_ns: self.rto.smoothed_ns().unwrap_or(0),
            min_rtt_ns: self.rto.min_ns(),
        }
    }

    /// Segments have been found to be lost, by an acknowledgement that says that `delivered_bytes`
    /// have arrived.
    pub(super) fn on_lost(&mut self, now: Time, lost: &Lost, delivered_bytes: u64) {
        self.timers.stop(Timer::TailProbe);
        self.tail.clear();
        if self.is_lost_probe(lost) || !self.recovery.is_open() {
            return;
        }
        let begun_bytes = self.board.in_flight_bytes() + lost.bytes + delivered_bytes;
        self.recovery.begin_fast(self.snd.next(), begun_bytes);
        self.recovery.window_bytes = self.board.in_flight_bytes();
        self.reduce_window(now, lost.bytes, begun_bytes);
        self.ecn.on_reduced(self.snd.next());
    }

    /// RFC 6937.
    fn reduce(&mut self, seen: &Ack, nothing_lost: bool) {
        let segment_bytes = u64::from(self.size.bytes());
        let by_duplicate = if !self.sack && seen.is_bare { segment_bytes } else { 0 };
        let delivered_bytes = seen.delivered.bytes + by_duplicate;
        if delivered_bytes == 0 {
            return;
        }
        let in_flight_bytes = self.in_flight_bytes();
        let more = self.recovery.prr.on_ack(&PrrAck {
            delivered_bytes,
            in_flight_bytes,
            threshold_bytes: self.control.window_bytes(),
            segment_bytes,
            is_safe: nothing_lost && seen.advances,
        });
        self.recovery.window_bytes = in_flight_bytes + more;
    }

    /// What is in the network; each duplicate acknowledgement of a peer without SACK says that one
    /// segment less is (RFC 5681, section 3.2, steps 3 and 4, and RFC 3042).
    #[inline]
    pub(super) fn in_flight_bytes(&self) -> u64 {
        let arrived = u64::from(self.recovery.duplicates) * u64::from(self.size.bytes());
        self.board.in_flight_bytes().saturating_sub(arrived)
    }

    #[inline]
    fn control_window(&mut self, seen: &Ack) {
        if seen.delivered.bytes == 0 && !seen.marked {
            return;
        }
        if self.recovery.phase() == Phase::Fast && !seen.marked {
            return; // RFC 6937 has the window
        }
        let used_bytes = self.validate_window(seen.now, seen.delivered.bytes);
        let latest_ns = seen.delivered.newest.map(|sent| seen.now.since(sent));
        self.control.on_ack(&AckSample {
            now: seen.now,
            sent: seen.delivered.last_sent,
            acked_bytes: seen.delivered.bytes,
            packet_bytes: seen.delivered.bytes.min(self.size.bytes().into()) as u32,
            rtt_ns: latest_ns.unwrap_or(self.rto.latest_ns()),
            smoothed_rtt_ns: self.rto.smoothed_ns().unwrap_or(0),
            min_rtt_ns: self.rto.min_ns(),
            // RFC 5681, section 3.1: for "each ACK received that cumulatively acknowledges new
            // data".
            window_limited: seen.advances && self.was_window_limited(seen),
            marked: seen.marked,
        });
        if seen.marked {
            self.recovery.confirm();
            self.reduce_to_used(used_bytes, seen.in_flight_before);
        }
    }

    /// RFC 9438, section 4.2, and RFC 7661: a window that was not filled says nothing about what
    /// the path takes. In slow start half of it will do, as RFC 7661, section 4.1, has it ("pipeACK
    /// >= (1/2)*cwnd") and Linux.
    fn was_window_limited(&self, seen: &Ack) -> bool {
        let bytes = u64::from(self.size.bytes());
        let window = self.control.window_bytes();
        let is_slow_start =
            self.control.slow_start_threshold_bytes().is_none_or(|threshold| window < threshold);
        seen.ack <= self.window_filled
            || seen.in_flight_before + bytes > window
            || is_slow_start && window < 2 * self.flight.bytes_max
    }

    /// RFC 6298, 5.2 and 5.3; RFC 8985, 7.2.
    #[inline]
    pub(super) fn set_timers(&mut self, now: Time, advances: bool) {
        if self.board.is_empty() {
            for timer in [Timer::Retransmit, Timer::TailProbe, Timer::Reorder] {
                self.timers.stop(timer);
            }
            return;
        }
        if self.timers.is_set(Timer::Persist) {
            return; // what is outstanding is a probe
        }
        if advances || !self.timers.is_set(Timer::Retransmit) {
            self.timers.set(Timer::Retransmit, now + self.rto.timeout_ns(&self.settings));
        }
        // RFC 8985, section 7.2: put off by what "cumulatively acknowledges data", not by others.
        if advances || !self.timers.is_set(Timer::TailProbe) || !self.may_probe_tail() {
            self.set_tail_probe(now);
        }
    }

    /// "A sender should schedule a PTO [...] The connection supports SACK, is not in loss recovery,
    /// has no SACKed sequences in its scoreboard", and no probe is outstanding. A window that is
    /// closed has a probe of its own.
    #[inline]
    fn may_probe_tail(&self) -> bool {
        self.sack
            && self.settings.tail_loss_probes
            && self.recovery.is_open()
            && self.board.sacked_bytes() == 0
            && self.snd.window() > 0
            && !self.tail.is_outstanding()
    }

    /// Sets the timer of the probe, or stops it.
    #[inline]
    pub(super) fn set_tail_probe(&mut self, now: Time) {
        if !self.may_probe_tail() {
            self.timers.stop(Timer::TailProbe);
            return;
        }
        let timeout_ns = tlp::timeout_ns(self.rto.smoothed_ns(), self.board.segments() == 1);
        let deadline = (now + timeout_ns).min(self.timers.get(Timer::Retransmit));
        self.timers.set(Timer::TailProbe, deadline);
    }

    /// What the acknowledgement of a FIN does: RFC 9293, section 3.10.7.4, fifth.
    #[inline]
    fn after_ack(&mut self, now: Time) -> After {
        if !self.snd.is_fin_acknowledged() {
            return After::Alive;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.is_closed {
                    self.timers.set(Timer::Close, now + self.settings.fin_wait_ns);
                }
                After::Alive
            }
            State::Closing => {
                self.enter_time_wait();
                After::Gone
            }
            State::LastAck => {
                self.finish(crate::event::End::Orderly);
                After::Gone
            }
            _ => After::Alive,
        }
    }
}
