//! `clearway bench connect`: how long it takes to open a connection between hosts of many engines,
//! over NICs whose RSS nobody can see, and how many packets.
//!
//! ```text
//!  client app ─▶ engine 0..n ═▶ queue 0..n ─┐  in-memory fabric  ┌─ queue 0..m ═▶ engine 0..m ─▶ server app
//!      (each in turn)                       └── hidden RSS keys ─┘                      (each in turn)
//! ```
//! Apps and engines of both hosts take turns in one thread: so a pass over all engines is the time
//! in which each would have polled once, no scheduler comes between, and what is measured is the
//! work of both hosts together. It is *not* the latency of a wire, which the fabric adds only when
//! told to.
//!
//! With `--processes`, each host is a daemon with a thread for each engine, and the fabric is a
//! process too, `clearway fabric`. On few cores that measures the kernel's scheduler more than
//! anything else.
//!
//! The way through the code: [`ConnectCommand`] → `measure` (one set-up after the other) →
//! `together` and `world` (a set-up in one thread; hosts and fabric), or `processes` → `report`.

mod app;
mod measure;
mod processes;
mod report;
mod together;
mod world;

use clearway_nic::fabric::Hash;

use crate::arguments::whole;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::table::print_report;
use report::Report;

/// As many as have lanes between them.
const ENGINES_MAX: usize = 64;
/// As many queue pairs as a daemon gives a memif.
const DAEMON_ENGINES_MAX: usize = 16;

/// Open connections between hosts of many engines, over NICs with hidden RSS keys
///
/// Both hosts are in this process: their engines, each with a queue of its own, and the apps take
/// turns in one thread, over an in-memory fabric. Each set-up is between another pair of engines,
/// with new RSS keys on both sides. Time runs from the app's `connect` until the app learns that it
/// is connected; packets are all that either host sends until the wire is quiet, the last
/// acknowledgement included.
#[derive(clap::Args, Clone, Debug)]
pub struct ConnectCommand {
    /// Engines, and queues, of the host that connects.
    #[arg(long, default_value_t = 1, value_parser = whole(1..=ENGINES_MAX))]
    client_engines: usize,
    /// Engines, and queues, of the host that listens.
    #[arg(long, default_value_t = 1, value_parser = whole(1..=ENGINES_MAX))]
    server_engines: usize,
    /// Connections to open, one after the other.
    #[arg(long, default_value_t = 1000, value_parser = whole(1..=1_000_000))]
    count: usize,
    /// How both NICs choose a queue: toeplitz, symmetric, folded, swapped, ports, crc32c,
    /// no-source-port or destination.
    #[arg(long, default_value = "toeplitz", value_parser = hash)]
    rss: Hash,
    /// Frames lost, in millionths, each way.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=500_000))]
    loss_ppm: u32,
    /// Microseconds that each frame takes.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    latency_us: u32,
    /// Instead: each host a daemon, and `clearway fabric` between them, as processes on all cores.
    #[arg(long)]
    processes: bool,
    /// Decides the keys; another seed is another run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

impl ConnectCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let interrupt = Interrupt::catch()?;
        if self.processes && self.client_engines.max(self.server_engines) > DAEMON_ENGINES_MAX {
            let message = format!(
                "--processes: choose at most {DAEMON_ENGINES_MAX} engines, as many as a daemon \
                 has queues for"
            );
            return Err(Error::Options(message));
        }
        let report = Report::new(self, &measure::run(self, &interrupt)?);
        print_report(self.json, &report, || report.text())
    }
}

impl ConnectCommand {
    fn rss_name(&self) -> &'static str {
        let found = Hash::ALL.iter().find(|(_, hash)| *hash == self.rss);
        found.map_or("toeplitz", |(name, _)| name)
    }
}

fn hash(name: &str) -> Result<Hash, String> {
    let found = Hash::ALL.iter().find(|(other, _)| *other == name);
    found.map(|(_, hash)| *hash).ok_or_else(|| {
        let names: Vec<&str> = Hash::ALL.iter().map(|(name, _)| *name).collect();
        format!("choose one of {}", names.join(", "))
    })
}
