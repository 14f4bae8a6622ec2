//! Round-trip time estimation, RFC 9002, section 5.

/// What is known of a path's round-trip time, in ns.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    /// The newest sample as it was, and without what the peer says that it held it back.
    latest_ns: u64,
    adjusted_ns: u64,
    min_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    sampled: bool,
}

/// RFC 9002, section 6.2.2, starts at 333 ms for the Internet; here a host is a few microseconds
/// to a few milliseconds away, and the handshake gives a sample before the first data.
const INITIAL_RTT_NS: u64 = 1_000_000;

impl RttEstimator {
    pub(crate) const fn new() -> Self {
        Self {
            latest_ns: INITIAL_RTT_NS,
            adjusted_ns: INITIAL_RTT_NS,
            min_ns: u64::MAX,
            smoothed_ns: INITIAL_RTT_NS,
            variation_ns: INITIAL_RTT_NS / 2,
            sampled: false,
        }
    }

    /// Takes a sample: time from sending to acknowledgement, and how long the peer says it held
    /// the acknowledgement back.
    pub(crate) fn sample(&mut self, rtt_ns: u64, ack_delay_ns: u64) {
        self.latest_ns = rtt_ns;
        self.adjusted_ns = rtt_ns;
        self.min_ns = self.min_ns.min(rtt_ns);
        if !self.sampled {
            self.sampled = true;
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
            return;
        }
        // RFC 9002, 5.3: "adjusted_rtt = latest_rtt; if (latest_rtt >= min_rtt + ack_delay):
        // adjusted_rtt = latest_rtt - ack_delay"
        let adjusted = if rtt_ns >= self.min_ns.saturating_add(ack_delay_ns) {
            rtt_ns - ack_delay_ns
        } else {
            rtt_ns
        };
        // "rttvar = 3/4 * rttvar + 1/4 * rttvar_sample; smoothed_rtt = 7/8 * smoothed_rtt + 1/8 * adjusted_rtt"
        self.variation_ns =
            self.variation_ns - self.variation_ns / 4 + self.smoothed_ns.abs_diff(adjusted) / 4;
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + adjusted / 8;
        self.adjusted_ns = adjusted;
    }

    /// RFC 9002, 5.2: "Endpoints SHOULD set the min_rtt to the newest RTT sample after persistent
    /// congestion is established." The path may be another one.
    pub(crate) const fn on_persistent_congestion(&mut self) {
        self.min_ns = u64::MAX;
    }

    /// The newest sample, without the peer's own delay.
    pub(crate) const fn adjusted_ns(&self) -> u64 {
        self.adjusted_ns
    }

    pub(crate) const fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The lowest sample; the initial guess while there is none.
    pub(crate) fn min_ns(&self) -> u64 {
        self.min_ns.min(self.smoothed_ns)
    }

    /// RFC 9002, 6.2.1: "PTO = smoothed_rtt + max(4*rttvar, kGranularity) + max_ack_delay".
    pub(crate) fn probe_timeout_ns(&self, granularity_ns: u64, ack_delay_ns: u64) -> u64 {
        self.smoothed_ns + (4 * self.variation_ns).max(granularity_ns) + ack_delay_ns
    }

    /// RFC 9002, 6.1.2: "max(kTimeThreshold * max(smoothed_rtt, latest_rtt), kGranularity)" with
    /// a kTimeThreshold of 9/8.
    pub(crate) fn loss_delay_ns(&self, granularity_ns: u64) -> u64 {
        let rtt = self.smoothed_ns.max(self.latest_ns);
        (rtt + rtt / 8).max(granularity_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::RttEstimator;

    #[test]
    fn the_peers_delay_counts_for_loss_and_not_for_congestion() {
        let mut rtt = RttEstimator::new();
        rtt.sample(1_000_000, 0);
        rtt.sample(5_000_000, 4_000_000);
        assert_eq!(rtt.adjusted_ns(), 1_000_000);
        assert_eq!(rtt.smoothed_ns(), 1_000_000);
        // RFC 9002, 6.1.2, takes latest_rtt as it was measured.
        assert_eq!(rtt.loss_delay_ns(0), 5_625_000);
        // A delay that would make the path faster than it has ever been is not believed.
        rtt.sample(2_000_000, 4_000_000);
        assert_eq!(rtt.adjusted_ns(), 2_000_000);
    }

    #[test]
    fn persistent_congestion_forgets_the_lowest() {
        let mut rtt = RttEstimator::new();
        rtt.sample(1_000, 0);
        rtt.on_persistent_congestion();
        rtt.sample(9_000_000, 0);
        assert!(rtt.min_ns() > 1_000_000, "{}", rtt.min_ns());
    }
}
