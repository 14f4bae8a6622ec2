//! Packets that are sent, acknowledged and lost by hand; and what all tests count again at their
//! end.

use super::{
    Acked, Content, LOST_MAX, Lost, OTHERS_MAX, PACKETS_IN_FLIGHT_MAX, PROBES_MAX, Recovery,
    SentPacket, number_of,
};
use crate::config::Config;
use crate::rtt::{HostDelay, RttEstimator};
use clearway_base::Time;
use clearway_wire::clearway::{self, Frame, Frames};
use core::ops::Range;

mod model;

impl Recovery {
    /// Packets that are kept, whether in flight or done.
    pub(crate) fn kept(&self) -> usize {
        self.packets.len()
    }

    /// Counts everything again that has a counter.
    pub(crate) fn audit(&self) {
        let kept: Vec<&SentPacket> = self.packets.iter().collect();
        assert!(kept.len() < PACKETS_IN_FLIGHT_MAX + OTHERS_MAX);
        assert!(self.probe_numbers.as_ref().is_none_or(|all| all.len() <= PROBES_MAX));
        let numbers: Vec<u64> = kept.iter().map(|packet| number_of(packet, self.first)).collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b) && numbers.iter().all(|n| *n < self.next_number)
        );
        assert_eq!(self.first, numbers.first().copied().unwrap_or(self.next_number));
        assert!(kept.first().is_none_or(|first| first.is_outstanding()));
        let mut done = 0;
        for packet in kept.iter().rev() {
            done = if packet.is_outstanding() { 0 } else { done + 1 };
            assert!(packet.done <= done && (packet.done == 0) == (done == 0));
        }
        let outstanding = || kept.iter().filter(|packet| packet.is_outstanding());
        let bytes: u64 = outstanding().map(|packet| u64::from(packet.bytes)).sum();
        assert_eq!(bytes, self.in_flight_bytes);
        assert_eq!(outstanding().count() as u32, self.in_flight_packets);
        let control = outstanding().filter(|packet| packet.length == 0).count();
        assert_eq!(control as u32, self.control_packets);
        assert!(self.reordering.as_ref().is_none_or(|r| r.lost.len() <= LOST_MAX));
    }
}

/// What an acknowledgement of `ranges`, descending, says about when its largest was sent.
fn sample(recovery: &mut Recovery, ranges: &[Range<u64>]) -> Option<u64> {
    acknowledge(recovery, ranges).largest_sent.map(Time::as_ns)
}

fn acknowledge(recovery: &mut Recovery, ranges: &[Range<u64>]) -> Acked {
    acknowledge_with(recovery, ranges).0
}

/// The same, with what the packets carried that are acknowledged for the first time.
fn acknowledge_with(recovery: &mut Recovery, ranges: &[Range<u64>]) -> (Acked, Vec<Content>) {
    let (mut bytes, mut contents) = ([0; 256], Vec::new());
    let length =
        clearway::emit_ack(&mut bytes, 0, clearway::EcnReport::default(), ranges.iter().cloned());
    let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes[..length]).next() else { panic!() };
    let acked = recovery.on_ack(&ack, |content| contents.push(content.clone()));
    (acked.expect("was sent"), contents)
}

/// What is lost now, and what it carried.
fn detect_with(
    recovery: &mut Recovery,
    now: Time,
    rtt: &RttEstimator,
    granularity_ns: u64,
) -> (Lost, Vec<Content>) {
    let mut contents = Vec::new();
    let lost = recovery.detect_losses(now, rtt, granularity_ns, |content, _, _| {
        contents.push(content.clone());
        true
    });
    (lost, contents)
}

fn sent(packets: u64) -> Recovery {
    let mut recovery = Recovery::new();
    for number in 0..packets {
        recovery.on_sent(Time::from_ns(100 * number), 1000, true, &Content::default());
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
    recovery.on_sent(Time::from_ns(777), 30, false, &Content::default());
    assert_eq!(sample(&mut recovery, &[0..3]), Some(777));
    recovery.on_sent(Time::from_ns(900), 30, false, &Content::default());
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
    detect_knowing(recovery, now_ns, Time::ZERO)
}

/// The same, where the first round-trip time was known at `sampled` only.
fn detect_knowing(recovery: &mut Recovery, now_ns: u64, sampled: Time) -> Lost {
    let mut rtt = RttEstimator::new();
    rtt.sample(sampled, 1_000_000, HostDelay::default(), 0);
    recovery.detect_losses(Time::from_ns(now_ns), &rtt, 10_000_000, |_, _, _| true)
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

/// RFC 9002, 7.6.2: "a prior RTT sample existed when these two packets were sent".
#[test]
fn the_span_of_a_loss_begins_when_a_round_trip_time_is_known() {
    for (sampled_ns, span_ns) in [(0, 1600), (1, 1500), (1000, 600), (1501, 0)] {
        let mut recovery = sent(20);
        sample(&mut recovery, &[19..20]);
        let lost = detect_knowing(&mut recovery, 3000, Time::from_ns(sampled_ns));
        assert_eq!((lost.packets, lost.span_ns), (17, span_ns), "0 to 16, one each 100 ns");
    }
}

#[test]
fn what_is_too_large_is_given_up_at_once() {
    let mut recovery = sent(2);
    recovery.on_sent(Time::from_ns(200), 1400, true, &Content::default());
    assert_eq!((recovery.bytes_of(2), recovery.bytes_of(3)), (Some(1400), None));
    assert_eq!(recovery.give_up_larger(1200).len(), 1);
    assert_eq!(recovery.in_flight_bytes(), 2000);
    assert_eq!(recovery.bytes_of(2), None);
}

/// Acknowledges by hand, and returns how many packets were looked at for it.
fn work_of(recovery: &mut Recovery, ranges: &[Range<u64>]) -> u64 {
    let before = recovery.looked_at;
    acknowledge(recovery, ranges);
    let rtt = RttEstimator::new();
    recovery.detect_losses(Time::ZERO, &rtt, u64::MAX / 2, |_, _, _| true);
    if ranges[0].end.is_multiple_of(128) {
        recovery.audit();
    }
    recovery.looked_at - before
}

/// One that tolerates so much reordering that nothing counts as lost for long.
fn patient(packets: u64) -> Recovery {
    let mut recovery = sent(packets);
    recovery.reordering.get_or_insert_default().packets = u64::MAX / 2;
    recovery
}

#[test]
fn every_other_packet_acknowledged_costs_no_more_than_each() {
    const PACKETS: u64 = 4_096;
    // In acknowledgements of single packets that name all before as well, or from the newest down.
    for newest_first in [false, true] {
        let mut recovery = patient(PACKETS);
        let mut work = 0;
        for nth in 0..PACKETS / 2 {
            let number = 1 + 2 * if newest_first { PACKETS / 2 - 1 - nth } else { nth };
            let others = (1..9).map(|back| number.wrapping_sub(2 * back));
            let ranges: Vec<_> = core::iter::once(number)
                .chain(others.filter(|number| *number < PACKETS))
                .map(|number| number..number + 1)
                .collect();
            work += work_of(&mut recovery, &ranges);
        }
        assert!(work < 40 * PACKETS, "{work} packets looked at");
    }
}

#[test]
fn what_is_done_is_not_looked_at_again() {
    const PACKETS: u64 = 4_096;
    let mut recovery = patient(2 * PACKETS);
    let first = work_of(&mut recovery, &[1..PACKETS]);
    assert!((PACKETS - 1..PACKETS + 10).contains(&first), "{first}");
    // From wherever an acknowledgement begins: each names one new packet, and thousands of old
    // ones.
    let mut work = 0;
    for number in PACKETS..2 * PACKETS {
        work += work_of(&mut recovery, &[number % 61 + 1..number + 1]);
    }
    assert!(work < 20 * PACKETS, "{work} packets looked at for {PACKETS}");
}

#[test]
fn losses_are_found_without_looking_at_what_is_not_lost() {
    let mut recovery = sent(30_000);
    recovery.reordering.get_or_insert_default().packets = 1000;
    let mut work = 0;
    for number in (1..2_001).step_by(2) {
        work += work_of(&mut recovery, &[number..number + 1]);
    }
    assert_eq!(recovery.first, 1_999 - 1000 + 1);
    assert!(work < 10 * 2_000, "{work}");
}

#[test]
fn packets_that_ask_for_nothing_are_not_kept() {
    let mut recovery = sent(1);
    for number in 1..1_000_000 {
        recovery.on_sent(Time::from_ns(1000 * number), 30, false, &Content::default());
    }
    assert_eq!((recovery.kept(), recovery.next_number()), (1, 1_000_000));
    assert!(!recovery.is_overrun());
    recovery.audit();
    // An acknowledgement of the last of them tells the time, and that the first is lost.
    assert_eq!(sample(&mut recovery, &[999_000..1_000_000]), None, "nothing new in it");
    assert_eq!(detect(&mut recovery, 0).packets, 1);
    assert_eq!((recovery.kept(), recovery.first), (0, 1_000_000));
}

#[test]
fn a_peer_that_never_acknowledges_is_given_up() {
    let mut recovery = sent(PACKETS_IN_FLIGHT_MAX as u64);
    assert!(recovery.is_full() && !recovery.is_overrun());
    for _ in 0..OTHERS_MAX {
        assert!(!recovery.is_overrun());
        recovery.on_sent(Time::ZERO, 1000, true, &Content::default());
    }
    assert!(recovery.is_overrun());
    let mut recovery = sent(1);
    recovery.next_number += super::NUMBERS_MAX - 2;
    assert!(!recovery.is_overrun());
    recovery.on_sent(Time::ZERO, 30, false, &Content::default());
    assert!(recovery.is_overrun(), "one for which nothing was ever acknowledged");
}

/// Else a silence that may be long, and who says everything but that something has come, would have
/// us keep more and more.
#[test]
fn of_probes_without_an_answer_the_last_are_kept() {
    let data =
        |number: u64| Content { range: 100 * number..100 * number + 50, ..Content::default() };
    let mut recovery = Recovery::new();
    for number in 0..PACKETS_IN_FLIGHT_MAX as u64 {
        recovery.on_sent(Time::from_ns(number), 1000, true, &data(number));
    }
    let (bytes, first_probe) = (recovery.in_flight_bytes(), recovery.next_number());
    for nth in 0u64..100_000 {
        recovery.on_probe_timeout(Time::ZERO);
        let taken_back = recovery.begin_probe();
        let expected = nth.checked_sub(PROBES_MAX as u64).map(|before| data(before).range);
        assert_eq!(taken_back.map(|content| content.range), expected);
        recovery.on_sent(Time::from_ns(nth), 100, true, &data(nth));
    }
    recovery.audit();
    assert!(!recovery.is_overrun());
    assert_eq!(recovery.kept(), PACKETS_IN_FLIGHT_MAX + PROBES_MAX);
    assert_eq!(recovery.in_flight_bytes(), bytes + 100 * PROBES_MAX as u64);
    let saved = recovery.save();
    let restored = Recovery::restore(saved.clone()).expect("just saved");
    assert_eq!(restored.save(), saved);
    // The answer to one that is forgotten tells that what was sent before it is lost.
    let late = first_probe + 50_000;
    assert_eq!(sample(&mut recovery, &[late..late + 1]), None);
    assert_eq!(detect(&mut recovery, 0).packets, PACKETS_IN_FLIGHT_MAX as u64);
    assert_eq!(recovery.kept(), PROBES_MAX);
    let last = recovery.next_number() - 1;
    assert_eq!(sample(&mut recovery, &[last..last + 1]), Some(99_999));
    recovery.audit();
}

/// Probes that were answered take no place of others.
#[test]
fn probes_with_an_answer_do_not_count() {
    let mut recovery = sent(1);
    for _ in 0..10 {
        for _ in 0..PROBES_MAX - 1 {
            assert!(recovery.begin_probe().is_none());
            recovery.on_sent(Time::ZERO, 40, true, &Content::default());
        }
        let end = recovery.next_number();
        acknowledge(&mut recovery, &[1..end]);
        recovery.audit();
    }
}

#[test]
fn numbers_are_told_apart_where_their_low_half_wraps() {
    let start = (7 << 32) - 3;
    let mut recovery = Recovery::at(start);
    for number in 0..6 {
        recovery.on_sent(Time::from_ns(100 * number), 1000, true, &Content::default());
    }
    recovery.audit();
    assert_eq!(sample(&mut recovery, &[start + 3..start + 4, start..start + 1]), Some(300));
    assert_eq!((recovery.first, recovery.bytes_of(start + 3)), (start + 1, None));
    assert_eq!(recovery.bytes_of(start + 4), Some(1000));
    recovery.audit();
    assert_eq!(sample(&mut recovery, &[start + 1..start + 6]), Some(500));
    assert_eq!((recovery.first, recovery.next_number()), (start + 6, start + 6));
    recovery.audit();
}

/// RFC 9002, 7.6.2: "none of the packets sent between the send times of these two packets are
/// acknowledged".
#[test]
fn the_span_of_a_loss_goes_over_silent_packets_unless_they_arrived() {
    for (arrived, span_ns) in [(None, 400), (Some(1..2), 200)] {
        let mut recovery = Recovery::new();
        for number in 0..8 {
            // The second and the last are acknowledgements only.
            let eliciting = number != 1 && number != 7;
            recovery.on_sent(Time::from_ns(100 * number), 1000, eliciting, &Content::default());
        }
        let ranges: Vec<_> = core::iter::once(6..8).chain(arrived).collect();
        acknowledge(&mut recovery, &ranges);
        let lost = detect(&mut recovery, 500);
        assert_eq!((lost.packets, lost.span_ns), (4, span_ns), "0, 2, 3 and 4; {ranges:?}");
    }
}

/// Whatever is swallowed by the path, a probe comes: packets that are sent put it off by one
/// period.
#[test]
fn a_probe_is_put_off_by_what_is_sent_once_and_again_when_something_was_heard() {
    let (mut recovery, config, mut rtt) = (Recovery::new(), Config::default(), RttEstimator::new());
    rtt.sample(Time::ZERO, 1000, HostDelay::default(), 0);
    let send = |recovery: &mut Recovery, at| {
        recovery.on_sent(Time::from_ns(at), 1000, true, &Content::default());
    };
    let due = |recovery: &Recovery| recovery.timeout(&rtt, &config).map(Time::as_ns);
    send(&mut recovery, 0);
    let period = due(&recovery).expect("one in flight");
    for half in 1..=10 {
        send(&mut recovery, half * period / 2);
        assert_eq!(due(&recovery), Some((half * period / 2).min(period) + period));
    }
    acknowledge(&mut recovery, &[0..1]);
    assert_eq!(due(&recovery), Some(6 * period), "counted from the last packet");
    send(&mut recovery, 6 * period);
    send(&mut recovery, 7 * period);
    assert_eq!(due(&recovery), Some(7 * period));
    recovery.on_probe_timeout(Time::from_ns(7 * period));
    send(&mut recovery, 10 * period);
    assert_eq!(due(&recovery), Some(11 * period), "the period has doubled");
}

#[test]
fn probes_that_the_peer_calls_for_have_an_end() {
    let mut recovery = sent(2);
    let mut expedited = 0;
    for at in 0..1000 {
        recovery.on_probe_timeout(Time::from_ns(at));
        expedited += u32::from(recovery.expedite(Time::from_ns(at)));
    }
    assert_eq!(expedited, super::EXPEDITED_MAX);
    acknowledge(&mut recovery, &[0..1]);
    recovery.on_probe_timeout(Time::ZERO);
    assert!(recovery.expedite(Time::ZERO), "an acknowledgement makes good for it");
}

#[test]
fn a_probe_is_called_for_only_if_one_has_been_in_vain_and_something_is_in_flight() {
    let mut recovery = sent(1);
    assert!(!recovery.expedite(Time::ZERO), "nothing was asked in vain");
    recovery.on_probe_timeout(Time::ZERO);
    assert!(recovery.expedite(Time::from_ns(5)));
    assert_eq!((recovery.probes(), recovery.last_eliciting), (0, Time::from_ns(5)));
    recovery.on_probe_timeout(Time::ZERO);
    assert_eq!(recovery.give_up_larger(0).len(), 1);
    assert!(!recovery.expedite(Time::ZERO), "nothing is in flight");
}

#[test]
fn limits_and_paths_wait_when_many_are_in_flight() {
    let mut recovery = Recovery::new();
    for _ in 0..super::CONTROL_PACKETS_MAX {
        assert!(recovery.takes_control());
        recovery.on_sent(Time::ZERO, 40, true, &Content::default());
    }
    assert!(!recovery.takes_control());
    // What carries messages too is held back by the window.
    let data = Content { range: 0..10, ..Content::default() };
    recovery.on_sent(Time::ZERO, 40, true, &data);
    acknowledge(&mut recovery, &[256..257]);
    assert!(!recovery.takes_control());
    acknowledge(&mut recovery, &[7..8]);
    assert!(recovery.takes_control());
}
