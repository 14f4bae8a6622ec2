//! Bounds how many lines of the log users can cause: all of them, and each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lines per [`PERIOD`] that users can cause; the rest is counted.
const LINES_MAX: u32 = 50;
/// Of these, one user's.
const LINES_PER_USER_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// What has been written in this period.
#[derive(Debug)]
pub(super) struct LogBudget {
    began: Instant,
    lines: u32,
    of_users: HashMap<u32, u32>,
    omitted: u32,
}

impl LogBudget {
    pub(super) fn new() -> Self {
        Self::begin(Instant::now())
    }

    fn begin(now: Instant) -> Self {
        Self { began: now, lines: 0, of_users: HashMap::new(), omitted: 0 }
    }

    /// True if one more line may be written because of this user.
    pub(super) fn take(&mut self, user: u32) -> bool {
        self.take_at(user, Instant::now())
    }

    fn take_at(&mut self, user: u32, now: Instant) -> bool {
        if now.duration_since(self.began) >= PERIOD {
            if self.omitted > 0 {
                let omitted = self.omitted;
                tracing::warn!(omitted, "lines about apps were left out of the log");
            }
            *self = Self::begin(now);
        }
        // A user who has written nothing yet is not remembered when there is no room anyway.
        let of_user = self.of_users.get(&user).copied().unwrap_or(0);
        let may = self.lines < LINES_MAX && of_user < LINES_PER_USER_MAX;
        if may {
            self.lines += 1;
            self.of_users.insert(user, of_user + 1);
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_per_period_and_user() {
        let mut budget = LogBudget::new();
        let now = budget.began;
        let mut written =
            |user, now| (0..1000).filter(|_| budget.take_at(user, now)).count() as u32;
        assert_eq!(written(1, now), LINES_PER_USER_MAX);
        // Nobody else has less for that.
        assert_eq!(written(2, now), LINES_PER_USER_MAX);
        let all: u32 = (3..100).map(|user| written(user, now)).sum();
        assert_eq!(all, LINES_MAX - 2 * LINES_PER_USER_MAX);
        assert_eq!(written(1, now + PERIOD), LINES_PER_USER_MAX);
    }
}
