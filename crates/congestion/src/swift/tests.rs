//! The numbers of Swift: what one acknowledgement, or one loss, does to a window.

use super::{
    AckSample, CongestionControl, DRAIN_PACKETS_MIN, GROWTH_MAX, LossSample, MAX_BYTES,
    MIN_PACKETS, STARVING_NS, Swift,
};
use clearway_base::{MICROSECOND, Time};

const PACKET: u64 = 1000;
const TARGET_NS: u64 = 50 * MICROSECOND;
const START_NS: u64 = 1_000_000_000;

/// One that knows a path without queues of `base_ns`, which its window fills, and has left slow
/// start.
fn settled(packets: f64, base_ns: u64) -> Swift {
    Swift {
        window_bytes: packets * PACKET as f64,
        full_bytes: packets * PACKET as f64,
        base_rtt_ns: base_ns,
        full_rtt_ns: base_ns,
        slow_start: false,
        ..Swift::new(PACKET as u16, TARGET_NS)
    }
}

/// An acknowledgement of a packet, `rtt_ns` after it was sent.
fn ack(now_ns: u64, rtt_ns: u64) -> AckSample {
    AckSample {
        now: Time::from_ns(now_ns),
        sent: Time::from_ns(now_ns - rtt_ns),
        acked_bytes: PACKET,
        packet_bytes: PACKET as u32,
        rtt_ns,
        smoothed_rtt_ns: rtt_ns,
        min_rtt_ns: rtt_ns,
        window_limited: true,
        marked: false,
    }
}

fn loss(now_ns: u64, packets: u64) -> LossSample {
    let (now, sent) = (Time::from_ns(now_ns), Time::from_ns(now_ns - 1));
    LossSample { now, sent, bytes: packets * PACKET }
}

#[track_caller]
fn assert_near(window_bytes: f64, expected: f64) {
    assert!((window_bytes - expected).abs() < 1e-4 * expected, "{window_bytes}, not {expected}");
}

/// With the root of the rate, as with that of the window in the paper, section 3.5: near and far
/// flows of the same rate bear the same.
#[test]
fn slower_flows_bear_more_delay_however_far_they_go() {
    for (packets, rtt_us, target_us) in [
        (1000.0, 50, 12.5),
        (64.0, 50, 12.5),
        (16.0, 50, 25.0),
        (160.0, 500, 25.0),
        (4.0, 50, 50.0),
        (160.0, 2000, 50.0),
        (2.0, 50, 70.711),
        (1.0, 50, 100.0),
        (MIN_PACKETS, 50, 100.0),
    ] {
        let target_ns = settled(packets, 10).target_ns(f64::from(rtt_us * 1000));
        assert_near(target_ns, target_us * 1000.0);
    }
}

/// `docs/transport.md`: a packet per round trip, and below half of the target an eighth of the
/// window, or less where the path was full before.
#[test]
fn the_window_grows_by_a_packet_and_far_below_the_target_by_a_part_of_itself() {
    const BASE_NS: u64 = 100 * MICROSECOND;
    // Of a window of 100 packets, which this acknowledges one of.
    // A quarter of the target is 3.599 us, half of it 7.326 us, and all of it 15.177 us.
    for (queue_ns, full_packets, growth, grown_bytes) in [
        (0, 200.0, 0.0, 10.0 + 125.0),
        (3_599, 200.0, 0.0, 10.0 + 62.5),
        (7_326, 200.0, 0.0, 10.0),
        (15_170, 200.0, 0.0, 10.0),
        (0, 105.5, 0.0, 10.0 + 125.0),
        (0, 105.0, 0.02, 10.0 + 25.0),
        (0, 0.0, 0.02, 10.0 + 25.0),
        (3_599, 0.0, 0.02, 10.0 + 12.5),
        (0, 0.0, GROWTH_MAX, 10.0 + 125.0),
    ] {
        let full_bytes = full_packets * PACKET as f64;
        let mut swift = Swift { full_bytes, growth, ..settled(100.0, BASE_NS) };
        swift.on_ack(&ack(START_NS, BASE_NS + queue_ns));
        let grown = swift.window_bytes - 100_000.0;
        assert!((grown - grown_bytes).abs() < 0.01, "{queue_ns} ns, {full_packets}: {grown}");
    }
}

#[test]
fn growth_beyond_the_full_path_speeds_up_once_per_round_trip() {
    const RTT_NS: u64 = 100 * MICROSECOND;
    let mut swift = Swift { growth: 0.08, ..settled(100.0, RTT_NS) };
    for (nth, growth) in [0.1, 0.1, 0.125, 0.125, 0.125].into_iter().enumerate() {
        swift.on_ack(&ack(START_NS + nth as u64 * RTT_NS / 2, RTT_NS));
        assert_near(swift.growth, growth);
    }
    // Not while there is half of the queue that is accepted.
    let mut swift = Swift { growth: 0.08, ..settled(100.0, RTT_NS) };
    swift.on_ack(&ack(START_NS, RTT_NS + 7_326));
    assert_near(swift.growth, 0.08);
}

/// Whatever has ended slow start, and however soon: else one packet more per round trip would be
/// all until a queue is seen, which may be never.
#[test]
fn growth_begins_small_and_speeds_up_however_slow_start_has_ended() {
    const BASE_NS: u64 = 20_000 * MICROSECOND;
    let ends: [fn(&mut Swift); 3] = [
        |swift| swift.on_ack(&AckSample { marked: true, ..ack(START_NS, BASE_NS) }),
        |swift| swift.on_loss(&loss(START_NS, 128)),
        |swift| swift.resume(20 * PACKET),
    ];
    for end in ends {
        let mut swift = Swift::new(PACKET as u16, TARGET_NS);
        end(&mut swift);
        assert!(!swift.slow_start && swift.full_bytes > 0.0);
        let mut windows = vec![swift.window_bytes];
        for round_trip in 1..=80 {
            let (now_ns, acked_bytes) = (START_NS + round_trip * BASE_NS, swift.window_bytes);
            let acked_bytes = acked_bytes as u64;
            swift.on_ack(&AckSample { acked_bytes, ..ack(now_ns, BASE_NS) });
            windows.push(swift.window_bytes);
        }
        let grown_at_first = windows[5] - windows[0];
        assert!(grown_at_first < 6.0 * PACKET as f64, "carefully: {windows:?}");
        assert!(windows[80] > 1000.0 * PACKET as f64, "{windows:?}");
    }
}

/// As after a queue: fast up to nearly what was too much, and then carefully.
#[test]
fn what_was_marked_or_lost_is_remembered() {
    const BASE_NS: u64 = 20_000 * MICROSECOND;
    let decreases: [fn(&mut Swift); 2] = [
        |swift| swift.on_ack(&AckSample { marked: true, ..ack(START_NS, BASE_NS) }),
        |swift| swift.on_loss(&loss(START_NS, 128)),
    ];
    for decrease in decreases {
        let mut swift = Swift { full_bytes: 1e6, growth: GROWTH_MAX, ..settled(100.0, BASE_NS) };
        decrease(&mut swift);
        assert_near(swift.full_bytes, 100_000.0);
        assert_eq!(swift.growth, 0.0);
        // What was sent before knows nothing of the decrease.
        swift.window_bytes = 50_000.0;
        decrease(&mut swift);
        assert_near(swift.full_bytes, 100_000.0);
    }
}

/// Full packets take longer than the handshake did, over two links of 200 Mbit/s 0.1 ms: that is
/// no queue, and the window doubles; more above that is one. The simulator's seed 3400101321 had a
/// hundredth of such a path.
#[test]
fn full_packets_may_take_longer_than_the_handshake() {
    const BASE_NS: u64 = 64_000 * MICROSECOND;
    const FULL_NS: u64 = BASE_NS + 2 * TARGET_NS;
    let mut swift = Swift::new(PACKET as u16, TARGET_NS);
    let window_bytes = swift.window_bytes;
    let first = AckSample { min_rtt_ns: BASE_NS, ..ack(START_NS, FULL_NS) };
    for nth in 0..100 {
        swift.on_ack(&AckSample { now: first.now + nth * MICROSECOND, ..first });
    }
    assert_near(swift.window_bytes, window_bytes + 100_000.0);
    let later_ns = START_NS + BASE_NS;
    let small = AckSample { packet_bytes: 100, ..ack(later_ns, BASE_NS + TARGET_NS) };
    swift.on_ack(&small);
    assert_near(swift.window_bytes, window_bytes + 101_000.0);
    for nth in 1..3 {
        swift.on_ack(&ack(later_ns + nth * BASE_NS, FULL_NS + 4 * TARGET_NS));
    }
    assert!(!swift.slow_start);
}

/// Not by any amount: who comes to a long queue is not to take it for the path.
#[test]
fn much_longer_is_a_queue() {
    const BASE_NS: u64 = 1000 * MICROSECOND;
    const LONG_NS: u64 = 100_000 * MICROSECOND;
    let mut swift = settled(100.0, BASE_NS);
    swift.full_rtt_ns = u64::MAX;
    // An eighth of the path is 2.5 times the target.
    swift.on_ack(&ack(START_NS, BASE_NS + (25 + 15) * TARGET_NS / 10));
    assert_near(swift.window_bytes, 100_000.0 * (1.0 - 0.046_368) * 1000.0 / 1075.0);
    // Ten times the target, of a longer one; that much is too little for a drain.
    let mut swift = settled(100.0, LONG_NS);
    swift.full_rtt_ns = u64::MAX;
    swift.on_ack(&ack(START_NS, LONG_NS + 14 * TARGET_NS));
    assert_near(swift.window_bytes, 100_000.0 * (1.0 - 0.8 * 100.0 / 100_200.0));
}

/// The paper, algorithm 1: "cwnd += ai * num_acked" below a packet, "ai / cwnd * num_acked" above.
#[test]
fn windows_below_a_packet_grow_by_a_packet_per_packet() {
    let mut swift = settled(0.5, 100_000);
    swift.on_ack(&ack(START_NS, 100_000 + TARGET_NS));
    assert_near(swift.window_bytes, 1500.0);
}

/// The paper, algorithm 1: "max(1 - beta * (delay - target_delay) / delay, 1 - max_mdf) * cwnd"
/// with a beta of 0.8 and a max_mdf of 0.5, once per round trip.
#[test]
fn a_decrease_is_in_proportion_to_the_excess() {
    for (packets, base_us, rtt_us, factor) in [
        (4.0, 10, 100, 0.84569),
        (4.0, 10, 70, 0.99042),
        (4.0, 10, 1000, 0.5),
        (400.0, 2000, 2060, 0.98916),
    ] {
        let window_bytes = packets * PACKET as f64;
        let emptied = Time::from_ns(START_NS);
        let mut swift = Swift { emptied, ..settled(packets, base_us * 1000) };
        let rtt_ns = rtt_us * 1000;
        swift.on_ack(&ack(START_NS, rtt_ns));
        assert_near(swift.window_bytes, window_bytes * factor);
        swift.on_ack(&ack(START_NS + rtt_ns, rtt_ns));
        assert_near(swift.window_bytes, window_bytes * factor);
        assert_near(swift.full_bytes, window_bytes * base_us as f64 / rtt_us as f64);
        swift.on_ack(&ack(START_NS + rtt_ns + 1, 2 * rtt_ns));
        assert_near(swift.window_bytes, window_bytes * factor);
        swift.on_ack(&ack(START_NS + 3 * rtt_ns, 2 * rtt_ns));
        assert!(swift.window_bytes < window_bytes * factor - 1.0, "sent after the decrease");
        assert!(!swift.drains);
    }
}

/// `docs/transport.md`: down to what fills the path, less the target or a fifth, by at most half in
/// a round trip, until the queue is empty; then the flow has its rate again.
#[test]
fn a_drain_empties_the_queue_and_gives_the_rate_back() {
    for (base_us, rtts_us, windows, growth) in [
        (1000, vec![1100], vec![100.0 * (1.0 - 0.046_904) / 1.1], 0.0125),
        (100, vec![140], vec![100.0 * 0.83267 / 1.4], GROWTH_MAX),
        (100, vec![400, 250, 150], vec![50.0, 25.0, 25.0 * 0.8 / 1.5], GROWTH_MAX),
    ] {
        // Marks on the way change nothing.
        for marked in [false, true] {
            let base_ns = base_us * 1000;
            let mut swift = settled(100.0, base_ns);
            let mut now_ns = START_NS;
            for (rtt_us, packets) in rtts_us.iter().zip(&windows) {
                swift.on_ack(&AckSample { marked, ..ack(now_ns, rtt_us * 1000) });
                assert_near(swift.window_bytes, packets * PACKET as f64);
                assert!(swift.drains);
                now_ns += 500 * MICROSECOND;
            }
            let full_bytes = 100_000.0 * base_us as f64 / rtts_us[0] as f64;
            assert_near(swift.full_bytes, full_bytes);
            assert_eq!(swift.growth, 0.0);
            assert_near(swift.growth_least(), growth);
            swift.on_ack(&AckSample { window_limited: false, marked, ..ack(now_ns, base_ns) });
            assert_near(swift.window_bytes, full_bytes);
            assert!(!swift.drains);
        }
    }
}

/// Else a flow beside others that do not let the queue become empty would get nothing.
#[test]
fn a_drain_ends_after_a_while() {
    const RTT_NS: u64 = 200 * MICROSECOND;
    let mut swift = settled(100.0, RTT_NS / 2);
    for nth in 0..7 {
        swift.on_ack(&ack(START_NS + 2 * nth * RTT_NS, RTT_NS));
        assert!(swift.drains == (nth < 3), "{nth}");
        assert!(nth != 3 || swift.window_bytes == 100_000.0, "{}", swift.window_bytes);
    }
    // If the queue has grown, the window has not.
    let mut swift = settled(100.0, RTT_NS / 2);
    swift.on_ack(&ack(START_NS, RTT_NS));
    assert!(swift.drains);
    for round_trips in [5, 6, 60] {
        swift.on_ack(&ack(START_NS + round_trips * RTT_NS, 50 * RTT_NS));
        assert_eq!(swift.drains, round_trips < 60);
    }
    assert_eq!(swift.window_bytes, 100_000.0);
    // There is a smallest window.
    let mut swift = settled(2.1, RTT_NS / 10);
    for nth in 0..4 {
        swift.on_ack(&ack(START_NS + nth * (RTT_NS + 1), RTT_NS));
        assert!(swift.drains);
    }
    assert_near(swift.window_bytes, DRAIN_PACKETS_MIN * PACKET as f64);
    // Few packets do not drain.
    let mut swift = settled(2.0, RTT_NS / 10);
    swift.on_ack(&ack(START_NS, RTT_NS));
    assert!(!swift.drains);
}

/// A hundred targets, or eight round trips, after the queue was last empty.
#[test]
fn a_drain_is_due_if_the_queue_has_stood_for_long() {
    for (base_us, each_us) in [(100, 5000), (1000, 8 * 1050)] {
        for (late_ns, drains) in [(0, false), (2, true)] {
            let (base_ns, rtt_ns) = (base_us * 1000, base_us * 1000 + TARGET_NS);
            let mut swift = settled(100.0, base_ns);
            swift.on_ack(&ack(START_NS - 3 * TARGET_NS, base_ns + TARGET_NS / 8 - 1));
            // Of the last two stretches, the first had none.
            swift.on_ack(&ack(START_NS, rtt_ns));
            swift.on_ack(&ack(START_NS + each_us * 1000 - 1 + late_ns, rtt_ns));
            assert!(swift.window_bytes < 100_000.0);
            assert_eq!(swift.drains, drains, "{base_us} {late_ns}");
        }
    }
}

/// Over a slow link a full packet takes longer than a small one by more than is learnt.
#[test]
fn half_a_packet_at_the_rate_of_the_flow_is_no_queue() {
    const BASE_NS: u64 = 1000 * MICROSECOND;
    for (queue_us, is_empty) in [(49, true), (51, false)] {
        let mut swift = Swift { full_bytes: 10_000.0, ..settled(10.0, BASE_NS) };
        swift.on_ack(&ack(START_NS, BASE_NS + queue_us * MICROSECOND));
        assert_eq!(swift.emptied == Time::from_ns(START_NS), is_empty);
    }
}

/// The first queue that a flow sees comes of windows that have doubled.
#[test]
fn slow_start_ends_with_a_drain() {
    let emptied = Time::from_ns(START_NS);
    let mut swift = Swift { slow_start: true, emptied, ..settled(100.0, 100_000) };
    swift.on_ack(&ack(START_NS, 200_000));
    assert!(swift.drains && !swift.slow_start);
    assert_near(swift.window_bytes, 50_000.0);
    assert_near(swift.full_bytes, 25_000.0);
}

/// Half of the window goes, and half of what the end of the drain gives back.
#[test]
fn what_is_lost_in_a_drain_is_not_given_back() {
    const BASE_NS: u64 = 100 * MICROSECOND;
    for (is_lost, given_back) in [(false, 50_000.0), (true, 25_000.0)] {
        let mut swift = settled(100.0, BASE_NS);
        swift.on_ack(&ack(START_NS, 2 * BASE_NS));
        assert!(swift.drains);
        let lost_ns = START_NS + BASE_NS;
        if is_lost {
            let before = swift.window_bytes;
            swift.on_loss(&loss(lost_ns, 128));
            assert!(swift.drains);
            assert_near(swift.window_bytes, before / 2.0);
        }
        swift.on_ack(&ack(lost_ns + 2 * BASE_NS, BASE_NS));
        swift.on_ack(&ack(lost_ns + 4 * BASE_NS, BASE_NS));
        assert!(!swift.drains);
        assert_near(swift.full_bytes, given_back);
        assert!(swift.window_bytes < 1.2 * given_back, "{}", swift.window_bytes);
    }
}

/// What others decide of the window is not undone by the end of a drain.
#[test]
fn another_window_ends_a_drain() {
    let changes: [fn(&mut Swift); 5] = [
        |swift| swift.on_persistent_congestion(),
        |swift| swift.on_timeout(),
        |swift| swift.on_idle(1),
        |swift| swift.shrink_to(3000),
        |swift| swift.resume(3000),
    ];
    for change in changes {
        let mut swift = settled(100.0, 100_000);
        swift.on_ack(&ack(START_NS, 200_000));
        assert!(swift.drains);
        change(&mut swift);
        assert!(!swift.drains);
    }
}

/// A queue stands if the lowest of half to a whole round trip is above it.
#[test]
fn a_late_packet_is_no_queue() {
    const RTT_NS: u64 = 100 * MICROSECOND;
    let mut swift = settled(100.0, RTT_NS);
    let mut now_ns = START_NS;
    swift.on_ack(&ack(now_ns, RTT_NS));
    let mut stays = |after_ns: u64, rtt_ns: u64| {
        now_ns += after_ns;
        let before = swift.window_bytes;
        swift.on_ack(&AckSample { smoothed_rtt_ns: RTT_NS, ..ack(now_ns, rtt_ns) });
        swift.window_bytes >= before
    };
    assert!(stays(RTT_NS / 2, 4 * RTT_NS), "in the same half");
    assert!(stays(1, 4 * RTT_NS), "the half before had none");
    assert!(stays(RTT_NS / 2, 4 * RTT_NS));
    assert!(!stays(1, 4 * RTT_NS), "a whole round trip of them");
}

/// Near flows let their queue come and go while a far one makes a round trip.
#[test]
fn over_a_long_path_a_queue_stands_that_stays_for_four_targets() {
    const RTT_NS: u64 = 100 * TARGET_NS;
    let mut swift = settled(4000.0, RTT_NS);
    let mut gives_way = |after_ns: u64, queue_ns: u64| {
        let before = swift.window_bytes;
        swift.on_ack(&ack(START_NS + after_ns, RTT_NS + queue_ns));
        swift.window_bytes < before
    };
    assert!(!gives_way(0, 0));
    assert!(!gives_way(2 * TARGET_NS, 2 * TARGET_NS), "in the same stretch");
    assert!(!gives_way(2 * TARGET_NS + 1, 2 * TARGET_NS), "the stretch before had none");
    assert!(!gives_way(4 * TARGET_NS + 1, 2 * TARGET_NS));
    assert!(gives_way(4 * TARGET_NS + 2, 2 * TARGET_NS), "two stretches of them");
}

/// `docs/transport.md`: under a tenth, of 512 packets or more, is no congestion; above, the window
/// shrinks by the part that was lost, by half at most.
#[test]
fn loss_is_judged_over_512_packets_or_128_losses() {
    for (acked, lost, left) in [
        (460, 52, 1.0 - 52.0 / 512.0),
        (461, 51, 1.0),
        (468, 52, 1.0),
        (411, 100, 1.0),
        (412, 100, 1.0 - 100.0 / 512.0),
        (0, 127, 1.0),
        (0, 128, 0.5),
        (200, 128, 1.0 - 128.0 / 328.0),
    ] {
        let mut swift = settled(100.0, 100_000);
        let idle = |now_ns| AckSample { window_limited: false, ..ack(now_ns, 100_000) };
        // What is acknowledged before anything was lost is not counted.
        (0..1000).for_each(|nth| swift.on_ack(&idle(START_NS + nth)));
        swift.on_loss(&loss(START_NS + 2000, 1));
        (0..acked).for_each(|nth| swift.on_ack(&idle(START_NS + 3000 + nth)));
        swift.on_loss(&loss(START_NS + 10_000, lost - 1));
        assert_near(swift.window_bytes, 100_000.0 * left);
    }
}

#[test]
fn persistent_congestion_begins_anew_with_two_packets() {
    let mut swift = settled(100.0, 100_000);
    swift.on_persistent_congestion();
    assert_near(swift.window_bytes, 2000.0);
    swift.on_ack(&ack(START_NS, 100_000));
    assert_near(swift.window_bytes, 3000.0);
}

/// After a second with the smallest window, the lowest round trip of that second is the path's.
#[test]
fn a_path_that_has_become_longer_is_learnt_after_a_second() {
    let mut swift = settled(MIN_PACKETS, 100_000);
    for (after_ns, rtt_ns, base_ns) in [
        (0, 900_000, 100_000),
        (STARVING_NS / 2, 800_000, 100_000),
        (STARVING_NS - 1, 900_000, 100_000),
        (STARVING_NS, 900_000, 800_000),
    ] {
        swift.on_ack(&AckSample { window_limited: false, ..ack(START_NS + after_ns, rtt_ns) });
        assert_eq!(swift.base_rtt_ns, base_ns);
    }
    // A window that was larger between ends the second.
    let mut swift = settled(MIN_PACKETS, 100_000);
    swift.on_ack(&ack(START_NS, 900_000));
    swift.window_bytes *= 1.01;
    swift.on_ack(&AckSample { window_limited: false, ..ack(START_NS + 1, 150_000) });
    swift.window_bytes = MIN_PACKETS * PACKET as f64;
    swift.on_ack(&ack(START_NS + STARVING_NS, 900_000));
    assert_eq!(swift.base_rtt_ns, 100_000);
}

#[test]
fn no_window_is_beyond_the_largest() {
    let mut swift = Swift { slow_start: true, ..settled(100.0, 100_000) };
    swift.on_ack(&AckSample { acked_bytes: 1 << 40, ..ack(START_NS, 100_000) });
    assert_eq!(swift.window_bytes, MAX_BYTES);
}
