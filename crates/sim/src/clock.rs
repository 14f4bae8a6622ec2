//! A host's own clock: it started at its own moment, runs a little too fast or too slow, and steps
//! now and then: forward (a virtual machine that was suspended), or back (one that goes on
//! elsewhere, from a snapshot).

use clearway_base::Time;

const PPM: u128 = 1_000_000;

/// Turns the world's time into a host's, and back.
#[derive(Clone, Debug)]
pub(crate) struct HostClock {
    world: Time,
    local: Time,
    /// Nanoseconds of the host in a million of the world's.
    rate: u128,
}

impl HostClock {
    /// A clock that shows `local` when the world's shows `world`, and drifts by `drift_ppm`.
    pub(crate) fn new(world: Time, local: Time, drift_ppm: i32) -> Self {
        Self { world, local, rate: PPM.saturating_add_signed(i128::from(drift_ppm)) }
    }

    /// What it shows.
    pub(crate) fn now(&self, world: Time) -> Time {
        self.local + (u128::from(world.since(self.world)) * self.rate / PPM) as u64
    }

    /// The first moment of the world at which it shows `local` or later.
    pub(crate) fn world_time(&self, local: Time) -> Time {
        if local == Time::MAX {
            return Time::MAX;
        }
        self.world + (u128::from(local.since(self.local)) * PPM).div_ceil(self.rate) as u64
    }

    /// Goes forward by `ns` at once.
    pub(crate) fn step_forward(&mut self, world: Time, ns: u64) {
        self.local = self.now(world) + ns;
        self.world = world;
    }

    /// Goes back by `ns` at once.
    pub(crate) fn step_back(&mut self, world: Time, ns: u64) {
        self.local = self.now(world) - ns;
        self.world = world;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_is_never_early_and_hardly_late() {
        for drift_ppm in [-200, 0, 3, 200] {
            let mut clock =
                HostClock::new(Time::from_ns(1_000), Time::from_ns(5_000_000), drift_ppm);
            clock.step_forward(Time::from_ns(2_000), 77);
            for local in [5_000_000, 5_001_100, 9_999_999, 1 << 50] {
                let local = Time::from_ns(local).max(clock.now(Time::from_ns(2_000)));
                let shown = clock.now(clock.world_time(local));
                assert!(shown >= local && shown.since(local) <= 1, "{local:?} {shown:?}");
            }
        }
    }
}
