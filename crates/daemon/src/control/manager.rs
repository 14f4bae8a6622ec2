//! What the service manager is told: that the daemon is ready, still alive, and about to end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::groups::GroupSource;
use super::{BROKER, ControlPlane, GROUPS};
use crate::Error;
use crate::broker::{Broker, Order};

/// The broker, by which the manager is told, and when it is told next.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) broker: Broker,
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
        Self { broker, watchdog }
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

    /// The broker is no more: what it alone can do is not done any more.
    pub(super) fn lose_broker(&mut self, error: &std::io::Error) {
        if self.manager.take().is_some() {
            tracing::error!(
                %error,
                "the broker has gone: of users that the policy names by group only those who are \
                 known may attach, memif clients do not connect again, and nothing is reloaded; \
                 restart the daemon"
            );
        }
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
