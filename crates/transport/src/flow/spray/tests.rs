//! How many packets a search sends that nobody answers, when, and from where.

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND, Time};

use super::{Known, SOURCE_PORT_MIN, Spray, WAVE_MAX, WAVES_MAX};
use crate::config::Config;
use crate::state::DURATION_NS_MAX;

const START: Time = Time::from_ns(SECOND);
/// `Config::connect_retry_ns` and its bound.
const RETRY_NS: u64 = 2 * MILLISECOND;
const RETRY_NS_MAX: u64 = 250 * MILLISECOND;

fn random() -> Random {
    Random::new(1)
}

fn known(engines: u8, rtt_ns: u64) -> Spray {
    Spray::to_known(START, &Config::default(), random(), Known { engines, rtt_ns })
}

/// A wave: how long after the one before it began, and the ports that it left from.
type Wave = (u64, Vec<u16>);

/// Sends the first `count` waves, or all that there are. Says of each whether it is one more batch,
/// by its first packet and by no other.
fn waves(spray: &mut Spray, count: usize) -> Vec<(Wave, bool)> {
    let (mut now, mut before, mut waves) = (START, START, Vec::new());
    while waves.len() < count {
        let (mut ports, is_retry) = (Vec::new(), spray.begins_retry());
        while spray.is_due() {
            assert_eq!(spray.begins_retry(), is_retry && ports.is_empty());
            assert_eq!(spray.next_timeout(), Time::MAX, "not before all have left");
            ports.push(spray.port());
            assert!(ports.iter().all(|port| *port >= SOURCE_PORT_MIN));
            spray.on_sent(now);
        }
        waves.push(((now.since(before), ports), is_retry));
        (before, now) = (now, spray.next_timeout());
        assert!(spray.handle_timeout(now - 1) && !spray.is_due(), "too early");
        if !spray.handle_timeout(now) {
            break;
        }
        assert!(spray.is_due());
    }
    waves
}

/// How long after the one before each wave begins, and how many packets it has.
fn sizes(spray: &mut Spray, count: usize) -> Vec<(u64, usize)> {
    waves(spray, count).iter().map(|((after, ports), _)| (*after, ports.len())).collect()
}

/// Machnet, section 4.2: ln(1 - √0.95) / ln(1 - 1/n) packets reach one of n engines with a
/// probability of √0.95. Four waves of n are no fewer, and two more make it 10 n.
#[test]
fn the_waves_that_do_not_grow_are_as_many_packets_as_the_paper_says() {
    for n in 2..=32_u8 {
        let paper = (1.0 - 0.95_f64.sqrt()).ln() / (1.0 - 1.0 / f64::from(n)).ln();
        let mut search = known(n, MILLISECOND).bounded(WAVES_MAX);
        let sent = waves(&mut search, 100);
        let count = |is_more: bool| {
            let of_kind = sent.iter().filter(|(_, retry)| *retry == is_more);
            of_kind.map(|((_, ports), _)| ports.len()).sum::<usize>()
        };
        let n = usize::from(n);
        assert_eq!((count(false), count(false) + count(true)), (4 * n, 10 * n));
        assert!(4 * n >= paper as usize && n < paper.ceil() as usize);
        assert!(!search.is_due(), "it has ended");
    }
}

#[test]
fn waves_to_engines_that_are_known_are_two_round_trips_apart_and_grow_after_the_fourth() {
    const RTT_NS: u64 = 400 * MICROSECOND;
    let mut expected = vec![(0, 4), (2 * RTT_NS, 4), (2 * RTT_NS, 4), (2 * RTT_NS, 4)];
    expected.extend([(2 * RTT_NS, 8), (4 * RTT_NS, 16), (8 * RTT_NS, 32), (16 * RTT_NS, 32)]);
    assert_eq!(sizes(&mut known(4, RTT_NS), 8), expected);
    // However near the peer is, and however far.
    assert_eq!(sizes(&mut known(2, 1), 2)[1].0, 100 * MICROSECOND);
    assert_eq!(sizes(&mut known(2, SECOND), 2)[1].0, RETRY_NS_MAX);
    let largest = sizes(&mut known(64, RTT_NS), 20).iter().map(|(_, packets)| *packets).max();
    assert_eq!(largest, Some(WAVE_MAX as usize));
    assert_eq!(sizes(&mut known(4, RTT_NS), 40)[39], (RETRY_NS_MAX, 32));
}

#[test]
fn one_engine_is_asked_again_after_four_round_trips_or_what_the_configuration_says() {
    for (rtt_ns, first_ns) in [
        (1, RETRY_NS),
        (RETRY_NS / 4 + MICROSECOND, RETRY_NS + 4 * MICROSECOND),
        (SECOND, RETRY_NS_MAX),
    ] {
        let doubled = |times: u32| (first_ns << times).min(RETRY_NS_MAX);
        let expected = [(0, 1), (first_ns, 2), (doubled(1), 4), (doubled(2), 8), (doubled(3), 8)];
        assert_eq!(sizes(&mut known(1, rtt_ns), 5), expected);
    }
}

#[test]
fn waves_to_a_peer_that_nobody_knows_double_from_a_guess_on() {
    for (guess, largest) in [(1, 64), (4, 64), (9, 72), (64, 256)] {
        let mut search = Spray::to_unknown(START, &Config::default(), random(), guess);
        let sizes = sizes(&mut search, 12);
        for (index, (after, packets)) in sizes.iter().enumerate() {
            assert_eq!(*packets, (usize::from(guess) << index).min(largest));
            let interval_ns = RETRY_NS << index.saturating_sub(1);
            assert_eq!(*after, if index == 0 { 0 } else { interval_ns.min(RETRY_NS_MAX) });
        }
    }
}

#[test]
fn a_port_that_has_worked_is_the_first_of_each_wave() {
    let peer = Known { engines: 4, rtt_ns: 10 * MICROSECOND };
    let mut search = Spray::pinned(START, &Config::default(), random(), peer, 50_000);
    let waves = waves(&mut search, 8);
    for (((_, ports), _), packets) in waves.iter().zip([1, 2, 4, 8, 16, 32, 32, 32]) {
        assert_eq!((ports[0], ports.len()), (50_000, packets));
        assert!(ports[1..].iter().all(|port| *port != 50_000));
    }
    let wide = Known { engines: 64, ..peer };
    let mut search = Spray::pinned(START, &Config::default(), random(), wide, 50_000);
    assert_eq!(sizes(&mut search, 10)[9].1, WAVE_MAX as usize);
}

#[test]
fn a_search_is_desperate_after_four_waves_or_at_once() {
    let mut search = known(4, MICROSECOND);
    for nth in 1..=5 {
        assert_eq!((search.is_desperate(), search.is_first_wave()), (nth == 5, nth == 1));
        if nth == 5 {
            break;
        }
        (0..4).for_each(|_| search.on_sent(START));
        let next = search.next_timeout();
        assert!(search.handle_timeout(next));
        assert_eq!(search.round_trip_ns(next + 7), 7, "if it is to the newest wave");
    }
    assert!(known(4, MICROSECOND).desperate().is_desperate());
}

#[test]
fn what_is_saved_of_a_search_is_all_there_is_and_what_no_search_is_like_is_refused() {
    let mut search = known(4, MICROSECOND).bounded(6).desperate();
    (search.pinned, search.left, search.interval_max_ns) = (Some(60_000), 3, 77);
    search.next_at = START + 5;
    let saved = search.save();
    assert_eq!(Spray::restore(&saved).expect("just saved").save(), saved);
    let refused: [&dyn Fn(&mut crate::state::SprayState); 9] = [
        &|s| s.left = s.wave + 1,
        &|s| (s.wave, s.left) = (0, 0),
        &|s| s.wave = s.wave_max + 1,
        &|s| s.wave_max = WAVE_MAX + 1,
        &|s| s.waves = 1 << 31,
        &|s| s.port = SOURCE_PORT_MIN - 1,
        &|s| s.pinned = Some(SOURCE_PORT_MIN - 1),
        &|s| s.interval_ns = DURATION_NS_MAX + 1,
        &|s| s.interval_max_ns = DURATION_NS_MAX + 1,
    ];
    for (index, tamper) in refused.iter().enumerate() {
        let mut state = saved;
        tamper(&mut state);
        assert!(Spray::restore(&state).is_err(), "{index}");
    }
    let mut most = saved;
    (most.wave_max, most.wave, most.left) = (WAVE_MAX, WAVE_MAX, WAVE_MAX);
    (most.waves, most.interval_ns) = ((1 << 31) - 1, DURATION_NS_MAX);
    (most.port, most.pinned) = (SOURCE_PORT_MIN, Some(SOURCE_PORT_MIN));
    assert!(Spray::restore(&most).is_ok());
}
