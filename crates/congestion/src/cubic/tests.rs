//! The numbers of RFC 9438 and RFC 9406.

use super::{AckSample, CongestionControl, Cubic, LossSample, MAX_BYTES};
use clearway_base::{MILLISECOND, SECOND, Time};

const PACKET: u64 = 1000;
const START_NS: u64 = SECOND;

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

fn lose(cubic: &mut Cubic, now_ns: u64) {
    let now = Time::from_ns(now_ns);
    cubic.on_loss(&LossSample { now, sent: now, bytes: PACKET });
}

/// A round trip: a window of acknowledgements at `now_ns` of what was sent after the last round.
fn round(cubic: &mut Cubic, now_ns: u64, rtt_ns: u64) {
    for _ in 0..cubic.window as u64 {
        cubic.on_ack(&ack(now_ns, rtt_ns));
    }
}

#[track_caller]
fn assert_near(packets: f64, expected: f64, within: f64) {
    assert!((packets - expected).abs() <= within, "{packets}, not {expected}");
}

/// A window of 100 packets that was reduced for a loss at `START_NS`.
fn reduced() -> Cubic {
    let mut cubic =
        Cubic { window: 100.0, slow_start_threshold: 50.0, ..Cubic::new(PACKET as u16) };
    lose(&mut cubic, START_NS);
    cubic
}

/// RFC 9438, 4.2: "W_cubic(t) = C*(t-K)^3 + W_max", "K = cubic_root((W_max - cwnd_epoch) / C)": 100
/// packets again after 4.217 s, and more from then on.
#[test]
fn the_window_is_the_cubic_function_of_the_time_since_the_loss() {
    const RTT_NS: u64 = 200 * MILLISECOND;
    let mut cubic = reduced();
    assert_near(cubic.window, 70.0, 1e-9);
    let k_s = 75f64.cbrt();
    let mut now_ns = START_NS + RTT_NS + 1;
    let begin_ns = now_ns;
    for t in [1.0, 2.0, 4.0, 6.0] {
        while now_ns - begin_ns <= (t * SECOND as f64) as u64 {
            round(&mut cubic, now_ns, RTT_NS);
            now_ns += RTT_NS;
        }
        assert_near(cubic.window, 100.0 + 0.4 * (t + 0.2 - k_s).powi(3), 2.0);
    }
}

/// RFC 9438, 4.3: "alpha_cubic" of 0.529 packets per round trip up to the window before the loss,
/// then 1: where round trips are short, that is more than the cubic function.
#[test]
fn where_round_trips_are_short_it_is_as_fast_as_reno() {
    const RTT_NS: u64 = MILLISECOND;
    let mut cubic = reduced();
    for (round_trips, expected) in [(20, 70.0 + 20.0 * 9.0 / 17.0), (57, 100.0), (100, 143.3)] {
        let mut cubic = cubic.clone();
        for nth in 1..=round_trips {
            round(&mut cubic, START_NS + nth * RTT_NS + 1, RTT_NS);
        }
        assert_near(cubic.window, expected, 1.5);
    }
    // Not before what was sent after the loss comes back.
    round(&mut cubic, START_NS + RTT_NS, RTT_NS);
    assert_near(cubic.window, 70.0, 1e-9);
}

/// RFC 9438, 4.4: "target [...] 1.5 * cwnd if W_cubic(t + RTT) > 1.5 * cwnd".
#[test]
fn a_window_grows_by_half_of_itself_per_round_trip_at_most() {
    const RTT_NS: u64 = 10 * SECOND;
    let mut cubic = reduced();
    round(&mut cubic, START_NS + RTT_NS + 1, RTT_NS);
    // Each acknowledgement aims at half more than there is then.
    assert_near(cubic.window, 70.0 + 35.0, 1.0);
}

/// RFC 9438, 4.7: "W_max = cwnd * (1 + beta_cubic) / 2" when the window did not get as far as the
/// last time.
#[test]
fn a_flow_whose_window_shrinks_aims_lower() {
    let mut cubic = reduced();
    assert_near(cubic.window_max, 100.0, 1e-9);
    lose(&mut cubic, START_NS + 1);
    assert_near(cubic.window, 49.0, 1e-9);
    assert_near(cubic.window_max, 70.0 * 0.85, 1e-9);
}

/// RFC 9438, 5.8: the time in which a flow has not enough to send does not count.
#[test]
fn what_was_not_used_does_not_grow() {
    const RTT_NS: u64 = 100 * MILLISECOND;
    let mut cubic = reduced();
    let mut now_ns = START_NS + RTT_NS + 1;
    round(&mut cubic, now_ns, RTT_NS);
    for _ in 0..1000 {
        now_ns += RTT_NS;
        cubic.on_ack(&AckSample { window_limited: false, ..ack(now_ns, RTT_NS) });
    }
    round(&mut cubic, now_ns + RTT_NS, RTT_NS);
    assert_near(cubic.window, 100.0 + 0.4 * (0.2 - 75f64.cbrt()).powi(3), 1.5);
}

/// RFC 9438, 4.9.1; and what congestion avoidance has brought since is not lost.
#[test]
fn a_decrease_for_nothing_is_undone() {
    let mut cubic = reduced();
    cubic.on_spurious_loss();
    assert_near(cubic.window, 100.0, 1e-9);
    assert_near(cubic.slow_start_threshold, 50.0, 1e-9);
    assert_near(cubic.window_max, 0.0, 1e-9);
    cubic.on_spurious_loss();
    assert_near(cubic.window, 100.0, 1e-9);
    let mut cubic = reduced();
    cubic.window = 120.0;
    cubic.on_spurious_loss();
    assert_near(cubic.window, 120.0, 1e-9);
}

#[test]
fn packets_of_another_size_are_as_many_bytes() {
    let mut cubic = reduced();
    cubic.set_packet_bytes(500);
    assert_near(cubic.window, 140.0, 1e-9);
    assert_near(cubic.slow_start_threshold, 140.0, 1e-9);
    assert_near(cubic.window_max, 200.0, 1e-9);
    assert_eq!(cubic.window_bytes(), 70_000);
    cubic.set_packet_bytes(50_000);
    assert_near(cubic.window, 2.0, 1e-9);
}

/// Rounds of slow start over a path of 8 ms, of which the last has `last_ns`.
fn started(last_ns: u64) -> Cubic {
    let mut cubic = Cubic::new(PACKET as u16);
    round(&mut cubic, START_NS, 8 * MILLISECOND);
    assert_near(cubic.window, 20.0, 1e-9);
    round(&mut cubic, START_NS + 20 * MILLISECOND, last_ns);
    cubic
}

/// RFC 9406, 4.2: slow start goes on in a conservative way, with a quarter of the growth, "if
/// currentRoundMinRTT >= lastRoundMinRTT + RttThresh", which is an eighth, after 8 samples.
#[test]
fn slow_start_becomes_careful_when_round_trips_take_an_eighth_more() {
    assert_near(started(9 * MILLISECOND - 1).window, 40.0, 1e-9);
    assert_near(started(9 * MILLISECOND).window, 20.0 + 7.0 + 13.0 / 4.0, 1e-9);
}

/// "CSS_ROUNDS = 5": then it is over; and before that, if the round trips get shorter again, it was
/// for nothing: "resume slow start".
#[test]
fn careful_slow_start_ends_after_five_rounds_or_is_taken_back() {
    for resumes in [false, true] {
        let mut cubic = started(9 * MILLISECOND);
        let mut now_ns = START_NS + 20 * MILLISECOND;
        for nth in 1..5 {
            let before = cubic.window;
            now_ns += 20 * MILLISECOND;
            round(&mut cubic, now_ns, 9 * MILLISECOND);
            assert_near(cubic.window, before + before.floor() / 4.0, 1e-9);
            assert!(cubic.is_in_slow_start(), "round {nth}");
        }
        now_ns += 20 * MILLISECOND;
        let before = cubic.window;
        if resumes {
            round(&mut cubic, now_ns, 9 * MILLISECOND - 1);
        } else {
            round(&mut cubic, now_ns, 9 * MILLISECOND);
            assert!(cubic.window < before + 2.0, "avoidance: {before} to {}", cubic.window);
        }
        assert!(!cubic.is_in_slow_start());
    }
    let mut cubic = started(9 * MILLISECOND);
    let before = cubic.window;
    round(&mut cubic, START_NS + 40 * MILLISECOND, 9 * MILLISECOND - 1);
    // Known with the eighth acknowledgement.
    assert_near(cubic.window, before + 7.0 / 4.0 + (before.floor() - 7.0), 1e-9);
}

/// RFC 9438, 4.7, is for windows that did not get as far as the last time, not for those that did.
#[test]
fn a_window_that_got_as_far_as_the_last_time_aims_as_high() {
    let mut cubic = Cubic { window: 100.0, window_max: 100.0, ..Cubic::new(PACKET as u16) };
    lose(&mut cubic, START_NS);
    assert_near(cubic.window_max, 100.0, 1e-9);
}

/// Both the cubic function and Reno's share count bytes.
#[test]
fn an_acknowledgement_of_two_packets_counts_as_two() {
    for rtt_ns in [MILLISECOND, 10 * SECOND] {
        let [mut singly, mut in_pairs] = [reduced(), reduced()];
        let now_ns = START_NS + rtt_ns + 1;
        (0..20).for_each(|_| singly.on_ack(&ack(now_ns, rtt_ns)));
        let pair = AckSample { acked_bytes: 2 * PACKET, ..ack(now_ns, rtt_ns) };
        (0..10).for_each(|_| in_pairs.on_ack(&pair));
        assert!(singly.window > 70.1, "{}", singly.window);
        assert_near(in_pairs.window - 70.0, singly.window - 70.0, 0.02 * (singly.window - 70.0));
    }
}

#[test]
fn no_window_is_beyond_the_largest() {
    let mut cubic = Cubic::new(PACKET as u16);
    cubic.on_ack(&AckSample { acked_bytes: 1 << 40, ..ack(START_NS, MILLISECOND) });
    assert_eq!(cubic.window_bytes(), MAX_BYTES as u64);
}

/// RFC 2861, section 3.2: "ssthresh = max(ssthresh, 3*cwnd/4)", where the window is reduced.
#[test]
fn slow_start_after_a_pause_ends_at_three_quarters_of_the_window() {
    for (window, threshold, left) in [(100.0, 50.0, 75.0), (100.0, 90.0, 90.0), (8.0, 4.0, 4.0)] {
        let new = Cubic::new(PACKET as u16);
        let mut cubic = Cubic { window, slow_start_threshold: threshold, ..new };
        cubic.on_idle(1);
        assert_near(cubic.slow_start_threshold, left, 1e-9);
    }
}
