//! Alarms by themselves, and whom the wheel has forgotten.

use clearway_base::{MILLISECOND, Random, SECOND, Time, TimerWheel};
use core::hash::BuildHasher;

use super::{ALARMS, Alarms, Keyed, Slot};
use crate::app::Owner;
use crate::config::Config;
use crate::endpoint::Endpoint;

const NOW: Time = Time::from_ns(SECOND);

/// From a few nanoseconds to a quarter of a second.
fn some_time(random: &mut Random) -> u64 {
    let most_ns = 1 << (4 + random.below(24));
    random.below(most_ns)
}

/// The wheel fires by each deadline that was asked for, however they move, and no timer counts
/// twice.
#[test]
fn alarms_ring_by_the_deadline() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let (mut wheel, mut alarms, mut now) = (TimerWheel::new(NOW), Alarms::default(), NOW);
        let mut deadline = Time::MAX;
        for _ in 0..500 {
            if deadline == Time::MAX || random.chance(1, 2) {
                deadline = now + 1 + some_time(&mut random);
                alarms.set(&mut wheel, 0, deadline);
            }
            assert!(alarms.earliest() <= TimerWheel::rounded(deadline), "seed {seed}");
            assert!(alarms.times.is_sorted());
            now = now + some_time(&mut random) / 4;
            let mut fired = Vec::new();
            wheel.advance(now, |_, at| fired.push(at));
            let counted = fired.iter().filter(|at| alarms.take(**at)).count();
            assert!(counted <= fired.len() && alarms.timers == wheel.len());
            if TimerWheel::rounded(deadline) <= now {
                assert!(counted > 0, "seed {seed}: nothing rang by the deadline");
                deadline = Time::MAX;
            } else if counted > 0 {
                alarms.set(&mut wheel, 0, deadline); // too early, as `handle_timer` has it
            }
            let set = alarms.times.iter().filter(|at| **at != Time::MAX).count();
            assert!(set <= ALARMS.min(wheel.len()), "seed {seed}");
        }
    }
}

#[test]
fn a_flow_is_forgotten_that_waits_longer_than_a_tick_after_its_deadline() {
    let mut endpoint = Endpoint::new(Config::default(), NOW, 1, [1; 16]);
    let (from, to) = (([10, 0, 0, 1], 20707).into(), ([10, 0, 0, 2], 20707).into());
    let owner = Owner { channel: 0, connection: 0 };
    let key = endpoint.connect(NOW, owner, from, to, 7000, 1000).expect("room");
    let slot = &mut endpoint.slots[key.slot()];
    let case = |slot: &mut Slot, deadline_ns, alarm_ns, now_ns| {
        (slot.deadline, slot.is_ready) = (NOW + deadline_ns, false);
        slot.alarms.times[0] = NOW + alarm_ns;
        slot.is_forgotten(NOW + now_ns)
    };
    assert!(!case(slot, 5, 5 + MILLISECOND, 0));
    assert!(case(slot, 5, 6 + MILLISECOND, 0));
    // What is due already is looked at within a tick from now.
    assert!(!case(slot, 5, 9 + MILLISECOND, 9));
    assert!(case(slot, 5, 10 + MILLISECOND, 9));
    slot.is_ready = true;
    assert!(!slot.is_forgotten(NOW), "it stands in line");
    (slot.is_ready, slot.deadline) = (false, Time::MAX);
    slot.alarms.times[0] = Time::MAX;
    assert!(!slot.is_forgotten(NOW), "it waits for nothing");
    (slot.deadline, slot.flow) = (NOW, None);
    assert!(!slot.is_forgotten(NOW), "there is none");
    endpoint.free.push(0);
    endpoint.ready.clear();
}

/// Whoever does not know the key cannot foresee what falls together.
#[test]
fn hashes_are_of_a_key() {
    let hash = |key| Keyed(key).hash_one(7_u64);
    assert_eq!(hash(1), hash(1));
    let mut hashes: Vec<u64> = (0..100).map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 100);
}
