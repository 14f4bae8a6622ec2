//! `clearway sim scale`: what it takes to have many, by simulation, as text, as JSON and as plots.

use std::path::{Path, PathBuf};

use clearway_bench::{Bars, Series};
use clearway_engine::Congestion;
use clearway_sim::scale::{EnginesRate, Fairness, FlowCost, HostsCost, SetUp, Sharing};
use serde::Serialize;

use crate::output::{Failure, print};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Scale {
    /// Hosts that talk to some others each, in turn: what messages cost
    #[arg(long, value_delimiter = ',', value_parser = super::hosts)]
    hosts: Vec<usize>,
    /// Flows between two engines, in turn: what messages cost
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    flows: Vec<u64>,
    /// Engines of each of two hosts, in turn: what it takes to open a connection
    #[arg(long, value_delimiter = ',', value_parser = super::engines)]
    engines: Vec<usize>,
    /// Engines of each of two hosts, in turn: how many messages they carry
    #[arg(long, value_delimiter = ',', value_parser = super::engines)]
    rates: Vec<usize>,
    /// Hosts that send to one, in turn: how they share its link
    #[arg(long, value_delimiter = ',', value_parser = super::hosts)]
    senders: Vec<usize>,
    /// Flows of each of four round-trip times that share a link, in turn: what each gets
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100))]
    fairness: Vec<u64>,
    /// Print one line of JSON for each
    #[arg(long)]
    json: bool,
    /// Also draw what was measured, as SVG files in this directory
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
}

/// The round-trip times of flows that share a link, and all of them the same.
const RTTS_NS: [u64; 4] = [20_000, 100_000, 500_000, 2_000_000];
const RTTS_EQUAL_NS: [u64; 4] = [20_000; 4];
const CONTROLS: [Congestion; 2] = [Congestion::Swift, Congestion::Cubic];

impl Scale {
    /// What is measured if nothing is said.
    fn or_all(&self) -> Self {
        let counts = [&self.hosts, &self.engines, &self.rates, &self.senders].map(Vec::len);
        if counts != [0; 4] || !self.flows.is_empty() || !self.fairness.is_empty() {
            return self.clone();
        }
        Self {
            hosts: vec![2, 10, 100, 1_000],
            flows: vec![1, 10, 100, 1_000, 10_000, 100_000],
            engines: vec![1, 2, 4, 8, 16, 64],
            rates: vec![1, 2, 4, 8, 16],
            senders: vec![2, 10, 100],
            fairness: vec![1, 4],
            ..self.clone()
        }
    }

    fn show<T: Serialize>(&self, figures: &T, text: String) -> Result<(), Failure> {
        if self.json {
            return print(&(serde_json::to_string(figures).map_err(Failure::failed)? + "\n"));
        }
        print(&text)
    }

    fn draw(&self, file: &str, plot: &Bars<'_>) -> Result<(), Failure> {
        let Some(directory) = self.plots.as_ref().filter(|_| !plot.groups.is_empty()) else {
            return Ok(());
        };
        let path = directory.join(file);
        std::fs::write(&path, plot.svg()).map_err(|error| not_written(&path, &error))
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "{}: cannot write the plot: {error}; choose a directory that exists and can be written to",
        path.display()
    ))
}

pub(super) fn run(arguments: &Scale) -> Result<(), Failure> {
    let wanted = arguments.or_all();
    hosts(&wanted)?;
    flows(&wanted)?;
    engines(&wanted)?;
    rates(&wanted)?;
    senders(&wanted)?;
    fairness(&wanted)
}

fn hosts(wanted: &Scale) -> Result<(), Failure> {
    let mut costs: Vec<HostsCost> = Vec::new();
    for hosts in &wanted.hosts {
        let cost = clearway_sim::scale::hosts(*hosts);
        wanted.show(&cost, text_of_hosts(&cost))?;
        costs.push(cost);
    }
    let series = [Series {
        name: "both engines",
        values: costs.iter().map(|cost| cost.cpu_ns_per_message).collect(),
    }];
    let groups: Vec<String> = costs.iter().map(|cost| format!("{} hosts", cost.hosts)).collect();
    let title = "Time per message, by hosts of the network";
    wanted.draw("hosts.svg", &Bars { title, unit: "ns", groups: &groups, series: series.into() })
}

fn text_of_hosts(cost: &HostsCost) -> String {
    format!(
        "{:>6} hosts: {:.0} ns and {:.2} frames per message, which takes {:.1} us\n",
        cost.hosts,
        cost.cpu_ns_per_message,
        cost.frames_per_message,
        cost.latency_ns / 1e3
    )
}

fn flows(wanted: &Scale) -> Result<(), Failure> {
    let mut costs: [Vec<FlowCost>; 2] = Default::default();
    for flows in &wanted.flows {
        for (are_shared, costs) in [false, true].into_iter().zip(&mut costs) {
            let cost = clearway_sim::scale::flows(*flows, are_shared);
            wanted.show(&cost, text_of_flows(&cost))?;
            costs.push(cost);
        }
    }
    let series = |name, costs: &[FlowCost]| Series {
        name,
        values: costs.iter().map(|cost| cost.cpu_ns_per_message).collect(),
    };
    let [own, shared] = &costs;
    let series = vec![series("a flow each", own), series("shared flows", shared)];
    let groups: Vec<String> = own.iter().map(|cost| format!("{} open", cost.flows)).collect();
    let title = "Time per message, by connections of each engine";
    wanted.draw("flows.svg", &Bars { title, unit: "ns", groups: &groups, series })
}

fn text_of_flows(cost: &FlowCost) -> String {
    format!(
        "{:>6} connections with {}: {:.0} ns and {:.2} frames per message, {:.0} ns to open one\n",
        cost.flows,
        if cost.are_shared { "shared flows" } else { "a flow each" },
        cost.cpu_ns_per_message,
        cost.frames_per_message,
        cost.cpu_ns_per_connection
    )
}

fn engines(wanted: &Scale) -> Result<(), Failure> {
    let mut costs: Vec<SetUp> = Vec::new();
    for engines in &wanted.engines {
        let cost = clearway_sim::scale::set_up(*engines);
        wanted.show(&cost, text_of_engines(&cost))?;
        costs.push(cost);
    }
    let values = |figure: fn(&SetUp) -> u64| costs.iter().map(|cost| figure(cost) as f64).collect();
    let microseconds = |figure: fn(&SetUp) -> u64| {
        costs.iter().map(|cost| figure(cost) as f64 / 1e3).collect::<Vec<f64>>()
    };
    let groups: Vec<String> =
        costs.iter().map(|cost| format!("{0}\u{d7}{0}", cost.engines)).collect();
    let packets = vec![
        Series { name: "half of all", values: values(|cost| cost.packets_p50) },
        Series { name: "95 % of all", values: values(|cost| cost.packets_p95) },
    ];
    let title = "Packets to open a connection, by engines";
    wanted.draw("packets.svg", &Bars { title, unit: "", groups: &groups, series: packets })?;
    let times = vec![
        Series { name: "half of all", values: microseconds(|cost| cost.ns_p50) },
        Series { name: "99 % of all", values: microseconds(|cost| cost.ns_p99) },
    ];
    let title = "Time to open a connection, by engines";
    wanted.draw("set-up.svg", &Bars { title, unit: "us", groups: &groups, series: times })
}

fn text_of_engines(cost: &SetUp) -> String {
    format!(
        "{:>6} engines: a connection takes {} packets ({} at 95 %), {} ns ({} at 99 %); {} later \
         batches in {} connections\n",
        cost.engines,
        cost.packets_p50,
        cost.packets_p95,
        cost.ns_p50,
        cost.ns_p99,
        cost.later_batches,
        cost.connections
    )
}

/// What engines carry together, beside what one does alone.
#[derive(Serialize)]
struct Rate {
    #[serde(flatten)]
    found: EnginesRate,
    /// The rate of each engine, to that of one alone: 1 is linear.
    each_to_one: f64,
}

fn rates(wanted: &Scale) -> Result<(), Failure> {
    if wanted.rates.is_empty() {
        return Ok(());
    }
    let one = clearway_sim::scale::engines(1);
    for engines in &wanted.rates {
        let found = if *engines == 1 { one } else { clearway_sim::scale::engines(*engines) };
        let each_to_one = found.rate_per_s / *engines as f64 / one.rate_per_s;
        let text = format!(
            "{engines:>6} engines: {:.2} million messages/s, each {each_to_one:.3} of one alone; \
             {:.2} frames per message\n",
            found.rate_per_s / 1e6,
            found.frames_per_message
        );
        wanted.show(&Rate { found, each_to_one }, text)?;
    }
    Ok(())
}

fn senders(wanted: &Scale) -> Result<(), Failure> {
    let mut all: Vec<Sharing> = Vec::new();
    for senders in &wanted.senders {
        for control in CONTROLS {
            let found = clearway_sim::scale::sharing(*senders, control);
            let text = format!(
                "{senders:>6} senders, {}: goodput {:.3}, Jain {:.4}, least share {:.2}, lost \
                 {:.5}\n",
                found.congestion, found.goodput, found.jain, found.least_share, found.lost
            );
            wanted.show(&found, text)?;
            all.push(found);
        }
    }
    let groups: Vec<String> =
        wanted.senders.iter().map(|senders| format!("{senders} to 1")).collect();
    let of = |control: Congestion, figure: fn(&Sharing) -> f64| {
        let of_control = all.iter().filter(|found| found.congestion == control.name());
        of_control.map(|found| 100.0 * figure(found)).collect()
    };
    let [swift, cubic] = CONTROLS;
    let series = vec![
        Series { name: "swift: goodput", values: of(swift, |found| found.goodput) },
        Series { name: "cubic: goodput", values: of(cubic, |found| found.goodput) },
        Series { name: "swift: least share", values: of(swift, |found| found.least_share) },
        Series { name: "cubic: least share", values: of(cubic, |found| found.least_share) },
    ];
    let title = "Incast: goodput of the link, and least share of an equal one";
    wanted.draw("incast.svg", &Bars { title, unit: "%", groups: &groups, series })
}

fn fairness(wanted: &Scale) -> Result<(), Failure> {
    let mut all: Vec<Fairness> = Vec::new();
    for flows in &wanted.fairness {
        for rtts_ns in [RTTS_EQUAL_NS, RTTS_NS] {
            for control in CONTROLS {
                let found = clearway_sim::scale::fairness(&rtts_ns, *flows as usize, control);
                wanted.show(&found, text_of_fairness(&found))?;
                all.push(found);
            }
        }
    }
    let flows = wanted.fairness.last().copied().unwrap_or_default();
    let drawn = all.iter().filter(|found| found.flows_each as u64 == flows);
    let series = drawn
        .filter(|found| found.rtts_ns == RTTS_NS)
        .map(|found| Series {
            name: found.congestion,
            values: found.shares.iter().map(|share| 100.0 * share).collect(),
        })
        .collect();
    let groups: Vec<String> =
        RTTS_NS.iter().map(|rtt_ns| format!("{} us", rtt_ns / 1000)).collect();
    let groups = if wanted.fairness.is_empty() { Vec::new() } else { groups };
    let title = "Part of an equal share of one link, by round-trip time";
    wanted.draw("fairness.svg", &Bars { title, unit: "%", groups: &groups, series })
}

fn text_of_fairness(found: &Fairness) -> String {
    let rtts: Vec<String> = found.rtts_ns.iter().map(|ns| (ns / 1000).to_string()).collect();
    let shares: Vec<String> = found.shares.iter().map(|share| format!("{share:.2}")).collect();
    let joining =
        found.joining_ns.map_or("never".to_owned(), |ns| format!("{} ms", ns / 1_000_000));
    format!(
        "{} flows each of {} us, {}: goodput {:.3}, queue {:.0} us ({:.0} us at 99 %), Jain {:.4} \
         ({:.4} in 10 ms), shares {}, the last joins in {joining}\n",
        found.flows_each,
        rtts.join(", "),
        found.congestion,
        found.goodput,
        found.queue_ns as f64 / 1e3,
        found.queue_p99_ns as f64 / 1e3,
        found.jain,
        found.jain_10ms,
        shares.join(", ")
    )
}
