//! A rate with bursts.

use crate::{SECOND, Time};

/// A token bucket: so many tokens a second, and after a pause a tenth of a second's (at least one)
/// at once. It is full at first.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    per_second: u32,
    /// In tokens times `SECOND`, so that nothing is rounded.
    level: u64,
    updated: Time,
}

impl TokenBucket {
    /// A full one.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self { per_second, level: depth(per_second), updated: Time::ZERO }
    }

    /// Takes a token if there is one. Time does not go backwards from one call to the next.
    #[must_use]
    pub fn take(&mut self, now: Time) -> bool {
        let passed_ns = now.since(self.updated).min(SECOND);
        let gained = passed_ns * u64::from(self.per_second);
        self.level = (self.level + gained).min(depth(self.per_second));
        self.updated = now;
        let is_enough = self.level >= SECOND;
        if is_enough {
            self.level -= SECOND;
        }
        is_enough
    }

    /// How full it is, and since when.
    #[must_use]
    pub const fn save(&self) -> (u64, Time) {
        (self.level, self.updated)
    }

    /// Goes on at `now` where one of the same rate was saved. It is never more than full.
    pub fn go_on(&mut self, saved: (u64, Time), now: Time) {
        let (level, updated) = saved;
        (self.level, self.updated) = (level.min(depth(self.per_second)), updated.min(now));
    }
}

/// A tenth of a second's tokens, and at least one, as levels count.
fn depth(per_second: u32) -> u64 {
    (u64::from(per_second) * (SECOND / 10)).max(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut TokenBucket, now: Time) -> usize {
        (0..1000).filter(|_| bucket.take(now)).count()
    }

    #[test]
    fn a_tenth_of_a_second_comes_at_once_and_the_rest_in_time() {
        let mut now = Time::from_ns(SECOND);
        let mut bucket = TokenBucket::new(100);
        assert_eq!(taken(&mut bucket, now), 10);
        for _ in 0..100 {
            now = now + SECOND / 100;
            assert_eq!(taken(&mut bucket, now), 1);
        }
        assert_eq!(taken(&mut bucket, now + 100 * SECOND), 10, "no more after a long pause");
    }

    #[test]
    fn rates_that_no_nanoseconds_divide_and_extreme_ones_are_kept() {
        let mut now = Time::from_ns(SECOND);
        let mut bucket = TokenBucket::new(30);
        assert_eq!(taken(&mut bucket, now), 3);
        let mut sum = 0;
        for _ in 0..1000 {
            now = now + 10_000_000;
            sum += taken(&mut bucket, now);
        }
        assert_eq!(sum, 300, "30 a second for 10 s");
        let mut slow = TokenBucket::new(1);
        assert!(slow.take(now) && !slow.take(now + SECOND / 2) && slow.take(now + SECOND));
        let mut fast = TokenBucket::new(u32::MAX);
        assert_eq!(taken(&mut fast, now), 1000);
    }

    #[test]
    fn what_was_spent_stays_spent_in_another_process() {
        let now = Time::from_ns(7 * SECOND);
        let mut bucket = TokenBucket::new(100);
        assert_eq!(taken(&mut bucket, now), 10);
        let saved = bucket.save();
        let mut again = TokenBucket::new(100);
        again.go_on(saved, now);
        assert!(!again.take(now) && again.take(now + SECOND / 100));
        again.go_on((u64::MAX, Time::from_ns(u64::MAX)), now);
        assert_eq!(taken(&mut again, now), 10, "what is impossible is a full one");
    }
}
