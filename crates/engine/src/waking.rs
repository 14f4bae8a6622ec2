//! What a sleep costs on this machine: from a few microseconds, where a core that rests only waits,
//! to more than fifty, where it sleeps deeply or belongs to a virtual machine.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::read;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Sleeps that are timed, and how long each is: long enough for the core to fall asleep, too.
const SLEEPS: usize = 9;
const SLEEP: Duration = Duration::from_micros(100);
/// Of so many sleeps one is shorter than what is told, so that a machine that is busy for the
/// moment is not taken for one that wakes up slowly.
const PART: usize = 4;

/// Of so many times the shortest counts, so that a machine is not taken to be slow for having been
/// busy.
const TIMES: usize = 4;

/// What it takes on this machine until a thread runs that slept, as far as is known, for all who go
/// by it.
#[derive(Clone, Debug, Default)]
pub struct WakeUp(Arc<AtomicU64>);

impl WakeUp {
    /// How long it takes, in nanoseconds; 0 if nobody knows.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Times wake-ups, now and then, as the machine may be faster or slower later.
#[derive(Debug, Default)]
pub struct WakeUpTimer {
    wake_up: WakeUp,
    /// The last [`TIMES`] times.
    timed_ns: VecDeque<u64>,
}

impl WakeUpTimer {
    /// Times one. The thread sleeps for about a millisecond and a half.
    #[must_use]
    pub fn start() -> Self {
        let mut timer = Self::default();
        timer.time();
        timer
    }

    /// Times one more, as [`start`](Self::start) does. The shortest of the last four times counts.
    /// If none can be timed now, it is what it was.
    pub fn time(&mut self) {
        let Ok(timed_ns) = late_ns() else { return };
        if self.timed_ns.len() == TIMES {
            self.timed_ns.pop_front();
        }
        self.timed_ns.push_back(timed_ns);
        let shortest_ns = self.timed_ns.iter().min().copied().unwrap_or(0);
        self.wake_up.0.store(shortest_ns, Ordering::Relaxed);
    }

    /// What it has found out, now and later.
    #[must_use]
    pub fn wake_up(&self) -> WakeUp {
        self.wake_up.clone()
    }
}

fn late_ns() -> io::Result<u64> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let once = |after: Duration| Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() },
    };
    let mut late_ns = [0; SLEEPS];
    for late_ns in &mut late_ns {
        let begun = Instant::now();
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once(SLEEP))?;
        read(&timer, &mut [MaybeUninit::uninit(); 8])?;
        *late_ns = begun.elapsed().saturating_sub(SLEEP).as_nanos() as u64;
    }
    late_ns.sort_unstable();
    Ok(late_ns[SLEEPS / PART])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it takes is the machine's business; not even the fastest needs no time at all.
    #[test]
    fn waking_up_takes_a_while() {
        let begun = Instant::now();
        let wake_up = WakeUpTimer::start().wake_up();
        let took = begun.elapsed();
        assert!(wake_up.ns() > 0 && took >= SLEEP * SLEEPS as u32, "{wake_up:?}, {took:?}");
        assert!(Duration::from_nanos(wake_up.ns()) < took, "{wake_up:?}, {took:?}");
    }

    #[test]
    fn the_shortest_of_the_last_times_counts_for_all_who_share_it() {
        let mut timer = WakeUpTimer { timed_ns: VecDeque::from([1]), ..WakeUpTimer::default() };
        let shared = timer.wake_up();
        for _ in 1..TIMES {
            timer.time();
            assert_eq!(shared.ns(), 1, "it was shorter before");
        }
        timer.time();
        assert_eq!(Some(&shared.ns()), timer.timed_ns.iter().min());
        assert!(shared.ns() > 1);
    }
}
