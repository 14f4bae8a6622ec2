//! What an engine's thread does when there is nothing to do.

use clearway_base::{MICROSECOND, Time};

/// How long an engine that has nothing to do keeps the core before it lets others have it. A packet
/// that comes meanwhile is served at once, where a switch away and back would cost some
/// microseconds (`docs/performance.md` has the figures).
const HOLD_NS: u64 = 10 * MICROSECOND;
/// A blocking engine stays awake no longer than this, and only while work keeps coming within that time: about
/// twice what it costs to wake a halted core, which is what a sleep so short would lead to.
const LINGER_NS_MAX: u64 = 64 * MICROSECOND;
/// The first step from sleeping at once to staying awake.
const LINGER_NS_MIN: u64 = 16 * MICROSECOND;
/// How long an adaptive engine spins and yields before it sleeps: about what waking up would cost.
const AWAKE_NS: u64 = 100 * MICROSECOND;

/// The idle strategy of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Idle {
    /// Never gives the core away: lowest latency, one core per thread.
    Spin,
    /// Never sleeps, but lets others run: at once when it has just told an app something, then every ten microseconds. For cores that engine and apps share.
    Yield,
    /// Sleeps when there is nothing to do, until a doorbell, a frame or a timer. It stays awake for
    /// some microseconds first, like `Yield`, if work has lately come that soon, as in a conversation of
    /// short messages: a sleep would then end before the core has fallen asleep.
    Block,
    /// Spins and yields like `Yield` while there was something to do lately, then sleeps.
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
}

/// One step of idling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Spin,
    Yield,
    Sleep,
}

/// Decides what a thread does after each turn.
#[derive(Debug)]
pub(crate) struct Idler {
    idle: Idle,
    /// The last turn that did something.
    busy_at: Time,
    /// The last time that others were let run.
    yielded_at: Time,
    /// An app was told something since then.
    owes_yield: bool,
    /// How long `Block` stays awake at present.
    linger_ns: u64,
}

impl Idler {
    pub(crate) const fn new(idle: Idle, now: Time) -> Self {
        Self { idle, busy_at: now, yielded_at: now, owes_yield: false, linger_ns: 0 }
    }

    /// A turn that began at `now` did something. If it told an app something, that app may be
    /// waiting for this core.
    pub(crate) fn was_busy(&mut self, now: Time, told_apps: bool) {
        self.learn(now.since(self.busy_at));
        self.busy_at = now;
        self.owes_yield |= told_apps;
    }

    /// Staying awake pays only if work comes before a sleep would have been worth its end. So a
    /// pause that was a little too long makes the engine wait longer the next time, and one that was
    /// far too long makes it not wait at all.
    fn learn(&mut self, pause_ns: u64) {
        if pause_ns > LINGER_NS_MAX {
            self.linger_ns = 0;
        } else if pause_ns > self.linger_ns {
            self.linger_ns = (self.linger_ns * 2).clamp(LINGER_NS_MIN, LINGER_NS_MAX);
        }
    }

    /// What to do after a turn that began at `now` and did nothing.
    pub(crate) fn step(&self, now: Time) -> Step {
        match self.idle {
            Idle::Spin => Step::Spin,
            Idle::Block if now.since(self.busy_at) >= self.linger_ns => Step::Sleep,
            Idle::Adaptive if now.since(self.busy_at) >= AWAKE_NS => Step::Sleep,
            Idle::Yield | Idle::Adaptive | Idle::Block => {
                let is_due = self.owes_yield || now.since(self.yielded_at) >= HOLD_NS;
                if is_due { Step::Yield } else { Step::Spin }
            }
        }
    }

    /// Others have had the core until `now`.
    pub(crate) const fn yielded(&mut self, now: Time) {
        self.yielded_at = now;
        self.owes_yield = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{Idle, Idler, Step};
    use clearway_base::Time;

    const START: Time = Time::from_ns(1_000_000);

    #[test]
    fn adaptive_yields_once_then_holds_the_core_then_yields_again_then_sleeps() {
        let mut idler = Idler::new(Idle::Adaptive, START);
        idler.was_busy(START, true);
        assert_eq!(idler.step(START + 1), Step::Yield);
        idler.yielded(START + 2_000);
        assert_eq!(idler.step(START + 2_001), Step::Spin);
        assert_eq!(idler.step(START + 11_999), Step::Spin);
        assert_eq!(idler.step(START + 12_000), Step::Yield);
        assert_eq!(idler.step(START + 100_000), Step::Sleep);
    }

    #[test]
    fn a_blocking_engine_stays_awake_only_while_work_comes_soon() {
        let mut idler = Idler::new(Idle::Block, START);
        idler.was_busy(START, true);
        assert_eq!(idler.step(START + 1), Step::Sleep, "nothing is known yet");
        let mut now = START;
        for _ in 0..3 {
            now = now + 40_000;
            idler.was_busy(now, true);
        }
        assert_eq!(idler.step(now + 1), Step::Yield, "the app first");
        idler.yielded(now + 2_000);
        assert_eq!(idler.step(now + 3_000), Step::Spin);
        assert_eq!(idler.step(now + 63_999), Step::Yield);
        assert_eq!(idler.step(now + 64_000), Step::Sleep, "and no longer");
        now = now + 1_000_000;
        idler.was_busy(now, false);
        assert_eq!(idler.step(now + 1), Step::Sleep, "it came too late to have been waited for");
    }

    #[test]
    fn each_strategy_does_as_it_says() {
        let later = START + 1_000_000_000;
        let steps =
            [Idle::Spin, Idle::Yield, Idle::Block].map(|idle| Idler::new(idle, START).step(later));
        assert_eq!(steps, [Step::Spin, Step::Yield, Step::Sleep]);
    }
}
