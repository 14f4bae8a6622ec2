use std::net::SocketAddr;

use clearway_base::{MICROSECOND, MILLISECOND};
use clearway_wire::Ecn;

use super::*;
use crate::{Connection, Datagram, SlowPath};

/// A frame of 1000 bytes.
fn frame(port: u16) -> Datagram {
    let [from, to] = [(1, 9), (2, port)].map(|(host, port)| ([10, 0, 0, host], port));
    let (from, to) = (SocketAddr::from(from), SocketAddr::from(to));
    Datagram { from, to, ecn: Ecn::Capable, bytes: vec![0; 958] }
}

/// A frame of another protocol.
struct Nobodys;

impl Packet for Nobodys {
    fn bytes(&mut self) -> &mut [u8] {
        &mut []
    }

    fn frame_bytes(&self) -> usize {
        60
    }

    fn mark(&mut self) -> bool {
        false
    }

    fn connection(&self) -> Option<Connection> {
        None
    }
}

/// What becomes of `frames` frames, one each microsecond.
fn send(faults: Faults, seed: u64, frames: u64) -> (Vec<Option<Fate>>, FaultCounts) {
    let (mut way, mut random) = (Way::new(faults), Random::new(seed));
    let fates = (0..frames)
        .map(|at| way.enter(Time::from_ns(at * MICROSECOND), &mut frame(at as u16), &mut random));
    (fates.collect(), way.counts())
}

#[test]
fn bursts_are_as_long_and_as_frequent_as_asked_for() {
    let bursts = Bursts { start_ppm: 1_000, end_ppm: 100_000, loss_ppm: 1_000_000 };
    let (fates, counts) = send(Faults { bursts, ..Faults::default() }, 1, 200_000);
    // One frame in 101 is in a burst, and a burst has ten frames.
    assert!((1_500..2_500).contains(&counts.lost), "{counts:?}");
    let starts = fates.windows(2).filter(|pair| pair[0].is_some() && pair[1].is_none()).count();
    assert!((150..250).contains(&starts), "{starts}");
}

#[test]
fn jitter_spreads_arrivals_and_keeps_their_order() {
    let faults = Faults { latency_ns: 500, jitter_ns: 5 * MICROSECOND, ..Faults::default() };
    let fates = send(faults, 2, 1000).0;
    let arrivals: Vec<_> = fates.iter().map(|fate| fate.unwrap().arrival).collect();
    assert!(arrivals.is_sorted());
    let late = |(at, arrival): (usize, &Time)| arrival.since(Time::from_ns(at as u64 * 1000));
    let late: Vec<_> = arrivals.iter().enumerate().map(late).collect();
    assert!(late.iter().all(|ns| (500..=5_500).contains(ns)));
    assert!(late.iter().any(|ns| *ns < 2_000) && late.iter().any(|ns| *ns > 5_000));
}

#[test]
fn the_rate_limit_spaces_frames_out_and_drops_what_does_not_fit() {
    // 1024 bytes with what Ethernet adds: 8.192 µs each.
    let rate = Rate { bits_per_s: 1_000_000_000, queue_bytes: 10_000, mark_bytes: 0 };
    let (fates, counts) = send(Faults { rate, ..Faults::default() }, 3, 1000);
    let arrivals: Vec<_> = fates.iter().flatten().map(|fate| fate.arrival).collect();
    assert!(arrivals.windows(2).all(|pair| pair[1].since(pair[0]) == 8_192));
    assert_eq!(counts.overflowed as usize, 1000 - arrivals.len());
    assert!((120..140).contains(&arrivals.len()), "{}", arrivals.len());
    let longest = fates.iter().zip(0..).filter_map(|(fate, at)| {
        Some(fate.as_ref()?.arrival.since(Time::from_ns(at * MICROSECOND)))
    });
    assert!((75_000..95_000).contains(&longest.max().unwrap()), "a full queue of 10 kB");
}

#[test]
fn a_long_queue_marks_capable_frames() {
    let rate = Rate { bits_per_s: 1_000_000_000, queue_bytes: 10_000, mark_bytes: 5_000 };
    let mut way = Way::new(Faults { rate, ..Faults::default() });
    let marked: Vec<_> = (0..9)
        .map(|_| {
            let mut frame = frame(1);
            way.enter(Time::ZERO, &mut frame, &mut Random::new(1)).expect("room");
            frame.ecn == Ecn::Marked
        })
        .collect();
    assert_eq!(marked, [false, false, false, false, false, true, true, true, true]);
    assert_eq!(way.counts().marked, 4);
}

#[test]
fn the_slow_path_is_for_new_connections_only() {
    let slow_path = SlowPath {
        frames_per_s: 10_000,
        latency_ns: MILLISECOND,
        queue_frames: 100,
        connections_max: 1000,
    };
    let mut way = Way::new(Faults { slow_path, ..Faults::default() });
    let mut at = |ns, port| {
        let fate = way.enter(Time::from_ns(ns), &mut frame(port), &mut Random::new(1));
        fate.map(|fate| fate.arrival.as_ns() - ns)
    };
    assert_eq!(at(0, 1), Some(1_100_000));
    assert_eq!(at(2_000_000, 1), Some(0));
    assert_eq!(at(2_000_000, 2), Some(1_100_000));
    let now = Time::from_ns(2_000_000);
    let fate = way.enter(now, &mut Nobodys, &mut Random::new(1));
    assert_eq!(fate.map(|fate| fate.arrival), Some(now), "no connection, no policy");
}

/// Found by the simulator: a frame that had to wait for the slow path kept the wire taken until its
/// turn came, and all others behind it.
#[test]
fn who_takes_the_slow_path_holds_up_nobody_else() {
    let slow_path = SlowPath {
        frames_per_s: 100,
        latency_ns: MILLISECOND,
        queue_frames: 100,
        connections_max: 1000,
    };
    let rate = Rate { bits_per_s: 1_000_000_000, queue_bytes: 10_000, mark_bytes: 0 };
    let faults = Faults { slow_path, rate, jitter_ns: 10, ..Faults::default() };
    let (mut way, mut random) = (Way::new(faults), Random::new(1));
    let mut at = |ns, port| {
        let fate = way.enter(Time::from_ns(ns), &mut frame(port), &mut random);
        fate.expect("not lost").arrival.as_ns() - ns
    };
    assert!((11_008_192..=11_008_202).contains(&at(0, 1)));
    assert!((8_192..=8_202).contains(&at(11_000_000, 1)), "its connection is known");
    assert!(at(11_000_000, 2) > 10 * MILLISECOND);
    assert!((16_384..=16_394).contains(&at(11_000_000, 1)), "behind one of its own");
}

#[test]
fn faults_can_change_under_way() {
    let (mut way, mut random) = (Way::new(Faults::partition()), Random::new(1));
    assert!(!way.is_perfect());
    assert_eq!(way.enter(Time::ZERO, &mut frame(1), &mut random), None);
    way.set_faults(Faults::default());
    assert!(way.is_perfect());
    let fate = way.enter(Time::from_ns(5), &mut frame(1), &mut random).expect("not lost");
    assert_eq!(fate, Fate { arrival: Time::from_ns(5), copies: 1, overtaken_by: 0 });
}
