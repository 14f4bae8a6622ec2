//! Tail loss probes: RFC 8985, section 7.

use clearway_base::{MILLISECOND, SECOND};

/// The probe that has been sent and is not resolved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailProbe {
    /// TLP.end_seq.
    end: Option<u64>,
    /// TLP.is_retrans.
    is_retransmission: bool,
}

/// What an acknowledgement says about a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet, or nothing was lost.
    Nothing,
    /// "the TLP probe repaired the lost segment": congestion control has to hear of it.
    Repaired,
}

/// TLP.max_ack_delay: "the maximum delayed ACK timer value", 200 ms of most.
const ACK_DELAY_NS: u64 = 200 * MILLISECOND;
/// Less than this is noise of timers.
const TIMEOUT_MIN_NS: u64 = 2 * MILLISECOND;

impl TailProbe {
    pub(crate) const fn is_outstanding(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) const fn on_sent(&mut self, end: u64, is_retransmission: bool) {
        *self = Self { end: Some(end), is_retransmission };
    }

    pub(crate) const fn clear(&mut self) {
        self.end = None;
    }

    /// TLP_process_ack, 7.4.2. `is_bare`: nothing but an acknowledgement, of `una` once more.
    pub(crate) fn on_ack(&mut self, ack: u64, has_duplicate: bool, is_bare: bool) -> Verdict {
        let Some(end) = self.end.filter(|end| ack >= *end) else {
            return Verdict::Nothing;
        };
        if !self.is_retransmission || has_duplicate || (ack == end && is_bare) {
            self.end = None;
        } else if ack > end {
            self.end = None;
            return Verdict::Repaired;
        }
        Verdict::Nothing
    }
}

/// TLP_calc_PTO, 7.2, without the bound that the retransmission timer sets.
pub(crate) fn timeout_ns(smoothed_ns: Option<u64>, is_single: bool) -> u64 {
    let Some(smoothed_ns) = smoothed_ns else {
        return SECOND;
    };
    let ack_delay_ns = if is_single { ACK_DELAY_NS } else { 0 };
    (2 * smoothed_ns + ack_delay_ns).max(TIMEOUT_MIN_NS)
}
