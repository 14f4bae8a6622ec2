//! Pacing: spreads a window over its round trip (RFC 9002, section 7.7), in bursts that fit an
//! LCD queue.

use clearway_base::Time;

/// A token bucket in bytes. Its rate is passed with each call, since window and round-trip time
/// change all the time.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    tokens_bytes: u64,
    burst_bytes: u64,
    updated: Time,
}

/// RFC 9002, 7.7: "Senders SHOULD limit bursts"; 64 packets are a quarter of an LCD queue.
const BURST_PACKETS: u64 = 64;

impl Pacer {
    pub(crate) fn new(now: Time, packet_bytes: u16) -> Self {
        let burst_bytes = BURST_PACKETS * u64::from(packet_bytes);
        Self { tokens_bytes: burst_bytes, burst_bytes, updated: now }
    }

    /// True if a packet may leave now. `window_bytes` per `rtt_ns` is the congestion control's rate.
    pub(crate) fn allows(&mut self, now: Time, window_bytes: u64, rtt_ns: u64) -> bool {
        if self.tokens_bytes >= self.burst_bytes / 2 {
            return true; // the usual case, without a division
        }
        self.refill(now, window_bytes, rtt_ns);
        self.tokens_bytes > 0
    }

    /// When the next packet may leave, if [`Pacer::allows`] has just said no.
    pub(crate) fn next_allowed(&self, window_bytes: u64, rtt_ns: u64) -> Time {
        let quantum = self.burst_bytes / 8;
        self.updated + quantum * rtt_ns / (window_bytes + window_bytes / 4).max(1)
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.tokens_bytes = self.tokens_bytes.saturating_sub(bytes);
    }

    /// RFC 9002, 7.7: "rate = N * congestion_window / smoothed_rtt", with an N of 1.25.
    fn refill(&mut self, now: Time, window_bytes: u64, rtt_ns: u64) {
        let elapsed_ns = now.since(self.updated);
        let rate_bytes = u128::from(window_bytes + window_bytes / 4);
        let earned = u128::from(elapsed_ns) * rate_bytes / u128::from(rtt_ns.max(1));
        if earned == 0 {
            return;
        }
        self.updated = now;
        self.tokens_bytes =
            (u128::from(self.tokens_bytes) + earned).min(u128::from(self.burst_bytes)) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::Pacer;
    use clearway_base::Time;

    #[test]
    fn sends_a_burst_and_then_at_the_rate_of_the_window() {
        let mut now = Time::from_ns(1_000_000);
        let mut pacer = Pacer::new(now, 1000);
        let (window, rtt) = (100_000, 1_000_000);
        let mut sent = 0;
        let end = now + 10 * rtt;
        while now < end {
            if pacer.allows(now, window, rtt) {
                pacer.on_sent(1000);
                sent += 1000;
            } else {
                now = now.max(pacer.next_allowed(window, rtt)) + 1;
            }
        }
        let expected = 10 * window * 5 / 4 + 64_000;
        assert!(sent <= expected + 8_000 && sent > expected * 9 / 10, "{sent} of {expected}");
    }
}
