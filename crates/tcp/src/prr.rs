//! Proportional rate reduction: RFC 6937.

/// How much may be sent while lost data is sent again, so that at the end of it the window is what
/// congestion control has decided, and on the way there acknowledgements keep coming.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// RecoverFS: in flight when it began, and what the acknowledgement that began it says has
    /// arrived. What had arrived before will never be delivered, and does not count.
    begun_bytes: u64,
    delivered_bytes: u64,
    out_bytes: u64,
}

impl Prr {
    pub(crate) const fn new(begun_bytes: u64) -> Self {
        Self { begun_bytes, delivered_bytes: 0, out_bytes: 0 }
    }

    pub(crate) const fn on_sent(&mut self, bytes: u64) {
        self.out_bytes += bytes;
    }

    /// How much may be sent upon an acknowledgement that says that `delivered_bytes` have arrived;
    /// `is_safe`: more is acknowledged and nothing more lost.
    pub(crate) fn on_ack(&mut self, ack: &PrrAck) -> u64 {
        self.delivered_bytes += ack.delivered_bytes;
        if ack.in_flight_bytes > ack.threshold_bytes {
            // RFC 6937, section 3.1: "sndcnt = CEIL(prr_delivered * ssthresh / RecoverFS) -
            // prr_out".
            let proportional = u128::from(self.delivered_bytes) * u128::from(ack.threshold_bytes);
            let proportional = proportional.div_ceil(u128::from(self.begun_bytes.max(1))) as u64;
            return proportional.saturating_sub(self.out_bytes);
        }
        // "limit = MAX(prr_delivered - prr_out, DeliveredData) + MSS": PRR-SSRB, attempt to catch
        // up. As its successor (draft-ietf-tcpm-prr-rfc6937bis) has it, without MSS if more is
        // lost.
        let conservative = self.delivered_bytes.saturating_sub(self.out_bytes);
        let limit =
            conservative.max(ack.delivered_bytes) + if ack.is_safe { ack.segment_bytes } else { 0 };
        (ack.threshold_bytes - ack.in_flight_bytes).min(limit)
    }
}

/// An acknowledgement during recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrrAck {
    pub(crate) delivered_bytes: u64,
    pub(crate) in_flight_bytes: u64,
    /// The window when recovery is over: ssthresh.
    pub(crate) threshold_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) is_safe: bool,
}

#[cfg(test)]
mod tests {
    use super::{Prr, PrrAck};

    /// The example of RFC 6937, section 4: 20 segments, one lost, and a threshold of 10: one
    /// segment leaves for every two that arrive.
    #[test]
    fn one_loss_of_twenty() {
        let mut prr = Prr::new(20);
        let (mut in_flight, mut sent) = (19, 0);
        for _ in 0..19 {
            in_flight -= 1;
            let ack = PrrAck {
                delivered_bytes: 1,
                in_flight_bytes: in_flight,
                threshold_bytes: 10,
                segment_bytes: 1,
                is_safe: false,
            };
            let count = prr.on_ack(&ack);
            prr.on_sent(count);
            in_flight += count;
            sent += count;
        }
        assert_eq!((sent, in_flight), (10, 10));
    }

    #[test]
    fn many_losses_are_caught_up_segment_by_segment() {
        let mut prr = Prr::new(20);
        let ack = |is_safe| PrrAck {
            delivered_bytes: 1,
            in_flight_bytes: 4,
            threshold_bytes: 10,
            segment_bytes: 1,
            is_safe,
        };
        assert_eq!(prr.on_ack(&ack(false)), 1);
        prr.on_sent(1);
        assert_eq!(prr.on_ack(&ack(true)), 2);
    }
}
