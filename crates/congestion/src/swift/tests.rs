//! The numbers of Swift: what one acknowledgement, or one loss, does to a window.

use super::{
    AckSample, CongestionControl, GROWTH_MAX, LossSample, MAX_BYTES, MIN_PACKETS, STARVING_NS,
    Swift,
};
use clearway_base::{MICROSECOND, Time};

const PACKET: u64 = 1000;
const TARGET_NS: u64 = 50 * MICROSECOND;
const START_NS: u64 = 1_000_000_000;

/// One that knows a path without queues of `base_ns` and has left slow start.
fn settled(packets: f64, base_ns: u64) -> Swift {
    Swift {
        window_bytes: packets * PACKET as f64,
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
    assert!((window_bytes - expected).abs() < 1e-3 * expected, "{window_bytes}, not {expected}");
}

/// The paper, section 3.5: fs_range over windows from 0.1 to 100 packets; the range is the target
/// itself.
#[test]
fn flows_with_few_packets_bear_more_delay() {
    for (packets, target_us) in [
        (1000.0, 50.0),
        (100.0, 50.0),
        (25.0, 51.633),
        (4.0, 56.531),
        (1.0, 64.695),
        (0.25, 81.022),
        (0.1, 100.0),
        (MIN_PACKETS, 100.0),
    ] {
        assert_near(settled(packets, 10).target_ns(), target_us * 1000.0);
    }
}

/// `docs/transport.md`: a packet per round trip, and below half of the target an eighth of the
/// window, or less where the path was full before.
#[test]
fn the_window_grows_by_a_packet_and_far_below_the_target_by_a_part_of_itself() {
    const BASE_NS: u64 = 100 * MICROSECOND;
    // Of a window of 100 packets, which this acknowledges one of.
    for (queue_us, full_packets, growth, grown_bytes) in [
        (0.0, 200.0, 0.0, 10.0 + 125.0),
        (12.5, 200.0, 0.0, 10.0 + 62.5),
        (25.0, 200.0, 0.0, 10.0),
        (50.0, 200.0, 0.0, 10.0),
        (0.0, 105.5, 0.0, 10.0 + 125.0),
        (0.0, 105.0, 0.0, 10.0),
        (0.0, 0.0, 0.02, 10.0 + 25.0),
        (12.5, 0.0, 0.02, 10.0 + 12.5),
        (0.0, 0.0, GROWTH_MAX, 10.0 + 125.0),
    ] {
        let full_bytes = full_packets * PACKET as f64;
        let mut swift = Swift { full_bytes, growth, ..settled(100.0, BASE_NS) };
        swift.on_ack(&ack(START_NS, BASE_NS + (queue_us * 1000.0) as u64));
        let grown = swift.window_bytes - 100_000.0;
        assert!((grown - grown_bytes).abs() < 0.01, "{queue_us} us, {full_packets}: {grown}");
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
    swift.on_ack(&ack(START_NS, RTT_NS + TARGET_NS / 2));
    assert_near(swift.growth, 0.08);
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
    assert_near(swift.window_bytes, 100_000.0 * 0.95 * 1000.0 / 1075.0);
    // Ten times the target, of a longer one.
    let mut swift = settled(100.0, LONG_NS);
    swift.full_rtt_ns = u64::MAX;
    swift.on_ack(&ack(START_NS, LONG_NS + 12 * TARGET_NS));
    assert_near(swift.window_bytes, 100_000.0 * (1.0 - 0.0005) * 100_000.0 / 100_100.0);
}

/// The paper, algorithm 1: "cwnd += ai * num_acked" below a packet, "ai / cwnd * num_acked" above.
#[test]
fn windows_below_a_packet_grow_by_a_packet_per_packet() {
    let mut swift = settled(0.5, 100_000);
    swift.on_ack(&ack(START_NS, 100_000 + TARGET_NS));
    assert_near(swift.window_bytes, 1500.0);
}

/// The paper, algorithm 1: "max(1 - beta * (delay - target_delay) / delay, 1 - max_mdf) * cwnd"
/// with a beta of 0.8 and a max_mdf of 0.5, once per round trip; for up to four packets.
#[test]
fn few_packets_decrease_in_proportion_to_the_excess() {
    const BASE_NS: u64 = 10 * MICROSECOND;
    for (rtt_us, factor) in [(100.0, 0.73225), (70.0, 0.96035), (1000.0, 0.5)] {
        let mut swift = settled(4.0, BASE_NS);
        let rtt_ns = (rtt_us * 1000.0) as u64;
        swift.on_ack(&ack(START_NS, rtt_ns));
        assert_near(swift.window_bytes, 4000.0 * factor);
        swift.on_ack(&ack(START_NS + rtt_ns, rtt_ns));
        assert_near(swift.window_bytes, 4000.0 * factor);
        swift.on_ack(&ack(START_NS + rtt_ns + 1, rtt_ns));
        assert!(swift.window_bytes < 4000.0 * factor - 1.0, "sent after the decrease");
    }
}

/// `docs/transport.md`: down to what fills the path, less the target or a fifth, by at most half in
/// a round trip, until the queue is empty; and what filled it is remembered.
#[test]
fn many_packets_empty_the_queue() {
    for (base_us, rtt_us, steps, growth) in [
        (1000, 1100, vec![950.0 / 1100.0], 0.0125),
        (100, 160, vec![0.5], GROWTH_MAX),
        (100, 200, vec![0.5, 0.8], GROWTH_MAX),
        // The first half is not enough: the next is by what is seen then.
        (100, 400, vec![0.5, 0.8], GROWTH_MAX),
    ] {
        // Marks on the way change nothing.
        for marked in [false, true] {
            let mut swift = settled(100.0, base_us * 1000);
            let mut expected = 100_000.0;
            let (mut now_ns, mut rtt_ns) = (START_NS, rtt_us * 1000);
            for factor in &steps {
                expected *= factor;
                let sample = ack(now_ns, rtt_ns);
                swift.on_ack(&AckSample { window_limited: false, marked, ..sample });
                assert_near(swift.window_bytes, expected);
                rtt_ns = base_us * 1000;
                now_ns += 2 * rtt_ns;
            }
            assert!(!swift.drains);
            assert_near(swift.full_bytes, 100_000.0 * base_us as f64 / rtt_us as f64);
            assert_near(swift.growth, growth);
        }
    }
    // No further down than to where it would decrease as few packets do.
    for packets in [4.5, 8.0] {
        let mut swift = settled(packets, 100_000);
        swift.on_ack(&ack(START_NS, 400_000));
        assert_near(swift.window_bytes, 4000.0);
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
