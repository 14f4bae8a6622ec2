//! What was measured: medians and ratios, for programs and for people.

use super::Who;
use crate::arguments::Timing;
use crate::samples::{Figure, Summary};
use crate::table::{microseconds, plain_table, thousands};
use serde::Serialize;
use std::io;

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    timing: Timing,
    opened: Vec<OpenedAtATime>,
    held: Option<Held>,
    notes: Vec<String>,
}

/// Connections opened and closed, so many at a time.
#[derive(Clone, Debug, Serialize)]
struct OpenedAtATime {
    in_flight: usize,
    #[serde(flatten)]
    summary: Summary<Opened>,
}

/// The same while the machine was in one state; medians.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Opened {
    clearway_per_s: f64,
    kernel_per_s: f64,
    ratio: f64,
}

/// Idle connections beside an active one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Held {
    pub(super) count: usize,
    /// Private memory of the server's daemon, for each connection.
    pub(super) daemon_bytes: u64,
    /// The same of the server's app.
    pub(super) app_bytes: u64,
    /// Median time of an echo of 64 B with no other connection, and beside all of them.
    pub(super) alone_ns: u64,
    pub(super) beside_ns: u64,
}

impl Opened {
    pub(super) fn of(outcomes: &[(Who, Vec<&f64>)]) -> Self {
        let of = |who: Who| {
            let its = outcomes.iter().filter(|(whose, _)| *whose == who);
            Figure::of(its.flat_map(|(_, rates)| rates.iter().map(|rate| **rate))).median
        };
        let (clearway_per_s, kernel_per_s) = (of(Who::Clearway), of(Who::Kernel));
        Self { clearway_per_s, kernel_per_s, ratio: clearway_per_s / kernel_per_s.max(1.0) }
    }
}

impl Report {
    pub(super) fn new(
        timing: Timing,
        opened: Vec<(usize, Summary<Opened>)>,
        held: Option<Held>,
    ) -> Self {
        let mut notes = vec![
            "Clearway: two daemons and two apps as they ship, over memif, nothing pinned; the \
             kernel over loopback. The echo: each host on a core of its own"
                .to_owned(),
        ];
        for note in opened.iter().flat_map(|(_, summary)| &summary.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        let opened = opened.into_iter();
        let opened = opened.map(|(in_flight, summary)| OpenedAtATime { in_flight, summary });
        Self { timing, opened: opened.collect(), held, notes }
    }

    pub(super) fn text(&self) -> String {
        let mut table =
            plain_table(1, ["opened and closed", "Clearway/s", "the kernel/s", "ratio"]);
        for OpenedAtATime { in_flight, summary } in &self.opened {
            let Opened { clearway_per_s, kernel_per_s, ratio } = summary.found;
            let [ours, theirs] = [clearway_per_s, kernel_per_s].map(thousands);
            table.add_row([format!("{in_flight} at a time"), ours, theirs, format!("{ratio:.2}")]);
        }
        let Timing { seconds, runs } = self.timing;
        let mut text = format!("{table}\nmedians of {runs} runs of {seconds} s\n");
        if let Some(held) = &self.held {
            text += &held.text();
        }
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}

impl Held {
    fn text(&self) -> String {
        let Self { count, daemon_bytes, app_bytes, alone_ns, beside_ns } = *self;
        format!(
            "{count} idle connections: {daemon_bytes} B each in the daemon, {app_bytes} B in the \
             app; an echo of 64 B beside them {} µs, alone {} µs ({:.2})\n",
            microseconds(beside_ns),
            microseconds(alone_ns),
            beside_ns as f64 / alone_ns.max(1) as f64
        )
    }
}

/// The memory of a process that it shares with nobody and no file: `RssAnon` of proc(5).
pub(super) fn anonymous_bytes(process: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = kilobytes.and_then(|text| text.trim().strip_suffix("kB"));
    let kilobytes = kilobytes.and_then(|text| text.trim().parse::<u64>().ok());
    Ok(1024 * kilobytes.ok_or_else(|| io::Error::other("the kernel does not say RssAnon"))?)
}
