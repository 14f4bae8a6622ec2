//! What was measured, for programs and for people.

use crate::plot::{Bars, Series};
use crate::table::{microseconds, plain_table, thousands};
use serde::Serialize;

/// What one load showed with one way of waiting.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) waiting: &'static str,
    pub(super) load_per_s: u32,
    /// Messages that were taken from the sender, and those that had arrived when it stopped.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Threads that got at least one.
    pub(super) threads_served: usize,
    /// From just before a message was sent until its thread had it.
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    /// What all threads together used of their core.
    pub(super) cpu_percent: f64,
    /// What the daemon used of its core.
    pub(super) daemon_cpu_percent: f64,
}

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    threads: usize,
    seconds: f64,
    outcomes: Vec<Outcome>,
    notes: Vec<&'static str>,
}

impl Report {
    pub(super) fn new(
        threads: usize,
        seconds: f64,
        outcomes: Vec<Outcome>,
        is_shared: bool,
    ) -> Self {
        let mut notes =
            vec!["core 0: the threads; core 1: the daemon, and who sends to each thread in turn"];
        if is_shared {
            notes.push("only one core may be used: all share it");
        }
        Self { threads, seconds, outcomes, notes }
    }

    pub(super) fn text(&self) -> String {
        let header = [
            "waiting",
            "messages/s",
            "sent",
            "received",
            "served",
            "p50",
            "p99",
            "threads' core",
            "daemon's core",
        ];
        let mut table = plain_table(1, header);
        for outcome in &self.outcomes {
            table.add_row([
                outcome.waiting.to_owned(),
                thousands(outcome.load_per_s.into()),
                outcome.sent.to_string(),
                outcome.received.to_string(),
                format!("{} of {}", outcome.threads_served, self.threads),
                microseconds(outcome.p50_ns),
                microseconds(outcome.p99_ns),
                format!("{:.2} %", outcome.cpu_percent),
                format!("{:.2} %", outcome.daemon_cpu_percent),
            ]);
        }
        let mut text = format!("{table}\n{} threads, {} s each\n", self.threads, self.seconds);
        for note in &self.notes {
            text += &format!("- {note}\n");
        }
        text
    }

    pub(super) fn svg(&self) -> String {
        let of = |waiting: &'static str| {
            self.outcomes.iter().filter(move |outcome| outcome.waiting == waiting)
        };
        let series = |name: &'static str| {
            // On a logarithmic scale there is no zero.
            let values = of(name).map(|outcome| outcome.cpu_percent.max(0.01)).collect();
            Series { name, values }
        };
        let series = ["blocking", "polling"].map(series).into_iter();
        // One that `--waiting` leaves out has no bars; those that are left have the same loads.
        let series: Vec<_> = series.filter(|series| !series.values.is_empty()).collect();
        let groups: Vec<String> = series
            .first()
            .into_iter()
            .flat_map(|series| of(series.name))
            .map(|outcome| format!("{} per s", thousands(outcome.load_per_s.into())))
            .collect();
        let title = "CPU use of all threads together, by load";
        Bars { title, unit: "%", groups: &groups, series }.svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_in_one_way_only_has_a_plot() {
        for waiting in ["blocking", "polling"] {
            let outcome = Outcome {
                waiting,
                load_per_s: 100,
                sent: 7,
                received: 7,
                threads_served: 1,
                p50_ns: 1000,
                p99_ns: 2000,
                cpu_percent: 3.0,
                daemon_cpu_percent: 4.0,
            };
            let svg = Report::new(1, 1.0, vec![outcome], false).svg();
            assert!(svg.contains("100 per s") && svg.contains(waiting), "{svg}");
        }
    }
}
