//! What was measured: medians and ratios, for programs and for people.

use super::Setting;
use crate::table::{microseconds, plain_table, thousands};
use serde::Serialize;
use std::collections::BTreeMap;

/// What one run of one setting showed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    /// Answers per second.
    pub(super) per_s: f64,
    /// What the flood moved, warm-up included.
    pub(super) flood_gbit_per_s: f64,
}

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    seconds: f64,
    runs: usize,
    /// Medians of the runs.
    settings: BTreeMap<&'static str, Outcome>,
    /// The time of each setting divided by that of the app alone.
    p99_ratio: BTreeMap<&'static str, f64>,
    notes: Vec<&'static str>,
}

impl Report {
    pub(super) fn new(
        seconds: f64,
        runs: usize,
        outcomes: &[(Setting, Outcome)],
        is_shared: bool,
    ) -> Self {
        let of = |setting: Setting| {
            let of_setting = outcomes.iter().filter(|(other, _)| *other == setting);
            let of_setting: Vec<Outcome> = of_setting.map(|(_, outcome)| *outcome).collect();
            (setting.name(), median(&of_setting))
        };
        let settings: BTreeMap<_, _> = Setting::ALL.map(of).into();
        let alone_ns = settings[Setting::Alone.name()].p99_ns.max(1) as f64;
        let ratio =
            |(name, outcome): (&&'static str, &Outcome)| (*name, outcome.p99_ns as f64 / alone_ns);
        let p99_ratio = settings.iter().map(ratio).collect();
        let mut notes = vec![
            "64 B there and back over memif, one at a time; core 0: both its apps and engines, in turn",
            "the flood: messages of 8 KiB one way, 64 under way; its apps on core 1, its engines there (isolated) or on core 0 (shared)",
        ];
        if is_shared {
            notes.push("only one core may be used: both threads share it, and nothing is isolated");
        }
        Self { seconds, runs, settings, p99_ratio, notes }
    }

    pub(super) fn text(&self) -> String {
        let header =
            ["setting", "p50", "p99", "p99.9", "answers/s", "flood Gbit/s", "p99 to alone"];
        let mut table = plain_table(1, header);
        for setting in Setting::ALL.map(Setting::name) {
            let outcome = &self.settings[setting];
            table.add_row([
                setting.to_owned(),
                microseconds(outcome.p50_ns),
                microseconds(outcome.p99_ns),
                microseconds(outcome.p999_ns),
                thousands(outcome.per_s),
                format!("{:.2}", outcome.flood_gbit_per_s),
                format!("{:.2}", self.p99_ratio[setting]),
            ]);
        }
        let mut text = format!("{table}\nmedians of {} runs of {} s\n", self.runs, self.seconds);
        for note in &self.notes {
            text += &format!("- {note}\n");
        }
        text
    }
}

/// The median of each figure by itself.
fn median(outcomes: &[Outcome]) -> Outcome {
    let time = |figure: fn(&Outcome) -> u64| {
        let mut figures: Vec<u64> = outcomes.iter().map(figure).collect();
        figures.sort_unstable();
        figures[figures.len() / 2]
    };
    let rate = |figure: fn(&Outcome) -> f64| {
        let mut figures: Vec<f64> = outcomes.iter().map(figure).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    Outcome {
        p50_ns: time(|outcome| outcome.p50_ns),
        p99_ns: time(|outcome| outcome.p99_ns),
        p999_ns: time(|outcome| outcome.p999_ns),
        per_s: rate(|outcome| outcome.per_s),
        flood_gbit_per_s: rate(|outcome| outcome.flood_gbit_per_s),
    }
}
