//! A process that stands in for the network of a cloud, and for the NICs that it gives to its
//! machines. Each port is a memif; what connects to it sees a NIC with some queues of 256
//! descriptors, whose RSS it cannot see, and behind it a switch that loses, delays, limits and
//! reorders as it was told.
//!
//! ```text
//!  daemon, testpmd, ... ◀──memif──▶ port ──sends──▶ switch ──receives──▶ port ◀──memif──▶ ...
//!                                              (addresses)            (RSS: which queue)
//! ```
//! One thread does it all: `switch` moves the frames, `orders` are what people tell the process
//! while it runs, and here it is decided when it sleeps. What happens to a frame, and where it
//! goes, is decided in `clearway_nic::fabric`, which tests and the simulator use too. It needs no
//! privilege, and it trusts nobody who connects: a memif's peer can end its own link and no more.

use std::os::fd::BorrowedFd;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};
use clearway_engine::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use clearway_daemon::Error;
use clearway_daemon::config::Idle;

use super::config::Fabric;
use super::counters::PortCounters;
use super::orders::{Order, Orders};
use super::switch::Switch;

/// How long an adaptive fabric stays awake without a frame.
const AWAKE_NS: u64 = 50 * MICROSECOND;
/// How often orders are looked for while frames keep coming.
const ORDERS_NS: u64 = MILLISECOND;
/// Longest sleep: a memif whose peer is gone looks for it again.
const SLEEP_NS_MAX: u64 = SECOND;

/// Runs a fabric until `SIGTERM` or `SIGINT`. `report` gets the counters of all ports at every
/// interval, at each `SIGUSR1`, and at the end; an error of its ends the fabric.
pub(super) fn run<E: From<Error>>(
    config: &Fabric,
    interval_ns: Option<u64>,
    mut report: impl FnMut(&[PortCounters]) -> Result<(), E>,
) -> Result<(), E> {
    let mut orders = Orders::take().map_err(|error| Error::resources("take signals", error))?;
    let clock = Clock::new();
    let mut switch = Switch::open(config)?;
    let mut pace = Pace::new(config.idle, interval_ns, clock.now());
    loop {
        let now = clock.now();
        let is_busy = switch.turn(now);
        if pace.orders_are_due(now, is_busy) {
            for order in orders.read() {
                match order {
                    Order::End => return report(&switch.counters()),
                    Order::Report => report(&switch.counters())?,
                    Order::Change(change) => {
                        if let Err(problem) = switch.change(&change) {
                            tracing::warn!("{problem}");
                        }
                    }
                }
            }
        }
        if pace.report_is_due(now) {
            report(&switch.counters())?;
        }
        if !is_busy && pace.may_sleep(now) {
            sleep(&mut switch, &orders, &clock, &pace);
        } else if !is_busy && config.idle != Idle::Spin {
            std::thread::yield_now();
        }
    }
}

/// What is due when.
struct Pace {
    idle: Idle,
    interval_ns: Option<u64>,
    /// The last turn that moved a frame.
    busy_at: Time,
    orders_at: Time,
    report_at: Time,
}

impl Pace {
    fn new(idle: Idle, interval_ns: Option<u64>, now: Time) -> Self {
        let report_at = interval_ns.map_or(Time::MAX, |ns| now + ns);
        Self { idle, interval_ns, busy_at: now, orders_at: now, report_at }
    }

    fn orders_are_due(&mut self, now: Time, is_busy: bool) -> bool {
        if is_busy {
            self.busy_at = now;
        }
        let due = now.since(self.orders_at) >= ORDERS_NS;
        if due {
            self.orders_at = now;
        }
        due
    }

    fn report_is_due(&mut self, now: Time) -> bool {
        let due = now >= self.report_at;
        if due {
            self.report_at = self.report_at + self.interval_ns.unwrap_or(0).max(ORDERS_NS);
        }
        due
    }

    fn may_sleep(&self, now: Time) -> bool {
        match self.idle {
            Idle::Spin | Idle::Yield => false,
            Idle::Block => true,
            Idle::Adaptive => now.since(self.busy_at) >= AWAKE_NS,
        }
    }
}

/// Sleeps until a frame, an order, or the arrival of a frame that is under way.
fn sleep(switch: &mut Switch, orders: &Orders, clock: &Clock, pace: &Pace) {
    if switch.arm(clock.now()) {
        let now = clock.now();
        let until = switch.next_arrival().unwrap_or(Time::MAX).min(pace.report_at);
        let descriptors: Vec<_> = orders.descriptors().chain(switch.descriptors()).collect();
        wait(&descriptors, until.since(now).min(SLEEP_NS_MAX));
    }
    switch.disarm();
}

/// An interrupted or failed wait is a short one; the next turn finds out what there is.
fn wait(descriptors: &[BorrowedFd<'_>], ns: u64) {
    let fds = descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
    let mut fds: Vec<_> = fds.collect();
    let timeout = Timespec { tv_sec: (ns / SECOND) as i64, tv_nsec: (ns % SECOND) as i64 };
    let _ = poll(&mut fds, Some(&timeout));
}
