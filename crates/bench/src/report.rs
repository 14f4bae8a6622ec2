//! What a comparison found: medians over the runs, their spread, and Clearway's ratios; of each
//! state of the machine.

use crate::arguments::Plan;
use crate::contender::Contender;
use crate::kernel::Outcome;
use crate::samples::{Figure, Samples, Summary};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `rtt`, `rate` or `stream`.
    pub workload: &'static str,
    /// Bytes per message.
    pub size: usize,
    /// Messages in flight, of each connection.
    pub window: usize,
    /// Connections at the same time.
    pub connections: usize,
    /// What joined the Clearway hosts.
    pub wire: crate::Wire,
    /// Which app of Clearway's contender was one of the kernel's TCP.
    pub kernel_end: Option<crate::KernelEnd>,
    /// What the kernel's TCP and UDP crossed: `veth` or `loopback`.
    pub tcp_wire: &'static str,
    /// Where Clearway's processes ran.
    pub layout: crate::Layout,
    /// What Clearway's apps were.
    pub app: crate::Language,
    /// What Clearway's processes did when idle.
    pub idle: crate::Idle,
    /// Largest IP packet on the Clearway wire.
    pub mtu: u16,
    /// Largest IP packet on the kernel's wire.
    pub tcp_mtu: u16,
    /// Seconds per contender and run.
    pub seconds: f64,
    /// Runs of each contender.
    pub runs: usize,
    /// What was found.
    #[serde(flatten)]
    pub summary: Summary<Found>,
    /// What the reader has to know.
    pub notes: Vec<String>,
}

/// What was found in samples that may be compared.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Each contender's figures.
    #[serde(serialize_with = "as_map")]
    pub contenders: Vec<(Contender, Figures)>,
    /// Clearway's figure divided by each other contender's.
    #[serde(serialize_with = "as_map")]
    pub ratio: Vec<(Contender, Ratio)>,
}

/// A contender's medians.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Median time of a message.
    pub p50_ns: u64,
    /// 99 of 100 messages were at most this slow.
    pub p99_ns: u64,
    /// 999 of 1000 messages were at most this slow.
    pub p999_ns: u64,
    /// Messages per second.
    pub rate_per_s: f64,
    /// Payload in one direction.
    pub gbit_per_s: f64,
    /// CPU time of all its processes in one run.
    pub cpu_s: f64,
    /// CPU time of all its processes for each Gbit of payload.
    pub cpu_s_per_gbit: f64,
    /// Datagrams never answered, in all runs.
    pub lost: u64,
    /// The least and the most of each figure.
    pub spread: Spread,
}

/// The least and the most over the runs.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// Of the median time.
    pub p50_ns: [u64; 2],
    /// Of the 99th percentile.
    pub p99_ns: [u64; 2],
    /// Of the 99.9th percentile.
    pub p999_ns: [u64; 2],
    /// Of the rate.
    pub rate_per_s: [f64; 2],
    /// Of the bandwidth.
    pub gbit_per_s: [f64; 2],
    /// Of the CPU time.
    pub cpu_s: [f64; 2],
    /// Of the CPU time for each Gbit.
    pub cpu_s_per_gbit: [f64; 2],
}

/// Clearway's figures divided by another contender's: under 1 is better for times, over 1 for
/// rates. `None` where one of two times, or the other's rate, is of no message at all.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratio {
    /// Of the median time.
    pub p50: Option<f64>,
    /// Of the 99th percentile.
    pub p99: Option<f64>,
    /// Of the 99.9th percentile.
    pub p999: Option<f64>,
    /// Of the messages per second.
    pub rate: Option<f64>,
    /// Of the bandwidth.
    pub gbit: Option<f64>,
    /// Of the CPU time per message.
    pub cpu_per_message: Option<f64>,
}

fn as_map<T: Serialize, S: Serializer>(
    entries: &[(Contender, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for (contender, value) in entries {
        map.serialize_entry(contender.name(), value)?;
    }
    map.end()
}

impl Report {
    /// Sums up the runs of each contender.
    pub(crate) fn new(
        plan: &Plan,
        samples: &Samples<Contender, Outcome>,
        tcp_wire: &'static str,
        tcp_mtu: u16,
        mut notes: Vec<String>,
    ) -> Self {
        let summary = samples.sum_up(Found::of);
        notes.extend_from_slice(&summary.notes);
        Self {
            workload: plan.load.workload.name(),
            size: plan.load.size,
            window: plan.load.window,
            connections: plan.load.connections,
            wire: plan.wire,
            kernel_end: plan.kernel_end,
            tcp_wire,
            layout: plan.layout,
            app: if plan.c_app.is_some() { crate::Language::C } else { crate::Language::Rust },
            idle: plan.idle,
            mtu: plan.mtu,
            tcp_mtu,
            seconds: plan.load.seconds,
            runs: plan.runs,
            summary,
            notes,
        }
    }
}

impl Found {
    fn of(outcomes: &[(Contender, Vec<&Outcome>)]) -> Self {
        let figures =
            |(contender, runs): &(Contender, Vec<&Outcome>)| (*contender, Figures::of(runs));
        let contenders: Vec<_> = outcomes.iter().map(figures).collect();
        Self { ratio: ratios(&contenders), contenders }
    }

    /// The figures of one contender, if it took part.
    #[must_use]
    pub fn figures(&self, of: Contender) -> Option<&Figures> {
        self.contenders.iter().find(|(contender, _)| *contender == of).map(|(_, figures)| figures)
    }
}

fn ratios(contenders: &[(Contender, Figures)]) -> Vec<(Contender, Ratio)> {
    let Some((own, ours)) = contenders.iter().find(|(name, _)| name.is_clearway()) else {
        return Vec::new();
    };
    contenders
        .iter()
        .filter(|(name, _)| name != own)
        .map(|(name, theirs)| (*name, Ratio::of(ours, theirs)))
        .collect()
}

impl Ratio {
    fn of(ours: &Figures, theirs: &Figures) -> Self {
        let divide = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        let times = |a: f64, b: f64| divide(a, b).map(|ratio| significant(ratio, 3));
        let latency = |a: u64, b: u64| times(a as f64, b as f64).filter(|ratio| *ratio > 0.0);
        let per_message = |figures: &Figures| divide(figures.cpu_s, figures.rate_per_s);
        let per_messages = per_message(ours).zip(per_message(theirs));
        Self {
            p50: latency(ours.p50_ns, theirs.p50_ns),
            p99: latency(ours.p99_ns, theirs.p99_ns),
            p999: latency(ours.p999_ns, theirs.p999_ns),
            rate: times(ours.rate_per_s, theirs.rate_per_s),
            gbit: times(ours.gbit_per_s, theirs.gbit_per_s),
            cpu_per_message: per_messages.and_then(|(a, b)| times(a, b)),
        }
    }
}

impl Figures {
    pub(crate) fn of(runs: &[&Outcome]) -> Self {
        let of = |figure: fn(&Outcome) -> f64| Figure::of(runs.iter().map(|run| figure(run)));
        let p50 = of(|run| run.sample.p50_ns as f64);
        let p99 = of(|run| run.sample.p99_ns as f64);
        let p999 = of(|run| run.sample.p999_ns as f64);
        let rate = of(|run| significant(run.sample.rate_per_s, 6));
        let gbit = of(|run| significant(run.sample.gbit_per_s, 4));
        let cpu = of(|run| significant(run.cpu_s, 4));
        let per_gbit = of(|run| significant(run.cpu_s_per_gbit, 3));
        let whole = |range: [f64; 2]| range.map(|figure| figure as u64);
        Self {
            p50_ns: p50.median as u64,
            p99_ns: p99.median as u64,
            p999_ns: p999.median as u64,
            rate_per_s: rate.median,
            gbit_per_s: gbit.median,
            cpu_s: cpu.median,
            cpu_s_per_gbit: per_gbit.median,
            lost: runs.iter().map(|run| run.sample.lost).sum(),
            spread: Spread {
                p50_ns: whole(p50.range),
                p99_ns: whole(p99.range),
                p999_ns: whole(p999.range),
                rate_per_s: rate.range,
                gbit_per_s: gbit.range,
                cpu_s: cpu.range,
                cpu_s_per_gbit: per_gbit.range,
            },
        }
    }
}

/// `figure` to so many significant digits: more would only pretend, and a fixed number of decimals
/// would turn the rate of a spinner that was preempted into 0.
pub(crate) fn significant(figure: f64, digits: i32) -> f64 {
    if figure <= 0.0 {
        return 0.0;
    }
    let steps = 10_f64.powi(digits - 1 - figure.log10().floor() as i32);
    (figure * steps).round() / steps
}

#[cfg(test)]
mod tests;
