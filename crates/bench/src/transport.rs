//! `clearway bench transport`: the quality of the message transport over links that are simulated,
//! so that it is the same on every machine: goodput over lossy links, queues, small messages beside
//! large ones, incast, an outage, and fairness; each for every congestion control there is.
//!
//! Only `clearway_transport` runs here, in virtual time, as fast as it goes. Engines, NICs and apps
//! are not simulated: see `clearway sim` for whole hosts, and the other benchmarks for the cost of
//! a message.
//!
//! ```text
//! traffic.rs: what apps send ──────────────┐
//! clearway_world: rate, queue, loss, time ─┴▶ world.rs ─▶ scenarios.rs ─▶ report.rs
//! ```

mod report;
mod scenarios;
#[cfg(test)]
mod tests;
mod traffic;
mod world;

use clearway_base::{MICROSECOND, MILLISECOND};
use clearway_transport::Congestion;
use clearway_world::Faults;

use crate::error::Error;
use report::Outcome;
use scenarios::{GBIT, PathShape};
use world::Bottleneck;

/// Simulate links: goodput, queues, fairness and recovery of each congestion control
#[derive(clap::Args, Clone, Debug)]
pub struct TransportCommand {
    /// Only this congestion control: swift or cubic. [default: both]
    #[arg(long, value_parser = Congestion::ALL.map(Congestion::name))]
    congestion: Option<String>,
    /// Only this scenario.
    #[arg(long, value_parser = SCENARIOS)]
    scenario: Option<String>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

const SCENARIOS: [&str; 6] = ["goodput", "faults", "small", "incast", "outage", "sharing"];

impl TransportCommand {
    /// Runs it and prints what comes out.
    pub fn execute(&self) -> Result<(), Error> {
        let mut outcomes = Vec::new();
        for scenario in SCENARIOS {
            if self.scenario.as_deref().is_none_or(|only| only == scenario) {
                self.run(scenario, &mut outcomes);
            }
        }
        if self.json {
            let json = serde_json::to_string(&outcomes).expect("numbers and names are JSON");
            return crate::table::print(&json);
        }
        crate::table::print(&report::text(&outcomes))
    }

    fn run(&self, scenario: &str, outcomes: &mut Vec<Outcome>) {
        let wanted = |control: &Congestion| {
            self.congestion.as_deref().is_none_or(|only| only == control.name())
        };
        for (cases, control) in
            Congestion::ALL.into_iter().filter(wanted).map(|control| (cases(scenario), control))
        {
            outcomes.extend(cases.into_iter().map(|case| case(control)));
        }
    }
}

type Case = Box<dyn Fn(Congestion) -> Outcome>;

fn path(gbit: u64, rtt_ns: u64) -> PathShape {
    PathShape { bits_per_s: gbit * GBIT, rtt_ns }
}

fn cases(scenario: &str) -> Vec<Case> {
    match scenario {
        "goodput" => goodput(),
        "faults" => faults(),
        "small" => small(),
        "incast" => vec![
            Box::new(|control| scenarios::incast(control, path(10, 20 * MICROSECOND), 100)),
            Box::new(|control| scenarios::incast(control, path(25, 20 * MICROSECOND), 100)),
            Box::new(|control| scenarios::incast(control, path(10, 20 * MICROSECOND), 400)),
        ],
        "outage" => vec![
            Box::new(|control| scenarios::outage(control, path(10, 50 * MICROSECOND))),
            Box::new(|control| scenarios::outage(control, path(10, MILLISECOND))),
            Box::new(|control| scenarios::outage(control, path(10, 20 * MILLISECOND))),
        ],
        _ => sharing(),
    }
}

fn goodput() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for bits_per_s in [GBIT / 10, GBIT, 10 * GBIT, 25 * GBIT] {
        for rtt_ns in [50 * MICROSECOND, MILLISECOND, 20 * MILLISECOND] {
            for loss_ppm in [0, 1_000, 10_000, 50_000] {
                cases.push(Box::new(move |control| {
                    let (faults, case) = scenarios::random_loss(loss_ppm);
                    let path = PathShape { bits_per_s, rtt_ns };
                    scenarios::goodput(control, path, path.link(faults), case)
                }));
            }
        }
    }
    cases
}

fn faults() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for rtt_ns in [50 * MICROSECOND, MILLISECOND] {
        let path = path(10, rtt_ns);
        let late = Faults { delay_ppm: 20_000, delay_ns_max: rtt_ns, ..Faults::default() };
        let interruptions = (500, 24 * MICROSECOND);
        let bursts = Bottleneck { interruptions, ..path.link(Faults::default()) };
        for (link, case) in [
            (path.link(late), "2 % late by up to a round trip"),
            (bursts, "bursts of 24 us lost, 1 % in all"),
        ] {
            cases.push(Box::new(move |control| {
                scenarios::goodput(control, path, link, case.to_owned())
            }));
        }
    }
    cases
}

fn small() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (streams, same_host, marks) in
        [(1, false, false), (1, true, false), (4, false, false), (1, false, true), (4, false, true)]
    {
        cases.push(Box::new(move |control| {
            let path = path(10, 20 * MICROSECOND);
            scenarios::beside_streams(control, path, streams, same_host, marks)
        }));
    }
    cases
}

fn sharing() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (rtts_ns, case) in [
        (vec![50 * MICROSECOND; 2], "2 of 50 us"),
        (vec![50 * MICROSECOND; 8], "8 of 50 us"),
        (vec![MILLISECOND; 2], "2 of 1 ms"),
        (vec![MILLISECOND; 8], "8 of 1 ms"),
        (vec![50 * MICROSECOND, 500 * MICROSECOND], "50 and, later, 500 us"),
        (vec![500 * MICROSECOND, 50 * MICROSECOND], "500 and, later, 50 us"),
    ] {
        cases.push(Box::new(move |control| scenarios::sharing(control, 10 * GBIT, &rtts_ns, case)));
    }
    cases
}
