//! What was measured: medians and ratios, for programs and for people.

use super::{MESSAGE_BYTES, Setting, WINDOW};
use crate::arguments::Timing;
use crate::samples::{Figure, Report, Samples};
use crate::table::{plain_table, thousands};
use serde::Serialize;
use std::collections::BTreeMap;

/// What was found in samples that may be compared: medians of the runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    /// Messages, with their answers, per second.
    rate_per_s: BTreeMap<&'static str, f64>,
    /// Those of hosts with two engines, to those of hosts with one on the one core and on the
    /// other: 1 is linear.
    two_to_ones: f64,
    /// Those of two pairs of hosts, likewise: what the machine lets be had.
    apart_to_ones: f64,
}

/// Sums the samples up.
pub(super) fn report(timing: Timing, rates: &Samples<Setting, f64>) -> Report<Found> {
    let notes = vec![format!(
        "{MESSAGE_BYTES} B there and back over memif, {WINDOW} under way per engine; each core \
         has the engines of one number of both hosts, and their apps, in turn"
    )];
    Report::new(timing, rates.sum_up(Found::of), notes)
}

impl Found {
    fn of(rates: &[(Setting, Vec<&f64>)]) -> Self {
        let median = |runs: &[&f64]| Figure::of(runs.iter().map(|rate| **rate)).median;
        let rates: BTreeMap<_, _> =
            rates.iter().map(|(setting, runs)| (setting.name(), median(runs))).collect();
        let of = |setting: Setting| rates[setting.name()];
        let ones = (of(Setting::One) + of(Setting::Other)).max(1.0);
        Self {
            two_to_ones: of(Setting::Two) / ones,
            apart_to_ones: of(Setting::Apart) / ones,
            rate_per_s: rates,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut table = plain_table(1, ["hosts", "messages/s", "to one on each core"]);
        let rows = [
            ("of one engine, first core", Setting::One, None),
            ("of one engine, second core", Setting::Other, None),
            ("of two engines, both cores", Setting::Two, Some(self.two_to_ones)),
            ("two pairs of one engine, both cores", Setting::Apart, Some(self.apart_to_ones)),
        ];
        for (what, setting, ratio) in rows {
            let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            table.add_row([what.to_owned(), thousands(self.rate_per_s[setting.name()]), ratio]);
        }
        format!("{table}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_engines_are_held_against_one_on_each_core() {
        let rates = [3.0, 1.0, 3.0, 4.0];
        let samples: Vec<_> = Setting::ALL
            .into_iter()
            .zip(&rates)
            .map(|(setting, rate)| (setting, vec![rate]))
            .collect();
        let found = Found::of(&samples);
        assert_eq!((found.two_to_ones, found.apart_to_ones), (0.75, 1.0));
    }
}
