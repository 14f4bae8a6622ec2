//! A hierarchical timer wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels",
//! SOSP 1987, scheme 6): constant time to set a timer, no allocation once warm.

use crate::Time;

/// The finest step of the wheel: timers fire at most this late, never early.
const TICK_NS_LOG2: u32 = 13; // 8.192 µs
const SLOTS_LOG2: u32 = 6;
const SLOTS: usize = 1 << SLOTS_LOG2;
/// Six levels of 64 slots reach 2^(13+36) ns, six days; what is later waits in the last level.
const LEVELS: usize = 6;

/// Timers for small integer keys. There is no cancel: the owner of a key keeps its true deadline
/// and ignores, or sets again, a timer that fires too early. So a deadline that keeps moving away
/// (the usual case for loss timers) costs nothing until the first one comes due.
#[derive(Debug)]
pub struct TimerWheel {
    levels: [[Vec<Timer>; SLOTS]; LEVELS],
    /// One bit per slot that holds a timer.
    occupied: [u64; LEVELS],
    length: usize,
    /// Every timer before this tick has fired.
    tick: u64,
    /// What [`TimerWheel::next_deadline`] says: it is asked far more often than it changes.
    next: Option<Time>,
    /// Reused for timers on their way to a finer level.
    moving: Vec<Timer>,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    key: u32,
    /// When it fires; moved up when it comes down from a coarser level late.
    tick: u64,
    /// `tick` as it was set.
    name: u64,
}

const fn time_of(tick: u64) -> Time {
    Time::from_ns(tick.saturating_mul(1 << TICK_NS_LOG2))
}

impl TimerWheel {
    /// An empty wheel that starts at `now`.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            levels: core::array::from_fn(|_| core::array::from_fn(|_| Vec::new())),
            occupied: [0; LEVELS],
            length: 0,
            tick: now.as_ns() >> TICK_NS_LOG2,
            next: None,
            moving: Vec::new(),
        }
    }

    /// Fires `key` at the first [`TimerWheel::advance`] at or after `deadline`. Returns the time by
    /// which `advance` will name this timer: `deadline` rounded up to a tick.
    pub fn set(&mut self, key: u32, deadline: Time) -> Time {
        // Rounded up, so that no timer fires before its deadline.
        let tick = deadline.as_ns().div_ceil(1 << TICK_NS_LOG2).max(self.tick);
        self.insert(Timer { key, tick, name: tick });
        self.length += 1;
        self.next = self.earliest();
        time_of(tick)
    }

    /// `deadline` as the wheel knows it: rounded up to a tick.
    #[must_use]
    #[inline]
    pub const fn rounded(deadline: Time) -> Time {
        time_of(deadline.as_ns().div_ceil(1 << TICK_NS_LOG2))
    }

    /// Timers that have not fired yet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// True if no timer is set.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The time by which [`TimerWheel::advance`] is to be called next; never later than the
    /// earliest deadline rounded up to a tick. `None` if no timer is set.
    #[must_use]
    #[inline]
    pub const fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    /// When the first slot begins that holds a timer.
    fn earliest(&self) -> Option<Time> {
        let mut earliest: Option<u64> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = SLOTS_LOG2 * level as u32;
            let current = self.tick >> shift;
            let turned = self.occupied[level].rotate_right((current % SLOTS as u64) as u32);
            let slot_start = (current + u64::from(turned.trailing_zeros())) << shift;
            let due = slot_start.max(self.tick);
            earliest = Some(earliest.map_or(due, |e| e.min(due)));
        }
        earliest.map(time_of)
    }

    /// Calls `fire` with key and name (what [`TimerWheel::set`] returned) of every timer that is
    /// due at `now`.
    pub fn advance(&mut self, now: Time, fire: impl FnMut(u32, Time)) {
        self.fire_until(now, fire);
        self.next = self.earliest();
    }

    fn fire_until(&mut self, now: Time, mut fire: impl FnMut(u32, Time)) {
        let now_tick = now.as_ns() >> TICK_NS_LOG2;
        while self.tick <= now_tick {
            let slot = self.tick as usize % SLOTS;
            if self.occupied[0] & (1 << slot) != 0 {
                self.occupied[0] &= !(1 << slot);
                while let Some(timer) = self.levels[0][slot].pop() {
                    debug_assert!(timer.tick <= now_tick);
                    self.length -= 1;
                    fire(timer.key, time_of(timer.name));
                }
            }
            if self.tick == now_tick {
                return;
            }
            self.step(now_tick);
        }
    }

    /// Moves to the next tick that matters, at most `limit`, and brings timers of coarser levels
    /// down when their slot begins.
    fn step(&mut self, limit: u64) {
        let next_event = self.earliest().map_or(limit, |t| t.as_ns() >> TICK_NS_LOG2);
        self.tick = next_event.clamp(self.tick + 1, limit);
        for level in 1..LEVELS {
            let slot = (self.tick >> (SLOTS_LOG2 * level as u32)) as usize % SLOTS;
            if self.occupied[level] & (1 << slot) != 0 {
                self.occupied[level] &= !(1 << slot);
                let mut moving = std::mem::take(&mut self.moving);
                moving.append(&mut self.levels[level][slot]);
                for timer in moving.drain(..) {
                    self.insert(Timer { tick: timer.tick.max(self.tick), ..timer });
                }
                self.moving = moving;
            }
        }
    }

    fn insert(&mut self, timer: Timer) {
        for level in 0..LEVELS {
            let shift = SLOTS_LOG2 * level as u32;
            let distance = (timer.tick >> shift) - (self.tick >> shift);
            if distance < SLOTS as u64 {
                return self.put(level, (timer.tick >> shift) as usize % SLOTS, timer);
            }
        }
        let last = LEVELS - 1;
        let furthest = (self.tick >> (SLOTS_LOG2 * last as u32)) as usize + SLOTS - 1;
        self.put(last, furthest % SLOTS, timer);
    }

    fn put(&mut self, level: usize, slot: usize, timer: Timer) {
        self.levels[level][slot].push(timer);
        self.occupied[level] |= 1 << slot;
    }
}

#[cfg(test)]
mod tests {
    use super::TimerWheel;
    use crate::{Random, Time};

    #[test]
    fn fires_each_timer_once_at_or_after_its_deadline() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut now = Time::from_ns(random.below(1 << 40));
            let mut wheel = TimerWheel::new(now);
            let mut deadlines = std::collections::BTreeMap::new();
            let mut fired_late_ns = 0;
            for key in 0..400 {
                let magnitude = 10 + random.below(32);
                let deadline = now + random.below(1 << magnitude);
                wheel.set(key, deadline);
                deadlines.insert(key, deadline);
                let magnitude = 8 + random.below(22);
                let step = random.below(1 << magnitude);
                now = now + step;
                wheel.advance(now, |key, _| {
                    let deadline = deadlines.remove(&key).expect("fires once");
                    assert!(deadline <= now, "seed {seed}: fired early");
                    fired_late_ns = fired_late_ns.max(now.since(deadline).saturating_sub(step));
                });
                assert!(deadlines.values().all(|d| *d + (1 << 13) > now), "seed {seed}: missed");
            }
            while let Some(next) = wheel.next_deadline() {
                assert!(deadlines.values().min().is_some_and(|d| next <= *d + (1 << 13)));
                now = now.max(next);
                wheel.advance(now, |key, _| {
                    assert!(deadlines.remove(&key).expect("fires once") <= now);
                });
            }
            assert!(deadlines.is_empty());
            assert!(fired_late_ns <= 1 << 13);
        }
    }

    #[test]
    fn a_timer_in_the_past_fires_at_once() {
        let mut wheel = TimerWheel::new(Time::from_ns(1_000_000));
        wheel.set(3, Time::ZERO);
        let mut fired = Vec::new();
        wheel.advance(Time::from_ns(1_000_000), |key, _| fired.push(key));
        assert_eq!(fired, [3]);
        assert_eq!(wheel.next_deadline(), None);
    }
}
