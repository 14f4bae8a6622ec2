//! What a thread that waits for another learns about its core and about its own pauses. Engines and
//! apps wait by the same two rules:
//!
//! - [`CoreShare`]: when to offer the core to others, and whether that is wise at all.
//! - [`Linger`]: how long to stay awake at all. That pays only where work comes before a sleep
//!   would have been worth its end.

use crate::MICROSECOND;

/// How long a core is kept before it is offered to others. A packet that comes meanwhile is served
/// at once, where giving the core away and getting it back would cost some microseconds
/// (`docs/performance.md` has the figures).
const HOLD_NS: u64 = 10 * MICROSECOND;
/// Who keeps the core this long works by itself: it does not wait for us.
const HOG_NS_MIN: u64 = 250 * MICROSECOND;
/// So many yields are left out after the first that met a hog, and so many at most later.
const YIELDS_SPARED: (u32, u32) = (16, 4096);

/// What a thread has learnt about those with whom it shares its core.
#[derive(Clone, Copy, Debug)]
pub struct CoreShare {
    /// Yields that are still to be left out, because somebody took the core for long.
    spared: u32,
    /// How many are left out the next time.
    spare_next: u32,
}

impl CoreShare {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { spared: 0, spare_next: YIELDS_SPARED.0 }
    }

    /// The core was offered to others, and came back after `took_ns`.
    pub fn yielded(&mut self, took_ns: u64) {
        if took_ns < HOG_NS_MIN {
            self.spare_next = YIELDS_SPARED.0;
            return;
        }
        self.spared = self.spare_next;
        self.spare_next = (self.spare_next * 2).min(YIELDS_SPARED.1);
    }

    /// Whether it is time to offer the core to whoever may want it, after it was kept for
    /// `held_ns`. Somebody who is known to wait for it gets it sooner.
    #[must_use]
    pub const fn is_due(held_ns: u64) -> bool {
        held_ns >= HOLD_NS
    }

    /// Whether to sleep where one would otherwise offer the core: somebody keeps it for long, and
    /// who wakes up gets it sooner than who yields. Each call leaves one yield out; after enough of
    /// them the next is made, to see whether that is still so.
    pub const fn spares_yield(&mut self) -> bool {
        let is_spared = self.spared > 0;
        self.spared = self.spared.saturating_sub(1);
        is_spared
    }
}

impl Default for CoreShare {
    fn default() -> Self {
        Self::new()
    }
}

/// The longest that it pays to stay awake: about what it costs to wake a core that has fallen
/// asleep, twice.
const LINGER_NS_MAX: u64 = 100 * MICROSECOND;
/// The first step from sleeping at once to staying awake.
const LINGER_NS_MIN: u64 = 16 * MICROSECOND;

/// How long a thread stays awake that has nothing to do, as learnt from its pauses so far.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    ns: u64,
}

impl Linger {
    /// It stays awake as long as it may ever pay, until it is known better.
    #[must_use]
    pub const fn awake() -> Self {
        Self { ns: LINGER_NS_MAX }
    }

    /// It sleeps at once, until work has come soon after.
    #[must_use]
    pub const fn asleep() -> Self {
        Self { ns: 0 }
    }

    /// A pause is over. One that was a little too long makes the next stay longer; one in which
    /// nothing could have been won makes it half as long.
    pub fn paused(&mut self, pause_ns: u64) {
        if pause_ns > LINGER_NS_MAX {
            self.ns = if self.ns > LINGER_NS_MIN { self.ns / 2 } else { 0 };
        } else if pause_ns > self.ns {
            self.ns = (self.ns * 2).clamp(LINGER_NS_MIN, LINGER_NS_MAX);
        }
    }

    /// How long to stay awake without work.
    #[must_use]
    pub const fn ns(&self) -> u64 {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_a_hog_fewer_and_fewer_yields_are_made() {
        let mut share = CoreShare::new();
        let mut spared = Vec::new();
        for _ in 0..10 {
            share.yielded(2_000_000);
            let left_out = std::iter::repeat_with(|| share.spares_yield());
            spared.push(left_out.take_while(|is| *is).count());
        }
        assert_eq!(spared, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
        share.yielded(400);
        share.yielded(2_000_000);
        assert!((0..16).all(|_| share.spares_yield()) && !share.spares_yield(), "it had gone");
    }

    #[test]
    fn staying_awake_is_learnt_from_pauses() {
        let mut linger = Linger::asleep();
        linger.paused(1_000);
        assert_eq!(linger.ns(), 16_000);
        linger.paused(1_000);
        assert_eq!(linger.ns(), 16_000, "long enough");
        for expected in [32_000, 64_000, 100_000, 100_000] {
            linger.paused(100_000);
            assert_eq!(linger.ns(), expected);
        }
        for expected in [50_000, 25_000, 12_500, 0, 0] {
            linger.paused(100_001);
            assert_eq!(linger.ns(), expected);
        }
        assert_eq!(Linger::awake().ns(), 100_000);
    }
}
