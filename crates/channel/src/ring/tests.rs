//! The ring on ordinary memory: one thread, two threads (also under Miri), and under loom.

use super::*;
#[cfg(loom)]
use loom::{sync::Arc, thread};
#[cfg(not(loom))]
use std::{sync::Arc, thread};

/// A ring in ordinary memory.
#[derive(Clone)]
pub(crate) struct HeapRing(Arc<(Vec<Entry>, AtomicU32)>);

impl HeapRing {
    pub(crate) fn new(entries: u32) -> Self {
        let entry = |_| core::array::from_fn(|_| AtomicU64::new(0));
        Self(Arc::new(((0..entries).map(entry).collect(), AtomicU32::new(0))))
    }
}

impl RingMemory for HeapRing {
    fn entry(&self, index: u32) -> &Entry {
        &self.0.0[index as usize]
    }

    fn head(&self) -> &AtomicU32 {
        &self.0.1
    }
}

pub(crate) fn ring(entries: u32) -> (Producer<HeapRing>, Consumer<HeapRing>) {
    let memory = HeapRing::new(entries);
    (Producer::new(memory.clone(), entries), Consumer::new(memory, entries))
}

/// Pushes a value with a word that must go with it.
pub(crate) fn push(producer: &mut Producer<HeapRing>, value: u32) -> bool {
    if producer.room_known() == 0 {
        producer.refresh().unwrap();
        if producer.room_known() == 0 {
            return false;
        }
    }
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
    consumer.advance();
    Some(value)
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order_over_many_laps() {
        let (mut producer, mut consumer) = ring(16);
        let (mut pushed, mut taken) = (0, 0);
        while taken < 1000 {
            while push(&mut producer, pushed) {
                pushed += 1;
            }
            assert!(pushed - taken <= 16);
            for _ in 0..=(taken % 5) {
                if let Some(value) = take(&mut consumer) {
                    assert_eq!(value, taken);
                    taken += 1;
                }
            }
        }
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

    #[test]
    fn turns_wrap_around() {
        let (mut producer, mut consumer) = ring(16);
        let almost = (u64::from(u32::MAX) << 4) - 16;
        (producer.tail, producer.head_cached) = (almost, almost as u32);
        (consumer.position, consumer.published) = (almost, almost);
        producer.memory.head().store(almost as u32, Ordering::Relaxed);
        for index in 0..16 {
            let before = u64::from(turn_of(almost, 4) - 1);
            producer.memory.entry(index)[0].store(before, Ordering::Relaxed);
        }
        for value in 0..100 {
            assert!(push(&mut producer, value));
            assert_eq!(take(&mut consumer), Some(value));
            assert_eq!(take(&mut consumer), None);
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
        let count = if cfg!(miri) { 200 } else { 1_000_000 };
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
