//! What a peer is told about how its packets come, and when.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};

use super::{Arrivals, Path};
use crate::endpoint::Arrival;
use crate::state::ArrivalsState;

const START: Time = Time::from_ns(SECOND);
const PORT: u16 = 50_000;

/// A data packet that another engine has passed on. Returns the port that is to be told, if one is.
fn stray(arrivals: &mut Arrivals, now: Time, rtt_ns: u64) -> Option<u16> {
    arrivals.begin(Arrival::Lane, PORT);
    arrivals.end(now, rtt_ns);
    assert!(arrivals.is_detour());
    assert_eq!(arrivals.has_news(), arrivals.stray_due.is_some());
    arrivals.take_stray()
}

/// When it is told while nothing but stray packets come, in microseconds since the start.
fn complaints(arrivals: &mut Arrivals, rtt_ns: u64, microseconds: u64) -> Vec<u64> {
    let at = |microsecond: &u64| START + microsecond * MICROSECOND;
    (0..microseconds).filter(|us| stray(arrivals, at(us), rtt_ns).is_some()).collect()
}

#[test]
fn that_packets_stray_is_told_after_ten_milliseconds_and_then_less_and_less_often() {
    let mut arrivals = Arrivals::new(START);
    let told = complaints(&mut arrivals, 0, 30_000);
    let expected: Vec<u64> = (0..8).map(|times| 10_000 + 100 * ((1 << times) - 1)).collect();
    assert_eq!(told, expected, "0.1 ms apart at first, then twice as long each time");
    // A second at most.
    let mut now = START + 30 * MILLISECOND;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let before = now;
        now = now.max(arrivals.stray_at);
        assert_eq!(stray(&mut arrivals, now, 0), Some(PORT));
        assert_eq!(stray(&mut arrivals, now, 0), None, "once");
        pauses.push(now.since(before));
    }
    assert_eq!(pauses[11], SECOND);
    assert!(pauses.is_sorted(), "{pauses:?}");
    // Good ones in between, and it begins anew.
    arrivals.begin(Arrival::Queue, PORT);
    arrivals.end(now, 0);
    assert!(!arrivals.is_detour());
    now = now + SECOND;
    assert_eq!(stray(&mut arrivals, now, 0), Some(PORT));
    assert_eq!(stray(&mut arrivals, now + 99 * MICROSECOND, 0), None);
    assert_eq!(stray(&mut arrivals, now + 100 * MICROSECOND, 0), Some(PORT));
}

#[test]
fn a_peer_gets_a_round_trip_to_find_another_way() {
    let mut arrivals = Arrivals::new(START);
    arrivals.complain_soon();
    assert_eq!(complaints(&mut arrivals, 3 * MILLISECOND, 25_000), [0, 3_000, 9_000, 21_000]);
}

/// Its sender knows that it may have strayed.
#[test]
fn a_probe_that_comes_by_a_lane_is_no_detour() {
    let mut arrivals = Arrivals::new(START);
    arrivals.complain_soon();
    arrivals.begin(Arrival::Lane, PORT);
    arrivals.on_probe(1);
    arrivals.end(START, 0);
    assert!(!arrivals.is_detour() && !arrivals.has_news());
    // The next packet is none.
    assert_eq!(stray(&mut arrivals, START, 0), Some(PORT));
}

#[test]
fn the_first_probe_of_a_round_that_comes_straight_is_told_once_unless_it_is_lost() {
    let mut arrivals = Arrivals::new(START);
    let probe = |arrivals: &mut Arrivals, port, round| {
        arrivals.begin(Arrival::Queue, port);
        arrivals.on_probe(round);
        arrivals.end(START, 0);
        arrivals.take_path()
    };
    assert_eq!(probe(&mut arrivals, PORT, 1), Some(Path { port: PORT, round: 1 }));
    assert_eq!(probe(&mut arrivals, PORT + 1, 1), None, "one is enough");
    assert_eq!(probe(&mut arrivals, PORT + 2, 2), Some(Path { port: PORT + 2, round: 2 }));
    assert!(!arrivals.has_news());
    arrivals.tell_path_again();
    assert!(arrivals.has_news());
    assert_eq!(arrivals.take_path(), Some(Path { port: PORT + 2, round: 2 }));
    assert_eq!(arrivals.take_path(), None);
    // There is nothing to repeat of one who has found nothing.
    let mut none = Arrivals::new(START);
    none.tell_path_again();
    assert!(!none.has_news());
}

#[test]
fn at_the_end_nothing_is_told() {
    let mut arrivals = Arrivals::new(START);
    arrivals.complain_soon();
    arrivals.begin(Arrival::Queue, PORT);
    arrivals.on_probe(1);
    arrivals.begin(Arrival::Lane, PORT);
    arrivals.end(START, 0);
    assert!(arrivals.has_news());
    arrivals.stop();
    assert!(!arrivals.has_news());
    assert_eq!((arrivals.take_path(), arrivals.take_stray()), (None, None));
}

#[test]
fn what_is_saved_is_all_there_is() {
    let saved = ArrivalsState {
        is_detour: true,
        found: Some((PORT, 3)),
        path_due: true,
        stray_due: Some(PORT + 1),
        stray_at: START + 7,
        stray_ns: 777,
    };
    assert_eq!(Arrivals::restore(START, &saved).save(), saved);
    let long = ArrivalsState { stray_ns: u64::MAX, ..saved };
    assert_eq!(Arrivals::restore(START, &long).save().stray_ns, SECOND, "no longer than ever");
}
