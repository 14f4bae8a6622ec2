//! `clearway sim`: whole networks of hosts in virtual time, with every kind of bad luck.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use clearway_engine::Congestion;
use clearway_sim::{Options, Summary};
use serde::Serialize;

use crate::output::{Failure, print};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,
    /// Decides everything: the network, its faults and what the apps do; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds to run, this one and those that follow it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Hosts of the network; the seed decides if not given
    #[arg(long, value_parser = hosts)]
    hosts: Option<usize>,
    /// Engines of each host; the seed decides if not given
    #[arg(long, value_parser = engines)]
    engines: Option<usize>,
    /// Minutes that the hosts have faults; a calm time follows in which everything has to end well
    #[arg(long, conflicts_with = "seconds", value_parser = positive)]
    minutes: Option<f64>,
    /// The same in seconds
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    seconds: f64,
    /// Print what each seed came to as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Measure what it takes to have many: all of flows, engines, and senders to one host, or those given
    Scale(Scale),
}

#[derive(Clone, Debug, clap::Args)]
struct Scale {
    /// Flows between two engines, in turn: what messages cost
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    flows: Vec<u64>,
    /// Engines of each of two hosts, in turn: what it takes to open a connection
    #[arg(long, value_delimiter = ',', value_parser = engines)]
    engines: Vec<usize>,
    /// Hosts that send to one, in turn: how they share its link
    #[arg(long, value_delimiter = ',', value_parser = hosts)]
    senders: Vec<usize>,
    /// Print one line of JSON for each
    #[arg(long)]
    json: bool,
}

impl Scale {
    /// What is measured if nothing is said.
    fn or_all(&self) -> Self {
        if !(self.flows.is_empty() && self.engines.is_empty() && self.senders.is_empty()) {
            return self.clone();
        }
        Self {
            flows: vec![1, 10, 100, 1_000, 10_000],
            engines: vec![1, 2, 4, 8, 16],
            senders: vec![2, 10, 100],
            json: self.json,
        }
    }
}

impl Arguments {
    fn options(&self, seed: u64) -> Options {
        let seconds = self.minutes.map_or(self.seconds, |minutes| 60.0 * minutes);
        Options {
            hosts: self.hosts,
            engines: self.engines,
            duration_ns: (seconds * 1e9) as u64,
            ..Options::new(seed)
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Task::Scale(wanted)) = &arguments.task {
        return scale(&wanted.or_all());
    }
    let first = arguments.seed.unwrap_or_else(random_seed);
    for seed in first..first.saturating_add(arguments.seeds) {
        let started = Instant::now();
        let mut shown = 0;
        let outcome = clearway_sim::run(&arguments.options(seed), &mut |percent| {
            show_progress(seed, percent, &mut shown);
        });
        clear_progress();
        match outcome {
            Ok(summary) => print(&text(arguments, &summary, started)?)?,
            Err(failure) => {
                if arguments.json {
                    print(&(serde_json::to_string(&failure).map_err(Failure::failed)? + "\n"))?;
                }
                return Err(Failure::Failed(failure.to_string()));
            }
        }
    }
    Ok(())
}

fn scale(wanted: &Scale) -> Result<(), Failure> {
    for flows in &wanted.flows {
        show(wanted, &clearway_sim::scale::flows(*flows), |cost| {
            format!(
                "{flows:>6} flows: {:.0} ns per message, {:.0} ns per connection, {} bytes per flow\n",
                cost.cpu_ns_per_message, cost.cpu_ns_per_connection, cost.memory_bytes_per_flow
            )
        })?;
    }
    for engines in &wanted.engines {
        show(wanted, &clearway_sim::scale::set_up(*engines), |cost| {
            format!(
                "{engines:>6} engines: a connection takes {} packets ({} at 95 %), {} ns ({} at 99 %), {} retries of {}\n",
                cost.packets_p50,
                cost.packets_p95,
                cost.ns_p50,
                cost.ns_p99,
                cost.retries,
                cost.connections
            )
        })?;
    }
    for senders in &wanted.senders {
        for congestion in [Congestion::Swift, Congestion::Cubic] {
            show(wanted, &clearway_sim::scale::sharing(*senders, congestion), |found| {
                format!(
                    "{senders:>6} senders, {}: goodput {:.3}, Jain {:.4}, least share {:.2}, lost {:.5}\n",
                    found.congestion, found.goodput, found.jain, found.least_share, found.lost
                )
            })?;
        }
    }
    Ok(())
}

fn show<T: Serialize>(
    wanted: &Scale,
    figures: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if wanted.json {
        return print(&(serde_json::to_string(figures).map_err(Failure::failed)? + "\n"));
    }
    print(&text(figures))
}

fn text(arguments: &Arguments, summary: &Summary, started: Instant) -> Result<String, Failure> {
    if arguments.json {
        return Ok(serde_json::to_string(summary).map_err(Failure::failed)? + "\n");
    }
    Ok(format!("{summary}  took {:.1} s\n", started.elapsed().as_secs_f64()))
}

/// On a terminal, each five percent.
fn show_progress(seed: u64, percent: u64, shown: &mut u64) {
    if percent >= *shown + 5 && std::io::stderr().is_terminal() {
        *shown = percent;
        let _ = write!(std::io::stderr(), "\rseed {seed}: {percent} %");
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// Short enough to be typed again.
fn random_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    clearway_base::Random::new(now.map_or(0, |now| now.as_nanos() as u64)).below(1_000_000_000)
}

fn hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(hosts @ 2..=10_000) => Ok(hosts),
        _ => Err("give from 2 to 10000 hosts".to_owned()),
    }
}

fn engines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(engines @ 1..=64) => Ok(engines),
        _ => Err("give from 1 to 64 engines".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value <= 1e6 => Ok(value),
        _ => Err("give a time above 0".to_owned()),
    }
}
