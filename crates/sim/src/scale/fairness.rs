//! Flows that share a link, near ones and far ones: what each gets, over a long time and a short
//! one, and how long one that comes later waits for its share.

use clearway_base::MILLISECOND;
use clearway_engine::Congestion;
use serde::Serialize;

use super::crowd::{Crowd, LINK, capacity_bytes, jain};
use super::median;
use crate::network::Link;

/// Messages of a flow that are unfinished: 1 MB, enough for a share of the longest way.
const WINDOW: u32 = 32;
/// What passes before the measured time.
const WARM_UP_NS: u64 = 500 * MILLISECOND;
/// The measured time, and the parts of it that are looked at alone.
const MEASURED_NS: u64 = 500 * MILLISECOND;
const PART_NS: u64 = 10 * MILLISECOND;
/// A flow that comes later has its share once it has so much of it in one part.
const JOINED: f64 = 0.8;
/// It is waited for no longer than this.
const JOINING_NS_MAX: u64 = 2000 * MILLISECOND;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// The congestion control of all flows.
    pub congestion: &'static str,
    /// Round-trip times of the empty network, in ns. Half of a way is the receiver's, which all
    /// share.
    pub rtts_ns: Vec<u64>,
    /// Flows of each round-trip time.
    pub flows_each: usize,
    /// Bytes of messages that arrived, as part of what the link can carry.
    pub goodput: f64,
    /// What a frame waited for the link, in ns: on average over the measured time, and 99 of 100 no
    /// longer than this.
    pub queue_ns: u64,
    /// See `queue_ns`.
    pub queue_p99_ns: u64,
    /// Jain's index over all flows, over the measured time.
    pub jain: f64,
    /// The median of the same over parts of 10 ms.
    pub jain_10ms: f64,
    /// What the flows of each round-trip time got on average, as parts of an equal share.
    pub shares: Vec<f64>,
    /// Until a last flow, of the longest round-trip time, that begins when the others have the
    /// link, has had 0.8 of an equal share in 10 ms; `None` if it did not get that far in 2 s.
    pub joining_ns: Option<u64>,
}

/// Measures so many flows of each round-trip time, of 20 us or longer.
///
/// # Panics
/// If a flow cannot be opened.
#[must_use]
pub fn fairness(rtts_ns: &[u64], flows_each: usize, congestion: Congestion) -> Fairness {
    // Two ways there and two back, of which one each is the receiver's.
    let link = |rtt_ns: &u64| Link { latency_ns: rtt_ns / 2 - LINK.latency_ns, ..LINK };
    let links = rtts_ns.iter().flat_map(|rtt_ns| std::iter::repeat_n(link(rtt_ns), flows_each));
    let mut crowd = Crowd::new(&links.collect::<Vec<_>>(), WINDOW, congestion);
    let flows = rtts_ns.len() * flows_each;
    crowd.begin(0..flows - 1);
    crowd.pass(WARM_UP_NS);
    crowd.begin(flows - 1..flows);
    let joining_ns = joining_ns(&mut crowd, flows);
    crowd.pass(WARM_UP_NS);
    crowd.take_waits_ns();
    let parts: Vec<Vec<f64>> = (0..MEASURED_NS / PART_NS).map(|_| crowd.pass(PART_NS)).collect();
    let bytes: Vec<f64> =
        (0..flows).map(|flow| parts.iter().map(|part| part[flow]).sum()).collect();
    let total: f64 = bytes.iter().sum();
    let (queue_ns, queue_p99_ns) = mean_and_p99(crowd.take_waits_ns());
    let of_rtt = |part: &[f64]| part.iter().sum::<f64>() * rtts_ns.len() as f64 / total;
    Fairness {
        congestion: congestion.name(),
        rtts_ns: rtts_ns.to_vec(),
        flows_each,
        goodput: total / capacity_bytes(MEASURED_NS),
        queue_ns,
        queue_p99_ns,
        jain: jain(&bytes),
        jain_10ms: median(parts.iter().map(|part| jain(part)).collect()),
        shares: bytes.chunks(flows_each).map(of_rtt).collect(),
        joining_ns,
    }
}

fn mean_and_p99(mut values: Vec<u64>) -> (u64, u64) {
    values.sort_unstable();
    (values.iter().sum::<u64>() / values.len() as u64, values[values.len() * 99 / 100])
}

fn joining_ns(crowd: &mut Crowd, flows: usize) -> Option<u64> {
    (1..=JOINING_NS_MAX / PART_NS)
        .find(|_| {
            let bytes = crowd.pass(PART_NS);
            let total: f64 = bytes.iter().sum();
            bytes[flows - 1] * flows as f64 >= JOINED * total
        })
        .map(|parts| parts * PART_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_flows_share_alike_and_one_that_is_late_joins() {
        let found = fairness(&[20_000, 100_000, 500_000, 2_000_000], 1, Congestion::Swift);
        assert!(found.goodput > 0.9 && found.goodput <= 1.0, "{found:?}");
        assert!(found.jain > 0.9 && found.jain_10ms > 0.9, "{found:?}");
        assert!((found.shares.iter().sum::<f64>() - 4.0).abs() < 1e-6, "{found:?}");
        assert!(found.queue_ns <= found.queue_p99_ns && found.queue_p99_ns < 200_000, "{found:?}");
        assert!(found.joining_ns.is_some_and(|joining_ns| joining_ns < 100_000_000), "{found:?}");
    }
}
