//! What a flow does because time has passed: losses, probes, keep-alive, giving up.

use clearway_base::{MILLISECOND, Time};
use clearway_congestion::{CongestionControl, LossSample};

use super::{Flow, Outcome, State, Streams};
use crate::app::Reason;
use crate::config::{Config, SILENCE_MS};
use crate::recovery::{Content, Lost};

/// Unanswered probes without which silence is not the peer's: this host itself was away, suspended
/// or stopped.
const PROBES_MIN: u32 = 2;

/// A flow asks early enough that an answer can come before it is given up.
pub(super) fn keep_alive_ns(config: &Config, silence_ns: u64) -> u64 {
    config.keep_alive_ns.min(silence_ns / 3)
}

impl Flow {
    /// When [`Flow::handle_timeout`] is to be called next.
    pub(crate) fn next_timeout(&self, config: &Config) -> Time {
        let own = match &self.state {
            State::Connecting(connecting) => {
                return connecting.give_up.min(self.ports.next_timeout());
            }
            State::Drained { until } => {
                return self.acks.due().min(*until);
            }
            State::Open | State::Closing if self.expects_answer() => {
                self.keep_alive_at.min(self.silent_since() + self.silence_ns)
            }
            State::Open | State::Closing => Time::MAX,
        };
        let recovery = self.recovery.timeout(&self.rtt, config).unwrap_or(Time::MAX);
        let paced = if self.paced_until > Time::ZERO { self.paced_until } else { Time::MAX };
        let waits = self.waits_until.min(self.ports.next_timeout()).min(self.unused_until);
        own.min(recovery).min(self.acks.due()).min(paced).min(waits)
    }

    /// After [`Outcome::Received`]: when [`Flow::handle_timeout`] is to be called, if before that
    /// it was not to be called before `known`; maybe too early, but less work to find out. `None`
    /// if there is no such short way: what is in flight is waited for as long as the new round trip
    /// says.
    #[inline]
    pub(crate) fn timeout_after(&self, known: Time) -> Option<Time> {
        let is_quiet = matches!(self.state, State::Open)
            && !self.is_shared
            && self.recovery.in_flight_bytes() == 0
            && self.paced_until == Time::ZERO;
        is_quiet.then(|| known.min(self.keep_alive_at).min(self.acks.due()))
    }

    /// Does what is due at `now`; calling it early does no harm.
    pub(crate) fn handle_timeout(&mut self, now: Time, config: &Config) -> Outcome {
        if self.paced_until <= now {
            self.paced_until = Time::ZERO;
        }
        if self.waits_until <= now {
            self.try_again();
        }
        self.ports.handle_timeout(now);
        match &mut self.state {
            State::Connecting(connecting) => return connecting.handle_timeout(now),
            State::Drained { until } if *until <= now => return Outcome::Gone,
            State::Drained { .. } => return Outcome::Continue,
            State::Open | State::Closing => {}
        }
        if self.unused_until <= now {
            self.note_use(now);
            if self.unused_until <= now {
                return Outcome::Ended(Reason::TimedOut);
            }
        }
        let silence_ns = now.since(self.silent_since());
        if silence_ns >= self.silence_ns && self.expects_answer() {
            if self.recovery.probes() >= PROBES_MIN {
                return Outcome::Ended(Reason::TimedOut);
            }
            self.ask_once_more(now, config);
        }
        if self.keep_alive_at <= now {
            self.keep_alive_at = now + self.keep_alive_ns;
            self.probe_due |= self.is_idle();
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

    /// Messages have waited long enough for a word of the peer's memory.
    #[cold]
    fn try_again(&mut self) {
        self.waits_until = Time::MAX;
        self.main.outgoing.try_again();
        self.with_streams(Streams::try_again);
    }

    /// Gives the flow up after another silence than other flows: within [`SILENCE_MS`]. One that is
    /// shared is given up as others are.
    pub(crate) fn set_silence(&mut self, now: Time, config: &Config, silence_ms: u32) {
        if self.is_shared {
            return; // not for one of its connections to say
        }
        let silence_ms = silence_ms.clamp(*SILENCE_MS.start(), *SILENCE_MS.end());
        self.silence_ns = u64::from(silence_ms) * MILLISECOND;
        self.keep_alive_ns = keep_alive_ns(config, self.silence_ns);
        if self.keep_alive_ns > 0 && !self.is_connecting() {
            self.keep_alive_at = self.keep_alive_at.min(now + self.keep_alive_ns);
        }
    }

    /// RFC 9000, 10.1: "An endpoint also restarts its idle timer when sending an ack-eliciting
    /// packet if no other ack-eliciting packets have been sent since last receiving and processing
    /// a packet."
    fn silent_since(&self) -> Time {
        self.last_received.max(self.asked)
    }

    /// Gives the peer the time of some probes to be heard.
    fn ask_once_more(&mut self, now: Time, config: &Config) {
        self.asked = now - self.silence_ns + 8 * config.probe_timeout_max_ns;
        self.probe_due |= self.is_idle();
    }

    /// RFC 9293, 3.8.4: "Keep-alive packets MUST only be sent when no sent data is outstanding".
    /// Those under way have probes of their own, which each packet that is sent puts off: if they
    /// take longer than the keep-alive, none would ever come.
    fn is_idle(&self) -> bool {
        self.recovery.in_flight_bytes() == 0
    }

    /// Without keep-alive, silence on a flow with nothing in flight is no sign of a dead peer.
    fn expects_answer(&self) -> bool {
        self.keep_alive_ns > 0 || self.recovery.in_flight_bytes() > 0
    }

    fn handle_probe_timeout(&mut self, now: Time, config: &Config) {
        let oldest = self.recovery.on_probe_timeout(now);
        if self.mtu.on_probe_timeouts(self.recovery.probes()) {
            self.follow_packet_bytes();
        }
        if let Some(oldest) = oldest {
            self.probe_with(&oldest);
        }
        if self.recovery.probes() >= 2 {
            self.ports.on_silence(now, config, self.rtt.smoothed_ns());
        }
        self.marking.on_probe_timeouts(self.recovery.probes());
        self.probe_due = true;
    }

    pub(super) fn detect_losses(&mut self, now: Time, config: &Config) {
        let patience_ns = self.persistence_ns(config);
        let (main, mut streams) = (&mut self.main, self.streams.as_deref_mut());
        let arrivals = &mut self.arrivals;
        let (mtu, mut is_black_hole) = (&mut self.mtu, false);
        let granularity_ns = config.timer_granularity_ns;
        let rtt = &self.rtt;
        let lost =
            self.recovery.detect_losses(now, rtt, granularity_ns, |content, number, bytes| {
                if content.told.is_size_probe {
                    mtu.on_probe_lost(now);
                    return true;
                }
                let was_turned_away = match &streams {
                    Some(all) if content.stream != 0 => all.was_turned_away(content, number),
                    _ => main.outgoing.was_turned_away(&content.range, number),
                };
                if !was_turned_away {
                    is_black_hole |= mtu.on_lost(now, bytes, patience_ns);
                }
                if content.told.path {
                    arrivals.tell_path_again();
                }
                if content.stream == 0 {
                    main.send_again(content);
                } else if let Some(all) = &mut streams {
                    all.send_again(content);
                }
                !was_turned_away
            });
        self.with_streams(|_| ());
        self.packets_lost += lost.packets;
        if is_black_hole {
            self.follow_packet_bytes();
        }
        if lost.bytes > 0 {
            self.tell_lost(now, config, &lost);
        }
    }

    /// Tells congestion control how large packets are now.
    #[cold]
    pub(super) fn follow_packet_bytes(&mut self) {
        self.congestion.set_packet_bytes(self.mtu.bytes());
        self.window_bytes = self.congestion.window_bytes();
    }

    fn tell_lost(&mut self, now: Time, config: &Config, lost: &Lost) {
        self.congestion.on_loss(&LossSample { now, sent: lost.last_sent, bytes: lost.bytes });
        if lost.span_ns > self.persistence_ns(config) {
            self.congestion.on_persistent_congestion();
            self.rtt.on_persistent_congestion();
        }
        self.window_bytes = self.congestion.window_bytes();
    }

    /// RFC 9002, 7.6.1: "(smoothed_rtt + max(4*rttvar, kGranularity) + max_ack_delay) *
    /// kPersistentCongestionThreshold", which is 3.
    fn persistence_ns(&self, config: &Config) -> u64 {
        3 * self.rtt.probe_timeout_ns(config.timer_granularity_ns, config.ack_delay_ns)
    }

    /// The network says that the packet with this number was too large: packets of up to `bytes`
    /// pass, or it does not say if that is 0. False if there is no such packet.
    pub(crate) fn handle_packet_too_big(&mut self, now: Time, number: u64, bytes: u16) -> bool {
        let is_plausible =
            self.recovery.bytes_of(number).is_some_and(|sent| sent > u32::from(bytes));
        is_plausible && self.limit_packets(now, bytes)
    }

    /// Sends no packet of more than `bytes` any more, as far as the protocol allows, and what was
    /// in larger ones again. True if that is news.
    fn limit_packets(&mut self, now: Time, bytes: u16) -> bool {
        let is_news = self.mtu.on_too_big(now, bytes);
        if is_news {
            self.shrink_packets();
        }
        is_news
    }

    /// The own link takes packets of up to `bytes` from now on.
    pub(crate) fn follow_link(&mut self, now: Time, bytes: u16) {
        if self.mtu.set_link(now, bytes) {
            self.shrink_packets();
        }
    }

    /// What was in larger packets is sent again.
    fn shrink_packets(&mut self) {
        for content in self.recovery.give_up_larger(self.mtu.bytes()) {
            self.send_again(&content);
        }
        self.follow_packet_bytes();
    }

    /// The probe is to carry what the peer can surely take: the first bytes that it has not
    /// acknowledged. It may turn away all others for want of memory, and then those of `oldest`,
    /// the oldest packet in flight, would be sent and turned away for ever, while the first ones,
    /// in a later packet that was lost, are never missed. Streams take turns for the same reason.
    pub(super) fn probe_with(&mut self, oldest: &Content) {
        let bytes = self.mtu.bytes().into();
        self.main.outgoing.send_first_again(bytes);
        self.with_streams(|all| all.send_first_again(oldest.stream, bytes));
        self.send_again(&Content { range: 0..0, ..oldest.clone() });
    }

    pub(super) fn send_again(&mut self, content: &Content) {
        if content.told.path {
            self.arrivals.tell_path_again();
        }
        if content.stream == 0 {
            self.main.send_again(content);
        } else {
            self.with_streams(|all| all.send_again(content));
        }
    }
}
