//! A set of numbers that a peer has chosen: mostly one after the other, as those of calls are.

use foldhash::HashSet;

const PLACES: usize = 64;

/// A number's place is what its lower bits say. One whose place is taken when it comes is kept
/// elsewhere, so it does a peer no good to choose numbers that all have the same place.
#[derive(Debug)]
pub(super) struct Numbers {
    places: [u64; PLACES],
    /// A bit for each place that is taken.
    taken: u64,
    elsewhere: HashSet<u64>,
    len: usize,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { places: [0; PLACES], taken: 0, elsewhere: HashSet::default(), len: 0 }
    }
}

impl Numbers {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// False if it is there already.
    #[inline]
    pub(super) fn insert(&mut self, number: u64) -> bool {
        if self.taken & place_of(number).1 != 0 || !self.elsewhere.is_empty() {
            return self.insert_among(number);
        }
        self.take_place(number);
        true
    }

    /// Its place is taken, or it may be elsewhere.
    #[cold]
    fn insert_among(&mut self, number: u64) -> bool {
        if self.has_place(number) || self.elsewhere.contains(&number) {
            return false;
        }
        if self.taken & place_of(number).1 == 0 {
            self.take_place(number);
        } else {
            self.elsewhere.insert(number);
            self.len += 1;
        }
        true
    }

    #[inline]
    fn take_place(&mut self, number: u64) {
        let (at, bit) = place_of(number);
        self.places[at] = number;
        self.taken |= bit;
        self.len += 1;
    }

    /// False if it was not there.
    #[inline]
    pub(super) fn remove(&mut self, number: u64) -> bool {
        if !self.has_place(number) {
            return self.remove_elsewhere(number);
        }
        self.taken &= !place_of(number).1;
        self.len -= 1;
        true
    }

    #[cold]
    fn remove_elsewhere(&mut self, number: u64) -> bool {
        let was_there = self.elsewhere.remove(&number);
        self.len -= usize::from(was_there);
        was_there
    }

    #[inline]
    fn has_place(&self, number: u64) -> bool {
        let (at, bit) = place_of(number);
        self.taken & bit != 0 && self.places[at] == number
    }
}

/// Its index, and its bit.
#[inline]
fn place_of(number: u64) -> (usize, u64) {
    let at = number as usize % PLACES;
    (at, 1 << at)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_number_is_there_once() {
        let mut numbers = Numbers::default();
        assert!(!numbers.remove(0), "no place is taken");
        assert!(numbers.insert(0) && !numbers.insert(0) && numbers.len() == 1);
        assert!(numbers.remove(0) && !numbers.remove(0) && numbers.len() == 0);
    }

    /// One that is elsewhere does not come to a place beside, when one becomes free.
    #[test]
    fn numbers_that_have_the_same_place_are_all_there() {
        let mut numbers = Numbers::default();
        let same = [5, 5 + PLACES as u64, 5 + 2 * PLACES as u64];
        assert!(same.iter().all(|number| numbers.insert(*number)));
        assert!(numbers.remove(5) && !numbers.insert(same[1]) && numbers.len() == 2);
        assert!(numbers.insert(5) && numbers.remove(same[1]) && !numbers.remove(same[1]));
        assert!(!numbers.insert(same[2]) && numbers.len() == 2);
    }

    #[test]
    fn it_is_a_set() {
        let (mut numbers, mut model) = (Numbers::default(), HashSet::new());
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (state >> 33) % 200;
            if state >> 63 == 0 {
                assert_eq!(numbers.insert(number), model.insert(number));
            } else {
                assert_eq!(numbers.remove(number), model.remove(&number));
            }
            assert_eq!(numbers.len(), model.len());
        }
    }
}
