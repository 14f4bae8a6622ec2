//! What was found, for programs and for people.

use super::measure::{Outcome, Plan};
use super::path::Path;
use crate::arguments::Idle;
use crate::load::Load;
use crate::load::Sample;
use crate::samples::Figure;
use crate::table::{microseconds, plain_table, thousands};
use serde::Serialize;
use std::fmt::Write as _;

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    to: String,
    runs: usize,
    seconds: f64,
    idle: Idle,
    /// How packets of the first connection travelled at this end: one way, unless that changed.
    here: Vec<Path>,
    /// And at the other.
    there: Vec<Path>,
    cases: Vec<Row>,
    notes: Vec<String>,
}

/// The medians of a case over all runs.
#[derive(Clone, Debug, Serialize)]
struct Row {
    workload: &'static str,
    size: usize,
    window: usize,
    connections: usize,
    p50_ns: f64,
    p99_ns: f64,
    p999_ns: f64,
    rate_per_s: f64,
    gbit_per_s: f64,
    /// The least and the most of the runs' medians.
    spread_p50_ns: [f64; 2],
}

impl Report {
    /// Sums up the runs of each case.
    pub(super) fn new(plan: &Plan, outcomes: &[Vec<Outcome>]) -> Self {
        let cases = plan.cases.iter().zip(outcomes).map(|(case, outcomes)| row(case, outcomes));
        let paths = |end: usize| distinct(outcomes.iter().flatten().map(|run| &run.paths[end]));
        let [here, there] = [0, 1].map(paths);
        Self {
            to: plan.to.clone(),
            runs: plan.runs,
            seconds: plan.seconds,
            idle: plan.idle,
            notes: notes(&plan.cases, [&here, &there]),
            here,
            there,
            cases: cases.collect(),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let header = [
            "",
            "bytes",
            "connections",
            "window",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "messages/s",
            "Gbit/s",
            "spread µs",
        ];
        let mut table = plain_table(1, header);
        for row in &self.cases {
            let [least, most] = row.spread_p50_ns.map(show);
            table.add_row([
                row.workload.to_owned(),
                row.size.to_string(),
                row.connections.to_string(),
                row.window.to_string(),
                show(row.p50_ns),
                show(row.p99_ns),
                show(row.p999_ns),
                thousands(row.rate_per_s),
                format!("{:.3}", row.gbit_per_s),
                format!("{least}..{most}"),
            ]);
        }
        let mut text = String::new();
        for (end, paths) in [("here", &self.here), ("there", &self.there)] {
            for path in paths {
                let _ = writeln!(text, "{end}: {}", path.text());
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let (runs, seconds) = (self.runs, self.seconds);
        let _ = write!(
            text,
            "{table}\nto {}; medians of {runs} runs of {seconds:.2} s; spread: least to most of \
             p50",
            self.to
        );
        text
    }
}

/// What the reader has to know of the paths at both ends.
pub(super) fn notes(cases: &[Load], paths: [&[Path]; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    if cases.iter().any(|case| case.connections > 1) {
        notes.push("of several connections, the path is that of the first".to_owned());
    }
    if paths.iter().any(|paths| paths.len() > 1) {
        notes.push("the path has changed meanwhile; the figures are of all together".to_owned());
    }
    notes
}

fn row(load: &Load, outcomes: &[Outcome]) -> Row {
    let of =
        |figure: fn(&Sample) -> f64| Figure::of(outcomes.iter().map(|run| figure(&run.sample)));
    let p50 = of(|sample| sample.p50_ns as f64);
    Row {
        workload: load.workload.name(),
        size: load.size,
        window: load.window,
        connections: load.connections,
        p50_ns: p50.median,
        p99_ns: of(|sample| sample.p99_ns as f64).median,
        p999_ns: of(|sample| sample.p999_ns as f64).median,
        rate_per_s: of(|sample| sample.rate_per_s).median,
        gbit_per_s: of(|sample| sample.gbit_per_s).median,
        spread_p50_ns: p50.range,
    }
}

/// The paths that differ in more than the size of packets, each with the largest of it.
fn distinct<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<Path> {
    let mut distinct: Vec<Path> = Vec::new();
    for path in paths {
        match distinct.iter_mut().find(|other| other.is_like(path)) {
            Some(same) => same.packet_bytes = same.packet_bytes.max(path.packet_bytes),
            None => distinct.push(path.clone()),
        }
    }
    distinct
}

fn show(ns: f64) -> String {
    microseconds(ns.round() as u64)
}
