//! What `clearway bench` needs of the daemon: the engines of several hosts in one thread.

use clearway_bench::BenchHost;
use clearway_daemon::{Config, Host, run_together};
use clearway_engine::{Clock, Idle};

/// Opens each host in its network namespace and runs all engines on this thread until `SIGTERM`.
pub(crate) fn run_engines(places: Vec<BenchHost>) -> Result<(), String> {
    let clock = Clock::new();
    let (mut hosts, mut idle) = (Vec::new(), Idle::default());
    for place in places {
        place.enter_namespace().map_err(|error| error.to_string())?;
        let config = Config::load(&place.config).map_err(|error| error.to_string())?;
        clearway_daemon::log::start(&config.log);
        idle = config.nics.first().map_or(idle, |nic| nic.idle);
        hosts.push(Host::open(&config, &clock).map_err(|error| error.to_string())?);
    }
    run_together(hosts, idle, clock).map_err(|error| error.to_string())
}
