//! CUBIC (RFC 9438): by loss and marks, with a window that grows as the cube of the time since the
//! last of them, and HyStart++ (RFC 9406) to leave slow start before the queue overflows.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};

use super::{
    AckSample, COLLAPSED_PACKETS, CongestionControl, INITIAL_PACKETS, LossSample, MAX_BYTES,
    after_idle,
};

/// The loss-based controller. Windows are in packets, as the RFC has them.
#[derive(Clone, Debug)]
pub struct Cubic {
    packet_bytes: f64,
    /// What it begins with, and begins again with after an idle time.
    initial: f64,
    window: f64,
    slow_start_threshold: f64,
    /// The window at the last congestion event, and when the cubic function is there again.
    window_max: f64,
    k_s: f64,
    /// When congestion avoidance began, without the times in which the window was not filled.
    epoch: Option<Time>,
    last_ack: Time,
    /// What Reno would have.
    window_reno: f64,
    /// Nothing that was sent before then counts as a new congestion event (RFC 9002, 7.3.2).
    recovery: Option<Time>,
    before: Option<Before>,
    start: HyStart,
}

/// Windows before the last event, in case that it was for nothing: the window, the slow-start
/// threshold and the largest.
#[derive(Clone, Copy, Debug)]
struct Before(f64, f64, f64);

/// RFC 9438, 4.1: "The constant C [...] SHOULD be set to 0.4", and 4.6: "SHOULD be set to 0.7".
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// RFC 8511, 3.1: "beta_ecn" of 0.85 for CUBIC.
const BETA_MARKED: f64 = 0.85;
/// RFC 9438, 4.3: "alpha_cubic" is "3 * (1 - beta_cubic) / (1 + beta_cubic)" for a Reno share.
const ALPHA_RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

impl Cubic {
    /// A controller for a path that carries packets of up to `packet_bytes`.
    #[must_use]
    pub fn new(packet_bytes: u16) -> Self {
        Self {
            packet_bytes: f64::from(packet_bytes),
            initial: INITIAL_PACKETS,
            window: INITIAL_PACKETS,
            slow_start_threshold: f64::INFINITY,
            window_max: 0.0,
            k_s: 0.0,
            epoch: None,
            last_ack: Time::ZERO,
            window_reno: 0.0,
            recovery: None,
            before: None,
            start: HyStart::default(),
        }
    }

    /// The same, that leaves slow start not before a queue of `delay_min_ns` stands.
    #[must_use]
    pub fn with_delay_min(mut self, delay_min_ns: u64) -> Self {
        self.start.delay_min_ns = delay_min_ns;
        self
    }

    /// The same, that begins with `packets` instead of ten.
    #[must_use]
    pub fn with_initial_window(mut self, packets: u32) -> Self {
        self.initial = f64::from(packets.max(1));
        self.window = self.initial;
        self
    }

    fn is_in_slow_start(&self) -> bool {
        self.window < self.slow_start_threshold
    }

    /// RFC 9438, 4.2: "W_cubic(t) = C*(t-K)^3 + W_max".
    fn cubic(&self, since_ns: u64) -> f64 {
        let t = since_ns as f64 / SECOND as f64 - self.k_s;
        C * t * t * t + self.window_max
    }

    fn avoid_congestion(&mut self, sample: &AckSample, acked: f64) {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin_epoch(sample.now),
        };
        let since_ns = sample.now.since(epoch);
        // 4.4: "target" is W_cubic(t + RTT), between the window and one and a half of it.
        let target = self.cubic(since_ns + sample.smoothed_rtt_ns);
        let target = target.clamp(self.window, 1.5 * self.window);
        // 4.3: "once W_est has grown to reach the cwnd at the time of most recently setting
        // ssthresh [...] the sender SHOULD set alpha_cubic to 1".
        let alpha = if self.window_reno >= self.window_max { 1.0 } else { ALPHA_RENO };
        self.window_reno += alpha * acked / self.window;
        self.window += (target - self.window) / self.window * acked;
        // 4.3: "If W_cubic(t) is less than W_est(t)", CUBIC "is in the Reno-friendly region".
        if self.cubic(since_ns) < self.window_reno {
            self.window = self.window.max(self.window_reno);
        }
    }

    fn begin_epoch(&mut self, now: Time) -> Time {
        self.epoch = Some(now);
        self.window_reno = self.window;
        self.window_max = self.window_max.max(self.window);
        self.k_s = ((self.window_max - self.window) / C).cbrt();
        now
    }

    fn on_congestion(&mut self, now: Time, sent: Time, beta: f64) {
        // RFC 9002, 7.3.2: a sender that "is already in a recovery period stays in it": losses of
        // what was sent before the last decrease say nothing new.
        if self.recovery.is_some_and(|recovery| sent <= recovery) {
            return;
        }
        self.before = Some(Before(self.window, self.slow_start_threshold, self.window_max));
        self.recovery = Some(now);
        // 4.7, fast convergence: "if cwnd < W_max: W_max = cwnd * (1 + beta_cubic) / 2".
        self.window_max = if self.window < self.window_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * beta).max(COLLAPSED_PACKETS);
        self.slow_start_threshold = self.window;
        self.epoch = None;
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, sample: &AckSample) {
        if sample.marked {
            self.on_congestion(sample.now, sample.sent, BETA_MARKED);
        }
        let since_last_ns = sample.now.since(self.last_ack);
        self.last_ack = sample.now;
        if !sample.window_limited {
            // 5.8: the time in which the flow had not enough to send "MUST NOT" count.
            self.epoch = self.epoch.map(|epoch| epoch + since_last_ns);
            return;
        }
        if self.recovery.is_some_and(|recovery| sample.sent <= recovery) {
            return;
        }
        let acked = sample.acked_bytes as f64 / self.packet_bytes;
        if self.is_in_slow_start() {
            // RFC 9406, 4.2: "An implementation SHOULD use HyStart++ only for the initial slow
            // start (when the ssthresh is at its initial value of arbitrarily high per [RFC5681])".
            let is_initial = self.slow_start_threshold.is_infinite();
            let divisor = if is_initial { self.start.divisor(sample) } else { 1.0 };
            self.window += acked / divisor;
            if is_initial && self.start.is_over() {
                self.slow_start_threshold = self.window;
            }
        } else {
            self.avoid_congestion(sample, acked);
        }
        self.window = self.window.min(MAX_BYTES / self.packet_bytes);
    }

    fn on_loss(&mut self, sample: &LossSample) {
        self.on_congestion(sample.now, sample.sent, BETA);
    }

    fn on_spurious_loss(&mut self) {
        // RFC 9438, 4.9.1: undo what the event did.
        if let Some(Before(window, slow_start_threshold, window_max)) = self.before.take() {
            self.window = self.window.max(window);
            (self.slow_start_threshold, self.window_max) = (slow_start_threshold, window_max);
            self.epoch = None;
        }
    }

    fn on_persistent_congestion(&mut self) {
        self.before = None;
        self.window = COLLAPSED_PACKETS;
        self.epoch = None;
    }

    fn on_timeout(&mut self) {
        self.window = 1.0;
        self.epoch = None;
        // What is sent again at this very moment counts when it is acknowledged.
        self.recovery = None;
    }

    fn on_idle(&mut self, timeouts: u32) {
        let window = after_idle(self.window, timeouts, self.initial);
        if window < self.window {
            // RFC 2861, section 3.2: "ssthresh = max(ssthresh, 3*cwnd/4)".
            self.slow_start_threshold = self.slow_start_threshold.max(0.75 * self.window);
            self.window = window;
            self.epoch = None;
        }
    }

    fn shrink_to(&mut self, bytes: u64) {
        let window = (bytes as f64 / self.packet_bytes).max(COLLAPSED_PACKETS);
        if window < self.window {
            (self.window, self.window_max, self.slow_start_threshold) = (window, window, window);
            self.epoch = None;
        }
    }

    fn resume(&mut self, window_bytes: u64) {
        let most = MAX_BYTES / self.packet_bytes;
        // Half a byte more: what is told of it is rounded down to the very same.
        self.window = ((window_bytes as f64 + 0.5) / self.packet_bytes).clamp(1.0, most);
        if window_bytes as f64 > self.initial * self.packet_bytes {
            self.slow_start_threshold = self.window;
        }
    }

    fn set_packet_bytes(&mut self, packet_bytes: u16) {
        let packet_bytes = f64::from(packet_bytes);
        let factor = self.packet_bytes / packet_bytes;
        self.window = (self.window * factor).max(COLLAPSED_PACKETS);
        self.slow_start_threshold *= factor;
        self.window_max *= factor;
        (self.epoch, self.before) = (None, None);
        self.packet_bytes = packet_bytes;
    }

    fn window_bytes(&self) -> u64 {
        (self.window * self.packet_bytes) as u64
    }

    fn slow_start_threshold_bytes(&self) -> Option<u64> {
        let threshold = self.slow_start_threshold;
        threshold.is_finite().then_some((threshold * self.packet_bytes) as u64)
    }
}

/// HyStart++: slow start ends when a round's lowest round-trip time is above that of the round
/// before; after some rounds of slower growth, in case it was not so.
#[derive(Clone, Debug)]
struct HyStart {
    /// What is less is noise.
    delay_min_ns: u64,
    /// A round ends with the acknowledgement of what is sent from then on.
    round_ends: Time,
    last_round_ns: Option<u64>,
    this_round_ns: Option<u64>,
    samples: u32,
    /// The lowest round trip when conservative slow start began, and rounds of it.
    conservative: Option<(u64, u32)>,
}

/// RFC 9406, 4.3: the recommended constants; but for the lower threshold, which is for the Internet
/// (4 ms) and would never be reached by the queues of a local network: [`Cubic::with_delay_min`].
const DELAY_MIN_NS: u64 = 100 * MICROSECOND;
const DELAY_MAX_NS: u64 = 16 * MILLISECOND;
const SAMPLES: u32 = 8;
const CONSERVATIVE_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

impl Default for HyStart {
    fn default() -> Self {
        Self {
            delay_min_ns: DELAY_MIN_NS,
            round_ends: Time::ZERO,
            last_round_ns: None,
            this_round_ns: None,
            samples: 0,
            conservative: None,
        }
    }
}

impl HyStart {
    /// By how much slow start's growth is to be divided, which this acknowledgement may change.
    fn divisor(&mut self, sample: &AckSample) -> f64 {
        if sample.sent >= self.round_ends {
            self.begin_round(sample.now);
        }
        self.samples += 1;
        let least_ns = self.this_round_ns.map_or(sample.rtt_ns, |ns| ns.min(sample.rtt_ns));
        self.this_round_ns = Some(least_ns);
        match self.conservative {
            // "If currentRoundMinRTT < cssBaselineMinRtt [...] resume slow start".
            Some((base_ns, _)) if self.samples >= SAMPLES && least_ns < base_ns => {
                self.conservative = None;
            }
            None if self.samples >= SAMPLES && self.is_delayed(least_ns) => {
                self.conservative = Some((least_ns, 0));
            }
            _ => {}
        }
        if self.conservative.is_some() { CONSERVATIVE_DIVISOR } else { 1.0 }
    }

    fn begin_round(&mut self, now: Time) {
        self.round_ends = now;
        self.last_round_ns = self.this_round_ns.take();
        self.samples = 0;
        if let Some((_, rounds)) = &mut self.conservative {
            *rounds += 1;
        }
    }

    /// "currentRoundMinRTT >= lastRoundMinRTT + RttThresh".
    fn is_delayed(&self, least_ns: u64) -> bool {
        self.last_round_ns.is_some_and(|last_ns| {
            least_ns >= last_ns + (last_ns / 8).clamp(self.delay_min_ns, DELAY_MAX_NS)
        })
    }

    fn is_over(&self) -> bool {
        self.conservative.is_some_and(|(_, rounds)| rounds >= CONSERVATIVE_ROUNDS)
    }
}

#[cfg(test)]
mod tests;
