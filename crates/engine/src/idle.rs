//! What an engine's thread does when there is nothing to do.

use clearway_base::{MICROSECOND, Time};

/// Spinning before the first yield: what a yield costs if somebody else wants the core. If nobody
/// does, it returns at once, and yielding is as good as spinning.
const SPIN_NS: u64 = 2 * MICROSECOND;
/// Yielding before the first sleep: about what waking up would cost.
const YIELD_NS: u64 = 100 * MICROSECOND;

/// The idle strategy of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Idle {
    /// Never gives the core away: lowest latency, one core per thread.
    Spin,
    /// Lets others run whenever there is nothing to do, and never sleeps: for cores that engine
    /// and apps share.
    Yield,
    /// Sleeps whenever there is nothing to do, until a doorbell, a frame or a timer.
    Block,
    /// Spins briefly, then yields, then sleeps.
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

    /// What to do now, if nothing has happened since `since`.
    pub(crate) fn step(self, since: Time, now: Time) -> Step {
        match self {
            Self::Spin => Step::Spin,
            Self::Yield => Step::Yield,
            Self::Block => Step::Sleep,
            Self::Adaptive if now.since(since) < SPIN_NS => Step::Spin,
            Self::Adaptive if now.since(since) < YIELD_NS => Step::Yield,
            Self::Adaptive => Step::Sleep,
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

#[cfg(test)]
mod tests {
    use super::{Idle, Step};
    use clearway_base::Time;

    #[test]
    fn adaptive_spins_then_yields_then_sleeps() {
        let since = Time::from_ns(1_000_000);
        let steps =
            [0, 1_999, 2_000, 99_999, 100_000].map(|ns| Idle::Adaptive.step(since, since + ns));
        assert_eq!(steps, [Step::Spin, Step::Spin, Step::Yield, Step::Yield, Step::Sleep]);
    }
}
