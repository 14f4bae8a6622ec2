//! The ring on ordinary memory: one thread, two threads (also under Miri), and under loom.

use super::*;
#[cfg(loom)]
use loom::{sync::Arc, thread};
#[cfg(not(loom))]
use std::{sync::Arc, thread};

/// A ring in ordinary memory.
#[derive(Clone)]
pub(crate) struct HeapRing(Arc<(Vec<Entry>, AtomicU32)>, Looks);

impl HeapRing {
    pub(crate) fn new(entries: u32) -> Self {
        let entry = |_| core::array::from_fn(|_| AtomicU64::new(0));
        let looks = Looks::new(entries);
        Self(Arc::new(((0..entries).map(entry).collect(), AtomicU32::new(0))), looks)
    }
}

impl RingMemory for HeapRing {
    fn entry(&self, position: u32) -> &Entry {
        &self.0.0[position as usize & (self.0.0.len() - 1)]
    }

    fn head(&self) -> &AtomicU32 {
        &self.0.1
    }
}

/// Who looks at an entry, or at the payload that it names, and who overwrites it, for loom: it
/// fails where nothing orders a look before an overwriting. (Of atomics alone it would not notice:
/// it does not let a load see what is stored only later.)
#[cfg(loom)]
#[derive(Clone)]
struct Looks(Arc<Vec<loom::cell::UnsafeCell<()>>>);

#[cfg(loom)]
impl Looks {
    fn new(entries: u32) -> Self {
        Self(Arc::new((0..entries).map(|_| loom::cell::UnsafeCell::new(())).collect()))
    }

    fn overwrite(&self, position: u64) {
        self.0[position as usize % self.0.len()].with_mut(|_| ());
    }

    fn look(&self, position: u64) {
        self.0[position as usize % self.0.len()].with(|_| ());
    }
}

#[cfg(not(loom))]
#[derive(Clone)]
struct Looks;

#[cfg(not(loom))]
impl Looks {
    fn new(_: u32) -> Self {
        Self
    }

    fn overwrite(&self, _: u64) {}

    fn look(&self, _: u64) {}
}

pub(crate) fn ring(entries: u32) -> (Producer<HeapRing>, Consumer<HeapRing>) {
    let memory = HeapRing::new(entries);
    (Producer::new(memory.clone(), entries), Consumer::new(memory, entries))
}

/// An empty ring through which `position` entries have gone.
#[cfg(not(loom))]
fn ring_at(entries: u32, position: u64) -> (Producer<HeapRing>, Consumer<HeapRing>) {
    let (mut producer, mut consumer) = ring(entries);
    producer.go_on(position, position as u32);
    consumer.go_on(position);
    for last in position.saturating_sub(entries.into())..position {
        let index = last as u32 & (entries - 1);
        let turn = turn_of(last, producer.entries_log2);
        producer.memory.entry(index)[0].store(turn.into(), Ordering::Relaxed);
    }
    (producer, consumer)
}

/// Pushes a value with a word that must go with it.
pub(crate) fn push(producer: &mut Producer<HeapRing>, value: u32) -> bool {
    if producer.room_known() == 0 {
        producer.refresh().unwrap();
        if producer.room_known() == 0 {
            return false;
        }
    }
    producer.memory.1.overwrite(producer.tail);
    producer.push(|entry| {
        entry[1].store(u64::from(value) * 3, Ordering::Relaxed);
        value
    });
    true
}

pub(crate) fn take(consumer: &mut Consumer<HeapRing>) -> Option<u32> {
    let Some((value, entry)) = consumer.peek().unwrap() else {
        consumer.publish();
        return None;
    };
    assert_eq!(entry[1].load(Ordering::Relaxed), u64::from(value) * 3, "torn entry");
    consumer.memory.1.look(consumer.position);
    consumer.advance();
    Some(value)
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    /// From the start, over the wrap of the 32-bit head, and over that of the turns, whose lap 0 is
    /// also what memory holds that was never written. What is in the ring and what is free make up
    /// the ring.
    #[test]
    fn what_goes_in_comes_out_in_order_over_many_laps_and_wraps() {
        for entries in [16, 64] {
            let head_wraps = 1 << 32;
            let turns_wrap = head_wraps * u64::from(entries);
            for start in [0, head_wraps - 100, turns_wrap - 100, turns_wrap + head_wraps - 105] {
                let (mut producer, mut consumer) = ring_at(entries, start);
                let (mut pushed, mut taken) = (0, 0);
                while taken < 1000 {
                    while push(&mut producer, pushed) {
                        pushed += 1;
                    }
                    let given_back = consumer.publish_at - consumer.unpublished_max - start;
                    assert_eq!(u64::from(pushed) - given_back, u64::from(entries), "all of it");
                    for _ in 0..=(taken % 5) {
                        if let Some(value) = take(&mut consumer) {
                            assert_eq!(value, taken);
                            taken += 1;
                        }
                    }
                }
                while take(&mut consumer).is_some() {}
                producer.refresh().unwrap();
                assert_eq!(producer.room_known(), entries, "all is free at the end");
                assert_eq!(producer.written(), start + u64::from(pushed));
                assert_eq!(consumer.taken(), producer.written());
            }
        }
    }

    #[test]
    fn impossible_heads_are_reported_across_the_wrap() {
        let (mut producer, mut consumer) = ring_at(16, (1 << 32) - 2);
        for value in 0..5 {
            assert!(push(&mut producer, value));
        }
        assert_eq!(take(&mut consumer), Some(0));
        consumer.publish();
        producer.refresh().unwrap();
        assert_eq!(producer.room_known(), 12);
        for found in [u32::MAX - 1, 4, 1 << 31] {
            producer.memory.head().store(found, Ordering::Relaxed);
            assert_eq!(producer.refresh(), Err(BadHead { found, taken: u32::MAX, written: 3 }));
        }
        producer.memory.head().store(3, Ordering::Relaxed);
        producer.refresh().unwrap();
        assert_eq!(producer.room_known(), 16);
    }

    #[test]
    fn the_head_is_published_each_quarter_and_when_idle() {
        let (mut producer, mut consumer) = ring(16);
        for value in 0..16 {
            assert!(push(&mut producer, value));
        }
        for _ in 0..3 {
            take(&mut consumer).unwrap();
        }
        assert!(!push(&mut producer, 16));
        take(&mut consumer).unwrap();
        assert!(push(&mut producer, 16));
        while take(&mut consumer).is_some() {}
        producer.refresh().unwrap();
        assert_eq!(producer.room_known(), 16);
    }

    /// The head is a line that two cores share: it is written once for a quarter of the ring, not
    /// more often, unless the consumer has nothing left.
    #[test]
    fn the_head_is_written_once_for_a_quarter_of_the_ring() {
        let (mut producer, mut consumer) = ring(64);
        (0..64).for_each(|value| assert!(push(&mut producer, value)));
        let head = |taken: u32| if taken == 64 { 64 } else { taken / 16 * 16 };
        for taken in 1..=64 {
            take(&mut consumer).unwrap();
            assert_eq!(producer.memory.head().load(Ordering::Relaxed), head(taken));
        }
    }

    #[test]
    fn impossible_heads_and_turns_are_reported() {
        let (mut producer, mut consumer) = ring(16);
        for value in 0..5 {
            push(&mut producer, value);
        }
        for value in 0..4 {
            assert_eq!(take(&mut consumer), Some(value));
        }
        producer.refresh().unwrap();
        for found in [6, 3, u32::MAX, 1 << 31] {
            producer.memory.head().store(found, Ordering::Relaxed);
            assert_eq!(producer.refresh(), Err(BadHead { found, taken: 4, written: 5 }));
        }
        for found in [2u32, 3, u32::MAX] {
            consumer.memory.entry(4)[0].store(found.into(), Ordering::Relaxed);
            assert_eq!(consumer.peek().unwrap_err(), BadTurn { found, expected: 1 });
        }
    }

    #[test]
    fn two_threads() {
        let count = if cfg!(miri) { 200 } else { 100_000 };
        let (mut producer, mut consumer) = ring(16);
        let writer = thread::spawn(move || {
            for value in 0..count {
                while !push(&mut producer, value) {
                    thread::yield_now();
                }
            }
        });
        for expected in 0..count {
            let value = loop {
                match take(&mut consumer) {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, expected);
        }
        writer.join().unwrap();
    }
}

#[cfg(loom)]
mod loomed {
    use super::*;

    /// Four entries of ring, five values: one wraps into an entry that the consumer must have
    /// given back.
    #[test]
    fn loom_no_entry_is_lost_torn_or_overwritten() {
        // Three preemptions find every known kind of mistake here in seconds; all of them take a
        // minute and found no more.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mut producer, mut consumer) = ring(4);
            let writer = thread::spawn(move || {
                for value in 0..5 {
                    while !push(&mut producer, value) {
                        thread::yield_now();
                    }
                }
            });
            for expected in 0..5 {
                let value = loop {
                    match take(&mut consumer) {
                        Some(value) => break value,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(value, expected);
            }
            writer.join().unwrap();
        });
    }
}
