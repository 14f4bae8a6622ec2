//! What a flow does because time has passed: losses, probes, keep-alive, giving up.

use clearway_base::Time;

use super::{Flow, Outcome, State};
use crate::app::Reason;
use crate::config::Config;
use crate::recovery::Content;

impl Flow {
    /// When [`Flow::handle_timeout`] is to be called next.
    pub(crate) fn next_timeout(&self, config: &Config) -> Time {
        let own = match &self.state {
            State::Connecting(connecting) => {
                return connecting.give_up.min(self.ports.next_timeout());
            }
            State::Drained { until } => {
                return self.acks.due().map_or(*until, |ack| ack.min(*until));
            }
            State::Open | State::Closing if self.expects_answer(config) => {
                self.keep_alive_at.min(self.silent_since() + config.idle_timeout_ns)
            }
            State::Open | State::Closing => Time::MAX,
        };
        let recovery = self.recovery.timeout(&self.rtt, config).unwrap_or(Time::MAX);
        let ack = self.acks.due().unwrap_or(Time::MAX);
        let paced = self.paced_until.unwrap_or(Time::MAX);
        own.min(recovery).min(ack).min(paced).min(self.ports.next_timeout())
    }

    /// Does what is due at `now`; calling it early does no harm.
    pub(crate) fn handle_timeout(&mut self, now: Time, config: &Config) -> Outcome {
        if self.paced_until.is_some_and(|until| until <= now) {
            self.paced_until = None;
        }
        self.ports.handle_timeout(now);
        match &mut self.state {
            State::Connecting(connecting) => return connecting.handle_timeout(now),
            State::Drained { until } if *until <= now => return Outcome::Gone,
            State::Drained { .. } => return Outcome::Continue,
            State::Open | State::Closing => {}
        }
        let silence_ns = now.since(self.silent_since());
        if silence_ns >= config.idle_timeout_ns && self.expects_answer(config) {
            return Outcome::Ended(Reason::TimedOut);
        }
        if self.keep_alive_at <= now {
            self.keep_alive_at = now + config.keep_alive_ns;
            self.probe_due = true;
        }
        if self.recovery.is_loss_due(now) {
            self.detect_losses(now, config);
        } else if self.recovery.timeout(&self.rtt, config).is_some_and(|due| due <= now) {
            self.handle_probe_timeout(now, config);
        }
        if self.recovery.is_overrun() {
            Outcome::Ended(Reason::Protocol)
        } else {
            Outcome::Continue
        }
    }

    /// RFC 9000, 10.1: "An endpoint also restarts its idle timer when sending an ack-eliciting packet
    /// if no other ack-eliciting packets have been sent since last receiving and processing a packet."
    fn silent_since(&self) -> Time {
        self.last_received.max(self.asked)
    }

    /// Without keep-alive, silence on a flow with nothing in flight is no sign of a dead peer.
    fn expects_answer(&self, config: &Config) -> bool {
        config.keep_alive_ns > 0 || self.recovery.in_flight_bytes() > 0
    }

    fn handle_probe_timeout(&mut self, now: Time, config: &Config) {
        if let Some(content) = self.recovery.on_probe_timeout(now) {
            self.probe_with(&content);
        }
        // RFC 9002, 7.6: three probe timeouts in a row are persistent congestion.
        if self.recovery.probes() == 3 {
            self.congestion.on_persistent_congestion();
            self.window_bytes = self.congestion.window_bytes();
            self.rtt.on_persistent_congestion();
        }
        if self.recovery.probes() >= 2 {
            self.ports.on_silence(now, config, self.rtt.smoothed_ns());
        }
        self.probe_due = true;
    }

    pub(super) fn detect_losses(&mut self, now: Time, config: &Config) {
        let delay_ns = self.rtt.loss_delay_ns(config.timer_granularity_ns);
        let (outgoing, limit_due, close_due) =
            (&mut self.outgoing, &mut self.limit_due, &mut self.close_due);
        let arrivals = &mut self.arrivals;
        let mut lost = 0;
        let last_sent = self.recovery.detect_losses(now, delay_ns, |content| {
            lost += 1;
            outgoing.send_again(content.range.clone());
            *limit_due |= content.limit;
            *close_due |= content.close;
            if content.path {
                arrivals.tell_path_again();
            }
        });
        self.packets_lost += lost;
        if let Some(sent) = last_sent {
            self.congestion.on_loss(now, sent);
            self.window_bytes = self.congestion.window_bytes();
        }
    }

    /// The probe is to carry what the peer can surely take: the first bytes that it has not
    /// acknowledged. It may turn away all others for want of memory, and then those of `oldest`, the
    /// oldest packet in flight, would be sent and turned away for ever, while the first ones, in a
    /// later packet that was lost, are never missed.
    pub(super) fn probe_with(&mut self, oldest: &Content) {
        self.outgoing.send_first_again(self.packet_bytes_max.into());
        self.limit_due |= oldest.limit;
        self.close_due |= oldest.close;
        if oldest.path {
            self.arrivals.tell_path_again();
        }
    }
}
