//! Packets in flight and loss detection, RFC 9002, section 6 and appendix A.

mod state;

use core::ops::Range;
use std::collections::VecDeque;

use clearway_base::{ShortQueue, Time};
use clearway_wire::clearway::Ack;

use crate::config::{Config, PACKETS_IN_FLIGHT_MAX};
use crate::rtt::RttEstimator;

/// Beyond this, doubling the probe timeout would overflow long before it mattered.
const BACKOFF_MAX: u32 = 16;

/// Packets without data in flight, at most. Further limits and paths wait: what is told last is
/// what counts.
const CONTROL_PACKETS_MAX: u32 = 256;
/// Probes that limit frames may call for, if nothing is acknowledged: one is enough, unless it is
/// lost.
const EXPEDITED_MAX: u32 = 64;
/// Probes without an answer that are kept, however long a peer is silent: those of six seconds, if
/// they come as seldom as they may.
const PROBES_MAX: usize = 64;
/// Packets that are kept besides those that may be in flight with data: limits, paths and probes,
/// and what is done and stands behind one that is not.
const OTHERS_MAX: usize = 1024;
/// Numbers from the first packet in flight to the next one; a quarter of what 32 bits can tell
/// apart.
const NUMBERS_MAX: u64 = 1 << 30;

/// What a packet carried, so that it can be sent again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// The stream that all else is of; 0 is the flow's own connection.
    pub(crate) stream: u32,
    /// Positions of the sequence space.
    pub(crate) range: Range<u64>,
    /// Frames besides messages.
    pub(crate) told: Told,
}

/// Which frames a packet carried besides messages. Copied as one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(8))]
pub(crate) struct Told {
    /// An open frame.
    pub(crate) open: bool,
    /// A limit frame.
    pub(crate) limit: bool,
    /// The close frame.
    pub(crate) close: bool,
    /// The close frame of a stream that was aborted.
    pub(crate) abort: bool,
    /// A path frame.
    pub(crate) path: bool,
    /// Nothing but its own size, to see whether that passes.
    pub(crate) is_size_probe: bool,
}

/// A packet that asks for an acknowledgement.
#[derive(Clone, Debug)]
struct SentPacket {
    sent: Time,
    /// What it carried; see [`Content`].
    start: u64,
    length: u32,
    /// The low half of its number.
    number: u32,
    /// Zero once it is acknowledged or lost: then it is done.
    bytes: u32,
    /// So many packets from this one on are done, at least; 0 while it is not.
    done: u32,
    stream: u32,
    told: Told,
    /// One that asked for nothing, between this packet and the one before, was acknowledged.
    follows_acknowledged: bool,
}

impl SentPacket {
    fn new(sent: Time, number: u64, bytes: usize, content: &Content) -> Self {
        Self {
            sent,
            start: content.range.start,
            length: (content.range.end - content.range.start) as u32, // of a packet
            number: number as u32,
            bytes: bytes as u32,
            done: 0,
            stream: content.stream,
            told: content.told,
            follows_acknowledged: false,
        }
    }

    fn content(&self) -> Content {
        Content {
            stream: self.stream,
            range: self.start..self.start + u64::from(self.length),
            told: self.told,
        }
    }

    const fn is_outstanding(&self) -> bool {
        self.bytes > 0
    }

    /// It is acknowledged, or lost. Returns its size.
    const fn finish(&mut self) -> u32 {
        self.done = 1;
        core::mem::replace(&mut self.bytes, 0)
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
///
/// Only those that ask for an acknowledgement are kept. The others are not counted against the
/// congestion window, and so a peer could make us send, and keep, as many as it likes.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// In the order of their numbers; the first of them is in flight.
    packets: ShortQueue<SentPacket>,
    /// Number of the first of `packets`, or of the next one if there are none.
    first: u64,
    next_number: u64,
    /// One more than the largest number that was acknowledged; 0 if none was.
    acked_end: u64,
    in_flight_bytes: u64,
    in_flight_packets: u32,
    /// Of these, packets without data, which the congestion window does not hold back.
    control_packets: u32,
    probes: u32,
    /// Probes that the peer has called for since the last acknowledgement.
    expedited: u32,
    /// The numbers of probes, ascending: of all that have no answer, and of some others.
    #[expect(clippy::box_collection, reason = "few have many: a pointer, not four words")]
    probe_numbers: Option<Box<VecDeque<u64>>>,
    /// When a packet that was overtaken counts as lost; `Time::MAX` if there is none.
    loss_time: Time,
    last_eliciting: Time,
    /// When the first was sent of the packets in flight that nothing was heard after: the next ones
    /// put off the probe only so far.
    waiting_since: Time,
    /// The last packet that asked for no acknowledgement, while others were in flight.
    last_silent: (u64, Time),
    /// Something has been lost before.
    reordering: Option<Box<Reordering>>,
    /// Packets looked at: what the work of an acknowledgement is measured by.
    #[cfg(test)]
    looked_at: u64,
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
            next_number,
            acked_end: 0,
            in_flight_bytes: 0,
            in_flight_packets: 0,
            control_packets: 0,
            probes: 0,
            expedited: 0,
            probe_numbers: None,
            loss_time: Time::MAX,
            last_eliciting: Time::ZERO,
            waiting_since: Time::ZERO,
            last_silent: (u64::MAX, Time::ZERO),
            reordering: None,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    pub(crate) const fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(crate) const fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Probe timeouts since the last acknowledgement.
    pub(crate) const fn probes(&self) -> u32 {
        self.probes
    }

    /// Probes that the peer has called for since the last acknowledgement.
    pub(crate) const fn expedited(&self) -> u32 {
        self.expedited
    }

    /// True if no more data may be in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= PACKETS_IN_FLIGHT_MAX
    }

    /// True if limits and paths may be told now, which the congestion window does not hold back.
    pub(crate) const fn takes_control(&self) -> bool {
        self.control_packets < CONTROL_PACKETS_MAX
    }

    /// True if the peer speaks and acknowledges nothing of what it provokes.
    pub(crate) fn is_overrun(&self) -> bool {
        self.packets.len() >= PACKETS_IN_FLIGHT_MAX + OTHERS_MAX
            || self.next_number - self.first >= NUMBERS_MAX
    }

    /// Records the packet with [`Recovery::next_number`].
    pub(crate) fn on_sent(&mut self, now: Time, bytes: usize, eliciting: bool, content: &Content) {
        let number = self.next_number;
        self.next_number += 1;
        if !eliciting {
            if self.packets.is_empty() {
                self.first = self.next_number;
            } else {
                self.last_silent = (number, now);
            }
            return;
        }
        if self.in_flight_packets == 0 {
            self.waiting_since = now;
        }
        self.in_flight_bytes += bytes as u64;
        self.in_flight_packets += 1;
        self.control_packets += u32::from(content.range.is_empty());
        self.last_eliciting = now;
        self.packets.push_back(SentPacket::new(now, number, bytes, content));
    }

    /// Takes an acknowledgement; `on_acked` gets what each newly acknowledged packet carried.
    /// `None` if it names a packet that was never sent.
    pub(crate) fn on_ack(
        &mut self,
        ack: &Ack<'_>,
        mut on_acked: impl FnMut(&Content),
    ) -> Option<Acked> {
        if ack.largest >= self.next_number {
            return None;
        }
        let mut acked = Acked::default();
        if let Some(reordering) = &mut self.reordering {
            acked.was_spurious = reordering.on_ack(ack, self.acked_end);
        }
        let sent = if ack.largest < self.acked_end { None } else { self.sent_of(ack.largest) };
        let newest = ack.newest_range();
        if newest.start <= self.first {
            self.acknowledge_first(newest.end, &mut acked, &mut on_acked);
        } else {
            self.acknowledge_gapped(ack, &mut acked, &mut on_acked);
        }
        if acked.packets > 0 {
            (self.probes, self.expedited) = (0, 0);
            self.waiting_since = self.last_eliciting;
            acked.largest_sent = sent;
        }
        self.acked_end = self.acked_end.max(ack.largest + 1);
        self.pop_done();
        if !self.has_overtaken() {
            self.loss_time = Time::MAX;
        }
        Some(acked)
    }

    /// Some packets are still missing that were sent before others that have arrived.
    #[inline(never)]
    fn acknowledge_gapped(
        &mut self,
        ack: &Ack<'_>,
        acked: &mut Acked,
        on_acked: &mut impl FnMut(&Content),
    ) {
        for range in ack.ranges() {
            if range.end <= self.first {
                return;
            }
            if range.start <= self.first {
                return self.acknowledge_first(range.end, acked, on_acked);
            }
            self.acknowledge(range, acked, on_acked);
        }
    }

    /// The packets in flight with numbers below `end` have arrived: what acknowledgements nearly
    /// always say, and then nothing has to be looked for.
    #[inline]
    fn acknowledge_first(
        &mut self,
        end: u64,
        acked: &mut Acked,
        on_acked: &mut impl FnMut(&Content),
    ) {
        // What follows the last of them, if that has come just now.
        let mut next = end;
        while let Some(packet) = self.packets.front_mut() {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let number = number_of(packet, self.first);
            if number >= end {
                packet.follows_acknowledged |= next < end;
                return;
            }
            next = end;
            if packet.is_outstanding() {
                next = number + 1;
                let (sent, bytes, content) = (packet.sent, packet.bytes, packet.content());
                self.count_acknowledged(sent, bytes, &content, acked);
                on_acked(&content);
            }
            self.packets.remove_front();
        }
    }

    #[inline]
    fn count_acknowledged(&mut self, sent: Time, bytes: u32, content: &Content, acked: &mut Acked) {
        acked.packets += 1;
        acked.newest_sent = acked.newest_sent.max(sent);
        acked.bytes += u64::from(bytes);
        acked.largest_bytes = acked.largest_bytes.max(bytes);
        self.control_packets -= u32::from(content.range.is_empty());
        self.in_flight_bytes -= u64::from(bytes);
        self.in_flight_packets -= 1;
    }

    /// The packets with numbers in `range` have arrived. What is done already is not looked at
    /// again and again: who acknowledges every other packet would have us go over all of them each
    /// time.
    fn acknowledge(
        &mut self,
        range: Range<u64>,
        acked: &mut Acked,
        on_acked: &mut impl FnMut(&Content),
    ) {
        let (mut index, mut number) = (self.index_of(range.start), range.start);
        loop {
            let first = self.first;
            let Some(packet) = self.packets.get_mut(index) else { return };
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let is_next = number_of(packet, first) == number;
            packet.follows_acknowledged |= !is_next && number < range.end;
            if number_of(packet, first) >= range.end {
                return;
            }
            if packet.is_outstanding() {
                number = number_of(packet, first) + 1;
                let (sent, bytes, content) = (packet.sent, packet.finish(), packet.content());
                self.count_acknowledged(sent, bytes, &content, acked);
                on_acked(&content);
                index += 1;
            } else {
                index = self.next_outstanding(index);
                let next = self.packets.get(index);
                number = next.map_or(range.end, |packet| number_of(packet, first));
            }
        }
    }

    /// The index of the first packet in flight behind the one at `index`, which is done. Each
    /// packet on the way learns of one further ahead ("path halving" of disjoint sets, Tarjan and
    /// van Leeuwen, 1984), so that the next search from there, or from before, is shorter.
    fn next_outstanding(&mut self, mut index: usize) -> usize {
        loop {
            let done = |packet: Option<&SentPacket>| packet.map_or(0, |packet| packet.done);
            let ahead = done(self.packets.get(index));
            if ahead == 0 {
                return index;
            }
            let further = done(self.packets.get(index + ahead as usize));
            if let Some(packet) = self.packets.get_mut(index) {
                packet.done = ahead + further;
            }
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            index += (ahead + further) as usize;
        }
    }

    /// The index of the first packet with this number or a later one.
    fn index_of(&self, number: u64) -> usize {
        let first = self.first;
        // Where it would be if all numbers from the first on were of packets that are kept: nearly
        // always so.
        let most = number.saturating_sub(first).min(self.packets.len() as u64) as usize;
        let is_there = most.checked_sub(1).and_then(|before| self.packets.get(before));
        if is_there.is_none_or(|before| number_of(before, first) < number) {
            return most;
        }
        self.packets.partition_point(|packet| number_of(packet, first) < number)
    }

    /// When the packet with this number was sent, if that is known.
    fn sent_of(&self, number: u64) -> Option<Time> {
        if number == self.last_silent.0 {
            return Some(self.last_silent.1);
        }
        let is_it = |packet: &&SentPacket| number_of(packet, self.first) == number;
        // Nearly always the last one.
        let packet = self.packets.back().filter(is_it);
        let packet = packet.or_else(|| self.packets.get(self.index_of(number)).filter(is_it))?;
        Some(packet.sent)
    }

    /// True if there may be a packet in flight that was sent before one that is acknowledged.
    pub(crate) const fn has_overtaken(&self) -> bool {
        self.first < self.acked_end
    }

    /// Forgets what is done before the first packet in flight. True if there was any.
    fn pop_done(&mut self) -> bool {
        let mut any = false;
        while self.packets.front().is_some_and(|packet| !packet.is_outstanding()) {
            self.packets.pop_front();
            any = true;
        }
        let first = self.first;
        self.first =
            self.packets.front().map_or(self.next_number, |packet| number_of(packet, first));
        any
    }

    /// Declares packets lost that were overtaken by some later ones or by the loss delay; `on_lost`
    /// gets what they carried, their numbers and sizes, and returns false for those that have
    /// arrived, but were not taken.
    ///
    /// A packet is not lost before those that were sent before it, so nothing is looked at behind
    /// the first one that is not.
    pub(crate) fn detect_losses(
        &mut self,
        now: Time,
        rtt: &RttEstimator,
        granularity_ns: u64,
        mut on_lost: impl FnMut(&Content, u64, u32) -> bool,
    ) -> Lost {
        self.loss_time = Time::MAX;
        let mut lost = Lost::default();
        let (threshold_packets, eighths) = match &self.reordering {
            Some(reordering) => (reordering.packets, reordering.eighths),
            None => (PACKET_THRESHOLD, EIGHTHS),
        };
        let loss_delay_ns = rtt.loss_delay_ns(granularity_ns, eighths);
        let mut run = None;
        while self.has_overtaken()
            && let Some(packet) = self.packets.front()
        {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let due = packet.sent + loss_delay_ns;
            if due > now && self.first + threshold_packets >= self.acked_end {
                self.loss_time = due;
                break;
            }
            let (sent, content, number) = (packet.sent, packet.content(), self.first);
            if packet.follows_acknowledged {
                run = None;
            }
            let bytes = self.give_up_first();
            let is_lost = on_lost(&content, number, bytes);
            lost.packets += u64::from(is_lost);
            if is_lost && !content.told.is_size_probe {
                lost.bytes += u64::from(bytes);
                lost.last_sent = sent;
                // RFC 9002, 7.6.2: persistent congestion takes two packets that are lost, and "a
                // prior RTT sample existed when these two packets were sent".
                if rtt.was_known(sent) {
                    let first_sent = *run.get_or_insert(sent);
                    lost.span_ns = lost.span_ns.max(sent.since(first_sent));
                }
                self.reordering.get_or_insert_default().on_lost(number);
            }
            if self.pop_done() {
                run = None;
            }
        }
        lost
    }

    /// The first packet is lost. Returns its size.
    fn give_up_first(&mut self) -> u32 {
        let Some(packet) = self.packets.pop_front() else { return 0 };
        self.count_out(&packet);
        packet.bytes
    }

    fn count_out(&mut self, packet: &SentPacket) {
        self.in_flight_bytes -= u64::from(packet.bytes);
        self.in_flight_packets -= 1;
        self.control_packets -= u32::from(packet.length == 0);
    }

    /// Gives up all packets of more than `bytes_max` bytes, since the network says that none has
    /// passed. Returns what they carried.
    pub(crate) fn give_up_larger(&mut self, bytes_max: u16) -> Vec<Content> {
        let mut given_up = Vec::new();
        for packet in self.packets.iter_mut() {
            if packet.bytes > u32::from(bytes_max) {
                self.control_packets -= u32::from(packet.length == 0);
                self.in_flight_bytes -= u64::from(packet.finish());
                self.in_flight_packets -= 1;
                given_up.push(packet.content());
            }
        }
        self.pop_done();
        given_up
    }

    /// The size of the packet with this number, if it is in flight.
    pub(crate) fn bytes_of(&self, number: u64) -> Option<u32> {
        let packet = self.packets.get(self.index_of(number))?;
        let is_it = number_of(packet, self.first) == number && packet.is_outstanding();
        is_it.then_some(packet.bytes)
    }

    /// When [`Recovery::on_probe_timeout`] is due, or a packet is to be taken for lost.
    ///
    /// RFC 9002, 6.2.1: "A sender SHOULD restart its PTO timer every time an ack-eliciting packet
    /// is sent or acknowledged". Here a packet that is sent restarts it only within one period: if
    /// each acknowledgement takes new data along that the path swallows, a peer that asks often
    /// enough would put off the probe, and with it the finding of the black hole, for ever.
    pub(crate) fn timeout(&self, rtt: &RttEstimator, config: &Config) -> Option<Time> {
        if self.loss_time < Time::MAX {
            return Some(self.loss_time);
        }
        if self.in_flight_packets == 0 {
            return None;
        }
        let probe_ns = rtt.probe_timeout_ns(config.timer_granularity_ns, config.ack_delay_ns);
        let backed_off_ns = probe_ns.saturating_mul(1 << self.probes.min(BACKOFF_MAX));
        let period_ns = backed_off_ns.min(config.probe_timeout_max_ns.max(probe_ns));
        Some(self.last_eliciting.min(self.waiting_since + period_ns) + period_ns)
    }

    /// True if it is loss detection, not a probe, that is due.
    pub(crate) fn is_loss_due(&self, now: Time) -> bool {
        self.loss_time <= now
    }

    /// The probe timeout has expired. Returns what the oldest packet in flight carried: RFC 9002,
    /// 6.2.4: "an endpoint SHOULD include new data ... or retransmit unacknowledged data".
    pub(crate) fn on_probe_timeout(&mut self, now: Time) -> Option<Content> {
        self.probes += 1;
        (self.last_eliciting, self.waiting_since) = (now, now);
        self.packets.front().map(SentPacket::content)
    }

    /// The next packet is a probe, which no window holds back. If as many as are kept have no
    /// answer, the oldest of them is taken back: returns what that carried, which is to be sent
    /// again.
    pub(crate) fn begin_probe(&mut self) -> Option<Content> {
        let mut numbers = self.probe_numbers.take().unwrap_or_default();
        while let Some(oldest) = numbers.front()
            && self.bytes_of(*oldest).is_none()
        {
            numbers.pop_front();
        }
        let oldest = if numbers.len() < PROBES_MAX { None } else { numbers.pop_front() };
        numbers.push_back(self.next_number);
        self.probe_numbers = Some(numbers);
        self.take_back(oldest?)
    }

    /// Forgets a packet in flight. Should it have arrived after all, its acknowledgement finds
    /// nothing, and that those before it were overtaken.
    fn take_back(&mut self, number: u64) -> Option<Content> {
        let index = self.index_of(number);
        let packet = self.packets.remove(index)?;
        if let Some(next) = self.packets.get_mut(index) {
            next.follows_acknowledged |= packet.follows_acknowledged;
        }
        self.count_out(&packet);
        self.pop_done();
        Some(packet.content())
    }

    /// The peer has told that it can take again what it had to drop: probe at once.
    pub(crate) fn expedite(&mut self, now: Time) -> bool {
        let waits = self.probes > 0 && self.in_flight_packets > 0;
        let waits = waits && self.expedited < EXPEDITED_MAX;
        if waits {
            self.expedited += 1;
            self.probes = 0;
            (self.last_eliciting, self.waiting_since) = (now, now);
        }
        waits
    }
}

/// The number of a packet, given that of the first.
fn number_of(packet: &SentPacket, first: u64) -> u64 {
    first + u64::from(packet.number.wrapping_sub(first as u32))
}

/// How far packets of this path overtake each other. RFC 9002, 6.1.1: "Endpoints [...] MAY
/// implement algorithms for TCP-NCR to improve QUIC's reordering resilience", and "Implementations
/// that detect spurious retransmissions and increase the reordering threshold in packets or time
/// MAY choose to start with smaller initial reordering thresholds".
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
/// RFC 9002, 6.1.2: "The RECOMMENDED time threshold (kTimeThreshold), expressed as an RTT
/// multiplier, is 9/8."
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
mod tests;
