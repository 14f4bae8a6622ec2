//! What all saved states have in common: how one is refused.
//!
//! A component that is to go on in another process has a `State`: plain data, without the layout of
//! anything inside. It comes back by a function that trusts nothing of it. Times are of
//! CLOCK_MONOTONIC, whose zero is the same for all processes of a host.

use core::fmt;
use core::ops::Range;

use crate::RangeSet;

/// Why a saved state cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid(pub &'static str);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the saved state cannot be used: {}", self.0)
    }
}

impl core::error::Error for Invalid {}

/// Refuses what is not so.
pub fn ensure(is_so: bool, complaint: &'static str) -> Result<(), Invalid> {
    if is_so { Ok(()) } else { Err(Invalid(complaint)) }
}

impl RangeSet {
    /// Its ranges, ascending.
    #[must_use]
    pub fn save(&self) -> Vec<Range<u64>> {
        self.iter().collect()
    }

    /// The set with these ranges, which are ascending, apart, and `count_max` at most.
    pub fn restore(ranges: Vec<Range<u64>>, count_max: usize) -> Result<Self, Invalid> {
        ensure(ranges.len() <= count_max, "too many ranges")?;
        let mut set = Self::new();
        let mut before = None;
        for range in ranges {
            let is_apart = before.is_none_or(|end| end < range.start);
            ensure(!range.is_empty() && is_apart, "ranges that overlap")?;
            before = Some(range.end);
            set.insert(range);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a set of one range")]
    fn only_ranges_in_order_are_a_set() {
        for ranges in [vec![], vec![0..1], vec![3..9, 10..11], vec![0..1, 2..u64::MAX]] {
            let set = RangeSet::restore(ranges.clone(), 2).expect("a set");
            assert_eq!(set.save(), ranges);
        }
        for ranges in [vec![5..5], vec![0..4, 4..5], vec![4..5, 0..3], vec![0..1, 2..3, 4..5]] {
            assert!(RangeSet::restore(ranges, 2).is_err());
        }
    }
}
