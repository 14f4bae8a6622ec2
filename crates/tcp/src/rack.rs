//! RACK (RFC 8985, section 6): what was sent sufficiently before something that has arrived, and
//! has not arrived itself, is lost.

use clearway_base::Time;

/// A transmission. RFC 8985 compares them by time, and those of one moment by their end, which is
/// what a burst of new data wants. What is sent again in that moment, and is of lower numbers, is
/// later nevertheless: each time that the numbers go back is a turn of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) turn: u16,
    pub(crate) end: u64,
    /// It has been sent before.
    pub(crate) again: bool,
}

impl Sent {
    /// The turn of what is sent next, in the same moment, and ends at `end`.
    pub(crate) fn next_turn(&self, end: u64) -> u16 {
        self.turn.saturating_add((end <= self.end).into())
    }
}

/// The variables of RFC 8985, section 5.3.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: the newest transmission that has arrived.
    newest: Sent,
    rtt_ns: u64,
    /// RACK.fack: the highest that has arrived.
    highest: u64,
    reordering_seen: bool,
    /// How far behind the highest something has arrived, at most.
    behind_bytes_max: u32,
    /// RACK.reo_wnd_mult and RACK.reo_wnd_persist.
    multiple: u8,
    persist: u8,
    /// RACK.dsack_round.
    round_end: Option<u64>,
}

/// "RACK.reo_wnd_persist = 16".
const PERSIST: u8 = 16;
/// "DupThresh".
const DUPLICATES: u64 = 3;

/// What decides about the reordering window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) is_recovering: bool,
    pub(crate) sacked_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) smoothed_ns: u64,
    pub(crate) min_rtt_ns: u64,
}

impl Rack {
    /// Steps 1 to 3: a transmission has arrived, perhaps of what was sent before.
    #[inline]
    pub(crate) fn on_delivered(&mut self, now: Time, sent: Sent, min_rtt_ns: u64) {
        let rtt_ns = now.since(sent.at);
        // "If RACK.segment was retransmitted, it is ambiguous [...]: the RTT is less than the
        // minimum".
        if sent.again && rtt_ns < min_rtt_ns {
            return;
        }
        if sent.end > self.highest {
            self.highest = sent.end;
        } else if sent.end < self.highest && !sent.again {
            self.reordering_seen = true;
            let bytes = u32::try_from(self.highest - sent.end).unwrap_or(u32::MAX);
            self.behind_bytes_max = self.behind_bytes_max.max(bytes);
        }
        if sent > self.newest {
            self.newest = sent;
            self.rtt_ns = rtt_ns;
        }
    }

    /// True if something has arrived that was sent after `sent`.
    #[inline]
    pub(crate) fn is_after(&self, sent: Sent) -> bool {
        self.newest > sent
    }

    /// When a transmission of `at` counts as lost if it has not arrived.
    pub(crate) fn deadline(&self, at: Time, window: &Window) -> Time {
        at + self.rtt_ns + self.window_ns(window)
    }

    /// RACK_update_reo_wnd, as far as it is about the acknowledgement at hand.
    fn window_ns(&self, window: &Window) -> u64 {
        let enough = window.sacked_bytes >= DUPLICATES * window.segment_bytes;
        if !self.reordering_seen && (window.is_recovering || enough) {
            return 0;
        }
        let multiple = u64::from(self.multiple.max(1));
        multiple.saturating_mul(window.min_rtt_ns / 4).min(window.smoothed_ns)
    }

    /// A segment has arrived twice: "reo_wnd was too small", once per round trip.
    pub(crate) fn on_duplicate(&mut self, next: u64, una: u64) {
        if self.round_end.is_none_or(|end| una >= end) {
            self.round_end = Some(next);
            self.multiple = self.multiple.max(1).saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// "If a TCP has recovered from losses": after 16 times without a duplicate the window is small
    /// again.
    pub(crate) const fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiple = 1;
        }
    }

    /// How far behind the highest the end of something was that has arrived after it.
    pub(crate) const fn behind_bytes_max(&self) -> u32 {
        self.behind_bytes_max
    }

    pub(crate) const fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }
}

#[cfg(test)]
mod tests {
    use super::{Rack, Window};
    use clearway_base::{MILLISECOND, Time};

    /// RFC 8985, section 6.2, step 4: "The RACK reordering window MUST be bounded, and this bound
    /// SHOULD be SRTT", also when no round trip has been measured since a restore. Found by
    /// simulation.
    #[test]
    fn the_reordering_window_is_bounded_by_the_round_trip() {
        let mut rack = Rack::default();
        (0..300).for_each(|round| rack.on_duplicate(round + 1, round));
        let deadline = |min_rtt_ns| {
            let window = Window {
                is_recovering: false,
                sacked_bytes: 0,
                segment_bytes: 1000,
                smoothed_ns: MILLISECOND,
                min_rtt_ns,
            };
            rack.deadline(Time::ZERO, &window)
        };
        assert_eq!(deadline(u64::MAX), Time::from_ns(MILLISECOND));
        assert_eq!(deadline(400), Time::from_ns(255 * 100));
    }
}
