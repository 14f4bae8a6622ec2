//! A group: engines that share one thread and one idle strategy.

use std::time::Duration;

use clearway_base::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::engine::{Engine, Turn};
use crate::idle::{Idle, Idler, Step, Told};
use crate::waking::WakeUp;

/// A sleep never lasts longer, so that a queue without a descriptor to wait on is served at all.
const SLEEP_NS_MAX: u64 = 1_000_000_000;

/// How often an engine looks whether someone whose ring was full, an app or the control plane, has
/// read some of it.
const ROOM_NS: u64 = 1_000_000;

/// How often the numbers on an engine's board are made new while it is awake; one that sleeps wakes
/// up after [`SLEEP_NS_MAX`].
const PUBLISH_NS: u64 = 100_000_000;

/// After so long without a whole turn, [`Group::send`] is one: some round trips of a fast network.
const WHOLE_TURN_NS: u64 = 10_000;

/// The clock of a host: monotonic, read once per turn. It is the processor's time-stamp counter
/// where that is reliable, and the kernel's monotonic clock elsewhere.
#[derive(Clone, Debug)]
pub struct Clock {
    clock: quanta::Clock,
    epoch: u64,
}

impl Clock {
    /// A clock that starts now. Takes some milliseconds to measure the counter's rate.
    #[must_use]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let epoch = clock.raw();
        Self { clock, epoch }
    }

    /// The time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_ns(self.clock.delta_as_nanos(self.epoch, self.clock.raw()))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs engines in turn on the calling thread until all of them have been shut down.
#[derive(Debug)]
pub struct Group {
    engines: Vec<Engine>,
    idle: Idle,
    wake_up: WakeUp,
    clock: Clock,
    /// When the last whole turn began.
    turned: Time,
}

impl Group {
    /// A group of `engines`, made with times of `clock`.
    #[must_use]
    pub fn new(engines: Vec<Engine>, idle: Idle, clock: Clock) -> Self {
        Self { engines, idle, wake_up: WakeUp::default(), clock, turned: Time::ZERO }
    }

    /// The same for who knows what a wake-up takes: how long `Adaptive` stays awake follows from
    /// it, and changes with it within a second.
    #[must_use]
    pub fn with_wake_up(self, wake_up: WakeUp) -> Self {
        Self { wake_up, ..self }
    }

    /// Runs. Returns when every engine has ended.
    pub fn run(mut self) {
        let mut idler = Idler::new(self.idle, self.wake_up.ns(), self.clock.now());
        let mut publish = Time::ZERO;
        self.look_where();
        while !self.engines.is_empty() {
            let now = self.clock.now();
            let all = self.turn_at(now);
            if now >= publish {
                self.engines.iter().for_each(|engine| engine.publish(now));
                idler.set_wake_up_ns(self.wake_up.ns());
                publish = now + PUBLISH_NS;
            }
            if all.is_busy {
                let told = match (all.told_apps, all.told_neighbour) {
                    (_, true) => Told::Neighbour,
                    (true, false) => Told::Others,
                    (false, false) => Told::Nobody,
                };
                idler.was_busy(now, told);
            }
            self.engines.retain(|engine| !engine.has_ended());
            let hands_over = all.told_neighbour && all.is_empty;
            if all.is_busy && !hands_over || self.engines.is_empty() {
                continue;
            }
            let step = if hands_over { idler.hand_over(now) } else { idler.step(now) };
            match step {
                // No `pause`: hypervisors take a tight loop of them for a spinning lock and step
                // in.
                Step::Spin => {}
                Step::Yield => {
                    let before = self.clock.now();
                    std::thread::yield_now();
                    idler.yielded(before, self.clock.now());
                    self.look_where();
                }
                Step::Sleep => {
                    self.sleep(None);
                    self.look_where();
                }
            }
        }
    }

    /// A thread that gave its core away may go on on another.
    fn look_where(&mut self) {
        let processor = clearway_channel::current_processor();
        for engine in &mut self.engines {
            engine.runs_on(processor);
        }
    }

    /// One turn of each engine, for whoever runs them itself.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.turn_at(self.clock.now())
    }

    /// For whoever runs the engines itself and has just given them commands: sends what they want
    /// sent. That is less than a turn, and an app that answers what it receives waits for it; but
    /// it is a whole one if the last is some time ago, so that an app that only sends is served,
    /// too.
    #[inline]
    pub fn send(&mut self) {
        self.send_at(self.clock.now());
    }

    /// The same for whoever has a time of its own.
    #[inline]
    pub fn send_at(&mut self, now: Time) {
        if now.since(self.turned) >= WHOLE_TURN_NS {
            self.turn_at(now);
            return;
        }
        for engine in &mut self.engines {
            engine.send(now);
        }
    }

    /// True if all engines have been shut down.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.engines.iter().all(Engine::has_ended)
    }

    /// The same as [`Group::turn`] for whoever has a time of its own.
    #[inline]
    pub fn turn_at(&mut self, now: Time) -> Turn {
        self.turned = now;
        let mut all = Turn { is_empty: true, ..Turn::default() };
        for engine in &mut self.engines {
            let turn = engine.turn(now);
            all.is_busy |= turn.is_busy;
            all.told_apps |= turn.told_apps;
            all.told_neighbour |= turn.told_neighbour;
            all.is_empty &= turn.is_empty;
        }
        all
    }

    /// Sleeps until something happens, a timer is due, or `at_most` has passed.
    pub fn sleep(&mut self, at_most: Option<Duration>) {
        let woken = self.engines.iter_mut().all(Engine::arm) && self.wait(at_most);
        for engine in &mut self.engines {
            engine.disarm();
            if woken {
                engine.take_doorbells();
            }
        }
    }

    /// True if something happened.
    fn wait(&self, at_most: Option<Duration>) -> bool {
        let deadline = self.engines.iter().filter_map(Engine::next_timeout).min();
        let now = self.clock.now();
        let longest_ns =
            if self.engines.iter().any(Engine::waits_for_room) { ROOM_NS } else { SLEEP_NS_MAX };
        let longest_ns =
            at_most.map_or(longest_ns, |at_most| longest_ns.min(at_most.as_nanos() as u64));
        let wait_ns = deadline.map_or(longest_ns, |deadline| deadline.since(now).min(longest_ns));
        if wait_ns == 0 {
            return false;
        }
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        let mut fds: Vec<PollFd<'_>> = self
            .engines
            .iter()
            .map(|engine| PollFd::new(engine.sleep_fd(), PollFlags::IN))
            .collect();
        // An interrupted or failed wait is a short one; the next turn finds out what there is.
        poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }
}
