//! Numbers in the order in which they came, in little memory: those of calls mostly follow each
//! other in equal steps. A peer that makes its calls by one connection counts by ones, one that
//! makes them by several in turn counts by their number.

use std::collections::VecDeque;

/// 8 KiB, which a peer fills only if its numbers follow each other in no way.
pub(super) const RUNS_MAX: usize = 512;

/// Numbers in equal steps, at least one.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    /// Means nothing while there is one only. Wrapping, as all that a peer chooses.
    step: u32,
    count: u32,
}

impl Run {
    /// Takes a number that is next, if it is.
    fn extend(&mut self, number: u64) -> bool {
        let last = self.nth(self.count - 1);
        let Ok(step) = u32::try_from(number.wrapping_sub(last)) else { return false };
        if (self.count > 1 && step != self.step) || self.count == u32::MAX {
            return false;
        }
        (self.step, self.count) = (step, self.count + 1);
        true
    }

    fn nth(&self, index: u32) -> u64 {
        self.first.wrapping_add(u64::from(self.step) * u64::from(index))
    }
}

#[derive(Debug, Default)]
pub(super) struct Runs(VecDeque<Run>);

impl Runs {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a number behind all others. False if there are too many runs.
    pub(super) fn push(&mut self, number: u64) -> bool {
        if self.0.back_mut().is_some_and(|last| last.extend(number)) {
            return true;
        }
        let has_room = self.0.len() < RUNS_MAX;
        if has_room {
            self.0.push_back(Run { first: number, step: 0, count: 1 });
        }
        has_room
    }

    pub(super) fn first(&self) -> Option<u64> {
        Some(self.0.front()?.first)
    }

    /// Takes the first one out.
    pub(super) fn pop(&mut self) {
        let Some(run) = self.0.front_mut() else { return };
        (run.first, run.count) = (run.nth(1), run.count - 1);
        if run.count == 0 {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut runs: Runs) -> Vec<u64> {
        let next = || runs.first().inspect(|_| runs.pop());
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn numbers_come_out_as_they_went_in() {
        let mut numbers = vec![7, 8, 9, 20, 30, 40, 41, 5, 5, 5, 6];
        numbers.extend([u64::MAX - 1, u64::MAX, 0, 1, 1 << 40, 0, 1 << 32]);
        let mut runs = Runs::default();
        assert!(runs.is_empty());
        assert!(numbers.iter().all(|number| runs.push(*number)));
        assert!(!runs.is_empty());
        assert_eq!(all(runs), numbers);
    }

    #[test]
    fn a_run_goes_on_while_it_is_taken_from() {
        let mut runs = Runs::default();
        assert!(runs.push(1) && runs.push(4));
        runs.pop();
        assert!(runs.push(5) && runs.push(6), "the step of one number is anything");
        assert_eq!(runs.0.len(), 1);
        assert_eq!(all(runs), [4, 5, 6]);
    }

    /// As many as a peer likes, whether it makes calls by one connection or by several in turn.
    #[test]
    fn numbers_in_equal_steps_take_one_place() {
        for step in [0, 1, 3, u64::from(u32::MAX)] {
            let mut runs = Runs::default();
            assert!((0..200_000).all(|nth| runs.push(nth * step)));
            assert_eq!(runs.0.len(), 1, "by {step}");
        }
    }

    #[test]
    fn others_are_bounded() {
        let mut runs = Runs::default();
        let taken = (0..).take_while(|nth| runs.push(nth * nth)).count();
        assert_eq!((taken, runs.0.len()), (2 * RUNS_MAX, RUNS_MAX));
        assert!(runs.0.capacity() * size_of::<Run>() <= 8 << 10);
        runs.pop();
        runs.pop();
        assert!(runs.push(0), "there is room again");
    }
}
