//! The retransmission timeout: RFC 6298.

use clearway_base::{MILLISECOND, SECOND, Time};

use crate::config::Settings;

/// Round-trip times, and the timeout that follows from them.
#[derive(Clone, Debug)]
pub(crate) struct Rto {
    /// SRTT; 0 before the first sample.
    smoothed_ns: u64,
    variation_ns: u64,
    latest_ns: u64,
    min: Min,
    rto_ns: u64,
    /// How often it has been doubled since something was acknowledged.
    doublings: u8,
}

/// RFC 6298, 5.7: after a lost SYN, 3 seconds.
const AFTER_LOST_SYN_NS: u64 = 3 * SECOND;
/// The granularity G: that of timestamps.
const GRANULARITY_NS: u64 = MILLISECOND;
const DOUBLINGS_MAX: u8 = 20;
/// RFC 6298, 2.5: as long as a timeout may be.
const ROUND_TRIP_MAX_NS: u64 = 60 * SECOND;

impl Rto {
    pub(crate) const fn new(settings: &Settings) -> Self {
        Self {
            smoothed_ns: 0,
            variation_ns: 0,
            latest_ns: 0,
            min: Min::new(),
            rto_ns: settings.rto_initial_ns,
            doublings: 0,
        }
    }

    /// Takes the round-trip time of data that was sent once.
    #[inline]
    pub(crate) fn sample(&mut self, now: Time, rtt_ns: u64, settings: &Settings) {
        let rtt_ns = rtt_ns.max(1);
        self.latest_ns = rtt_ns;
        self.min.add(now, rtt_ns);
        if self.smoothed_ns == 0 {
            // 2.2: "SRTT <- R, RTTVAR <- R/2".
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
        } else {
            // 2.3: "RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|", "SRTT <- (1 - alpha) *
            // SRTT + alpha * R'", with 1/4 and 1/8.
            let error_ns = self.smoothed_ns.abs_diff(rtt_ns);
            self.variation_ns = self.variation_ns - self.variation_ns / 4 + error_ns / 4;
            self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + rtt_ns / 8).max(1);
        }
        self.update(settings);
    }

    fn update(&mut self, settings: &Settings) {
        // 2.3: "RTO <- SRTT + max (G, K*RTTVAR)". 2.4 rounds up to a second what is less. Here the
        // least is a part of the sum: however long the path, a peer may delay an acknowledgement so
        // long.
        let margin_ns = (4 * self.variation_ns).max(GRANULARITY_NS).max(settings.rto_min_ns);
        self.rto_ns = self.smoothed_ns.saturating_add(margin_ns).min(settings.rto_max_ns);
    }

    /// One that has measured this: the smoothed round-trip time and its variation. Its timeout has
    /// been doubled so often.
    pub(crate) fn restore(
        (smoothed_ns, variation_ns): (u64, u64),
        doublings: u8,
        settings: &Settings,
    ) -> Self {
        let mut rto = Self { doublings, ..Self::new(settings) };
        if smoothed_ns > 0 {
            rto.smoothed_ns = smoothed_ns.min(ROUND_TRIP_MAX_NS);
            rto.variation_ns = variation_ns.min(ROUND_TRIP_MAX_NS);
            rto.latest_ns = rto.smoothed_ns;
            rto.update(settings);
        }
        rto
    }

    /// The timeout as it is now.
    #[inline]
    pub(crate) fn timeout_ns(&self, settings: &Settings) -> u64 {
        let doubled = self.rto_ns.saturating_mul(1 << self.doublings.min(DOUBLINGS_MAX));
        doubled.min(settings.rto_max_ns)
    }

    /// 5.5: "The host MUST set RTO <- RTO * 2 ("back off the timer")".
    pub(crate) const fn double(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// New data has been acknowledged.
    #[inline]
    pub(crate) const fn on_progress(&mut self) {
        self.doublings = 0;
    }

    /// 5.7: "If the timer expires awaiting the ACK of a SYN segment and the TCP implementation is
    /// using an RTO less than 3 seconds, the RTO MUST be re-initialized to 3 seconds when data
    /// transmission begins".
    pub(crate) const fn on_lost_syn(&mut self) {
        self.rto_ns = AFTER_LOST_SYN_NS;
        self.doublings = 0;
    }

    pub(crate) const fn doublings(&self) -> u8 {
        self.doublings
    }

    /// SRTT, if there is one.
    #[inline]
    pub(crate) const fn smoothed_ns(&self) -> Option<u64> {
        if self.smoothed_ns == 0 { None } else { Some(self.smoothed_ns) }
    }

    pub(crate) const fn variation_ns(&self) -> u64 {
        self.variation_ns
    }

    pub(crate) const fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// The lowest round-trip time of the last minutes.
    #[inline]
    pub(crate) fn min_ns(&self) -> u64 {
        self.min.ns()
    }
}

/// The lowest sample of two stretches of time, so that a path that has become longer is noticed.
#[derive(Clone, Debug)]
struct Min {
    since: Time,
    current_ns: u64,
    previous_ns: u64,
}

const MIN_STRETCH_NS: u64 = 150 * SECOND;

impl Min {
    const fn new() -> Self {
        Self { since: Time::ZERO, current_ns: u64::MAX, previous_ns: u64::MAX }
    }

    #[inline]
    fn add(&mut self, now: Time, rtt_ns: u64) {
        if now.since(self.since) > MIN_STRETCH_NS {
            self.since = now;
            self.previous_ns = core::mem::replace(&mut self.current_ns, rtt_ns);
        }
        self.current_ns = self.current_ns.min(rtt_ns);
    }

    #[inline]
    fn ns(&self) -> u64 {
        self.current_ns.min(self.previous_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::Rto;
    use crate::config::Settings;
    use clearway_base::{MILLISECOND, SECOND, Time};

    #[test]
    fn follows_the_rfc() {
        let settings = Settings::default();
        let mut rto = Rto::new(&settings);
        assert_eq!(rto.timeout_ns(&settings), SECOND);
        rto.sample(Time::ZERO, 100 * MILLISECOND, &settings);
        assert_eq!(rto.timeout_ns(&settings), 300 * MILLISECOND);
        rto.sample(Time::ZERO, 200 * MILLISECOND, &settings);
        // RTTVAR = 3/4 * 50 + 1/4 * 100 = 62.5, SRTT = 112.5.
        assert_eq!(rto.timeout_ns(&settings), 362_500_000);
        rto.double();
        assert_eq!(rto.timeout_ns(&settings), 725_000_000);
        (0..100).for_each(|_| rto.double());
        assert_eq!(rto.timeout_ns(&settings), settings.rto_max_ns);
        rto.on_progress();
        assert_eq!(rto.timeout_ns(&settings), 362_500_000);
    }

    #[test]
    fn is_never_below_its_least() {
        let settings = Settings::default();
        let mut rto = Rto::new(&settings);
        (0..50).for_each(|_| rto.sample(Time::ZERO, 20_000, &settings));
        assert_eq!(rto.timeout_ns(&settings), settings.rto_min_ns + 20_000);
        assert_eq!(rto.min_ns(), 20_000);
    }

    /// A path of half a second that does not vary: a peer that waits 190 ms with its
    /// acknowledgement is not late.
    #[test]
    fn a_long_path_leaves_time_for_a_delayed_acknowledgement() {
        let settings = Settings::default();
        let mut rto = Rto::new(&settings);
        (0..50).for_each(|_| rto.sample(Time::ZERO, 500 * MILLISECOND, &settings));
        assert!(rto.timeout_ns(&settings) > 690 * MILLISECOND);
    }

    #[test]
    fn a_longer_path_is_noticed_in_the_end() {
        let settings = Settings::default();
        let mut rto = Rto::new(&settings);
        rto.sample(Time::from_ns(1), 20_000, &settings);
        for minute in 1..7 {
            rto.sample(Time::from_ns(minute * 60 * SECOND), 50_000, &settings);
        }
        assert_eq!(rto.min_ns(), 50_000);
    }
}
