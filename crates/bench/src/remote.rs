//! `clearway bench --to` and `--serve`: what the running daemons of two hosts carry, over the
//! network that there is. Nothing is started, pinned or set up for it, so that the figures are
//! those of the two hosts as they are.
//!
//! ```text
//!  bench --to                                                        bench --serve
//!  a Client per connection ─▶ Fan ═▶ daemon ═══ network ═══ daemon ═▶ Crowd ─▶ Server
//!        │ (load.rs)           │ what each daemon says of the connection │     (load.rs)
//!        └─▶ report.rs ◀── path.rs ◀──────────────────────────────── path.rs
//! ```
//!
//! The way through the code: [`Remote`] → `measure` (what runs when) → `fan` (the client's end of
//! all connections) → `crowd` (the server's) → `report`. What both say to each other beside the
//! load is in `ask`.

mod ask;
mod crowd;
mod fan;
mod measure;
mod path;
mod report;
#[cfg(test)]
mod tests;

use crate::arguments::{Idle, whole};
use crate::error::Error;
use clearway_client::{ListenAddress, resolve};
use std::path::PathBuf;

pub use fan::Echo;

/// The service port of `clearway bench --serve`, where nothing else is said.
pub const BENCH_PORT: u16 = 5001;

/// What is said of hosts that the command makes itself. Each option stands here, those that need
/// `--tcp` too: clap no longer misses what an option needs where that is in conflict with another.
const OF_OWN_HOSTS: [&str; 11] = [
    "wire",
    "layout",
    "app",
    "c_app",
    "tcp",
    "in_place",
    "kernel_end",
    "compare",
    "mtu",
    "kernel_plain",
    "kernel_only",
];

/// Between the running daemons of two hosts.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Remote {
    /// Measure to `clearway bench --serve` on another host, over the running daemons of both. A
    /// host is a name or an address; the port is 5001 unless given. Without a workload, a choice
    /// of all is measured.
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        conflicts_with_all = OF_OWN_HOSTS
    )]
    pub to: Option<String>,
    /// Answer those who measure to this host, until Ctrl-C.
    #[arg(
        long,
        value_name = "[ADDRESS:]PORT",
        num_args = 0..=1,
        default_missing_value = "5001",
        conflicts_with_all = OF_OWN_HOSTS,
        conflicts_with_all = [
            "to", "workload", "size", "window", "connections", "seconds", "runs", "json"
        ]
    )]
    pub serve: Option<String>,
    /// Connections at the same time, each with a window of its own; with `--to`, several numbers
    /// if you like. [default: 1, and 16 in the choice of all]
    #[arg(long, value_delimiter = ',', value_parser = whole(1..=CONNECTIONS_MAX))]
    pub connections: Vec<usize>,
    /// With `--to` or `--serve`: control socket of the local daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// More of one program measure that program only.
const CONNECTIONS_MAX: usize = 1024;

impl Remote {
    /// Serves or measures, if that is what is asked for.
    pub(crate) fn execute(&self, command: &crate::Command) -> Option<Result<(), Error>> {
        let idle = command.idle.unwrap_or(Idle::Adaptive);
        if let Some(at) = &self.serve {
            return Some(self.serve(at, idle));
        }
        self.to.as_ref().map(|to| self.measure(to, idle, command))
    }

    fn serve(&self, at: &str, idle: Idle) -> Result<(), Error> {
        let at = at.parse::<ListenAddress>().map_err(|error| Error::Options(error.to_string()))?;
        crowd::serve(self.socket.as_deref(), idle, at)
    }

    fn measure(&self, to: &str, idle: Idle, command: &crate::Command) -> Result<(), Error> {
        let peers = resolve(to, BENCH_PORT).map_err(|error| Error::Options(error.to_string()))?;
        let plan = measure::Plan {
            to: to.to_owned(),
            peers,
            cases: measure::cases(command, &self.connections)?,
            runs: command.runs.unwrap_or(measure::RUNS),
            seconds: command.seconds,
            idle,
            socket: self.socket.clone(),
        };
        let report = measure::run(&plan)?;
        crate::table::print_report(command.json, &report, || report.text())
    }
}
