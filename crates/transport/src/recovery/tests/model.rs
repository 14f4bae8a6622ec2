//! Packets in flight held against RFC 9002, appendix A, in words as plain as can be: all packets
//! that were ever sent stand in a list, which is gone through each time.

use super::{Content, Recovery, acknowledge_with, detect_with};
use crate::config::Config;
use crate::recovery::{Acked, Lost, Told};
use crate::rtt::{HostDelay, RttEstimator};
use clearway_base::{Random, Time};
use core::ops::Range;

const RTT_NS: u64 = 8_000;
/// Less than a round trip: it is none of this.
const GRANULARITY_NS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    InFlight,
    Acknowledged,
    Lost,
    /// Was too large.
    GivenUp,
}

#[derive(Clone, Debug)]
struct Packet {
    sent: u64,
    bytes: u32,
    /// If not, it asks for nothing.
    is_eliciting: bool,
    content: Content,
    fate: Fate,
}

impl Packet {
    fn is_outstanding(&self) -> bool {
        self.is_eliciting && self.fate == Fate::InFlight
    }
}

/// How far packets overtake each other, as far as is known; and what was given up lately.
struct Patience {
    packets: u64,
    eighths: u64,
    lost: Vec<u64>,
}

struct Model {
    packets: Vec<Packet>,
    /// One more than the largest that was acknowledged.
    acked_end: usize,
    loss_time: Option<u64>,
    last_eliciting: u64,
    /// The first packet in flight since something was heard.
    waiting_since: u64,
    /// The last packet that asks for nothing, if something was kept then.
    last_silent: Option<usize>,
    probes: u32,
    patience: Patience,
}

impl Model {
    fn new() -> Self {
        // RFC 9002, 6.1.1 and 6.1.2: "kPacketThreshold [...] is 3", "kTimeThreshold [...] is 9/8".
        let patience = Patience { packets: 3, eighths: 1, lost: Vec::new() };
        Self {
            packets: Vec::new(),
            acked_end: 0,
            loss_time: None,
            last_eliciting: 0,
            waiting_since: 0,
            last_silent: None,
            probes: 0,
            patience,
        }
    }

    fn outstanding(&self) -> impl Iterator<Item = (usize, &Packet)> {
        self.packets.iter().enumerate().filter(|(_, packet)| packet.is_outstanding())
    }

    fn has_overtaken(&self) -> bool {
        self.outstanding().any(|(number, _)| number < self.acked_end)
    }

    fn send(&mut self, packet: Packet) {
        let has_others = self.outstanding().next().is_some();
        if packet.is_eliciting {
            self.last_eliciting = packet.sent;
            if !has_others {
                self.waiting_since = packet.sent;
            }
        } else if has_others {
            self.last_silent = Some(self.packets.len());
        }
        self.packets.push(packet);
    }

    /// Returns what the contents of newly acknowledged packets were, too.
    fn acknowledge(&mut self, ranges: &[Range<usize>]) -> (Acked, Vec<Content>) {
        let mut acked = Acked { was_spurious: self.learn_patience(ranges), ..Acked::default() };
        let largest = ranges[0].end - 1;
        let largest_sent = match &self.packets[largest] {
            _ if largest < self.acked_end => None,
            packet if !packet.is_eliciting => {
                self.last_silent.filter(|last| *last == largest).map(|_| packet.sent)
            }
            // What was too large is remembered as long as something before it is in flight.
            packet => {
                let is_kept = self.outstanding().next().is_some_and(|(first, _)| first <= largest);
                (packet.fate != Fate::Lost && is_kept).then_some(packet.sent)
            }
        };
        let mut contents = Vec::new();
        for number in ranges.iter().cloned().flatten() {
            let is_behind = self.packets[number..].iter().any(|packet| packet.is_eliciting);
            let packet = &mut self.packets[number];
            if packet.is_outstanding() {
                acked.packets += 1;
                acked.bytes += u64::from(packet.bytes);
                acked.newest_sent = acked.newest_sent.max(Time::from_ns(packet.sent));
                acked.largest_bytes = acked.largest_bytes.max(packet.bytes);
                contents.push(packet.content.clone());
                packet.fate = Fate::Acknowledged;
            } else if !packet.is_eliciting && is_behind {
                packet.fate = Fate::Acknowledged; // so that what is behind it hears of it
            }
        }
        if acked.packets > 0 {
            self.probes = 0;
            self.waiting_since = self.last_eliciting;
            acked.largest_sent = largest_sent.map(Time::from_ns);
        }
        self.acked_end = self.acked_end.max(largest + 1);
        if !self.has_overtaken() {
            self.loss_time = None;
        }
        (acked, contents)
    }

    /// True if one of `ranges` names a packet that had been given up.
    fn learn_patience(&mut self, ranges: &[Range<usize>]) -> bool {
        let Patience { packets, eighths, lost } = &mut self.patience;
        let mut was_spurious = false;
        for range in ranges {
            let is_named = |number: &u64| range.contains(&(*number as usize));
            let Some(first) = lost.iter().copied().find(is_named) else { continue };
            was_spurious = true;
            *packets = (*packets).max(self.acked_end as u64 - first).min(1024);
            *eighths = (*eighths + 1).min(8);
            lost.retain(|number| !is_named(number));
        }
        was_spurious
    }

    fn detect(&mut self, now: u64) -> (Lost, Vec<Content>) {
        self.loss_time = None;
        let (mut lost, mut contents) = (Lost::default(), Vec::new());
        let delay_ns = RTT_NS + RTT_NS / 8 * self.patience.eighths;
        let threshold = self.patience.packets;
        // The first of the losses with nothing acknowledged since.
        let mut run: Option<u64> = None;
        for number in 0..self.acked_end {
            let packet = &mut self.packets[number];
            if !packet.is_outstanding() {
                let is_silent = !packet.is_eliciting && packet.fate == Fate::InFlight;
                run = run.filter(|_| is_silent);
                continue;
            }
            // A.10: "pn_space.largest_acked_packet >= unacked.packet_number + kPacketThreshold".
            let is_overtaken = self.acked_end as u64 > number as u64 + threshold;
            if packet.sent + delay_ns > now && !is_overtaken {
                self.loss_time = Some(packet.sent + delay_ns);
                break;
            }
            packet.fate = Fate::Lost;
            lost.packets += 1;
            contents.push(packet.content.clone());
            if packet.content.told.is_size_probe {
                continue;
            }
            lost.bytes += u64::from(packet.bytes);
            lost.last_sent = Time::from_ns(packet.sent);
            lost.span_ns = lost.span_ns.max(packet.sent - *run.get_or_insert(packet.sent));
            self.patience.lost.push(number as u64);
            if self.patience.lost.len() > 64 {
                self.patience.lost.remove(0);
            }
        }
        (lost, contents)
    }

    /// Forgets a packet in flight: it is as one that asked for nothing. Returns what it carried.
    fn take_back(&mut self, number: usize) -> Content {
        let packet = &mut self.packets[number];
        packet.is_eliciting = false;
        packet.content.clone()
    }

    fn timeout(&self, probe_ns: u64, longest_ns: u64) -> Option<u64> {
        self.loss_time.or_else(|| {
            self.outstanding().next()?;
            // 6.2.1: "the PTO period being set to twice its current value".
            let backed_off = probe_ns.saturating_mul(1 << self.probes.min(16));
            let period = backed_off.min(longest_ns.max(probe_ns));
            Some(self.last_eliciting.min(self.waiting_since + period) + period)
        })
    }
}

/// One flow's packets, by the model and by what is held against it.
struct Pair {
    model: Model,
    recovery: Recovery,
    rtt: RttEstimator,
    random: Random,
    now: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rtt = RttEstimator::new();
        rtt.sample(Time::ZERO, RTT_NS, HostDelay::default(), 0);
        let (model, recovery, random) = (Model::new(), Recovery::new(), Random::new(seed));
        Self { model, recovery, rtt, random, now: 0 }
    }

    fn send(&mut self) {
        let random = &mut self.random;
        let number = self.model.packets.len() as u64;
        let length = if random.chance(1, 3) { 0 } else { 1 + random.below(1000) };
        let is_size_probe = length == 0 && random.chance(1, 10);
        let content = Content {
            stream: random.below(3) as u32,
            range: number * 1000..number * 1000 + length,
            told: Told {
                open: random.chance(1, 5),
                limit: random.chance(1, 5),
                close: random.chance(1, 5),
                abort: random.chance(1, 5),
                path: random.chance(1, 5),
                is_size_probe,
            },
        };
        let packet = Packet {
            sent: self.now,
            bytes: 40 + random.below(1400) as u32,
            is_eliciting: is_size_probe || random.chance(4, 5),
            content,
            fate: Fate::InFlight,
        };
        let (bytes, eliciting) = (packet.bytes as usize, packet.is_eliciting);
        assert_eq!(self.recovery.next_number(), number);
        self.recovery.on_sent(Time::from_ns(self.now), bytes, eliciting, &packet.content);
        self.model.send(packet);
    }

    fn acknowledge(&mut self) {
        let count = self.model.packets.len();
        if count == 0 {
            return;
        }
        let mut end = count - self.random.below(count.min(12) as u64) as usize;
        let mut ranges = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            if end == 0 {
                break;
            }
            let start = end - 1 - self.random.below(end.min(6) as u64) as usize;
            ranges.push(start..end);
            end = start.saturating_sub(1 + self.random.below(8) as usize);
        }
        let wide: Vec<_> = ranges.iter().map(|r| r.start as u64..r.end as u64).collect();
        let (acked, contents) = acknowledge_with(&mut self.recovery, &wide);
        let expected = self.model.acknowledge(&ranges);
        assert_eq!(format!("{:?}", (acked, contents)), format!("{expected:?}"), "{ranges:?}");
    }

    fn detect(&mut self) {
        let now = Time::from_ns(self.now);
        let lost = detect_with(&mut self.recovery, now, &self.rtt, GRANULARITY_NS);
        assert_eq!(format!("{lost:?}"), format!("{:?}", self.model.detect(self.now)));
    }

    fn probe(&mut self) {
        let oldest = self.recovery.on_probe_timeout(Time::from_ns(self.now));
        let expected = self.model.outstanding().next().map(|(_, packet)| packet.content.clone());
        assert_eq!(format!("{oldest:?}"), format!("{expected:?}"));
        self.model.probes += 1;
        (self.model.last_eliciting, self.model.waiting_since) = (self.now, self.now);
    }

    fn give_up(&mut self) {
        let bytes_max = 1000 + self.random.below(400) as u16;
        let given_up = self.recovery.give_up_larger(bytes_max);
        let mut expected = Vec::new();
        for packet in &mut self.model.packets {
            if packet.is_outstanding() && packet.bytes > u32::from(bytes_max) {
                packet.fate = Fate::GivenUp;
                expected.push(packet.content.clone());
            }
        }
        assert_eq!(format!("{given_up:?}"), format!("{expected:?}"));
    }

    /// Not the last, as the oldest of many probes is not.
    fn take_back(&mut self) {
        let outstanding: Vec<usize> = self.model.outstanding().map(|(number, _)| number).collect();
        let Some((_, others)) = outstanding.split_last().filter(|(_, all)| !all.is_empty()) else {
            return;
        };
        let number = others[self.random.below(others.len() as u64) as usize];
        let taken_back = self.recovery.take_back(number as u64).expect("in flight");
        let expected = self.model.take_back(number);
        assert_eq!(format!("{taken_back:?}"), format!("{expected:?}"));
    }

    fn restore(&mut self) {
        self.recovery = Recovery::restore(self.recovery.save()).expect("just saved");
        self.model.patience.lost.clear();
        // Their times are forgotten: a loss, as good as any.
        for packet in self.model.packets.iter_mut().filter(|p| p.fate == Fate::GivenUp) {
            packet.fate = Fate::Lost;
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..60 => self.send(),
            60..82 => self.acknowledge(),
            82..94 => self.detect(),
            94..96 => self.probe(),
            96 => self.take_back(),
            97 => self.give_up(),
            98 => self.restore(),
            _ => self.now += RTT_NS,
        }
        self.now += self.random.below(RTT_NS / 8);
    }

    fn check(&self) {
        self.recovery.audit();
        let bytes = self.model.outstanding().map(|(_, packet)| u64::from(packet.bytes)).sum();
        assert_eq!(self.recovery.in_flight_bytes(), bytes);
        assert_eq!(self.recovery.probes(), self.model.probes);
        assert_eq!(self.recovery.has_overtaken(), self.model.has_overtaken());
        let config = Config::default();
        let longest_ns = config.probe_timeout_max_ns;
        // RFC 9002, 6.2.1: "PTO = smoothed_rtt + max(4*rttvar, kGranularity) + max_ack_delay".
        let probe_ns =
            RTT_NS + (4 * RTT_NS / 2).max(config.timer_granularity_ns) + config.ack_delay_ns;
        let timeout = self.recovery.timeout(&self.rtt, &config).map(Time::as_ns);
        assert_eq!(timeout, self.model.timeout(probe_ns, longest_ns));
        let due = self.model.loss_time;
        assert!(due.is_none_or(|due| self.recovery.is_loss_due(Time::from_ns(due))));
        assert!(due.is_none_or(|due| !self.recovery.is_loss_due(Time::from_ns(due - 1))));
        assert!(due.is_some() || !self.recovery.is_loss_due(Time::from_ns(self.now)));
        for (number, packet) in self.model.packets.iter().enumerate().rev().take(40) {
            let bytes = packet.is_outstanding().then_some(packet.bytes);
            assert_eq!(self.recovery.bytes_of(number as u64), bytes);
        }
    }
}

#[test]
fn packets_are_lost_and_acknowledged_as_the_rfc_says() {
    let (mut patient, mut spurious) = (0, 0);
    for seed in 0..150 {
        let mut pair = Pair::new(seed);
        for _ in 0..400 {
            pair.step();
            pair.check();
        }
        patient += u64::from(pair.model.patience.eighths == 8);
        spurious += pair.model.patience.packets - 3;
    }
    assert!(patient > 10 && spurious > 100, "{patient}, {spurious}: hardly anything was late");
}
