//! What is remembered of received packets, and for how long.

use super::{Acks, RANGES_MAX, REORDERING_MAX, UNACKNOWLEDGED_PACKETS_MAX};
use clearway_base::{Random, Time};
use std::collections::HashSet;

impl Acks {
    /// What is remembered is bounded, and nothing of it is forgotten as well.
    pub(crate) fn audit(&self) {
        assert!(self.received.len() <= RANGES_MAX);
        let is_above = |first: core::ops::Range<u64>| first.start >= self.floor;
        assert!(self.received.first().is_none_or(is_above));
    }
}

/// Takes a packet, unless it is a duplicate. True if it was taken.
fn take(acks: &mut Acks, number: u64) -> bool {
    let is_new = !acks.is_duplicate(number);
    if is_new {
        acks.record(Time::ZERO, Time::ZERO, number, 100, true, 1000);
    }
    acks.audit();
    is_new
}

/// No packet is taken a second time, whatever has been forgotten since, and wherever numbers begin.
#[test]
fn nothing_is_taken_twice() {
    for (seed, start) in [(1, 0), (2, 0), (3, u64::MAX - 400_000), (4, 1 << 32)] {
        let mut random = Random::new(seed);
        let (mut acks, mut taken, mut next) = (Acks::new(), HashSet::new(), start);
        for _ in 0..20_000 {
            // Mostly on, with gaps; and now and then one from long ago.
            let number = match random.below(10) {
                0..6 => next + random.below(40) / 20,
                6..9 => next.saturating_sub(random.below(300)).max(start),
                _ => start + random.below(next - start + 1),
            };
            next = next.max(number + 1);
            assert!(!take(&mut acks, number) || taken.insert(number), "{number} twice");
        }
        assert!(taken.len() > 10_000);
        assert!(taken.iter().all(|number| acks.is_duplicate(*number)), "one is forgotten");
    }
}

#[test]
fn what_was_forgotten_counts_as_received() {
    // Every other one: after so many ranges the first is forgotten, and all below it.
    let mut acks = Acks::new();
    for nth in 0..=RANGES_MAX as u64 {
        assert!(take(&mut acks, 10 + 2 * nth));
    }
    assert_eq!(acks.received.len(), RANGES_MAX);
    assert!((0..=10).all(|number| acks.is_duplicate(number)), "of the first range and before");
    assert!(!acks.is_duplicate(11) && acks.is_duplicate(12) && !acks.is_duplicate(13));
}

#[test]
fn a_packet_further_behind_than_any_in_flight_counts_as_received() {
    let mut acks = Acks::new();
    take(&mut acks, 5);
    take(&mut acks, REORDERING_MAX + 9);
    assert!(acks.is_duplicate(9) && !acks.is_duplicate(10) && acks.is_duplicate(0));
    assert_eq!(acks.received.len(), 1);
}

#[test]
fn acknowledgements_leave_when_enough_has_come_or_something_is_out_of_order() {
    let mut acks = Acks::new();
    let mut record = |number: u64, bytes: usize| {
        acks.record(Time::ZERO, Time::ZERO, number, bytes, true, 1000);
        let due = acks.due().as_ns();
        if due == 0 {
            acks.on_sent();
        }
        due
    };
    for number in 0..u64::from(UNACKNOWLEDGED_PACKETS_MAX) - 1 {
        assert_eq!(record(number, 100), 1000);
    }
    assert_eq!(record(15, 100), 0, "sixteen packets");
    assert_eq!((record(16, 20_000), record(17, 12_768)), (1000, 0), "32 KiB");
    assert_eq!((record(19, 100), record(18, 100)), (0, 0), "a gap, and what fills it");
    assert_eq!(record(20, 100), 1000);
}

/// Its sender has not seen that it was acknowledged.
#[test]
fn a_duplicate_is_acknowledged_at_once() {
    let mut acks = Acks::new();
    take(&mut acks, 0);
    acks.on_sent();
    assert!(!acks.is_pending());
    acks.record_duplicate(Time::from_ns(5));
    assert_eq!(acks.due(), Time::from_ns(5));
}
