//! How calls wait: spinning, yielding, sleeping, until something comes, time is up, or the daemon
//! is gone.

use std::time::{Duration, Instant};

use clearway_base::{CoreShare, Crowding, Linger, Time};
use clearway_channel::{Code, current_processor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::host::Host;
use crate::place;
use crate::{Awaited, Channel, Error, Waiting};

/// After so long without an answer the daemon is told of what else the app has for it.
const PATIENCE: Duration = Duration::from_micros(20);
/// Looks between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// How often a call that does not sleep asks whether the daemon lives.
const LIFE_CHECK: Duration = Duration::from_millis(10);
/// How often a call looks for what other threads have given back while an embedded engine sleeps
/// for it, by which nobody can wake it.
const RETURNS_LOOK: Duration = Duration::from_millis(1);
/// Calls that found nothing, between two of those that also look at the clock.
const CALLS_PER_CLOCK: u32 = 1024;

/// When the channel last looked whether the daemon lives.
pub(crate) struct LifeCheck {
    last: Instant,
    calls: u32,
}

impl LifeCheck {
    pub(crate) fn new() -> Self {
        Self { last: Instant::now(), calls: 0 }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.last) >= LIFE_CHECK;
        if due {
            self.last = now;
        }
        due
    }
}

/// What `Adaptive` has learnt from the waits of a channel so far.
pub(crate) struct Habits {
    /// When the times of `share` begin.
    epoch: Instant,
    share: CoreShare,
    crowding: Crowding,
    linger: Linger,
}

impl Habits {
    /// `wake_up_ns`: what it takes until a thread runs that slept.
    pub(crate) fn new(wake_up_ns: u64) -> Self {
        let (share, crowding) = (CoreShare::new(), Crowding::new());
        Self { epoch: Instant::now(), share, crowding, linger: Linger::awake(wake_up_ns) }
    }

    /// Others had the core from `before` until `after`.
    fn was_away(&mut self, before: Instant, after: Instant) {
        self.share.was_away(self.time(after), elapsed_ns(before, after));
    }

    /// The same where the engine runs on another core. True if this thread had better run there,
    /// too.
    fn was_crowded(&mut self, before: Instant, after: Instant) -> bool {
        self.crowding.offered(self.time(after), elapsed_ns(before, after))
    }

    /// Whether to look if the core is crowded before sleeping.
    fn asks_crowd(&self, now: Instant) -> bool {
        self.crowding.is_due(self.time(now)) && !self.spares_yield(now)
    }

    fn spares_yield(&self, now: Instant) -> bool {
        self.share.spares_yield(self.time(now))
    }

    fn time(&self, at: Instant) -> Time {
        Time::from_ns(elapsed_ns(self.epoch, at))
    }
}

/// The state of one waiting call.
struct Wait {
    begun: Instant,
    awaited: Awaited,
    deadline: Option<Instant>,
    looks: u32,
    /// Since when `Adaptive` has kept the core.
    held_since: Instant,
    /// When it last looked at the clock, or had the core back.
    looked_at: Instant,
    /// The engine cannot run before it gets this core.
    engine_is_here: bool,
}

/// An error if a call is not to wait, and what it is for takes a while in any case: it would be
/// given up as soon as it is begun, each time. `instead` is what begins it and what tells the end,
/// where there is such.
#[inline]
pub(crate) fn check_may_wait(
    timeout: Option<Duration>,
    instead: Option<(&str, &str)>,
) -> Result<(), Error> {
    if timeout == Some(Duration::ZERO) { Err(takes_a_while(instead)) } else { Ok(()) }
}

#[cold]
fn takes_a_while(instead: Option<(&str, &str)>) -> Error {
    let instead = instead
        .map(|(begins, tells)| format!(", or begin by {begins} and hear of the end by {tells}"));
    let message = format!(
        "this takes a while, and nothing was begun since the call is not to wait; give it time{}",
        instead.unwrap_or_default()
    );
    Error::Declined { code: Code::WouldBlock, message }
}

impl Channel {
    /// Repeats `attempt` until it gives something. `None` waits for ever, zero not at all.
    #[inline]
    pub(crate) fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        awaited: Awaited,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        if let Some(found) = attempt(self)? {
            return Ok(found);
        }
        if timeout == Some(Duration::ZERO) {
            self.count_idle_call()?;
            return Err(Error::WouldBlock);
        }
        self.wait_longer(timeout, awaited, attempt)
    }

    #[inline(never)]
    fn wait_longer<T>(
        &mut self,
        timeout: Option<Duration>,
        awaited: Awaited,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        if self.vifs.any_unflushed() {
            self.submit_bursts();
        }
        let begun = Instant::now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        let engine_is_here = self.engine_is_here();
        let (looks, held_since, looked_at) = (0, begun, begun);
        let mut wait =
            Wait { begun, awaited, deadline, looks, held_since, looked_at, engine_is_here };
        let result = loop {
            if let Err(error) = self.pause(&mut wait) {
                break Err(error);
            }
            if let Some(result) = attempt(self).transpose() {
                break result;
            }
        };
        if self.waiting == Waiting::Adaptive {
            self.habits.linger.paused(begun.elapsed().as_nanos() as u64);
        }
        match result {
            Err(Error::TimedOut { waited, .. }) => {
                Err(Error::TimedOut { awaited: self.name_peer(awaited), waited })
            }
            result => result,
        }
    }

    /// Says where this app waits. Whether the engine runs on this very processor, as far as is
    /// known.
    fn engine_is_here(&mut self) -> bool {
        !self.host.is_embedded() && self.end.meet(current_processor())
    }

    /// For callers that look again and again by themselves, at whatever pace: what they have given
    /// back the daemon is told of at once, since peers may wait for it, and sometimes they do what
    /// a waiting call would do.
    #[inline]
    fn count_idle_call(&mut self) -> Result<(), Error> {
        self.end.flush();
        self.life_check.calls += 1;
        if self.life_check.calls.is_multiple_of(CALLS_PER_CLOCK) {
            self.take_returns();
            self.check_life(Instant::now())?;
        }
        Ok(())
    }

    /// Between two looks.
    fn pause(&mut self, wait: &mut Wait) -> Result<(), Error> {
        wait.looks += 1;
        match self.waiting {
            Waiting::Block => return self.sleep(wait),
            Waiting::Yield => std::thread::yield_now(),
            // An engine that takes its turn here takes long enough.
            Waiting::Spin | Waiting::Adaptive if self.host.is_embedded() => {}
            Waiting::Spin | Waiting::Adaptive => std::hint::spin_loop(),
        }
        let is_wanted = wait.engine_is_here || self.habits.share.is_shared();
        let is_eager = self.waiting == Waiting::Adaptive && is_wanted;
        if !is_eager && !wait.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            return Ok(());
        }
        let now = Instant::now();
        let waited = now.saturating_duration_since(wait.begun);
        if waited > PATIENCE {
            self.take_returns();
            self.submit_bursts();
        }
        self.check_time(wait, now)?;
        self.check_life(now)?;
        if self.waiting == Waiting::Adaptive { self.adapt(wait, now) } else { Ok(()) }
    }

    /// One step of `Adaptive`: keeps the core, lets others have it, or sleeps.
    fn adapt(&mut self, wait: &mut Wait, now: Instant) -> Result<(), Error> {
        let has_lingered = elapsed_ns(wait.begun, now) >= self.habits.linger.ns();
        if self.host.is_embedded() {
            return if has_lingered { self.sleep(wait) } else { Ok(()) };
        }
        let asks_crowd = !wait.engine_is_here && self.habits.asks_crowd(now);
        if has_lingered && !asks_crowd {
            return self.sleep(wait);
        }
        if CoreShare::is_gap(elapsed_ns(wait.looked_at, now)) {
            self.habits.was_away(wait.looked_at, now);
        }
        wait.looked_at = now;
        let held_ns = elapsed_ns(wait.held_since, now);
        let is_due =
            wait.engine_is_here || has_lingered || self.habits.share.is_due(held_ns, false);
        if !is_due {
            return Ok(());
        }
        if self.habits.spares_yield(now) {
            return self.sleep(wait);
        }
        std::thread::yield_now();
        let after = Instant::now();
        self.habits.was_away(now, after);
        (wait.held_since, wait.looked_at) = (after, after);
        wait.engine_is_here = self.engine_is_here();
        if !wait.engine_is_here && self.habits.was_crowded(now, after) {
            self.join_engine(wait);
        }
        Ok(())
    }

    /// Moves this thread to the core of its engine.
    fn join_engine(&mut self, wait: &mut Wait) {
        if let Some(processor) = self.end.engine_processor() {
            place::move_to(processor);
            wait.engine_is_here = self.engine_is_here();
        }
    }

    /// Sleeps until the daemon rings, or ends, or another thread gives something back, or time is
    /// up; or until an embedded engine has something to do.
    fn sleep(&mut self, wait: &mut Wait) -> Result<(), Error> {
        // `Adaptive` looks at the ring once after each wake-up and sleeps again.
        wait.looks = LOOKS_PER_CLOCK - 1;
        let now = Instant::now();
        self.check_time(wait, now)?;
        // What the ring had no room for when the call began to wait.
        let has_sent = self.leaves_no_burst();
        if self.host.is_embedded() {
            self.sleep_embedded(wait, now);
            return Ok(());
        }
        if self.ring_room_wanted > 0 || self.has_unwanted() || !has_sent {
            // Nobody rings for room. If there is some by now, who waits for it looks before it
            // sleeps.
            self.look_for_ring_room();
            self.close_unwanted();
            std::thread::yield_now();
            return self.check_life(now);
        }
        let has_more_room = self.expect_returns();
        let sleeps = !has_more_room && self.end.arm();
        let result = if sleeps { self.sleep_armed(wait, now) } else { Ok(false) };
        self.end.disarm();
        wait.looked_at = Instant::now();
        if result? { self.look_at_session() } else { Ok(()) }
    }

    fn sleep_embedded(&mut self, wait: &Wait, now: Instant) {
        // Before the look at what has come back: the last may come back just then.
        let look = self.end.has_lent().then_some(RETURNS_LOOK);
        if self.take_returns() {
            return;
        }
        let left = wait.deadline.map(|deadline| deadline.saturating_duration_since(now));
        if let Host::Embedded(engine) = &mut self.host {
            engine.sleep(left.into_iter().chain(look).min());
        }
    }

    /// True if the control connection has something to say.
    fn sleep_armed(&self, wait: &Wait, now: Instant) -> Result<bool, Error> {
        let timeout =
            wait.deadline.map(|deadline| timespec(deadline.saturating_duration_since(now)));
        let doorbell = self.end.doorbell();
        let control = self.host.descriptor().unwrap_or(doorbell);
        let mut waiting = [doorbell, control, self.end.owner_bell()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // The last only if it may be rung.
        let count = 2 + usize::from(self.end.hears_of_returns());
        match poll(&mut waiting[..count], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!waiting[1].revents().is_empty()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn check_time(&self, wait: &Wait, now: Instant) -> Result<(), Error> {
        match wait.deadline {
            Some(deadline) if now >= deadline => {
                let waited = deadline.saturating_duration_since(wait.begun);
                Err(Error::TimedOut { awaited: wait.awaited, waited })
            }
            _ => Ok(()),
        }
    }

    /// Asks whether the daemon lives, if it is time to.
    fn check_life(&mut self, now: Instant) -> Result<(), Error> {
        if self.life_check.is_due(now) { self.look_at_session() } else { Ok(()) }
    }

    /// Takes note of the daemon's end. What it had put into the ring before is still received:
    /// only an empty ring makes it an error (`Channel::next_arrival`).
    pub(crate) fn look_at_session(&mut self) -> Result<(), Error> {
        if self.gone.is_none()
            && let Err(error) = self.host.check()
        {
            self.gone = Some((error.code(), error.to_string()));
        }
        Ok(())
    }
}

fn elapsed_ns(since: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(since).as_nanos() as u64
}

/// A duration for the kernel.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
