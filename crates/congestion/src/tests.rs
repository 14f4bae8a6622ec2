//! Both controls against acknowledgements made by hand. How they fare on a link is in
//! `clearway bench transport`.

use super::{AckSample, Congestion, CongestionControl, Control, Cubic, LossSample, Swift};
use clearway_base::{MICROSECOND, Time};

const PACKET: u64 = 1000;
const BASE_NS: u64 = 10 * MICROSECOND;

/// An acknowledgement of one packet that came after `rtt_ns`.
fn sample(now_ns: u64, rtt_ns: u64) -> AckSample {
    AckSample {
        now: Time::from_ns(now_ns),
        sent: Time::from_ns(now_ns - rtt_ns),
        acked_bytes: PACKET,
        packet_bytes: PACKET as u32,
        rtt_ns,
        smoothed_rtt_ns: rtt_ns,
        min_rtt_ns: BASE_NS,
        window_limited: true,
        marked: false,
    }
}

fn loss(now_ns: u64, sent_ns: u64, packets: u64) -> LossSample {
    let (now, sent) = (Time::from_ns(now_ns), Time::from_ns(sent_ns));
    LossSample { now, sent, bytes: packets * PACKET }
}

fn swift() -> Swift {
    Swift::new(PACKET as u16, 50 * MICROSECOND)
}

/// Round trips of the same length, each with a window of acknowledgements. Returns when the last
/// ended.
fn rounds(control: &mut dyn CongestionControl, mut now_ns: u64, count: u64, rtt_ns: u64) -> u64 {
    for _ in 0..count {
        for _ in 0..(control.window_bytes() / PACKET).max(1) {
            control.on_ack(&sample(now_ns, rtt_ns));
        }
        now_ns += rtt_ns + 1;
    }
    now_ns
}

#[test]
fn swift_doubles_until_delay_stands_and_then_empties_the_queue() {
    let mut swift = swift();
    let mut now_ns = rounds(&mut swift, 1_000_000, 3, BASE_NS);
    assert_eq!(swift.window_bytes(), 80 * PACKET);
    now_ns = rounds(&mut swift, now_ns, 1, 100_000);
    let most = swift.window_bytes();
    assert!(most > 80 * PACKET, "one late packet is no queue");
    now_ns = rounds(&mut swift, now_ns, 1, 100_000);
    assert!(swift.window_bytes() <= most / 2 + 1, "{} of {most}", swift.window_bytes());
    rounds(&mut swift, now_ns, 10, 100_000);
    assert!(swift.window_bytes() < 4 * PACKET, "{}", swift.window_bytes());
}

#[test]
fn swift_with_few_packets_decreases_once_per_round_trip_and_below_a_packet() {
    let mut swift = swift();
    rounds(&mut swift, 1_000_000, 40, 400_000);
    let window = swift.window_bytes();
    assert!((PACKET / 16..PACKET).contains(&window), "{window}");
    rounds(&mut swift, 100_000_000, 100, 1_000_000);
    assert_eq!(swift.window_bytes(), (PACKET as f64 / 16.0) as u64, "the floor");
    // A second or two of that: the path has become longer. Then there is no queue any more.
    let now_ns = rounds(&mut swift, 300_000_000, 2100, 1_000_000);
    rounds(&mut swift, now_ns, 30, 1_000_000);
    assert!(swift.window_bytes() > 5 * PACKET, "{}", swift.window_bytes());
}

#[test]
fn swift_bears_some_loss_and_no_more() {
    let mut swift = swift();
    for at in 0..100u64 {
        swift.on_loss(&loss(1_000_000 + at, 900_000 + at, 1));
        for _ in 0..20 {
            swift.on_ack(&AckSample { window_limited: false, ..sample(1_000_000 + at, BASE_NS) });
        }
    }
    assert_eq!(swift.window_bytes(), 10 * PACKET, "5 % of the packets");
    swift.on_loss(&loss(3_000_000, 2_000_000, 200));
    let window = swift.window_bytes();
    assert!((5 * PACKET..=9 * PACKET).contains(&window), "{window}");
    swift.on_loss(&loss(3_000_001, 2_000_001, 200));
    assert_eq!(swift.window_bytes(), window, "what was in flight at the decrease counts once");
}

#[test]
fn marks_are_a_decrease_for_both_once_per_round_trip() {
    for (control, left) in Congestion::ALL.into_iter().zip([8_000, 8_500]) {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        let marked =
            AckSample { marked: true, window_limited: false, ..sample(1_000_000, BASE_NS) };
        control.on_ack(&marked);
        assert_eq!(control.window_bytes(), left, "{control:?}");
        control.on_ack(&marked);
        assert_eq!(control.window_bytes(), left, "{control:?}");
    }
}

#[test]
fn a_sender_that_does_not_fill_its_window_does_not_grow_it() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        for at in 0..100 {
            let sample = sample(1_000_000 + at * 20_000, BASE_NS);
            control.on_ack(&AckSample { window_limited: false, ..sample });
        }
        assert_eq!(control.window_bytes(), 10 * PACKET, "{control:?}");
    }
}

#[test]
fn cubic_decreases_to_seven_tenths_once_and_takes_it_back() {
    let mut cubic = Cubic::new(PACKET as u16);
    cubic.on_loss(&loss(1_000_000, 900_000, 1));
    assert_eq!(cubic.window_bytes(), 7 * PACKET);
    cubic.on_loss(&loss(1_000_100, 950_000, 1));
    assert_eq!(cubic.window_bytes(), 7 * PACKET);
    cubic.on_spurious_loss();
    assert_eq!(cubic.window_bytes(), 10 * PACKET);
    cubic.on_persistent_congestion();
    assert_eq!(cubic.window_bytes(), 2 * PACKET);
}

#[test]
fn cubic_is_back_at_its_old_window_after_k_seconds() {
    const RTT_NS: u64 = 100_000_000;
    let mut cubic = Cubic::new(PACKET as u16);
    let mut now_ns = rounds(&mut cubic, 1_000_000_000, 5, RTT_NS);
    let before = cubic.window_bytes();
    cubic.on_loss(&loss(now_ns, now_ns - RTT_NS, 1));
    now_ns += 2 * RTT_NS;
    let k_s = (0.3 * before as f64 / PACKET as f64 / 0.4).cbrt();
    let half = (k_s * 5.0) as u64;
    now_ns = rounds(&mut cubic, now_ns, half, RTT_NS);
    assert!(cubic.window_bytes() < before, "{} of {before}", cubic.window_bytes());
    rounds(&mut cubic, now_ns, half + 8, RTT_NS);
    let after = cubic.window_bytes() as f64 / before as f64;
    assert!((0.97..1.2).contains(&after), "{after} after {k_s} s");
}

#[test]
fn cubic_goes_on_doubling_when_packets_become_larger() {
    let mut cubic = Cubic::new(PACKET as u16);
    let now_ns = rounds(&mut cubic, 1_000_000, 1, BASE_NS);
    cubic.set_packet_bytes(2 * PACKET as u16);
    let before = cubic.window_bytes();
    rounds(&mut cubic, now_ns, 1, BASE_NS);
    assert_eq!(cubic.window_bytes(), 2 * before);
}

#[test]
fn a_timeout_leaves_one_packet_and_slow_start() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        control.on_loss(&loss(1_000_000, 1_000_000, 10));
        control.on_timeout();
        assert_eq!(control.window_bytes(), PACKET, "{control:?}");
        // What was sent at that moment is acknowledged.
        control.on_ack(&sample(1_000_000 + BASE_NS, BASE_NS));
        assert_eq!(control.window_bytes(), 2 * PACKET, "{control:?}");
    }
}

/// RFC 9406, 4.3: what is delayed by less than the threshold is not held for a queue.
#[test]
fn slow_start_goes_on_below_the_threshold_of_the_path() {
    let windows = [100 * MICROSECOND, 4000 * MICROSECOND].map(|delay_min_ns| {
        let mut cubic = Cubic::new(PACKET as u16).with_delay_min(delay_min_ns);
        let mut now_ns = 1_000_000_000;
        for round in 0..5 {
            now_ns = rounds(&mut cubic, now_ns, 1, 1_000_000 + round * 300_000);
        }
        cubic.window_bytes()
    });
    assert_eq!(windows[1], 320 * PACKET);
    assert!(windows[0] < windows[1] / 2, "{windows:?}");
}

/// RFC 9406, 4.2: after a loss slow start ends at its threshold, however the round trips grow.
#[test]
fn only_the_first_slow_start_goes_by_delay() {
    let mut cubic = Cubic::new(PACKET as u16);
    let mut now_ns = rounds(&mut cubic, 1_000_000_000, 4, 1_000_000);
    cubic.on_loss(&loss(now_ns, now_ns, 1));
    let threshold = cubic.window_bytes();
    cubic.on_timeout();
    for round in 0..6 {
        now_ns = rounds(&mut cubic, now_ns, 1, 1_000_000 + round * 300_000);
    }
    assert_eq!(cubic.window_bytes().min(64 * PACKET), 64 * PACKET, "doubled each round");
    assert!(threshold > 64 * PACKET);
}

#[test]
fn a_window_that_was_not_used_shrinks_and_never_grows_by_that() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        rounds(&mut control, 1_000_000_000, 3, BASE_NS);
        for (packets, left) in [(100, 80), (30, 30), (40, 30), (0, 2)] {
            control.shrink_to(packets * PACKET);
            assert_eq!(control.window_bytes(), left * PACKET, "{control:?}");
        }
        let threshold = control.slow_start_threshold_bytes().unwrap_or(2 * PACKET);
        assert_eq!(threshold, 2 * PACKET, "{control:?}");
    }
}

/// RFC 5681, 4.1: the restart window; RFC 2861: half of the window for each timeout.
#[test]
fn a_window_decays_while_nothing_is_sent() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        control.on_idle(100);
        assert_eq!(control.window_bytes(), 10 * PACKET, "{control:?}");
        rounds(&mut control, 1_000_000_000, 3, BASE_NS);
        let before = control.window_bytes();
        assert_eq!(before, 80 * PACKET, "{control:?}");
        control.on_idle(1);
        assert_eq!(control.window_bytes(), 40 * PACKET, "{control:?}");
        control.on_idle(u32::MAX);
        assert_eq!(control.window_bytes(), 10 * PACKET, "{control:?}");
    }
}

#[test]
fn a_window_that_is_resumed_goes_on_without_slow_start() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        control.resume(40 * PACKET);
        assert_eq!(control.window_bytes(), 40 * PACKET, "{control:?}");
        rounds(&mut control, 1_000_000_000, 1, BASE_NS);
        assert!(control.window_bytes() < 60 * PACKET, "{control:?}");
        control.resume(u64::MAX);
        assert_eq!(control.window_bytes(), 64 << 20, "{control:?}");
        control.resume(0);
        let least = if matches!(control, Control::Swift(_)) { 1 } else { PACKET };
        assert_eq!(control.window_bytes(), least, "{control:?}");
    }
}

#[test]
fn an_initial_window_that_is_resumed_goes_on_with_slow_start() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        control.resume(10 * PACKET);
        rounds(&mut control, 1_000_000_000, 1, BASE_NS);
        assert_eq!(control.window_bytes(), 20 * PACKET, "{control:?}");
    }
}

/// Two of them, after persistent congestion (RFC 9002, 7.6.2).
#[test]
fn packets_are_as_large_as_was_said_last() {
    for control in Congestion::ALL {
        let mut control = control.control(PACKET as u16, 50 * MICROSECOND);
        control.set_packet_bytes(3 * PACKET as u16);
        control.on_persistent_congestion();
        assert_eq!(control.window_bytes(), 6 * PACKET, "{control:?}");
    }
}

#[test]
fn they_are_named() {
    assert_eq!(Congestion::ALL.map(Congestion::name), ["swift", "cubic"]);
}
