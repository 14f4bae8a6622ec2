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
    /// None of them is before it. Whoever asks after each segment is not to look at all of them.
    bound: Time,
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Self { deadlines: [Time::MAX; TIMERS.len()], bound: Time::MAX }
    }

    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, deadline: Time) {
        self.deadlines[timer as usize] = deadline;
        self.bound = self.bound.min(deadline);
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
        *self = Self::new();
    }

    /// No later than the earliest. It is before that if that one was stopped or has moved away,
    /// until [`Timers::take_due`] finds nothing.
    #[inline]
    pub(crate) const fn bound(&self) -> Time {
        self.bound
    }

    /// One that is due at `now`; it is stopped.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Timer> {
        let due = TIMERS.into_iter().find(|timer| self.get(*timer) <= now);
        match due {
            Some(timer) => self.stop(timer),
            None => self.bound = self.deadlines.iter().copied().min().unwrap_or(Time::MAX),
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_exact_when_nothing_is_due() {
        let at = Time::from_ns;
        let mut timers = Timers::new();
        timers.set(Timer::Retransmit, at(10));
        timers.set(Timer::AckDelay, at(5));
        timers.stop(Timer::AckDelay);
        assert_eq!(timers.bound(), at(5));
        assert_eq!((timers.take_due(at(5)), timers.bound()), (None, at(10)));
        timers.set(Timer::Retransmit, at(20));
        assert_eq!((timers.take_due(at(10)), timers.bound()), (None, at(20)));
        assert_eq!(timers.take_due(at(20)), Some(Timer::Retransmit));
        assert_eq!((timers.take_due(at(20)), timers.bound()), (None, Time::MAX));
    }
}
