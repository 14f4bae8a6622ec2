//! Pacing: spreads a window over its round trip (RFC 9002, section 7.7), in bursts that a queue on
//! the way can take. It also makes windows of less than a packet work: one packet, and then a
//! pause.

use clearway_base::{MICROSECOND, SECOND, Time};

/// A token bucket in bytes. Its rate is passed with each call, since window and round-trip time
/// change all the time.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Less than none after a packet that was larger than what was left.
    tokens_bytes: i64,
    burst_bytes: i64,
    updated: Time,
}

/// What congestion control and the host say about the speed of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// The window, per this much time.
    pub window_bytes: u64,
    /// See `window_bytes`.
    pub rtt_ns: u64,
    /// The largest packet.
    pub packet_bytes: u16,
    /// How long the host leaves the flow alone at a time: as much is sent at once when it comes
    /// back.
    pub gap_ns: u64,
}

/// RFC 9002, 7.7: "Senders SHOULD limit bursts": to what the path carries in this time, which is
/// less than the queueing delay that congestion control accepts.
const BURST_NS: u64 = 50 * MICROSECOND;
/// "[...] to the initial congestion window"; here down to this on slow paths,
const BURST_PACKETS_MIN: u64 = 4;
/// and never more than an LCD queue has descriptors.
const BURST_PACKETS_MAX: u64 = 256;
/// RFC 6928's ten segments.
const INITIAL_PACKETS: u64 = 10;

impl Pacer {
    /// A bucket that is full.
    #[must_use]
    pub fn new(now: Time, packet_bytes: u16) -> Self {
        let burst_bytes = (INITIAL_PACKETS * u64::from(packet_bytes)) as i64;
        Self { tokens_bytes: burst_bytes, burst_bytes, updated: now }
    }

    /// True if a packet may leave now.
    pub fn allows(&mut self, now: Time, speed: &Speed) -> bool {
        if self.tokens_bytes <= self.burst_bytes / 2 {
            self.refill(now, speed);
        }
        self.tokens_bytes > 0
    }

    /// When the next packets may leave, if [`Pacer::allows`] has just said no: at that time, and
    /// with the same speed, it says yes.
    #[must_use]
    pub fn next_allowed(&self, speed: &Speed) -> Time {
        let missing_bytes = (self.burst_bytes / 4).max(1) - self.tokens_bytes;
        let wait_ns = (missing_bytes as f64 / speed.bytes_per_ns()).ceil() as u64;
        let is_short = speed.bytes_in(wait_ns) < missing_bytes; // the quotient was rounded, too
        self.updated + wait_ns + u64::from(is_short)
    }

    /// A packet has left.
    pub const fn on_sent(&mut self, bytes: u64) {
        self.tokens_bytes -= bytes as i64;
    }

    fn refill(&mut self, now: Time, speed: &Speed) {
        let earned_bytes = speed.bytes_in(now.since(self.updated));
        if earned_bytes == 0 {
            return;
        }
        self.updated = now;
        self.burst_bytes = speed.burst_bytes();
        self.tokens_bytes = self.tokens_bytes.saturating_add(earned_bytes).min(self.burst_bytes);
    }
}

impl Speed {
    /// RFC 9002, 7.7: "rate = N * congestion_window / smoothed_rtt", with an N of 1.25; but a
    /// window of less than a packet is a rate, and nothing else limits it.
    fn bytes_per_ns(&self) -> f64 {
        let factor = if self.is_fractional() { 1.0 } else { 1.25 };
        factor * self.window_bytes.max(1) as f64 / self.rtt_ns.max(1) as f64
    }

    /// Whole bytes that may leave in so much time.
    fn bytes_in(&self, time_ns: u64) -> i64 {
        (time_ns as f64 * self.bytes_per_ns()) as i64
    }

    fn burst_bytes(&self) -> i64 {
        let packet_bytes = u64::from(self.packet_bytes);
        if self.is_fractional() {
            return 1; // whatever the size of the packet that leaves, the next one waits for it
        }
        let burst_ns = BURST_NS.max(self.gap_ns.min(SECOND));
        let burst_bytes = (burst_ns as f64 * self.bytes_per_ns()) as u64;
        burst_bytes.clamp(BURST_PACKETS_MIN * packet_bytes, BURST_PACKETS_MAX * packet_bytes) as i64
    }

    const fn is_fractional(&self) -> bool {
        self.window_bytes < self.packet_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{Pacer, Speed};
    use clearway_base::Time;

    fn sent_in(rtts: u64, speed: Speed) -> u64 {
        let mut now = Time::from_ns(1_000_000);
        let mut pacer = Pacer::new(now, speed.packet_bytes);
        let mut sent = 0;
        let end = now + rtts * speed.rtt_ns;
        while now < end {
            if pacer.allows(now, &speed) {
                pacer.on_sent(u64::from(speed.packet_bytes));
                sent += u64::from(speed.packet_bytes);
            } else {
                now = pacer.next_allowed(&speed);
            }
        }
        sent
    }

    #[test]
    fn sends_a_burst_and_then_at_the_rate_of_the_window() {
        let speed =
            Speed { window_bytes: 100_000, rtt_ns: 1_000_000, packet_bytes: 1000, gap_ns: 0 };
        let sent = sent_in(10, speed);
        let expected = 10 * 100_000 * 5 / 4 + 10_000;
        assert!(sent <= expected + 8_000 && sent > expected * 9 / 10, "{sent} of {expected}");
    }

    #[test]
    fn a_window_of_a_tenth_of_a_packet_is_a_packet_every_ten_round_trips() {
        let speed = Speed { window_bytes: 100, rtt_ns: 1_000_000, packet_bytes: 1000, gap_ns: 0 };
        let sent = sent_in(1000, speed);
        assert!((100_000..=120_000).contains(&sent), "{sent}");
    }

    /// At any speed: a caller that sets a timer for it would come in vain otherwise, and again.
    #[test]
    fn at_the_time_that_it_names_it_allows() {
        for (window_bytes, rtt_ns) in (1..3000).zip((1..).map(|step: u64| step * 7919)) {
            let speed =
                Speed { window_bytes: window_bytes * 7, rtt_ns, packet_bytes: 1448, gap_ns: 0 };
            let (mut now, mut pacer) = (Time::from_ns(123_457), Pacer::new(Time::ZERO, 1448));
            for _ in 0..50 {
                if pacer.allows(now, &speed) {
                    pacer.on_sent(1448);
                    continue;
                }
                let next = pacer.next_allowed(&speed);
                assert!(next > now && pacer.allows(next, &speed), "{speed:?}");
                now = next;
            }
        }
    }

    #[test]
    fn a_host_that_was_away_catches_up_and_an_idle_flow_does_not() {
        let mut speed =
            Speed { window_bytes: 100_000, rtt_ns: 100_000, packet_bytes: 1000, gap_ns: 0 };
        let burst = |speed: &Speed| {
            let mut pacer = Pacer::new(Time::ZERO, speed.packet_bytes);
            while pacer.allows(Time::ZERO, speed) {
                pacer.on_sent(1000);
            }
            let mut packets = 0;
            while pacer.allows(Time::from_ns(10_000_000), speed) {
                pacer.on_sent(1000);
                packets += 1;
            }
            packets
        };
        assert_eq!(burst(&speed), 63);
        speed.gap_ns = 100_000;
        assert_eq!(burst(&speed), 125);
    }

    /// Only then is the clock looked at.
    #[test]
    fn a_bucket_is_filled_once_half_of_it_is_used() {
        let speed = Speed { window_bytes: 100_000, rtt_ns: 100_000, packet_bytes: 1000, gap_ns: 0 };
        let packets_after = |used: u64| {
            let mut pacer = Pacer::new(Time::ZERO, speed.packet_bytes);
            pacer.on_sent(used * 1000);
            let mut packets = 0;
            while pacer.allows(Time::from_ns(10_000_000), &speed) {
                pacer.on_sent(1000);
                packets += 1;
            }
            packets
        };
        assert_eq!([4, 5, 6].map(packets_after), [64, 63, 63]);
    }

    #[test]
    fn a_window_of_one_packet_is_a_window_and_no_rate() {
        let speed = Speed { window_bytes: 1000, rtt_ns: 1_000_000, packet_bytes: 1000, gap_ns: 0 };
        let sent = sent_in(1000, speed);
        assert!((1_240_000..1_270_000).contains(&sent), "{sent}");
    }
}
