//! Time that goes on, whatever its clock does.

use serde::{Deserialize, Serialize};

use crate::Time;

/// Makes of a clock one that never goes back. Where the clock steps back (a machine that was
/// stopped and goes on elsewhere, or state that another boot has saved), time stands still for a
/// moment and goes on from there, ahead of the clock by as much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteadyClock {
    latest: Time,
    ahead_ns: u64,
}

impl SteadyClock {
    /// The time when the clock shows `shown`.
    #[inline]
    pub fn time(&mut self, shown: Time) -> Time {
        let time = shown + self.ahead_ns;
        if time < self.latest {
            self.step_back(time);
        } else {
            self.latest = time;
        }
        self.latest
    }

    #[cold]
    fn step_back(&mut self, time: Time) {
        self.ahead_ns = self.ahead_ns.saturating_add(self.latest.since(time));
    }

    /// What the clock shows at `time`; never for never.
    #[inline]
    #[must_use]
    pub fn shown(&self, time: Time) -> Time {
        if time == Time::MAX { time } else { time - self.ahead_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn time_goes_on_from_where_the_clock_stepped_back() {
        let mut clock = SteadyClock::default();
        let at = |clock: &mut SteadyClock, ns| clock.time(Time::from_ns(ns)).as_ns();
        assert_eq!(
            [1000, 1005, 400, 410, 390, 500].map(|ns| at(&mut clock, ns)),
            [1000, 1005, 1005, 1015, 1015, 1125]
        );
        assert_eq!(clock.shown(Time::from_ns(1200)), Time::from_ns(575));
        assert_eq!(clock.shown(Time::MAX), Time::MAX);
    }

    /// Timers are neither early nor late for it, but for the moment of the step.
    #[test]
    fn it_passes_as_fast_as_the_clock() {
        let mut random = Random::new(1);
        let (mut clock, mut shown, mut last) = (SteadyClock::default(), 1 << 40, Time::ZERO);
        last = last.max(clock.time(Time::from_ns(shown)));
        for _ in 0..10_000 {
            let is_step = random.chance(1, 10);
            let ns = random.below(1 << 20);
            shown = if is_step { shown - ns } else { shown + ns };
            let now = clock.time(Time::from_ns(shown));
            assert_eq!(now.since(last), if is_step { 0 } else { ns });
            assert_eq!(clock.shown(now), Time::from_ns(shown));
            last = now;
        }
    }
}
