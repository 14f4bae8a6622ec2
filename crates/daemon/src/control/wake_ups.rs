//! What a wake-up takes on this machine is timed again now and then.

use std::time::{Duration, Instant};

use clearway_engine::WakeUpTimer;

use super::ControlPlane;

/// Time from one to the next. Each takes the control plane a millisecond and a half where cores are
/// free, asleep for the most part.
const PERIOD: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct WakeUps {
    timer: WakeUpTimer,
    next: Instant,
}

impl ControlPlane {
    /// Times wake-ups from now on, for engines that go by it, and for apps that attach.
    pub(crate) fn time_wake_ups(&mut self, timer: WakeUpTimer) {
        self.wake_ups = Some(WakeUps { timer, next: Instant::now() + PERIOD });
    }

    pub(super) fn advance_wake_ups(&mut self) {
        let due = self.wake_ups.as_mut().filter(|wake_ups| wake_ups.next <= Instant::now());
        let Some(WakeUps { timer, next }) = due else { return };
        timer.time();
        *next = Instant::now() + PERIOD;
        self.plane.set_wake_up_ns(timer.wake_up().ns());
    }

    pub(super) fn wake_ups_due(&self) -> Option<Instant> {
        Some(self.wake_ups.as_ref()?.next)
    }
}
