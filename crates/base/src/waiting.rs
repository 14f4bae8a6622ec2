//! What a thread that waits for another learns about its core and about its own pauses. Engines and
//! apps wait by the same two rules:
//!
//! - [`CoreShare`]: when to offer the core to others, and whether that is wise at all.
//! - [`Linger`]: how long to stay awake at all. That pays only where work comes before a sleep
//!   would have been worth its end.
//!
//! Apps also learn by [`Crowding`] whether they would do better on the core of their engine.

use crate::{MICROSECOND, MILLISECOND, Time};

/// How long a core is kept before it is offered to others. A packet that comes meanwhile is served
/// at once, where giving the core away and getting it back would cost some microseconds
/// (`docs/performance.md` has the figures).
const HOLD_NS: u64 = 10 * MICROSECOND;
/// The same on a core that somebody shares who waits, too, and whom those for whom we wait may be
/// waiting for.
const SHARED_HOLD_NS: u64 = MICROSECOND;
/// An offer that takes so long was taken. If nobody wants the core, it is the kernel's way there
/// and back only.
const TAKEN_NS_MIN: u64 = 700;
/// Who keeps the core this long does not wait for us.
const LONG_NS_MIN: u64 = 250 * MICROSECOND;
/// Any thread loses its core for that long now and then (`docs/performance.md`, "Who is taken for a
/// hog"), and several times in a row where a hypervisor takes it. Who keeps it again before we had
/// it for so many times as long, and for so long at most, works by itself.
const AGAIN: u64 = 4;
const AGAIN_NS_MAX: u64 = 16 * MILLISECOND;
/// For so long the core is not offered after somebody has kept it, at first and at most. To find
/// out that they still do costs what is left of a tick of the kernel's scheduler, some
/// milliseconds.
const SPARED_NS: (u64, u64) = (50 * MILLISECOND, 1600 * MILLISECOND);

/// What a thread has learnt about those with whom it shares its core.
#[derive(Clone, Copy, Debug)]
pub struct CoreShare {
    /// Until then the core is not offered, because somebody took it for long.
    spared_until: Time,
    /// For how long that is the next time.
    spared_ns: u64,
    /// Who takes it for long before then does so again.
    again_until: Time,
    /// Somebody took the core when it was offered last, and soon gave it back.
    is_shared: bool,
}

impl CoreShare {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new() -> Self {
        let (spared_until, again_until) = (Time::ZERO, Time::ZERO);
        Self { spared_until, spared_ns: SPARED_NS.0, again_until, is_shared: false }
    }

    /// Others had the core for `took_ns` until `now`, whether it was offered to them or taken from
    /// us.
    pub fn was_away(&mut self, now: Time, took_ns: u64) {
        self.is_shared = (TAKEN_NS_MIN..LONG_NS_MIN).contains(&took_ns);
        if took_ns < LONG_NS_MIN {
            self.spared_ns = SPARED_NS.0;
            return;
        }
        if now < self.again_until + took_ns {
            self.spared_until = now + self.spared_ns;
            self.spared_ns = (self.spared_ns * 2).min(SPARED_NS.1);
        }
        let again_ns = took_ns.saturating_mul(AGAIN).min(AGAIN_NS_MAX);
        self.again_until = self.spared_until.max(now) + again_ns;
    }

    /// Between two looks at the clock, without a system call, so much time went by: so long that
    /// somebody must have taken the core.
    #[must_use]
    pub const fn is_gap(elapsed_ns: u64) -> bool {
        elapsed_ns >= LONG_NS_MIN
    }

    /// Whether it is time to offer the core to whoever may want it, after it was kept for
    /// `held_ns`. Somebody who is known to wait for it gets it sooner. `has_neighbour`: the other
    /// side of the channel is who shares the core, and waits for us.
    #[must_use]
    pub const fn is_due(&self, held_ns: u64, has_neighbour: bool) -> bool {
        held_ns >= if self.is_shared && !has_neighbour { SHARED_HOLD_NS } else { HOLD_NS }
    }

    /// Whether somebody who waits, too, took the core when it was offered last.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether to sleep where one would otherwise offer the core: somebody keeps it for long, and
    /// who wakes up gets it sooner than who yields.
    #[must_use]
    pub fn spares_yield(&self, now: Time) -> bool {
        now < self.spared_until
    }
}

impl Default for CoreShare {
    fn default() -> Self {
        Self::new()
    }
}

/// Of offers of the core that follow each other faster, one counts.
const OFFERS_APART_NS: u64 = 250 * MICROSECOND;
/// So many more offers were taken than not. With the time between offers that count, it is as long
/// as a tick of the kernel's scheduler at least, which spreads threads over idle cores by itself.
const CROWDED_SCORE: u8 = 16;
/// After so long without an offer that counts, what is known of the core is of another time.
const OFFERS_FORGOTTEN_NS: u64 = 16 * OFFERS_APART_NS;
/// What an offer that nobody took is worth, where one that somebody took is worth 1.
const UNWANTED_SCORE: u8 = 2;

/// What a thread has learnt about a core that it shares with others than the one it waits for.
/// Where that one runs on another core, both do best on one: what they hand to each other stays in
/// its cache, and none of them runs only to find that the other does not.
#[derive(Clone, Copy, Debug)]
pub struct Crowding {
    score: u8,
    counted_at: Time,
}

impl Crowding {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { score: 0, counted_at: Time::ZERO }
    }

    /// Whether it would be good to know if somebody wants the core.
    #[must_use]
    pub const fn is_due(&self, now: Time) -> bool {
        now.since(self.counted_at) >= OFFERS_APART_NS
    }

    /// Others could have the core for `took_ns` until `now`. True if it is crowded: the thread is
    /// better off with whom it waits for. Then all is forgotten.
    pub fn offered(&mut self, now: Time, took_ns: u64) -> bool {
        if !self.is_due(now) {
            return false;
        }
        if now.since(self.counted_at) >= OFFERS_FORGOTTEN_NS {
            self.score = 0;
        }
        self.counted_at = now;
        self.score = if took_ns >= TAKEN_NS_MIN {
            self.score + 1
        } else {
            self.score.saturating_sub(UNWANTED_SCORE)
        };
        let is_crowded = self.score >= CROWDED_SCORE;
        if is_crowded {
            self.score = 0;
        }
        is_crowded
    }
}

impl Default for Crowding {
    fn default() -> Self {
        Self::new()
    }
}

/// The longest that it pays to stay awake, at least and at most.
const LONGEST_NS: (u64, u64) = (100 * MICROSECOND, 2 * MILLISECOND);
/// So many wake-ups may be in a pause if everybody sleeps: of both engines, of the other app, of
/// both engines once more, and one's own, in an echo that its app waits for; and some more, for all
/// that is not waking up. Who judged by its own wake-up alone would sleep as soon as the others do,
/// and all of them would go on like that, though none of them had to sleep if all stayed awake.
const WAKE_UPS: u64 = 8;
/// The first step from sleeping at once to staying awake.
const LINGER_NS_MIN: u64 = 16 * MICROSECOND;
/// Of pauses that are usually short, one may be so many times as long without a sleep.
const SPREAD: u64 = 4;

/// How long a thread stays awake that has nothing to do, as learnt from its pauses so far.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    ns: u64,
    longest_ns: u64,
}

impl Linger {
    /// It stays awake as long as it may ever pay, until it is known better. `wake_up_ns`: what it
    /// takes on this machine until a thread runs that slept; 0 if nobody knows.
    #[must_use]
    pub fn awake(wake_up_ns: u64) -> Self {
        let longest_ns = Self::longest_ns(wake_up_ns);
        Self { ns: longest_ns, longest_ns }
    }

    /// What a wake-up takes is known better.
    pub fn set_wake_up_ns(&mut self, wake_up_ns: u64) {
        self.longest_ns = Self::longest_ns(wake_up_ns);
        self.ns = self.ns.min(self.longest_ns);
    }

    fn longest_ns(wake_up_ns: u64) -> u64 {
        let (least_ns, most_ns) = LONGEST_NS;
        wake_up_ns.saturating_mul(WAKE_UPS).clamp(least_ns, most_ns)
    }

    /// It sleeps at once, until work has come soon after, and never stays awake for long.
    #[must_use]
    pub const fn asleep() -> Self {
        Self { ns: 0, longest_ns: LONGEST_NS.0 }
    }

    /// A pause is over. One that was nearly too long, or a little too long, makes the next stay
    /// longer; one in which nothing could have been won makes it half as long.
    pub fn paused(&mut self, pause_ns: u64) {
        if pause_ns > self.longest_ns {
            self.ns = if self.ns > LINGER_NS_MIN { self.ns / 2 } else { 0 };
        } else if pause_ns * SPREAD > self.ns {
            self.ns = (self.ns * 2).clamp(LINGER_NS_MIN, self.longest_ns);
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
    fn beside_a_hog_the_core_is_offered_less_and_less_often() {
        let (mut share, mut now) = (CoreShare::new(), Time::from_ns(1_000_000_000));
        assert!(!share.spares_yield(now), "nothing is known yet");
        share.was_away(now, 4_000_000);
        assert!(!share.spares_yield(now), "that may happen once");
        for spared_ms in [50, 100, 200, 400, 800, 1600, 1600] {
            share.was_away(now, 4_000_000);
            now = now + spared_ms * MILLISECOND;
            assert!(share.spares_yield(now - 1) && !share.spares_yield(now), "{spared_ms} ms");
        }
        share.was_away(now, 400);
        share.was_away(now, 4_000_000);
        assert!(share.spares_yield(now), "it comes and goes");
        assert!(!share.spares_yield(now + 50 * MILLISECOND), "the hog had gone");
    }

    #[test]
    fn who_takes_the_core_for_long_now_and_then_is_no_hog() {
        let (mut share, mut now) = (CoreShare::new(), Time::from_ns(1_000_000_000));
        for _ in 0..10 {
            share.was_away(now, 4_000_000);
            assert!(!share.spares_yield(now));
            now = now + 20 * MILLISECOND;
        }
        for _ in 0..10 {
            share.was_away(now, 250_000);
            assert!(!share.spares_yield(now), "a hypervisor's others, for less than a fifth");
            now = now + 1_250_000;
        }
        share.was_away(now, 250_000);
        share.was_away(now + 1, 2_000);
        share.was_away(now + 1_249_999, 250_000);
        assert!(share.spares_yield(now + 1_249_999), "beside one who gives it back");
    }

    #[test]
    fn who_shares_the_core_and_waits_has_it_soon() {
        let mut share = CoreShare::new();
        assert!(!share.is_due(9_999, false) && share.is_due(10_000, true));
        share.was_away(Time::from_ns(1_000_000_000), 300);
        assert!(!share.is_due(9_999, false), "nobody wanted it");
        share.was_away(Time::from_ns(1_000_000_000), 2_000);
        assert!(!share.is_due(999, false) && share.is_due(1_000, false));
        assert!(!share.is_due(9_999, true), "an app that waits for us has had its turn");
        share.was_away(Time::from_ns(1_000_000_000), 4_000_000);
        assert!(!share.is_due(9_999, false), "a hog");
    }

    #[test]
    fn a_core_is_crowded_when_others_want_it_again_and_again() {
        let (mut crowding, mut now) = (Crowding::new(), Time::from_ns(1_000_000));
        let mut offers = |took_ns: &[u64], apart_ns| {
            let mut offer = |&took_ns: &u64| {
                now = now + apart_ns;
                crowding.offered(now, took_ns)
            };
            took_ns.iter().map(&mut offer).filter(|&is_crowded| is_crowded).count()
        };
        assert_eq!(offers(&[5_000; 15], 250_000), 0, "not yet");
        assert_eq!(offers(&[5_000; 1], 250_000), 1);
        assert_eq!(offers(&[5_000; 32], 250_000), 2, "it begins anew");
        assert_eq!(offers(&[300; 100], 250_000), 0, "nobody wants it");
        assert_eq!(offers(&[5_000, 5_000, 300].repeat(100), 250_000), 0, "two of three times");
        assert_eq!(offers(&[5_000, 5_000, 5_000, 5_000, 300].repeat(8), 250_000), 1);
        assert_eq!(offers(&[5_000; 1000], 1_000), 0, "all within a millisecond");
        assert_eq!(offers(&[5_000; 100], 4_000_000), 0, "now and then");
        assert_eq!(offers(&[5_000; 16], 3_999_999), 1);
    }

    #[test]
    fn staying_awake_is_learnt_from_pauses() {
        let mut linger = Linger::asleep();
        linger.paused(1_000);
        assert_eq!(linger.ns(), 16_000);
        linger.paused(4_000);
        assert_eq!(linger.ns(), 16_000, "long enough");
        linger.paused(4_001);
        assert_eq!(linger.ns(), 32_000, "one a little longer would have been a sleep");
        linger.paused(100_001);
        assert_eq!(linger.ns(), 16_000);
        for expected in [32_000, 64_000, 100_000, 100_000] {
            linger.paused(100_000);
            assert_eq!(linger.ns(), expected);
        }
        for expected in [50_000, 25_000, 12_500, 0, 0] {
            linger.paused(100_001);
            assert_eq!(linger.ns(), expected);
        }
    }

    /// Six wake-ups of 50 µs are in the pauses of an echo in which everybody sleeps: if that kept
    /// everybody asleep, it would never get better.
    #[test]
    fn where_it_takes_long_to_wake_up_it_pays_to_stay_awake_for_longer() {
        assert_eq!(
            [0, 12_500, 50_000, u64::MAX].map(|ns| Linger::awake(ns).ns()),
            [100_000, 100_000, 400_000, 2_000_000]
        );
        let mut linger = Linger::awake(50_000);
        for _ in 0..6 {
            linger.paused(1_000_000);
        }
        assert_eq!(linger.ns(), 0);
        for _ in 0..6 {
            linger.paused(6 * 50_000);
        }
        assert_eq!(linger.ns(), 400_000);
        linger.set_wake_up_ns(25_000);
        assert_eq!(linger.ns(), 200_000);
        linger.set_wake_up_ns(100_000);
        assert_eq!(linger.ns(), 200_000, "until pauses show that it pays");
        for expected in [400_000, 800_000, 800_000] {
            linger.paused(600_000);
            assert_eq!(linger.ns(), expected);
        }
    }
}
