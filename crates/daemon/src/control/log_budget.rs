//! Bounds how many lines of the log apps can cause.

use std::time::{Duration, Instant};

/// Lines per [`PERIOD`] that apps can cause; the rest is counted.
const LINES_MAX: u32 = 50;
const PERIOD: Duration = Duration::from_secs(1);

/// What is left to be written in this period.
#[derive(Debug)]
pub(super) struct LogBudget {
    began: Instant,
    lines: u32,
}

impl LogBudget {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), lines: 0 }
    }

    /// True if one more line may be written.
    pub(super) fn take(&mut self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&mut self, now: Instant) -> bool {
        if now.duration_since(self.began) >= PERIOD {
            let omitted = self.lines.saturating_sub(LINES_MAX);
            if omitted > 0 {
                tracing::warn!(omitted, "lines about apps were left out of the log");
            }
            *self = Self { began: now, lines: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_per_period() {
        let mut budget = LogBudget::new();
        let now = budget.began;
        let written = (0..1000).filter(|_| budget.take_at(now)).count();
        assert_eq!(written as u32, LINES_MAX);
        assert!(budget.take_at(now + PERIOD));
    }
}
