//! What was measured: medians, spread, ratios, for programs and for people.

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
    /// In the order of a round.
    pub(super) const ALL: [Self; 5] = [
        Self::IoForward,
        Self::WireToVif(true),
        Self::WireToVif(false),
        Self::VifToWire(true),
        Self::VifToWire(false),
    ];

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
    seconds: f64,
    runs: usize,
    contenders: BTreeMap<&'static str, Figures>,
    /// Each contender's rate divided by io-forward's.
    ratio: BTreeMap<&'static str, f64>,
    /// What part of the rate without checking is lost by checking.
    checking_costs: BTreeMap<&'static str, f64>,
    notes: Vec<&'static str>,
}

/// One contender's rate.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    frames_per_s: f64,
    /// The least and the most.
    spread: [f64; 2],
}

impl Report {
    pub(super) fn new(
        seconds: f64,
        flows: u16,
        rates: &[(Contender, Vec<f64>)],
        is_shared: bool,
    ) -> Self {
        let contenders: BTreeMap<_, _> =
            rates.iter().map(|(contender, rates)| (contender.name(), Figures::of(rates))).collect();
        let rate = |contender: Contender| contenders[contender.name()].frames_per_s;
        let cost = |way: fn(bool) -> Contender| 1.0 - rate(way(true)) / rate(way(false));
        let checking_costs = [
            ("wire_to_vif", cost(Contender::WireToVif)),
            ("vif_to_wire", cost(Contender::VifToWire)),
        ];
        let ratio = Contender::ALL.into_iter().skip(1);
        let ratio =
            ratio.map(|contender| (contender.name(), rate(contender) / rate(Contender::IoForward)));
        let mut notes = vec![
            "core 0: testpmd (txonly, rxonly; for io-forward flowgen, which generates on two ports and takes what comes back); core 1: engine and app in turn in one thread, or testpmd forwarding both ways",
            "counted by the receiving side: the app, rxonly, flowgen",
            "io-forward waits for flowgen much of the time: what it could do is more than what is shown",
            match flows {
                1 => "all frames are of one flow: look-ups and caches are at their best",
                _ => {
                    "frames are of all flows in turn; those that come are from our own generator on core 0, not from txonly, which knows one flow"
                }
            },
        ];
        if is_shared {
            notes.push("only one core may be used: all processes share it");
        }
        Self {
            frame_bytes: super::FRAME_BYTES,
            ring_descriptors: 1 << super::RING_LOG2,
            burst_frames: super::BURST_FRAMES,
            flows,
            seconds,
            runs: rates.first().map_or(0, |(_, rates)| rates.len()),
            ratio: ratio.collect(),
            checking_costs: checking_costs.into(),
            contenders,
            notes,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut table = plain_table(1, ["", "Mframes/s", "least..most", "of io-forward"]);
        for contender in Contender::ALL {
            let name = contender.name();
            let figures = self.contenders[name];
            let [least, most] = figures.spread.map(millions);
            let ratio = self.ratio.get(name).map_or_else(String::new, |it| format!("{it:.2}"));
            let rate = millions(figures.frames_per_s);
            table.add_row([name.to_owned(), rate, format!("{least}..{most}"), ratio]);
        }
        let mut text = format!(
            "frames of {} B, flows: {}, rings of {}, bursts of {}, {:.2} s each, medians of {} runs\n{table}\n",
            self.frame_bytes,
            self.flows,
            self.ring_descriptors,
            self.burst_frames,
            self.seconds,
            self.runs
        );
        for (way, cost) in &self.checking_costs {
            let _ = writeln!(text, "checking costs {:.0} % of {way}", cost * 100.0);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

impl Figures {
    fn of(rates: &[f64]) -> Self {
        let mut rates: Vec<f64> = rates.iter().map(|rate| rate.round()).collect();
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        let median = if rates.len() % 2 == 1 {
            rates[middle]
        } else {
            f64::midpoint(rates[middle - 1], rates[middle])
        };
        Self { frames_per_s: median, spread: [rates[0], rates[rates.len() - 1]] }
    }
}

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ratios_and_costs() {
        let rates = [[8.0, 10.0, 12.0], [7.0, 7.0, 1.0], [14.0, 14.0, 14.0], [5.0; 3], [10.0; 3]];
        let rates: Vec<_> =
            Contender::ALL.into_iter().zip(rates.map(|rates| rates.to_vec())).collect();
        let report = Report::new(1.0, 1, &rates, false);
        assert_eq!(report.ratio["wire_to_vif"], 0.7);
        assert_eq!(report.checking_costs["wire_to_vif"], 0.5);
        assert_eq!(report.contenders["io_forward"].spread, [8.0, 12.0]);
        assert!(report.text().contains("checking costs 50 % of vif_to_wire"));
    }
}
