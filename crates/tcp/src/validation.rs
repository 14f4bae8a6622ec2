//! Congestion window validation (RFC 7661): how much of the window was in use lately. A window of
//! which less than half is used says nothing about the path. It is kept for a while nevertheless,
//! so that an app that pauses goes on as fast as before.

use clearway_base::{SECOND, Time};

/// The period of which the most counts is in so many pieces (RFC 7661, section 4.5.1), and has one
/// more that is not over.
const PIECES: usize = 3;
/// RFC 7661, section 4.2: the period is three round trips, or a second if that is more.
const PERIOD_NS_MIN: u64 = SECOND;
/// RFC 7661, section 5: how long a window is kept that is not used.
const KEPT_NS: u64 = 300 * SECOND;

/// RFC 7661's pipeACK, and since when it has been too small.
#[derive(Debug, Default)]
pub(crate) struct Validation {
    /// False until something is measured: then the window counts as used.
    is_measured: bool,
    /// When the round trip began that is being measured, and what it has acknowledged.
    round_begun: Time,
    round_bytes: u64,
    /// When the first piece began; the most of a round trip in each, the newest first.
    piece_begun: Time,
    most_bytes: [u64; PIECES + 1],
    /// When the window was last used, or made smaller for not being used.
    settled: Time,
}

impl Validation {
    /// So many bytes have been acknowledged, outside of recovery.
    pub(crate) fn on_acknowledged(&mut self, now: Time, rtt_ns: u64, bytes: u64) {
        if !self.is_measured {
            *self = Self {
                is_measured: true,
                round_begun: now,
                piece_begun: now,
                settled: now,
                ..Self::default()
            };
        }
        if now.since(self.round_begun) >= rtt_ns {
            (self.round_begun, self.round_bytes) = (now, 0);
        }
        self.round_bytes += bytes;
        self.age(now, rtt_ns);
        self.most_bytes[0] = self.most_bytes[0].max(self.round_bytes);
    }

    /// After a loss all is measured anew (RFC 7661, section 4.4.1).
    pub(crate) fn reset(&mut self) {
        self.is_measured = false;
    }

    /// The most that was acknowledged in a round trip of the period, if that is less than half of
    /// the window.
    pub(crate) fn used_bytes_if_few(
        &mut self,
        now: Time,
        rtt_ns: u64,
        window_bytes: u64,
    ) -> Option<u64> {
        if !self.is_measured {
            return None;
        }
        self.age(now, rtt_ns);
        let used_bytes = self.most_bytes.into_iter().max().unwrap_or(0);
        (2 * used_bytes < window_bytes).then_some(used_bytes)
    }

    /// How many times five minutes have gone by in which less than half of the window was used, and
    /// which were not told yet. RFC 7661, section 4.4.3: the window is halved after each.
    pub(crate) fn periods_unused(&mut self, now: Time, rtt_ns: u64, window_bytes: u64) -> u32 {
        if self.used_bytes_if_few(now, rtt_ns, window_bytes).is_none() {
            self.settled = now;
        }
        let periods = now.since(self.settled) / KEPT_NS;
        self.settled = self.settled + periods * KEPT_NS;
        u32::try_from(periods).unwrap_or(u32::MAX)
    }

    fn age(&mut self, now: Time, rtt_ns: u64) {
        let piece_ns = (3 * rtt_ns).max(PERIOD_NS_MIN) / PIECES as u64;
        let pieces = now.since(self.piece_begun) / piece_ns;
        let gone = usize::try_from(pieces).unwrap_or(usize::MAX).min(PIECES + 1);
        self.most_bytes.rotate_right(gone % (PIECES + 1));
        self.most_bytes[..gone].fill(0);
        self.piece_begun = self.piece_begun + pieces * piece_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::MILLISECOND;

    const RTT_NS: u64 = 100 * MILLISECOND;

    fn at(ms: u64) -> Time {
        Time::from_ns(SECOND + ms * MILLISECOND)
    }

    /// What was acknowledged, and when in ms.
    fn after(acknowledged: &[(u64, u64)]) -> Validation {
        let mut it = Validation::default();
        acknowledged.iter().for_each(|(ms, bytes)| it.on_acknowledged(at(*ms), RTT_NS, *bytes));
        it
    }

    #[test]
    fn the_most_of_a_round_trip_counts_and_half_of_the_window_is_enough() {
        let rounds = [(0, 500), (50, 300), (100, 900), (199, 200), (200, 400)];
        let mut it = after(&rounds);
        assert_eq!(it.used_bytes_if_few(at(200), RTT_NS, 2200), None);
        assert_eq!(it.used_bytes_if_few(at(200), RTT_NS, 2201), Some(1100));
    }

    #[test]
    fn what_was_used_counts_for_a_second_or_three_round_trips() {
        for (rtt_ns, period_ms) in [(RTT_NS, 1000), (SECOND, 3000)] {
            let used = |ms| after(&[(0, 800)]).used_bytes_if_few(at(ms), rtt_ns, 1_000_000);
            assert_eq!(used(period_ms), Some(800));
            assert_eq!(used(period_ms * 4 / 3 + 1), Some(0));
        }
    }

    #[test]
    fn a_window_of_which_nothing_is_known_counts_as_used() {
        assert_eq!(after(&[]).used_bytes_if_few(at(0), RTT_NS, 10_000), None);
        let mut it = after(&[(0, 100)]);
        it.reset();
        assert_eq!(it.used_bytes_if_few(at(0), RTT_NS, 10_000), None);
        it.on_acknowledged(at(9), RTT_NS, 70);
        assert_eq!(it.used_bytes_if_few(at(9), RTT_NS, 10_000), Some(70));
    }

    #[test]
    fn a_window_that_is_not_used_is_kept_for_five_minutes_at_a_time() {
        let mut it = after(&[(0, 5000)]);
        let mut periods = |seconds: u64| it.periods_unused(at(seconds * 1000), RTT_NS, 10_000);
        assert_eq!([periods(0), periods(299), periods(300), periods(599)], [0, 0, 1, 0]);
        assert_eq!([periods(600), periods(1500), periods(1501)], [1, 3, 0]);
    }

    #[test]
    fn a_window_that_is_used_begins_five_minutes_anew() {
        let mut it = after(&[(0, 5000)]);
        assert_eq!(it.periods_unused(at(299_000), RTT_NS, 10_000), 0);
        it.on_acknowledged(at(299_500), RTT_NS, 5000);
        assert_eq!(it.periods_unused(at(299_500), RTT_NS, 10_000), 0);
        assert_eq!(it.periods_unused(at(599_400), RTT_NS, 10_000), 0);
        assert_eq!(it.periods_unused(at(599_500), RTT_NS, 10_000), 1);
    }
}
