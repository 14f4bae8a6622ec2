//! What is measured between two hosts, and when: every case once, then all of them again, so that
//! what changes meanwhile changes for all.

use super::fan::{Fan, Fresh};
use super::path::Path;
use super::report::Report;
use crate::Command;
use crate::arguments::Idle;
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::load::{Client, Load, Sample, Workload};
use crate::progress::Progress;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

/// Runs of each case, where nothing else is said.
pub(super) const RUNS: usize = 3;
/// Turns between two looks for Ctrl-C.
const TURNS_PER_LOOK: u32 = 1024;

/// What is to be measured.
pub(super) struct Plan {
    /// As it was written.
    pub(super) to: String,
    /// The same as addresses, best first.
    pub(super) peers: Vec<SocketAddr>,
    pub(super) cases: Vec<Case>,
    pub(super) runs: usize,
    pub(super) seconds: f64,
    pub(super) idle: Idle,
    pub(super) socket: Option<PathBuf>,
}

/// A load on so many connections at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) load: Load,
    pub(super) connections: usize,
}

/// What a case showed in one run.
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
pub(super) fn cases(command: &Command, connections: &[usize]) -> Result<Vec<Case>, Error> {
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
                let load = command.load(workload, size)?;
                cases.push(Case { load, connections });
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
            let Load { workload, size, .. } = case.load;
            let connections = case.connections;
            progress.next(&format!("{} of {size} B by {connections}", workload.name()));
            outcomes.push(measure(plan, case, &interrupt)?);
            progress.done();
        }
    }
    Ok(Report::new(plan, &outcomes))
}

fn measure(plan: &Plan, case: &Case, interrupt: &Interrupt) -> Result<Outcome, Error> {
    let Case { load, connections } = *case;
    let mut fan = Fan::open(plan.socket.as_deref(), plan.idle, &plan.peers, &load, connections)?;
    let clients = (0..connections).map(|_| Client::new(load)).collect();
    let mut traffic = Traffic { fan: &mut fan, clients, interrupt };
    traffic.go_on(Instant::now() + load.warm_up())?;
    traffic.clients.iter_mut().for_each(Client::begin);
    traffic.go_on(Instant::now() + load.duration())?;
    let sample = Client::sample_of(&mut traffic.clients);
    Ok(Outcome { sample, paths: fan.paths()? })
}

/// The clients of all connections, in turn.
struct Traffic<'a> {
    fan: &'a mut Fan,
    clients: Vec<Client>,
    interrupt: &'a Interrupt,
}

impl Traffic<'_> {
    fn go_on(&mut self, end: Instant) -> Result<(), Error> {
        self.turns(Fresh::Any).while_("measuring")?;
        let mut turn = 0_u32;
        while Instant::now() < end {
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(TURNS_PER_LOOK) {
                self.interrupt.check()?;
            }
            let fresh = self.fan.wait().while_("measuring")?;
            self.turns(fresh).while_("measuring")?;
        }
        Ok(())
    }

    fn turns(&mut self, fresh: Fresh) -> io::Result<()> {
        let lines = match fresh {
            Fresh::Lines(lines) => lines,
            Fresh::Any => (0..self.clients.len()).collect(),
        };
        for at in lines {
            self.clients[at].turn(&mut self.fan.end(at))?;
        }
        Ok(())
    }
}
