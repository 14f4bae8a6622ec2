//! What is to happen, and when. Of what happens at the same time, what was noted first comes first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use clearway_base::Time;

/// Things to come, in order.
#[derive(Clone, Debug)]
pub struct Agenda<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    noted: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at: Time,
    number: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), noted: 0 }
    }
}

impl<T> Agenda<T> {
    /// Notes something for the time `at`.
    pub fn note(&mut self, at: Time, what: T) {
        self.noted += 1;
        self.entries.push(Reverse(Entry { at, number: self.noted, what }));
    }

    /// The time of the next thing.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next thing, and its time.
    pub fn take(&mut self) -> Option<(Time, T)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }

    /// Takes the next thing if its time has come by `now`.
    pub fn take_due(&mut self, now: Time) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        self.take().map(|(_, what)| what)
    }

    /// How many things are to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing is to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Things to come, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|Reverse(entry)| &entry.what)
    }

    /// Nothing of what was noted happens.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_by_time_and_at_one_time_as_they_were_noted() {
        let mut agenda = Agenda::default();
        for (ns, what) in [(5, "d"), (3, "a"), (4, "b"), (4, "c")] {
            agenda.note(Time::from_ns(ns), what);
        }
        assert_eq!((agenda.next_at(), agenda.len()), (Some(Time::from_ns(3)), 4));
        assert_eq!(agenda.take_due(Time::from_ns(2)), None);
        assert_eq!(agenda.take_due(Time::from_ns(4)), Some("a"));
        assert_eq!(agenda.take_due(Time::from_ns(4)), Some("b"));
        assert_eq!(agenda.take(), Some((Time::from_ns(4), "c")));
        assert_eq!(agenda.iter().collect::<Vec<_>>(), [&"d"]);
        agenda.clear();
        assert!(agenda.is_empty() && agenda.take().is_none());
    }
}
