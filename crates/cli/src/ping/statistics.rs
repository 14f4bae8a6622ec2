//! The summary of a ping, as that of iputils.

use std::time::Duration;

/// What has become of all probes so far.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// The number of the last probe that is known to be sent.
    sent: u32,
    round_trips: u32,
    sum_ns: f64,
    /// Of the squares.
    square_sum_ns: f64,
    min_ns: f64,
    max_ns: f64,
}

impl Statistics {
    /// A probe was sent.
    pub(super) fn sent(&mut self, number: u32) {
        self.sent = self.sent.max(number);
    }

    /// It was answered.
    pub(super) fn answered(&mut self, round_trip: Duration) {
        let ns = round_trip.as_nanos() as f64;
        let is_first = self.round_trips == 0;
        self.min_ns = if is_first { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += ns;
        self.square_sum_ns += ns * ns;
        self.round_trips += 1;
    }

    pub(super) fn received(&self) -> u32 {
        self.round_trips
    }

    pub(super) fn text(&self, peer: &str, time: Duration) -> String {
        let (sent, received) = (self.sent, self.round_trips);
        let lost = sent - received;
        let percent = 100.0 * f64::from(lost) / f64::from(sent.max(1));
        let time = time.as_millis();
        let mut text = format!(
            "--- {peer} ping statistics ---\n\
             {sent} sent, {received} received, {lost} lost ({percent:.3}%), time {time} ms\n"
        );
        if received > 0 {
            let mean = self.sum_ns / f64::from(received);
            let mdev = (self.square_sum_ns / f64::from(received) - mean * mean).max(0.0).sqrt();
            let [min, avg, max, mdev] = [self.min_ns, mean, self.max_ns, mdev].map(microseconds);
            text += &format!("round trip min/avg/max/mdev = {min}/{avg}/{max}/{mdev} µs\n");
        }
        text
    }
}

pub(super) fn microseconds(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_that_of_ping() {
        let mut statistics = Statistics::default();
        let none = statistics.text("a", Duration::ZERO);
        assert_eq!(
            none,
            "--- a ping statistics ---\n0 sent, 0 received, 0 lost (0.000%), time 0 ms\n"
        );
        for (number, ns) in [(2, Some(3000)), (1, Some(1000)), (3, None), (4, Some(2000))] {
            statistics.sent(number);
            ns.into_iter().for_each(|ns| statistics.answered(Duration::from_nanos(ns)));
        }
        let text = statistics.text("10.0.0.2", Duration::from_millis(812));
        assert!(text.contains("4 sent, 3 received, 1 lost (25.000%), time 812 ms"), "{text}");
        // The standard deviation of 1, 2 and 3 is the root of 2/3.
        assert!(text.contains("min/avg/max/mdev = 1.0/2.0/3.0/0.8 µs"), "{text}");
    }
}
