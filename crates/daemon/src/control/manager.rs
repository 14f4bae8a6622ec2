//! What the service manager is told: that the daemon is ready, still alive, and about to end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use clearway_channel::Code;
use clearway_channel::control::Reply;

use super::groups::GroupSource;
use super::requests::refusal;
use super::{BROKER, ControlPlane, GROUPS};
use crate::Error;
use crate::broker::{Broker, Order, Reread};

/// Of a configuration, to whoever wants it read.
pub(super) const NOT_READ: &str = "the process beside this daemon that reads its configuration has \
                                   gone; restart the daemon";

/// The broker, by which the manager is told, and when it is told next.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) broker: Broker,
    /// How often it was told to read the configuration, and how often it has, one after the other.
    rereads_ordered: u64,
    rereads_done: u64,
    watchdog: Option<Watchdog>,
}

/// The manager restarts a daemon of which it has not heard for twice this time.
#[derive(Debug)]
struct Watchdog {
    period: Duration,
    next: Instant,
}

impl Manager {
    fn new(broker: Broker) -> Self {
        let watchdog = watchdog_period().map(|period| Watchdog { period, next: Instant::now() });
        Self { broker, rereads_ordered: 0, rereads_done: 0, watchdog }
    }

    /// Has the configuration read again. Returns which time that is; `None` if the broker takes no
    /// orders.
    pub(super) fn order_reread(&mut self) -> Option<u64> {
        let is_told = self.broker.tell(Order::Reread);
        self.rereads_ordered += u64::from(is_told);
        is_told.then_some(self.rereads_ordered)
    }

    /// The configuration that the broker has read, if it is there yet, and which time that was.
    pub(super) fn next_reread(&mut self) -> std::io::Result<Option<(u64, Reread)>> {
        let Some(reread) = self.broker.reread()? else { return Ok(None) };
        self.rereads_done += 1;
        Ok(Some((self.rereads_done, reread)))
    }
}

/// sd_watchdog_enabled(3): half of `WATCHDOG_USEC`, if that is meant for this process.
fn watchdog_period() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    let is_ours = variable("WATCHDOG_PID").is_none_or(|id| id == std::process::id().to_string());
    let us: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    is_ours.then(|| Duration::from_micros(us / 2))
}

impl ControlPlane {
    /// What this process may not do itself, the broker does from now on. Before
    /// [`ControlPlane::run`].
    pub(crate) fn serve_by(&mut self, broker: Broker) -> Result<(), Error> {
        self.watch(broker.groups.as_fd(), GROUPS)
            .and_then(|()| self.watch(broker.as_fd(), BROKER))
            .map_err(|error| Error::resources("wait for the broker", error))?;
        self.group_source = GroupSource::Broker;
        self.manager = Some(Manager::new(broker));
        Ok(())
    }

    pub(super) fn order(&self, order: Order) {
        if let Some(manager) = &self.manager {
            manager.broker.tell(order);
        }
    }

    /// The broker is no more: what it alone can do is not done any more. Whoever waits for it is
    /// told.
    pub(super) fn lose_broker(&mut self, error: &std::io::Error) {
        if self.manager.take().is_none() {
            return;
        }
        tracing::error!(
            %error,
            "the broker has gone: with a policy that names groups only root and the daemon's own \
             user may attach, memif clients do not connect again, and nothing is reloaded; restart \
             the daemon"
        );
        self.lose_groups();
        self.answer_reload(u64::MAX, &Reply::Error(refusal(Code::DaemonGone, NOT_READ)));
    }

    /// Says that the daemon is alive, when it is time to, and unless an engine has stopped taking
    /// requests.
    pub(super) fn advance_watchdog(&mut self) {
        let now = Instant::now();
        let watchdog = self.manager.as_mut().and_then(|manager| manager.watchdog.as_mut());
        let Some(watchdog) = watchdog.filter(|watchdog| watchdog.next <= now) else { return };
        watchdog.next = now + watchdog.period;
        let period = watchdog.period;
        let engines = self.plane.engines().iter().zip(&self.mailboxes);
        let mut running = engines.filter(|(engine, _)| !engine.has_ended);
        match running.find(|(_, mailbox)| mailbox.has_waited(now) > period) {
            None => self.order(Order::Alive),
            Some((engine, _)) => {
                let engine = &engine.name;
                tracing::error!(
                    engine,
                    "the engine takes no requests; see what holds its thread up"
                );
            }
        }
    }

    pub(super) fn watchdog_due(&self) -> Option<Instant> {
        Some(self.manager.as_ref()?.watchdog.as_ref()?.next)
    }
}
