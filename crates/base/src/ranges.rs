//! A set of numbers kept as few, sorted, disjoint ranges.

use core::ops::Range;
use std::collections::VecDeque;

/// A set of `u64` as sorted, disjoint, non-adjacent half-open ranges, ascending.
///
/// Made for sets that are nearly contiguous (received packet numbers, acknowledged bytes): adding
/// at the end is constant time; elsewhere the place is found in logarithmic time, and what stands
/// behind it is moved. The caller bounds the number of ranges, with [`RangeSet::forget_below`] or
/// [`RangeSet::pop_first`] for instance.
///
/// A set of one range, which most are, has it in itself, and touches no other memory.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// The only range, or an empty one if there is none, or if there are several.
    only: Range<u64>,
    /// All ranges if there are several; else empty. It stays once it is there.
    #[expect(clippy::box_collection, reason = "few have one: a pointer, not four words")]
    several: Option<Box<VecDeque<Range<u64>>>>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { only: 0..0, several: None }
    }

    /// Adds every number of `new`. Returns how many of them were missing.
    #[inline]
    pub fn insert(&mut self, new: Range<u64>) -> u64 {
        if new.is_empty() {
            return 0;
        }
        if !self.has_several() {
            let length = new.end - new.start;
            if self.only.is_empty() {
                self.only = new;
                return length;
            }
            if new.start == self.only.end {
                self.only.end = new.end;
                return length;
            }
        }
        self.change(|ranges| insert(ranges, new))
    }

    /// True if `value` is in the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, value: u64) -> bool {
        self.range_of(value).is_some()
    }

    /// The range that has `value` in it.
    #[must_use]
    #[inline]
    pub fn range_of(&self, value: u64) -> Option<Range<u64>> {
        match &self.several {
            Some(several) if !several.is_empty() => {
                let index = several.partition_point(|range| range.end <= value);
                several.get(index).filter(|range| range.contains(&value)).cloned()
            }
            _ => self.only.contains(&value).then(|| self.only.clone()),
        }
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// The ranges that have a number in `within`, ascending. Those before it are not looked at.
    pub fn overlapping(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = match &self.several {
            Some(several) => several.partition_point(|range| range.end <= within.start),
            None => 0,
        };
        let rest = (first..self.len()).map(|index| self.at(index));
        rest.skip_while(move |range| range.end <= within.start)
            .take_while(move |range| range.start < within.end && !within.is_empty())
    }

    /// The number of ranges.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.several {
            Some(several) if !several.is_empty() => several.len(),
            _ => usize::from(!self.only.is_empty()),
        }
    }

    /// True if the set has no number.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.only.is_empty() && !self.has_several()
    }

    /// The lowest range.
    #[must_use]
    pub fn first(&self) -> Option<Range<u64>> {
        (!self.is_empty()).then(|| self.at(0))
    }

    /// The highest range.
    #[must_use]
    #[inline]
    pub fn last(&self) -> Option<Range<u64>> {
        (!self.is_empty()).then(|| self.at(self.len() - 1))
    }

    /// Removes and returns the lowest range.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        self.change(VecDeque::pop_front)
    }

    /// Removes every number of `gone`.
    pub fn remove(&mut self, gone: Range<u64>) {
        if !gone.is_empty() && !self.is_empty() {
            self.change(|ranges| remove(ranges, gone));
        }
    }

    /// Removes every number below `limit`.
    pub fn forget_below(&mut self, limit: u64) {
        while let Some(first) = self.first().filter(|first| first.start < limit) {
            self.remove(first.start..limit.min(first.end));
        }
    }

    #[inline]
    fn has_several(&self) -> bool {
        self.several.as_ref().is_some_and(|several| !several.is_empty())
    }

    #[inline]
    fn at(&self, index: usize) -> Range<u64> {
        match &self.several {
            Some(several) if !several.is_empty() => several[index].clone(),
            _ => self.only.clone(),
        }
    }

    /// Changes the set as a list of ranges.
    #[inline(never)]
    fn change<T>(&mut self, change: impl FnOnce(&mut VecDeque<Range<u64>>) -> T) -> T {
        let several = self.several.get_or_insert_default();
        if !self.only.is_empty() {
            several.push_back(core::mem::take(&mut self.only));
        }
        let result = change(several);
        if several.len() == 1
            && let Some(only) = several.pop_front()
        {
            self.only = only;
        }
        result
    }
}

fn insert(ranges: &mut VecDeque<Range<u64>>, new: Range<u64>) -> u64 {
    let length = new.end - new.start;
    match ranges.back_mut() {
        Some(last) if new.start < last.end => insert_before_the_end(ranges, new),
        Some(last) if new.start == last.end => {
            last.end = new.end;
            length
        }
        _ => {
            ranges.push_back(new);
            length
        }
    }
}

fn insert_before_the_end(ranges: &mut VecDeque<Range<u64>>, new: Range<u64>) -> u64 {
    // Ranges before `first` end before `new` starts; those from `after` on start behind it.
    let first = ranges.partition_point(|range| range.end < new.start);
    let (mut after, mut joined, mut present) = (first, new, 0);
    while let Some(range) = ranges.get(after).filter(|range| range.start <= joined.end) {
        joined = joined.start.min(range.start)..joined.end.max(range.end);
        present += range.end - range.start;
        after += 1;
    }
    let added = joined.end - joined.start - present;
    if first == after {
        ranges.insert(first, joined);
    } else {
        ranges.drain(first + 1..after);
        ranges[first] = joined;
    }
    added
}

fn remove(ranges: &mut VecDeque<Range<u64>>, gone: Range<u64>) {
    let mut index = ranges.partition_point(|range| range.end <= gone.start);
    while index < ranges.len() && ranges[index].start < gone.end {
        let range = ranges[index].clone();
        let (head, tail) = (range.start..gone.start, gone.end..range.end);
        match (head.is_empty(), tail.is_empty()) {
            (true, true) => {
                ranges.remove(index);
            }
            (false, true) => {
                ranges[index] = head;
                index += 1;
            }
            (true, false) => ranges[index] = tail,
            (false, false) => {
                ranges[index] = head;
                ranges.insert(index + 1, tail);
                index += 1;
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
                let value = random.below(64);
                let whole = ranges.iter().find(|range| range.contains(&value));
                assert_eq!(ranges.range_of(value), whole, "seed {seed}");
                assert_eq!(ranges.contains(value), oracle.contains(&value), "seed {seed}");
                let within = ranges.overlapping(start..end);
                let expected = ranges.iter().filter(|range| range.start < end && start < range.end);
                assert!(within.eq(expected.filter(|_| start < end)), "seed {seed}");
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
