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
            let of_waiting = self.outcomes.iter().filter(move |outcome| outcome.waiting == waiting);
            // On a logarithmic scale there is no zero.
            let values = of_waiting.map(|outcome| outcome.cpu_percent.max(0.01)).collect();
            Series { name: waiting, values }
        };
        let blocking = self.outcomes.iter().filter(|outcome| outcome.waiting == "blocking");
        let groups: Vec<String> = blocking
            .map(|outcome| format!("{} per s", thousands(outcome.load_per_s.into())))
            .collect();
        let title = "CPU use of all threads together, by load";
        Bars { title, unit: "%", groups: &groups, series: vec![of("blocking"), of("polling")] }
            .svg()
    }
}
