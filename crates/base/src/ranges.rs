//! A set of numbers kept as few, sorted, disjoint ranges.

use core::ops::Range;
use std::collections::VecDeque;

/// A set of `u64` as sorted, disjoint, non-adjacent half-open ranges, ascending.
///
/// Made for sets that are nearly contiguous (received packet numbers, acknowledged bytes): adding
/// at the end is constant time; elsewhere the place is found in logarithmic time, and what stands
/// behind it is moved. The caller bounds the number of ranges, with [`RangeSet::forget_below`] or
/// [`RangeSet::pop_first`] for instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: VecDeque::new() }
    }

    /// Adds every number of `new`. Returns how many of them were missing.
    pub fn insert(&mut self, new: Range<u64>) -> u64 {
        if new.is_empty() {
            return 0;
        }
        let length = new.end - new.start;
        match self.ranges.back_mut() {
            Some(last) if new.start < last.end => self.insert_before_the_end(new),
            Some(last) if new.start == last.end => {
                last.end = new.end;
                length
            }
            _ => {
                self.ranges.push_back(new);
                length
            }
        }
    }

    fn insert_before_the_end(&mut self, new: Range<u64>) -> u64 {
        // Ranges before `first` end before `new` starts; those from `after` on start behind it.
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let (mut after, mut joined, mut present) = (first, new, 0);
        while let Some(range) = self.ranges.get(after).filter(|range| range.start <= joined.end) {
            joined = joined.start.min(range.start)..joined.end.max(range.end);
            present += range.end - range.start;
            after += 1;
        }
        let added = joined.end - joined.start - present;
        if first == after {
            self.ranges.insert(first, joined);
        } else {
            self.ranges.drain(first + 1..after);
            self.ranges[first] = joined;
        }
        added
    }

    /// True if `value` is in the set.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.ranges.iter().rev().any(|range| range.contains(&value))
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        self.ranges.iter().cloned()
    }

    /// The number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if the set has no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The lowest range.
    #[must_use]
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The highest range.
    #[must_use]
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges.back().cloned()
    }

    /// Removes and returns the lowest range.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// Removes every number of `gone`.
    pub fn remove(&mut self, gone: Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let mut index = self.ranges.partition_point(|range| range.end <= gone.start);
        while index < self.ranges.len() && self.ranges[index].start < gone.end {
            let range = self.ranges[index].clone();
            let (head, tail) = (range.start..gone.start, gone.end..range.end);
            match (head.is_empty(), tail.is_empty()) {
                (true, true) => {
                    self.ranges.remove(index);
                }
                (false, true) => {
                    self.ranges[index] = head;
                    index += 1;
                }
                (true, false) => self.ranges[index] = tail,
                (false, false) => {
                    self.ranges[index] = head;
                    self.ranges.insert(index + 1, tail);
                    index += 1;
                }
            }
        }
    }

    /// Removes every number below `limit`.
    pub fn forget_below(&mut self, limit: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end <= limit {
                self.ranges.pop_front();
            } else {
                first.start = first.start.max(limit);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RangeSet;
    use crate::Random;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set_of_numbers() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut ranges, mut oracle) = (RangeSet::new(), BTreeSet::new());
            for _ in 0..100 {
                let start = random.below(64);
                let end = start + random.below(9);
                if random.chance(1, 4) {
                    ranges.remove(start..end);
                    oracle.retain(|value| !(start..end).contains(value));
                } else {
                    let missing = (start..end).filter(|value| !oracle.contains(value)).count();
                    let missing = missing as u64;
                    assert_eq!(ranges.insert(start..end), missing, "seed {seed}");
                    oracle.extend(start..end);
                }
                let listed: Vec<u64> = ranges.iter().flatten().collect();
                assert_eq!(listed, oracle.iter().copied().collect::<Vec<_>>(), "seed {seed}");
                assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.end < b.start));
            }
        }
    }

    #[test]
    fn forgets_below_a_limit() {
        let mut ranges = RangeSet::new();
        ranges.insert(1..4);
        ranges.insert(6..9);
        ranges.forget_below(7);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), vec![7..9]);
    }
}
