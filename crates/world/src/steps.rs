//! How a test lets a world go on: never for ever.

use clearway_base::{SECOND, Time};

/// A world in which one thing happens after the other. What would hang fails, with what there is
/// to say of it.
pub trait Steps: Sized {
    /// Longer than anything takes that is waited for.
    const PATIENCE_NS: u64 = 600 * SECOND;
    /// More steps than anything takes that is waited for.
    const STEPS_MAX: u64 = 60_000_000;

    /// The time.
    fn now(&self) -> Time;

    /// Goes on to what happens next. False if nothing ever will.
    fn step(&mut self) -> bool;

    /// What to say of a world that is stuck.
    fn describe(&self) -> String;

    /// The same as [`Steps::step`] where something is to happen.
    ///
    /// # Panics
    /// If nothing ever will.
    #[track_caller]
    fn go_on(&mut self) {
        assert!(self.step(), "nothing will happen after {:?}: {}", self.now(), self.describe());
    }

    /// Goes on until `done`.
    ///
    /// # Panics
    /// If that takes too long, or never comes.
    #[track_caller]
    fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let (end, mut steps) = (self.now() + Self::PATIENCE_NS, 0);
        while !done(self) {
            self.go_on();
            steps += 1;
            let is_stuck = self.now() >= end || steps >= Self::STEPS_MAX;
            assert!(!is_stuck, "stuck at {:?}: {}", self.now(), self.describe());
        }
    }

    /// Goes on for so long, or until nothing will happen any more.
    fn run_for(&mut self, ns: u64) {
        let end = self.now() + ns;
        while self.now() < end && self.step() {}
    }

    /// Goes on until nothing will happen any more. Returns in how many steps.
    ///
    /// # Panics
    /// If something always will.
    #[track_caller]
    fn run_out(&mut self) -> u64 {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < Self::STEPS_MAX, "no end at {:?}: {}", self.now(), self.describe());
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So much happens, one thing each second, or no time passes at all.
    struct Clockwork {
        left: u64,
        tick_ns: u64,
        now: Time,
    }

    impl Steps for Clockwork {
        const STEPS_MAX: u64 = 1000;

        fn now(&self) -> Time {
            self.now
        }

        fn step(&mut self) -> bool {
            let goes_on = self.left > 0;
            self.left = self.left.saturating_sub(1);
            self.now = self.now + self.tick_ns;
            goes_on
        }

        fn describe(&self) -> String {
            format!("{} left", self.left)
        }
    }

    fn clockwork(left: u64, tick_ns: u64) -> Clockwork {
        Clockwork { left, tick_ns, now: Time::ZERO }
    }

    #[test]
    fn what_comes_is_waited_for() {
        let mut world = clockwork(500, SECOND);
        world.run_until(|world| world.left == 400);
        world.run_for(10 * SECOND);
        assert_eq!((world.left, world.run_out()), (390, 390));
    }

    #[test]
    #[should_panic(expected = "nothing will happen")]
    fn what_never_comes_is_not_waited_for() {
        clockwork(20, SECOND).run_until(|_| false);
    }

    #[test]
    #[should_panic(expected = "stuck")]
    fn nor_what_takes_too_long() {
        clockwork(u64::MAX, SECOND).run_until(|world| world.now() >= Time::from_ns(601 * SECOND));
    }

    #[test]
    #[should_panic(expected = "stuck")]
    fn nor_what_needs_no_time_and_no_end() {
        clockwork(u64::MAX, 0).run_until(|_| false);
    }

    #[test]
    #[should_panic(expected = "no end")]
    fn what_never_rests_is_found_out() {
        clockwork(u64::MAX, SECOND).run_out();
    }
}
