//! Round-trip time estimation, RFC 9002, section 5.

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};

use crate::state::{DURATION_NS_MAX, RttState};

/// What is known of a path's round-trip time, in ns.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    /// The newest sample as it was, and without what both hosts say that they held it up.
    latest_ns: u64,
    network_ns: u64,
    min_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    /// When the first sample was taken; `Time::MAX` before that.
    sampled: Time,
}

/// How long the hosts of a path, not the network, held up a packet or its acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostDelay {
    pub(crate) peer_ns: u64,
    pub(crate) own_ns: u64,
}

/// RFC 9002, section 6.2.2, starts at 333 ms for the Internet; here a host is a few microseconds
/// to a few milliseconds away, and the handshake gives a sample before the first data.
const INITIAL_RTT_NS: u64 = 1_000_000;

impl RttEstimator {
    pub(crate) const fn new() -> Self {
        Self {
            latest_ns: INITIAL_RTT_NS,
            network_ns: INITIAL_RTT_NS,
            min_ns: u64::MAX,
            smoothed_ns: INITIAL_RTT_NS,
            variation_ns: INITIAL_RTT_NS / 2,
            sampled: Time::MAX,
        }
    }

    pub(crate) const fn save(&self) -> RttState {
        let Self { latest_ns, network_ns, min_ns, smoothed_ns, variation_ns, sampled } = *self;
        RttState { latest_ns, network_ns, min_ns, smoothed_ns, variation_ns, sampled }
    }

    pub(crate) fn restore(state: RttState) -> Result<Self, Invalid> {
        let RttState { latest_ns, network_ns, min_ns, smoothed_ns, variation_ns, sampled } = state;
        let longest_ns = latest_ns.max(smoothed_ns).max(variation_ns);
        ensure(longest_ns <= DURATION_NS_MAX, "a round trip that no packet has made")?;
        Ok(Self { latest_ns, network_ns, min_ns, smoothed_ns, variation_ns, sampled })
    }

    /// Takes what is better than the initial guess, and no sample: the next one begins anew, and no
    /// congestion control gets to see this. RFC 6298, section 3: samples "MUST NOT be made using
    /// segments that were retransmitted (and thus for which it is ambiguous whether the reply was
    /// for the first instance of the packet or a later instance)".
    pub(crate) const fn guess(&mut self, rtt_ns: u64) {
        (self.latest_ns, self.smoothed_ns, self.variation_ns) = (rtt_ns, rtt_ns, rtt_ns / 2);
    }

    /// Takes a sample: time from sending to acknowledgement; how much of that the peer, and this
    /// host, say they held it up; and how much of it the peer does on purpose, at most.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        rtt_ns: u64,
        delay: HostDelay,
        ack_delay_max_ns: u64,
    ) {
        self.latest_ns = rtt_ns;
        self.min_ns = self.min_ns.min(rtt_ns);
        // Hosts say no less than what they held it up; never less than the least was on its way.
        let held_ns = delay.peer_ns.saturating_add(delay.own_ns);
        self.network_ns = rtt_ns.saturating_sub(held_ns).max(self.min_ns);
        if self.sampled == Time::MAX {
            self.sampled = now;
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
            return;
        }
        // RFC 9002, 5.3: "MUST use the lesser of the acknowledgment delay and the peer's
        // max_ack_delay", and "adjusted_rtt = latest_rtt; if (latest_rtt >= min_rtt + ack_delay):
        // adjusted_rtt = latest_rtt - ack_delay". What a busy host takes beyond that has to be
        // waited for by the timers, too.
        let ack_delay_ns = delay.peer_ns.min(ack_delay_max_ns);
        let adjusted = if rtt_ns >= self.min_ns.saturating_add(ack_delay_ns) {
            rtt_ns - ack_delay_ns
        } else {
            rtt_ns
        };
        // "rttvar = 3/4 * rttvar + 1/4 * rttvar_sample; smoothed_rtt = 7/8 * smoothed_rtt + 1/8 *
        // adjusted_rtt"
        self.variation_ns =
            self.variation_ns - self.variation_ns / 4 + self.smoothed_ns.abs_diff(adjusted) / 4;
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + adjusted / 8;
    }

    /// RFC 9002, 5.2: "Endpoints SHOULD set the min_rtt to the newest RTT sample after persistent
    /// congestion is established." The path may be another one.
    pub(crate) const fn on_persistent_congestion(&mut self) {
        self.min_ns = u64::MAX;
    }

    /// True if a round-trip time had been measured when a packet was sent at `sent`.
    pub(crate) fn was_known(&self, sent: Time) -> bool {
        self.sampled <= sent
    }

    /// The newest sample, without what the hosts held it up: what the network took.
    pub(crate) const fn network_ns(&self) -> u64 {
        self.network_ns
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
    /// a kTimeThreshold of 9/8, or more eighths where packets overtake each other.
    pub(crate) fn loss_delay_ns(&self, granularity_ns: u64, eighths: u64) -> u64 {
        let rtt = self.smoothed_ns.max(self.latest_ns);
        (rtt + rtt / 8 * eighths).max(granularity_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::{HostDelay, RttEstimator};
    use clearway_base::Time;

    const NOW: Time = Time::ZERO;
    const ACK_DELAY_NS: u64 = 50_000;

    #[test]
    fn what_hosts_held_up_counts_for_timers_and_not_for_congestion() {
        let mut rtt = RttEstimator::new();
        rtt.sample(NOW, 1_000_000, HostDelay::default(), ACK_DELAY_NS);
        rtt.sample(NOW, 5_000_000, HostDelay { peer_ns: 3_000_000, own_ns: 900_000 }, ACK_DELAY_NS);
        assert_eq!(rtt.network_ns(), 1_100_000);
        assert_eq!(rtt.smoothed_ns(), 1_000_000 - 125_000 + 4_950_000 / 8);
        // RFC 9002, 6.1.2, takes latest_rtt as it was measured.
        assert_eq!(rtt.loss_delay_ns(0, 1), 5_625_000);
        assert_eq!(rtt.loss_delay_ns(0, 4), 7_500_000);
        // A delay that would make the path faster than it has ever been is not believed.
        rtt.sample(NOW, 2_000_000, HostDelay { peer_ns: u64::MAX, own_ns: 1 }, ACK_DELAY_NS);
        assert_eq!(rtt.network_ns(), 1_000_000);
    }

    /// RFC 9002, 5.3 and 6.2.1, by hand: a first sample of 8,000 and a second of 16,000.
    #[test]
    fn samples_are_smoothed_and_their_variation_makes_the_probe_timeout() {
        let mut rtt = RttEstimator::new();
        assert!(!rtt.was_known(NOW));
        rtt.sample(NOW, 8_000, HostDelay::default(), ACK_DELAY_NS);
        assert!(rtt.was_known(NOW));
        assert_eq!((rtt.smoothed_ns(), rtt.min_ns()), (8_000, 8_000));
        assert_eq!(rtt.probe_timeout_ns(0, 100), 8_000 + 4 * 4_000 + 100);
        rtt.sample(NOW, 16_000, HostDelay::default(), ACK_DELAY_NS);
        // "rttvar = 3/4 * 4,000 + 1/4 * 8,000", "smoothed_rtt = 7/8 * 8,000 + 1/8 * 16,000".
        assert_eq!((rtt.smoothed_ns(), rtt.min_ns()), (9_000, 8_000));
        assert_eq!(rtt.probe_timeout_ns(0, 100), 9_000 + 4 * 5_000 + 100);
        assert_eq!(rtt.probe_timeout_ns(30_000, 100), 9_000 + 30_000 + 100);
        assert_eq!(rtt.loss_delay_ns(0, 1), 18_000, "nine eighths of the latest");
        assert_eq!(rtt.loss_delay_ns(20_000, 1), 20_000);
    }

    /// RFC 9002, 5.3: "if (latest_rtt >= min_rtt + ack_delay): adjusted_rtt = latest_rtt -
    /// ack_delay", with the lesser of what the peer says and what it may.
    #[test]
    fn a_delay_of_the_peer_is_taken_off_as_far_as_it_can_be_believed() {
        for (delay_ns, delay_max_ns, adjusted) in
            [(8_000, 50_000, 8_000), (8_008, 50_000, 16_000), (8_000, 800, 15_200), (0, 0, 16_000)]
        {
            let mut rtt = RttEstimator::new();
            rtt.sample(NOW, 8_000, HostDelay::default(), delay_max_ns);
            let delay = HostDelay { peer_ns: delay_ns, own_ns: 0 };
            rtt.sample(NOW, 16_000, delay, delay_max_ns);
            assert_eq!(rtt.smoothed_ns(), 7_000 + adjusted / 8, "{delay_ns}");
        }
    }

    /// RFC 6298, section 3: what may be the answer to an earlier packet is no sample.
    #[test]
    fn a_guess_is_as_good_as_a_first_sample_until_there_is_one() {
        let mut rtt = RttEstimator::new();
        rtt.guess(4_000);
        assert!(!rtt.was_known(NOW));
        assert_eq!((rtt.smoothed_ns(), rtt.probe_timeout_ns(0, 0)), (4_000, 4_000 + 4 * 2_000));
        assert_eq!(rtt.loss_delay_ns(0, 1), 4_500);
        rtt.sample(NOW, 800, HostDelay::default(), 0);
        assert_eq!((rtt.smoothed_ns(), rtt.probe_timeout_ns(0, 0)), (800, 800 + 4 * 400));
    }

    #[test]
    fn persistent_congestion_forgets_the_lowest() {
        let mut rtt = RttEstimator::new();
        rtt.sample(NOW, 1_000, HostDelay::default(), ACK_DELAY_NS);
        rtt.on_persistent_congestion();
        rtt.sample(NOW, 9_000_000, HostDelay::default(), ACK_DELAY_NS);
        assert!(rtt.min_ns() > 1_000_000, "{}", rtt.min_ns());
    }
}
