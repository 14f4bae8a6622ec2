//! What was measured: medians, ratios, and whether they are as is aimed at.

use super::cases::{Case, Group, Row};
use crate::arguments::{MTU_OF_MEMIF, Timing};
use crate::kernel::Outcome;
use crate::report::{Figures, significant};
use crate::samples::{Samples, Summary};
use crate::table::{microseconds, plain_table, thousands};
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    timing: Timing,
    groups: BTreeMap<&'static str, Summary<Found>>,
    /// What the reader has to know.
    notes: Vec<&'static str>,
}

/// What was found in samples of a group that may be compared.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    /// Medians of the runs.
    cases: BTreeMap<&'static str, Figures>,
    rows: Vec<FoundRow>,
}

/// A figure, and what it is to be.
#[derive(Clone, Debug, Serialize)]
struct FoundRow {
    what: &'static str,
    /// `µs`, `µs, p99`, `per s` or `Gbit/s`.
    unit: &'static str,
    ours: f64,
    other: Option<f64>,
    /// Ours divided by the other, if there is one.
    ratio: Option<f64>,
    /// Of the ratio, if there is one.
    aim: Option<f64>,
    is_met: Option<bool>,
}

impl Report {
    pub(super) const fn new(timing: Timing, notes: Vec<&'static str>) -> Self {
        Self { timing, groups: BTreeMap::new(), notes }
    }

    pub(super) fn add(&mut self, group: &Group, samples: &Samples<Case, Outcome>) {
        let summary = samples.sum_up(|outcomes| Found::of(group, outcomes));
        self.groups.insert(group.name, summary);
    }

    pub(super) fn text(&self) -> String {
        let Timing { seconds, runs } = self.timing;
        let mut text = String::new();
        for (name, summary) in &self.groups {
            text += &format!("{name}\n{}", summary.text(Found::text));
            for note in &summary.notes {
                text += &format!("note: {note}\n");
            }
        }
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        let wire = format!("over memif (MTU {MTU_OF_MEMIF}) but where it says one host");
        text + &format!("medians of {runs} runs of {seconds} s, {wire}\n")
    }
}

impl Found {
    fn of(group: &Group, outcomes: &[(Case, Vec<&Outcome>)]) -> Self {
        let of = |(case, runs): &(Case, Vec<&Outcome>)| (case.name, Figures::of(runs));
        let cases: BTreeMap<_, _> = outcomes.iter().map(of).collect();
        let rows = group.rows.iter().map(|row| FoundRow::of(row, &cases)).collect();
        Self { cases, rows }
    }

    fn text(&self) -> String {
        let mut cases = plain_table(1, ["", "p50 µs", "p99 µs", "per s", "Gbit/s", "CPU s"]);
        for (name, figures) in &self.cases {
            cases.add_row([
                (*name).to_owned(),
                microseconds(figures.p50_ns),
                told(figures.p99_ns as f64, |_| microseconds(figures.p99_ns)),
                thousands(figures.rate_per_s),
                format!("{:.3}", figures.gbit_per_s),
                told(figures.cpu_s, |cpu_s| format!("{cpu_s:.2}")),
            ]);
        }
        let mut rows = plain_table(1, ["", "unit", "ours", "other", "ratio", "aim", "met"]);
        for row in &self.rows {
            let show = |figure: Option<f64>| figure.map_or_else(String::new, short);
            rows.add_row([
                row.what.to_owned(),
                row.unit.to_owned(),
                short(row.ours),
                show(row.other),
                show(row.ratio),
                show(row.aim),
                row.is_met.map_or("", |is_met| if is_met { "yes" } else { "no" }).to_owned(),
            ]);
        }
        format!("{cases}\n{rows}\n")
    }
}

impl FoundRow {
    fn of(row: &Row, cases: &BTreeMap<&'static str, Figures>) -> Self {
        let figure = |case: Case| row.figure.of(case, &cases[case.name]);
        let ours = figure(row.ours);
        let other = row.other.map(figure);
        let ratio = other.filter(|other| *other > 0.0).map(|other| significant(ours / other, 3));
        Self {
            what: row.what,
            unit: row.figure.name(),
            ours,
            other,
            ratio,
            aim: row.aim,
            is_met: row.aim.and_then(|aim| {
                let compared = if other.is_some() { ratio } else { Some(ours) };
                Some(row.figure.is_met(compared?, aim))
            }),
        }
    }
}

/// Programs of others tell neither tails nor processor time.
fn told(figure: f64, text: impl FnOnce(f64) -> String) -> String {
    if figure > 0.0 { text(figure) } else { "-".to_owned() }
}

/// With as many digits as mean something.
fn short(figure: f64) -> String {
    if figure < 1000.0 { format!("{figure:.2}") } else { thousands(figure) }
}

#[cfg(test)]
mod tests {
    use super::super::cases::GROUPS;
    use super::*;
    use crate::load::Sample;

    /// What a group finds if the cases of other rows take so long.
    fn found(other_ns: u64) -> Found {
        let group = GROUPS.iter().find(|group| group.name == "read").expect("there is one");
        let outcome = |p50_ns| {
            let (p99_ns, p999_ns, rate_per_s, gbit_per_s, lost) = (0, 0, 1.0, 1.0, 0);
            let sample = Sample { p50_ns, p99_ns, p999_ns, rate_per_s, gbit_per_s, lost };
            Outcome { sample, cpu_s: 0.0, cpu_s_per_gbit: 0.0 }
        };
        let row = &group.rows[0];
        let (ours, other) = (outcome(500), outcome(other_ns));
        let cases = [(row.ours, vec![&ours]), (row.other.expect("an echo"), vec![&other])];
        Found::of(group, &cases)
    }

    #[test]
    fn an_aim_of_a_ratio_is_met_by_a_ratio_only() {
        assert_eq!(found(1000).rows[0].is_met, Some(true));
        assert_eq!(found(510).rows[0].is_met, Some(false));
        assert_eq!(found(0).rows[0].is_met, None, "0.5 us is no ratio");
    }

    #[test]
    fn what_a_program_does_not_tell_is_not_shown_as_nothing() {
        let text = found(1000).text();
        let row = text.lines().find(|line| line.contains("echo")).expect("a row");
        assert!(row.contains("1.00") && row.contains(" - "), "{row}");
    }
}
