//! `clearway fabric`.

mod config;
mod counters;
mod network;
mod orders;
mod port;
mod switch;

use std::fmt::Write as _;
use std::path::PathBuf;

use clearway_daemon::Error;
use clearway_daemon::config::{Idle, Log, Problems};

use config::Fabric;
use counters::{Met, PortCounters};

use crate::output::{Failure, lines, print, table};

/// A network of memif ports with the NICs of a cloud: some queues of 256 descriptors each, RSS with
/// a key that nobody sees, a switch between them, and whatever happens to frames on the way.
///
/// Each port is a memif, server unless told otherwise. It takes the same keys in the file and
/// behind --port: role, queues, mtu_bytes, mac (learned if not given), rss (toeplitz, symmetric,
/// folded, swapped, ports, crc32c, no-source-port, destination), rss_table_entries, rss_shuffled;
/// and, under sends. and receives., what happens to frames that come from the port and that go to
/// it: loss_ppm, burst_start_ppm, burst_end_ppm, burst_loss_ppm, duplication_ppm, corruption_ppm,
/// reordering_ppm, reordering_frames_max, latency_ns, jitter_ns, delay_ppm, delay_ns_max,
/// rate_bits_per_s, rate_queue_bytes, rate_mark_bytes, slow_path_frames_per_s,
/// slow_path_latency_ns, slow_path_queue_frames, slow_path_connections_max.
///
/// While it runs, it takes orders on standard input: `rekey [PORT]`, `link PORT up|down`, `cut FROM
/// TO`, `mend FROM TO`, `counters`, `end`. SIGUSR1 is `counters`, SIGUSR2 is `rekey`, SIGTERM and
/// SIGINT are `end`.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A file with `[[port]]` sections
    #[arg(long, value_name = "FILE", required_unless_present = "port")]
    config: Option<PathBuf>,
    /// A port; may be given several times, and besides a file
    #[arg(long, value_name = "NAME=SOCKET[,KEY=VALUE]...")]
    port: Vec<String>,
    /// Decides keys and faults [default: the file's, or drawn by chance]
    #[arg(long)]
    seed: Option<u64>,
    /// Print the counters this often; without it, only at the end and when told to
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// Print the counters as JSON, one line each time
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let fabric = fabric(arguments)?;
    clearway_daemon::log::start(&Log::default());
    let interval_ns = arguments.interval.map(|seconds| u64::from(seconds) * 1_000_000_000);
    network::run(&fabric, interval_ns, |ports| {
        print(&if arguments.json { json(ports) } else { text(ports) })
    })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::failed(error)
    }
}

fn fabric(arguments: &Arguments) -> Result<Fabric, Failure> {
    let usage = |problems: Problems| Failure::Usage(problems.to_string());
    let mut fabric = match &arguments.config {
        Some(file) => Fabric::load(file).map_err(usage)?,
        None => Fabric { seed: None, idle: Idle::default(), ports: Vec::new() },
    };
    for port in &arguments.port {
        fabric.add(port).map_err(usage)?;
    }
    fabric.seed = arguments.seed.or(fabric.seed);
    Ok(fabric)
}

fn json(ports: &[PortCounters]) -> String {
    serde_json::to_string(ports).expect("counters are plain data") + "\n"
}

fn text(ports: &[PortCounters]) -> String {
    let titles = ["port", "#queues", "#from it", "#to it", "#full", "#down", "spread", "peer"];
    let mut table = table(&titles);
    for port in ports {
        let spread = port.queues.iter().map(|queue| queue.sent_frames.to_string());
        table.add_row([
            port.name.clone(),
            port.queues_up.to_string(),
            port.received_frames.to_string(),
            port.sent_frames.to_string(),
            port.dropped_full.to_string(),
            port.dropped_down.to_string(),
            spread.collect::<Vec<_>>().join("/"),
            port.peer.clone(),
        ]);
    }
    let mut text = lines(&table);
    for port in ports {
        for (what, met) in [("from it", &port.sends), ("to it", &port.receives)] {
            let met = met_text(met);
            if !met.is_empty() {
                let _ = writeln!(text, "{}, frames {what}: {met}", port.name);
            }
        }
    }
    text
}

fn met_text(met: &Met) -> String {
    let named = met.named();
    let some = named.iter().filter(|(_, frames)| *frames > 0);
    some.map(|(name, frames)| format!("{frames} {name}")).collect::<Vec<_>>().join(", ")
}
