//! Hosts that send to one: how much of its link they use together, how fairly they share it, and
//! what of their frames it loses.

use clearway_base::MILLISECOND;
use clearway_engine::Congestion;
use serde::Serialize;

use super::crowd::{Crowd, LINK, capacity_bytes, jain};

/// Messages of a sender that are unfinished.
const WINDOW: u32 = 8;
/// What passes before the measured time, so that flows find their rates, and how long that is.
const WARM_UP_NS: u64 = 100 * MILLISECOND;
const MEASURED_NS: u64 = 200 * MILLISECOND;

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sharing {
    /// Hosts that send all they can to another one, all over links of 10 Gbit/s.
    pub senders: usize,
    /// The congestion control of all of them.
    pub congestion: &'static str,
    /// Bytes of messages that arrived, as part of what the link can carry.
    pub goodput: f64,
    /// Jain's index of fairness over the senders: 1 if all got the same, 1/n if one got everything.
    pub jain: f64,
    /// What the least lucky of them got, as part of an equal share.
    pub least_share: f64,
    /// Frames that the queue before the receiver had no room for, as part of all that were sent,
    /// from the beginning: all begin at once.
    pub lost: f64,
}

/// Measures so many senders.
///
/// # Panics
/// If a sender cannot connect.
#[must_use]
pub fn sharing(senders: usize, congestion: Congestion) -> Sharing {
    let mut crowd = Crowd::new(&vec![LINK; senders], WINDOW, congestion);
    crowd.begin(0..senders);
    crowd.pass(WARM_UP_NS);
    let bytes = crowd.pass(MEASURED_NS);
    let total: f64 = bytes.iter().sum();
    let least = bytes.iter().copied().fold(f64::INFINITY, f64::min);
    let count = |wanted| {
        let counts = crowd.stage.network.counts().into_iter();
        counts.filter(|(name, _)| *name == wanted).map(|(_, count)| count).sum::<u64>() as f64
    };
    Sharing {
        senders,
        congestion: congestion.name(),
        goodput: total / capacity_bytes(MEASURED_NS),
        jain: jain(&bytes),
        least_share: least * senders as f64 / total,
        lost: count("frames_overflowed") / count("frames"),
    }
}

#[cfg(test)]
mod tests {
    use clearway_engine::Congestion;

    #[test]
    fn four_senders_fill_a_link_and_share_it() {
        let sharing = super::sharing(4, Congestion::Swift);
        assert!(sharing.goodput > 0.5 && sharing.goodput <= 1.0, "{sharing:?}");
        assert!(sharing.jain > 0.5 && sharing.jain <= 1.0 + 1e-9, "{sharing:?}");
        assert!(sharing.least_share > 0.0 && sharing.least_share <= 1.0, "{sharing:?}");
    }
}
