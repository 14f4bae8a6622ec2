//! The deadlines of a connection.

use clearway_base::Time;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// RFC 6298: nothing has been acknowledged for too long.
    Retransmit,
    /// RFC 8985, section 7: a tail loss probe is due.
    TailProbe,
    /// RFC 8985, section 6.2: what is reordered counts as lost from then on.
    Reorder,
    /// RFC 9293, section 3.8.6.1: a zero window is to be probed.
    Persist,
    /// An acknowledgement has waited long enough.
    AckDelay,
    /// The connection is idle, or a probe of it is not answered.
    KeepAlive,
    /// FIN-WAIT-2 has lasted long enough.
    Close,
    /// The next segments may leave.
    Pace,
    /// RFC 8899: a larger packet may be tried, or has been.
    Path,
}

/// In the order in which they are served that are due at the same time. Indexes are those of the
/// enum.
const TIMERS: [Timer; 9] = [
    Timer::TailProbe,
    Timer::Retransmit,
    Timer::Reorder,
    Timer::Persist,
    Timer::AckDelay,
    Timer::KeepAlive,
    Timer::Close,
    Timer::Pace,
    Timer::Path,
];

/// All deadlines; `Time::MAX` where there is none.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    deadlines: [Time; TIMERS.len()],
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Self { deadlines: [Time::MAX; TIMERS.len()] }
    }

    #[inline]
    pub(crate) const fn set(&mut self, timer: Timer, deadline: Time) {
        self.deadlines[timer as usize] = deadline;
    }

    #[inline]
    pub(crate) const fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = Time::MAX;
    }

    #[inline]
    pub(crate) const fn get(&self, timer: Timer) -> Time {
        self.deadlines[timer as usize]
    }

    #[inline]
    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer) != Time::MAX
    }

    pub(crate) fn stop_all(&mut self) {
        self.deadlines = [Time::MAX; TIMERS.len()];
    }

    #[inline]
    pub(crate) fn earliest(&self) -> Time {
        self.deadlines.iter().copied().min().unwrap_or(Time::MAX)
    }

    /// One that is due at `now`; it is stopped.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Timer> {
        let timer = TIMERS.into_iter().find(|timer| self.get(*timer) <= now)?;
        self.stop(timer);
        Some(timer)
    }
}
