//! What was measured: medians, spread, ratios, for programs and for people.

use crate::arguments::Timing;
use crate::samples::{Figure, Samples, Summary};
use crate::table::plain_table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// testpmd between two memifs.
    IoForward,
    /// With checking or without.
    WireToVif(bool),
    /// With checking or without.
    VifToWire(bool),
}

impl Contender {
    /// In the order of a round. What is not checked has to be built for (`--features unchecked`).
    pub(super) const ALL: &[Self] = match super::HAS_UNCHECKED {
        true => &[
            Self::IoForward,
            Self::WireToVif(true),
            Self::WireToVif(false),
            Self::VifToWire(true),
            Self::VifToWire(false),
        ],
        false => &[Self::IoForward, Self::WireToVif(true), Self::VifToWire(true)],
    };

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::IoForward => "io_forward",
            Self::WireToVif(true) => "wire_to_vif",
            Self::WireToVif(false) => "wire_to_vif_unchecked",
            Self::VifToWire(true) => "vif_to_wire",
            Self::VifToWire(false) => "vif_to_wire_unchecked",
        }
    }
}

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    frame_bytes: usize,
    ring_descriptors: u32,
    burst_frames: usize,
    flows: u16,
    #[serde(flatten)]
    timing: Timing,
    #[serde(flatten)]
    summary: Summary<Found>,
    notes: Vec<String>,
}

/// What was found in samples that may be compared.
#[derive(Clone, Debug, Serialize)]
struct Found {
    contenders: BTreeMap<&'static str, Figures>,
    /// Each contender's rate divided by io-forward's.
    ratio: BTreeMap<&'static str, f64>,
    /// What part of the rate without checking is lost by checking, where that was measured.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    checking_costs: BTreeMap<&'static str, f64>,
}

/// One contender's rate.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    frames_per_s: f64,
    /// The least and the most.
    spread: [f64; 2],
}

impl Report {
    pub(super) fn new(timing: Timing, flows: u16, rates: &Samples<Contender, f64>) -> Self {
        let summary = rates.sum_up(Found::of);
        let mut notes = vec![
            "core 0: testpmd (txonly, rxonly; for io-forward flowgen, which generates on two \
             ports and takes what comes back); core 1: engine and app in turn in one thread, or \
             testpmd forwarding both ways"
                .into(),
            "counted by the receiving side: the app, rxonly, flowgen".into(),
            "io-forward waits for flowgen much of the time: what it could do is more than what is \
             shown"
                .into(),
            match flows {
                1 => "all frames are of one flow: look-ups and caches are at their best".into(),
                _ => "frames are of all flows in turn; those that come are from our own generator \
                      on core 0, not from txonly, which knows one flow"
                    .into(),
            },
        ];
        notes.extend_from_slice(&summary.notes);
        Self {
            frame_bytes: super::FRAME_BYTES,
            ring_descriptors: 1 << super::RING_LOG2,
            burst_frames: super::BURST_FRAMES,
            flows,
            timing,
            summary,
            notes,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "frames of {} B, flows: {}, rings of {}, bursts of {}, {:.2} s each, medians of {} \
             runs\n{}",
            self.frame_bytes,
            self.flows,
            self.ring_descriptors,
            self.burst_frames,
            self.timing.seconds,
            self.timing.runs,
            self.summary.text(Found::text)
        );
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

impl Found {
    fn of(rates: &[(Contender, Vec<&f64>)]) -> Self {
        let figures = |(contender, rates): &(Contender, Vec<&f64>)| {
            let figure = Figure::of(rates.iter().map(|rate| rate.round()));
            let figures = Figures { frames_per_s: figure.median, spread: figure.range };
            (contender.name(), figures)
        };
        let contenders: BTreeMap<_, _> = rates.iter().map(figures).collect();
        let rate = |contender: Contender| {
            contenders.get(contender.name()).map(|figures: &Figures| figures.frames_per_s)
        };
        let cost = |way: fn(bool) -> Contender| Some(1.0 - rate(way(true))? / rate(way(false))?);
        let checking_costs = [
            ("wire_to_vif", cost(Contender::WireToVif)),
            ("vif_to_wire", cost(Contender::VifToWire)),
        ];
        let costs = checking_costs.into_iter().filter_map(|(way, cost)| Some((way, cost?)));
        let ratio = Contender::ALL.iter().skip(1).filter_map(|contender| {
            Some((contender.name(), rate(*contender)? / rate(Contender::IoForward)?))
        });
        Self { ratio: ratio.collect(), checking_costs: costs.collect(), contenders }
    }

    fn text(&self) -> String {
        let mut table = plain_table(1, ["", "Mframes/s", "least..most", "of io-forward"]);
        for name in Contender::ALL.iter().map(|contender| contender.name()) {
            let Figures { frames_per_s, spread } = self.contenders[name];
            let [least, most] = spread.map(millions);
            let ratio = self.ratio.get(name).map_or_else(String::new, |it| format!("{it:.2}"));
            let rate = millions(frames_per_s);
            table.add_row([name.to_owned(), rate, format!("{least}..{most}"), ratio]);
        }
        let mut text = format!("{table}\n");
        for (way, cost) in &self.checking_costs {
            let _ = writeln!(text, "checking costs {:.0} % of {way}", cost * 100.0);
        }
        text
    }
}

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cores;

    #[test]
    fn medians_ratios_and_costs() {
        let rates = [
            (Contender::IoForward, [8.0, 10.0, 12.0]),
            (Contender::WireToVif(true), [7.0, 7.0, 1.0]),
            (Contender::WireToVif(false), [14.0, 14.0, 14.0]),
            (Contender::VifToWire(true), [5.0; 3]),
            (Contender::VifToWire(false), [10.0; 3]),
        ];
        let cores = Cores { client: 0, server: 0 };
        let mut samples = Samples::new(cores, rates.map(|(contender, _)| contender));
        for (contender, rates) in rates {
            for rate in rates {
                samples.take(contender, || Ok::<_, ()>(rate)).expect("it was measured");
            }
        }
        let report = Report::new(Timing { seconds: 1.0, runs: 3 }, 1, &samples);
        assert!(report.text().contains("checking costs 50 % of vif_to_wire"));
        let json = serde_json::to_value(report).expect("plain data");
        assert_eq!(json["ratio"]["wire_to_vif"], 0.7);
        assert_eq!(json["checking_costs"]["wire_to_vif"], 0.5);
        assert_eq!(json["contenders"]["io_forward"]["spread"], serde_json::json!([8.0, 12.0]));
        assert_eq!(json["states"][0]["ratio"], json["ratio"]);
        assert_eq!((&json["runs"], &json["seconds"]), (&3.into(), &1.0.into()));
    }
}
