//! What an engine has counted, for other threads to read at any time without asking it.
//!
//! The engine writes all of it a few times a second ([`Board::write`]); whoever reads in the middle
//! of that notices, by the sequence number, and reads again. Nothing here waits for anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use clearway_base::Counter;

/// Reads that met a write, until the reader is told that there is none. The next write is 100 ms
/// away.
const TRIES_MAX: usize = 1000;

/// What one of the numbers is.
#[derive(Clone, Debug)]
pub struct Label {
    /// The name of its group in the catalogue.
    pub group: &'static str,
    /// What it counts.
    pub counter: Counter,
    /// Of which of the engine's queues.
    pub queue: Option<usize>,
}

/// The numbers, as they were at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When, by the engines' clock.
    pub at_ns: u64,
    /// In the order of the labels.
    pub values: Vec<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Board {
    labels: Vec<Label>,
    numbers: Arc<Numbers>,
}

/// What is shared.
#[derive(Debug)]
struct Numbers {
    /// Odd while the engine writes.
    sequence: AtomicU64,
    at_ns: AtomicU64,
    values: Box<[AtomicU64]>,
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct Writer(Arc<Numbers>);

impl Board {
    pub(crate) fn new(labels: Vec<Label>) -> (Self, Writer) {
        let values = labels.iter().map(|_| AtomicU64::new(0)).collect();
        let numbers = Numbers { sequence: AtomicU64::new(0), at_ns: AtomicU64::new(0), values };
        let numbers = Arc::new(numbers);
        let writer = Writer(Arc::clone(&numbers));
        (Self { labels, numbers }, writer)
    }

    /// What the numbers are, in their order.
    #[must_use]
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// The numbers as the engine last wrote them; `None` if its thread was stopped while it did.
    #[must_use]
    pub fn read(&self) -> Option<Reading> {
        (0..TRIES_MAX).find_map(|_| self.numbers.try_read())
    }
}

impl Numbers {
    fn try_read(&self) -> Option<Reading> {
        // Acquire: the values are at least as new as the writer's last release.
        let before = self.sequence.load(Ordering::Acquire);
        if before % 2 == 1 {
            std::hint::spin_loop();
            return None;
        }
        let values = self.values.iter().map(|value| value.load(Ordering::Relaxed)).collect();
        let at_ns = self.at_ns.load(Ordering::Relaxed);
        // Pairs with the writer's release fence: a value of a later write shows its sequence, too.
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        (before == after).then_some(Reading { at_ns, values })
    }
}

impl Writer {
    /// Writes numbers in the order of the labels.
    pub(crate) fn write(&self, at_ns: u64, values: impl Iterator<Item = u64>) {
        let Numbers { sequence, at_ns: at, values: places } = &*self.0;
        let before = sequence.load(Ordering::Relaxed); // nobody else writes it
        sequence.store(before + 1, Ordering::Relaxed);
        // Pairs with the reader's acquire fence.
        fence(Ordering::Release);
        at.store(at_ns, Ordering::Relaxed);
        for (place, value) in places.iter().zip(values) {
            place.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the reader's first load.
        sequence.store(before + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_reader_never_sees_half_of_a_write() {
        let counter = catalogue()[0].counters[0];
        let label = Label { group: "queue", counter, queue: Some(0) };
        let (board, writer) = Board::new(vec![label; 100]);
        let reader = std::thread::spawn(move || {
            let mut last = 0;
            while last < 20_000 {
                let Some(reading) = board.read() else { continue };
                assert!(reading.values.iter().all(|value| *value == reading.at_ns), "{reading:?}");
                assert!(reading.at_ns >= last);
                last = reading.at_ns;
            }
        });
        for number in 1..=20_000 {
            writer.write(number, std::iter::repeat(number));
        }
        reader.join().expect("what is read is whole");
    }
}
