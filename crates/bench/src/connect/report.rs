//! What was measured, for programs and for people.

use serde::Serialize;

use super::ConnectCommand;
use super::measure::Setup;
use crate::table::plain_table;

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    client_engines: usize,
    server_engines: usize,
    count: usize,
    rss: &'static str,
    processes: bool,
    loss_ppm: u32,
    latency_us: u32,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    packets_p50: u64,
    packets_p95: u64,
    packets_max: u64,
    /// Set-ups in which a side sent more than its first batch count once for each batch more.
    retries: u64,
    /// Connections without a direct way in one of the directions when the wire had become quiet.
    detours: usize,
    /// Passes over the engines of both hosts until the app was told; 0 if they do not take turns.
    passes_p50: u64,
}

impl Report {
    pub(super) fn new(command: &ConnectCommand, setups: &[Setup]) -> Self {
        let sorted = |what: fn(&Setup) -> u64| {
            let mut values: Vec<u64> = setups.iter().map(what).collect();
            values.sort_unstable();
            values
        };
        let ns = sorted(|setup| setup.ns);
        let packets = sorted(|setup| setup.packets);
        Self {
            client_engines: command.client_engines,
            server_engines: command.server_engines,
            count: setups.len(),
            rss: command.rss_name(),
            processes: command.processes,
            loss_ppm: command.loss_ppm,
            latency_us: command.latency_us,
            p50_ns: percentile(&ns, 50),
            p99_ns: percentile(&ns, 99),
            max_ns: percentile(&ns, 100),
            packets_p50: percentile(&packets, 50),
            packets_p95: percentile(&packets, 95),
            packets_max: percentile(&packets, 100),
            retries: setups.iter().map(|setup| setup.retries).sum(),
            detours: setups.iter().filter(|setup| setup.is_detour).count(),
            passes_p50: percentile(&sorted(|setup| setup.passes), 50),
        }
    }

    pub(super) fn text(&self) -> String {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
        let mut table = plain_table(
            1,
            [
                "engines",
                "p50 µs",
                "p99 µs",
                "max µs",
                "packets p50",
                "p95",
                "max",
                "retries",
                "detours",
                "passes p50",
            ],
        );
        table.add_row([
            format!("{}x{}", self.client_engines, self.server_engines),
            us(self.p50_ns),
            us(self.p99_ns),
            us(self.max_ns),
            self.packets_p50.to_string(),
            self.packets_p95.to_string(),
            self.packets_max.to_string(),
            self.retries.to_string(),
            self.detours.to_string(),
            self.passes_p50.to_string(),
        ]);
        let place = if self.processes {
            "daemons and `clearway fabric` as processes"
        } else {
            "apps and engines of both hosts in turn in one thread, in-memory fabric"
        };
        let Self { count, rss, .. } = self;
        format!("{table}\n{count} set-ups; {place}, {rss} with new keys for each set-up\n")
    }
}

/// The smallest value that so many percent do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [100, 198, 200]);
        assert_eq!(percentile(&[7], 50), 7);
    }
}
