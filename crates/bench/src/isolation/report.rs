//! What was measured: medians and ratios, for programs and for people.

use super::Setting;
use crate::arguments::Timing;
use crate::samples::{Figure, Report, Samples};
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
    /// Messages or reads of the flood, warm-up included.
    pub(super) flood_per_s: f64,
    /// The bytes of these.
    pub(super) flood_gbit_per_s: f64,
}

/// What was found in samples that may be compared.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    /// Medians of the runs.
    settings: BTreeMap<&'static str, Outcome>,
    /// The time of each setting divided by that of the app alone.
    p99_ratio: BTreeMap<&'static str, f64>,
}

/// Sums the samples up.
pub(super) fn report(timing: Timing, outcomes: &Samples<Setting, Outcome>) -> Report<Found> {
    let notes = vec![
        "64 B there and back over memif, one at a time; core 0: both its apps and engines, in \
         turn"
            .into(),
        "the flood: messages of 8 KiB one way, 64 under way; its apps on core 1, its engines \
         there (isolated) or on core 0 (shared); or reads of 64 B, 256 under way, on core 0 \
         (reads)"
            .into(),
    ];
    Report::new(timing, outcomes.sum_up(Found::of), notes)
}

impl Found {
    fn of(outcomes: &[(Setting, Vec<&Outcome>)]) -> Self {
        let of = |(setting, runs): &(Setting, Vec<&Outcome>)| (setting.name(), median(runs));
        let settings: BTreeMap<_, _> = outcomes.iter().map(of).collect();
        let alone_ns = settings[Setting::Alone.name()].p99_ns.max(1) as f64;
        let ratio =
            |(name, outcome): (&&'static str, &Outcome)| (*name, outcome.p99_ns as f64 / alone_ns);
        Self { p99_ratio: settings.iter().map(ratio).collect(), settings }
    }

    pub(super) fn text(&self) -> String {
        let header = [
            "setting",
            "p50",
            "p99",
            "p99.9",
            "answers/s",
            "flood/s",
            "flood Gbit/s",
            "p99 to alone",
        ];
        let mut table = plain_table(1, header);
        for setting in Setting::ALL.map(Setting::name) {
            let outcome = &self.settings[setting];
            table.add_row([
                setting.to_owned(),
                microseconds(outcome.p50_ns),
                microseconds(outcome.p99_ns),
                microseconds(outcome.p999_ns),
                thousands(outcome.per_s),
                thousands(outcome.flood_per_s),
                format!("{:.2}", outcome.flood_gbit_per_s),
                format!("{:.2}", self.p99_ratio[setting]),
            ]);
        }
        format!("{table}\n")
    }
}

/// The median of each figure by itself.
fn median(outcomes: &[&Outcome]) -> Outcome {
    let of = |figure: fn(&Outcome) -> f64| {
        Figure::of(outcomes.iter().map(|outcome| figure(outcome))).median
    };
    Outcome {
        p50_ns: of(|outcome| outcome.p50_ns as f64) as u64,
        p99_ns: of(|outcome| outcome.p99_ns as f64) as u64,
        p999_ns: of(|outcome| outcome.p999_ns as f64) as u64,
        per_s: of(|outcome| outcome.per_s),
        flood_per_s: of(|outcome| outcome.flood_per_s),
        flood_gbit_per_s: of(|outcome| outcome.flood_gbit_per_s),
    }
}
