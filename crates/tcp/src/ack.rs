//! When what has come is acknowledged: RFC 9293, section 3.8.6.3, and RFC 5681, section 4.2.

/// The acknowledgement that is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Due {
    /// None.
    #[default]
    No,
    /// With the next data, or when the delay is over.
    Later,
    /// Now.
    Now,
}

/// Decides when to acknowledge.
#[derive(Clone, Debug)]
pub(crate) struct AckPolicy {
    due: Due,
    /// Segments that are still acknowledged at once.
    quick: u8,
    /// The largest segment that has come.
    segment_bytes: u32,
    /// The largest that this end has said it takes: what is longer is several in one.
    segment_bytes_max: u32,
    /// Received since the last acknowledgement.
    owed_bytes: u64,
}

impl AckPolicy {
    pub(crate) const fn new(quick: u8, segment_bytes_max: u32) -> Self {
        let segment_bytes = SEGMENT_BYTES_MIN;
        Self { due: Due::No, quick, segment_bytes, segment_bytes_max, owed_bytes: 0 }
    }

    pub(crate) const fn due(&self) -> Due {
        self.due
    }

    /// The largest segment that has come, as a measure for windows.
    pub(crate) const fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// In-order data has come.
    #[inline]
    pub(crate) fn on_data(&mut self, length: u32, is_urgent: bool) {
        self.segment_bytes = self.segment_bytes.max(length.min(self.segment_bytes_max));
        self.owed_bytes += u64::from(length);
        // RFC 5681, 4.2: "an ACK SHOULD be generated for at least every second full-sized segment".
        let is_second = self.owed_bytes >= 2 * u64::from(self.segment_bytes);
        if self.quick > 0 || is_urgent || is_second {
            self.quick = self.quick.saturating_sub(1);
            self.due = Due::Now;
        } else if self.due == Due::No {
            self.due = Due::Later;
        }
    }

    /// Acknowledges the next segments at once, and what waits for its acknowledgement; or none.
    pub(crate) const fn set_quick(&mut self, is_quick: bool) {
        self.quick = if is_quick { QUICK } else { 0 };
        if is_quick && matches!(self.due, Due::Later) {
            self.due = Due::Now;
        }
    }

    /// An acknowledgement has to leave now.
    pub(crate) const fn demand(&mut self) {
        self.due = Due::Now;
    }

    /// A segment with an acknowledgement has left. One that had data to carry, too, is a sign of a
    /// conversation, in which acknowledgements travel with answers.
    #[inline]
    pub(crate) const fn on_sent(&mut self, with_data: bool) {
        if with_data && self.owed_bytes > 0 {
            self.quick = 0;
        }
        self.due = Due::No;
        self.owed_bytes = 0;
    }
}

/// Segments that are acknowledged at once when an app asks for it: as many as at the beginning.
const QUICK: u8 = 16;
/// RFC 9293, section 3.7.1: the default maximum segment size of IPv4.
const SEGMENT_BYTES_MIN: u32 = 536;
