//! Packets in flight and loss detection, RFC 9002, section 6 and appendix A.

use core::ops::Range;
use std::collections::VecDeque;

use clearway_base::{ShortQueue, Time};
use clearway_wire::clearway::Ack;

use crate::config::{Config, PACKETS_IN_FLIGHT_MAX};
use crate::rtt::RttEstimator;

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
    /// Nothing but its own size, to see whether that passes.
    pub(crate) is_size_probe: bool,
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
    pub(crate) packets: u32,
    /// When the largest packet that the peer names was sent, if that is new. RFC 9002, 5.1: "An
    /// endpoint generates an RTT sample on receiving an ACK frame that meets the following two
    /// conditions: the largest acknowledged packet number is newly acknowledged, and at least one
    /// of the newly acknowledged packets was ack-eliciting."
    pub(crate) largest_sent: Option<Time>,
    /// When the newest of the packets that are acknowledged for the first time was sent.
    pub(crate) newest_sent: Time,
    /// The size of the largest of them.
    pub(crate) largest_bytes: u32,
    /// One that had been given up has arrived after all.
    pub(crate) was_spurious: bool,
}

/// What was found to be lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    pub(crate) packets: u64,
    /// Those that say something about congestion: not probes of the packet size.
    pub(crate) bytes: u64,
    /// When the last of those was sent.
    pub(crate) last_sent: Time,
    /// The longest time between two lost packets with none acknowledged between them.
    pub(crate) span_ns: u64,
}

/// The sent packets of a flow and what became of them.
#[derive(Debug)]
pub(crate) struct Recovery {
    packets: ShortQueue<SentPacket>,
    /// Number of the first of `packets`.
    first: u64,
    /// One more than the largest number that was acknowledged; 0 if none was.
    acked_end: u64,
    in_flight_bytes: u64,
    in_flight_packets: u32,
    probes: u32,
    /// When a packet that was overtaken counts as lost; `Time::MAX` if there is none.
    loss_time: Time,
    last_eliciting: Time,
    /// Something has been lost before.
    reordering: Option<Box<Reordering>>,
}

impl Recovery {
    pub(crate) const fn new() -> Self {
        Self::at(0)
    }

    /// Nothing in flight, and the next packet gets this number.
    pub(crate) const fn at(next_number: u64) -> Self {
        Self {
            packets: ShortQueue::new(),
            first: next_number,
            acked_end: 0,
            in_flight_bytes: 0,
            in_flight_packets: 0,
            probes: 0,
            loss_time: Time::MAX,
            last_eliciting: Time::ZERO,
            reordering: None,
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
        if let Some(reordering) = &mut self.reordering {
            acked.was_spurious = reordering.on_ack(ack, self.acked_end);
        }
        let is_new = ack.largest >= self.acked_end;
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
                acked.packets += 1;
                acked.largest_bytes = acked.largest_bytes.max(packet.bytes);
                acked.newest_sent = acked.newest_sent.max(packet.sent);
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
                .and_then(|index| self.packets.get(index as usize))
                .map(|packet| packet.sent);
        }
        self.acked_end = self.acked_end.max(ack.largest + 1);
        self.pop_done();
        if !self.has_overtaken() {
            self.loss_time = Time::MAX;
        }
        Some(acked)
    }

    /// True if there may be a packet in flight that was sent before one that is acknowledged.
    pub(crate) const fn has_overtaken(&self) -> bool {
        self.first < self.acked_end
    }

    fn pop_done(&mut self) {
        while self.packets.front().is_some_and(|packet| !packet.is_outstanding()) {
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// Declares packets lost that were overtaken by some later ones or by the loss delay; `on_lost`
    /// gets what they carried, and their sizes.
    pub(crate) fn detect_losses(
        &mut self,
        now: Time,
        rtt: &RttEstimator,
        granularity_ns: u64,
        mut on_lost: impl FnMut(&Content, u32),
    ) -> Lost {
        self.loss_time = Time::MAX;
        let mut lost = Lost::default();
        if !self.has_overtaken() {
            return lost;
        }
        let largest_acked = self.acked_end - 1;
        let (threshold_packets, eighths) = match &self.reordering {
            Some(reordering) => (reordering.packets, reordering.eighths),
            None => (PACKET_THRESHOLD, EIGHTHS),
        };
        let loss_delay_ns = rtt.loss_delay_ns(granularity_ns, eighths);
        let mut run = None;
        let overtaken = ((largest_acked - self.first) as usize).min(self.packets.len());
        for (index, packet) in self.packets.range_mut(0..overtaken).enumerate() {
            if !packet.is_outstanding() {
                run = None;
                continue;
            }
            let number = self.first + index as u64;
            let due = packet.sent + loss_delay_ns;
            if due > now && number + threshold_packets > largest_acked {
                self.loss_time = self.loss_time.min(due);
                continue;
            }
            self.in_flight_bytes -= u64::from(packet.bytes);
            self.in_flight_packets -= 1;
            lost.packets += 1;
            if !packet.content.is_size_probe {
                lost.bytes += u64::from(packet.bytes);
                lost.last_sent = packet.sent;
                let first_sent = *run.get_or_insert(packet.sent);
                lost.span_ns = lost.span_ns.max(packet.sent.since(first_sent));
                self.reordering.get_or_insert_default().on_lost(number);
            }
            on_lost(&packet.content, packet.bytes);
            packet.bytes = 0;
        }
        self.pop_done();
        lost
    }

    /// Gives up all packets of more than `bytes_max` bytes, since the network says that none has passed.
    /// Returns what they carried.
    pub(crate) fn give_up_larger(&mut self, bytes_max: u16) -> Vec<Content> {
        let mut given_up = Vec::new();
        for packet in self.packets.iter_mut() {
            if packet.bytes > u32::from(bytes_max) {
                self.in_flight_bytes -= u64::from(packet.bytes);
                self.in_flight_packets -= 1;
                packet.bytes = 0;
                given_up.push(packet.content.clone());
            }
        }
        self.pop_done();
        given_up
    }

    /// The size of the packet with this number, if it is in flight.
    pub(crate) fn bytes_of(&self, number: u64) -> Option<u32> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get(index).map(|packet| packet.bytes).filter(|bytes| *bytes > 0)
    }

    /// When [`Recovery::on_timeout`] is to be called.
    pub(crate) fn timeout(&self, rtt: &RttEstimator, config: &Config) -> Option<Time> {
        if self.loss_time < Time::MAX {
            return Some(self.loss_time);
        }
        if self.in_flight_packets == 0 {
            return None;
        }
        let probe_ns = rtt.probe_timeout_ns(config.timer_granularity_ns, config.ack_delay_ns);
        let backed_off_ns = probe_ns.saturating_mul(1 << self.probes.min(BACKOFF_MAX));
        Some(self.last_eliciting + backed_off_ns.min(config.probe_timeout_max_ns.max(probe_ns)))
    }

    /// True if it is loss detection, not a probe, that is due.
    pub(crate) fn is_loss_due(&self, now: Time) -> bool {
        self.loss_time <= now
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

/// How far packets of this path overtake each other. RFC 9002, 6.1.1: "Endpoints [...] MAY
/// implement algorithms for TCP-NCR to improve QUIC's reordering resilience", and "Implementations
/// that detect spurious retransmissions and increase the reordering threshold in packets or time MAY
/// choose to start with smaller initial reordering thresholds".
#[derive(Clone, Debug)]
struct Reordering {
    /// So many later packets have to be acknowledged before one counts as lost.
    packets: u64,
    /// So many eighths of a round trip beyond one have to pass.
    eighths: u64,
    /// The numbers of packets that were given up lately, ascending.
    lost: VecDeque<u64>,
}

/// RFC 9002, 6.1.1: "The RECOMMENDED initial value for the packet reordering threshold
/// (kPacketThreshold) is 3".
const PACKET_THRESHOLD: u64 = 3;
/// Where packets overtake further than this, waiting for time to tell is as good.
const PACKET_THRESHOLD_MAX: u64 = 1024;
/// RFC 9002, 6.1.2: "The RECOMMENDED time threshold (kTimeThreshold), expressed as an RTT multiplier,
/// is 9/8."
const EIGHTHS: u64 = 1;
/// Two round trips in all, as RACK's largest window (RFC 8985, section 6.2, step 4).
const EIGHTHS_MAX: u64 = 8;
/// Losses that are remembered. Those that were real are never heard of again.
const LOST_MAX: usize = 64;

impl Default for Reordering {
    fn default() -> Self {
        Self { packets: PACKET_THRESHOLD, eighths: EIGHTHS, lost: VecDeque::new() }
    }
}

impl Reordering {
    fn on_lost(&mut self, number: u64) {
        if self.lost.len() == LOST_MAX {
            self.lost.pop_front();
        }
        self.lost.push_back(number);
    }

    /// True if `ack` names a packet that had been given up; the next one gets more patience.
    fn on_ack(&mut self, ack: &Ack<'_>, acked_end: u64) -> bool {
        if self.lost.is_empty() {
            return false;
        }
        let mut was_spurious = false;
        for range in ack.ranges() {
            let from = self.lost.partition_point(|number| *number < range.start);
            let to = self.lost.partition_point(|number| *number < range.end);
            if from == to {
                continue;
            }
            was_spurious = true;
            let distance = acked_end.saturating_sub(self.lost[from] + 1) + 1;
            self.packets = self.packets.max(distance).min(PACKET_THRESHOLD_MAX);
            self.eighths = (self.eighths + 1).min(EIGHTHS_MAX);
            self.lost.drain(from..to);
        }
        was_spurious
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "an acknowledgement of one range")]
mod tests {
    use super::{Acked, Content, Lost, Recovery};
    use crate::rtt::RttEstimator;
    use clearway_base::Time;
    use clearway_wire::clearway::{self, Frame, Frames};
    use core::ops::Range;

    /// What an acknowledgement of `ranges`, descending, says about when its largest was sent.
    fn sample(recovery: &mut Recovery, ranges: &[Range<u64>]) -> Option<u64> {
        acknowledge(recovery, ranges).largest_sent.map(Time::as_ns)
    }

    fn acknowledge(recovery: &mut Recovery, ranges: &[Range<u64>]) -> Acked {
        let mut bytes = [0; 256];
        let length = clearway::emit_ack(
            &mut bytes,
            0,
            clearway::EcnReport::default(),
            ranges.iter().cloned(),
        );
        let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes[..length]).next() else { panic!() };
        recovery.on_ack(&ack, |_| ()).expect("was sent")
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
        let lost = detect(&mut recovery, 300);
        assert_eq!(lost.packets, 1, "packet 0; 1 and 2 may still come");
        assert!(!recovery.is_loss_due(Time::from_ns(10_000_099)));
        assert!(recovery.is_loss_due(Time::from_ns(10_000_100)));
        let lost = detect(&mut recovery, 10_000_100);
        assert_eq!((lost.packets, lost.bytes, lost.last_sent.as_ns()), (1, 1000, 100));
        detect(&mut recovery, 10_000_200);
        assert_eq!(recovery.in_flight_bytes(), 6000);
    }

    /// Loss detection with a loss delay of 10 ms.
    fn detect(recovery: &mut Recovery, now_ns: u64) -> Lost {
        let rtt = RttEstimator::new();
        recovery.detect_losses(Time::from_ns(now_ns), &rtt, 10_000_000, |_, _| {})
    }

    #[test]
    fn a_packet_that_was_given_up_too_early_teaches_patience() {
        let mut recovery = sent(40);
        sample(&mut recovery, &[11..12]);
        assert_eq!(detect(&mut recovery, 1200).packets, 9, "0 to 8");
        assert!(acknowledge(&mut recovery, &[0..12]).was_spurious);
        sample(&mut recovery, &[25..26, 0..12]);
        assert_eq!(detect(&mut recovery, 2600).packets, 2, "12 and 13; the others have 12 to go");
        assert!(!acknowledge(&mut recovery, &[25..30, 0..12]).was_spurious, "nothing of the lost");
    }

    #[test]
    fn the_span_of_a_loss_ends_where_something_arrived() {
        let mut recovery = sent(20);
        sample(&mut recovery, &[19..20, 12..13]);
        let lost = detect(&mut recovery, 3000);
        assert_eq!((lost.packets, lost.span_ns), (16, 1100), "0 to 11, and 13 to 16");
    }

    #[test]
    fn what_is_too_large_is_given_up_at_once() {
        let mut recovery = sent(2);
        recovery.on_sent(Time::from_ns(200), 1400, true, Content::default());
        assert_eq!((recovery.bytes_of(2), recovery.bytes_of(3)), (Some(1400), None));
        assert_eq!(recovery.give_up_larger(1200).len(), 1);
        assert_eq!(recovery.in_flight_bytes(), 2000);
        assert_eq!(recovery.bytes_of(2), None);
    }
}
