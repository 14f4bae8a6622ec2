//! What `clearway bench` needs of the rest: the engines of several hosts in one thread, and why a
//! host cannot be reached.

use clearway_bench::{BenchCommand, BenchHost};
use clearway_daemon::{Config, Host, run_together};
use clearway_engine::{Clock, Idle};

use crate::output::Failure;
use crate::reason;

/// Runs a benchmark.
pub(crate) fn run(command: &BenchCommand) -> Result<(), Failure> {
    command.execute().map_err(|error| reason::of_bench(command.socket(), error))
}

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
