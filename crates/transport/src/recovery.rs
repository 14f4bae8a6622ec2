//! Packets in flight and loss detection, RFC 9002, section 6 and appendix A.

use core::ops::Range;
use std::collections::VecDeque;

use clearway_base::Time;
use clearway_wire::clearway::Ack;

use crate::config::{Config, PACKETS_IN_FLIGHT_MAX};
use crate::rtt::RttEstimator;

/// RFC 9002, 6.1.1: "The RECOMMENDED initial value for the packet reordering threshold
/// (kPacketThreshold) is 3".
const PACKET_THRESHOLD: u64 = 3;

/// Beyond this, doubling the probe timeout would overflow long before it mattered.
const BACKOFF_MAX: u32 = 16;

/// What a packet carried, so that it can be sent again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// Positions of the sequence space.
    pub(crate) range: Range<u64>,
    /// A limit frame.
    pub(crate) limit: bool,
    /// The close frame.
    pub(crate) close: bool,
    /// A path frame.
    pub(crate) path: bool,
}

#[derive(Clone, Debug)]
struct SentPacket {
    sent: Time,
    /// Zero once it is acknowledged or lost, and for packets that elicit no acknowledgement.
    bytes: u32,
    content: Content,
}

impl SentPacket {
    const fn is_outstanding(&self) -> bool {
        self.bytes > 0
    }
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    pub(crate) bytes: u64,
    /// When the largest packet that the peer names was sent, if that is new. RFC 9002, 5.1: "An
    /// endpoint generates an RTT sample on receiving an ACK frame that meets the following two
    /// conditions: the largest acknowledged packet number is newly acknowledged, and at least one
    /// of the newly acknowledged packets was ack-eliciting."
    pub(crate) largest_sent: Option<Time>,
}

/// The sent packets of a flow and what became of them.
#[derive(Debug)]
pub(crate) struct Recovery {
    packets: VecDeque<SentPacket>,
    /// Number of the first of `packets`.
    first: u64,
    largest_acked: Option<u64>,
    in_flight_bytes: u64,
    in_flight_packets: usize,
    /// When a packet that was overtaken counts as lost.
    loss_time: Option<Time>,
    last_eliciting: Time,
    probes: u32,
}

impl Recovery {
    pub(crate) const fn new() -> Self {
        Self::at(0)
    }

    /// Nothing in flight, and the next packet gets this number.
    pub(crate) const fn at(next_number: u64) -> Self {
        Self {
            packets: VecDeque::new(),
            first: next_number,
            largest_acked: None,
            in_flight_bytes: 0,
            in_flight_packets: 0,
            loss_time: None,
            last_eliciting: Time::ZERO,
            probes: 0,
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    pub(crate) const fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Probe timeouts since the last acknowledgement.
    pub(crate) const fn probes(&self) -> u32 {
        self.probes
    }

    /// True if no more data may be in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= PACKETS_IN_FLIGHT_MAX
    }

    /// True if the peer makes us send acknowledgements without end and acknowledges nothing itself.
    pub(crate) fn is_overrun(&self) -> bool {
        self.packets.len() >= 16 * PACKETS_IN_FLIGHT_MAX
    }

    /// Records the packet with [`Recovery::next_number`].
    pub(crate) fn on_sent(&mut self, now: Time, bytes: usize, eliciting: bool, content: Content) {
        if !eliciting && self.packets.is_empty() {
            self.first += 1;
            return;
        }
        let bytes = if eliciting { bytes as u32 } else { 0 };
        if eliciting {
            self.in_flight_bytes += u64::from(bytes);
            self.in_flight_packets += 1;
            self.last_eliciting = now;
        }
        self.packets.push_back(SentPacket { sent: now, bytes, content });
    }

    /// Takes an acknowledgement; `on_acked` gets what each newly acknowledged packet carried.
    /// `None` if it names a packet that was never sent.
    pub(crate) fn on_ack(
        &mut self,
        ack: &Ack<'_>,
        mut on_acked: impl FnMut(&Content),
    ) -> Option<Acked> {
        if ack.largest >= self.next_number() {
            return None;
        }
        let mut acked = Acked::default();
        let is_new = self.largest_acked.is_none_or(|before| ack.largest > before);
        for range in ack.ranges() {
            if range.end <= self.first {
                break;
            }
            let start = range.start.saturating_sub(self.first) as usize;
            let end = (range.end - self.first) as usize;
            for packet in
                self.packets.range_mut(start..end).filter(|packet| packet.is_outstanding())
            {
                self.in_flight_bytes -= u64::from(packet.bytes);
                self.in_flight_packets -= 1;
                acked.bytes += u64::from(packet.bytes);
                packet.bytes = 0;
                on_acked(&packet.content);
            }
        }
        if acked.bytes > 0 {
            self.probes = 0;
            acked.largest_sent = ack
                .largest
                .checked_sub(self.first)
                .filter(|_| is_new)
                .map(|index| self.packets[index as usize].sent);
        }
        self.largest_acked = self.largest_acked.max(Some(ack.largest));
        self.pop_done();
        Some(acked)
    }

    fn pop_done(&mut self) {
        while self.packets.front().is_some_and(|packet| !packet.is_outstanding()) {
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// Declares packets lost that were overtaken by [`PACKET_THRESHOLD`] later ones or by the loss
    /// delay; `on_lost` gets what they carried. Returns when the last of them was sent.
    pub(crate) fn detect_losses(
        &mut self,
        now: Time,
        loss_delay_ns: u64,
        mut on_lost: impl FnMut(&Content),
    ) -> Option<Time> {
        self.loss_time = None;
        let largest_acked = self.largest_acked?;
        if self.first > largest_acked {
            return None;
        }
        let mut last_lost = None;
        let overtaken = ((largest_acked - self.first) as usize).min(self.packets.len());
        for (index, packet) in self.packets.range_mut(..overtaken).enumerate() {
            if !packet.is_outstanding() {
                continue;
            }
            let due = packet.sent + loss_delay_ns;
            if due > now && self.first + index as u64 + PACKET_THRESHOLD > largest_acked {
                self.loss_time = Some(self.loss_time.map_or(due, |earlier| earlier.min(due)));
                continue;
            }
            self.in_flight_bytes -= u64::from(packet.bytes);
            self.in_flight_packets -= 1;
            packet.bytes = 0;
            last_lost = Some(packet.sent);
            on_lost(&packet.content);
        }
        self.pop_done();
        last_lost
    }

    /// When [`Recovery::on_timeout`] is to be called.
    pub(crate) fn timeout(&self, rtt: &RttEstimator, config: &Config) -> Option<Time> {
        if self.loss_time.is_some() {
            return self.loss_time;
        }
        if self.in_flight_packets == 0 {
            return None;
        }
        let probe_ns = rtt.probe_timeout_ns(config.timer_granularity_ns, config.ack_delay_ns);
        let backed_off_ns = probe_ns << self.probes.min(BACKOFF_MAX);
        Some(self.last_eliciting + backed_off_ns.min(config.probe_timeout_max_ns.max(probe_ns)))
    }

    /// True if it is loss detection, not a probe, that is due.
    pub(crate) fn is_loss_due(&self, now: Time) -> bool {
        self.loss_time.is_some_and(|due| due <= now)
    }

    /// The probe timeout has expired. Returns what the oldest packet in flight carried: RFC 9002,
    /// 6.2.4: "an endpoint SHOULD include new data ... or retransmit unacknowledged data".
    pub(crate) fn on_probe_timeout(&mut self, now: Time) -> Option<Content> {
        self.probes += 1;
        self.last_eliciting = now;
        self.packets
            .iter()
            .find(|packet| packet.is_outstanding())
            .map(|packet| packet.content.clone())
    }

    /// The peer has told that it can take again what it had to drop: probe at once.
    pub(crate) fn expedite(&mut self, now: Time) -> bool {
        let waits = self.probes > 0 && self.in_flight_packets > 0;
        if waits {
            self.probes = 0;
            self.last_eliciting = now;
        }
        waits
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "an acknowledgement of one range")]
mod tests {
    use super::{Content, Recovery};
    use clearway_base::Time;
    use clearway_wire::clearway::{self, Frame, Frames};
    use core::ops::Range;

    /// What an acknowledgement of `ranges`, descending, says about when its largest was sent.
    fn sample(recovery: &mut Recovery, ranges: &[Range<u64>]) -> Option<u64> {
        let mut bytes = [0; 256];
        let length = clearway::emit_ack(&mut bytes, 0, ranges.iter().cloned());
        let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes[..length]).next() else { panic!() };
        let acked = recovery.on_ack(&ack, |_| ()).expect("was sent");
        acked.largest_sent.map(Time::as_ns)
    }

    fn sent(packets: u64) -> Recovery {
        let mut recovery = Recovery::new();
        for number in 0..packets {
            recovery.on_sent(Time::from_ns(100 * number), 1000, true, Content::default());
        }
        recovery
    }

    #[test]
    fn only_a_new_largest_gives_a_round_trip_time() {
        let mut recovery = sent(10);
        assert_eq!(sample(&mut recovery, &[4..6, 0..2]), Some(500));
        assert_eq!(sample(&mut recovery, &[4..6, 0..2]), None, "nothing new");
        // What was late is new, but the largest is not: its time would be far too long.
        assert_eq!(sample(&mut recovery, &[0..6]), None);
        assert_eq!(sample(&mut recovery, &[0..10]), Some(900));
    }

    #[test]
    fn a_packet_without_data_may_be_the_largest() {
        let mut recovery = sent(2);
        recovery.on_sent(Time::from_ns(777), 30, false, Content::default());
        assert_eq!(sample(&mut recovery, &[0..3]), Some(777));
        recovery.on_sent(Time::from_ns(900), 30, false, Content::default());
        assert_eq!(sample(&mut recovery, &[0..4]), None, "no data in it");
    }

    #[test]
    fn overtaken_by_three_or_by_time_is_lost() {
        let mut recovery = sent(10);
        sample(&mut recovery, &[3..4]);
        let mut lost = 0;
        recovery.detect_losses(Time::from_ns(300), 1_000_000, |_| lost += 1);
        assert_eq!(lost, 1, "packet 0; 1 and 2 may still come");
        assert!(!recovery.is_loss_due(Time::from_ns(1_000_099)));
        assert!(recovery.is_loss_due(Time::from_ns(1_000_100)));
        recovery.detect_losses(Time::from_ns(1_000_100), 1_000_000, |_| lost += 1);
        assert_eq!(lost, 2);
        recovery.detect_losses(Time::from_ns(1_000_200), 1_000_000, |_| lost += 1);
        assert_eq!((lost, recovery.in_flight_bytes()), (3, 6000));
    }
}
