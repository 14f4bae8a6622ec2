//! How far apart two cores are: the time that a cache line takes to the other one and back.
//!
//! A hypervisor may put a machine's virtual cores on cores that share a cache now and on cores that
//! do not in a second, and whatever two processes exchange then takes several times as long.
//! `samples` tells such times apart by this.
//!
//! It is *not* a benchmark of its own: it takes some milliseconds, and says nothing where both
//! cores are one.

use crate::cpu::{Cores, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Round trips between two looks at the clock.
const BATCH: u32 = 32;
/// The median of so many batches is the distance: 2 ms if it is 0.5 µs.
const BATCHES: usize = 128;
/// Who shares the cores with others may have to wait for both of them at once.
const PATIENCE: Duration = Duration::from_millis(100);
/// Looks at the line between two looks at the clock.
const LOOKS: u32 = 4096;
/// What the asking core writes last.
const END: u32 = u32::MAX;

/// A cache line of its own, and the next one, which processors may fetch with it.
#[repr(align(128))]
struct Line(AtomicU32);

/// The round trip of a cache line, in ns: none where both cores are one. On a machine so busy that
/// the two are hardly ever there together it is [`PATIENCE`].
pub(crate) fn round_trip_ns(cores: Cores) -> Option<f64> {
    if cores.shared() {
        return None;
    }
    let line = Line(AtomicU32::new(0));
    let batches = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(cores.server); // where that is refused, it is as far as it is
            answer(&line);
        });
        let asking = scope.spawn(|| {
            let _ = pin(cores.client);
            let batches = ask(&line);
            line.0.store(END, Ordering::Release);
            batches
        });
        asking.join().unwrap_or_default()
    });
    Some(median(batches).unwrap_or(PATIENCE.as_nanos() as f64))
}

/// Makes each odd number even, until the end, which may come while this is off its core: it must
/// not be overwritten. Acquire and release are each other's partners; no data goes with them.
fn answer(line: &Line) {
    let mut number = 0;
    while number != END {
        if number % 2 == 1 {
            let _ =
                line.0.compare_exchange(number, number + 1, Ordering::Release, Ordering::Relaxed);
        }
        number = line.0.load(Ordering::Acquire);
    }
}

/// What each round trip of a batch took, in ns, batch by batch.
fn ask(line: &Line) -> Vec<f64> {
    let deadline = Instant::now() + PATIENCE;
    let mut batches = Vec::with_capacity(BATCHES);
    let mut number = 0;
    while batches.len() < BATCHES {
        let began = Instant::now();
        for _ in 0..BATCH {
            line.0.store(number + 1, Ordering::Release);
            number += 2;
            if !is_answered(line, number, deadline) {
                return batches;
            }
        }
        batches.push(began.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    batches
}

/// Without `pause`: hypervisors step in where it is repeated.
fn is_answered(line: &Line, number: u32, deadline: Instant) -> bool {
    loop {
        for _ in 0..LOOKS {
            if line.0.load(Ordering::Acquire) == number {
                return true;
            }
        }
        if Instant::now() > deadline {
            return false;
        }
    }
}

fn median(mut batches: Vec<f64>) -> Option<f64> {
    batches.sort_by(f64::total_cmp);
    batches.get(batches.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_may_give_up_at_any_time() {
        for number in [0, 1, END] {
            let line = Line(AtomicU32::new(number));
            std::thread::scope(|scope| {
                scope.spawn(|| answer(&line));
                line.0.store(END, Ordering::Release);
            });
            assert_eq!(line.0.load(Ordering::Acquire), END);
        }
    }

    #[test]
    fn two_cores_are_apart_and_one_is_not() {
        let cores = Cores::choose();
        let distance_ns = round_trip_ns(cores);
        assert_eq!(distance_ns.is_none(), cores.shared());
        assert!(distance_ns.is_none_or(|ns| ns > 1.0 && ns <= PATIENCE.as_nanos() as f64));
        assert_eq!(round_trip_ns(Cores { client: 0, server: 0 }), None);
    }
}
