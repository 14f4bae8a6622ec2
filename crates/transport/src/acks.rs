//! What has been received and is to be acknowledged.

mod state;

use clearway_base::{RangeSet, Time};

use crate::config::PACKETS_IN_FLIGHT_MAX;

/// Ranges that are remembered; older gaps are given up. An acknowledgement carries the newest nine
/// (`flow/transmit.rs`): the older ones were told before.
pub(crate) const RANGES_MAX: usize = 32;
/// How far a packet may be behind the newest one; older ones count as duplicates. Twice what a
/// sender may have in flight, so that old gaps do not travel in acknowledgements for ever.
const REORDERING_MAX: u64 = 2 * PACKETS_IN_FLIGHT_MAX as u64;
/// RFC 9000, 13.2.2 acknowledges every second packet; LAN round trips are so short that bytes
/// count more: an acknowledgement each 32 KB or 16 packets.
const UNACKNOWLEDGED_BYTES_MAX: u32 = 32 * 1024;
const UNACKNOWLEDGED_PACKETS_MAX: u32 = 16;

/// The packets that arrived, and when the peer must hear of it.
#[derive(Debug)]
pub(crate) struct Acks {
    received: RangeSet,
    /// Numbers below count as received.
    floor: u64,
    largest_at: Time,
    unacknowledged_packets: u32,
    unacknowledged_bytes: u32,
    /// When an acknowledgement must leave; `Time::MAX` if there is nothing to acknowledge.
    due: Time,
}

impl Acks {
    pub(crate) const fn new() -> Self {
        Self {
            received: RangeSet::new(),
            floor: 0,
            largest_at: Time::ZERO,
            unacknowledged_packets: 0,
            unacknowledged_bytes: 0,
            due: Time::MAX,
        }
    }

    /// True if this packet was seen before, or is too old to know.
    #[inline]
    pub(crate) fn is_duplicate(&self, number: u64) -> bool {
        // Nearly always it is the next one, or one behind.
        let is_new = self.received.last().is_none_or(|last| number >= last.end);
        number < self.floor || (!is_new && self.received.contains(number))
    }

    /// Records a packet that came at `arrived`, or after. `eliciting`: it asks for an
    /// acknowledgement, which may wait for `delay_ns`.
    pub(crate) fn record(
        &mut self,
        now: Time,
        arrived: Time,
        number: u64,
        bytes: usize,
        eliciting: bool,
        delay_ns: u64,
    ) {
        let next = self.received.last().map_or(0, |last| last.end);
        self.received.insert(number..number + 1);
        if self.received.len() > 1 {
            self.forget_old();
        }
        if number >= next {
            self.largest_at = arrived;
        }
        if !eliciting {
            return;
        }
        self.unacknowledged_packets += 1;
        self.unacknowledged_bytes += bytes as u32; // of a datagram
        // RFC 9000, 13.2.1: "an endpoint SHOULD generate and send an ACK frame without delay when
        // it receives an ack-eliciting packet" out of order, for the sake of loss detection.
        let at_once = number != next
            || self.unacknowledged_bytes >= UNACKNOWLEDGED_BYTES_MAX
            || self.unacknowledged_packets >= UNACKNOWLEDGED_PACKETS_MAX;
        let due = if at_once { now } else { now + delay_ns };
        self.due = self.due.min(due);
    }

    #[cold]
    fn forget_old(&mut self) {
        let newest = self.received.last().map_or(0, |last| last.end);
        self.floor = self.floor.max(newest.saturating_sub(REORDERING_MAX));
        if self.received.len() > RANGES_MAX
            && let Some(oldest) = self.received.pop_first()
        {
            self.floor = self.floor.max(oldest.end);
        }
        self.received.forget_below(self.floor);
    }

    /// True if nothing was received, so that nothing can be acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// A duplicate arrived: its sender has not seen our acknowledgement.
    pub(crate) fn record_duplicate(&mut self, now: Time) {
        self.due = now;
    }

    /// When an acknowledgement must leave on its own; `Time::MAX` if there is none.
    pub(crate) const fn due(&self) -> Time {
        self.due
    }

    /// True if an acknowledgement can travel with whatever is sent now.
    pub(crate) fn is_pending(&self) -> bool {
        self.due < Time::MAX
    }

    /// The received ranges, highest first, and how long the highest has waited.
    pub(crate) fn ranges(
        &self,
        now: Time,
    ) -> (impl Iterator<Item = core::ops::Range<u64>> + '_, u64) {
        (self.received.iter().rev(), now.since(self.largest_at))
    }

    /// An acknowledgement has been sent.
    pub(crate) fn on_sent(&mut self) {
        self.due = Time::MAX;
        self.unacknowledged_packets = 0;
        self.unacknowledged_bytes = 0;
    }
}

#[cfg(test)]
mod tests;
