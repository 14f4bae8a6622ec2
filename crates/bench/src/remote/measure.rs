//! What is measured between two hosts, and when: every case once, then all of them again, so that
//! what changes meanwhile changes for all.

use super::fan::Fan;
use super::path::Path;
use super::report::Report;
use crate::Command;
use crate::arguments::Idle;
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::lines::LOOK;
use crate::load::{Client, Load, Sample, Workload};
use crate::many;
use crate::progress::Progress;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Runs of each case, where nothing else is said.
pub(super) const RUNS: usize = 3;

/// What is to be measured.
pub(super) struct Plan {
    /// As it was written.
    pub(super) to: String,
    /// The same as addresses, best first.
    pub(super) peers: Vec<SocketAddr>,
    pub(super) cases: Vec<Load>,
    pub(super) runs: usize,
    pub(super) seconds: f64,
    pub(super) idle: Idle,
    pub(super) socket: Option<PathBuf>,
}

/// What a load showed in one run.
pub(super) struct Outcome {
    pub(super) sample: Sample,
    /// How its packets travelled, here and there.
    pub(super) paths: [Path; 2],
}

/// The choice of all: workload, sizes, connections.
const CHOICE: [(Workload, &[usize], &[usize]); 3] = [
    (Workload::Rtt, &[64, 1024, 8192, 65_536], &[1]),
    (Workload::Rate, &[64, 1024], &[1, 16]),
    (Workload::Stream, &[8192, 65_536, 1 << 20], &[1]),
];

/// The cases that a command asks for. What it does not say is taken from the choice of all.
pub(super) fn cases(command: &Command, connections: &[usize]) -> Result<Vec<Load>, Error> {
    let mut cases = Vec::new();
    for (workload, sizes, at_once) in CHOICE {
        if command.workload.is_some_and(|wanted| wanted != workload) {
            continue;
        }
        let given = |given: &[usize], choice: &[usize]| {
            if given.is_empty() { choice.to_vec() } else { given.to_vec() }
        };
        for size in given(&command.size, sizes) {
            for connections in given(connections, at_once) {
                cases.push(command.load(workload, size, connections)?);
            }
        }
    }
    Ok(cases)
}

/// Measures everything.
pub(super) fn run(plan: &Plan) -> Result<Report, Error> {
    let interrupt = Interrupt::catch()?;
    let progress = Progress::new(plan.runs * plan.cases.len());
    let mut outcomes: Vec<Vec<Outcome>> = plan.cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.runs {
        for (case, outcomes) in plan.cases.iter().zip(&mut outcomes) {
            let Load { workload, size, connections, .. } = case;
            progress.next(&format!("{} of {size} B by {connections}", workload.name()));
            outcomes.push(measure(plan, case, &interrupt)?);
            progress.done();
        }
    }
    Ok(Report::new(plan, &outcomes))
}

fn measure(plan: &Plan, load: &Load, interrupt: &Interrupt) -> Result<Outcome, Error> {
    let mut fan = Fan::open(plan.socket.as_deref(), plan.idle, &plan.peers, load)?;
    let mut clients: Vec<_> = (0..load.connections).map(|_| Client::new(*load)).collect();
    go_on(&mut fan, &mut clients, load.warm_up(), interrupt)?;
    clients.iter_mut().for_each(Client::begin);
    go_on(&mut fan, &mut clients, load.duration(), interrupt)?;
    let sample = Client::sample_of(&mut clients);
    Ok(Outcome { sample, paths: fan.paths()? })
}

/// All clients are at work for so long.
fn go_on(
    fan: &mut Fan,
    clients: &mut [Client],
    duration: Duration,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        interrupt.check()?;
        let until = end.min(Instant::now() + LOOK);
        many::go_on(&mut fan.lines, clients, until).while_("measuring")?;
    }
    Ok(())
}
