//! What happens by itself.

use clearway_base::{MILLISECOND, Time};
use clearway_congestion::CongestionControl;

use super::{Connection, Probe};
use crate::config::Settings;
use crate::event::End;
use crate::frto::Frto;
use crate::recovery::Phase;
use crate::state::State;
use crate::timers::Timer;

impl Connection {
    /// Does what is due. False if nothing was.
    pub(crate) fn handle_timeouts(&mut self, now: Time) -> bool {
        let mut was_due = false;
        while let Some(timer) = self.timers.take_due(now) {
            was_due = true;
            match timer {
                Timer::Retransmit => self.on_retransmit(now),
                Timer::TailProbe => self.on_tail_probe(now),
                Timer::Reorder => self.on_reorder(now),
                Timer::Persist => self.on_persist(now),
                Timer::AckDelay => self.ack.demand(),
                Timer::KeepAlive => self.on_keep_alive(now),
                Timer::Close => self.finish(End::Orderly),
                Timer::Pace => {} // there is something to transmit again
                Timer::Path => self.on_path_timer(now),
            }
        }
        was_due
    }

    fn on_retransmit(&mut self, now: Time) {
        if self.gives_up(now) {
            return self.finish(self.soft_error.unwrap_or(End::TimedOut));
        }
        match self.state {
            State::SynSent => return self.send_syn_again(),
            State::SynReceived => {
                self.syn_due = true;
                return;
            }
            _ => {}
        }
        if self.board.is_empty() {
            return;
        }
        self.rto.double();
        self.timers.stop(Timer::TailProbe);
        self.timers.stop(Timer::Reorder);
        self.probe = None;
        self.tail.clear();
        if self.snd.window() == 0 {
            // RFC 9293, section 3.8.6: what was sent into a window that has been closed since is
            // probed for, and is no sign of congestion.
            self.board.mark_first_lost();
            self.recovery.free_lost = 1;
        } else {
            self.on_timeout_of_data(now);
        }
        let deadline = self.before_giving_up(now + self.rto.timeout_ns(&self.settings));
        self.timers.set(Timer::Retransmit, deadline);
    }

    /// What waits for `deadline`, or for the connection to be given up if that is earlier.
    pub(super) fn before_giving_up(&self, deadline: Time) -> Time {
        match (self.patience_ns(), self.stalled_since) {
            (Some(timeout_ns), Some(since)) => deadline.min(since + timeout_ns),
            _ => deadline,
        }
    }

    /// How long nothing may be acknowledged that should be, if it is not retransmissions that are
    /// counted.
    fn patience_ns(&self) -> Option<u64> {
        let Settings { user_timeout_ns, opening_ms, .. } = self.settings;
        let opening_ms = opening_ms.filter(|_| self.is_opening());
        let opening_ns = opening_ms.map(|ms| u64::from(ms.get()) * MILLISECOND);
        [user_timeout_ns, opening_ns].into_iter().flatten().min()
    }

    /// RFC 8985, section 7.3: a probe leaves before the retransmission timer expires, at the latest
    /// instead of it.
    fn on_tail_probe(&mut self, now: Time) {
        self.probe = Some(Probe::Tail);
        self.timers.set(Timer::Retransmit, now + self.rto.timeout_ns(&self.settings));
    }

    /// RFC 6298, 5.4 to 5.6, RFC 5681, section 3.1, and RFC 5682.
    fn on_timeout_of_data(&mut self, now: Time) {
        let was_timeout = self.recovery.phase() == Phase::Timeout;
        if !was_timeout {
            // "When a TCP sender detects segment loss using the retransmission timer and the given
            // segment has not yet been resent", the threshold goes down.
            let bytes = self.board.in_flight_bytes();
            self.control_before = Some(Box::new(self.control.clone()));
            self.reduce_window(now, bytes, bytes);
            self.ecn.on_reduced(self.snd.next());
        }
        if self.snd.una() == self.snd.first() {
            self.ecn.on_first_lost();
        }
        self.suspect_black_hole(now);
        self.control.on_timeout();
        self.recovery.begin_timeout(self.snd.next());
        self.recovery.duplicates = 0;
        if was_timeout {
            self.recovery.frto = Frto::Off;
            self.board.mark_lost_before(self.recovery.point());
        } else {
            // RFC 5682, section 3.1: only "when the RTO expires" and the data was not sent again.
            self.recovery.frto = Frto::Retransmitted;
            self.board.mark_first_lost();
        }
    }

    /// RFC 9293, section 3.8.3 (R2), and RFC 5482.
    fn gives_up(&mut self, now: Time) -> bool {
        if self.is_probe_answered() {
            self.retries = 0;
        }
        self.retries = self.retries.saturating_add(1);
        match (self.patience_ns(), self.stalled_since) {
            (Some(timeout_ns), Some(since)) => now.since(since) >= timeout_ns,
            _ => self.retries > self.retries_max,
        }
    }

    /// RFC 9293, section 3.8.6.1: "As long as the receiving TCP peer continues to send
    /// acknowledgments in response to the probe segments, the sending TCP peer MUST allow the
    /// connection to stay open." RFC 6429, section 4: not against who has nothing more to do with
    /// it: nobody is left to give up a connection that its app has closed, and a peer could have as
    /// many of them as it likes.
    fn is_probe_answered(&self) -> bool {
        !self.is_closed
            && self.snd.window() == 0
            && self.state.is_synchronized()
            && self.last_heard >= self.data_sent
    }

    /// RFC 8985, section 6.3: what was taken for reordered is lost.
    fn on_reorder(&mut self, now: Time) {
        let lost = self.board.detect_lost(now, &self.rack, &self.rack_window());
        self.timers.set(Timer::Reorder, lost.next.unwrap_or(Time::MAX));
        if lost.bytes > 0 {
            self.on_lost(now, &lost, 0);
        }
    }

    /// A window that is closed, or too small, has been so for a while.
    fn on_persist(&mut self, now: Time) {
        if !self.snd.has_unsent() && self.board.is_empty() {
            return;
        }
        if self.gives_up(now) {
            return self.finish(self.soft_error.unwrap_or(End::TimedOut));
        }
        if self.board.is_empty() {
            self.probe = Some(Probe::Window);
        } else {
            self.board.mark_first_lost();
            self.recovery.free_lost = 1;
        }
        // RFC 9293, 3.8.6.1: "SHOULD increase exponentially the interval between successive
        // probes".
        self.rto.double();
        let deadline = self.before_giving_up(now + self.rto.timeout_ns(&self.settings));
        self.timers.set(Timer::Persist, deadline);
    }

    /// RFC 9293, section 3.8.4.
    fn on_keep_alive(&mut self, now: Time) {
        let Some(keep_alive) = self.settings.keep_alive.filter(|_| self.state.is_synchronized())
        else {
            return;
        };
        let idle_ns = now.since(self.last_heard);
        let is_busy = !self.board.is_empty();
        if is_busy || idle_ns < keep_alive.idle_ns {
            let rest_ns = keep_alive.idle_ns.saturating_sub(if is_busy { 0 } else { idle_ns });
            return self.timers.set(Timer::KeepAlive, now + rest_ns);
        }
        // RFC 5482, section 4.2: the user timeout bounds how long keep-alive probes go unanswered.
        let is_over = match self.settings.user_timeout_ns {
            Some(timeout_ns) => self.keep_alive_probes > 0 && idle_ns >= timeout_ns,
            None => self.keep_alive_probes >= keep_alive.probes,
        };
        if is_over {
            self.reset_due = true;
            return self.finish(End::TimedOut);
        }
        self.keep_alive_probes = self.keep_alive_probes.saturating_add(1);
        self.probe = Some(Probe::KeepAlive);
        self.timers.set(Timer::KeepAlive, now + keep_alive.interval_ns);
    }
}
