//! `clearway bench flight`: how much of a stream is in flight where each app shares its core with
//! its engine, beside what the path takes; that is, whether the wait for a core is taken for a
//! queue in the network.
//!
//! ```text
//!  core 0: client's app and daemon   core 1: server's app and daemon        beside: kernel TCP
//!          │  ▲ status, every 5 ms: bytes in flight, window                    ─▶ its rate
//!          │  └ before: probes of one packet ─▶ the lowest round trip
//!          └ stream ─▶ rate
//!  the path takes: the better of both rates × the lowest round trip
//! ```
//!
//! What is in flight at one's own rate is that rate times the round trip as it is (Little's law):
//! it is never less than the rate times the lowest one. So the figure that says something is that
//! of the rate that the path is known to carry.

mod daemon;
mod report;

use crate::apps::Exchange;
use crate::arguments::{Idle, Layout, MTU_OF_MEMIF, Plan, Timing, Wire};
use crate::clearway::{Hosts, run_apps, start_hosts};
use crate::contender::Contender;
use crate::cpu::{Cores, Pins};
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::kernel;
use crate::load::{Load, Workload};
use crate::namespace;
use crate::progress::Progress;
use crate::samples::{Report, Samples};
use crate::table::print_report;
use crate::veth::VethPair;
use clap::builder::PossibleValuesParser;
use daemon::Daemon;
use report::{Flight, Found, report};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a message, and how many are under way.
const MESSAGE_BYTES: usize = 32 << 10;
const WINDOW: usize = 8;
/// MTU of the veth pair.
const MTU_OF_VETH: u16 = 1500;
/// Between two looks at what is in flight.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes of a stream in flight, to what the path takes, where app and engine share a core
#[derive(clap::Args, Clone, Debug)]
pub struct FlightCommand {
    #[command(flatten)]
    timing: Timing,
    /// What joins the hosts, in turn. A veth pair needs root.
    #[arg(long, value_delimiter = ',', default_values = WIRES,
        value_parser = PossibleValuesParser::new(WIRES))]
    wire: Vec<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

const WIRES: [&str; 2] = ["memif", "veth"];

impl FlightCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        namespace::enter();
        let report = self.measure(&Interrupt::catch()?)?;
        print_report(self.json, &report, || report.text(Found::text))
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<Report<Found>, Error> {
        if !rustix::process::geteuid().is_root() {
            let message = "it makes network namespaces, which on this machine only root may; run \
                           it as root";
            return Err(Error::Options(message.into()));
        }
        let veth = VethPair::create(MTU_OF_VETH, interrupt)?;
        let (wires, cores) = (self.wires(), Cores::choose());
        let progress = Progress::new(self.timing.runs * wires.len());
        let mut flights = Samples::new(cores, wires.iter().copied());
        for _ in 0..self.timing.runs {
            for &wire in &wires {
                progress.next(&format!("{wire:?}"));
                let plan = plan(wire, self.timing.seconds);
                flights
                    .take(wire, || run_once(&plan, cores.pins(plan.layout), &veth, interrupt))?;
                progress.done();
            }
        }
        Ok(report(self.timing, &flights))
    }

    /// Each once.
    fn wires(&self) -> Vec<Wire> {
        let of = |name: &str| if name == "veth" { Wire::Veth } else { Wire::Memif };
        let mut wires = Vec::new();
        for wire in self.wire.iter().map(|name| of(name)) {
            if !wires.contains(&wire) {
                wires.push(wire);
            }
        }
        wires
    }
}

fn plan(wire: Wire, seconds: f64) -> Plan {
    Plan {
        load: Load {
            workload: Workload::Stream,
            size: MESSAGE_BYTES,
            window: WINDOW,
            connections: 1,
            seconds,
        },
        wire,
        layout: Layout::Hosts,
        idle: Idle::Yield,
        server_idle: Idle::Yield,
        exchange: Exchange::Messages,
        c_app: None,
        kernel_end: None,
        mtu: if wire.is_veth() { MTU_OF_VETH } else { MTU_OF_MEMIF },
        kernel_plain: false,
        contenders: Vec::new(),
        runs: 1,
        notes: Vec::new(),
    }
}

/// Clearway, and then the kernel, each once.
fn run_once(
    plan: &Plan,
    pins: Pins,
    veth: &VethPair,
    interrupt: &Interrupt,
) -> Result<Flight, Error> {
    let directory = Directory::create().while_("making a directory for sockets")?;
    let wire = Some(veth).filter(|_| plan.wire.is_veth());
    let mut hosts = start_hosts(plan, pins, wire, &directory, interrupt)?;
    let flight = fly(plan, pins, &hosts, interrupt);
    for process in &mut hosts.processes {
        process.terminate();
    }
    let flight = flight?;
    let kernel = kernel::run_once(Contender::TcpSpin, plan.load, pins, Some(veth), interrupt)?;
    Ok(Flight { kernel_gbit_per_s: kernel.sample.gbit_per_s, ..flight })
}

fn fly(plan: &Plan, pins: Pins, hosts: &Hosts, interrupt: &Interrupt) -> Result<Flight, Error> {
    let socket = &hosts.client.socket;
    let daemon = Daemon::connect(socket).while_("connecting to a daemon")?;
    let packet_bytes = plan.mtu - IP_AND_UDP_BYTES;
    let to = hosts.server.address.ip();
    let round_trip_ns =
        daemon.round_trip_ns_least(to, packet_bytes).while_("probing the other host")?;
    let is_over = AtomicBool::new(false);
    let (outcome, ended, looks) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look(socket, &is_over));
        let outcome = run_apps(plan, pins, hosts, interrupt);
        let ended = Instant::now();
        is_over.store(true, Ordering::Relaxed);
        (outcome, ended, looking.join())
    });
    // If both have failed, this is why: the daemons are ended by Ctrl-C, too.
    let outcome = outcome?;
    let looks = looks.map_err(|_| io::Error::other("a thread panicked")).flatten();
    let looks = looks.while_("asking a daemon for its flows")?;
    let during = looks.into_iter().filter(|look| look.at + plan.load.duration() > ended);
    let during: Vec<_> = during.collect();
    let mean = |figure: fn(&Look) -> u64| {
        let sum: u64 = during.iter().map(figure).sum();
        sum as f64 / during.len().max(1) as f64
    };
    Ok(Flight {
        gbit_per_s: outcome.sample.gbit_per_s,
        kernel_gbit_per_s: 0.0,
        round_trip_ns,
        in_flight_bytes: mean(|look| look.in_flight_bytes),
        window_bytes: mean(|look| look.window_bytes),
        looks: during.len(),
    })
}

/// What a packet has in front of a probe, without options.
const IP_AND_UDP_BYTES: u16 = 28;

/// What a daemon says of the stream.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    in_flight_bytes: u64,
    window_bytes: u64,
}

/// Looks every now and then until it is over.
fn look(socket: &Path, is_over: &AtomicBool) -> io::Result<Vec<Look>> {
    let daemon = Daemon::connect(socket)?;
    let mut looks = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let status = daemon.status()?;
        let engines = status["engines"].as_array().into_iter().flatten();
        let mut flows = engines.flat_map(|engine| engine["flows"].as_array().into_iter().flatten());
        if let Some(flow) = flows.find(|flow| flow["path"] == "wire" && flow["state"] == "open") {
            let number = |key: &str| flow[key].as_u64().unwrap_or(0);
            looks.push(Look {
                at: Instant::now(),
                in_flight_bytes: number("in_flight_bytes"),
                window_bytes: number("congestion_window_bytes"),
            });
        }
        std::thread::sleep(LOOK);
    }
    Ok(looks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_that_is_named_twice_is_measured_once() {
        let wire = ["veth", "memif", "veth"].map(str::to_owned).to_vec();
        let command = FlightCommand { timing: Timing { seconds: 1.0, runs: 1 }, wire, json: false };
        assert_eq!(command.wires(), [Wire::Veth, Wire::Memif]);
    }
}
