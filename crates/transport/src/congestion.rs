//! Congestion control: the trait, and the delay-based controller that is the default.

use clearway_base::Time;

/// One acknowledgement as congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When it arrived.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub acked_bytes: u64,
    /// The newest round-trip time, without the peer's own delay.
    pub rtt_ns: u64,
    /// The smoothed round-trip time.
    pub smoothed_rtt_ns: u64,
    /// The lowest round-trip time seen on this path.
    pub min_rtt_ns: u64,
    /// The sender filled the window: had it been larger, more would have been sent.
    pub window_limited: bool,
}

/// Decides how many bytes may be in flight. Called by one flow; knows nothing of packets.
pub trait CongestionControl: Send + core::fmt::Debug {
    /// Data was acknowledged.
    fn on_ack(&mut self, sample: &AckSample);

    /// Packets were lost, the last of which was sent at `sent`.
    fn on_loss(&mut self, now: Time, sent: Time);

    /// Nothing got through for a long time (RFC 9002, section 7.6).
    fn on_persistent_congestion(&mut self);

    /// Bytes that may be in flight.
    fn window_bytes(&self) -> u64;
}

/// Swift: additive increase while the round-trip time is below a target delay, decrease in
/// proportion to the excess, at most once per round trip (Kumar et al., "Swift: Delay is Simple
/// and Effective for Congestion Control in the Datacenter", SIGCOMM 2020, section 3.1). Before the
/// first congestion signal the window doubles each round trip.
#[derive(Clone, Debug)]
pub struct Swift {
    window_bytes: f64,
    packet_bytes: f64,
    delay_target_ns: u64,
    slow_start: bool,
    /// No second decrease for what was in flight at the first.
    decreased: Option<Time>,
}

/// Swift, algorithm 1: the multiplicative decrease factor and its bound per round trip.
const BETA: f64 = 0.8;
const DECREASE_MAX: f64 = 0.5;
/// RFC 6928 gives TCP an initial window of ten segments.
const INITIAL_PACKETS: f64 = 10.0;
/// Two packets keep acknowledgements coming; below that, Swift paces, which the probe timeout does here.
const MIN_PACKETS: f64 = 2.0;
/// Far beyond the bandwidth-delay product of any path between two hosts here (100 Gbit/s × 5 ms).
const MAX_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

impl Swift {
    /// A controller for a path that carries packets of up to `packet_bytes`.
    #[must_use]
    pub fn new(packet_bytes: u16, delay_target_ns: u64) -> Self {
        let packet_bytes = f64::from(packet_bytes);
        Self {
            window_bytes: INITIAL_PACKETS * packet_bytes,
            packet_bytes,
            delay_target_ns,
            slow_start: true,
            decreased: None,
        }
    }

    fn decrease(&mut self, now: Time, smoothed_rtt_ns: u64, factor: f64) {
        if self.decreased.is_some_and(|last| now.since(last) < smoothed_rtt_ns) {
            return;
        }
        self.decreased = Some(now);
        self.slow_start = false;
        let factor = factor.max(1.0 - DECREASE_MAX);
        self.window_bytes = (self.window_bytes * factor).max(MIN_PACKETS * self.packet_bytes);
    }
}

impl CongestionControl for Swift {
    fn on_ack(&mut self, sample: &AckSample) {
        let target_ns = sample.min_rtt_ns + self.delay_target_ns;
        if sample.rtt_ns > target_ns {
            let excess = (sample.rtt_ns - target_ns) as f64 / sample.rtt_ns as f64;
            return self.decrease(sample.now, sample.smoothed_rtt_ns, 1.0 - BETA * excess);
        }
        if !sample.window_limited {
            return;
        }
        let acked = sample.acked_bytes as f64;
        self.window_bytes +=
            if self.slow_start { acked } else { self.packet_bytes * acked / self.window_bytes };
        self.window_bytes = self.window_bytes.min(MAX_BYTES);
    }

    fn on_loss(&mut self, now: Time, sent: Time) {
        // RFC 9002, 7.3.2: a sender that "is already in a recovery period stays in it": losses of
        // what was sent before the last decrease say nothing new.
        if self.decreased.is_none_or(|last| sent > last) {
            self.decreased = None;
            self.decrease(now, 0, 1.0 - DECREASE_MAX);
        }
    }

    fn on_persistent_congestion(&mut self) {
        self.window_bytes = MIN_PACKETS * self.packet_bytes;
        self.slow_start = true;
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{AckSample, CongestionControl, Swift};
    use clearway_base::Time;

    fn sample(now_ns: u64, rtt_ns: u64) -> AckSample {
        AckSample {
            now: Time::from_ns(now_ns),
            acked_bytes: 1000,
            rtt_ns,
            smoothed_rtt_ns: rtt_ns,
            min_rtt_ns: 10_000,
            window_limited: true,
        }
    }

    #[test]
    fn doubles_until_delay_then_grows_by_a_packet_per_round_trip() {
        let mut swift = Swift::new(1000, 50_000);
        for _ in 0..10 {
            swift.on_ack(&sample(1, 20_000));
        }
        assert_eq!(swift.window_bytes(), 20_000);
        swift.on_ack(&sample(1_000_000, 120_000));
        let after = swift.window_bytes();
        assert!((10_000..20_000).contains(&after), "{after}");
        for _ in 0..after / 1000 {
            swift.on_ack(&sample(1_100_000, 20_000));
        }
        let grown = swift.window_bytes() - after;
        assert!((900..=1_100).contains(&grown), "{grown}");
    }

    #[test]
    fn decreases_once_per_round_trip() {
        let mut swift = Swift::new(1000, 50_000);
        swift.on_ack(&sample(1_000_000, 120_000));
        let once = swift.window_bytes();
        swift.on_ack(&sample(1_010_000, 120_000));
        assert_eq!(swift.window_bytes(), once);
        swift.on_ack(&sample(1_200_000, 120_000));
        assert!(swift.window_bytes() < once);
    }

    #[test]
    fn losses_of_one_flight_count_once_and_two_packets_remain() {
        let mut swift = Swift::new(1000, 50_000);
        swift.on_loss(Time::from_ns(100), Time::from_ns(50));
        assert_eq!(swift.window_bytes(), 5_000);
        swift.on_loss(Time::from_ns(110), Time::from_ns(60));
        assert_eq!(swift.window_bytes(), 5_000);
        for round in 2..20u64 {
            swift.on_loss(Time::from_ns(round * 1000), Time::from_ns(round * 1000 - 1));
        }
        assert_eq!(swift.window_bytes(), 2_000);
    }

    #[test]
    fn an_idle_sender_does_not_grow_its_window() {
        let mut swift = Swift::new(1000, 50_000);
        swift.on_ack(&AckSample { window_limited: false, ..sample(1, 20_000) });
        assert_eq!(swift.window_bytes(), 10_000);
    }
}
