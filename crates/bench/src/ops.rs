//! `clearway bench ops`: one-sided operations and calls, each beside what does the same without.
//!
//! ```text
//!  group of cases, round after round:  hosts as in `clearway` ── samples ──▶ medians ──▶ rows
//!  a client (`endpoint::Asker`, `Caller`, `Clearway`)  ◀── memif ──▶  memory, or an app
//! ```
//!
//! What is measured beside is of Clearway too, but for UCX and libfabric. It is *not* a comparison
//! with the kernel, which has nothing of the kind: that is `suite`.

mod cases;
mod libfabric;
mod others;
mod report;
mod ucx;

use crate::arguments::Timing;
use crate::clearway;
use crate::cpu::Cores;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::samples::Samples;
use crate::table::print_report;
use cases::{By, Case, GROUPS, Group};
use clap::builder::PossibleValuesParser;
use others::Program;
use report::Report;

/// One-sided operations and calls, beside messages that do the same, UCX and libfabric
#[derive(clap::Args, Clone, Debug)]
pub struct OpsCommand {
    #[command(flatten)]
    timing: Timing,
    /// Only these comparisons. [default: all]
    #[arg(long, value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    GROUPS.map(|group| group.name).into()
}

impl OpsCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let report = self.measure(&Interrupt::catch()?)?;
        print_report(self.json, &report, || report.text())
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<Report, Error> {
        let is_wanted = |group: &&Group| {
            self.only.is_empty() || self.only.iter().any(|name| name == group.name)
        };
        let mut groups: Vec<_> = GROUPS.iter().filter(is_wanted).collect();
        let mut notes = Vec::new();
        for program in Program::ALL {
            let needs = |group: &&Group| group.needs == Some(program);
            if groups.iter().any(needs) && !program.is_installed() {
                groups.retain(|group| !needs(group));
                notes.push(program.hint());
            }
        }
        let cases: usize = groups.iter().map(|group| group.cases.len()).sum();
        let progress = Progress::new(cases * self.timing.runs);
        let mut report = Report::new(self.timing, notes);
        for group in groups {
            self.measure_group(group, &mut report, interrupt, &progress)?;
        }
        Ok(report)
    }

    /// Round after round, each case once.
    fn measure_group(
        &self,
        group: &Group,
        report: &mut Report,
        interrupt: &Interrupt,
        progress: &Progress,
    ) -> Result<(), Error> {
        let cores = Cores::choose();
        let mut samples = Samples::new(cores, group.cases.iter().copied());
        for _ in 0..self.timing.runs {
            for &case in group.cases {
                progress.next(case.name);
                samples.take(case, || self.run_once(case, cores, interrupt))?;
                progress.done();
            }
        }
        report.add(group, &samples);
        Ok(())
    }

    fn run_once(
        &self,
        case: Case,
        cores: Cores,
        interrupt: &Interrupt,
    ) -> Result<crate::kernel::Outcome, Error> {
        let (seconds, pins) = (self.timing.seconds, case.pins(cores));
        match case.by {
            By::Clearway(exchange) => {
                clearway::run_once(&case.plan(exchange, seconds), pins, None, interrupt)
            }
            By::Ucx(test, transport) => {
                let load = (case.size, case.window);
                ucx::run_once((test, transport), load, seconds, pins, interrupt)
            }
            By::Libfabric(provider) => {
                libfabric::run_once(provider, case.size, seconds, pins, interrupt)
            }
        }
    }
}
