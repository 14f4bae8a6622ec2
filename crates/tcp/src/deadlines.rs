//! When each of many is to be looked at next. Each has one deadline or none, which can be moved and
//! taken back: what is kept is bounded by how many there are, whatever peers and apps do to them.
//!
//! A heap with the earliest first, and where in it each one is.

use clearway_base::Time;

/// Deadlines by small numbers, the places of a table.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: Vec<(Time, u32)>,
    /// Where in the heap each number is; [`NOWHERE`] if it has no deadline.
    places: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Deadlines {
    /// The earliest; `Time::MAX` if there is none.
    #[inline]
    pub(crate) fn earliest(&self) -> Time {
        self.heap.first().map_or(Time::MAX, |(deadline, _)| *deadline)
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// From now on `number` has this one.
    pub(crate) fn set(&mut self, number: u32, deadline: Time) {
        if self.places.len() <= number as usize {
            self.places.resize(number as usize + 1, NOWHERE);
        }
        let mut place = self.places[number as usize] as usize;
        if place == NOWHERE as usize {
            place = self.heap.len();
            self.heap.push((deadline, number));
        }
        self.heap[place].0 = deadline;
        self.settle(place);
    }

    /// From now on `number` has none.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(place) = self.places.get_mut(number as usize) else { return };
        let place = core::mem::replace(place, NOWHERE) as usize;
        if place == NOWHERE as usize {
            return;
        }
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
        }
    }

    /// A number whose deadline is not after `now`, and which has none from now on.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let (deadline, number) = *self.heap.first()?;
        if deadline > now {
            return None;
        }
        self.remove(number);
        Some(number)
    }

    /// Brings what is at `place` to where it belongs.
    fn settle(&mut self, mut place: usize) {
        let moved = self.heap[place];
        while place > 0 && moved.0 < self.heap[(place - 1) / 2].0 {
            place = self.follow(place, (place - 1) / 2);
        }
        while let Some(child) = self.earlier_child(place).filter(|it| self.heap[*it].0 < moved.0) {
            place = self.follow(place, child);
        }
        self.put(place, moved);
    }

    fn earlier_child(&self, place: usize) -> Option<usize> {
        let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
        children.min_by_key(|child| self.heap[*child].0)
    }

    /// Moves what is at `from` to `place`. Returns `from`, which is free.
    fn follow(&mut self, place: usize, from: usize) -> usize {
        self.put(place, self.heap[from]);
        from
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clearway_base::{Random, Time};

    use super::Deadlines;

    #[test]
    fn agrees_with_a_map_whatever_is_set_moved_and_taken_back() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut deadlines, mut map) = (Deadlines::default(), BTreeMap::new());
            for _ in 0..500 {
                let (number, at) = (random.below(40) as u32, Time::from_ns(random.below(1000)));
                match random.below(4) {
                    0 => {
                        deadlines.remove(number);
                        map.remove(&number);
                    }
                    1 => {
                        let popped = deadlines.pop_due(at);
                        let earliest = map.values().min().copied();
                        let gone = popped.and_then(|number| map.remove(&number));
                        assert_eq!(gone, earliest.filter(|earliest| *earliest <= at));
                    }
                    _ => {
                        deadlines.set(number, at);
                        map.insert(number, at);
                    }
                }
                let earliest = map.values().min().copied().unwrap_or(Time::MAX);
                assert_eq!((deadlines.earliest(), deadlines.len()), (earliest, map.len()));
            }
        }
    }
}
