//! What an engine's thread does when there is nothing to do.

use clearway_base::{CoreShare, Linger, Time};

/// The idle strategy of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Idle {
    /// Never gives the core away: lowest latency, one core per thread.
    Spin,
    /// Never sleeps, but lets others run: at once when an app that shares the core has been told
    /// something, and else every ten microseconds. For cores that engine and apps share.
    Yield,
    /// Sleeps when there is nothing to do, until a doorbell, a frame or a timer. It stays awake for
    /// some microseconds first, like `Yield`, if work has lately come that soon, as in a
    /// conversation of short messages: a sleep would then end before the core has fallen asleep.
    Block,
    /// Stays awake like `Yield` at first, then sleeps. It stays awake the shorter the less that has
    /// been worth lately.
    #[default]
    Adaptive,
}

impl Idle {
    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Block => "block",
            Self::Adaptive => "adaptive",
        }
    }

    const fn sleeps(self) -> bool {
        matches!(self, Self::Block | Self::Adaptive)
    }
}

/// One step of idling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Spin,
    Yield,
    Sleep,
}

/// Which apps a turn has told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nobody,
    /// None that shares the core.
    Others,
    /// One that shares the core, or several of which one does.
    Neighbour,
}

/// Decides what a thread does after each turn.
#[derive(Debug)]
pub(crate) struct Idler {
    idle: Idle,
    /// The last turn that did something.
    busy_at: Time,
    /// The last time that others were let run.
    yielded_at: Time,
    /// An app that shares the core was told something since then.
    owes_yield: bool,
    /// The app that was told something last shares the core.
    has_neighbour: bool,
    /// The last look for something to do, if there was nothing and this thread has kept the core.
    looked_at: Option<Time>,
    share: CoreShare,
    linger: Linger,
}

impl Idler {
    /// `wake_up_ns`: what it takes until a thread runs that slept.
    pub(crate) fn new(idle: Idle, wake_up_ns: u64, now: Time) -> Self {
        let linger = if idle == Idle::Block { Linger::asleep() } else { Linger::awake(wake_up_ns) };
        let share = CoreShare::new();
        let yielded_at = now;
        let (owes_yield, has_neighbour, looked_at) = (false, false, None);
        Self { idle, busy_at: now, yielded_at, owes_yield, has_neighbour, looked_at, share, linger }
    }

    /// What it takes until a thread runs that slept is known better.
    pub(crate) fn set_wake_up_ns(&mut self, wake_up_ns: u64) {
        if self.idle != Idle::Block {
            self.linger.set_wake_up_ns(wake_up_ns);
        }
    }

    /// A turn that began at `now` did something. If it told an app something that shares this
    /// core, that app is waiting for it.
    pub(crate) fn was_busy(&mut self, now: Time, told: Told) {
        self.linger.paused(now.since(self.busy_at));
        self.busy_at = now;
        self.owes_yield |= told == Told::Neighbour;
        if told != Told::Nobody {
            self.has_neighbour = told == Told::Neighbour;
        }
        self.looked_at = None;
    }

    /// What to do after a turn that began at `now` and did nothing.
    pub(crate) fn step(&mut self, now: Time) -> Step {
        if self.idle == Idle::Spin {
            return Step::Spin;
        }
        let step = self.step_of_sharer(now);
        self.looked_at = (step == Step::Spin).then_some(now);
        step
    }

    /// What to do after a turn that began at `now` and told an app something that shares this core,
    /// if there is no point in another before that app has run.
    pub(crate) fn hand_over(&self, now: Time) -> Step {
        let keeps = self.idle == Idle::Spin || self.idle.sleeps() && self.share.spares_yield(now);
        if keeps { Step::Spin } else { Step::Yield }
    }

    fn step_of_sharer(&mut self, now: Time) -> Step {
        let elapsed_ns = self.looked_at.map_or(0, |before| now.since(before));
        if CoreShare::is_gap(elapsed_ns) {
            self.share.was_away(now, elapsed_ns);
        }
        if self.idle.sleeps() && now.since(self.busy_at) >= self.linger.ns() {
            return Step::Sleep;
        }
        let held_ns = now.since(self.yielded_at);
        let is_due = self.owes_yield || self.share.is_due(held_ns, self.has_neighbour);
        match is_due {
            false => Step::Spin,
            true if self.idle.sleeps() && self.share.spares_yield(now) => Step::Sleep,
            true => Step::Yield,
        }
    }

    /// Others could have the core from `before` until `after`.
    pub(crate) fn yielded(&mut self, before: Time, after: Time) {
        self.share.was_away(after, after.since(before));
        self.yielded_at = after;
        self.owes_yield = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{Idle, Idler, Step, Told};
    use clearway_base::Time;

    const START: Time = Time::from_ns(1_000_000);

    /// Offers the core at `from`, and has it again `took_ns` later.
    fn offer(idler: &mut Idler, from: Time, took_ns: u64) -> Time {
        assert_eq!(idler.step(from), Step::Yield);
        idler.yielded(from, from + took_ns);
        from + took_ns
    }

    #[test]
    fn an_app_on_the_same_core_gets_it_at_once() {
        let mut idler = Idler::new(Idle::Adaptive, 0, START);
        idler.was_busy(START, Told::Neighbour);
        let now = offer(&mut idler, START + 1, 500);
        assert_eq!(idler.step(now), Step::Spin, "nobody wanted it");
        idler.was_busy(now, Told::Nobody);
        assert_eq!(idler.step(now + 1), Step::Spin, "nobody here was told anything");
    }

    #[test]
    fn the_core_is_held_for_a_while_and_then_offered() {
        let mut idler = Idler::new(Idle::Yield, 0, START);
        assert_eq!(idler.step(START + 9_999), Step::Spin);
        let now = offer(&mut idler, START + 10_000, 300);
        assert_eq!(idler.step(now + 9_999), Step::Spin, "nobody wanted it");
        assert_eq!(idler.step(now + 10_000), Step::Yield);
    }

    /// Of two hosts' engines and apps on two cores, any two may share one.
    #[test]
    fn who_shares_the_core_and_is_no_app_of_ours_has_it_soon() {
        let hold_ns = |told| {
            let mut idler = Idler::new(Idle::Adaptive, 0, START);
            idler.was_busy(START, told);
            let now = offer(&mut idler, START + 10_000, 2_000);
            (1..).find(|&elapsed_ns| idler.step(now + elapsed_ns) == Step::Yield).expect("some")
        };
        assert_eq!(
            [Told::Nobody, Told::Others, Told::Neighbour].map(hold_ns),
            [1_000, 1_000, 10_000]
        );
    }

    #[test]
    fn beside_a_hog_who_may_sleep_sleeps() {
        for (idle, expected) in [(Idle::Adaptive, Step::Sleep), (Idle::Yield, Step::Yield)] {
            let mut idler = Idler::new(idle, 0, START);
            let mut now = offer(&mut idler, START + 10_000, 3_000_000);
            idler.was_busy(now, Told::Nobody);
            now = offer(&mut idler, now + 10_000, 3_000_000);
            idler.was_busy(now, Told::Nobody);
            assert_eq!(idler.step(now + 10_000), expected);
        }
    }

    #[test]
    fn the_core_is_handed_over_to_who_waits_for_it_unless_a_hog_would_have_it() {
        let hands_over = |idle| {
            let mut idler = Idler::new(idle, 0, START);
            idler.was_busy(START, Told::Neighbour);
            [0, 3_000_000, 6_000_000].map(|after_ns| {
                let (step, now) = (idler.hand_over(START + after_ns), START + after_ns);
                idler.yielded(now, now + 3_000_000);
                step
            })
        };
        assert_eq!(hands_over(Idle::Adaptive), [Step::Yield, Step::Yield, Step::Spin]);
        assert_eq!(hands_over(Idle::Yield), [Step::Yield; 3]);
        assert_eq!(hands_over(Idle::Spin), [Step::Spin; 3]);
    }

    /// It does not take an offer to learn that: the time between two idle turns is enough.
    #[test]
    fn who_loses_the_core_sleeps_instead_of_offering_it() {
        let mut idler = Idler::new(Idle::Adaptive, 0, START);
        idler.was_busy(START, Told::Nobody);
        assert_eq!(idler.step(START + 1), Step::Spin);
        let mut now = START + 4_000_000;
        for _ in 0..2 {
            idler.was_busy(now, Told::Neighbour);
            assert_eq!(
                idler.step(now),
                Step::Yield,
                "a turn may take long, and one loss counts not"
            );
            idler.yielded(now, now);
            assert_eq!(idler.step(now), Step::Spin);
            now = now + 4_000_000;
            assert_ne!(idler.step(now), Step::Yield);
        }
        idler.was_busy(now, Told::Neighbour);
        assert_eq!(idler.step(now + 1), Step::Sleep);
    }

    #[test]
    fn adaptive_sleeps_after_a_while_and_sooner_if_that_was_for_nothing() {
        let mut idler = Idler::new(Idle::Adaptive, 0, START);
        idler.was_busy(START, Told::Nobody);
        assert_ne!(idler.step(START + 99_999), Step::Sleep);
        assert_eq!(idler.step(START + 100_000), Step::Sleep);
        let mut now = START;
        for _ in 0..4 {
            now = now + 1_000_000;
            idler.was_busy(now, Told::Nobody);
        }
        assert_eq!(idler.step(now + 1), Step::Sleep);
    }

    #[test]
    fn a_blocking_engine_stays_awake_only_while_work_comes_soon() {
        let mut idler = Idler::new(Idle::Block, 0, START);
        idler.was_busy(START, Told::Nobody);
        assert_eq!(idler.step(START + 1), Step::Sleep, "nothing is known yet");
        let mut now = START;
        for _ in 0..3 {
            now = now + 40_000;
            idler.was_busy(now, Told::Nobody);
        }
        assert_ne!(idler.step(now + 63_999), Step::Sleep);
        assert_eq!(idler.step(now + 64_000), Step::Sleep, "and no longer");
    }

    #[test]
    fn each_strategy_does_as_it_says() {
        let later = START + 1_000_000_000;
        let steps = [Idle::Spin, Idle::Yield, Idle::Block]
            .map(|idle| Idler::new(idle, 0, START).step(later));
        assert_eq!(steps, [Step::Spin, Step::Yield, Step::Sleep]);
    }
}
